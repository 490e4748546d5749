// CUDA's function qualifiers, beside the names that standard headers use.
#include "cpu/qualifiers.hpp"

#include "cpu/support.hpp"

namespace holdfast::test {
namespace {

TEST(Qualifiers, NoinlineAndForceinlineAreKept) {
  void* frames[4] = {};
  Stream stream;
  launch(stream, 1, 1, note_frames, +frames);
  stream.synchronize();
  EXPECT_NE(frames[0], nullptr);
  EXPECT_NE(frames[1], frames[0]);
  EXPECT_NE(frames[2], frames[0]);
  EXPECT_EQ(frames[3], frames[0]);
}

TEST(Qualifiers, StandardHeadersMayFollow) {
  int results[2] = {};
  Stream stream;
  launch(stream, 1, 1, use_standard_headers, +results);
  stream.synchronize();
  EXPECT_EQ(results[0], 1);
  EXPECT_EQ(results[1], 6);
}

}  // namespace
}  // namespace holdfast::test

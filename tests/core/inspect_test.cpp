// What tools see of a region's files.
#include "holdfast/inspect.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "core/format.hpp"
#include "support/image_file.hpp"
#include "support/io_recorder.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class InspectTest : public test::Scratch {};

TEST_F(InspectTest, TellsWhatAnImageHolds) {
  std::string uuid;
  {
    Region region = Region::create(path(), options(8 * kMiB));
    auto data = region.allocate<float>("data", 100'000);
    std::fill(data.begin(), data.end(), 1.0f);
    region.commit();
    uuid = region.uuid();
    std::fill(data.begin(), data.end(), 2.0f);
    const ImageInfo beside = inspect_image(path(), Verify::everything);
    EXPECT_TRUE(beside.in_use);
    EXPECT_EQ(beside.generation, 1u);
    std::fill(data.begin(), data.end(), 1.0f);
    region.close();
  }
  const std::vector<char> before = test::read_file(path());
  const ImageInfo info = inspect_image(path(), Verify::everything);
  EXPECT_EQ(test::read_file(path()), before);
  EXPECT_EQ(info.uuid, uuid);
  EXPECT_EQ(info.version, 2u);
  EXPECT_EQ(info.generation, 1u);
  EXPECT_EQ(info.region_bytes, 8 * kMiB);
  EXPECT_EQ(info.file_bytes, before.size());
  EXPECT_LT(info.allocated_bytes, kMiB) << "the file is sparse";
  EXPECT_GE(info.pages_stored, 400'000u / kPageBytes);
  EXPECT_LE(info.pages_stored, 400'000u / kPageBytes + 10);
  EXPECT_GE(info.committed_unix_ns, info.created_unix_ns);
  ASSERT_EQ(info.objects.size(), 1u);
  EXPECT_EQ(info.objects[0].name, "data");
  EXPECT_EQ(info.objects[0].type, "f32");
  EXPECT_FALSE(info.arena.exists);
}

TEST_F(InspectTest, TellsWhetherACrashLeftAnArena) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<float>("data", 10);
    region.abandon();
  }
  ImageInfo info = inspect_image(path());
  EXPECT_TRUE(info.objects.empty()) << "the last commit, not the arena";
  EXPECT_TRUE(info.arena.exists);
  EXPECT_TRUE(info.arena.valid);
  EXPECT_TRUE(info.arena.this_boot);
  EXPECT_EQ(info.arena.path, only_file(arenas()));
  EXPECT_EQ(info.arena.bytes, kMiB + kPageBytes);
  EXPECT_EQ(info.arena.problem, "");

  test::FileUnderTest arena(info.arena.path);
  const std::byte other = ~arena.read(20, 1)[0];
  arena.write(20, &other, 1);
  info = inspect_image(path());
  EXPECT_TRUE(info.arena.exists);
  EXPECT_FALSE(info.arena.valid);
  EXPECT_NE(info.arena.problem.find(info.arena.path), std::string::npos);
}

TEST_F(InspectTest, FindsDamage) {
  {
    Region region = Region::create(path(), options(kMiB));
    std::memset(region.allocate<char>("data", 1000).data(), 1, 1000);
    region.close();
  }
  const char other = 'x';
  const std::uint64_t page = test::page_offset(test::image_in(path()), core::kMetadataPages);
  test::FileUnderTest(path()).write(page + 5, &other, 1);
  EXPECT_EQ(inspect_image(path()).objects.size(), 1u) << "tables alone";
  EXPECT_EQ(error_of([&] { inspect_image(path(), Verify::everything); }, {path(), "'data'"}),
            Errc::damaged);
  test::write_file(path("text"), {'h', 'e', 'l', 'l', 'o', 'h', 'e', 'l', 'l', 'o'});
  EXPECT_EQ(error_of([&] { inspect_image(path("text")); }), Errc::foreign);
}

}  // namespace
}  // namespace holdfast

// The trainer by cuDNN on a stand-in: that every status of the libraries is looked at. What it
// computes is tested with the other trainers'.
#include <gtest/gtest.h>

#include "cudnn_stand_in.hpp"
#include "lenet/lenet_cudnn_kernels.hpp"
#include "support/error_of.hpp"

namespace lenet {
namespace {

using holdfast::Errc;

constexpr Shape kShape{2, 3, 8};

void make_and_pass() {
  holdfast::Stream stream;
  const auto trainer = make_cudnn_trainer(stand_in::api(), stream, kShape, {4}, draw_digits(10, 1));
  trainer->start(std::vector<float>(kShape.parameters(), 0.1f));
  trainer->train({0, 1, 2, 3}, {0.1f});
}

TEST(LenetCudnn, EveryCallIsCheckedAndNamed) {
  make_and_pass();
  EXPECT_EQ(stand_in::alive(), 0);
  for (const std::string& function : stand_in::functions()) {
    const auto is = [&](const char* part) { return function.find(part) != std::string::npos; };
    // These tell of errors or come when nobody can be told.
    if (is("Destroy") || is("String")) continue;
    const bool starts = function == "cudnnCreate" || function == "cublasCreate_v2";
    stand_in::fail(function);
    EXPECT_EQ(holdfast::test::error_of([] { make_and_pass(); },
                                       {function.substr(0, function.find("_v2")), "told to fail"}),
              starts ? Errc::unsupported : Errc::device)
        << function;
    EXPECT_EQ(stand_in::alive(), 0) << function;
  }
  stand_in::fail("");
  make_and_pass();
}

// Every parameter has a place of its own, and every layer's first is aligned to 256 bytes.
TEST(LenetCudnn, PlacementIsAlignedAndWhole) {
  for (const Shape& shape : {Shape{1, 1, 4}, Shape{6, 16, 120}, Shape{20, 50, 500}}) {
    const passes::Placement placement = passes::Placement::of(shape);
    EXPECT_EQ(placement.first[0], 0u);
    EXPECT_EQ(placement.first[passes::Placement::kParts], shape.parameters());
    std::uint32_t end = 0;
    for (unsigned part = 0; part < passes::Placement::kParts; ++part) {
      EXPECT_LT(placement.first[part], placement.first[part + 1]);
      EXPECT_EQ(placement.place[part] % 64, 0u);
      EXPECT_GE(placement.place[part], end);
      end = placement.place[part] + placement.first[part + 1] - placement.first[part];
    }
    EXPECT_LE(end, placement.length);
  }
}

}  // namespace
}  // namespace lenet

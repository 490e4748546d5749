// Saves and restores in a region that stands for a slower medium.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "holdfast/testing/checkpoint.hpp"
#include "holdfast/testing/throttle.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

// Of these bytes a kernel copies, or the engine, by the threshold.
class CheckpointOnAMedium : public test::Scratch, public ::testing::WithParamInterface<bool> {
 protected:
  static constexpr std::size_t kCount = 1 << 18;  // 1 MiB
  static constexpr double kLeast = kCount * 4 / 4e6;

  Checkpoint make(Region& region) {
    Checkpoint checkpoint(region, "training");
    checkpoint.add("model", "weights", weights_.data(), kCount);
    if (GetParam()) testing::set_engine_threshold(checkpoint, 1);
    return checkpoint;
  }
  void set(float value) {
    for (std::size_t i = 0; i < kCount; ++i) weights_[i] = value;
  }
  static double seconds_of(const std::function<void()>& body) {
    const Clock::time_point start = Clock::now();
    body();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  PinnedBuffer<float> weights_{kCount};
};

INSTANTIATE_TEST_SUITE_P(By, CheckpointOnAMedium, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "engine" : "kernel"; });

TEST_P(CheckpointOnAMedium, TakesAsLongAsTheMedium) {
  RegionOptions made = options(8u << 20);
  made.medium = testing::standing_for("limit=4MB/s");
  Region region = Region::create(path(), made);
  Checkpoint checkpoint = make(region);
  Stream stream;
  set(1);
  EXPECT_GE(seconds_of([&] {
              checkpoint.save(stream, "model", 1);
              stream.synchronize();
            }),
            kLeast);
  set(2);
  const double waited = testing::throttle(region).waited_seconds();
  EXPECT_GE(seconds_of([&] {
              PendingSave pending = checkpoint.save_async(stream, "model", 2);
              stream.synchronize();  // the copy aside, which waits for no medium
              EXPECT_EQ(testing::throttle(region).waited_seconds(), waited);
              EXPECT_FALSE(pending.done());
              pending.wait();
            }),
            kLeast);
  set(3);
  EXPECT_GE(seconds_of([&] { EXPECT_EQ(checkpoint.restore(stream, "model"), 2u); }), kLeast);
  EXPECT_EQ(weights_[0], 2);
  EXPECT_EQ(weights_[kCount - 1], 2);
  region.abandon();  // closing it would commit, at the same rate
}

}  // namespace
}  // namespace holdfast

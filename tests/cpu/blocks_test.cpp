// Blocks: indices, barriers with threads that left, shared memory, and blocks that wait.
#include "cpu/blocks.hpp"

#include <vector>

#include "cpu/support.hpp"

namespace holdfast::test {
namespace {

TEST(Blocks, IndicesAndExtents) {
  for (const std::uint64_t seed : {0, 5}) {
    const ScheduleScope scope(with_seed(seed));
    const dim3 grid(3, 2, 2), block(5, 4, 3);
    std::vector<Indices> out(3 * 2 * 2 * 5 * 4 * 3);
    Stream stream;
    launch(stream, grid, block, record_indices, out.data());
    stream.synchronize();
    std::size_t i = 0;
    for (unsigned bz = 0; bz < 2; ++bz)
      for (unsigned by = 0; by < 2; ++by)
        for (unsigned bx = 0; bx < 3; ++bx)
          for (unsigned z = 0; z < 3; ++z)
            for (unsigned y = 0; y < 4; ++y)
              for (unsigned x = 0; x < 5; ++x, ++i) {
                const Indices& my = out[i];
                ASSERT_TRUE(my.thread.x == x && my.thread.y == y && my.thread.z == z);
                ASSERT_TRUE(my.block.x == bx && my.block.y == by && my.block.z == bz);
                ASSERT_TRUE(my.block_dim.x == 5 && my.block_dim.y == 4 && my.block_dim.z == 3);
                ASSERT_TRUE(my.grid_dim.x == 3 && my.grid_dim.y == 2 && my.grid_dim.z == 2);
              }
  }
}

TEST(Blocks, BarriersCountThreadsThatHaveNotExited) {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    const ScheduleScope scope(with_seed(seed));
    std::vector<unsigned> out(200);
    Stream stream;
    launch(stream, 1, 200, early_return, 70u, out.data());
    stream.synchronize();
    for (unsigned i = 0; i < 200; ++i) ASSERT_EQ(out[i], i < 70 ? 5u : 0u) << i;
  }
}

TEST(Blocks, SharedMemoryIsTheBlocks) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const ScheduleScope scope(with_seed(seed));
    unsigned wrong = 0;
    Stream stream;
    launch(stream, 12, 64, shared_stays, 5u, &wrong);
    launch(stream, LaunchShape{10, 32, 200 * 1024}, dynamic_shared_stays, 200u * 256, 2u, &wrong);
    stream.synchronize();
    EXPECT_EQ(wrong, 0u) << "seed " << seed;
  }
}

TEST(Blocks, AnyBlockMayWaitForAnyOther) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const ScheduleScope scope(with_seed(seed));
    for (unsigned setter = 0; setter < 4; ++setter) {
      unsigned flag = 0, seen = 0;
      Stream stream;
      launch(stream, 4, 16, wait_for_block, setter, &flag, &seen);
      stream.synchronize();
      EXPECT_EQ(seen, 3u * 16) << "setter " << setter << ", seed " << seed;
    }
  }
}

TEST(Blocks, AcquireSeesWhatWasReleased) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const ScheduleScope scope(with_seed(seed));
    for (unsigned setter = 0; setter < 3; ++setter) {
      unsigned flag = 0, seen = 0;
      std::vector<unsigned> data(16);
      Stream stream;
      launch(stream, 3, 16, wait_by_acquire, setter, &flag, data.data(), &seen);
      stream.synchronize();
      EXPECT_EQ(seen, 2u * 16) << "setter " << setter << ", seed " << seed;
    }
  }
}

TEST(Blocks, TokenGoesRound) {
  for (const std::uint64_t seed : {0, 1}) {
    const ScheduleScope scope(with_seed(seed));
    for (const bool backwards : {false, true}) {
      unsigned token = 0;
      Stream stream;
      launch(stream, 5, 3, token_ring, 10u, backwards, &token);
      stream.synchronize();
      EXPECT_EQ(token, 50u);
    }
  }
}

TEST(Blocks, GridBarrier) {
  for (const std::uint64_t seed : {0, 1}) {
    const ScheduleScope scope(with_seed(seed));
    unsigned arrived = 0;
    std::vector<unsigned> out(8 * 32);
    Stream stream;
    launch(stream, 8, 32, grid_barrier, 10u, &arrived, out.data());
    stream.synchronize();
    EXPECT_EQ(arrived, 80u);
  }
}

// A block that waits for one past the resident ones waits for ever, as on a GPU.
TEST(Blocks, ResidentBlocksBoundWhoCanWait) {
  cpu::Schedule schedule;
  schedule.livelock_rounds = 200;
  schedule.resident_blocks = 4;
  const ScheduleScope scope(schedule);
  unsigned flag = 0, seen = 0;
  expect_failure(Errc::livelock, {"livelock", "block (3,0,0)"},
                 [&](Stream& stream) { launch(stream, 5, 1, wait_for_block, 4u, &flag, &seen); });
  flag = 0;
  EXPECT_FALSE(failure_of([&](Stream& stream) {
                 launch(stream, 5, 1, wait_for_block, 3u, &flag, &seen);
               }).failed);
}

}  // namespace
}  // namespace holdfast::test

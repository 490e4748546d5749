// The shots' schedule, and the baselines that stand beside a history in them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/error.hpp"
#include "ranks.hpp"
#include "schedule.hpp"
#include "shot.hpp"
#include "store.hpp"
#include "support/scratch.hpp"

namespace score {
namespace {

TEST(Schedule, AShotTakesWhatThePaperSays) {
  constexpr std::uint64_t kSnapshots = 384, kMean = 128u << 20;
  std::set<std::uint64_t> totals;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    for (std::uint64_t rank = 0; rank < 32; ++rank) {
      const auto bytes = snapshot_bytes(Sizes::variable, kSnapshots, kMean, seed, rank);
      ASSERT_EQ(bytes.size(), kSnapshots);
      const auto total = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
      // 38 to 50 where 384 uniform ones are 48, less what is rounded down.
      EXPECT_GE(total, kSnapshots * (kMean * 38 / 48 - 512)) << "seed " << seed << " rank " << rank;
      EXPECT_LE(total, kSnapshots * kMean * 50 / 48);
      totals.insert(total);
      for (const std::uint64_t each : bytes) EXPECT_EQ(each % 512, 0u);
      const auto first = std::accumulate(bytes.begin(), bytes.begin() + 16, std::uint64_t{0}) / 16;
      EXPECT_LT(first, total / kSnapshots / 2);
    }
  }
  EXPECT_EQ(totals.size(), 5u * 32u);  // no two ranks or seeds alike
  EXPECT_EQ(snapshot_bytes(Sizes::uniform, 3, 4096, 1, 0), (std::vector<std::uint64_t>(3, 4096)));
}

TEST(Schedule, OrdersHaveEveryStepOnce) {
  for (const Order order : {Order::sequential, Order::reverse, Order::irregular}) {
    auto steps = restore_order(order, 100, 7);
    EXPECT_EQ(std::is_sorted(steps.begin(), steps.end()), order == Order::sequential);
    EXPECT_EQ(std::is_sorted(steps.rbegin(), steps.rend()), order == Order::reverse);
    std::sort(steps.begin(), steps.end());
    for (std::uint64_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], i);
  }
  EXPECT_NE(restore_order(Order::irregular, 100, 1), restore_order(Order::irregular, 100, 2));
}

struct Opened {
  std::string name;
  std::unique_ptr<Store> (*open)(const StoreOptions&);
};

// Of a test's name, which must not change from run to run.
void PrintTo(const Opened& opened, std::ostream* out) { *out << opened.name; }

class Stores : public ::testing::TestWithParam<Opened> {};

// Snapshots of any sizes, caches of any sizes, hints that are right, wrong, repeated and missing,
// flushes in between: what comes back is what was saved.
TEST_P(Stores, GiveBackWhatWasSaved) {
  const std::uint64_t seed = holdfast::test::test_seed();
  for (std::uint64_t run = 0; run < 30; ++run) {
    SCOPED_TRACE(GetParam().name + ", seed " + std::to_string(seed) + ", run " +
                 std::to_string(run));
    std::mt19937_64 random(seed + run);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    const holdfast::test::ScratchFolders scratch;
    const std::uint64_t steps = 1 + below(40);
    std::vector<std::vector<std::byte>> saved(steps);
    StoreOptions options;
    std::uint64_t largest = 0;
    for (auto& bytes : saved) {
      bytes.resize(512 * (1 + below(64)));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      options.step_bytes.push_back(bytes.size());
      largest = std::max<std::uint64_t>(largest, bytes.size());
    }
    holdfast::DeviceBuffer<std::byte> array(largest);
    options.array = array.data();
    options.page_bytes = 4096;
    options.gpu_bytes = 4096 * (4 + below(64));
    options.host_bytes = 4096 * (4 + below(128));
    options.folder = scratch.arenas();
    options.discard_consumed = below(2) == 0;
    holdfast::Stream stream;
    const auto store = GetParam().open(options);
    const auto hint = [&] {
      std::vector<Step> hints(below(steps + 1));
      for (Step& step : hints) step = below(steps);
      store->hint(hints);
    };
    if (below(2) == 0) hint();
    if (below(4) == 0) store->prefetch_start();
    for (Step step = 0; step < steps; ++step) {
      holdfast::copy_async(stream, array.data(), saved[step].data(), saved[step].size());
      store->save(step, stream);
      if (below(16) == 0) store->flush();
    }
    if (below(2) == 0) store->flush();
    std::vector<Step> order(steps);
    std::iota(order.begin(), order.end(), Step{0});
    std::shuffle(order.begin(), order.end(), random);
    if (below(2) == 0) store->hint(order);
    store->prefetch_start();
    std::vector<std::byte> seen(largest);
    for (const Step step : order) {
      if (below(8) == 0) hint();
      store->restore(step, stream);
      holdfast::copy_async(stream, seen.data(), array.data(), saved[step].size());
      stream.synchronize();
      ASSERT_TRUE(std::equal(saved[step].begin(), saved[step].end(), seen.begin()))
          << "step " << step;
    }
    const StoreCounts counts = store->counts();
    EXPECT_EQ(
        counts.restored_bytes[0] + counts.restored_bytes[1] + counts.restored_bytes[2],
        std::accumulate(options.step_bytes.begin(), options.step_bytes.end(), std::uint64_t{0}));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Stores,
                         ::testing::Values(Opened{"history", open_history},
                                           Opened{"pager", open_pager},
                                           Opened{"buffers", open_buffers}),
                         [](const auto& param) { return param.param.name; });

// The cache fills with what is hinted next, as far as it goes; what was restored makes room for
// more.
TEST(PagerTest, PrefetchesAsFarAsTheCacheGoes) {
  const holdfast::test::ScratchFolders scratch;
  constexpr std::uint64_t kPage = 4096, kSteps = 32, kHeld = 8;
  holdfast::DeviceBuffer<std::byte> array(2 * kPage);
  const auto pager = open_pager({.array = array.data(),
                                 .step_bytes = std::vector<std::uint64_t>(kSteps, 2 * kPage),
                                 .gpu_bytes = kHeld * 2 * kPage,
                                 .host_bytes = kSteps * kPage,
                                 .page_bytes = kPage,
                                 .folder = scratch.arenas()});
  holdfast::Stream stream;
  for (Step step = 0; step < kSteps; ++step) pager->save(step, stream);
  pager->flush();
  const auto order = restore_order(Order::irregular, kSteps, 3);
  pager->hint(order);
  pager->prefetch_start();
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    const std::span<const Step> next = std::span(order).subspan(i);
    // A wait for what has to come: no time is measured.
    while (pager->ready(next) < std::min(kHeld, next.size())) std::this_thread::yield();
    EXPECT_EQ(pager->ready(next), std::min(kHeld, next.size()));
    pager->restore(order[i], stream);
  }
  EXPECT_EQ(pager->counts().restored_bytes[0], kSteps * 2 * kPage);
}

TEST(PagerTest, RefusesMemoriesOfAFewPages) {
  const holdfast::test::ScratchFolders scratch;
  try {
    open_pager({.array = nullptr,
                .step_bytes = {4096},
                .gpu_bytes = 3 * 4096,
                .host_bytes = 1 << 20,
                .page_bytes = 4096,
                .folder = scratch.arenas()});
    FAIL();
  } catch (const holdfast::Error& error) {
    EXPECT_EQ(error.code(), holdfast::Errc::invalid_argument);
  }
}

TEST(ShotTest, LeavesNothingBehind) {
  const holdfast::test::ScratchFolders scratch;
  EXPECT_EQ(run_ranks(1, 1,
                      [&](Ranks& ranks) {
                        Cell cell;
                        cell.gpu_bytes = cell.host_bytes = 1 << 20;
                        cell.interval_us = 0;
                        Settings settings;
                        settings.snapshots = 8;
                        settings.bytes = 8192;
                        settings.page_bytes = 4096;
                        settings.disk = scratch.arenas();
                        for (const char* store : {"history", "pager", "buffers"}) {
                          cell.store = store;
                          const ShotResult result = run_shot(cell, settings, ranks);
                          EXPECT_EQ(result.restore_seconds.size(), 8u);
                          EXPECT_EQ(result.ready.size(), 8u);
                        }
                        cell.store = "nothing";
                        EXPECT_THROW(run_shot(cell, settings, ranks), holdfast::Error);
                        return 0;
                      }),
            0);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.arenas()));  // shots leave nothing behind
}

}  // namespace
}  // namespace score

// The binomial schedule: as few steps as the recurrence allows, in no more snapshots than were
// given, and every state as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "adjoint/revolve_schedule.hpp"
#include "adjoint/snapshot_store.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace adjoint {
namespace {

using holdfast::Errc;
using holdfast::Stream;
using holdfast::test::error_of;

// The minimum over all places for each snapshot. best[s][n]; s = 0 is not used.
std::vector<std::vector<std::uint64_t>> by_brute_force(std::uint64_t steps, std::uint64_t most) {
  std::vector<std::vector<std::uint64_t>> best(most + 1, std::vector<std::uint64_t>(steps + 1, 0));
  for (std::uint64_t n = 0; n <= steps; ++n) best[1][n] = n == 0 ? 0 : n * (n - 1) / 2;
  for (std::uint64_t s = 2; s <= most; ++s) {
    for (std::uint64_t n = 2; n <= steps; ++n) {
      best[s][n] = best[1][n];
      for (std::uint64_t m = 1; m < n; ++m) {
        best[s][n] = std::min(best[s][n], m + best[s - 1][n - m] + best[s][m]);
      }
    }
  }
  return best;
}

// A chain of states in device memory, each a function of the one before that cannot be undone. It
// says so if a state is advanced that is not the one of its step.
class Chain {
 public:
  explicit Chain(std::uint64_t steps) : state_(kWords) {
    std::uint64_t value = 1;
    for (std::uint64_t n = 0; n <= steps; ++n) {
      states_.emplace_back(kWords, value);
      value = value * 6364136223846793005u + n;
    }
  }
  void set(std::uint64_t step, Stream& stream) {
    copy_async(stream, state_.data(), states_[step].data(), kWords * 8);
  }
  bool is(std::uint64_t step, Stream& stream) const {
    std::vector<std::uint64_t> now(kWords);
    copy_async(stream, now.data(), state_.data(), kWords * 8);
    stream.synchronize();
    return now == states_[step];
  }
  void advance(std::uint64_t step, Stream& stream) {
    if (!is(step, stream)) ADD_FAILURE() << "step " << step << " is computed from another";
    set(step + 1, stream);
    ++advanced;
  }
  void* data() const { return state_.data(); }

  static constexpr std::uint64_t kWords = 4, kBytes = kWords * 8;
  std::uint64_t advanced = 0;

 private:
  std::vector<std::vector<std::uint64_t>> states_;
  holdfast::DeviceBuffer<std::uint64_t> state_;
};

std::vector<std::uint64_t> downwards(std::uint64_t steps) {
  std::vector<std::uint64_t> order(steps);
  for (std::uint64_t i = 0; i < steps; ++i) order[i] = steps - 1 - i;
  return order;
}

// Goes through a shot as a solver does; the steps that this took, but for the last of the forward
// pass, which is no part of the chain that is reversed.
std::uint64_t steps_taken(std::uint64_t steps, std::uint64_t snapshots) {
  Stream stream;
  Chain chain(steps);
  RevolveStore store(snapshots, [&](std::uint64_t n, Stream& on) { chain.advance(n, on); });
  std::uint64_t before = 0;
  for (int shot = 0; shot < 2; ++shot) {  // the second finds what the first left
    before = chain.advanced;
    chain.set(0, stream);
    store.plan(downwards(steps));
    store.protect("state", chain.data(), Chain::kBytes);
    for (std::uint64_t n = 0; n < steps; ++n) {
      store.save(n, stream);
      if (n + 1 < steps) chain.advance(n, stream);
    }
    for (std::uint64_t n = steps; n-- > 0;) {
      store.restore(n, stream);
      if (!chain.is(n, stream)) ADD_FAILURE() << "step " << n << " of " << steps << " is another";
    }
  }
  EXPECT_LE(store.most_held(), snapshots) << steps << " steps";
  EXPECT_LE(store.most_bytes(), snapshots * Chain::kBytes);
  EXPECT_EQ(store.recomputed() + 2 * (steps - 1), chain.advanced);
  return chain.advanced - before;
}

TEST(Revolve, ThePlacesAreTheBestThereAre) {
  constexpr std::uint64_t kSteps = 150, kMost = 10;
  const auto best = by_brute_force(kSteps, kMost);
  for (std::uint64_t s = 1; s <= kMost; ++s) {
    for (std::uint64_t n = 1; n <= kSteps; ++n) {
      ASSERT_EQ(least_steps(n, s), best[s][n]) << n << " steps, " << s << " snapshots";
      if (s == 1 || n == 1) continue;
      const std::uint64_t m = best_advance(n, s);
      ASSERT_GE(m, 1u);
      ASSERT_LT(m, n);
      ASSERT_EQ(m + best[s - 1][n - m] + best[s][m], best[s][n]) << n << ", " << s << ": " << m;
    }
  }
}

TEST(Revolve, ReachIsBinomial) {
  EXPECT_EQ(binomial_reach(3, 0), 1u);
  EXPECT_EQ(binomial_reach(1, 7), 8u);
  EXPECT_EQ(binomial_reach(3, 4), 35u);
  EXPECT_EQ(binomial_reach(10, 10), 184756u);
  EXPECT_EQ(binomial_reach(30, 30), 118264581564861424u);
  EXPECT_EQ(binomial_reach(40, 40), UINT64_MAX);  // more than it can say
  EXPECT_EQ(binomial_reach(1'000'000'000, 1), 1'000'000'001u);
}

TEST(Revolve, AShotTakesTheLeastSteps) {
  for (std::uint64_t snapshots = 1; snapshots <= 6; ++snapshots) {
    for (std::uint64_t steps = 1; steps <= 40; ++steps) {
      ASSERT_EQ(steps_taken(steps, snapshots), least_steps(steps, snapshots))
          << steps << " steps, " << snapshots << " snapshots";
    }
  }
}

TEST(Revolve, LongShotsTakeTheLeastSteps) {
  std::mt19937_64 random(holdfast::test::test_seed());
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t steps = 1 + random() % 500, snapshots = 2 + random() % 30;
    ASSERT_EQ(steps_taken(steps, snapshots), least_steps(steps, snapshots))
        << steps << " steps, " << snapshots << " snapshots";
  }
}

TEST(Revolve, WithRoomForAllNothingIsComputedAgain) { EXPECT_EQ(steps_taken(50, 50), 49u); }

TEST(Revolve, WhatIsNoShotIsRefused) {
  Stream stream;
  const auto advance = [](std::uint64_t, Stream&) {};
  EXPECT_EQ(error_of([&] { RevolveStore(0, advance); }, {"snapshot"}), Errc::invalid_argument);
  RevolveStore store(3, advance);
  Chain chain(4);
  store.protect("state", chain.data(), Chain::kBytes);
  const std::vector<std::uint64_t> forwards{0, 1, 2};
  EXPECT_EQ(error_of([&] { store.plan(forwards); }, {"number 0", "memory"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { store.save(0, stream); }, {"plan()"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { store.restore(0, stream); }, {"step 0 of 0"}), Errc::invalid_argument);
  store.plan(downwards(4));
  store.save(0, stream);
  EXPECT_EQ(error_of([&] { store.save(2, stream); }, {"step 2", "turn of 1"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { store.restore(3, stream); }, {"1 were saved"}), Errc::invalid_argument);
  for (std::uint64_t n = 1; n < 4; ++n) store.save(n, stream);
  EXPECT_EQ(error_of([&] { store.save(4, stream); }, {"step 4 of 4"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { store.restore(2, stream); }, {"step 2", "0 restored"}),
            Errc::invalid_argument);
  for (std::uint64_t n = 4; n-- > 0;) store.restore(n, stream);
  EXPECT_EQ(error_of([&] { store.restore(~std::uint64_t{0}, stream); }, {"4 restored"}),
            Errc::invalid_argument);
  EXPECT_EQ(store.size(2, "state"), Chain::kBytes);
  EXPECT_EQ(error_of([&] { store.size(2, "other"); }, {"other"}), Errc::not_found);
  EXPECT_EQ(error_of([&] { store.size(7, "state"); }, {"step 7"}), Errc::not_found);
  stream.synchronize();
}

}  // namespace
}  // namespace adjoint

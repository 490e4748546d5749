// Where a rank has its tiers, and what it gets of its node's budgets.
#include "history/placement.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <random>

#include "history/step_file.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "thread_ranks.hpp"

namespace holdfast::history {
namespace {

TEST(ShareTest, SharesAreByWeightAndTogetherTheBudget) {
  std::mt19937_64 random(test::test_seed());
  for (int trial = 0; trial < 20'000; ++trial) {
    std::vector<std::uint64_t> weights(1 + random() % 9);
    for (std::uint64_t& weight : weights) weight = 1 + random() % 1000;
    const std::uint64_t unit = std::uint64_t{1} << random() % 13;
    const std::uint64_t budget = random() >> random() % 64;
    const std::uint64_t total = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::uint64_t share = share_of(budget, weights, i, unit);
      ASSERT_EQ(share % unit, 0u);
      // Less than one unit from the quotient, which no floating point has exactly.
      using Wide = unsigned __int128;
      const Wide own = Wide{share / unit} * total, exact = Wide{budget / unit} * weights[i];
      ASSERT_LE(own > exact ? own - exact : exact - own, Wide{total});
      sum += share;
    }
    ASSERT_EQ(sum, budget / unit * unit);
  }
}

TEST(ShareTest, TheLargestNumbersDoNotOverflow) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  const std::vector<std::uint64_t> weights{kMost, kMost, kMost, 1};
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += share_of(kMost, weights, i, 1);
  EXPECT_EQ(sum, kMost);
}

class PlacementTest : public test::Scratch {
 protected:
  HistoryOptions options() const {
    HistoryOptions result;
    result.host_region = path("region");
    result.disk = path("disk");
    result.remote = path("remote");
    return result;
  }
  // What each rank's place() throws.
  std::vector<Errc> refusals(int size, const std::function<void(HistoryOptions&, int rank)>& change,
                             const std::string& word) const {
    std::vector<Errc> codes(static_cast<std::size_t>(size));
    test::run_ranks(size, [&](std::shared_ptr<RankGroup> group) {
      const int rank = group->rank();
      HistoryOptions own = options();
      own.host_bytes = 1 << 20;
      change(own, rank);
      RankTalk talk(group, std::chrono::seconds(20));
      try {
        place(own, talk);
        talk.exchange("History::open()", {});
      } catch (const Error& error) {
        codes[static_cast<std::size_t>(rank)] = error.code();
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
        if (!talk.has_failed()) talk.tell_failure("History::open()", std::current_exception());
        return;
      }
      ADD_FAILURE() << "rank " << rank << " was not refused";
    });
    return codes;
  }
};

TEST_F(PlacementTest, RanksHaveFoldersOfTheirOwnAndSharesOfTheirNodes) {
  std::mutex mutex;
  std::uint64_t runs[5] = {};
  const std::uint64_t host[] = {300, 600, 500, 100, 500}, disk[] = {333, 666, 500, 112, 500};
  test::run_ranks(
      5,
      [&](std::shared_ptr<RankGroup> group) {
        const int rank = group->rank();
        HistoryOptions all = options();
        all.node_host_bytes = 1000 * 4096 + 4095;
        all.node_disk_bytes = rank == 2 || rank == 4 ? 1000 * 4096 : 1111 * 4096;
        all.weight = rank == 1 ? 6 : rank == 0 ? 3 : rank == 3 ? 1 : 7;
        RankTalk talk(group, std::chrono::seconds(20));
        const Placement placement = place(all, talk);
        const HistoryOptions& own = placement.options;
        const std::string name = "rank-0000" + std::to_string(rank) + "-of-00005";
        const std::lock_guard lock(mutex);
        EXPECT_EQ(own.disk, path("disk/" + name));
        EXPECT_EQ(own.remote, path("remote/" + name));
        EXPECT_EQ(own.host_region, path("region." + name));
        EXPECT_EQ(placement.title, "rank " + std::to_string(rank) + " of 5");
        EXPECT_NEAR(static_cast<double>(own.host_bytes) / 4096, static_cast<double>(host[rank]), 1);
        EXPECT_NEAR(static_cast<double>(own.disk_bytes) / 4096, static_cast<double>(disk[rank]), 1);
        EXPECT_EQ(own.host_bytes % 4096, 0u);
        runs[rank] = placement.run;
      },
      {"a", "a", "b", "a", "b"});
  for (const std::uint64_t run : runs) EXPECT_EQ(run, runs[0]);
  EXPECT_TRUE(std::filesystem::is_directory(path("disk")));
}

TEST_F(PlacementTest, WhatDiffersIsRefusedOnEveryRank) {
  const std::vector<Errc> all(3, Errc::invalid_argument);
  EXPECT_EQ(refusals(
                3,
                [](HistoryOptions& own, int rank) {
                  if (rank == 1) own.coupling = Coupling::independent;
                },
                "coupling"),
            all);
  EXPECT_EQ(refusals(
                3,
                [](HistoryOptions& own, int rank) {
                  if (rank == 2) own.remote = "";
                },
                "remote"),
            all);
  EXPECT_EQ(refusals(
                3,
                [](HistoryOptions& own, int rank) {
                  own.host_bytes = 0;
                  own.node_host_bytes = rank == 0 ? 1 << 20 : 1 << 21;
                },
                "node_host_bytes"),
            all);
  // One rank alone finds it, and the others hear of it.
  EXPECT_EQ(refusals(
                3,
                [](HistoryOptions& own, int rank) {
                  if (rank == 1) own.weight = 0;
                },
                "weight"),
            all);
  EXPECT_EQ(refusals(
                3,
                [](HistoryOptions& own, int rank) {
                  if (rank == 1) own.node_host_bytes = 1 << 20;
                },
                "host_bytes"),
            all);
  EXPECT_EQ(refusals(
                3,
                [](HistoryOptions& own, int) {
                  own.host_bytes = 0;
                  own.node_host_bytes = 2 * 4096;  // for three
                },
                "none are left"),
            all);
}

TEST_F(PlacementTest, AFolderOfOthersIsRefused) {
  const std::vector<Errc> both(2, Errc::invalid_argument);
  const auto nothing = [](HistoryOptions&, int) {};
  std::filesystem::create_directories(path("disk/rank-00002-of-00003"));
  std::ofstream(path("disk/rank-00002-of-00003/") + step_file_name(4)) << "a checkpoint";
  EXPECT_EQ(refusals(2, nothing, "rank-00002-of-00003"), both);
  std::filesystem::remove_all(path("disk"));
  std::filesystem::create_directories(path("remote"));
  std::ofstream(path("remote/history.holdfast")) << "of one process";
  EXPECT_EQ(refusals(2, nothing, "one process"), both);
  std::filesystem::remove_all(path("remote"));
  std::ofstream(path("remote")) << "no folder";
  EXPECT_EQ(refusals(2, nothing, "no folder"), both);
}

}  // namespace
}  // namespace holdfast::history

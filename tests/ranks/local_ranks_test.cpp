// A group of processes of one machine: what it moves, and that it ends in time, with the name of
// the rank, whatever becomes of the others.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <random>
#include <string>

#include "holdfast/ranks.hpp"
#include "rank_processes.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using test::RankProcesses;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLong{20'000};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}
std::string text_of(const RankGroup::Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
// What rank `rank` gives in round `round`: of any size, 0 and more than a socket takes among them.
std::string content(int rank, int round) {
  const std::size_t sizes[] = {0, 1, 17, 4096, 700'000};
  return std::string(sizes[static_cast<std::size_t>(rank + round) % 5],
                     static_cast<char>('a' + (rank * 7 + round) % 26));
}

// The words of the Error that `call` throws; empty if it throws none.
template <class Call>
std::string refusal(Errc code, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == code ? error.what() : std::string("another code: ") + error.what();
  }
  return {};
}

class LocalRanksTest : public test::Scratch {
 protected:
  LocalRanksOptions of(int rank, int size, milliseconds timeout = kLong) const {
    return {.path = path("ranks"), .rank = rank, .size = size, .timeout = timeout};
  }
};

TEST_F(LocalRanksTest, EachRankGetsWhatAllHaveGiven) {
  RankProcesses ranks(5, [&](int rank) {
    const auto group = local_ranks(of(rank, 5));
    if (group->rank() != rank || group->size() != 5) return 1;
    for (int round = 0; round < 50; ++round) {
      const auto all = group->all_gather(bytes_of(content(rank, round)), kLong);
      if (all.size() != 5) return 2;
      for (int other = 0; other < 5; ++other) {
        if (text_of(all[static_cast<std::size_t>(other)]) != content(other, round)) return 3;
      }
    }
    return 0;
  });
  EXPECT_EQ(ranks.wait_all(), std::vector<int>(5, 0));
  EXPECT_FALSE(std::filesystem::exists(path("ranks")));
}

TEST_F(LocalRanksTest, OneRankIsAGroup) {
  const auto group = local_ranks({});
  EXPECT_EQ(text_of(group->all_gather(bytes_of("alone"), kLong).at(0)), "alone");
  EXPECT_EQ(map_ranks(*group, kLong).node_size, 1);
}

TEST_F(LocalRanksTest, RanksOfANodeAreCounted) {
  const char* const nodes[] = {"b", "a", "b", "b", "a"};
  RankProcesses ranks(5, [&](int rank) {
    LocalRanksOptions options = of(rank, 5);
    options.node = nodes[rank];
    const auto group = local_ranks(options);
    const RankMap map = map_ranks(*group, kLong);
    const int node_rank[] = {0, 0, 1, 2, 1}, node_size[] = {3, 2, 3, 3, 2};
    const bool right = map.nodes == 2 && map.node_of == std::vector<int>{0, 1, 0, 0, 1} &&
                       map.node_rank == node_rank[rank] && map.node_size == node_size[rank];
    return right ? 0 : 1;
  });
  EXPECT_EQ(ranks.wait_all(), std::vector<int>(5, 0));
}

// One of four is killed, or stopped, at a random moment of many collectives.
TEST_F(LocalRanksTest, ARankThatDiesIsNamedAndNobodyWaits) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 16; ++trial) {
    const int victim = trial % 4;
    const bool stopped = trial >= 12;  // it neither ends nor answers
    const milliseconds timeout = stopped ? milliseconds(300) : kLong;
    const test::SharedCount ready;
    RankProcesses ranks(
        4,
        [&](int rank) {
          const auto group = local_ranks(of(rank, 4));
          ++*ready;
          auto begin = Clock::now();
          const std::string said = refusal(Errc::rank_lost, [&] {
            for (int round = 0;; ++round) {
              begin = Clock::now();
              group->all_gather(bytes_of(content(rank, round)), timeout);
            }
          });
          if (Clock::now() - begin > std::chrono::seconds(10)) return 1;
          // Of one that is stopped within its own answer another rank may be named late.
          if (said.find("rank " + std::to_string(victim)) == std::string::npos && !stopped) {
            std::fprintf(stderr, "said: %s\n", said.c_str());
            return 2;
          }
          if (said.empty()) return 3;
          const std::string again =
              refusal(Errc::rank_lost, [&] { group->all_gather({}, timeout); });
          return again == said ? 0 : 4;
        },
        30);
    while (*ready < 4) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(random() % 40));
    ranks.kill(victim, stopped ? SIGSTOP : SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks.result(rank), 0) << "seed " << seed << " trial " << trial;
    }
  }
}

TEST_F(LocalRanksTest, WhoeverDoesNotComeIsNamed) {
  RankProcesses ranks(4, [&](int rank) {
    if (rank == 2) return 0;
    const std::string said =
        refusal(Errc::rank_lost, [&] { local_ranks(of(rank, 4, milliseconds(1500))); });
    return said.find("rank 2 did not come") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(ranks.wait_all(), std::vector<int>(4, 0));
  RankProcesses without_first(2, [&](int rank) {
    if (rank == 0) return 0;
    const std::string said =
        refusal(Errc::rank_lost, [&] { local_ranks(of(rank, 2, milliseconds(200))); });
    return said.find("rank 0 did not come") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(without_first.wait_all(), std::vector<int>(2, 0));
}

// The socket that a killed run has left, and a run that goes on.
TEST_F(LocalRanksTest, TheNextRunTakesThePathOfOneThatWasKilled) {
  {
    RankProcesses killed(2, [&](int rank) {
      if (rank == 0) local_ranks(of(rank, 2));  // rank 1 never comes
      ::pause();
      return 0;
    });
    while (!std::filesystem::exists(path("ranks"))) std::this_thread::sleep_for(milliseconds(1));
    RankProcesses second(1, [&](int) {
      return refusal(Errc::in_use, [&] { local_ranks(of(0, 2, milliseconds(200))); }).empty() ? 1
                                                                                              : 0;
    });
    EXPECT_EQ(second.result(0), 0);
  }
  EXPECT_TRUE(std::filesystem::exists(path("ranks")));
  RankProcesses ranks(2, [&](int rank) {
    return local_ranks(of(rank, 2))->all_gather({}, kLong).size() == 2 ? 0 : 1;
  });
  EXPECT_EQ(ranks.wait_all(), std::vector<int>(2, 0));
}

TEST_F(LocalRanksTest, WhatCannotBeIsRefused) {
  const auto refused = [](Errc code, const LocalRanksOptions& options) {
    return refusal(code, [&] { local_ranks(options); });
  };
  EXPECT_NE(refused(Errc::invalid_argument, of(3, 3)), "");
  EXPECT_NE(refused(Errc::invalid_argument, of(-1, 3)), "");
  EXPECT_NE(refused(Errc::invalid_argument, of(0, 0)), "");
  EXPECT_NE(refused(Errc::invalid_argument, {.path = "", .rank = 0, .size = 2}), "");
  EXPECT_NE(refused(Errc::not_found, {.path = path("no/such"), .rank = 0, .size = 2}), "");
  EXPECT_NE(refused(Errc::not_found, {.path = path("no/such"), .rank = 1, .size = 2}), "");
  EXPECT_NE(
      refused(Errc::invalid_argument, {.path = path(std::string(150, 'x')), .rank = 1, .size = 2}),
      "");
  std::ofstream(path("ranks")) << "a file";
  EXPECT_NE(refused(Errc::already_exists, of(0, 2)), "");
  EXPECT_TRUE(std::filesystem::is_regular_file(path("ranks")));
  std::filesystem::remove(path("ranks"));
  // A path longer than a socket's address may be.
  const std::string deep = path(std::string(100, 'd'));
  std::filesystem::create_directories(deep + "/" + std::string(100, 'e'));
  RankProcesses ranks(2, [&](int rank) {
    LocalRanksOptions options = of(rank, 2);
    options.path = deep + "/" + std::string(100, 'e') + "/ranks";
    return local_ranks(options)->all_gather({}, kLong).size() == 2 ? 0 : 1;
  });
  EXPECT_EQ(ranks.wait_all(), std::vector<int>(2, 0));
  RankProcesses sizes(2, [&](int rank) {
    const std::string said =
        refusal(Errc::rank_lost, [&] { local_ranks(of(rank, rank == 0 ? 2 : 3)); });
    return said.find("was told of 3") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(sizes.wait_all(), std::vector<int>(2, 0));
}

TEST_F(LocalRanksTest, TheEnvironmentNamesTheRanks) {
  RankProcesses ranks(2, [&](int rank) {
    ::unsetenv("RANK");
    if (refusal(Errc::invalid_argument, [] { ranks_from_environment(kLong); }).find("RANK") ==
        std::string::npos) {
      return 1;
    }
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", "two", 1);
    if (refusal(Errc::invalid_argument, [] { ranks_from_environment(kLong); }).find("'two'") ==
        std::string::npos) {
      return 2;
    }
    ::setenv("WORLD_SIZE", "2", 1);
    if (refusal(Errc::invalid_argument, [] {
          ranks_from_environment(kLong);
        }).find("HOLDFAST_RANKS") == std::string::npos) {
      return 3;
    }
    ::setenv("HOLDFAST_RANKS", path("ranks").c_str(), 1);
    return ranks_from_environment(kLong)->rank() == rank ? 0 : 4;
  });
  EXPECT_EQ(ranks.wait_all(), std::vector<int>(2, 0));
}

TEST_F(LocalRanksTest, AForkedChildIsRefused) {
  const auto group = local_ranks({});
  RankProcesses child(1, [&](int) {
    return refusal(Errc::in_use, [&] { group->all_gather({}, kLong); }).empty() ? 1 : 0;
  });
  EXPECT_EQ(child.result(0), 0);
}

}  // namespace
}  // namespace holdfast

// Histories of several ranks: what is complete, what is not, and what stays.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "history/history_oracle.hpp"
#include "holdfast/history.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "thread_ranks.hpp"

namespace holdfast {
namespace {

using Steps = std::vector<std::uint64_t>;
using test::Field;

class HistoryRanksTest : public test::Scratch {
 protected:
  HistoryOptions options() const {
    HistoryOptions result;
    result.host_bytes = 8 * Field::kMost;
    result.disk = path("run");
    result.ranks_timeout = std::chrono::seconds(20);
    return result;
  }
  // A life of all ranks: each has `body(history, rank)`.
  using Body = std::function<void(History&, int)>;
  void live(const HistoryOptions& options, const Body& body, int ranks = 2) const {
    test::run_ranks(ranks, [&](std::shared_ptr<RankGroup> group) {
      HistoryOptions own = options;
      own.ranks = group;
      History history = History::open(own);
      body(history, group->rank());
      history.close();
    });
  }
  void live(const Body& body, int ranks = 2) const { live(options(), body, ranks); }

  // A save whose content is `id`. The field is gone behind it.
  static Ticket save(History& history, std::uint64_t step, std::uint64_t id) {
    Field field;
    Stream stream;
    const std::uint64_t bytes = field.fill(id);
    history.protect_raw("field", field.data(), bytes);
    Ticket ticket = history.save(step, stream);
    stream.synchronize();
    ticket.wait_staged();
    return ticket;
  }
  static std::uint64_t restored(History& history, std::uint64_t step) {
    Field field;
    Stream stream;
    const std::uint64_t bytes = history.size(step, "field");
    history.protect_raw("field", field.data(), bytes);
    history.restore(step, stream, true);
    stream.synchronize();
    EXPECT_TRUE(field.holds(field.id(), bytes));
    return field.id();
  }
  std::string folder_of(int rank, int size = 2) const {
    return path("run/rank-0000" + std::to_string(rank) + "-of-0000" + std::to_string(size));
  }
  bool has_file(int rank, const std::string& number) const {
    return std::filesystem::exists(folder_of(rank) + "/step-" +
                                   std::string(20 - number.size(), '0') + number + ".holdfast");
  }
};

TEST_F(HistoryRanksTest, WhatOneRankLacksNoneIsOffered) {
  live(
      [](History& history, int rank) {
        for (std::uint64_t step = 1; step <= 4; ++step) save(history, step, 10 * step + rank);
        if (rank != 2) save(history, 5, 50 + rank);  // as if it had been cut off
        if (rank == 1) save(history, 9, 90);
      },
      3);
  live(
      [](History& history, int rank) {
        EXPECT_EQ(history.steps(), (Steps{1, 2, 3, 4}));
        EXPECT_EQ(history.latest(), 4u);
        EXPECT_EQ(history.latest_of_all(), 4u);
        EXPECT_EQ(restored(history, 3), 30u + rank);
        const auto refused = [&](std::uint64_t step, const char* word) {
          Stream stream;
          EXPECT_EQ(test::error_of([&] { history.restore(step, stream); }, {word}),
                    Errc::not_found);
        };
        refused(5, rank == 2 ? "steps()" : "rank 2 does not have it");
        if (rank == 1) refused(9, "rank 0 does not have it");
        // The number is free.
        const Ticket ticket = save(history, 5, 500 + rank);
        history.wait_for_all(ticket);
        EXPECT_EQ(history.latest_of_all(), 5u);
        EXPECT_EQ(history.agree(), (Steps{1, 2, 3, 4, 5}));
      },
      3);
  live(
      [](History& history, int rank) {
        EXPECT_EQ(history.steps(), (Steps{1, 2, 3, 4, 5}));
        EXPECT_EQ(restored(history, 5), 500u + rank);
        // What is left of a number that is not complete goes by hand, too.
        EXPECT_EQ(history.discard(9), rank == 1);
      },
      3);
}

TEST_F(HistoryRanksTest, SavesOfOneNumberAreNotMixed) {
  const std::string kept = path("kept");
  live([](History& history, int rank) {
    for (std::uint64_t step = 1; step <= 3; ++step) save(history, step, 10 * step + rank);
  });
  const std::string third = folder_of(0) + "/step-00000000000000000003.holdfast";
  std::filesystem::copy_file(third, kept);
  live([](History& history, int rank) {
    EXPECT_TRUE(history.discard(3));
    history.flush();
    save(history, 3, 300 + rank);
    // One rank saves a number once, another twice.
    save(history, 4, 40 + rank);
    history.flush();
    if (rank == 0) {
      EXPECT_TRUE(history.discard(4));
      history.flush();
      save(history, 4, 400);
    }
  });
  live([&](History& history, int rank) {
    EXPECT_EQ(history.steps(), (Steps{1, 2, 3}));
    EXPECT_EQ(restored(history, 3), 300u + rank);
    Stream stream;
    EXPECT_EQ(test::error_of([&] { history.restore(4, stream); }, {"different saves"}),
              Errc::not_found);
  });
  // A file of an earlier run, of the same history and number.
  std::filesystem::remove(third);
  std::filesystem::copy_file(kept, third);
  std::filesystem::permissions(
      third, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  live([](History& history, int) { EXPECT_EQ(history.steps(), (Steps{1, 2})); });
}

TEST_F(HistoryRanksTest, ADamagedPartMakesTheWholeIncomplete) {
  live([](History& history, int rank) {
    for (std::uint64_t step = 1; step <= 3; ++step) save(history, step, 10 * step + rank);
  });
  std::filesystem::resize_file(folder_of(1) + "/step-00000000000000000003.holdfast", 100);
  live([](History& history, int rank) {
    EXPECT_EQ(history.steps(), (Steps{1, 2}));
    history.wait_for_all(save(history, 3, 33 + rank));
    EXPECT_EQ(restored(history, 3), 33u + rank);
  });
}

TEST_F(HistoryRanksTest, OfDiskAndRemoteTheSaveCountsThatAllHave) {
  HistoryOptions both = options();
  both.remote = path("remote");
  live(both, [](History& history, int rank) { save(history, 1, 10 + rank); });
  // Rank 0 goes on with a later one on disk that rank 1 has lost.
  std::filesystem::rename(path("remote"), path("aside"));
  live([](History& history, int rank) {
    EXPECT_TRUE(history.discard(1));
    EXPECT_EQ(history.agree(), Steps{});
    history.flush();
    save(history, 1, 100 + rank);
  });
  std::filesystem::remove_all(folder_of(1));
  std::filesystem::rename(path("aside"), path("remote"));
  live(both, [](History& history, int rank) {
    EXPECT_EQ(history.steps(), (Steps{1}));
    EXPECT_EQ(restored(history, 1), 10u + rank);
  });
}

TEST_F(HistoryRanksTest, RetentionCountsWhatAllHave) {
  HistoryOptions rule = options();
  rule.keep_last = 2;
  rule.keep_every = 4;
  live(rule, [](History& history, int rank) {
    std::vector<Ticket> tickets;
    for (std::uint64_t step = 1; step <= 7; ++step) {
      tickets.push_back(save(history, step, 10 * step + rank));
    }
    if (rank == 0) save(history, 8, 80);  // the other one never gets there
    history.flush();
    EXPECT_EQ(history.steps().size(), rank == 0 ? 8u : 7u);  // nothing is known of the others
    EXPECT_EQ(history.latest_of_all(), 7u);
    EXPECT_EQ(history.steps(), rank == 0 ? (Steps{4, 6, 7, 8}) : (Steps{4, 6, 7}));
  });
  EXPECT_TRUE(has_file(0, "8"));
  live(rule, [](History& history, int rank) {
    EXPECT_EQ(history.steps(), (Steps{4, 6, 7}));
    history.wait_for_all(save(history, 9, 90 + rank));
    EXPECT_EQ(history.steps(), (Steps{4, 7, 9}));
    history.wait_for_all(save(history, 10, 100 + rank));
    EXPECT_EQ(history.steps(), (Steps{4, 9, 10}));
    history.flush();
  });
  EXPECT_TRUE(has_file(0, "8"));  // keep_every
  live(rule, [](History& history, int) { EXPECT_EQ(history.steps(), (Steps{4, 9, 10})); });
}

TEST_F(HistoryRanksTest, TheLastThatAllHaveStaysUntilAllHaveAnother) {
  live([](History& history, int rank) {
    save(history, 1, 10 + rank);
    history.wait_for_all(save(history, 2, 20 + rank));
    EXPECT_EQ(history.agree(), (Steps{1, 2}));
    EXPECT_TRUE(history.discard(1));
    EXPECT_TRUE(history.discard(2));
    EXPECT_FALSE(history.discard(2));
    EXPECT_EQ(history.steps(), Steps{});
    save(history, 3, 30 + rank);
    history.flush();
    // Now the program ends, or is killed.
  });
  EXPECT_FALSE(has_file(0, "1"));
  EXPECT_TRUE(has_file(0, "2") && has_file(1, "2"));
  live([](History& history, int rank) {
    EXPECT_EQ(history.steps(), (Steps{2, 3}));
    EXPECT_EQ(restored(history, 2), 20u + rank);
    EXPECT_TRUE(history.discard(3));
    EXPECT_TRUE(history.discard(2));
    history.wait_for_all(save(history, 4, 40 + rank));
    history.flush();
  });
  EXPECT_FALSE(has_file(0, "2") || has_file(1, "2") || has_file(0, "3"));
  live([](History& history, int) {
    EXPECT_EQ(history.steps(), (Steps{4}));
    EXPECT_TRUE(history.discard(4));
    EXPECT_TRUE(history.steps().empty());
    EXPECT_EQ(history.agree(), Steps{});  // both have discarded it, and know it
    history.flush();
  });
  EXPECT_FALSE(has_file(0, "4") || has_file(1, "4"));
}

TEST_F(HistoryRanksTest, WhatOneRankCannotHaveAllHearOf) {
  HistoryOptions small = options();
  small.host_bytes = 16 * Field::kMost;
  live(small, [](History& history, int rank) {
    const Ticket first = save(history, 1, 10 + rank);
    EXPECT_TRUE(rank == 0 || history.discard(1));
    EXPECT_EQ(test::error_of([&] { history.wait_for_all(first); },
                             rank == 0 ? std::vector<std::string>{"rank 1", "discarded"}
                                       : std::vector<std::string>{"discarded"}),
              Errc::not_found);
    // The ranks go on.
    const Ticket second = save(history, 2, 20 + rank);
    history.wait_for_all(second);
    EXPECT_EQ(history.agree(), (Steps{2}));
    EXPECT_EQ(
        test::error_of(
            [&] { rank == 0 ? history.wait_for_all(second) : static_cast<void>(history.agree()); },
            {"same collective calls"}),
        Errc::invalid_argument);
    const Ticket third = save(history, 3, 30 + rank);
    EXPECT_EQ(test::error_of([&] { history.wait_for_all(rank == 0 ? second : third); },
                             {"the same save"}),
              Errc::invalid_argument);
    third.wait();  // what is still being copied is in no tier
    EXPECT_EQ(history.agree(Tier::gpu), (Steps{2, 3}));
  });
}

TEST_F(HistoryRanksTest, OpeningFailsOnAllWhereItFailsOnOne) {
  std::filesystem::create_directories(folder_of(1));
  std::ofstream(folder_of(1) + "/notes.txt") << "of a person";
  test::run_ranks(2, [&](std::shared_ptr<RankGroup> group) {
    HistoryOptions own = options();
    own.ranks = group;
    EXPECT_EQ(test::error_of([&] { History::open(own); }, {"notes.txt"}), Errc::foreign);
  });
  std::filesystem::remove_all(path("run"));
  test::run_ranks(2, [&](std::shared_ptr<RankGroup> group) {
    HistoryOptions own = options();
    own.ranks = group;
    if (group->rank() == 1) own.host_bytes = 1;  // too small a cache
    EXPECT_EQ(test::error_of([&] { History::open(own); }, {"a cache of 1 bytes"}),
              Errc::invalid_argument);
  });
  HistoryOptions alone = options();
  alone.node_host_bytes = 1 << 20;
  EXPECT_EQ(test::error_of([&] { History::open(alone); }, {"ranks"}), Errc::invalid_argument);
}

TEST_F(HistoryRanksTest, NoRankKeepsARegionThatARefusedOpenHasMade) {
  for (const Coupling coupling : {Coupling::tight, Coupling::independent}) {
    std::filesystem::create_directory(path("regions"));
    test::run_ranks(2, [&](std::shared_ptr<RankGroup> group) {
      HistoryOptions own = options();
      own.ranks = group;
      own.coupling = coupling;
      own.host_region = path("regions/host");
      if (group->rank() == 1) own.trace = path("none/trace");
      EXPECT_EQ(test::error_of([&] { History::open(own); }, {"trace", "/none"}), Errc::not_found);
    });
    EXPECT_TRUE(is_empty(path("regions")));
    EXPECT_TRUE(is_empty(arenas()));
  }
}

TEST_F(HistoryRanksTest, RanksThatWereMovedAreRefused) {
  live([](History& history, int rank) { save(history, 1, 10 + rank); });
  std::filesystem::rename(folder_of(0), path("aside"));
  std::filesystem::rename(folder_of(1), folder_of(0));
  std::filesystem::rename(path("aside"), folder_of(1));
  test::run_ranks(2, [&](std::shared_ptr<RankGroup> group) {
    HistoryOptions own = options();
    own.ranks = group;
    EXPECT_EQ(test::error_of([&] { History::open(own); }, {"is called 'rank"}),
              Errc::invalid_argument);
  });
}

TEST_F(HistoryRanksTest, IndependentRanksHaveEachTheirOwn) {
  HistoryOptions apart = options();
  apart.coupling = Coupling::independent;
  apart.host_bytes = 0;
  apart.node_host_bytes = 16 * Field::kMost;
  live(apart, [](History& history, int rank) {
    save(history, 1, 10 + rank);
    if (rank == 0) history.wait_for_all(save(history, 2, 20));  // alone
  });
  live(apart, [](History& history, int rank) {
    EXPECT_EQ(history.steps(), rank == 0 ? (Steps{1, 2}) : (Steps{1}));
    EXPECT_EQ(history.latest_of_all(), rank == 0 ? 2u : 1u);
  });
  // As parts of one whole they are not known.
  live([](History& history, int) { EXPECT_EQ(history.steps(), Steps{}); });
}

TEST_F(HistoryRanksTest, AloneTheCallsAreOfThisProcess) {
  History history = History::open(options());
  EXPECT_EQ(history.latest_of_all(), std::nullopt);
  history.wait_for_all(save(history, 7, 70));
  EXPECT_EQ(history.agree(), (Steps{7}));
  EXPECT_EQ(history.latest_of_all(), 7u);
  history.close();
  EXPECT_EQ(test::error_of([&] { history.agree(); }), Errc::closed);
}

TEST_F(HistoryRanksTest, ARankThatDoesNotComeIsNotWaitedForForEver) {
  HistoryOptions brief = options();
  brief.ranks_timeout = std::chrono::milliseconds(1500);
  live(brief, [](History& history, int rank) {
    const Ticket ticket = save(history, 1, 10 + rank);
    if (rank == 1) return;
    EXPECT_EQ(test::error_of([&] { history.agree(); }), Errc::rank_lost);
    EXPECT_EQ(test::error_of([&] { history.wait_for_all(ticket); }), Errc::rank_lost);
    EXPECT_EQ(restored(history, 1), 10u);  // the rest goes on
    save(history, 2, 20).wait();
  });
}

}  // namespace
}  // namespace holdfast

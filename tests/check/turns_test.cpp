// Whatever takes turns with something else is explored, or the verdict does not claim it.
#include "check/turns_test.hpp"

#include "check/verdicts.hpp"
#include "support/error_of.hpp"

namespace holdfast::check {
namespace {

Verdict verdict_of(const Program& program) {
  Options options;
  options.max_seconds = 5;
  return check(program, options).verdict;
}

TEST(TurnsTest, TheLastOfManyBlocksMayStoreFirst) {
  EXPECT_EQ(verdict_of(test::last_block_stores(4)), Verdict::failed);
  EXPECT_EQ(verdict_of(test::last_block_stores(9)), Verdict::failed);
}

TEST(TurnsTest, ManyBlocksMayWaitForEachOther) {
  for (const unsigned blocks : {2u, 9u}) {
    EXPECT_EQ(verdict_of(test::blocks_wait_for_all(blocks)), Verdict::none_found);
  }
}

TEST(TurnsTest, LoopsThatWriteLetOthersGoOn) {
  EXPECT_EQ(verdict_of(test::polls_by_adding_nothing()), Verdict::passed);
  EXPECT_EQ(verdict_of(test::locks_by_exchange()), Verdict::passed);
  EXPECT_EQ(verdict_of(test::counts_its_looks()), Verdict::none_found);
}

TEST(TurnsTest, OthersMayCountTheTurnsOfAPoll) {
  using test::Vote;
  for (const Vote vote : {Vote::block, Vote::warp, Vote::shuffle}) {
    EXPECT_EQ(verdict_of(test::gives_up_by_vote(vote, 2, false)), Verdict::failed);
    for (const unsigned turns : {3u, 4u, 10u}) {
      const Verdict verdict = verdict_of(test::gives_up_by_vote(vote, turns, false));
      EXPECT_TRUE(verdict == Verdict::failed || verdict == Verdict::none_found)
          << to_string(verdict);
    }
    // Recovery does no harm by it, but not all of its schedules are made.
    EXPECT_EQ(verdict_of(test::gives_up_by_vote(vote, 10, true)), Verdict::none_found);
  }
}

TEST(TurnsTest, WhatTheHostDoesInAPollCountsItsTurns) {
  using test::Count;
  const auto expect_not_passed = [](Count count, std::uint64_t turns, bool in_recovery) {
    const Verdict verdict = verdict_of(test::host_polls_and_counts(count, turns, in_recovery));
    EXPECT_TRUE(verdict == Verdict::failed || verdict == Verdict::none_found)
        << static_cast<int>(count) << ", " << turns << ": " << to_string(verdict);
  };
  for (const auto count : {Count::started, Count::acknowledged, Count::function}) {
    EXPECT_EQ(verdict_of(test::host_polls_and_counts(count, 1, false)), Verdict::failed);
    for (const std::uint64_t turns : {5u, 9u}) expect_not_passed(count, turns, false);
  }
  expect_not_passed(Count::function, 5, true);
}

TEST(TurnsTest, AnAcknowledgeIsRecordedBesideAKernel) {
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(verdict_of(test::acknowledges_beside_a_kernel()), Verdict::none_found);
  }
}

TEST(TurnsTest, ALoopThatCountsIsNoLivelockBesideOneThatPolls) {
  for (const unsigned reads : {3u, 4u, 100u}) {
    const Verdict verdict = verdict_of(test::reads_beside_a_poll(reads));
    EXPECT_TRUE(verdict == Verdict::passed || verdict == Verdict::none_found) << to_string(verdict);
  }
}

TEST(TurnsTest, OneAnswerIsNotAll) {
  EXPECT_NE(verdict_of(test::asks_an_event_once()), Verdict::passed);
  EXPECT_NE(verdict_of(test::function_looks()), Verdict::passed);
}

TEST(TurnsTest, AFunctionOfAStreamRacesAsACopyDoes) {
  using test::Reader;
  for (const Reader reader : {Reader::kernel, Reader::copy, Reader::function, Reader::host}) {
    const Verdict verdict = verdict_of(test::function_stores(reader, false));
    EXPECT_TRUE(verdict == Verdict::racy || verdict == Verdict::failed) << to_string(verdict);
    EXPECT_NE(verdict_of(test::function_stores(reader, true)), Verdict::passed);
  }
  EXPECT_EQ(verdict_of(test::function_stores(Reader::host_later, false)), Verdict::passed);
  EXPECT_EQ(verdict_of(test::function_stores(Reader::host_later, true)), Verdict::passed);
}

TEST(TurnsTest, TurnsInVerifyAreNotExploredAndSaidToBe) {
  EXPECT_EQ(verdict_of(test::verifies_by_turns(true)), Verdict::none_found);
  EXPECT_EQ(verdict_of(test::verifies_by_turns(false)), Verdict::none_found);
}

TEST(TurnsTest, RecoveryThatLeavesWorkBehindIsRefused) {
  EXPECT_EQ(test::error_of([] { check(test::leaves_recovery_early()); },
                           {"recover()", "nobody has waited for"}),
            Errc::unsupported);
}

TEST(TurnsTest, OtherThreadsOfTheHostAreRefused) {
  for (const bool in_recovery : {false, true}) {
    for (const auto make : {test::thread_launches, test::thread_looks}) {
      const char* const where = in_recovery ? "recover() or verify()" : "run()";
      EXPECT_EQ(test::error_of([&] { check(make(in_recovery)); }, {where, "a thread of its own"}),
                Errc::unsupported);
    }
  }
}

TEST(TurnsTest, TheHostRacesWithACopyToItsOwnMemory) {
  EXPECT_EQ(verdict_of(test::reads_beside_a_copy()), Verdict::racy);
}

TEST(TurnsTest, ARelaxedFenceOrdersNothing) {
  EXPECT_EQ(verdict_of(test::orders_by_a_relaxed_fence()), Verdict::failed);
}

TEST(TurnsTest, AShuffleOrdersNoMemory) {
  const auto fails = [](bool by_shuffle) {
    Options options;
    options.model = Model::sbrp;
    return check(test::lanes_apart(by_shuffle), options).models.at(0).failed;
  };
  EXPECT_TRUE(fails(true));
  EXPECT_FALSE(fails(false));
}

TEST(TurnsTest, ARunThatGoesOnBehindATrapIsRefused) {
  EXPECT_EQ(test::error_of([] { check(test::goes_on_behind_a_trap()); }, {"a kernel of it failed"}),
            Errc::unsupported);
}

TEST(TurnsTest, TheCheckersOwnLooksAreNotRecoverys) {
  EXPECT_EQ(verdict_of(test::recovers_on_streams_behind_a_read()), Verdict::passed);
}

// The changed program still waits, and so what it might do earlier is not run.
TEST(TurnsTest, AWaitThatWasTakenAwayIsNotCalledNotNeeded) {
  for (const Mutant& mutant : check_mutants(test::streams_apart_by_a_wait(), {})) {
    EXPECT_NE(mutant.fate, Mutant::Fate::not_needed) << to_string(mutant.mutation);
  }
}

}  // namespace
}  // namespace holdfast::check

// What happens beside the host, behind its back or in recovery alone is in the verdict.
#include "check/unasked_test.hpp"

#include "check/verdicts.hpp"
#include "support/error_of.hpp"

namespace holdfast::check {
namespace {

using test::Unheard;

Verdict verdict_of(const Program& program) {
  Options options;
  options.max_seconds = 20;
  return check(program, options).verdict;
}

TEST(UnaskedTest, AHostThatAsksOnceIsSeenToAskAtAllTimes) {
  EXPECT_EQ(verdict_of(test::host_asks_once(false)), Verdict::failed);
  EXPECT_EQ(verdict_of(test::host_asks_once(true)), Verdict::failed);
  EXPECT_EQ(verdict_of(test::host_is_told_by_its_stream()), Verdict::failed);
  EXPECT_EQ(verdict_of(test::host_tells_once()), Verdict::failed);
  EXPECT_NE(verdict_of(test::host_gives_up_waiting()), Verdict::passed);
  EXPECT_EQ(verdict_of(test::recovery_asks_once()), Verdict::failed);
}

TEST(UnaskedTest, WeakMemoryOfRecoveryVoids) {
  EXPECT_EQ(verdict_of(test::recovery_buffers_stores()), Verdict::void_);
}

TEST(UnaskedTest, WhatIsNotRecordedIsRefused) {
  EXPECT_EQ(test::error_of([] { check(test::allocates_in_run()); }, {"allocates or removes"}),
            Errc::unsupported);
  EXPECT_EQ(test::error_of([] { check(test::leaves_work_behind()); }, {"nobody has waited for"}),
            Errc::unsupported);
}

TEST(UnaskedTest, AHostThatLooksPlainlyRaces) {
  EXPECT_EQ(verdict_of(test::host_asks_plainly()), Verdict::racy);
}

TEST(UnaskedTest, AFenceOfTheHostOrdersWhatItStoresBehindAMessage) {
  EXPECT_EQ(verdict_of(test::host_stores_behind_a_message(true)), Verdict::passed);
  EXPECT_EQ(verdict_of(test::host_stores_behind_a_message(false)), Verdict::failed);
}

TEST(UnaskedTest, StoresOfRunThatNobodyHeardAreRefused) {
  for (const auto how : {Unheard::library, Unheard::thread, Unheard::function}) {
    EXPECT_EQ(test::error_of([&] { check(test::stores_unheard_in_run(how)); },
                             {"run() of program", "stores to record+128 unheard"}),
              Errc::unsupported);
  }
  EXPECT_EQ(test::error_of([] { check(test::acknowledges_from_its_stream()); },
                           {"acknowledge() is called by another thread"}),
            Errc::unsupported);
}

TEST(UnaskedTest, StoresToNoObjectAreNamed) {
  for (const bool before_all : {false, true}) {
    const std::string where = before_all ? "stores to region+64" : "stores to region+";
    EXPECT_EQ(test::error_of([&] { check(test::stores_astray(before_all, false)); },
                             {where, "unasked_test.cu:", "not wholly, in an object"}),
              Errc::unsupported);
    const Report report = check(test::stores_astray(before_all, true));
    ASSERT_EQ(report.verdict, Verdict::failed);
    ASSERT_FALSE(report.failures.empty());
    EXPECT_NE(report.failures[0].message.find(where), std::string::npos)
        << report.failures[0].message;
  }
}

TEST(UnaskedTest, SoIsWhatOtherThreadsDoInRecovery) {
  if (!can_see_host()) GTEST_SKIP() << "pages are watched on x86-64 alone";
  for (const auto how : {Unheard::thread, Unheard::function}) {
    EXPECT_EQ(test::error_of([&] { check(test::unheard_in_recovery(how, true)); },
                             {"reads record+0 unseen", "by another thread"}),
              Errc::unsupported);
    EXPECT_EQ(test::error_of([&] { check(test::unheard_in_recovery(how, false)); },
                             {"stores to record+128 unseen", "by another thread"}),
              Errc::unsupported);
  }
  EXPECT_EQ(test::error_of([] { check(test::recovery_allocates()); }, {"it allocates"}),
            Errc::unsupported);
}

TEST(UnaskedTest, WhatFailsForItsPagesAloneIsNoFailure) {
  if (!can_see_host()) GTEST_SKIP() << "pages are watched on x86-64 alone";
  EXPECT_EQ(test::error_of([] { check(test::verification_writes_to_a_pipe()); },
                           {"passes when it is recovered from again", "a buffer"}),
            Errc::unsupported);
}

TEST(UnaskedTest, StreamsOfRecoveryMayTakeAnyTurns) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(verdict_of(test::recovery_reads_on_two_streams()), Verdict::passed);
  }
}

TEST(UnaskedTest, RecoveryThatFaultsOnAStreamThatNobodyAsksFails) {
  EXPECT_EQ(verdict_of(test::recovery_faults_unasked()), Verdict::failed);
}

TEST(UnaskedTest, ACallOfMemcpyStoresBytes) {
  EXPECT_EQ(verdict_of(test::stores_a_word(false)), Verdict::passed);
  EXPECT_EQ(verdict_of(test::stores_a_word(true)), Verdict::failed);
}

TEST(UnaskedTest, ReadsBehindACopyAreSeen) {
  if (!can_see_host()) GTEST_SKIP() << "pages are watched on x86-64 alone";
  EXPECT_EQ(verdict_of(test::recovery_reads_behind_a_copy()), Verdict::failed);
  EXPECT_EQ(verdict_of(test::recovery_reads_in_a_library_under_one_schedule()), Verdict::failed);
}

}  // namespace
}  // namespace holdfast::check

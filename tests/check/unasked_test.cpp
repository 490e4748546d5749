// What happens beside the host, behind its back or in recovery alone is in the verdict.
#include "check/unasked_test.hpp"

#include "check/verdicts.hpp"
#include "support/error_of.hpp"

namespace holdfast::check {
namespace {

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

TEST(UnaskedTest, RecoveryThatFaultsOnAStreamThatNobodyAsksFails) {
  EXPECT_EQ(verdict_of(test::recovery_faults_unasked()), Verdict::failed);
}

TEST(UnaskedTest, ReadsBehindACopyAreSeen) {
  if (!can_see_host()) GTEST_SKIP() << "pages are watched on x86-64 alone";
  EXPECT_EQ(verdict_of(test::recovery_reads_behind_a_copy()), Verdict::failed);
}

}  // namespace
}  // namespace holdfast::check

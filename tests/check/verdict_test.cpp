// No verdict says more than what was explored.
#include "check/verdict_test.hpp"

#include "check/verdicts.hpp"
#include "support/scratch.hpp"

namespace holdfast::check {
namespace {

using test::error_of;

Report check_within(const Program& program, std::uint64_t states) {
  Options options;
  options.max_states = states;
  return check(program, options);
}

bool says(const Report& report, const std::string& words) {
  return all_of(report.limits).find(words) != std::string::npos;
}

TEST(VerdictTest, PassedIsWhereAllWasExploredUnderBothModels) {
  const Report report = check(test::published());
  EXPECT_EQ(report.verdict, Verdict::passed) << all_of(report.limits);
  ASSERT_EQ(report.models.size(), 2u);
  for (const ModelReport& part : report.models) {
    EXPECT_TRUE(part.complete);
    EXPECT_TRUE(part.nested_complete);
    EXPECT_EQ(part.states, part.runs + part.memoised);
    EXPECT_GT(part.states, 1u);
  }
  EXPECT_EQ(report.schedules, 1u);
  EXPECT_TRUE(report.schedules_complete);
  EXPECT_EQ(report.states, report.models[0].states + report.models[1].states);
  EXPECT_TRUE(report.limits.empty());
}

TEST(VerdictTest, WhatWasLeftOutIsNotPassed) {
  const auto expect_limit = [](const Options& options, const std::string& words) {
    const Report report = check(test::published(), options);
    EXPECT_EQ(report.verdict, Verdict::none_found) << words;
    EXPECT_TRUE(says(report, words)) << words << ": " << all_of(report.limits);
  };
  Options sbrp, epoch, no_nested, no_races, barriers;
  sbrp.model = Model::sbrp;
  epoch.model = Model::epoch;
  no_nested.nested = false;
  no_races.races = false;
  barriers.barrier_orders = true;
  expect_limit(sbrp, "only model sbrp");
  expect_limit(epoch, "only model epoch");
  expect_limit(no_nested, "crashes inside recovery");
  expect_limit(no_races, "races");
  expect_limit(barriers, "barriers");
}

TEST(VerdictTest, OneScheduleOfSeveralIsNotPassed) {
  for (const Program& program : {test::two_threads(), test::acknowledged_early()}) {
    const Report report = check(program);
    if (report.schedules_complete) continue;
    EXPECT_NE(report.verdict, Verdict::passed) << program.name;
    EXPECT_TRUE(says(report, "1 schedule of unknown many")) << all_of(report.limits);
  }
  const Report report = check(test::recovered_by_two());
  EXPECT_TRUE(report.schedules_complete);
  EXPECT_EQ(report.recovery_complete, report.verdict == Verdict::passed);
}

TEST(VerdictTest, ThreeStatesAreNotPassed) {
  const Report report = check_within(test::published(), 3);
  EXPECT_EQ(report.verdict, Verdict::none_found);
  EXPECT_FALSE(report.complete);
  EXPECT_TRUE(says(report, "3 states")) << all_of(report.limits);
}

// All pairs are tried in both orders, and the one state of 2^24 that fails is none of those.
TEST(VerdictTest, AllPairsAreNotAllStates) {
  const Report report = check_within(test::unordered_words(24, 0xa5c3f1), 20'000);
  ASSERT_TRUE(report.failures.empty());
  EXPECT_EQ(report.verdict, Verdict::none_found);
  EXPECT_EQ(report.rung, Rung::sampled);
  for (const ModelReport& part : report.models) {
    EXPECT_EQ(part.pairs_tried, part.pairs);
    EXPECT_GT(part.pairs, 0u);
    EXPECT_FALSE(part.complete);
    EXPECT_FALSE(part.nested_complete);
  }
}

TEST(VerdictTest, SomePairsAreNotAllPairs) {
  const Report report = check_within(test::unordered_words(1'000, 0), 20);
  EXPECT_EQ(report.verdict, Verdict::none_found);
  EXPECT_FALSE(report.complete);
  ASSERT_EQ(report.models.size(), 2u);
  const ModelReport& part = report.models[0];
  EXPECT_EQ(part.pairs, 999'000u);
  EXPECT_LT(part.pairs_tried, 20u);
  EXPECT_TRUE(says(report, "of 999000 pairs")) << all_of(report.limits);
}

TEST(VerdictTest, WhatOneModelAllowsIsFoundUnderBoth) {
  Options sbrp;
  sbrp.model = Model::sbrp;
  EXPECT_EQ(check(test::published_behind_thread_fence(), sbrp).verdict, Verdict::none_found);
  const Report both = check(test::published_behind_thread_fence());
  ASSERT_EQ(both.verdict, Verdict::failed);
  EXPECT_FALSE(both.models.at(0).failed);
  EXPECT_TRUE(both.models.at(1).failed);
  ASSERT_EQ(both.failures.size(), 1u);
  EXPECT_EQ(both.failures[0].model, Model::epoch);
  Options again;
  again.replay = both.failures[0].state;
  EXPECT_EQ(again.replay.rfind("epoch@", 0), 0u);
  EXPECT_EQ(check(test::published_behind_thread_fence(), again).verdict, Verdict::failed);
  EXPECT_EQ(check(test::published_behind_both_fences()).verdict, Verdict::passed);
}

TEST(VerdictTest, AStateNamesItsSchedule) {
  Program program = test::two_threads();
  program.verify = [](Region&, const History& history, std::uint64_t) {
    return history.acknowledged == 0 ? "" : "always";
  };
  Options seventh;
  seventh.schedule = 7;
  const Report report = check(program, seventh);
  ASSERT_EQ(report.verdict, Verdict::failed);
  Options again;
  again.replay = report.failures.at(0).state;
  EXPECT_EQ(again.replay.rfind("s7@", 0), 0u) << again.replay;
  const Report repeated = check(program, again);
  EXPECT_EQ(repeated.verdict, Verdict::failed);
  EXPECT_EQ(repeated.failures.at(0).state, again.replay);
  for (const char* wrong : {"x7@0:", "s@0:", "s7x@0:", "@0:"}) {
    again.replay = wrong;
    EXPECT_EQ(error_of([&] { check(program, again); }, {"report"}), Errc::invalid_argument)
        << wrong;
  }
}

TEST(VerdictTest, AReplayThatHoldsIsNotPassed) {
  Options options;
  options.replay = "0:";
  const Report report = check(test::published(), options);
  EXPECT_EQ(report.verdict, Verdict::none_found);
  EXPECT_EQ(all_of(report.limits), "only model sbrp; one state");
}

TEST(VerdictTest, TheGravestCounts) {
  Report report = check(test::published());
  report.void_reasons = {"too many accesses"};
  conclude(report);
  EXPECT_EQ(report.verdict, Verdict::void_);
  EXPECT_STREQ(to_string(report.verdict), "void");
  report.races.emplace_back();
  conclude(report);
  EXPECT_EQ(report.verdict, Verdict::racy);
  report.failures.emplace_back();
  conclude(report);
  EXPECT_EQ(report.verdict, Verdict::failed);
}

}  // namespace
}  // namespace holdfast::check

// The log under the checker at sizes that it cannot explore to the end, with a crash anywhere in
// batches, opening and cleaning: samples. docs/kv-log.md says what `holdfast check` explores whole.
#include "check/share_of_states.hpp"
#include "check/shipped_program.hpp"
#include "check/verdicts.hpp"

namespace holdfast::check {
namespace {

// One schedule, and no look at races: of more operations the counters of segments are relaxed.
// Threads add to them, and none looks before the kernel ends.
Options budget(std::uint64_t states) {
  Options options;
  options.max_states = states;
  options.schedules = 0;
  options.recovery_schedules = 0;
  options.races = false;
  return options;
}

void expect_no_failure(const std::string& name, unsigned operations, std::uint64_t states) {
  const Program program = shipped_program(name, {operations, 0, 0});
  const std::uint64_t seed = test::test_seed(), tried = test::some_of(states, 40);
  std::uint64_t explored = 0, nested = 0;
  const auto look = [&](std::uint64_t draw) {
    const Report report = check_share(program, budget(states), 40, seed + draw);
    explored += report.states;
    nested += report.nested_states;
    for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
  };
  look(0);
  // What a share draws may all be known before it has drawn that many: then it draws again.
  for (std::uint64_t draw = 1; test::share() > 1 && explored < tried && draw < 10; ++draw) {
    look(draw);
  }
  EXPECT_GE(explored, tried);
  EXPECT_GT(nested, tried / 10);
}

// By how names of the programs end: of an index that is whole, and of one of fingerprints.
class KvLogCheck : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string of_form(const std::string& name) { return name + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Forms, KvLogCheck, ::testing::Values("", "_fingerprints"),
                         [](const auto& info) {
                           return std::string(*info.param == 0 ? "whole" : info.param + 1);
                         });

TEST_P(KvLogCheck, NoStateOfBatchesFails) { expect_no_failure(of_form("kv_log"), 3, 1500); }
TEST_P(KvLogCheck, NoStateOfCleaningFails) {
  expect_no_failure(of_form("kv_log_cleaning"), 2, 300);
}
TEST_P(KvLogCheck, NoStateOfSnapshotsFails) {
  expect_no_failure(of_form("kv_log_snapshot"), 1, 1500);
}

// All of them, of the smallest batch.
TEST_P(KvLogCheck, OneBatchPasses) {
  const Program program = shipped_program(of_form("kv_log_set"));
  if (test::share() > 1) {
    Options some;
    some.max_states = 400;
    const Report report = check_share(program, some, 20, test::test_seed());
    EXPECT_GT(report.nested_states, 0u);
    return expect_none_found(report);
  }
  const Report report = check(program);
  EXPECT_EQ(report.verdict, Verdict::passed) << all_of(report.limits);
  expect_nothing_fails(report);
}

TEST_P(KvLogCheck, NoStateOfABatchOfBothKindsFails) {
  if (test::share() == 1) {  // all states of one schedule
    const Report whole = check(shipped_program(of_form("kv_log_apply"), {2, 0, 0}), budget(3000));
    for (const ModelReport& part : whole.models) {
      EXPECT_TRUE(part.complete && part.nested_complete) << all_of(whole.limits);
    }
    for (const Failure& failure : whole.failures) ADD_FAILURE() << failure.message;
  }
  expect_no_failure(of_form("kv_log_apply"), 5, 1500);
}

// Without the fence in front of the commit word, and the like. Of a share it is that of the commit
// which is tried, until a change is noticed.
TEST(KvLogCheckMutants, ChangesOfTheProgramAreNoticed) {
  Options options = budget(600);
  options.nested = false;
  const Program program = shipped_program("kv_log_set");
  int killed = 0;
  if (test::share() == 1) {
    const SizedProgram sized{"a batch", [&] { return program; }};
    for (const Mutant& mutant : check_mutants({sized}, options, 1)) {
      killed += mutant.fate == Mutant::Fate::killed && mutant.killer == Mutant::Killer::state;
    }
  } else {
    Checker checker(program, options);
    for (const Checker::Target& target : checker.targets()) {
      if (killed > 0 || !target.place.file.ends_with("log/commit.hpp")) continue;
      options.mutation = target.mutation;
      killed += !check(program, options).failures.empty();
    }
  }
  EXPECT_GT(killed, 0);
}

}  // namespace
}  // namespace holdfast::check

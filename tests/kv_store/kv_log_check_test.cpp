// The log under the checker at sizes that it cannot explore to the end, with a crash anywhere in
// batches, opening and cleaning: samples. docs/kv-log.md says what `holdfast check` explores whole.
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

void expect_no_failure(const char* name, unsigned operations, std::uint64_t states) {
  const Report report = check(shipped_program(name, {operations, 0, 0}), budget(states));
  EXPECT_GE(report.states, states);
  EXPECT_GT(report.nested_states, states / 10);
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
}

TEST(KvLogCheck, NoStateOfBatchesFails) { expect_no_failure("kv_log", 3, 1500); }
TEST(KvLogCheck, NoStateOfCleaningFails) { expect_no_failure("kv_log_cleaning", 2, 300); }
TEST(KvLogCheck, NoStateOfSnapshotsFails) { expect_no_failure("kv_log_snapshot", 1, 1500); }

// All of them, of the smallest batch.
TEST(KvLogCheck, OneBatchPasses) {
  const Report report = check(shipped_program("kv_log_set"));
  EXPECT_EQ(report.verdict, Verdict::passed) << all_of(report.limits);
  expect_nothing_fails(report);
}

// Without the fence in front of the commit word, and the like.
TEST(KvLogCheck, ChangesOfTheProgramAreNoticed) {
  Options options = budget(600);
  options.nested = false;
  const SizedProgram program{"a batch", [] { return shipped_program("kv_log_set"); }};
  int killed = 0;
  for (const Mutant& mutant : check_mutants({program}, options, 1)) {
    killed += mutant.fate == Mutant::Fate::killed && mutant.killer == Mutant::Killer::state;
  }
  EXPECT_GT(killed, 0);
}

}  // namespace
}  // namespace holdfast::check

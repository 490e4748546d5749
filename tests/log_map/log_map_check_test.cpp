// The log map under the checker, at sizes that it explores to the end, and with fences left out.
#include "check/shipped_program.hpp"
#include "check/verdicts.hpp"

namespace holdfast::check {
namespace {

TEST(LogMapCheck, OneBatchPasses) {
  const Report report = check(shipped_program("log_map"));
  EXPECT_EQ(report.verdict, Verdict::passed) << all_of(report.limits);
  expect_nothing_fails(report);
}

// Without the fence behind the values, and the like.
TEST(LogMapCheck, ChangesOfTheProgramAreNoticed) {
  Options options;
  options.max_states = 600;
  options.schedules = 0;
  options.recovery_schedules = 0;
  options.races = false;
  options.nested = false;
  const SizedProgram program{"a batch", [] { return shipped_program("log_map"); }};
  bool values_noticed = false;
  for (const Mutant& mutant : check_mutants({program}, options, 1)) {
    if (mutant.place.file.find("log_map/kernels.cu") == std::string::npos) continue;
    values_noticed |= mutant.fate == Mutant::Fate::killed && mutant.killer == Mutant::Killer::state;
  }
  EXPECT_TRUE(values_noticed);
}

}  // namespace
}  // namespace holdfast::check

// The log map under the checker: samples of what `holdfast check log_map` explores whole in a
// minute or two, and with fences left out.
#include "check/shipped_program.hpp"
#include "check/verdicts.hpp"

namespace holdfast::check {
namespace {

TEST(LogMapCheck, NoStateOfABatchFails) {
  Options options;
  options.max_states = 400;
  options.schedules = 3;
  options.recovery_schedules = 2;
  const Report report = check(shipped_program("log_map"), options);
  EXPECT_NE(report.verdict, Verdict::void_) << all_of(report.limits);
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
  EXPECT_GT(report.nested_states, 40u);
}

// Without the fence behind the values, and the like.
TEST(LogMapCheck, ChangesOfTheProgramAreNoticed) {
  Options options;
  options.max_states = 120;
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

// The log map under the checker: samples of what `holdfast check log_map` explores whole in a
// minute or two, and with fences left out.
#include <set>

#include "check/shipped_program.hpp"
#include "check/verdicts.hpp"

namespace holdfast::check {
namespace {

TEST(LogMapCheck, NoStateOfABatchFails) {
  Options options;
  options.max_states = 400;
  options.schedules = 3;
  options.recovery_schedules = 2;
  for (const char* const name : {"log_map", "log_map_assign"}) {
    SCOPED_TRACE(name);
    const Report report = check(shipped_program(name), options);
    EXPECT_NE(report.verdict, Verdict::void_) << all_of(report.limits);
    for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
    EXPECT_GT(report.nested_states, 40u);
  }
}

TEST(LogMapCheck, TheFenceBehindValuesIsMissed) {
  Options options;
  options.max_states = 120;
  options.schedules = 1;  // in the first one values come before the commit of themselves
  options.recovery_schedules = 0;
  options.races = false;
  options.nested = false;
  const SizedProgram program{"a batch", [] { return shipped_program("log_map"); }};
  // Of all that is changed there a durability fence alone can be weakened.
  std::set<unsigned> fences, missed;
  for (const Mutant& mutant : check_mutants({program}, options, 1)) {
    if (mutant.place.file.find("log_map/kernels.cu") == std::string::npos) continue;
    if (mutant.mutation.kind == Mutation::Kind::weaken) fences.insert(mutant.place.line);
    if (mutant.fate == Mutant::Fate::killed && mutant.killer == Mutant::Killer::state &&
        mutant.mutation.kind == Mutation::Kind::drop) {
      missed.insert(mutant.place.line);
    }
  }
  EXPECT_EQ(fences.size(), 1u);
  for (const unsigned line : fences) EXPECT_TRUE(missed.contains(line)) << "line " << line;
}

}  // namespace
}  // namespace holdfast::check

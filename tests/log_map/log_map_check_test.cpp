// The log map under the checker: samples of what `holdfast check log_map` explores whole in a
// minute or two, and with fences left out.
#include <set>

#include "check/share_of_states.hpp"
#include "check/shipped_program.hpp"
#include "check/verdicts.hpp"

namespace holdfast::check {
namespace {

TEST(LogMapCheck, NoStateOfABatchFails) {
  Options options;
  options.max_states = 400;
  options.schedules = 3;
  options.recovery_schedules = 2;
  const std::uint64_t seed = test::test_seed();
  const char* const names[] = {"log_map", "log_map_assign"};
  const test::Every tried = test::every(1, std::size(names), seed / 2);
  for (std::uint64_t i = tried.first; i < std::size(names); i += tried.step) {
    SCOPED_TRACE(names[i]);
    const Report report = check_share(shipped_program(names[i]), options, 30, seed);
    EXPECT_NE(report.verdict, Verdict::void_) << all_of(report.limits);
    for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
    EXPECT_GT(report.nested_states, test::some_of(400, 30) / 10);
  }
}

TEST(LogMapCheck, TheFenceBehindValuesIsMissed) {
  Options options;
  options.max_states = 120;
  options.schedules = 1;  // in the first one values come before the commit of themselves
  options.recovery_schedules = 0;
  options.races = false;
  options.nested = false;
  const Program program = shipped_program("log_map");
  // Of all that can be changed there a durability fence alone can be weakened.
  std::set<unsigned> fences, missed;
  Checker checker(program, options);
  for (const Checker::Target& target : checker.targets()) {
    if (target.place.file.find("log_map/kernels.cu") == std::string::npos) continue;
    if (target.mutation.kind != Mutation::Kind::weaken) continue;
    fences.insert(target.place.line);
    options.mutation = target.mutation;
    options.mutation.kind = Mutation::Kind::drop;
    if (!check(program, options).failures.empty()) missed.insert(target.place.line);
  }
  EXPECT_EQ(fences.size(), 1u);
  for (const unsigned line : fences) EXPECT_TRUE(missed.contains(line)) << "line " << line;
}

}  // namespace
}  // namespace holdfast::check

// The programs of the map of byte strings under the checker, and whether a change of them is
// noticed.
#include "check/shipped_program.hpp"
#include "check/verdicts.hpp"

namespace holdfast::check {
namespace {

class BytesMapCheck : public ::testing::TestWithParam<const char*> {};

// Recovery and verification run the map's own kernels, of many groups, in one of their schedules.
TEST_P(BytesMapCheck, FindsNoFailure) {
  Options options;
  options.nested = false;
  const Report report = check(shipped_program(GetParam()), options);
  EXPECT_TRUE(nothing_fails(report)) << to_string(report.verdict) << all_of(report.void_reasons);
  EXPECT_TRUE(report.complete) << all_of(report.limits);
  EXPECT_TRUE(report.schedules_complete);
  EXPECT_GT(report.states, 10u);
}

INSTANTIATE_TEST_SUITE_P(Programs, BytesMapCheck,
                         ::testing::Values("bytes_map_insert", "bytes_map_update",
                                           "bytes_map_erase", "bytes_map_grow"),
                         [](const auto& of) { return std::string(of.param); });

// Where the host does not wait for a record before the index names it, a crash leaves a key whose
// record is not there.
class BytesMapCheckOfMutants : public ::testing::TestWithParam<const char*> {};

TEST_P(BytesMapCheckOfMutants, AHostThatDoesNotWaitForARecordIsNoticed) {
  Options options;
  options.nested = false;
  int killed = 0;
  for (const Mutant& mutant :
       check_mutants({{"usual", [] { return shipped_program(GetParam()); }}}, options, 1)) {
    const bool of_map = mutant.place.file.find("bytes_map/host.cu") != std::string::npos;
    killed +=
        of_map && mutant.fate == Mutant::Fate::killed && mutant.killer == Mutant::Killer::state;
  }
  EXPECT_GE(killed, 1);
}

INSTANTIATE_TEST_SUITE_P(Programs, BytesMapCheckOfMutants,
                         ::testing::Values("bytes_map_insert", "bytes_map_grow"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace holdfast::check

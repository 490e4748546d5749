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
  // One store of eight bytes is all that an erasure by a ref makes.
  const bool is_one_store = std::string(GetParam()) == "bytes_map_ref_erase";
  EXPECT_GT(report.states, is_one_store ? 7u : 10u);
}

INSTANTIATE_TEST_SUITE_P(Programs, BytesMapCheck,
                         ::testing::Values("bytes_map_insert", "bytes_map_update",
                                           "bytes_map_erase", "bytes_map_grow",
                                           "bytes_map_ref_insert", "bytes_map_ref_update",
                                           "bytes_map_ref_erase"),
                         [](const auto& of) { return std::string(of.param); });

// Where the host does not wait for a record before the index names it, or a kernel's group does not
// make its own durable, a crash leaves a key whose record is not there.
struct Waits {
  const char* program;
  const char* file;  // where
};
class BytesMapCheckOfMutants : public ::testing::TestWithParam<Waits> {};

TEST_P(BytesMapCheckOfMutants, WhoDoesNotWaitForARecordIsNoticed) {
  Options options;
  options.nested = false;
  int killed = 0;
  for (const Mutant& mutant :
       check_mutants({{"usual", [] { return shipped_program(GetParam().program); }}}, options, 1)) {
    const bool is_there = mutant.place.file.find(GetParam().file) != std::string::npos;
    killed +=
        is_there && mutant.fate == Mutant::Fate::killed && mutant.killer == Mutant::Killer::state;
  }
  EXPECT_GE(killed, 1);
}

INSTANTIATE_TEST_SUITE_P(Programs, BytesMapCheckOfMutants,
                         ::testing::Values(Waits{"bytes_map_insert", "bytes_map/host.cu"},
                                           Waits{"bytes_map_grow", "bytes_map/host.cu"},
                                           Waits{"bytes_map_ref_insert", "hash_map_ref.inl"},
                                           Waits{"bytes_map_ref_update", "hash_map_ref.inl"}),
                         [](const auto& of) { return std::string(of.param.program); });

}  // namespace
}  // namespace holdfast::check

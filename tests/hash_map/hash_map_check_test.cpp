// The map's programs under the checker: whole at the usual sizes (docs/map.md has what that
// explores, and the mutants), and whether their changes are noticed.
#include "check/shipped_program.hpp"
#include "check/verdicts.hpp"

namespace holdfast::check {
namespace {

class HashMapCheck : public ::testing::TestWithParam<const char*> {};

TEST_P(HashMapCheck, Passes) {
  const Report report = check(shipped_program(GetParam()));
  EXPECT_EQ(report.verdict, Verdict::passed) << all_of(report.limits);
  expect_nothing_fails(report);
}

// Of the fences and stores that crashes need: a value before the word that names it, and what a
// kernel's operation has done before it returns.
TEST_P(HashMapCheck, ChangesOfTheProgramAreNoticed) {
  Options options;
  options.schedules = 100;
  options.nested = false;
  const SizedProgram program{"usual", [] { return shipped_program(GetParam()); }};
  int killed = 0;
  for (const Mutant& mutant : check_mutants({program}, options, 1)) {
    const bool of_map = mutant.place.file.find("hash_map_") != std::string::npos;
    killed +=
        of_map && mutant.fate == Mutant::Fate::killed && mutant.killer == Mutant::Killer::state;
  }
  EXPECT_GE(killed, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, HashMapCheck,
    ::testing::Values("map_insert", "map_insert_small", "map_update", "map_erase", "map_make_room",
                      "map_ref_insert", "map_ref_update", "map_ref_erase", "map_grow",
                      "map_grow_update", "map_grow_erase", "map_grow_ref_erase", "map_changes",
                      "map_mixed", "map_mixed_insert", "map_mixed_erase", "map_mixed_make_room",
                      "map_mixed_refs_out", "map_mixed_refs_out_erase", "map_evict",
                      "map_evict_small"),
    [](const auto& of) { return std::string(of.param); });
INSTANTIATE_TEST_SUITE_P(LongKeys, HashMapCheck,
                         ::testing::Values("map_long_insert", "map_long_make_room",
                                           "map_long_evict", "map_long_ref_erase", "map_long_grow"),
                         [](const auto& of) { return std::string(of.param); });

// Whoever inserts a long key beside others may look at it again and again, which the checker takes
// for a loop: "about 99 % of all".
class HashMapCheckOfLongKeys : public ::testing::TestWithParam<const char*> {};

TEST_P(HashMapCheckOfLongKeys, FindsNoFailure) {
  Options options;
  options.nested = false;
  const Report report = check(shipped_program(GetParam()), options);
  EXPECT_TRUE(nothing_fails(report)) << to_string(report.verdict) << all_of(report.void_reasons);
  EXPECT_GE(report.schedules_share, .99);
  EXPECT_TRUE(report.complete) << all_of(report.limits);
}

INSTANTIATE_TEST_SUITE_P(Programs, HashMapCheckOfLongKeys,
                         ::testing::Values("map_long_erase", "map_long_ref_insert",
                                           "map_long_ref_alike", "map_long_grow_ref_erase"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace holdfast::check

// What the project ships, under the checker: every program passes, the one with a bug fails where
// the bug is, and no mutation of those that are meant to be right goes unnoticed.
#include <algorithm>
#include <fstream>
#include <random>
#include <set>

#include "check/checker.hpp"
#include "check/share_of_mutants.hpp"
#include "check/shipped_program.hpp"
#include "check/verdicts.hpp"
#include "checked_append/append.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast::check {
namespace {

struct Small {
  std::string name;
  Sizes sizes{};
};

void PrintTo(const Small& small, std::ostream* out) { *out << small.name; }

// Small sizes, with more than one of everything that a program has; others have their usual ones.
const Small kSmall[] = {
    {"undo_log", {6, 1, 2}},
    {"undo_log_conventional", {5, 1, 1}},
    {"gpkvs", {5, 0, 0}},
    {"gpkvs_cached", {5, 0, 0}},
    {"gpkvs_conventional", {5, 0, 0}},
    {"gpkvs_set", {6, 0, 0}},
    {"gpkvs_set_cached", {6, 0, 0}},
    {"prefix_sum", {3, 3, 0}},
    {"reduction", {4, 3, 0}},
    {"srad", {2, 2, 0}},
    {"gpdb_insert", {2, 0, 0}},
    {"gpdb_update", {4, 0, 0}},
    {"gpdb_update_cached", {4, 0, 0}},
    {"gpdb_update_conventional", {4, 0, 0}},
};

// Those that are meant to be right, but for the example's, which examples/checked_append checks.
std::vector<Small> right_programs() {
  // These take minutes: kv_log_check_test and log_map_check_test have samples of them, and
  // kv_log_set whole.
  std::set<std::string> passed_over{"log_map", "log_map_assign"};
  for (const char* name :
       {"kv_log", "kv_log_set", "kv_log_apply", "kv_log_cleaning", "kv_log_snapshot"}) {
    passed_over.insert({name, std::string(name) + "_fingerprints"});
  }
  // With crashes inside of recovery they take minutes: bytes_map_check_test has them without.
  passed_over.insert({"bytes_map_update", "bytes_map_ref_update"});
  // With crashes inside of recovery it has more states than the limit: hash_map_check_test has it.
  passed_over.insert("map_long_ref_alike");
  for (const Offer& offer : checked_append::offers()) passed_over.insert(offer.name);
  std::vector<Small> programs;
  for (const Offer& offer : shipped_programs()) {
    if (!offer.correct || passed_over.count(offer.name) != 0) continue;
    Small& small = programs.emplace_back(Small{offer.name});
    for (const Small& one : kSmall) {
      if (one.name == offer.name) small = one;
    }
  }
  return programs;
}

void print(const std::string& name, const Report& report) {
  for (const ModelReport& part : report.models) {
    std::printf("%-22s %-5s %-10s %8llu states (%llu nested) %4llu components %.2f s\n",
                name.c_str(), to_string(part.model), to_string(part.rung),
                static_cast<unsigned long long>(part.states),
                static_cast<unsigned long long>(part.nested_states),
                static_cast<unsigned long long>(part.components), report.seconds);
  }
}

// At these sizes some programs have far more schedules than can be explored: this many beside the
// first give another order of the threads its chance, and keep each program within seconds.
// PassedTest has all of them, of smaller programs.
constexpr std::uint64_t kSchedules = 50;

class ProgramsTest : public ::testing::TestWithParam<Small> {};

std::string name_of(const ::testing::TestParamInfo<Small>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Shipped, ProgramsTest, ::testing::ValuesIn(right_programs()), name_of);

// A share of it: under one of the models, the states of some schedules one after the other, as far
// as that goes, then some of those of a schedule drawn at random, behind more than one execution of
// recovery. What was not explored whole is not said to have been.
void expect_no_share_fails(const Program& program, Options options, bool is_void = false) {
  std::mt19937_64 random(test::test_seed());
  const std::uint64_t recovery_schedules = test::some_of(options.recovery_schedules / 2);
  if (!options.model) options.model = random() % 2 == 0 ? Model::sbrp : Model::epoch;
  options.schedules = std::min<std::uint64_t>(test::some_of(options.schedules), 100);
  options.recovery_schedules = 0;
  options.max_states = test::some_of(10'000);
  const Report whole = check(program, options);
  print(program.name, whole);
  expect_none_found(whole, is_void);
  if (whole.complete && whole.schedules_complete && whole.recovery_complete) {
    return expect_nothing_fails(whole, is_void);
  }

  options.seed = options.schedule = random();
  options.schedules = 0;
  options.recovery_schedules = recovery_schedules;
  options.max_states = test::some_of(200, 20);
  options.nested = random() % 2 == 0;
  Checker checker(program, options);
  checker.start_at(Rung::sampled);
  const Report samples = checker.check(true);
  print(program.name, samples);
  EXPECT_GT(samples.states, 0u);
  expect_none_found(samples, is_void);
}

// All of them are right under both models: they order by durability fences alone, which both know,
// or (the reduction) by releases whose flags are volatile, so that neither model can lose a flag
// that was seen.
TEST_P(ProgramsTest, NothingFails) {
  Options options;
  options.schedules = kSchedules;
  // Their relaxed counters and claims are harmless (docs/model.md, "Weak memory"), which no rule of
  // the checker shows.
  const std::string name = GetParam().name;
  const bool is_void = name == "reduction" || name.starts_with("bfs");
  const Program program = shipped_program(name, GetParam().sizes);
  if (test::share() > 1) return expect_no_share_fails(program, options, is_void);
  const Report report = check(program, options);
  print(name, report);
  EXPECT_EQ(report.models.size(), 2u);
  expect_nothing_fails(report, is_void);
}

// Small enough that all schedules and all states are explored; recovery has one execution from each
// state, whatever its threads do first.
void expect_passed(const Program& program) {
  const Report report = check(program);
  print(program.name, report);
  EXPECT_EQ(report.models.size(), 2u);
  EXPECT_EQ(report.verdict, Verdict::passed)
      << all_of(report.limits) << all_of(report.void_reasons);
  expect_nothing_fails(report);
}

// Of the larger ones.
void expect_passed_or_a_share(const Program& program) {
  if (test::share() > 1) return expect_no_share_fails(program, {});
  expect_passed(program);
}

TEST(PassedTest, UndoLog) { expect_passed(shipped_program("undo_log", {2, 0, 1})); }
TEST(PassedTest, GpkvsSet) { expect_passed(shipped_program("gpkvs_set", {2, 0, 0})); }
TEST(PassedTest, KvLookups) { expect_passed_or_a_share(shipped_program("kv_lookups", {})); }
TEST(PassedTest, KvLookupsCached) {
  expect_passed_or_a_share(shipped_program("kv_lookups_cached", {}));
}
// Most of what it stores is there already, around what changes: that is no state of its own.
TEST(PassedTest, GpdbUpdateCached) {
  expect_passed_or_a_share(shipped_program("gpdb_update_cached", {3, 0, 0}));
}
TEST(PassedTest, CheckpointOfOneGroup) {
  expect_passed_or_a_share(shipped_program("checkpoint", {}));
}
TEST(PassedTest, Append) { expect_passed(shipped_program("append", {4, 0, 0})); }

// Recovery puts rows back in pieces that are smaller than what was stored there: what it has
// overwritten whole that way it does not read, whether it is run or known from before.
TEST(WithoutSecondCrashesTest, RecoveryThatOverwritesInPiecesIsExplored) {
  Options options;
  options.nested = false;
  const Report report = check(shipped_program("gpdb_update", {4, 0, 0}), options);
  print("gpdb_update", report);
  EXPECT_EQ(report.verdict, Verdict::none_found);
  EXPECT_TRUE(report.failures.empty());
  for (const ModelReport& part : report.models) EXPECT_TRUE(part.complete);
}

class MutantsTest : public ::testing::TestWithParam<Small> {};

INSTANTIATE_TEST_SUITE_P(Shipped, MutantsTest,
                         ::testing::Values(Small{"undo_log", {3, 1, 1}},
                                           Small{"undo_log_conventional", {3, 1, 1}},
                                           Small{"gpkvs", {5, 0, 0}},
                                           Small{"gpkvs_cached", {5, 0, 0}},
                                           Small{"prefix_sum", {3, 2, 0}}, Small{"bfs", {2, 0, 0}},
                                           Small{"checkpoint", {}}, Small{"srad", {2, 2, 0}},
                                           Small{"reduction", {3, 2, 0}}),
                         name_of);

// Nothing is called not needed unless all there is was explored. That of the changes that are made
// some are noticed says that the verification looks.
TEST_P(MutantsTest, SomeAreKilledAndNoneIsCalledNotNeededLightly) {
  Options options;
  options.max_states = 1'000;
  const SizedProgram program{"test",
                             [] { return shipped_program(GetParam().name, GetParam().sizes); }};
  const auto is_any = [](const Place&) { return true; };
  std::size_t tried = 0;
  int killed = 0;
  int not_needed = 0;
  check_some_mutants(program, options, is_any, [&](const std::vector<Mutant>& mutants) {
    tried += mutants.size();
    for (const Mutant& mutant : mutants) {
      killed += mutant.fate == Mutant::Fate::killed;
      not_needed += mutant.fate == Mutant::Fate::not_needed;
      if (mutant.fate == Mutant::Fate::not_needed) {
        EXPECT_EQ(mutant.report.verdict, Verdict::passed) << mutant.mutation.place;
      }
      if (mutant.fate == Mutant::Fate::not_killed) {
        std::printf("%s: %s at %s is not killed\n", GetParam().name.c_str(),
                    to_string(mutant.mutation.kind), mutant.mutation.place.c_str());
      }
    }
    return killed > 0;
  });
  std::printf("%s: %zu mutants, %d killed, %d not needed\n", GetParam().name.c_str(), tried, killed,
              not_needed);
  EXPECT_GT(killed, 0);
}

// The line in the reduction that releases a block's sum.
unsigned release_line() {
  const std::string self = __FILE__;
  std::ifstream file(self.substr(0, self.rfind("/tests/")) + "/workloads/reduction/reduction.cu");
  unsigned number = 1;
  for (std::string line; std::getline(file, line); ++number) {
    if (line.find("prel<kRelease>") != std::string::npos) return number;
  }
  return 0;
}

TEST(ReductionBlockScopeTest, FailsUnderSbrpAtTheRelease) {
  Options options;
  options.races = false;  // a release that does not reach its readers is a race as well
  options.model = Model::sbrp;
  // The failure is among the first; the more states, the longer is looked for what mends it.
  if (test::share() > 1) options.max_states = 500;
  const Report report = check(shipped_program("reduction_block_scope"), options);
  print("reduction_block_scope", report);
  ASSERT_EQ(report.verdict, Verdict::failed);
  const Failure& failure = report.failures.at(0);
  EXPECT_EQ(failure.cause, CauseKind::narrow_scope);
  EXPECT_EQ(to_string(failure.fix), "reduction.cu:" + std::to_string(release_line()));
}

// Today's hardware, which the epoch model is of, has one fence that waits for a store to leave the
// GPU, and a release of any scope ends in it: so there the narrow scope orders no less.
TEST(ReductionBlockScopeTest, DoesNotFailUnderEpoch) {
  Options options;
  options.races = false;
  options.model = Model::epoch;
  const Program program = shipped_program("reduction_block_scope");
  if (test::share() > 1) return expect_no_share_fails(program, options, true);
  const Report report = check(program, options);
  print(program.name, report);
  expect_nothing_fails(report, true);
}

TEST(ShippedProgramsTest, SizesThatDoNotFitAreRefused) {
  const auto refused = [](const char* name, const Sizes& sizes, const char* words) {
    EXPECT_EQ(test::error_of([&] { shipped_program(name, sizes); },
                             {detail::concat("program '", name, "'"), words}),
              Errc::invalid_argument);
  };
  refused("undo_log", {1, 0, 0}, "1 threads; give 2 to 1024");
  refused("undo_log", {1025, 0, 0}, "1025 threads; give 2 to 1024");
  refused("undo_log", {0, 65, 0}, "65 blocks; give 1 to 64");
  refused("undo_log", {0, 0, 65}, "65 persists; give 1 to 64");
  refused("checkpoint", {4, 0, 0}, "takes no number of threads");
  refused("gpkvs", {0, 2, 0}, "takes no number of blocks");
  refused("prefix_sum", {0, 0, 1}, "takes no number of persists");
}

TEST(ShippedProgramsTest, HaveANameOfTheirOwnAndASummary) {
  std::set<std::string> names;
  for (const Offer& offer : shipped_programs()) {
    EXPECT_TRUE(names.insert(offer.name).second) << offer.name << " twice";
    EXPECT_EQ(offer.make({}).name, offer.name);
    EXPECT_NE(offer.summary, "") << offer.name;
  }
}

}  // namespace
}  // namespace holdfast::check

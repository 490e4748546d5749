// The checker finds each of the seeded bugs, says where it is, and does not find its fixed twin to
// fail.
#include <gtest/gtest.h>

#include <fstream>

#include "check/bugs/bugs.hpp"
#include "check/verdicts.hpp"

namespace holdfast::check {
namespace {

// A laptop runs thousands of states a second: what is found within these is found in no time.
constexpr std::uint64_t kStates = 2'000;

struct SeededBug {
  const char* name;  // of its file, too
  Program (*make)(bool fixed);
  CauseKind cause;
  bool nested = false;  // it takes a crash inside recovery
};

void PrintTo(const SeededBug& bug, std::ostream* out) { *out << bug.name; }

constexpr SeededBug kBugs[] = {
    {"missing_fence", test::missing_fence, CauseKind::missing_order},
    {"wrong_order", test::wrong_order, CauseKind::not_atomic},
    {"torn_wide_write", test::torn_wide_write, CauseKind::torn_store},
    {"flag_before_data", test::flag_before_data, CauseKind::not_atomic},
    {"recovery_not_idempotent", test::recovery_not_idempotent, CauseKind::not_idempotent, true},
    {"log_truncated_too_early", test::log_truncated_too_early, CauseKind::missing_order},
    {"leaked_allocation", test::leaked_allocation, CauseKind::not_atomic},
    {"count_before_publish", test::count_before_publish, CauseKind::not_atomic},
    {"count_in_every_turn", test::count_in_every_turn, CauseKind::not_atomic},
    {"stale_offset_after_grow", test::stale_offset_after_grow, CauseKind::not_atomic},
    {"value_of_a_lost_writer", test::value_of_a_lost_writer, CauseKind::barrier_only},
};

// The line of a bug's file that is marked; 0: none is.
unsigned marked_line(const SeededBug& bug, const std::string& mark) {
  const std::string self = __FILE__;
  std::ifstream file(self.substr(0, self.rfind('/')) + "/bugs/" + bug.name + ".cu");
  unsigned number = 1;
  for (std::string line; std::getline(file, line); ++number) {
    if (line.find("BUG: " + mark) != std::string::npos) return number;
  }
  return 0;
}

std::string place_of(const SeededBug& bug, const std::string& mark) {
  return std::string(bug.name) + ".cu:" + std::to_string(marked_line(bug, mark));
}

Report check_small(const Program& program, Model model) {
  Options options;
  options.model = model;
  options.max_states = kStates;
  return check(program, options);
}

class SeededBugsTest : public ::testing::TestWithParam<SeededBug> {};

INSTANTIATE_TEST_SUITE_P(Bugs, SeededBugsTest, ::testing::ValuesIn(kBugs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SeededBugsTest, IsFoundAndPlaced) {
  const SeededBug& bug = GetParam();
  const Report report = check_small(bug.make(false), Model::sbrp);
  ASSERT_EQ(report.verdict, Verdict::failed);
  ASSERT_EQ(report.failures.size(), 1u);
  const Failure& failure = report.failures[0];
  RecordProperty("states", static_cast<int>(report.states));
  std::printf("%s: %llu states: %s\n", bug.name, static_cast<unsigned long long>(report.states),
              failure.message.c_str());
  EXPECT_EQ(failure.cause, bug.cause);
  EXPECT_EQ(failure.nested, bug.nested);
  EXPECT_EQ(to_string(failure.kept.place), place_of(bug, "kept"));
  if (marked_line(bug, "lost") != 0) {
    EXPECT_TRUE(failure.has_pair);
    EXPECT_EQ(to_string(failure.lost.place), place_of(bug, "lost"));
  }
  EXPECT_NE(failure.advice, "");
}

// A patch is suggested where it was tried and found to be enough, and nowhere else.
TEST_P(SeededBugsTest, IsSuggestedAPatchThatMendsIt) {
  const SeededBug& bug = GetParam();
  const Report report = check_small(bug.make(false), Model::sbrp);
  ASSERT_EQ(report.verdict, Verdict::failed);
  const std::string& words = report.failures[0].suggestion;
  const std::string place = place_of(bug, "lost");
  const bool simple = bug.cause == CauseKind::missing_order ||
                      bug.cause == CauseKind::barrier_only ||
                      bug.cause == CauseKind::lost_acknowledged;
  EXPECT_EQ(!words.empty(), simple) << words;
  if (!simple) return;
  EXPECT_NE(words.find("put persist() behind the store at " + place), std::string::npos) << words;
  EXPECT_NE(words.find("all that recovery can tell apart"), std::string::npos) << words;
  Options options;
  options.max_states = kStates;
  options.mutation = {Mutation::Kind::persist, place, Scope::system};
  EXPECT_TRUE(nothing_fails(check(bug.make(false), options)));
}

TEST_P(SeededBugsTest, FailsAgainWhenReplayed) {
  const SeededBug& bug = GetParam();
  for (const Model model : {Model::sbrp, Model::epoch}) {
    const Report found = check_small(bug.make(false), model);
    ASSERT_EQ(found.verdict, Verdict::failed) << to_string(model);
    Options options;
    options.model = model;
    options.replay = found.failures[0].state;
    const Report again = check(bug.make(false), options);
    ASSERT_EQ(again.verdict, Verdict::failed) << options.replay;
    EXPECT_EQ(again.rung, Rung::replay);
    EXPECT_EQ(again.failures[0].message, found.failures[0].message);
  }
}

TEST_P(SeededBugsTest, TheFixedTwinDoesNotFail) {
  const SeededBug& bug = GetParam();
  Options options;
  options.max_states = kStates;
  const Report report = check(bug.make(true), options);
  EXPECT_EQ(report.models.size(), 2u);
  expect_nothing_fails(report);
}

}  // namespace
}  // namespace holdfast::check

// Mutants run changed: what they show, and what is not said of them.
#include <fstream>

#include "check/shipped_program.hpp"
#include "check/verdict_test.hpp"
#include "check/verdicts.hpp"
#include "support/scratch.hpp"

namespace holdfast::check {
namespace {

Program append(std::uint32_t threads) { return shipped_program("append", {threads, 0, 0}); }

const Mutant* find(const std::vector<Mutant>& mutants, Mutation::Kind kind,
                   const std::string& place) {
  for (const Mutant& mutant : mutants) {
    if (mutant.mutation.kind == kind && mutant.mutation.place == place) return &mutant;
  }
  return nullptr;
}

// "file:line" of the n-th line of a file with the words.
std::string line_with(const std::string& path, const std::string& words, unsigned skip = 0) {
  std::ifstream file(std::string(HOLDFAST_REPOSITORY) + "/" + path);
  unsigned number = 1;
  for (std::string line; std::getline(file, line); ++number) {
    if (line.find(words) == std::string::npos || skip-- != 0) continue;
    return path.substr(path.rfind('/') + 1) + ":" + std::to_string(number);
  }
  return "no such line";
}

TEST(MutantsTest, BarriersWaitsAndAcknowledgementsAreChangedToo) {
  const std::vector<Mutant> mutants = check_mutants(append(3));
  const std::string kernels = "examples/checked_append/append.cu";
  const std::string wait =
      line_with("examples/checked_append/programs.cu", "stream.synchronize();");
  const std::pair<Mutation::Kind, std::string> expected[] = {
      {Mutation::Kind::drop, line_with(kernels, "persist();")},
      {Mutation::Kind::drop, line_with(kernels, "__syncthreads();", 1)},
      {Mutation::Kind::drop, wait},
      {Mutation::Kind::early, wait},
  };
  for (const auto& [kind, place] : expected) {
    const Mutant* const mutant = find(mutants, kind, place);
    ASSERT_NE(mutant, nullptr) << to_string(kind) << " " << place;
    EXPECT_EQ(mutant->fate, Mutant::Fate::killed) << to_string(kind) << " " << place;
    EXPECT_EQ(mutant->killer, Mutant::Killer::state) << to_string(kind) << " " << place;
  }
  for (const Mutant& mutant : mutants) {
    EXPECT_EQ(mutant.fate, Mutant::Fate::killed)
        << to_string(mutant.mutation.kind) << " " << mutant.mutation.place;
  }
}

// Threads wait at no barrier that is dropped, so that a count is stored before the records are.
TEST(MutantsTest, ADroppedBarrierIsNotWaitedAt) {
  Options options;
  options.mutation = {Mutation::Kind::drop,
                      line_with("examples/checked_append/append.cu", "__syncthreads();", 1)};
  const Report report = check(append(3), options);
  ASSERT_EQ(report.verdict, Verdict::failed);
  EXPECT_FALSE(report.races.empty());  // of the count, which other threads may still read
  options.replay = report.failures.at(0).state;
  EXPECT_EQ(check(append(3), options).verdict, Verdict::failed);
}

// One thread, all of it explored: ofence() is needed under one of the models.
TEST(MutantsTest, AFenceThatOneModelNeedsIsNeeded) {
  const std::string ofence = line_with("tests/check/verdict_test.cu", "ofence();");
  Options options;
  const std::vector<Mutant> both = check_mutants(test::published_behind_both_fences(), options);
  const Mutant* mutant = find(both, Mutation::Kind::drop, ofence);
  ASSERT_NE(mutant, nullptr);
  EXPECT_EQ(mutant->killer, Mutant::Killer::state);
  EXPECT_EQ(mutant->report.failures.at(0).model, Model::epoch);
  const std::string fence = line_with("tests/check/verdict_test.cu", "__threadfence();");
  mutant = find(both, Mutation::Kind::drop, fence);
  ASSERT_NE(mutant, nullptr);
  EXPECT_EQ(mutant->fate, Mutant::Fate::not_needed);
  EXPECT_EQ(mutant->sizes, std::vector<std::string>{"default"});

  options.model = Model::sbrp;
  const std::vector<Mutant> one = check_mutants(test::published_behind_both_fences(), options);
  mutant = find(one, Mutation::Kind::drop, ofence);
  ASSERT_NE(mutant, nullptr);
  EXPECT_EQ(mutant->fate, Mutant::Fate::not_killed);
}

// The first thread of two: one of several schedules, so that nothing is not needed.
TEST(MutantsTest, NotNeededTakesAllSchedules) {
  for (const Mutant& mutant : check_mutants(test::two_threads())) {
    if (mutant.fate != Mutant::Fate::not_needed) continue;
    EXPECT_EQ(mutant.report.verdict, Verdict::passed) << mutant.mutation.place;
  }
}

void expect_race_kills(const std::vector<Mutant>& mutants, const std::string& place) {
  const Mutant* const mutant = find(mutants, Mutation::Kind::drop, place);
  ASSERT_NE(mutant, nullptr) << place;
  EXPECT_EQ(mutant->fate, Mutant::Fate::killed) << place;
  EXPECT_EQ(mutant->killer, Mutant::Killer::race) << place;
  EXPECT_TRUE(mutant->report.failures.empty()) << place;
  EXPECT_FALSE(mutant->report.races.empty()) << place;
}

TEST(MutantsTest, WhatOnlyVisibilityNeedsIsNeeded) {
  Options options;
  options.max_states = 3'000;
  // No durability fence stands between its blocks, which would order what they see, too.
  const SizedProgram bfs{"2", [] { return shipped_program("bfs_step", {2, 0, 0}); }};
  std::vector<Mutant> mutants = check_mutants({bfs}, options, 1);
  const std::string kernels = "workloads/bfs/bfs.cu";
  for (unsigned i = 0; i < 3; ++i) {
    expect_race_kills(mutants, line_with(kernels, "__threadfence();", i));
  }
}

// Its threads read the tail by a volatile access, behind the lock: no race without the fence, but
// weak memory is not explored.
TEST(MutantsTest, TheLogLocksFencesAreNotCalledUnneeded) {
  const auto log = [](std::uint32_t threads) {
    return SizedProgram{std::to_string(threads), [=] {
                          return shipped_program("undo_log_conventional", {threads, 1, 1});
                        }};
  };
  const std::vector<Mutant> mutants = check_mutants({log(2), log(3)});
  for (const Mutant& mutant : mutants) {
    EXPECT_EQ(mutant.message, "") << to_string(mutant.mutation.kind) << " "
                                  << mutant.mutation.place;
  }
  for (unsigned i = 0; i < 2; ++i) {
    const std::string place = line_with("include/holdfast/undo_log_ref.inl", "__threadfence();", i);
    const Mutant* const mutant = find(mutants, Mutation::Kind::drop, place);
    ASSERT_NE(mutant, nullptr) << place;
    EXPECT_NE(mutant->fate, Mutant::Fate::not_needed) << place;
    EXPECT_EQ(mutant->sizes.size(), 2u);
  }
}

TEST(MutantsTest, AMutationOfNothingIsRefused) {
  Options options;
  options.mutation = {Mutation::Kind::drop, "nowhere.cu:1"};
  EXPECT_EQ(test::error_of([&] { check(append(1), options); }, {"nowhere.cu:1", "append.cu:"}),
            Errc::invalid_argument);
}

}  // namespace
}  // namespace holdfast::check

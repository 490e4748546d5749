// Code written for the artifact's libGPM: a table updated behind a log, killed and recovered, and
// every call that the artifact's applications make.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "holdfast/region.hpp"
#include "libgpm/artifact.hpp"
#include "support/killed_child.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace {

using holdfast::test::Child;
using holdfast::test::from_environment;
using holdfast::test::some_of;

class Artifact : public holdfast::test::Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    ::setenv("HOLDFAST_GPM_FOLDER", path("").c_str(), 1);
    ::setenv("HOLDFAST_ARENA_DIR", arenas().c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("HOLDFAST_GPM_FOLDER");
    ::unsetenv("HOLDFAST_ARENA_DIR");
    Scratch::TearDown();
  }
};

TEST(ArtifactChild, DISABLED_UpdatesUntilKilled) {
  artifact::make_and_update(static_cast<unsigned>(std::stoi(from_environment("HOLDFAST_UPDATES"))),
                            std::stoi(from_environment("HOLDFAST_ROWS")));
  ::raise(SIGKILL);
}

TEST_F(Artifact, AnUpdateThatWasCutOffIsTakenBack) {
  std::mt19937_64 random(holdfast::test::test_seed());
  for (const int rows :
       {0, 1, static_cast<int>(random() % artifact::kRows), artifact::kRows - 1, artifact::kRows}) {
    std::filesystem::remove_all(path("life"));
    std::filesystem::create_directory(path("life"));
    ::setenv("HOLDFAST_GPM_FOLDER", path("life").c_str(), 1);
    const unsigned updates = 1 + random() % 3;
    {
      Child child("ArtifactChild.DISABLED_UpdatesUntilKilled",
                  {{"HOLDFAST_UPDATES", std::to_string(updates)},
                   {"HOLDFAST_ROWS", std::to_string(rows)},
                   {"HOLDFAST_GPM_FOLDER", path("life")},
                   {"HOLDFAST_ARENA_DIR", arenas()}});
      int nothing = 0;
      EXPECT_FALSE(child.read(nothing));
    }
    ::setenv("HOLDFAST_GPM_FOLDER", path("life").c_str(), 1);
    ::setenv("HOLDFAST_ARENA_DIR", arenas().c_str(), 1);
    auto found = artifact::recover();
    EXPECT_EQ(found.back(), updates) << rows;
    found.pop_back();
    EXPECT_EQ(found, artifact::table_after(rows == artifact::kRows ? updates : updates - 1))
        << rows << " rows of update " << updates;
    // Recovered, it is as if nothing had been under way.
    found = artifact::recover();
    found.pop_back();
    EXPECT_EQ(found, artifact::table_after(rows == artifact::kRows ? updates : updates - 1));
  }
}

TEST_F(Artifact, EveryOtherCallDoesWhatTheArtifactsDoes) {
  EXPECT_EQ(artifact::use_everything_else(), "");
}

TEST_F(Artifact, WhatCannotBeIsSaidAndReturned) {
  ASSERT_EQ(artifact::use_everything_else(), "");
  ::testing::internal::CaptureStderr();
  const artifact::Answers answers = artifact::failures();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(answers.map_missing && answers.map_length && answers.map_other_size);
  EXPECT_TRUE(answers.log_over_table && answers.open_table_as_log);
  EXPECT_EQ(answers.register_past_end, -1);
  EXPECT_EQ(answers.checkpoint_nothing, -1);
  EXPECT_EQ(answers.log_bad_partition, -1);
  EXPECT_EQ(answers.log_unnamed_partition, -1);
  EXPECT_EQ(answers.log_full, 0);
  EXPECT_NE(answers.copy_outside, 0);
  EXPECT_NE(answers.copy_null, 0);
  EXPECT_EQ(answers.log_long, -1);
  EXPECT_TRUE(answers.map_too_large && answers.log_shape && answers.log_open);
  EXPECT_FALSE(std::filesystem::exists(path("huge")));
  EXPECT_TRUE(answers.checkpoint_over_table);
  EXPECT_EQ(answers.checkpoint_groups, -1);
  EXPECT_FALSE(answers.open_again);
  for (const char* const words :
       {"nowhere", "give a length of 0", "remove it first", "is there and no log", "no group 1",
        "gpm_memcpy", "the source is null", "is open in this process", "is there and no checkpoint",
        "1 to 500 groups"}) {
    EXPECT_NE(said.find(words), said.npos) << words << "\n" << said;
  }
  // Nothing of what was refused has changed what is there.
  EXPECT_EQ(artifact::use_everything_else(), "");
}

TEST_F(Artifact, AForkedChildIsToldThatItMayNot) { EXPECT_TRUE(artifact::child_calls_come_back()); }

TEST(ArtifactChild, DISABLED_CreatesUntilKilled) {
  for (int i = 0;; ++i) {
    holdfast::test::report(i);
    if (artifact::create_each() != "") ::raise(SIGABRT);
    for (const auto& entry :
         std::filesystem::directory_iterator(from_environment("HOLDFAST_GPM_FOLDER"))) {
      holdfast::Region::destroy(entry.path());
    }
  }
}

#if defined(HOLDFAST_BACKEND_CUDA)
constexpr std::uint64_t kRounds = 5;  // a child makes a context
#else
constexpr std::uint64_t kRounds = 60;
#endif

// Wherever a creation was cut off, the same calls make all of it.
TEST_F(Artifact, WhatAKilledCreationLeavesIsMadeAnew) {
  std::mt19937_64 random(holdfast::test::test_seed());
  for (std::uint64_t round = 0; round < some_of(kRounds, 5); ++round) {
    const std::string folder = path("made");
    std::filesystem::create_directory(folder);
    (void)holdfast::test::told_until_killed<int>("ArtifactChild.DISABLED_CreatesUntilKilled",
                                                 arenas(), {{"HOLDFAST_GPM_FOLDER", folder}},
                                                 random);
    ASSERT_FALSE(HasFailure());
    ::setenv("HOLDFAST_GPM_FOLDER", folder.c_str(), 1);
    ASSERT_EQ(artifact::create_each(), "") << round;
    std::filesystem::remove_all(folder);
    std::filesystem::remove_all(arenas());
    std::filesystem::create_directory(arenas());
  }
}

}  // namespace

#include "holdfast/compat/veloc.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/process.hpp"
#include "support/scratch.hpp"
#include "veloc/listing1.hpp"

namespace {

class VelocTest : public ::testing::Test {
 protected:
  ~VelocTest() override { VELOC_Finalize(1); }  // a test that failed may have left one
  std::string config(const std::string& more) {
    const std::string path = scratch_.path("veloc.cfg");
    std::ofstream(path) << "# of a test\nscratch = " << scratch_.path("") << "\nmode = async\n"
                        << more;
    return path;
  }
  holdfast::test::ScratchFolders scratch_;
};

TEST_F(VelocTest, Listing1ReadsBackWhatItWrote) {
  EXPECT_EQ(listing1::run(config("gpu_cache = 64K\nhost_cache = 128K\n").c_str(), 60), 0);
}

TEST_F(VelocTest, Listing1NeedsNoCache) { EXPECT_EQ(listing1::run(config("").c_str(), 12), 0); }

TEST_F(VelocTest, VelocsOwnFormsFindTheNewestInAnotherLife) {
  std::vector<double> field(1000);
  const std::string file = config("host_cache = 1M\nmax_versions = 3\n");
  ASSERT_EQ(VELOC_Init_single(7, file.c_str()), VELOC_SUCCESS);
  EXPECT_EQ(VELOC_Restart_test("run", VELOC_RECOVER_ALL), VELOC_FAILURE);
  ASSERT_EQ(VELOC_Mem_protect(0, field.data(), field.size(), sizeof(double)), VELOC_SUCCESS);
  for (int version = 1; version <= 9; ++version) {
    for (double& value : field) value = version;
    ASSERT_EQ(VELOC_Checkpoint("run", version), VELOC_SUCCESS);
    ASSERT_EQ(VELOC_Checkpoint_wait(), VELOC_SUCCESS);
  }
  EXPECT_EQ(VELOC_Checkpoint("run", 9), VELOC_FAILURE);  // it is there
  ASSERT_EQ(VELOC_Checkpoint("other", 50), VELOC_SUCCESS);
  ASSERT_EQ(VELOC_Finalize(1), VELOC_SUCCESS);

  ASSERT_EQ(VELOC_Init_single(7, file.c_str()), VELOC_SUCCESS);
  EXPECT_EQ(VELOC_Restart_test("run", VELOC_RECOVER_ALL), 9);
  EXPECT_EQ(VELOC_Restart_test("run", 9), 8);
  EXPECT_EQ(VELOC_Recover_size(0), 8000);
  EXPECT_EQ(VELOC_Restart_test("run", 7), VELOC_FAILURE);  // the last three stay
  EXPECT_EQ(VELOC_Restart_test("other", VELOC_RECOVER_ALL), 50);
  EXPECT_EQ(VELOC_Restart("run", 8), VELOC_FAILURE);  // nothing is protected
  ASSERT_EQ(VELOC_Mem_protect(0, field.data(), field.size(), sizeof(double)), VELOC_SUCCESS);
  ASSERT_EQ(VELOC_Restart("run", 8), VELOC_SUCCESS);
  EXPECT_EQ(field, std::vector<double>(1000, 8.0));
  EXPECT_EQ(VELOC_Restart("run", 50), VELOC_FAILURE);
  // Of what was restored last, whatever is saved meanwhile.
  ASSERT_EQ(VELOC_Checkpoint("third", 0), VELOC_SUCCESS);
  EXPECT_EQ(VELOC_Recover_size(0), 8000);
  EXPECT_EQ(VELOC_Recover_size(8, 0), -1);  // of the third
  EXPECT_EQ(VELOC_Recover_size(0, 0), 8000);
  ASSERT_EQ(VELOC_Finalize(1), VELOC_SUCCESS);
}

std::vector<double> saved_field() { return std::vector<double>(1000, 4.5); }

TEST(VelocChild, DISABLED_EndsWithoutFinalize) {
  static std::vector<double> field = saved_field();
  const auto file = holdfast::test::from_environment("HOLDFAST_TEST_CONFIG");
  ASSERT_EQ(VELOC_Init_single(3, file.c_str()), VELOC_SUCCESS);
  ASSERT_EQ(VELOC_Mem_protect(0, field.data(), field.size(), sizeof(double)), VELOC_SUCCESS);
  ASSERT_EQ(VELOC_Checkpoint("run", 1), VELOC_SUCCESS);
}

TEST_F(VelocTest, AProgramThatEndsWithoutFinalizeEndsAsWithIt) {
  for (const char* const caches : {"", "host_cache = 1M\n", "gpu_cache = 1M\nhost_cache = 1M\n"}) {
    SCOPED_TRACE(caches);
    const std::string file = config(caches);
    {
      holdfast::test::Child child("VelocChild.DISABLED_EndsWithoutFinalize",
                                  {{"HOLDFAST_TEST_CONFIG", file}});
      ASSERT_EQ(child.wait(), 0);
    }
    std::vector<double> field(1000);
    ASSERT_EQ(VELOC_Init_single(3, file.c_str()), VELOC_SUCCESS);
    ASSERT_EQ(VELOC_Mem_protect(0, field.data(), field.size(), sizeof(double)), VELOC_SUCCESS);
    EXPECT_EQ(VELOC_Restart("run", 1), VELOC_SUCCESS);
    EXPECT_EQ(field, saved_field());
    ASSERT_EQ(VELOC_Finalize(1), VELOC_SUCCESS);
    std::filesystem::remove_all(scratch_.path("veloc-3"));
  }
}

TEST_F(VelocTest, NumbersOfTheConfigurationAreRead) {
  for (const char* const wrong :
       {"gpu_cache = 12Q\n", "host_cache = 4GX\n", "host_cache = -1\n", "max_versions = 3x\n",
        "max_versions = 1K\n", "max_versions = -1\n", "max_versions =\n"}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(VELOC_Init_single(7, config(wrong).c_str()), VELOC_FAILURE) << wrong;
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("give"), said.npos) << wrong << said;
  }
  for (const char* const right :
       {"gpu_cache = 12k\n", "host_cache = 1MiB\n", "max_versions = 0\n"}) {
    EXPECT_EQ(VELOC_Init_single(7, config(right).c_str()), VELOC_SUCCESS) << right;
    ASSERT_EQ(VELOC_Finalize(1), VELOC_SUCCESS);
  }
}

TEST_F(VelocTest, WhatIsNotThereIsNamed) {
  ASSERT_EQ(VELOC_Init_single(7, config("").c_str()), VELOC_SUCCESS);
  int word = 0;
  ASSERT_EQ(VELOC_Mem_protect(0, &word, 1, sizeof word), VELOC_SUCCESS);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(VELOC_Restart("run", 12), VELOC_FAILURE);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("no version 12 of 'run'"), said.npos) << said;
}

TEST_F(VelocTest, WhatCannotBeIsAFailureAndSaysWhy) {
  const auto says = [](auto&& call, const char* word) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(call(), VELOC_FAILURE);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(word), std::string::npos) << said;
  };
  says([] { return VELOC_Checkpoint("run", 1); }, "VELOC_Init");
  says([] { return VELOC_Finalize(0); }, "VELOC_Init");
  says([] { return VELOC_Init_single(0, nullptr); }, "configuration");
  says([] { return VELOC_Init_single(0, "/no/such/file"); }, "/no/such/file");
  const std::string bad = config("gpu_cache = much\n");
  says([&] { return VELOC_Init_single(0, bad.c_str()); }, "gpu_cache");
  const std::string file = config("");
  ASSERT_EQ(VELOC_Init_single(0, file.c_str()), VELOC_SUCCESS);
  says([&] { return VELOC_Init_single(0, file.c_str()); }, "VELOC_Finalize");
  says([] { return VELOC_Checkpoint("run", 1); }, "protect");
  says([] { return VELOC_Checkpoint("", 1); }, "name");
  says([] { return VELOC_Checkpoint(nullptr, 1); }, "name");
  says([] { return VELOC_Checkpoint("run", -1); }, "versions");
  says([] { return VELOC_Restart("run", 3); }, "3");
  says([] { return VELOC_Mem_protect(1, nullptr, 10, 1); }, "nothing");
  EXPECT_EQ(VELOC_Recover_size(3, 1), -1);
}

}  // namespace

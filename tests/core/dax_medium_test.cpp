#include "core/dax_medium.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/directory.hpp"
#include "support/error_of.hpp"
#include "support/still_fork.hpp"

namespace holdfast::core {
namespace {

namespace fs = std::filesystem;
using test::error_of;

constexpr std::uint64_t kSize = 64 * kPage;

class DaxMediumTest : public ::testing::Test {
 protected:
  DaxMediumTest() {
    ::setenv("HOLDFAST_DAX_PLAIN_FILE", "1", 1);
    // A GPU cannot pin a file on disk, and so not one that stands for a device.
    const bool cuda = std::string_view(holdfast::backend::name()) == "cuda";
    const fs::path where = cuda ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string form = (where / "holdfast-medium-XXXXXX").string();
    folder = ::mkdtemp(form.data());
    path = folder + "/region";
  }
  ~DaxMediumTest() override {
    ::unsetenv("HOLDFAST_DAX_PLAIN_FILE");
    std::error_code error;
    fs::remove_all(folder, error);
  }
  static Directory::Flush flush_of(Medium& medium) {
    return [&medium](const void* address, std::size_t bytes) { medium.flush(address, bytes); };
  }
  std::unique_ptr<Medium> make() {
    auto medium = make_dax_medium(path, true, kSize);
    Directory::format(medium->metadata(), Uuid{1}, kSize, flush_of(*medium));
    return medium;
  }
  std::unique_ptr<Medium> open() { return make_dax_medium(path, false, 0); }

  std::string folder, path;
};

TEST_F(DaxMediumTest, HasANameOnceItIsARegion) {
  {
    const auto unfinished = make_dax_medium(path, true, kSize);
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_TRUE(fs::is_empty(folder));
  const auto medium = make();
  EXPECT_TRUE(is_dax_region(path));
  EXPECT_EQ(medium->size(), kSize);
  EXPECT_EQ(medium->max_size(), 4 * kSize);
  EXPECT_EQ(make_dax_medium(folder + "/b", true, kSize, 2 * kSize)->max_size(), 2 * kSize);
  EXPECT_EQ(error_of([&] { make(); }), Errc::already_exists);
}

TEST_F(DaxMediumTest, KillLosesNothing) {
  // A GPU's context does not survive the fork below.
  if (std::string_view(holdfast::backend::name()) == "cuda") GTEST_SKIP();
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    static const auto medium = make();
    std::memset(medium->base() + kMetadataBytes, 'k', kPage);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto medium = open();
  EXPECT_EQ(medium->size(), kSize);
  EXPECT_EQ(static_cast<char>(medium->base()[kMetadataBytes + kPage - 1]), 'k');
  const Directory directory =
      Directory::load(medium->metadata(), medium->size(), path, flush_of(*medium));
  EXPECT_EQ(directory.uuid(), Uuid{1});
}

TEST_F(DaxMediumTest, OneProcessAtATime) {
  const auto medium = make();
  EXPECT_EQ(error_of([&] { open(); }), Errc::in_use);
  EXPECT_EQ(error_of([&] { destroy_dax_region(path); }), Errc::in_use);
}

TEST_F(DaxMediumTest, GrowsWithZeroes) {
  auto medium = make();
  Directory directory =
      Directory::load(medium->metadata(), medium->size(), path, flush_of(*medium));
  const std::byte* base = medium->base();
  medium->grow(2 * kSize);
  EXPECT_EQ(medium->base(), base);
  EXPECT_EQ(medium->size(), 2 * kSize);
  std::memset(medium->base() + kSize, 'g', kSize);
  medium.reset();

  // The directory does not know of the growth yet, as after a kill in between.
  medium = open();
  EXPECT_EQ(medium->size(), kSize);
  medium->grow(2 * kSize);
  EXPECT_EQ(medium->base()[kSize], std::byte{0});
  EXPECT_EQ(medium->base()[2 * kSize - 1], std::byte{0});
  EXPECT_EQ(error_of([&] { medium->grow(64 * kSize); }), Errc::invalid_argument);
}

TEST_F(DaxMediumTest, GuaranteeOfAPlainFileIsTheProcess) {
  const Guarantee guarantee = make()->guarantee();
  EXPECT_EQ(guarantee.persist, Rung::process);
  EXPECT_EQ(guarantee.commit, Rung::process);
  EXPECT_NE(guarantee.reason.find("ordinary file"), std::string::npos);
}

TEST_F(DaxMediumTest, ForeignDamagedAndTruncated) {
  std::ofstream(path, std::ios::binary) << std::string(kSize, 'x');
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_FALSE(is_dax_region(path));
  EXPECT_EQ(error_of([&] { open(); }), Errc::foreign);
  EXPECT_EQ(error_of([&] { destroy_dax_region(path); }), Errc::foreign);
  EXPECT_TRUE(fs::exists(path));
  fs::remove(path);

  make();
  fs::resize_file(path, kSize - kPage);
  EXPECT_EQ(error_of([&] { open(); }), Errc::damaged);
  fs::resize_file(path, kPage);
  EXPECT_EQ(error_of([&] { open(); }), Errc::damaged);
  EXPECT_EQ(fs::file_size(path), kPage) << "a refused file was written to";
}

TEST_F(DaxMediumTest, Destroy) {
  make();
  destroy_dax_region(path);
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(error_of([&] { destroy_dax_region(path); }), Errc::not_found);
}

TEST_F(DaxMediumTest, IsDaxRegion) {
  EXPECT_FALSE(is_dax_region(folder));
  EXPECT_FALSE(is_dax_region(folder + "/none"));
  EXPECT_TRUE(is_dax_region("/dev/null")) << "any character device; opening it says what it is";
  make();
  fs::create_symlink(path, folder + "/link");
  EXPECT_FALSE(is_dax_region(folder + "/link"));
}

}  // namespace
}  // namespace holdfast::core

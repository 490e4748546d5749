// What surrounds a region: other users, odd paths, full disks, full shared memory, limits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "core/files.hpp"
#include "core/format.hpp"
#include "holdfast/region.hpp"
#include "support/in_child.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::in_child;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class RegionFilesTest : public test::Scratch {
 protected:
  void make(const std::string& where) {
    Region region = Region::create(where, options(kMiB));
    region.allocate<int>("data", 10)[1] = 1;
    region.close();
  }
};

TEST_F(RegionFilesTest, OddPathsAreRefusedAndNeverBlock) {
  make(path());
  ASSERT_EQ(::symlink(path().c_str(), path("link").c_str()), 0);
  EXPECT_EQ(error_of([&] { Region::open(path("link")); }, {path("link"), "symbolic link"}),
            Errc::permission);
  EXPECT_EQ(error_of([&] { Region::create(path("link"), options(kMiB)); }), Errc::already_exists);
  ASSERT_EQ(::symlink(path("nowhere").c_str(), path("dangling").c_str()), 0);
  EXPECT_EQ(error_of([&] { Region::create(path("dangling"), options(kMiB)); }),
            Errc::already_exists);
  EXPECT_FALSE(std::filesystem::exists(path("nowhere")));
  EXPECT_EQ(error_of([&] { Region::open(folder()); }, {folder(), "folder"}),
            Errc::invalid_argument);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { Region::open(path("pipe")); }, {path("pipe"), "pipe"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Region::open("/dev/null"); }, {"/dev/null"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Region::open(""); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Region::create(folder() + "/", options(kMiB)); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Region::create(path(std::string(300, 'x')), options(kMiB)); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Region::open(path("a/b")); }), Errc::not_found);
}

TEST_F(RegionFilesTest, FilesAreMadeForTheirOwnerOnly) {
  const mode_t before = ::umask(0);
  Region region = Region::create(path(), options(kMiB));
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(only_file(arenas()).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(RegionFilesTest, FilesThatOthersMayWriteAreRefused) {
  make(path());
  for (const mode_t mode : {0620u, 0602u, 0666u}) {
    ::chmod(path().c_str(), mode);
    EXPECT_EQ(error_of([&] { Region::open(path()); }, {path(), "chmod"}), Errc::permission);
  }
  ::chmod(path().c_str(), 0644);
  Region region = Region::open(path());
  region.abandon();
  const std::string arena = only_file(arenas());
  ::chmod(arena.c_str(), 0666);
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {arena, "chmod"}), Errc::permission);
}

TEST_F(RegionFilesTest, AnotherUsersFilesAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  make(path());
  ASSERT_EQ(::chown(path().c_str(), 12345, 12345), 0);
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {path(), "12345", "chown"}), Errc::permission);
  EXPECT_EQ(error_of([&] { Region::destroy(path()); }), Errc::permission);
  ASSERT_EQ(::chown(path().c_str(), 0, 0), 0);
  // A planted arena: another user makes a file of the name that ours would have.
  Region region = Region::open(path());
  region.abandon();
  const std::string arena = only_file(arenas());
  ASSERT_EQ(::chown(arena.c_str(), 12345, 12345), 0);
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {arena, "12345"}), Errc::permission);
  std::filesystem::remove(arena);
  ASSERT_EQ(::symlink("/etc/hostname", arena.c_str()), 0);
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {arena, "symbolic link"}), Errc::permission);
}

// Runs `body` in a child as another user, since root may do anything.
TEST_F(RegionFilesTest, ReadOnlyFilesAreRefusedWithTheRemedy) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  ::chmod(folder().c_str(), 0777);
  ::chmod(arenas().c_str(), 0777);
  make(path());
  ASSERT_EQ(::chown(path().c_str(), 12345, 12345), 0);
  ASSERT_EQ(::chmod(path().c_str(), 0400), 0);
  ASSERT_EQ(::seteuid(12345), 0);
  const Errc read_only = error_of([&] { Region::open(path()); }, {path(), "mode"});
  const Errc closed_folder = error_of([&] { Region::create("/usr/region", options(kMiB)); });
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(read_only, Errc::permission);
  EXPECT_EQ(closed_folder, Errc::permission);
}

// A file system of a few pages, gone afterwards.
class SmallDisk {
 public:
  SmallDisk(const std::string& where, std::uint64_t bytes) : where_(where) {
    std::filesystem::create_directory(where);
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = ::mount("tmpfs", where.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(where_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string where_;
  bool mounted_ = false;
};

TEST_F(RegionFilesTest, AFullDiskKeepsTheOldCommitAndTheRegion) {
  const SmallDisk disk(path("disk"), 3 * kMiB);
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  const std::string where = path("disk") + "/region";
  {
    Region region = Region::create(where, options(4 * kMiB));
    auto data = region.allocate<std::uint8_t>("data", 3 * kMiB + 512 * 1024);
    std::memset(data.data(), 1, kMiB);
    region.commit();
    std::memset(data.data(), 2, data.size());
    EXPECT_EQ(error_of([&] { region.commit(); }, {where, "free space"}), Errc::no_space);
    EXPECT_EQ(region.generation(), 1u);
    Stream stream;
    Commit asynchronous = region.commit(stream);
    EXPECT_EQ(error_of([&] { asynchronous.wait(); }, {where}), Errc::no_space);
    EXPECT_TRUE(asynchronous.done());
    EXPECT_EQ(error_of([&] { region.close(); }, {where}), Errc::no_space);
    EXPECT_EQ(data[kMiB], 2) << "the region stays usable";
    std::memset(data.data() + kMiB / 2, 0, data.size() - kMiB / 2);
    region.close();
  }
  Region region = Region::open(where);
  auto data = region.find<std::uint8_t>("data");
  EXPECT_EQ(data[0], 2);
  EXPECT_EQ(data[kMiB / 2 - 1], 2);
  EXPECT_EQ(data[kMiB / 2], 0);
  region.close();
  Region::destroy(where);
  EXPECT_EQ(error_of([&] {
              test::write_file(path("disk") + "/filler", std::vector<char>(4 * kMiB, 'x'));
              Region::create(where, options(kMiB));
            }),
            Errc::no_space);
  EXPECT_FALSE(std::filesystem::exists(where));
  EXPECT_TRUE(is_empty(arenas()));
}

TEST_F(RegionFilesTest, FullSharedMemoryIsAnErrorThatNamesTheWayOut) {
  const SmallDisk disk(path("memory"), 2 * kMiB);
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  RegionOptions wanted = options(4 * kMiB);
  wanted.arena_folder = path("memory");
  EXPECT_EQ(error_of([&] { Region::create(path(), wanted); },
                     {path("memory"), "4.0 MiB", "2.0 MiB", "HOLDFAST_ARENA_DIR"}),
            Errc::no_shared_memory);
  EXPECT_FALSE(std::filesystem::exists(path()));

  wanted.size = kMiB;
  Region region = Region::create(path(), wanted);
  EXPECT_EQ(error_of([&] { region.grow(3 * kMiB); }), Errc::no_shared_memory);
  EXPECT_EQ(region.size(), kMiB);
  region.allocate<std::uint8_t>("data", 512 * 1024)[5] = 5;
  region.close();

  Region::create(path("large"), options(4 * kMiB)).close();
  OpenOptions small;
  small.arena_folder = path("memory");
  EXPECT_EQ(error_of([&] { Region::open(path("large"), small); }), Errc::no_shared_memory);
  EXPECT_TRUE(is_empty(path("memory")));
}

TEST_F(RegionFilesTest, AFileSizeLimitIsAnErrorAndNoSignal) {
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  struct rlimit small = before;
  Region region = Region::create(path(), options(kMiB));
  region.allocate<std::uint8_t>("data", 1000)[5] = 5;
  small.rlim_cur = kMiB;
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Errc commit = error_of([&] { region.commit(); }, {path(), "ulimit -f"});
  const Errc grow = error_of([&] { region.grow(2 * kMiB); }, {"ulimit -f"});
  const Errc create = error_of([&] { Region::create(path("other"), options(kMiB)); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(commit, Errc::no_space);
  EXPECT_EQ(grow, Errc::no_space);
  EXPECT_EQ(create, Errc::no_space);
  region.commit();
}

TEST_F(RegionFilesTest, WorksWithoutUnnamedTemporaries) {
  core::NewFile::use_named_temporaries = true;
  // What a maker that died left behind, and what one that lives is making.
  const std::string dead = folder() + "/.x.1.2.holdfast-tmp";
  const std::string live = folder() + "/.y.1.2.holdfast-tmp";
  test::write_file(dead, {'x'});
  test::write_file(live, {'x'});
  core::UniqueFd held(::open(live.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  make(path());
  core::NewFile::use_named_temporaries = false;
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(live));
  EXPECT_TRUE(is_empty(arenas()));
  Region region = Region::open(path());
  EXPECT_EQ(region.find<int>("data")[1], 1);
  EXPECT_EQ(error_of([&] { Region::create(path(), options(kMiB)); }), Errc::already_exists);
}

// A copy has the same uuid as its original, so both would use one arena.
TEST_F(RegionFilesTest, ACopyAndItsOriginalDoNotShareAnArena) {
  make(path());
  std::filesystem::copy_file(path(), path("copy"));
  Region original = Region::open(path());
  EXPECT_EQ(error_of([&] { Region::open(path("copy")); }, {"in use"}), Errc::in_use);
  original.close();
  Region copy = Region::open(path("copy"));
  EXPECT_EQ(copy.find<int>("data")[1], 1);
}

// What a crash left of the original is nowhere else.
TEST_F(RegionFilesTest, RemovingACopyLeavesTheOriginalWhatACrashLeft) {
  make(path());
  std::filesystem::copy_file(path(), path("copy"));
  {
    Region region = Region::open(path());
    region.find<int>("data")[1] = 2;
    region.abandon();
  }
  Region::destroy(path("copy"));
  EXPECT_FALSE(std::filesystem::exists(path("copy")));
  {
    Region region = Region::open(path());
    EXPECT_EQ(region.find<int>("data")[1], 2);
    region.abandon();
  }
  Region::destroy(path());
  EXPECT_TRUE(is_empty(arenas()));
}

// Of the working folder too: it is the one of when the region was opened.
TEST_F(RegionFilesTest, AnArenaFolderIsMeantFromWhereItWasNamed) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder());
  std::filesystem::create_directory("near");
  RegionOptions with = options(kMiB);
  with.arena_folder = "near";
  with.max_size = 2 * kMiB;
  Region region = Region::create(path(), with);
  EXPECT_FALSE(is_empty(path("near")));
  std::filesystem::current_path("/");
  EXPECT_NO_THROW(region.grow(2 * kMiB));
  region.close();
  std::filesystem::current_path(before);
  EXPECT_TRUE(is_empty(path("near")));
}

// What a daemon, or a library, prints on streams that it has closed.
TEST_F(RegionFilesTest, WithoutStandardStreamsNoFileTakesTheirNumbers) {
  EXPECT_EQ(in_child([&] {
              for (const int number : {0, 1, 2}) ::close(number);
              Region region = Region::create(path(), options(kMiB));
              region.allocate<int>("data", 10)[1] = 7;
              const char text[] = "what somebody prints";
              for (const int number : {0, 1, 2}) {
                if (::write(number, text, sizeof text) >= 0) throw std::runtime_error(text);
              }
              region.abandon();
            }),
            0);
  EXPECT_EQ(Region::open(path()).find<int>("data")[1], 7);
}

TEST_F(RegionFilesTest, AMovedRegionOpens) {
  make(path());
  {
    Region region = Region::open(path());
    region.find<int>("data")[1] = 2;
    region.abandon();
  }
  std::filesystem::rename(path(), path("elsewhere"));
  Region region = Region::open(path("elsewhere"));
  EXPECT_TRUE(region.open_report().arena_found);
  EXPECT_EQ(region.find<int>("data")[1], 2);
}

TEST_F(RegionFilesTest, ClosingWithoutChangesLeavesTheFileAlone) {
  make(path());
  // The notes say who has it.
  const auto without_notes = [&] {
    std::vector<char> bytes = test::read_file(path());
    for (const std::uint64_t offset : core::kNoteOffset) {
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), kPageBytes, 0);
    }
    return bytes;
  };
  const std::vector<char> before = without_notes();
  Region::open(path()).close();
  EXPECT_EQ(without_notes(), before);
}

}  // namespace
}  // namespace holdfast

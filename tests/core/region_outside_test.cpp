// What happens to a region's files from outside while it is open, and from others who write.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/checksum.hpp"
#include "core/image.hpp"
#include "core/uuid.hpp"
#include "holdfast/backup.hpp"
#include "holdfast/region.hpp"
#include "support/image_file.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class RegionOutsideTest : public test::Scratch {
 protected:
  Region make() {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 1000)[0] = 1;
    region.commit();
    region.find<int>("data")[0] = 2;
    return region;
  }
  // What was persisted is not lost: a backup of the arena has it.
  void expect_rescue() {
    const BackupReport report = backup(only_file(arenas()), path("rescued"));
    EXPECT_TRUE(report.arena_found);
    Region region = Region::open(path("rescued"));
    EXPECT_EQ(region.find<int>("data")[0], 2);
    region.close();
  }
  void refuses_to_commit(Region& region, const char* word, Errc code) {
    const std::string arena = only_file(arenas());
    EXPECT_EQ(region.guarantee().commit, Rung::none) << region.guarantee().reason;
    EXPECT_EQ(error_of([&] { region.commit(); }, {path(), word, arena}), code);
    EXPECT_EQ(error_of([&] { region.close(); }, {path(), word, arena}), code);
    EXPECT_TRUE(std::filesystem::exists(arena)) << "the only copy";
    region.abandon();
    expect_rescue();
  }
};

TEST_F(RegionOutsideTest, ARemovedImageIsNoticed) {
  Region region = make();
  EXPECT_EQ(region.guarantee().commit, Rung::power);
  std::filesystem::remove(path());
  refuses_to_commit(region, "removed", Errc::not_found);
}

TEST_F(RegionOutsideTest, AnImageThatAnotherFileReplacesIsNoticed) {
  Region region = make();
  test::write_file(path("other"), {'x'});
  std::filesystem::rename(path("other"), path());
  refuses_to_commit(region, "replaced", Errc::not_found);
}

TEST_F(RegionOutsideTest, AnImageThatIsCutIsNoticed) {
  Region region = make();
  std::filesystem::resize_file(path(), 8192);
  refuses_to_commit(region, "cut", Errc::damaged);
}

TEST_F(RegionOutsideTest, ARenamedImageIsNotLost) {
  Region region = make();
  std::filesystem::rename(path(), path("elsewhere"));
  region.close();
  EXPECT_EQ(Region::open(path("elsewhere")).find<int>("data")[0], 2);
}

TEST_F(RegionOutsideTest, ARemovedArenaIsNoticed) {
  Region region = make();
  EXPECT_EQ(region.guarantee().persist, Rung::process);
  std::filesystem::remove(only_file(arenas()));
  EXPECT_EQ(region.guarantee().persist, Rung::none);
  EXPECT_NE(region.guarantee().reason.find("RemoveIPC"), std::string::npos);
  region.close();  // all is committed
  EXPECT_EQ(Region::open(path()).find<int>("data")[0], 2);
}

// Another writer, whom no lock kept out.
TEST_F(RegionOutsideTest, AnothersCommitIsNotOverwritten) {
  Region region = make();
  {
    core::UniqueFd fd(::open(path().c_str(), O_RDWR | O_CLOEXEC));
    core::Image image = core::Image::open(core::make_file_store(std::move(fd), path()));
    image.is_durable();
    core::ChangeSet none;
    none.region_bytes = image.region_bytes();
    image.settle();
    image.write(std::move(none), core::new_uuid());
  }
  const auto before = test::read_file(path());
  EXPECT_EQ(error_of([&] { region.commit(); }, {path(), "another process"}), Errc::in_use);
  EXPECT_EQ(error_of([&] { region.close(); }, {path(), "another process"}), Errc::in_use);
  EXPECT_EQ(test::read_file(path()), before) << "nothing was written";
  region.abandon();
}

TEST(LockChild, DISABLED_OpensWithoutLocks) {
  const std::string path = test::from_environment("HOLDFAST_TEST_REGION");
  int code = -1;
  try {
    Region::open(path).abandon();
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
  }
  test::report(code);
  try {
    RegionOptions options;
    options.size = kMiB;
    code = -1;
    Region::create(path + "2", options).abandon();
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
  }
  test::report(code);
}

// A file system whose locks do nothing: flock() says yes to everyone.
TEST_F(RegionOutsideTest, LocksThatDoNothingAreRefused) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's runtime must be the first library";
#else
  make().close();
  test::Child child("LockChild.DISABLED_OpensWithoutLocks",
                    {{"HOLDFAST_TEST_REGION", path()},
                     {"HOLDFAST_ARENA_DIR", arenas()},
                     {"LD_PRELOAD", HOLDFAST_TEST_NO_LOCKS}});
  ::setenv("HOLDFAST_ARENA_DIR", arenas().c_str(), 1);
  int opened = 0, created = 0;
  ASSERT_TRUE(child.read(opened));
  ASSERT_TRUE(child.read(created));
  EXPECT_EQ(static_cast<Errc>(opened), Errc::unsupported);
  EXPECT_EQ(static_cast<Errc>(created), Errc::unsupported);
  child.wait();
  EXPECT_FALSE(std::filesystem::exists(path() + "2"));
  EXPECT_TRUE(is_empty(arenas()));
#endif
}

// Two pages with one hash, for who knows the hash's key: in a lane of XXH3 whose low half meets
// zero, the high half is multiplied away, and words of two stripes may trade what they add.
struct Collision {
  alignas(8) std::uint8_t first[kPageBytes];
  alignas(8) std::uint8_t second[kPageBytes];
};
Collision collide() {
  Collision pages;
  for (unsigned i = 0; i < kPageBytes; ++i) pages.first[i] = static_cast<std::uint8_t>(i * 7 + 1);
  for (unsigned stripe = 0; stripe < 2; ++stripe) {
    std::uint64_t key, word;
    std::memcpy(&key, XXH3_kSecret + 8 * stripe, 8);
    word = (key & 0xffffffffu) | (std::uint64_t{1000 + stripe} << 32);
    std::memcpy(pages.first + 64 * stripe, &word, 8);
  }
  std::memcpy(pages.second, pages.first, kPageBytes);
  std::uint64_t words[2];
  for (unsigned stripe = 0; stripe < 2; ++stripe) {
    std::memcpy(&words[stripe], pages.first + 64 * stripe, 8);
  }
  words[0] += std::uint64_t{5} << 32;
  words[1] -= std::uint64_t{5} << 32;
  for (unsigned stripe = 0; stripe < 2; ++stripe) {
    std::memcpy(pages.second + 64 * stripe, &words[stripe], 8);
  }
  return pages;
}

TEST_F(RegionOutsideTest, PagesMadeToCollideAreBothWritten) {
  const Collision pages = collide();
  ASSERT_NE(std::memcmp(pages.first, pages.second, kPageBytes), 0);
  ASSERT_EQ(core::hash_bytes(pages.first, kPageBytes), core::hash_bytes(pages.second, kPageBytes))
      << "the attack works on a hash without a secret";
  {
    Region region = Region::create(path(), options(kMiB));
    auto page = region.allocate<std::uint8_t>("page", kPageBytes);
    std::memcpy(page.data(), pages.first, kPageBytes);
    region.commit();
    std::memcpy(page.data(), pages.second, kPageBytes);
    EXPECT_EQ(region.commit().pages_written, 1u);
    region.close();
  }
  Region region = Region::open(path());
  EXPECT_EQ(std::memcmp(region.find<std::uint8_t>("page").data(), pages.second, kPageBytes), 0);
}

TEST_F(RegionOutsideTest, EachRegionHasASecretOfItsOwn) {
  Region::create(path("a"), options(kMiB)).close();
  Region::create(path("b"), options(kMiB)).close();
  const core::Image a = test::image_in(path("a"));
  const core::Image b = test::image_in(path("b"));
  const std::vector<std::uint64_t> page(kPageBytes / 8, 1);
  EXPECT_NE(a.hash()(page.data()), b.hash()(page.data()));
  EXPECT_NE(a.commit_id(), b.commit_id());
}

}  // namespace
}  // namespace holdfast

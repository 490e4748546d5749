// Image and arena that part: one is there without the other, or continues something else. Nothing
// that was acknowledged is rolled back in silence, and nothing is deleted.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "core/checksum.hpp"
#include "core/file_domain.hpp"
#include "core/format.hpp"
#include "core/region_access.hpp"
#include "holdfast/inspect.hpp"
#include "holdfast/region.hpp"
#include "support/image_file.hpp"
#include "support/io_recorder.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class RegionForkTest : public test::Scratch {
 protected:
  // A region whose commit says 1 and whose arena, left by a crash, says 2.
  std::string crash() {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 10)[0] = 1;
    region.commit();
    region.find<int>("data")[0] = 2;
    region.abandon();
    return only_file(arenas());
  }
  OpenOptions elsewhere(bool last_commit) const {
    OpenOptions result;
    result.arena_folder = other_arenas();
    result.last_commit = last_commit;
    return result;
  }
  static int value(Region& region) { return region.find<int>("data")[0]; }
  core::ArenaHeader header_of(const std::string& arena) const {
    core::ArenaHeader header;
    std::memcpy(&header, test::read_file(arena).data(), sizeof header);
    return header;
  }
};

TEST_F(RegionForkTest, WithoutItsArenaARegionIsRefusedByName) {
  const std::string arena = crash();
  const auto before = test::read_file(path());
  EXPECT_EQ(error_of([&] { Region::open(path(), elsewhere(false)); },
                     {path(), arena, "HOLDFAST_ARENA_DIR", "last_commit"}),
            Errc::conflict);
  EXPECT_EQ(test::read_file(path()), before) << "written to";
  EXPECT_TRUE(is_empty(other_arenas()));
  OpenOptions reading = elsewhere(false);
  reading.mode = OpenMode::read_only;
  EXPECT_EQ(error_of([&] { Region::open(path(), reading); }, {arena}), Errc::conflict);
  Region region = Region::open(path());
  EXPECT_EQ(value(region), 2) << "with the arena all is there";
}

TEST_F(RegionForkTest, AnArenaThatIsGoneIsNamed) {
  const std::string arena = crash();
  std::filesystem::remove(arena);
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {arena, "gone", "RemoveIPC", "last_commit"}),
            Errc::conflict);
  Region region = Region::open(path(), last_commit());
  EXPECT_EQ(value(region), 1);
}

// The attack: an acknowledged commit made elsewhere, and then the old arena.
TEST_F(RegionForkTest, AStaleArenaRollsNothingBack) {
  const std::string arena = crash();
  const auto arena_before = test::read_file(arena);
  {
    Region region = Region::open(path(), elsewhere(true));
    EXPECT_EQ(value(region), 1);
    region.find<int>("data")[0] = 3;
    region.close();  // one commit: the generation is one more than the old arena's
  }
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {arena, path(), "last_commit"}),
            Errc::conflict);
  OpenOptions reading = for_reading();
  EXPECT_EQ(error_of([&] { Region::open(path(), reading); }, {arena}), Errc::conflict);
  EXPECT_NE(inspect_image(path()).arena.problem, "");
  EXPECT_TRUE(std::filesystem::exists(arena)) << "a conflict deletes nothing";

  Region region = Region::open(path(), last_commit());
  EXPECT_EQ(value(region), 3) << "what was acknowledged last";
  const std::string aside = region.open_report().arena_set_aside;
  auto arena_after = test::read_file(aside);
  EXPECT_EQ(std::memcmp(arena_after.data() + kPageBytes, arena_before.data() + kPageBytes,
                        arena_before.size() - kPageBytes),
            0)
      << "and what was persisted before is kept";
}

// The same while the second arena is still in use, or was left by a crash of its own.
TEST_F(RegionForkTest, OfTwoArenasTheOneThatTheImageNamesCounts) {
  const std::string first = crash();
  {
    Region region = Region::open(path(), elsewhere(true));
    region.find<int>("data")[0] = 3;
    region.commit();
    region.find<int>("data")[0] = 4;
    region.abandon();
  }
  const std::string second = only_file(other_arenas());
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {first}), Errc::conflict);
  Region region = Region::open(path(), elsewhere(false));
  EXPECT_TRUE(region.open_report().arena_found);
  EXPECT_EQ(value(region), 4);
  EXPECT_EQ(region.open_report().arena_set_aside, "");
}

// An older copy is moved over the file: another file, and the one that the arena is of is gone.
TEST_F(RegionForkTest, AnOlderCopyMovedOverTheFileIsToldSo) {
  const std::string old = path() + ".old";
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 10)[0] = 1;
    region.close();
  }
  std::filesystem::copy_file(path(), old);
  {
    Region region = Region::open(path());
    region.find<int>("data")[0] = 2;
    region.commit();
    region.abandon();
  }
  const std::string arena = only_file(arenas());
  EXPECT_EQ(error_of([&] { Region::open(old, last_commit()); }, {arena, path(), "a copy"}),
            Errc::in_use)
      << "the original is there, and the arena is its";
  std::filesystem::rename(old, path());
  for (const OpenOptions& options : {OpenOptions{}, for_reading()}) {
    EXPECT_EQ(error_of([&] { Region::open(path(), options); },
                       {arena, "replaced", "holdfast backup", "last_commit"}),
              Errc::conflict);
  }
  Region region = Region::open(path(), last_commit());
  EXPECT_EQ(value(region), 1);
  Region rescued = Region::open(region.open_report().arena_set_aside, for_reading());
  EXPECT_EQ(value(rescued), 2);
}

TEST_F(RegionForkTest, AKillBehindSettingAsideLeavesItsName) {
  crash();
  const auto image = test::read_file(path());
  std::string aside;
  {
    Region region = Region::open(path(), last_commit());
    aside = region.open_report().arena_set_aside;
    region.abandon();
  }
  // As if the kill had come before the note of the new arena.
  test::FileUnderTest(path()).write(0, image.data(), image.size());
  for (const auto& entry : std::filesystem::directory_iterator(arenas())) {
    if (entry.path() != aside) std::filesystem::remove(entry.path());
  }
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {aside, "set aside", "holdfast backup"}),
            Errc::conflict);
  Region region = Region::open(path(), last_commit());
  EXPECT_EQ(value(region), 1);
  EXPECT_EQ(region.open_report().arena_set_aside, aside);
  EXPECT_TRUE(std::filesystem::exists(aside));
}

TEST_F(RegionForkTest, AfterACloseAnyFolderWillDo) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 10)[0] = 1;
    region.close();
  }
  for (int i = 2; i < 6; ++i) {
    Region region = i % 2 == 0 ? Region::open(path(), elsewhere(false)) : Region::open(path());
    EXPECT_EQ(value(region), i - 1);
    region.find<int>("data")[0] = i;
    region.close();
  }
}

// After a reboot neither the note nor the arena's absence mean anything.
TEST_F(RegionForkTest, AfterARebootTheLastCommitIsThere) {
  std::filesystem::remove(crash());
  core::Surroundings after_reboot;
  after_reboot.boot = [] { return core::Uuid{1, 2, 3}; };
  Region region = core::RegionAccess::open(path(), {}, after_reboot);
  EXPECT_EQ(value(region), 1);
}

// Kills within open() and close(), between the steps that speak of the arena, as they leave it.
TEST_F(RegionForkTest, AKillBetweenTheArenasNameAndTheNote) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 10)[0] = 1;
    region.close();
  }
  const auto image = test::read_file(path());
  { Region::open(path()).abandon(); }
  const std::string arena = only_file(arenas());
  // The image does not know of the arena yet, and no one has stored to it.
  test::FileUnderTest(path()).write(0, image.data(), image.size());
  const auto fresh = static_cast<std::uint64_t>(core::ArenaUse::fresh);
  test::FileUnderTest(arena).write(offsetof(core::ArenaHeader, state), &fresh, sizeof fresh);
  Region region = Region::open(path());
  EXPECT_FALSE(region.open_report().arena_found);
  EXPECT_EQ(value(region), 1);
  EXPECT_EQ(region.open_report().arena_set_aside, "");
}

TEST_F(RegionForkTest, AKillWithinClose) {
  for (const bool noted : {false, true}) {
    std::error_code ignored;
    std::filesystem::remove(path(), ignored);
    crash();
    Region::open(path()).abandon();
    const std::string arena = only_file(arenas());
    const auto arena_bytes = test::read_file(arena);
    const auto image_before = test::read_file(path());
    {
      Region region = Region::open(path());
      EXPECT_EQ(value(region), 2);
      region.commit();
      const auto committed = test::read_file(arena);
      const auto image_in_use = test::read_file(path());
      region.close();
      // The commit is there; the arena says closed; the note may not yet.
      if (!noted) test::FileUnderTest(path()).write(0, image_in_use.data(), image_in_use.size());
      test::write_file(arena, committed);
      const auto closed = static_cast<std::uint64_t>(core::ArenaUse::closed);
      test::FileUnderTest(arena).write(offsetof(core::ArenaHeader, state), &closed, sizeof closed);
    }
    Region region = Region::open(path());
    EXPECT_FALSE(region.open_report().arena_found) << noted;
    EXPECT_EQ(value(region), 2) << noted;
    region.close();
    EXPECT_TRUE(is_empty(arenas()));
  }
}

// A commit that failed may be on the disk, and the arena knows its name.
TEST_F(RegionForkTest, ACommitThatFailedLateStillFitsItsArena) {
  for (int failing = 0; failing < 12; ++failing) {
    std::error_code ignored;
    std::filesystem::remove(path(), ignored);
    test::TapPoint taps;
    {
      Region region = taps.create(path(), options(kMiB));
      auto data = region.allocate<int>("data", 10);
      region.commit();
      data[0] = 5;
      {
        const test::IoFailure failure(taps, failing, EIO);
        try {
          region.commit();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Errc::io);
        }
      }
      data[0] = 6;
      region.abandon();
    }
    Region region = Region::open(path());
    EXPECT_TRUE(region.open_report().arena_found) << failing;
    EXPECT_EQ(value(region), 6);
    region.close();
  }
}

TEST_F(RegionForkTest, TheMessageSaysWhichCommitTheImageHolds) {
  test::TapPoint taps;
  Region region = taps.create(path(), options(kMiB));
  auto data = region.allocate<int>("data", 10);
  int before = 0, unknown = 0;
  for (int failing = 0; failing < 12; ++failing) {
    data[0] = failing + 1;
    const std::uint64_t generation = region.generation();
    const test::IoFailure failure(taps, failing, EIO);
    try {
      region.commit();
    } catch (const Error& error) {
      const std::string message = error.what();
      const bool not_known = message.find("not known") != std::string::npos;
      (not_known ? unknown : before) += 1;
      const std::uint64_t held = test::image_in(path()).generation();
      if (!not_known) {
        EXPECT_NE(message.find("still holds the previous commit"), std::string::npos) << message;
        EXPECT_EQ(held, generation) << message;
      }
    }
  }
  EXPECT_GT(before, 2);
  EXPECT_GE(unknown, 2) << "the record's write and its sync";
}

}  // namespace
}  // namespace holdfast

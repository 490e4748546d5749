// Hundreds of commits of scattered pages: the file stays within its bounds, its free space stays
// in runs, and every commit can be read back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include "core/checksum.hpp"
#include "core/commit.hpp"
#include "holdfast/inspect.hpp"
#include "holdfast/region.hpp"
#include "support/image_file.hpp"
#include "support/io_recorder.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using core::kPage;
using test::error_of;

class ImageCleanTest : public test::Scratch {
 protected:
  test::TapPoint taps_;

  ~ImageCleanTest() override { core::Committer::staging_pages = staging_before_; }

  void fill(Region& region, std::uint64_t pages) {
    data_ = region.allocate<std::uint8_t>("data", pages * kPage, Tracking::marked);
    for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<std::uint8_t>(random_());
    region.mark(data_.data(), data_.size());
    region.commit();
  }

  // Changes some pages at random places; now and then one becomes zero.
  void scatter(Region& region, std::uint64_t pages, bool zeroes = true) {
    for (std::uint64_t i = 0; i < pages; ++i) {
      std::uint8_t* const page = &data_[random_() % (data_.size() / kPage) * kPage];
      if (zeroes && random_() % 10 == 0) {
        std::memset(page, 0, kPage);
      } else {
        page[random_() % kPage] = static_cast<std::uint8_t>(random_() % 255 + 1);
      }
      region.mark(page, kPage);
    }
  }

  // Scatters until cleaning is a matter of course.
  void to_steady_state(Region& region, std::uint64_t pages) {
    int cleaned = 0;
    for (int i = 0; i < 2000 && cleaned < 20; ++i) {
      scatter(region, pages, false);
      cleaned += region.commit().pages_moved > 0 ? 1 : 0;
    }
    ASSERT_EQ(cleaned, 20) << "nothing was cleaned";
  }

  // Opens what close() left, once from the cache and once from the disk, and compares it.
  void expect_as_committed(const std::vector<std::uint8_t>& expected) {
    inspect_image(path(), Verify::everything);
    for (const bool cold : {false, true}) {
      if (cold) {
        const core::UniqueFd fd(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
        ::fsync(fd.get());
        ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
      }
      Region region = taps_.open(path());
      const auto found = region.find<std::uint8_t>("data");
      ASSERT_EQ(found.size(), expected.size());
      ASSERT_EQ(std::memcmp(found.data(), expected.data(), expected.size()), 0) << "cold " << cold;
      region.close();
    }
  }

  std::vector<std::uint8_t> content() const { return {data_.begin(), data_.end()}; }

  const std::uint64_t seed_ = test::test_seed();
  std::mt19937_64 random_{seed_};
  std::span<std::uint8_t> data_;

 private:
  const std::uint64_t staging_before_ = core::Committer::staging_pages;
};

TEST_F(ImageCleanTest, HundredsOfScatteredCommitsStayReadableAndBounded) {
  constexpr std::uint64_t kPages = 3000;
  std::uint64_t moved = 0;
  {
    Region region = taps_.create(path(), options(4000 * kPage));
    fill(region, kPages);
    region.close();
  }
  const std::uint64_t rounds = test::some_of(8, 2);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    Region region = taps_.open(path());
    data_ = region.find<std::uint8_t>("data");
    // Some commits find no room to copy their pages aside and write them ahead.
    core::Committer::staging_pages = round % 2 == 0 ? 4096 : 20;
    for (int i = 0; i < 50; ++i) {
      scatter(region, i % 10 == 0 ? random_() % 1000 : 40);
      const CommitStats stats = region.commit();
      moved += stats.pages_moved;
      const std::uint64_t own = stats.pages_written + kPages / core::kSegmentPages + 2;
      EXPECT_LE(stats.pages_moved, 2 * own) << "no more than in proportion";
    }
    const std::vector<std::uint8_t> expected = content();
    region.close();
    expect_as_committed(expected);
    const core::Image image = test::image_in(path());
    // Twice what is stored, what a commit may need beyond that, and the slack.
    EXPECT_LE(image.blocks().end(),
              core::kFirstBlock + 2 * (kPages + 50) + core::kGrowthSlack + core::kExtentBlocks);
    EXPECT_EQ(std::filesystem::file_size(path()), image.blocks().end() * kPage);
    if (HasFailure()) return;
  }
  EXPECT_GT(moved, 500u) << "nothing was cleaned";
}

TEST_F(ImageCleanTest, WritesStayInRunsInTheSteadyState) {
  Region region = taps_.create(path(), options(4200 * kPage));
  fill(region, 4096);
  to_steady_state(region, 41);
  std::uint64_t pages = 0;
  std::uint64_t runs = 0;
  for (int i = 0; i < 20; ++i) {
    scatter(region, 41, false);
    test::IoRecorder recorder(taps_);
    region.commit();
    std::uint64_t next = 0;
    for (const test::IoOperation& operation : recorder.operations) {
      if (operation.offset < core::kFirstBlock * kPage) continue;
      if (operation.kind != test::IoOperation::write) continue;
      EXPECT_EQ(operation.bytes.size(), kPage);
      pages += 1;
      runs += operation.offset == next ? 0 : 1;
      next = operation.offset + kPage;
    }
  }
  EXPECT_GT(pages, 20u * 41);
  EXPECT_GE(pages, 12 * runs) << pages << " pages in " << runs << " runs";
}

TEST_F(ImageCleanTest, HolesAreFewInTheSteadyState) {
  Region region = taps_.create(path(), options(8300 * kPage));
  fill(region, 8192);
  to_steady_state(region, 300);
  for (int i = 0; i < 40; ++i) {
    scatter(region, 300, false);
    region.commit();
  }
  region.close();
  const core::Image image = test::image_in(path());
  const core::BlockMap& map = image.blocks();
  std::uint64_t holes = 0;
  for (std::uint64_t extent = 0; extent < map.extents(); ++extent) {
    if (map.used(extent) > 0) holes += core::kExtentBlocks - map.used(extent);
  }
  EXPECT_LT(holes, map.in_force() / 2 + core::kGrowthSlack);
}

// Content that was damaged on the disk keeps its hash wherever it is moved.
TEST_F(ImageCleanTest, MovingAPageDoesNotHideThatItIsDamaged) {
  Region region = taps_.create(path(), options(1500 * kPage));
  fill(region, 1400);
  to_steady_state(region, 20);
  // Every page, so that some damaged ones are moved before they are changed.
  std::vector<std::uint64_t> before;
  {
    const core::Image image = test::image_in(path());
    test::FileUnderTest file(path());
    for (std::uint64_t page = core::kMetadataPages; page < core::kMetadataPages + 1400; ++page) {
      before.push_back(image.entry(page).block);
      std::byte byte = file.read(test::page_offset(image, page) + 99, 1)[0];
      byte ^= std::byte{16};
      file.write(test::page_offset(image, page) + 99, &byte, 1);
    }
  }
  std::uint64_t moved = 0;
  for (int i = 0; i < 200 && moved == 0; ++i) {
    scatter(region, 5, false);
    moved += region.commit().pages_moved;
  }
  ASSERT_GT(moved, 0u);
  region.abandon();
  std::filesystem::remove(only_file(arenas()));
  EXPECT_EQ(error_of([&] { Region::open(path(), last_commit()); }, {path(), "data"}),
            Errc::damaged);
  // All that was not written anew since is still known to be damaged.
  const core::Image image = test::image_in(path());
  test::FileUnderTest file(path());
  std::uint64_t in_new_places = 0;
  for (std::uint64_t page = core::kMetadataPages; page < core::kMetadataPages + 1400; ++page) {
    const std::uint64_t block = image.entry(page).block;
    if (block == before[page - core::kMetadataPages]) continue;
    const auto bytes = file.read(block * kPage, kPage);
    in_new_places += image.hash()(bytes.data()) != image.entry(page).hash ? 1 : 0;
  }
  EXPECT_GT(in_new_places, 0u);
  EXPECT_LE(in_new_places, moved);
}

// Whatever fails while pages are moved, both commits stay whole and no block is lost.
TEST_F(ImageCleanTest, FailureOfAnyOperationWhileCleaning) {
  Region region = taps_.create(path(), options(700 * kPage));
  fill(region, 600);
  to_steady_state(region, 12);
  std::uint64_t moved = 0;
  for (const int error_number : {ENOSPC, EIO}) {
    bool failed = true;
    const test::Every tried = test::every(1, 5, seed_);
    for (std::uint64_t failing = tried.first; failed; failing += tried.step) {
      const std::vector<std::uint8_t> old_content = content();
      const std::uint64_t generation = region.generation();
      scatter(region, 12, false);
      bool thrown = false;
      {
        test::IoFailure failure(taps_, static_cast<int>(failing), error_number);
        try {
          region.commit();
        } catch (const Error& error) {
          thrown = true;
          EXPECT_EQ(error.code(), error_number == ENOSPC ? Errc::no_space : Errc::io);
        }
        failed = failure.failed();
      }
      EXPECT_EQ(region.generation(), generation + (thrown ? 0 : 1));
      if (failing % 5 == 0 || !failed) {
        std::filesystem::copy_file(path(), path("copy"),
                                   std::filesystem::copy_options::overwrite_existing);
        OpenOptions elsewhere;
        elsewhere.arena_folder = other_arenas();
        Region copy = Region::open(path("copy"), elsewhere);
        const auto found = copy.find<std::uint8_t>("data");
        const std::vector<std::uint8_t> bytes(found.begin(), found.end());
        EXPECT_TRUE(bytes == content() || (thrown && bytes == old_content));
        copy.close();
      }
      moved += region.commit().pages_moved;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(moved, 0u);
  const std::vector<std::uint8_t> expected = content();
  region.close();
  expect_as_committed(expected);
  const core::Image image = test::image_in(path());
  EXPECT_LE(image.blocks().end(),
            core::kFirstBlock + 2 * 650 + core::kGrowthSlack + core::kExtentBlocks);
}

}  // namespace
}  // namespace holdfast

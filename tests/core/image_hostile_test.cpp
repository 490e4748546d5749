// Images whose checksums all hold and whose tables are nevertheless nonsense, as only someone with
// intent makes them: each is refused as damaged, none is written to, none leads to a crash.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "core/checksum.hpp"
#include "holdfast/inspect.hpp"
#include "holdfast/region.hpp"
#include "support/image_file.hpp"
#include "support/io_recorder.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using core::CommitRecord;
using core::kPage;
using core::TableEntry;
using core::TablePage;
using test::error_of;

// What hangs together by hashes, to be spoiled.
struct Tables {
  CommitRecord record;
  std::vector<TableEntry> root;
  std::vector<TablePage> pages;  // by segment
};

class ImageHostileTest : public test::Scratch {
 protected:
  static constexpr std::uint64_t kSize = 600 * kPageBytes;

  void SetUp() override {
    {
      Region region = Region::create(path(), options(kSize));
      auto data = region.allocate<std::uint64_t>("data", 560 * kPageBytes / 8);
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = i + 1;
      region.close();
    }
    const core::Image image = test::image_in(path());
    hash_ = image.hash();
    const test::FileUnderTest file(path());
    for (const std::uint64_t offset : core::kRecordOffset) {
      CommitRecord record;
      std::memcpy(&record, file.read(offset, sizeof record).data(), sizeof record);
      if (!counts(record)) continue;
      sound_.record = record;
      record_at_ = offset;
    }
    for (std::uint64_t segment = 0; segment < core::segments_of(kSize); ++segment) {
      sound_.root.push_back(image.root_entry(segment));
      TablePage& page = sound_.pages.emplace_back();
      std::memcpy(&page, file.read(test::table_offset(image, segment), kPage).data(), kPage);
    }
  }

  // Lets `spoil` change what was sound, and makes all hashes right again.
  void forge(const std::function<void(Tables&)>& spoil) {
    Tables tables = sound_;
    spoil(tables);
    test::FileUnderTest file(path());
    for (std::size_t segment = 0; segment < sound_.root.size(); ++segment) {
      file.write(sound_.root[segment].block * kPage, &tables.pages[segment], kPage);
      if (tables.root[segment] != sound_.root[segment]) continue;
      tables.root[segment].hash = hash_(&tables.pages[segment]);
    }
    const std::size_t bytes = tables.root.size() * sizeof(TableEntry);
    file.write(core::kRootOffset[tables.record.root_slot], tables.root.data(), bytes);
    tables.record.root_hash = hash_.bytes(tables.root.data(), bytes);
    tables.record.checksum = core::hash_bytes(&tables.record, offsetof(CommitRecord, checksum));
    file.write(record_at_, &tables.record, sizeof tables.record);
  }

  void refused(const char* word, const std::function<void(Tables&)>& spoil) {
    forge(spoil);
    const auto before = std::filesystem::last_write_time(path());
    EXPECT_EQ(error_of([&] { Region::open(path()); }, {path(), word}), Errc::damaged);
    EXPECT_EQ(error_of([&] { inspect_image(path(), Verify::everything); }, {path(), word}),
              Errc::damaged);
    EXPECT_TRUE(std::filesystem::last_write_time(path()) == before) << "written to";
    EXPECT_TRUE(is_empty(arenas()));
  }

  // The most that this process has had, in bytes.
  static std::uint64_t most_memory() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss) << 10;
  }

  Tables sound_;
  core::PageHash hash_;
  std::uint64_t record_at_ = 0;
};

TEST_F(ImageHostileTest, ForgedButSoundTablesOpen) {
  forge([](Tables&) {});
  Region region = Region::open(path());
  EXPECT_EQ(region.find<std::uint64_t>("data").back(), 560 * kPageBytes / 8);
}

TEST_F(ImageHostileTest, BlocksThatAreTakenAreRefused) {
  refused("taken", [](Tables& t) { t.pages[0][40].block = t.pages[0][41].block; });
  refused("taken", [](Tables& t) { t.pages[1][7] = t.pages[0][40]; });
  refused("taken", [](Tables& t) { t.pages[0][40].block = t.root[0].block; });
  refused("taken", [](Tables& t) { t.pages[0][40].block = t.root[2].block; });
  refused("taken", [](Tables& t) { t.root[1] = t.root[0]; });
}

TEST_F(ImageHostileTest, BlocksOutsideAreRefused) {
  const std::uint64_t end = sound_.record.blocks;
  for (const std::uint64_t block :
       {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, core::kRootOffset[1] / kPage,
        core::kFirstBlock - 1, end, end + 1, std::uint64_t{1} << 52, ~std::uint64_t{0} / kPage,
        std::uint64_t{1} << 63, ~std::uint64_t{0} - 1, ~std::uint64_t{0}}) {
    refused("where none can be", [&](Tables& t) { t.pages[0][40].block = block; });
    refused("where none can be", [&](Tables& t) { t.root[1].block = block; });
  }
  // A hash without a block.
  refused("where none can be", [](Tables& t) { t.pages[0][40].block = 0; });
  refused("where none can be", [](Tables& t) { t.root[1].block = 0; });
}

TEST_F(ImageHostileTest, PagesOutsideTheRegionAreRefused) {
  refused("outside the region", [](Tables& t) { t.pages[2][600 - 512] = t.pages[2][0]; });
  refused("outside the region", [](Tables& t) { t.pages[2][255] = {1, core::kFirstBlock}; });
}

TEST_F(ImageHostileTest, EmptyTablesAreRefused) {
  refused("empty table", [&](Tables& t) {
    t.pages[2] = {};
    t.root[2].hash = hash_(&t.pages[2]);
    t.record.pages_stored = 0;  // not looked at any more
  });
}

// The region is of a terabyte and the file of four, all of it holes: neither costs memory.
TEST_F(ImageHostileTest, LengthThatIsOnlyClaimedCostsNoMemory) {
  forge([&](Tables& t) {
    t.record.region_bytes = core::kMaxRegionBytes;
    t.record.blocks = core::max_blocks(core::kMaxRegionBytes);
    t.root.resize(core::segments_of(core::kMaxRegionBytes));
  });
  std::filesystem::resize_file(path(), core::max_blocks(core::kMaxRegionBytes) * kPage);
  const std::uint64_t before = most_memory();
  {
    const core::Image image = test::image_in(path());
    EXPECT_EQ(image.region_bytes(), core::kMaxRegionBytes);
  }
  EXPECT_LT(most_memory() - before,
            std::uint64_t{512} << 20);  // 4 bytes for a block would be 4 GiB
}

TEST_F(ImageHostileTest, RecordsThatDoNotFitAreRefused) {
  refused("cut off", [](Tables& t) { t.record.blocks += 1; });
  refused("cut off", [](Tables& t) { t.record.blocks = core::max_blocks(kSize); });
  refused("impossible", [](Tables& t) { t.record.blocks = core::max_blocks(kSize) + 1; });
  refused("impossible", [](Tables& t) { t.record.blocks = ~std::uint64_t{0}; });
  refused("impossible", [](Tables& t) { t.record.blocks = core::kFirstBlock - 1; });
  refused("impossible", [](Tables& t) { t.record.blocks = 0; });
  refused("where none can be", [](Tables& t) { t.record.blocks = core::kFirstBlock + 5; });
  refused("pages", [](Tables& t) { t.record.pages_stored += 1; });
  refused("pages", [](Tables& t) { t.pages[1][9] = {}; });
  refused("root table", [](Tables& t) { t.record.region_bytes += core::kSegmentPages * kPage; });
  refused("root table", [](Tables& t) { t.record.region_bytes = core::kMaxRegionBytes; });
}

}  // namespace
}  // namespace holdfast

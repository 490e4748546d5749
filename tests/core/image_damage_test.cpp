// Damaged and foreign files: each is opened with its content, or refused with an error that
// names the file; none is written to, none leads to a crash.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "core/checksum.hpp"
#include "core/format.hpp"
#include "holdfast/region.hpp"
#include "support/image_file.hpp"
#include "support/io_recorder.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using core::kMetadataPages;
using core::kPage;
using test::error_of;
using test::FileUnderTest;

struct Part {
  std::uint64_t offset;
  std::uint64_t bytes;
};

class ImageDamageTest : public test::Scratch {
 protected:
  static constexpr std::uint64_t kSize = 600 * kPageBytes;

  // A region of three segments, filled with what depends on the place, whose second commit has
  // left blocks of the first behind.
  void make() {
    Region region = Region::create(path(), options(kSize));
    auto a = region.allocate<std::uint32_t>("alpha", 100 * 1024);
    auto b = region.allocate<std::uint32_t>("beta", 450 * 1024, Tracking::marked);
    for (std::size_t i = 0; i < a.size(); i += 3) a[i] = static_cast<std::uint32_t>(i * 7919);
    for (std::size_t i = 400'000; i < b.size(); ++i) b[i] = static_cast<std::uint32_t>(i);
    region.mark(b.data(), b.size_bytes());
    region.commit();
    for (std::size_t i = 0; i < a.size(); i += 4096) a[i] = 1;
    region.commit();
    expected_ = contents(region);
    region.close();
  }

  static std::map<std::string, std::vector<std::uint8_t>> contents(Region& region) {
    std::map<std::string, std::vector<std::uint8_t>> result;
    for (const ObjectInfo& info : region.objects()) {
      const auto* bytes = static_cast<const std::uint8_t*>(region.address(info));
      result[info.name].assign(bytes, bytes + info.bytes());
    }
    return result;
  }

  // The structures of the file: header, records, roots, tables.
  std::vector<Part> structures() {
    const core::Image image = test::image_in(path());
    const std::uint64_t segments = core::segments_of(kSize);
    std::vector<Part> parts = {{0, sizeof(core::ImageHeader)},
                               {core::kRecordOffset[0], sizeof(core::CommitRecord)},
                               {core::kRecordOffset[1], sizeof(core::CommitRecord)},
                               {core::kRootOffset[0], segments * sizeof(core::TableEntry)},
                               {core::kRootOffset[1], segments * sizeof(core::TableEntry)}};
    for (std::uint64_t segment = 0; segment < segments; ++segment) {
      parts.push_back({test::table_offset(image, segment), kPage});
    }
    return parts;
  }

  // These, and all blocks: those in force, and those that a commit has left behind.
  std::vector<Part> meaningful_parts() {
    std::vector<Part> parts = structures();
    const std::uint64_t end = test::image_in(path()).blocks().end();
    for (std::uint64_t block = core::kFirstBlock; block < end; ++block) {
      parts.push_back({block * kPage, kPage});
    }
    return parts;
  }

  struct stat facts() const {
    struct stat info {};
    ::stat(path().c_str(), &info);
    return info;
  }

  // Opens the file; it must hold what was written, or be refused with a fitting error.
  // Returns whether it opened.
  bool opens_or_is_refused(const std::string& what) {
    const struct stat before = facts();
    bool opened = false;
    try {
      Region region = Region::open(path(), for_reading());
      EXPECT_EQ(contents(region), expected_) << what << ": opened with other content";
      opened = true;
    } catch (const Error& error) {
      const std::string message = error.what();
      // With a page of region bytes in the place of its header it is taken for a dax region's file.
      if (error.code() == Errc::unsupported && message.find("dax") != std::string::npos) {
        const Errc code = error_of([&] { Region::open(path()); }, {path()});
        EXPECT_TRUE(code == Errc::damaged || code == Errc::unsupported) << what;
        return false;
      }
      EXPECT_EQ(error_of([&] { Region::open(path()); }), error.code()) << what;
      EXPECT_TRUE(error.code() == Errc::damaged || error.code() == Errc::foreign ||
                  error.code() == Errc::newer_version)
          << what << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(path()), std::string::npos) << error.what();
    }
    const struct stat after = facts();
    EXPECT_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec) << what << ": written to";
    EXPECT_EQ(before.st_mtim.tv_sec, after.st_mtim.tv_sec) << what << ": written to";
    EXPECT_EQ(before.st_size, after.st_size) << what;
    EXPECT_TRUE(is_empty(arenas())) << what << ": left an arena";
    return opened;
  }

  std::map<std::string, std::vector<std::uint8_t>> expected_;
};

TEST_F(ImageDamageTest, AnyFlippedBitIsHarmlessOrRefused) {
  make();
  std::mt19937_64 random(test::test_seed());
  const std::vector<Part> front = structures();
  const std::vector<Part> parts = meaningful_parts();
  FileUnderTest file(path());
  int refused = 0;
  const std::vector<char> before = test::read_file(path());
  const int trials = static_cast<int>(test::some_of(700, 40));
  for (int trial = 0; trial < trials; ++trial) {
    // The structures get as many flips as all of the pages.
    const Part& part =
        trial % 2 == 0 ? front[random() % front.size()] : parts[random() % parts.size()];
    const std::uint64_t offset = part.offset + random() % part.bytes;
    const unsigned bit = static_cast<unsigned>(random() % 8);
    std::vector<std::byte> byte = file.read(offset, 1);
    ASSERT_EQ(byte.size(), 1u);
    byte[0] ^= std::byte{1} << bit;
    file.write(offset, byte.data(), 1);
    const bool opened =
        opens_or_is_refused("bit " + std::to_string(bit) + " of byte " + std::to_string(offset));
    refused += opened ? 0 : 1;
    byte[0] ^= std::byte{1} << bit;
    file.write(offset, byte.data(), 1);
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, trials / 5);
  EXPECT_EQ(test::read_file(path()), before);
  EXPECT_TRUE(opens_or_is_refused("whole again"));
  std::printf("%d of %d refused\n", refused, trials);
}

TEST_F(ImageDamageTest, EveryBitOfHeaderAndRecordMatters) {
  make();
  FileUnderTest file(path());
  for (const std::uint64_t start : {std::uint64_t{0}, core::kRecordOffset[0]}) {
    for (std::uint64_t byte = 0; byte < 120; ++byte) {
      std::vector<std::byte> value = file.read(start + byte, 1);
      value[0] ^= std::byte{1} << (byte % 8);
      file.write(start + byte, value.data(), 1);
      EXPECT_FALSE(opens_or_is_refused("byte " + std::to_string(start + byte)));
      value[0] ^= std::byte{1} << (byte % 8);
      file.write(start + byte, value.data(), 1);
      if (HasFailure()) return;
    }
  }
  EXPECT_TRUE(opens_or_is_refused("whole again"));
}

TEST_F(ImageDamageTest, CutOffFilesAreRefused) {
  make();
  std::vector<std::uint64_t> sizes = {0, 1, 7, 8, 100, 127, 128, facts().st_size - 1ull};
  for (const Part& part : meaningful_parts()) {
    for (const std::uint64_t size : {part.offset, part.offset + part.bytes - 1}) {
      sizes.push_back(size);
    }
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  // Every structure's boundaries, and those of some pages.
  std::vector<std::uint64_t> chosen;
  for (std::size_t i = 0; i < sizes.size(); i += i < 40 ? 1 : 37) chosen.push_back(sizes[i]);
  const std::uint64_t whole = static_cast<std::uint64_t>(facts().st_size);
  std::reverse(chosen.begin(), chosen.end());
  for (const std::uint64_t size : chosen) {
    FileUnderTest(path()).resize(size);
    EXPECT_FALSE(opens_or_is_refused("cut to " + std::to_string(size)));
    if (size > core::kFirstBlock * kPage) {
      // The length put back, without the bytes.
      FileUnderTest(path()).resize(whole);
      opens_or_is_refused("cut to " + std::to_string(size) + " and extended");
    }
    if (HasFailure()) return;
  }
}

TEST_F(ImageDamageTest, ZeroedAndSwappedPagesAreRefused) {
  make();
  std::mt19937_64 random(test::test_seed());
  FileUnderTest file(path());
  const std::vector<Part> parts = meaningful_parts();
  const std::vector<std::byte> zero(kPage);
  const int trials = static_cast<int>(test::some_of(120, 8));
  for (int trial = 0; trial < trials; ++trial) {
    const Part& one = parts[trial < 8 ? trial : random() % parts.size()];
    const Part& two = parts[random() % parts.size()];
    const std::vector<std::byte> first = file.read(one.offset, one.bytes);
    const std::vector<std::byte> second = file.read(two.offset, std::min(one.bytes, two.bytes));
    file.write(one.offset, zero.data(), one.bytes);
    opens_or_is_refused("zeroed at " + std::to_string(one.offset));
    file.write(one.offset, second.data(), second.size());
    file.write(two.offset, first.data(), second.size());
    opens_or_is_refused("swapped " + std::to_string(one.offset) + " and " +
                        std::to_string(two.offset));
    file.write(two.offset, second.data(), second.size());
    file.write(one.offset, first.data(), first.size());
    if (HasFailure()) return;
  }
  EXPECT_TRUE(opens_or_is_refused("whole again"));
}

TEST_F(ImageDamageTest, NamesThePageAndTheObject) {
  make();
  FileUnderTest file(path());
  const std::uint64_t page = kMetadataPages + 100 + 440;  // in beta
  const std::byte other{0x5a};
  file.write(test::page_offset(test::image_in(path()), page) + 9, &other, 1);
  EXPECT_EQ(
      error_of([&] { Region::open(path()); }, {path(), "page " + std::to_string(page), "beta"}),
      Errc::damaged);
}

TEST_F(ImageDamageTest, ForeignFilesAreRefused) {
  std::mt19937_64 random(test::test_seed());
  const auto refuse = [&](const std::string& name, std::vector<char> bytes, const char* word) {
    test::write_file(path(name), bytes);
    EXPECT_EQ(error_of([&] { Region::open(path(name)); }, {path(name), word}), Errc::foreign);
    EXPECT_EQ(test::read_file(path(name)), bytes);
    std::filesystem::remove(path(name));
  };
  const auto with = [&](std::string start) {
    start.resize(20'000, 'x');
    return std::vector<char>(start.begin(), start.end());
  };
  refuse("empty", {}, "empty");
  refuse("short", {'H', 'O'}, "short");
  refuse("png", with("\x89PNG\r\n\x1a\n"), "PNG");
  refuse("elf",
         with("\x7f"
              "ELF\x02\x01\x01"),
         "ELF");
  refuse("zip", with("PK\x03\x04"), "zip");
  refuse("zero", std::vector<char>(50'000, 0), "zero");
  for (int i = 0; i < 100; ++i) {
    std::vector<char> bytes(random() % 30'000 + 8);
    for (char& byte : bytes) byte = static_cast<char>(random());
    refuse("random", bytes, "region");
  }
}

TEST_F(ImageDamageTest, NewerVersionsAreRefusedAsSuch) {
  make();
  FileUnderTest file(path());
  core::ImageHeader header;
  const auto bytes = file.read(0, sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  header.version = 3;
  file.write(0, &header, sizeof header);
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {path(), "version 3"}), Errc::newer_version);
  header.checksum = core::hash_bytes(&header, offsetof(core::ImageHeader, checksum));
  file.write(0, &header, sizeof header);
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {path(), "version 3", "newer build"}),
            Errc::newer_version);
  EXPECT_EQ(error_of([&] { Region::destroy(path()); }), Errc::newer_version);
}

// A file whose checksums all hold and whose directory is nevertheless nonsense, as only someone
// with intent makes it.
TEST_F(ImageDamageTest, DirectoriesWithSoundChecksumsAreCheckedAllTheSame) {
  const auto refuse = [&](const char* word,
                          const std::function<void(core::DirectorySlot&)>& spoil) {
    {
      Region region = Region::create(path(), options(kSize));
      region.allocate<int>("one", 10);
      region.allocate<int>("two", 10);
      auto* const slots =
          reinterpret_cast<core::DirectorySlot*>(static_cast<std::byte*>(region.base()) + kPage);
      core::DirectorySlot& newest = slots[slots[0].generation > slots[1].generation ? 0 : 1];
      spoil(newest);
      newest.checksum = core::hash_bytes(&newest, offsetof(core::DirectorySlot, checksum));
      region.commit();
      region.abandon();
    }
    const std::string arena = only_file(arenas());
    EXPECT_EQ(error_of([&] { Region::open(path()); }, {arena, word}), Errc::damaged);
    std::filesystem::remove(arena);
    EXPECT_EQ(error_of([&] { Region::open(path(), last_commit()); }, {path(), word}),
              Errc::damaged);
    Region::destroy(path());
  };
  using Slot = core::DirectorySlot;
  refuse("offset", [](Slot& slot) { slot.entries[0].offset = 0; });
  refuse("offset", [](Slot& slot) { slot.entries[0].offset += 8; });
  refuse("outside", [](Slot& slot) { slot.entries[1].offset = ~std::uint64_t{0} / kPage * kPage; });
  refuse("outside", [](Slot& slot) { slot.entries[1].count = kSize; });
  refuse("count", [](Slot& slot) { slot.entries[1].count = ~std::uint64_t{0}; });
  refuse("no bytes", [](Slot& slot) { slot.entries[1].element_bytes = 0; });
  // As a region of version 1 knows them.
  refuse("tracking", [](Slot& slot) { slot.entries[1].tracking = 2; });
  refuse("overlaps", [](Slot& slot) { slot.entries[1].offset = slot.entries[0].offset; });
  refuse("overlaps", [](Slot& slot) { std::swap(slot.entries[0], slot.entries[1]); });
  refuse("twice", [](Slot& slot) { std::strcpy(slot.entries[1].name, "one"); });
  refuse("string", [](Slot& slot) { std::memset(slot.entries[1].name, 'x', 56); });
  refuse("string", [](Slot& slot) { std::memset(slot.entries[1].type, 'x', 24); });
  refuse("string", [](Slot& slot) { slot.entries[1].name[0] = 0; });
  refuse("count", [](Slot& slot) { slot.count = 513; });
  refuse("region", [](Slot& slot) { slot.region_bytes = 0; });
  refuse("are there", [](Slot& slot) { slot.region_bytes *= 2; });
  refuse("magic", [](Slot& slot) { slot.magic[0] = 'x'; });
}

class ArenaDamageTest : public ImageDamageTest {
 protected:
  // A crashed region with one commit and one change after it.
  std::string crash() {
    Region region = Region::create(path(), options(kSize));
    region.allocate<int>("data", 1000)[7] = 1;
    region.commit();
    region.allocate<int>("more", 1000);
    region.find<int>("data")[7] = 2;
    expected_ = contents(region);
    region.abandon();
    return only_file(arenas());
  }

  // The error names the arena and the way out, and the way out works.
  void refused_and_falls_back(const std::string& arena, const std::string& what,
                              Errc code = Errc::damaged) {
    const std::vector<char> bytes = test::read_file(arena);
    EXPECT_EQ(error_of([&] { Region::open(path()); }, {arena, "last_commit"}), code) << what;
    EXPECT_EQ(test::read_file(arena), bytes) << what << ": written to";
  }
};

TEST_F(ArenaDamageTest, AnyFlippedBitOfItsStructuresIsHarmlessOrRefused) {
  const std::string arena = crash();
  const std::vector<char> whole = test::read_file(arena);
  std::mt19937_64 random(test::test_seed());
  int refused = 0;
  const int trials = static_cast<int>(test::some_of(300, 30));
  for (int trial = 0; trial < trials; ++trial) {
    // The arena's header, the region's header, and the two directory slots.
    const std::uint64_t start[] = {0, kPage, 2 * kPage, 2 * kPage};
    const std::uint64_t bytes[] = {sizeof(core::ArenaHeader), sizeof(core::RegionHeader),
                                   2 * core::kDirectoryPages * kPage, 1000};
    const std::size_t part = random() % 4;
    const std::uint64_t offset = start[part] + random() % bytes[part];
    std::vector<char> damaged = whole;
    damaged[offset] = static_cast<char>(damaged[offset] ^ (1 << (random() % 8)));
    FileUnderTest(arena).write(offset, &damaged[offset], 1);
    try {
      Region region = Region::open(path());
      EXPECT_TRUE(region.open_report().arena_found);
      EXPECT_EQ(contents(region), expected_) << "byte " << offset;
      region.abandon();
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(error.code() == Errc::damaged || error.code() == Errc::foreign ||
                  error.code() == Errc::newer_version || error.code() == Errc::unsupported)
          << error.what();
      EXPECT_NE(std::string(error.what()).find(arena), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("last_commit"), std::string::npos) << error.what();
    }
    FileUnderTest file(arena);
    file.write(0, whole.data(), whole.size());
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, test::share() == 1 ? 200 : trials / 3);
  Region region = Region::open(path(), last_commit());
  EXPECT_TRUE(std::filesystem::exists(region.open_report().arena_set_aside));
  EXPECT_FALSE(region.contains("more"));
  EXPECT_EQ(region.find<int>("data")[7], 1) << "the last commit";
}

TEST_F(ArenaDamageTest, WrongSizesAreRefused) {
  const std::string arena = crash();
  const std::uint64_t whole = std::filesystem::file_size(arena);
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{100}, kPage, 2 * kPage, whole - kPage, whole - 1}) {
    const std::vector<char> bytes = test::read_file(arena);
    FileUnderTest(arena).resize(size);
    refused_and_falls_back(arena, "cut to " + std::to_string(size));
    FileUnderTest(arena).resize(whole);
    if (size + kPage <= whole) {
      // Holes: touching them with shared memory full would kill the process.
      refused_and_falls_back(arena, "cut to " + std::to_string(size) + " and extended");
    }
    std::filesystem::remove(arena);
    test::write_file(arena, bytes);
  }
  EXPECT_EQ(Region::open(path()).find<int>("data")[7], 2);
}

TEST_F(ArenaDamageTest, AnArenaThatCannotBeTrustedIsSetAsideWhenAskedFor) {
  const std::string arena = crash();
  std::vector<char> bytes = test::read_file(arena);
  bytes[100] = static_cast<char>(~bytes[100]);
  test::write_file(arena, bytes);
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {arena, "last_commit"}), Errc::damaged);
  Region region = Region::open(path(), last_commit());
  EXPECT_EQ(region.find<int>("data")[7], 1) << "the last commit";
  EXPECT_EQ(test::read_file(region.open_report().arena_set_aside), bytes) << "nothing is deleted";
}

TEST_F(ArenaDamageTest, AReplacedImageIsNoticed) {
  const std::string arena = crash();
  std::filesystem::copy_file(path(), path("copy"));
  EXPECT_EQ(error_of([&] { Region::open(path("copy")); }, {arena, path(), path("copy")}),
            Errc::in_use)
      << "a copy must not take what the original left";
  // An image that is behind: restored in place from an old copy.
  {
    Region region = Region::open(path());
    for (int i = 0; i < 3; ++i) region.commit();
    region.abandon();
  }
  const std::vector<char> old_bytes = test::read_file(path("copy"));
  FileUnderTest(path()).write(0, old_bytes.data(), old_bytes.size());
  refused_and_falls_back(arena, "an image of another commit", Errc::conflict);
}

}  // namespace
}  // namespace holdfast

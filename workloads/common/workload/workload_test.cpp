// Backing, Saver and inputs: what every workload stands on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>

#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "workload/file_target.hpp"
#include "workload/inputs.hpp"
#include "workload/saver.hpp"
#include "workload/workload.hpp"

namespace {

using holdfast::Errc;
using workload::Backing;
using workload::BackingOptions;
using workload::Mode;

class EachMode : public holdfast::test::Scratch, public ::testing::WithParamInterface<Mode> {
 protected:
  BackingOptions options() const {
    BackingOptions result;
    result.mode = GetParam();
    result.path = path("backing");
    result.capacity = 64 << 20;
    result.cpu_threads = 2;
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, EachMode, ::testing::ValuesIn(workload::all_modes()),
                         [](const auto& info) {
                           std::string name = workload::to_string(info.param);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

std::vector<std::uint32_t> numbers(std::size_t count, std::uint32_t first) {
  std::vector<std::uint32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_P(EachMode, WhatWasPublishedIsThereInTheNextProcess) {
  constexpr std::size_t kCount = (9u << 20) / 4 + 3;  // two parts, the last of odd length
  {
    Backing backing(options());
    EXPECT_FALSE(backing.was_there());
    EXPECT_FALSE(backing.ready());
    EXPECT_EQ(backing.progress(), 0u);
    const auto array = backing.array<std::uint32_t>("a", kCount);
    EXPECT_EQ(backing.read(array), std::vector<std::uint32_t>(kCount, 0));
    backing.fill(array, numbers(kCount, 5));
    backing.set_ready();
    backing.set_progress(41);
  }
  Backing backing(options());
  EXPECT_TRUE(backing.was_there());
  EXPECT_TRUE(backing.ready());
  EXPECT_EQ(backing.progress(), 41u);
  EXPECT_EQ(backing.read(backing.array<std::uint32_t>("a", kCount)), numbers(kCount, 5));
}

TEST_P(EachMode, OnlyWhatIsPublishedCounts) {
  if (workload::stores_directly(GetParam()) || GetParam() == Mode::cpu) {
    GTEST_SKIP() << "kernels store to the medium itself";
  }
  {
    Backing backing(options());
    const auto array = backing.array<std::uint32_t>("a", 1000);
    const auto values = numbers(1000, 1);
    holdfast::copy_async(backing.stream(), array.data, values.data(), 4000);
    backing.publish(array, 10, 20);
  }
  Backing backing(options());
  std::vector<std::uint32_t> expected(1000, 0);
  for (std::uint32_t i = 10; i < 30; ++i) expected[i] = i + 1;
  EXPECT_EQ(backing.read(backing.array<std::uint32_t>("a", 1000)), expected);
}

// Pieces that begin and end anywhere in lines, against a plain array.
TEST_P(EachMode, WhatTheCpuStoresIsThereInTheNextProcess) {
  constexpr std::size_t kBytes = (3u << 20) + 77;
  std::mt19937_64 random(holdfast::test::test_seed());
  std::vector<unsigned char> expected(kBytes);
  {
    Backing backing(options());
    const std::uint32_t id = backing.target("t", kBytes);
    for (std::uint64_t round = 0; round < holdfast::test::some_of(20, 4); ++round) {
      std::vector<unsigned char> from(kBytes);
      for (auto& byte : from) byte = static_cast<unsigned char>(random());
      const std::uint64_t split = random() % kBytes;
      const std::uint64_t first = round == 0 ? 0 : random() % (split + 1);
      const std::uint64_t second = split + (round == 0 ? 0 : random() % (kBytes - split));
      const Backing::Piece pieces[] = {{first, from.data() + first, split - first},
                                       {second, from.data() + second, kBytes - second}};
      const std::uint64_t before = backing.bytes_written();
      backing.store(id, pieces);
      EXPECT_EQ(backing.bytes_written() - before, split - first + kBytes - second);
      std::copy(from.begin() + first, from.begin() + split, expected.begin() + first);
      std::copy(from.begin() + second, from.end(), expected.begin() + second);
    }
    const Backing::Piece outside[] = {{kBytes - 1, expected.data(), 2}};
    EXPECT_EQ(holdfast::test::error_of([&] { backing.store(id, outside); }),
              Errc::invalid_argument);
  }
  Backing backing(options());
  const std::uint32_t id = backing.target("t", kBytes);
  std::vector<unsigned char> found(kBytes);
  backing.copy_from_target(id, 0, found.data(), kBytes);
  EXPECT_EQ(found, expected);
}

TEST_P(EachMode, AnotherShapeOrModeIsRefused) {
  { Backing(options()).array<std::uint32_t>("a", 1000); }
  {
    Backing backing(options());
    EXPECT_EQ(holdfast::test::error_of([&] { backing.array<std::uint32_t>("a", 1001); }),
              Errc::invalid_argument);
    const auto array = backing.array<std::uint32_t>("a", 1000);
    EXPECT_EQ(holdfast::test::error_of([&] { backing.publish(array, 999, 2); }),
              Errc::invalid_argument);
  }
  BackingOptions other = options();
  other.mode = GetParam() == Mode::gpm ? Mode::ndp : Mode::gpm;
  EXPECT_EQ(holdfast::test::error_of([&] { Backing backing(other); }), Errc::invalid_argument);
}

TEST_P(EachMode, AnotherRunOrWhatIsNoneIsRefusedAndStaysAsItIs) {
  BackingOptions first = options();
  first.run = "first";
  { Backing(first).array<std::uint32_t>("a", 1000); }
  BackingOptions second = first;
  second.run = "second";
  EXPECT_EQ(holdfast::test::error_of([&] { Backing backing(second); }, {first.path}),
            Errc::invalid_argument);
  EXPECT_NO_THROW(Backing(first).array<std::uint32_t>("a", 1000));
  Backing::destroy(first.path);
  {
    holdfast::RegionOptions made;
    made.size = 1 << 20;
    holdfast::Region region = holdfast::Region::create(first.path, made);
    region.allocate<int>("mine", 10)[3] = 5;
    region.close();
  }
  EXPECT_EQ(holdfast::test::error_of([&] { Backing backing(first); }, {first.path}),
            Errc::invalid_argument);
  EXPECT_TRUE(is_empty(arenas()));
  holdfast::Region region = holdfast::Region::open(first.path);
  EXPECT_EQ(region.objects().size(), 1u);
  EXPECT_EQ(region.find<int>("mine")[3], 5);
}

TEST_P(EachMode, DestroyLeavesNothing) {
  {
    Backing backing(options());
    backing.fill(backing.array<std::uint32_t>("a", 1000), numbers(1000, 1));
    backing.set_progress(1);
  }
  Backing::destroy(options().path);
  EXPECT_TRUE(is_empty(arenas()));
  EXPECT_TRUE(is_empty(folder()));
  EXPECT_NO_THROW(Backing::destroy(options().path));
}

TEST_P(EachMode, ASaverRestoresTheLastSave) {
  constexpr std::size_t kCounts[] = {1000, (9u << 20) / 4 + 3};
  const auto make = [&](Backing& backing, auto& buffers) {
    std::vector<workload::Buffer> named;
    for (std::size_t i = 0; i < 2; ++i) {
      // Host threads and kernels can use pinned memory alike.
      buffers[i] = holdfast::PinnedBuffer<std::uint32_t>(kCounts[i]);
      named.push_back({"b" + std::to_string(i), buffers[i].data(), 4 * kCounts[i]});
    }
    return workload::Saver::make(backing, named);
  };
  const auto set = [&](auto& buffers, std::uint32_t value) {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto values = numbers(kCounts[i], value);
      std::copy(values.begin(), values.end(), buffers[i].data());
    }
  };
  for (std::uint32_t round = 1; round <= 3; ++round) {
    Backing backing(options());
    holdfast::PinnedBuffer<std::uint32_t> buffers[2];
    const auto saver = make(backing, buffers);
    set(buffers, 77);
    EXPECT_EQ(saver->restore(), 10u * (round - 1));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<std::uint32_t> found(buffers[i].data(), buffers[i].data() + kCounts[i]);
      EXPECT_EQ(found, numbers(kCounts[i], round == 1 ? 77 : round - 1));
    }
    set(buffers, 1000);
    saver->save(10 * round - 1);
    set(buffers, round);
    saver->save(10 * round);
  }
}

class Files : public holdfast::test::Scratch {};

// Parts that begin and end anywhere, against a plain array.
TEST_F(Files, AreStripedAndReadBack) {
  using workload::FileTarget;
  std::mt19937_64 random(holdfast::test::test_seed());
  for (const std::uint64_t bytes : {std::uint64_t{1}, FileTarget::kStripe,
                                    2 * FileTarget::kStripe + 1, std::uint64_t{2'000'003}}) {
    for (const unsigned files : {1u, 3u, 16u}) {
      const std::string name = path("t" + std::to_string(bytes) + "-" + std::to_string(files));
      std::vector<unsigned char> expected(bytes), found(bytes);
      {
        const FileTarget target(name, bytes, files);
        EXPECT_FALSE(target.was_there());
        for (int part = 0; part < 20; ++part) {
          const std::uint64_t first = random() % bytes;
          const std::uint64_t count = 1 + random() % (bytes - first);
          for (std::uint64_t i = 0; i < count; ++i) {
            expected[first + i] = static_cast<unsigned char>(random());
          }
          target.write(expected.data() + first, count, first);
        }
        target.sync();
      }
      const FileTarget target(name, bytes, files);
      EXPECT_TRUE(target.was_there());
      target.read(found.data(), bytes, 0);
      EXPECT_EQ(found, expected) << bytes << " bytes in " << files << " files";
      const std::uint64_t middle = bytes / 2;
      target.read(found.data(), bytes - middle, middle);
      EXPECT_TRUE(
          std::equal(found.begin(), found.begin() + (bytes - middle), expected.begin() + middle));
    }
  }
  // As many as asked for, of sizes that add up.
  std::uint64_t sum = 0;
  unsigned files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (!entry.path().filename().string().starts_with("t2000003-3")) continue;
    ++files;
    sum += entry.file_size();
  }
  EXPECT_EQ(files, 3u);
  EXPECT_EQ(sum, 2'000'003u);
}

// Pages of the file that the page cache holds.
std::size_t cached_pages(const std::string& name) {
  const int file = ::open(name.c_str(), O_RDONLY);
  const std::size_t bytes = std::filesystem::file_size(name);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) throw std::runtime_error("mmap of " + name);
  std::vector<unsigned char> resident((bytes + 4095) / 4096);
  if (::mincore(mapped, bytes, resident.data()) != 0) throw std::runtime_error("mincore");
  ::munmap(mapped, bytes);
  return static_cast<std::size_t>(
      std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return page & 1; }));
}

TEST_F(Files, PassThePageCacheWhereTheFileSystemCan) {
  constexpr std::size_t kBytes = 3 * workload::FileTarget::kStripe;
  std::unique_ptr<unsigned char, void (*)(void*)> from(
      static_cast<unsigned char*>(std::aligned_alloc(4096, kBytes)), &std::free);
  std::memset(from.get(), 7, kBytes);
  {
    const workload::FileTarget target(path("t"), kBytes, 1, true);
    if (!target.is_direct()) GTEST_SKIP() << "no direct I/O in " << folder();
    target.write(from.get(), kBytes, 0);
    target.sync();
    EXPECT_EQ(cached_pages(path("t")), 0u);
  }
  // Not asked for: what was written is in the page cache.
  const workload::FileTarget buffered(path("t"), kBytes, 1, false);
  EXPECT_FALSE(buffered.is_direct());
  buffered.write(from.get(), kBytes, 0);
  EXPECT_EQ(cached_pages(path("t")), kBytes / 4096);
}

TEST_F(Files, FallBackWhereTheFileSystemHasNoDirectIo) {
  const workload::FileTarget target(arenas() + "/t", 10'000, 1, true);
  EXPECT_FALSE(target.is_direct());
  const std::vector<unsigned char> from(10'000, 5);
  target.write(from.data(), from.size(), 0);
  target.sync();
  std::vector<unsigned char> found(10'000);
  target.read(found.data(), found.size(), 0);
  EXPECT_EQ(found, from);
}

// What starts and ends within pages, or lies in memory as pages do not, against a plain array and
// the file as any program reads it.
TEST_F(Files, MixDirectAndOtherWrites) {
  constexpr std::size_t kBytes = 2'000'003;
  std::mt19937_64 random(holdfast::test::test_seed());
  for (const unsigned files : {1u, 3u}) {
    const std::string name = path("m" + std::to_string(files));
    const workload::FileTarget target(name, kBytes, files, true);
    std::vector<unsigned char> expected(kBytes), found(kBytes);
    std::unique_ptr<unsigned char, void (*)(void*)> memory(
        static_cast<unsigned char*>(std::aligned_alloc(4096, 2'007'040)), &std::free);
    for (int part = 0; part < 40; ++part) {
      const std::uint64_t first = random() % kBytes;
      const std::uint64_t count = 1 + random() % (kBytes - first);
      unsigned char* const from = memory.get() + (part % 4 == 0 ? 1 : first % 4096);
      for (std::uint64_t i = 0; i < count; ++i) {
        expected[first + i] = from[i] = static_cast<unsigned char>(random());
      }
      target.write(from, count, first);
      if (part % 8 == 0) target.sync();
      target.read(found.data(), kBytes, 0);
      ASSERT_EQ(found, expected) << "part " << part << " in " << files << " files";
    }
    if (files != 1) continue;
    std::ifstream file(name, std::ios::binary);
    const std::vector<unsigned char> whole{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(whole, expected);
  }
}

TEST_F(Files, OfTheArenasFolderMayBeOnADisk) {
  ::setenv("HOLDFAST_ARENA_DIR", folder().c_str(), 1);
  for (const bool direct : {true, false}) {
    BackingOptions options;
    options.mode = Mode::cap_fs;
    options.path = path(direct ? "direct" : "buffered");
    options.capacity = 8 << 20;
    options.cpu_threads = 2;
    options.direct_io = direct;
    constexpr std::size_t kCount = 1'500'000;
    {
      Backing backing(options);
      EXPECT_EQ(backing.file_io(), "");
      const auto array = backing.array<std::uint32_t>("a", kCount);
      backing.fill(array, numbers(kCount, 1));
      const auto values = numbers(1000, 77);
      holdfast::copy_async(backing.stream(), array.data + 5, values.data(), 4000);
      backing.publish(array, 5, 1000);
      if (!direct) {
        EXPECT_EQ(backing.file_io(), "buffered");
      }
    }
    Backing backing(options);
    std::vector<std::uint32_t> expected = numbers(kCount, 1);
    for (std::uint32_t i = 0; i < 1000; ++i) expected[5 + i] = 77 + i;
    EXPECT_EQ(backing.read(backing.array<std::uint32_t>("a", kCount)), expected);
  }
}

TEST_F(Files, StayAsManyAsTheyWere) {
  BackingOptions options;
  options.mode = Mode::cap_fs;
  options.path = path("backing");
  options.capacity = 8 << 20;
  constexpr std::size_t kCount = 1'500'000;
  for (const unsigned threads : {2u, 5u, 1u}) {
    options.cpu_threads = threads;
    Backing backing(options);
    const auto array = backing.array<std::uint32_t>("a", kCount);
    if (threads == 2) {
      backing.fill(array, numbers(kCount, 9));
    } else {
      EXPECT_EQ(backing.read(array), numbers(kCount, 9)) << threads << " threads";
    }
  }
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(arenas())) {
    const std::string name = entry.path().filename().string();
    files += name.ends_with("-a") || name.ends_with("-a.1") || name.ends_with("-a.2");
  }
  EXPECT_EQ(files, 2u);
  Backing::destroy(options.path);
}

class Inputs : public holdfast::test::Scratch {
 protected:
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
};

TEST_F(Inputs, AreDecompressedAndDamageIsNamed) {
  EXPECT_EQ(workload::read_input("", "x"), std::nullopt);
  EXPECT_EQ(workload::read_input(folder(), "x"), std::nullopt);
  write("plain", "1 2");
  EXPECT_EQ(workload::read_input(folder(), "plain"), "1 2");
  const std::string text(100000, 'q');
  const gzFile file = ::gzopen(path("a.gz").c_str(), "wb");
  ASSERT_EQ(::gzwrite(file, text.data(), 100000), 100000);
  ::gzclose(file);
  EXPECT_EQ(workload::read_input(folder(), "a.gz"), text);
  std::filesystem::resize_file(path("a.gz"), std::filesystem::file_size(path("a.gz")) - 5);
  EXPECT_EQ(holdfast::test::error_of([&] { workload::read_input(folder(), "a.gz"); }),
            Errc::damaged);
  write("a.xz", "not xz at all");
  EXPECT_EQ(holdfast::test::error_of([&] { workload::read_input(folder(), "a.xz"); }),
            Errc::damaged);
}

TEST_F(Inputs, NumbersAreReadStrictly) {
  workload::NumberReader reader("c remark\n 12 -3.5e1\nword 99999999999999999999", "t");
  reader.skip_lines('c');
  EXPECT_EQ(reader.whole(0, 100), 12u);
  EXPECT_EQ(reader.real(), -35.0);
  EXPECT_EQ(reader.word(), "word");
  EXPECT_FALSE(reader.at_end());
  EXPECT_EQ(holdfast::test::error_of([&] { reader.whole(0, 100); }), Errc::damaged);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(holdfast::test::error_of([&] { reader.real(); }), Errc::damaged);
  for (const char* bad : {"nan", "inf", "1e999", "0x1", "1.5.2", "--1"}) {
    workload::NumberReader one(bad, "t");
    EXPECT_EQ(holdfast::test::error_of([&] { one.real(); }), Errc::damaged) << bad;
  }
}

TEST(Options, AreNumbersInARange) {
  workload::Settings settings;
  settings.options = {{"rows", "12"}, {"bad", "12x"}};
  EXPECT_EQ(workload::number_option(settings, "rows", 5, 1, 20), 12u);
  EXPECT_EQ(workload::number_option(settings, "other", 5, 1, 20), 5u);
  for (const char* name : {"rows", "bad"}) {
    EXPECT_EQ(holdfast::test::error_of([&] { workload::number_option(settings, name, 5, 1, 11); }),
              Errc::invalid_argument);
  }
}

}  // namespace

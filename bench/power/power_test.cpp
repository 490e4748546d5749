// What power_bench relies on: the oracle finds what is wrong, every system holds what was set after
// the crash that it claims to survive, and damage is not taken for a result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <stdexcept>

#include "comparison.hpp"
#include "device_table.hpp"
#include "support/scratch.hpp"

namespace power {
namespace {

namespace fs = std::filesystem;

// Few keys for the table: none is evicted.
Shape small_shape(std::uint32_t batch) { return {1 << 20, 512, batch}; }

using Layout = holdfast::KvStore::Layout;

class Power : public holdfast::test::Scratch {
 protected:
  Setting setting(const Shape& shape, std::uint64_t turns) const {
    return {shape, folder(), turns, 3};
  }
  // So many turns; then the system is let go of.
  static void run(System& system, const Shape& shape, std::uint64_t turns) {
    const unsigned batches = system.promise().batches_per_commit;
    Inputs inputs(shape, batches);
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      inputs.prepare(turn * batches, batches);
      const Turn took = system.run(inputs);
      EXPECT_EQ(took.disk_bytes > 0, system.promise().rung == "power");
      EXPECT_GE(took.total_seconds, 0);
    }
    system.crash();
  }
  static Oracle oracle(const Shape& shape, std::uint64_t batches) {
    Oracle result(shape);
    result.advance(batches);
    return result;
  }
  static void damage(const std::string& path, std::uint64_t offset) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
    ASSERT_TRUE(file.good());
  }
  bool load_rocksdb_if_there() const {
    const char* const named = std::getenv("HOLDFAST_ROCKSDB");
    return load_rocksdb(named != nullptr ? named : "").empty();
  }
};

TEST_F(Power, KeysAreAPermutation) {
  std::mt19937_64 random(holdfast::test::test_seed());
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t word = random();
    ASSERT_EQ(unscrambled(scrambled(word)), word);
    ASSERT_EQ(scrambled(unscrambled(word)), word);
  }
}

TEST_F(Power, InputsAreTheShapes) {
  const Shape shape = small_shape(100);
  Inputs inputs(shape, 3);
  for (const auto& [first, count] : {std::pair{0u, 3u}, {3u, 2u}, {40u, 1u}}) {
    inputs.prepare(first, count);
    holdfast::Stream stream;
    for (unsigned batch = 0; batch < count; ++batch) {
      const holdfast::PinnedBuffer<std::uint64_t> keys(shape.batch), values(shape.batch);
      copy_async(stream, keys.data(), inputs.device_keys(batch), 8 * shape.batch);
      copy_async(stream, values.data(), inputs.device_values(batch), 8 * shape.batch);
      stream.synchronize();
      for (std::uint32_t i = 0; i < shape.batch; ++i) {
        const std::uint64_t number = std::uint64_t{first + batch} * shape.batch + i;
        ASSERT_EQ(keys[i], shape.key(number));
        ASSERT_EQ(values[i], Shape::value(number));
        ASSERT_EQ(inputs.host_keys(batch)[i], keys[i]);
        ASSERT_EQ(inputs.host_values(batch)[i], values[i]);
      }
    }
  }
  EXPECT_THROW(inputs.prepare(0, 4), std::invalid_argument);
}

std::map<std::uint64_t, std::uint64_t> map_of(const Shape& shape, std::uint64_t batches) {
  std::map<std::uint64_t, std::uint64_t> all;
  for (std::uint64_t number = 0; number < batches * shape.batch; ++number) {
    all[shape.key(number)] = Shape::value(number);
  }
  return all;
}

void compare(const Oracle& oracle, const std::map<std::uint64_t, std::uint64_t>& pairs,
             Comparison::Losses losses) {
  Comparison comparison(oracle, "a map");
  for (const auto& [key, value] : pairs) comparison.pair(key, value);
  EXPECT_EQ(comparison.finish(losses), pairs.size());
}

TEST_F(Power, TheOracleAgreesWithAMapAndWithNothingElse) {
  const Shape shape = small_shape(97);
  const Oracle known = oracle(shape, 9);
  const auto right = map_of(shape, 9);
  EXPECT_EQ(known.distinct(), right.size());
  for (const auto losses : {Comparison::Losses::none, Comparison::Losses::by_eviction}) {
    compare(known, right, losses);
    auto fewer = right;
    fewer.erase(fewer.begin());
    EXPECT_THROW(compare(known, fewer, losses), std::runtime_error);
    EXPECT_THROW(compare(known, map_of(shape, 8), losses), std::runtime_error);
    EXPECT_THROW(compare(known, map_of(shape, 10), losses), std::runtime_error);
    auto stale = right;
    --stale.begin()->second;
    EXPECT_THROW(compare(known, stale, losses), std::runtime_error);
    auto more = right;
    more[12345] = 1;
    EXPECT_THROW(compare(known, more, losses), std::runtime_error);
  }
  Comparison twice(known, "a map");
  twice.pair(right.begin()->first, right.begin()->second);
  EXPECT_THROW(twice.pair(right.begin()->first, right.begin()->second), std::runtime_error);
}

// A table of 32 buckets with as many keys as places: the stores evict, and what is not explained by
// that is found.
TEST_F(Power, OnlyFullBucketsMayHaveLostKeys) {
  const Shape shape{4096, 256, 200};
  const auto system = make_cap_pages(setting(shape, 10));
  run(*system, shape, 10);
  const Oracle known = oracle(shape, 10);
  const Recovered found = system->recover(known);
  EXPECT_GT(found.lost, 0u);
  EXPECT_EQ(found.pairs + found.lost, known.distinct());
  EXPECT_THROW(compare(known, {}, Comparison::Losses::by_eviction), std::runtime_error);
}

TEST_F(Power, EverySystemHoldsWhatWasSet) {
  std::mt19937_64 random(holdfast::test::test_seed());
  const bool rocksdb = load_rocksdb_if_there();
  for (const std::uint32_t batch : {1u, 64u, 700u}) {
    const Shape shape{1 << 20, 256 + random() % 512, batch};
    const std::uint64_t turns = 1 + random() % 6;
    std::vector<std::unique_ptr<System>> systems;
    for (const Layout layout : {Layout::in_place, Layout::log}) {
      for (const unsigned batches : {0u, 1u, 3u}) {
        systems.push_back(make_holdfast(setting(shape, turns), layout, batches));
      }
    }
    systems.push_back(make_cap_pages(setting(shape, turns)));
    systems.push_back(make_cap_log(setting(shape, turns)));
    if (rocksdb) {
      for (const auto form :
           {RocksDbForm::one_batch, RocksDbForm::vector_memtable, RocksDbForm::shares}) {
        systems.push_back(make_rocksdb(setting(shape, turns), form));
      }
    }
    for (const auto& system : systems) {
      SCOPED_TRACE(system->promise().system + ", " + system->promise().form);
      run(*system, shape, turns);
      const Oracle known = oracle(shape, turns * system->promise().batches_per_commit);
      const Recovered found = system->recover(known);
      EXPECT_EQ(found.pairs, known.distinct());
      EXPECT_EQ(found.lost, 0u);
    }
    systems.clear();
    EXPECT_TRUE(is_empty(folder()));
    EXPECT_TRUE(is_empty(arenas()));
  }
}

// Of a power cut the arena is no part: what was committed is there without it, what was not is
// lost.
class PowerOfLayout : public Power, public testing::WithParamInterface<Layout> {};
INSTANTIATE_TEST_SUITE_P(, PowerOfLayout, testing::Values(Layout::in_place, Layout::log));

TEST_P(PowerOfLayout, ThePowerRungNeedsNoArena) {
  const Shape shape = small_shape(50);
  const auto clear_arenas = [&] {
    for (const auto& entry : fs::directory_iterator(arenas())) fs::remove_all(entry.path());
  };
  const auto committed = make_holdfast(setting(shape, 3), GetParam(), 2);
  run(*committed, shape, 3);
  clear_arenas();
  EXPECT_GT(committed->recover(oracle(shape, 6)).pairs, 0u);

  const auto alone = make_holdfast(setting(shape, 3), GetParam(), 0);
  run(*alone, shape, 3);
  clear_arenas();
  EXPECT_THROW(alone->recover(oracle(shape, 3)), std::exception);
}

TEST_F(Power, ADamagedPageIsFound) {
  const Shape shape = small_shape(300);
  const auto system = make_cap_pages(setting(shape, 2));
  run(*system, shape, 2);
  const std::vector<char> bytes = holdfast::test::read_file(folder() + "/cap-pages");
  const auto used = std::find_if(bytes.begin(), bytes.end(), [](char byte) { return byte != 0; });
  ASSERT_NE(used, bytes.end());
  damage(folder() + "/cap-pages", static_cast<std::uint64_t>(used - bytes.begin()));
  EXPECT_THROW(system->recover(oracle(shape, 2)), std::runtime_error);
}

// A record that is not whole ends the log: what is before it is there, and it is not.
TEST_F(Power, ATornRecordEndsTheLog) {
  const Shape shape = small_shape(300);
  constexpr std::uint64_t kRecord = 8192;  // 64 + 300 * 16, in whole pages
  std::mt19937_64 random(holdfast::test::test_seed());
  for (const std::uint64_t at :
       {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{16}, std::uint64_t{24}, std::uint64_t{32},
        64 + random() % (300 * 16)}) {
    SCOPED_TRACE(at);
    const auto system = make_cap_log(setting(shape, 4));
    run(*system, shape, 4);
    damage(folder() + "/cap-log", 2 * kRecord + at);
    EXPECT_THROW(system->recover(oracle(shape, 4)), std::runtime_error);
    EXPECT_EQ(system->recover(oracle(shape, 2)).pairs, oracle(shape, 2).distinct());
  }
}

TEST_F(Power, AFullLogIsRefused) {
  const Shape shape = small_shape(10);
  const auto system = make_cap_log(setting(shape, 1));
  Inputs inputs(shape, 1);
  inputs.prepare(0, 1);
  system->run(inputs);
  EXPECT_THROW(system->run(inputs), std::runtime_error);
}

TEST_F(Power, ChecksumsAddUpAndDependOnPlaces) {
  std::mt19937_64 random(holdfast::test::test_seed());
  constexpr std::uint64_t kWords = 10'000;
  const holdfast::PinnedBuffer<std::uint64_t> words(kWords);
  for (std::uint64_t i = 0; i < kWords; ++i) words[i] = random();
  const std::uint64_t whole = checksum(words.data(), kWords, 5);
  const std::uint64_t cut = random() % kWords;
  EXPECT_EQ(checksum(words.data(), cut, 5) + checksum(words.data() + cut, kWords - cut, 5 + cut),
            whole);
  holdfast::Stream stream;
  holdfast::DeviceBuffer<std::uint64_t> device(kWords);
  holdfast::DeviceBuffer<unsigned long long> sum(1);
  const holdfast::PinnedBuffer<unsigned long long> sum_host(1);
  copy_async(stream, device.data(), words.data(), device.bytes());
  launch_checksum(stream, device.data(), kWords, 5, sum.data());
  copy_async(stream, sum_host.data(), sum.data(), sum.bytes());
  stream.synchronize();
  EXPECT_EQ(sum_host[0], whole);
  std::swap(words[0], words[1]);
  EXPECT_NE(checksum(words.data(), kWords, 5), whole);
}

TEST_F(Power, FilesHoldWhatIsWrittenAtRandom) {
  std::mt19937_64 random(holdfast::test::test_seed());
  Team team(3);
  for (const std::string& where : {folder(), arenas()}) {
    constexpr std::uint64_t kPages = 3000;  // some pieces are cut into parts
    const std::string path = where + "/file";
    std::vector<std::byte> known(kPages * kDiskPage);
    {
      DiskFile file(path, known.size());
      const AlignedMemory memory(known.size());
      for (int round = 0; round < 5; ++round) {
        std::vector<DiskFile::Piece> pieces;
        for (std::uint64_t page = random() % 5; page < kPages;) {
          const std::uint64_t count = std::min(1 + random() % 1500, kPages - page);
          const std::uint64_t at = page * kDiskPage, bytes = count * kDiskPage;
          for (std::uint64_t i = 0; i < bytes; ++i) {
            memory.data()[at + i] = static_cast<std::byte>(random());
          }
          std::copy_n(memory.data() + at, bytes, known.data() + at);
          pieces.push_back({at, memory.data() + at, bytes});
          page += count + random() % 7;
        }
        file.write(team, pieces);
        file.sync();
      }
    }
    const DiskFile file = DiskFile::open_cold(path);
    ASSERT_EQ(file.bytes(), known.size());
    const AlignedMemory memory(known.size());
    file.read(team, {0, memory.data(), known.size()});
    EXPECT_TRUE(std::equal(known.begin(), known.end(), memory.data()));
    EXPECT_THROW(file.read({known.size(), memory.data(), kDiskPage}), std::runtime_error);
    EXPECT_THROW(DiskFile(path, kDiskPage), std::runtime_error);  // others' files are left alone
    fs::remove(path);
  }
  EXPECT_THROW(DiskFile::open_cold(folder() + "/none"), std::runtime_error);
}

TEST_F(Power, AComparisonMeasuresAllAndLeavesNothing) {
  Plan plan;
  plan.shape = small_shape(256);
  plan.batches_per_commit = {1, 2};
  plan.warm = 1;
  plan.repeat = 3;
  plan.threads = 2;
  plan.rocksdb = load_rocksdb_if_there();
  std::multiset<std::string> systems;
  {
    const ScratchFolder scratch(folder());
    plan.folder = scratch.path();
    compare_systems(plan, [&](const Result& result) {
      systems.insert(result.promise.system);
      const bool on_disk = result.promise.rung == "power";
      EXPECT_EQ(result.turns.size(), 3u);
      EXPECT_EQ(result.batches, 4 * result.promise.batches_per_commit);
      EXPECT_EQ(result.plain_seconds.size(), on_disk ? 3u : 0u);
      EXPECT_GT(result.recovered.pairs, 0u);
    });
  }
  const std::size_t rocksdb = plan.rocksdb ? 3 : 0;
  EXPECT_EQ(systems.count("holdfast"), 6u);
  EXPECT_EQ(systems.count("rocksdb"), rocksdb);
  EXPECT_EQ(systems.size(), 8 + rocksdb);
  EXPECT_TRUE(is_empty(folder()));
  EXPECT_TRUE(is_empty(arenas()));
}

TEST_F(Power, WhatCannotBeMeasuredIsRefused) {
  for (const Shape& shape : {Shape{3 << 20, 100, 1}, Shape{2048, 1, 1}, Shape{0, 1, 1},
                             Shape{1 << 20, 0, 1}, Shape{1 << 20, (1 << 16) + 1, 1},
                             Shape{1 << 20, 1, 0}, Shape{1 << 20, 1, (1u << 26) + 1}}) {
    EXPECT_THROW(check_shape(shape), std::invalid_argument);
  }
  check_shape(small_shape(1));
  Plan plan;
  plan.shape = small_shape(1);
  plan.folder = folder();
  plan.repeat = 0;
  EXPECT_THROW(compare_systems(plan, [](const Result&) {}), std::invalid_argument);
  EXPECT_THROW(ScratchFolder(folder() + "/none"), std::runtime_error);
  if (!load_rocksdb_if_there()) {
    EXPECT_FALSE(load_rocksdb(folder() + "/librocksdb.so").empty());
    holdfast::test::write_file(folder() + "/librocksdb.so", {'n', 'o'});
    EXPECT_FALSE(load_rocksdb(folder() + "/librocksdb.so").empty());
  }
}

}  // namespace
}  // namespace power

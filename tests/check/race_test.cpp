// The race detector on kernels whose races are known, and on what we ship.
#include "check/race_test.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "check/race.hpp"
#include "check/recorder.hpp"
#include "check/source_lines.hpp"
#include "holdfast/cpu/executor.hpp"
#include "holdfast/cpu/host_observer.hpp"
#include "holdfast/kv_store.hpp"
#include "support/scratch.hpp"
#include "undo_log/log_kernels.hpp"

namespace holdfast::test {
namespace {

using check::Race;
using check::RaceDetector;

// Listens while it lives.
class Detecting {
 public:
  explicit Detecting(std::size_t max_bytes = std::size_t{64} << 20) : detector(max_bytes) {
    cpu::set_listener(&detector);
  }
  ~Detecting() { cpu::set_listener(nullptr); }
  Detecting(const Detecting&) = delete;
  Detecting& operator=(const Detecting&) = delete;

  std::vector<Race> races() const { return detector.races(); }
  std::vector<std::string> kinds() const {
    std::vector<std::string> kinds;
    for (const Race& race : detector.races()) kinds.push_back(race.kind);
    std::sort(kinds.begin(), kinds.end());
    return kinds;
  }
  std::string text() const {
    check::SourceLines lines;
    std::string text;
    for (const Race& race : detector.races()) {
      text += to_string(race) + "\n";
      for (const check::RaceSide& side : {race.first, race.second}) {
        if (side.site.file)
          text += "  " + std::string(side.site.file) + ":" + std::to_string(side.site.line) + "\n";
        if (side.site.pc == nullptr) continue;
        for (const check::SourceLine& line : lines.resolve(side.site.pc)) {
          text += "  " + line.file + ":" + std::to_string(line.line) + " " + line.function + "\n";
        }
        text += "  --\n";
      }
    }
    return text;
  }

  RaceDetector detector;
};

#define EXPECT_NO_RACE(detecting)                                 \
  EXPECT_TRUE((detecting).races().empty()) << (detecting).text(); \
  EXPECT_TRUE((detecting).detector.complete())

using Kinds = std::vector<std::string>;

// Sets the seed of kernels' schedules for a test's duration.
class SeedScope {
 public:
  explicit SeedScope(std::uint64_t seed) : before_(cpu::schedule()) {
    cpu::Schedule schedule = before_;
    schedule.seed = seed;
    cpu::set_schedule(schedule);
  }
  ~SeedScope() { cpu::set_schedule(before_); }
  SeedScope(const SeedScope&) = delete;
  SeedScope& operator=(const SeedScope&) = delete;

 private:
  cpu::Schedule before_;
};

template <class... Arguments>
void run(dim3 grid, dim3 block, auto kernel, Arguments... arguments) {
  Stream stream;
  launch(stream, grid, block, kernel, arguments...);
  stream.synchronize();
}

// Every kernel under the index order and some others: whether threads race is no matter of luck,
// as long as they do the same.
class RaceTest : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  SeedScope seed_{GetParam()};
  std::vector<unsigned> words_ = std::vector<unsigned>(4096);
  std::vector<unsigned> out_ = std::vector<unsigned>(4096);
  unsigned data_ = 0, flag_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Schedules, RaceTest, ::testing::Values(0, 1, 2, 3));

TEST_P(RaceTest, AMissingBlockBarrier) {
  Detecting with;
  run(3, 64, neighbour, out_.data(), true);
  EXPECT_NO_RACE(with);
  run(1, 64, neighbour, out_.data(), false);
  EXPECT_EQ(with.kinds(), (Kinds{"read-write"}));
  ASSERT_FALSE(with.races().empty());
  const Race race = with.races().front();
  EXPECT_TRUE(race.is_shared);
  EXPECT_NE(race.first.is_write, race.second.is_write);
  EXPECT_NE(race.first.thread, race.second.thread);
}

TEST_P(RaceTest, AMissingWarpBarrier) {
  Detecting with;
  run(1, 32, warp_neighbour, out_.data(), true);
  EXPECT_NO_RACE(with);
  run(1, 32, warp_neighbour, out_.data(), false);
  EXPECT_EQ(with.kinds(), (Kinds{"read-write"}));
}

TEST_P(RaceTest, AWarpBarrierOrdersTheLanesOfItsMaskAlone) {
  Detecting with;
  run(1, 32, warp_halves, out_.data());
  EXPECT_EQ(with.kinds(), (Kinds{"read-write"}));
}

TEST_P(RaceTest, SharedMemoryIsEachBlocksOwn) {
  Detecting with;
  Stream stream;
  launch(stream, LaunchShape{40, 32, 128}, dynamic_neighbour, out_.data());
  launch(stream, 40, 64, neighbour, out_.data(), true);
  stream.synchronize();
  EXPECT_NO_RACE(with);
}

TEST_P(RaceTest, AtomicsOfBlockScopeReachTheBlockAlone) {
  Detecting with;
  run(1, 64, count_block, &flag_);
  run(4, 64, count_device, &flag_);
  EXPECT_NO_RACE(with);
  run(2, 64, count_block, &flag_);
  EXPECT_EQ(with.kinds(), (Kinds{"scope too narrow: block"}));
  ASSERT_FALSE(with.races().empty());
  EXPECT_NE(with.races()[0].first.block, with.races()[0].second.block);
  ASSERT_FALSE(with.races().empty());
  EXPECT_EQ(with.races()[0].address, &flag_);
  EXPECT_NE(std::string(with.races()[0].first.site.file).find("race_test.cu"), std::string::npos);
}

TEST_P(RaceTest, ReleaseAndAcquireOfBlockScopeAcrossBlocks) {
  Detecting with;
  run(2, 1, pass_release_block, &data_, &flag_, out_.data());
  const Kinds kinds = with.kinds();
  ASSERT_EQ(kinds.size(), 2u) << with.text();
  EXPECT_EQ(kinds, (Kinds{"read-write", "scope too narrow: block"}));
}

TEST_P(RaceTest, ReleaseAndAcquireWithinABlock) {
  Detecting with;
  run(1, 1, pass_release_block, &data_, &flag_, out_.data());
  EXPECT_NO_RACE(with);
}

TEST_P(RaceTest, ReleaseAndAcquireOfDeviceScope) {
  Detecting with;
  run(2, 1, pass_release_device, &data_, &flag_, out_.data());
  EXPECT_NO_RACE(with);
}

TEST_P(RaceTest, TheAcquireHasToBeWideEnoughToo) {
  Detecting with;
  run(2, 1, pass_release_narrow_acquire, &data_, &flag_, out_.data());
  EXPECT_EQ(with.kinds(), (Kinds{"read-write", "scope too narrow: block"}));
}

TEST_P(RaceTest, MessagesByAVolatileFlagNeedFencesOnBothSides) {
  struct Case {
    Fence before, after;
    bool races;
  };
  for (const auto& [before, after, races] :
       {Case{Fence::device, Fence::device, false}, Case{Fence::persist, Fence::device, false},
        Case{Fence::persist, Fence::persist, false}, Case{Fence::none, Fence::device, true},
        Case{Fence::device, Fence::none, true}, Case{Fence::none, Fence::none, true},
        Case{Fence::block, Fence::device, true}, Case{Fence::device, Fence::block, true},
        Case{Fence::order, Fence::device, true}}) {
    Detecting with;
    data_ = flag_ = 0;
    run(2, 1, pass_volatile, &data_, static_cast<volatile unsigned*>(&flag_), out_.data(), before,
        after);
    EXPECT_EQ(out_[0], 7u);
    EXPECT_EQ(with.kinds(), races ? Kinds{"read-write"} : Kinds{})
        << static_cast<int>(before) << static_cast<int>(after) << with.text();
    if (races && !with.races().empty()) {
      ASSERT_FALSE(with.races().empty());
      EXPECT_EQ(with.races()[0].address, &data_);
    }
  }
}

TEST_P(RaceTest, WhatAStrongReadHasSeenMayBeReadWeakly) {
  Detecting with;
  unsigned flags[2] = {};
  run(2, 1, pass_volatile_twice, &data_, static_cast<volatile unsigned*>(flags), out_.data());
  EXPECT_NO_RACE(with);
}

TEST_P(RaceTest, AReleaseOutlastsUpdatesAndNotAStore) {
  Detecting with;
  run(5, 1, pass_through_updates, &data_, &flag_, out_.data());
  EXPECT_EQ(out_[0], 7u);
  EXPECT_NO_RACE(with);
  data_ = flag_ = out_[1] = 0;
  run(3, 1, pass_overwritten, &data_, &flag_, out_.data(), true);
  EXPECT_NO_RACE(with);
  data_ = flag_ = out_[1] = 0;
  run(3, 1, pass_overwritten, &data_, &flag_, out_.data(), false);
  EXPECT_EQ(with.kinds(), (Kinds{"read-write"}));
  ASSERT_FALSE(with.races().empty());
  EXPECT_EQ(with.races()[0].address, &data_);
}

TEST_P(RaceTest, AnAcquireCompletesEarlierReadsOfItsVariable) {
  Detecting with;
  run(3, 1, pass_polled, &data_, &flag_, out_.data());
  EXPECT_EQ(out_[0], 7u);
  EXPECT_NO_RACE(with);
}

TEST_P(RaceTest, TheLastBlockMayReadWhatTheOthersFenced) {
  std::fill(words_.begin(), words_.end(), 1);
  unsigned total = 0;
  for (const auto& [before, after] : {std::pair{true, true}, {false, true}, {true, false}}) {
    Detecting with;
    run(40, 32, last_block, static_cast<const unsigned*>(words_.data()), out_.data(), &flag_,
        &total, before, after);
    EXPECT_EQ(total, 40u * 32);
    EXPECT_EQ(with.kinds(), before && after ? Kinds{} : Kinds{"read-write"}) << with.text();
  }
}

TEST_P(RaceTest, AReductionInSharedMemory) {
  Detecting with;
  run(8, 128, reduce, static_cast<const unsigned*>(words_.data()), out_.data());
  EXPECT_NO_RACE(with);
}

TEST_P(RaceTest, KernelsOfAStreamFollowEachOther) {
  Detecting with;
  Stream stream;
  launch(stream, 4, 64, add_one_each, words_.data());
  launch(stream, 2, 128, add_one_each, words_.data());
  copy_async(stream, out_.data(), words_.data(), 1024);
  launch(stream, 1, 256, add_one_each, words_.data());
  stream.synchronize();
  EXPECT_NO_RACE(with);
}

TEST_P(RaceTest, BytesAreToldApart) {
  Detecting with;
  auto* const bytes = reinterpret_cast<unsigned char*>(words_.data());
  run(4, 64, adjacent_bytes, bytes);
  EXPECT_NO_RACE(with);
  run(1, 2, overlapping_words, bytes);
  EXPECT_EQ(with.kinds(), (Kinds{"write-write"}));
  ASSERT_FALSE(with.races().empty());
  EXPECT_EQ(with.races()[0].address, bytes + 3);
}

TEST_P(RaceTest, ALock) {
  Detecting with;
  run(8, 1, spin_lock, &flag_, &data_, true);
  EXPECT_EQ(data_, 8u);
  EXPECT_NO_RACE(with);
  run(8, 1, spin_lock, &flag_, &data_, false);
  EXPECT_FALSE(with.races().empty());
}

TEST_P(RaceTest, WritesOfOneValueRaceAllTheSame) {
  Detecting with;
  run(1, 2, same_value, &data_);
  EXPECT_EQ(with.kinds(), (Kinds{"write-write"}));
}

// "Morally strong" in PTX are accesses of the same bytes alone.
TEST_P(RaceTest, StrongAccessesOfMixedSizesRace) {
  for (const Mixed kind : {Mixed::store_half, Mixed::read_half, Mixed::add_half}) {
    Detecting with;
    unsigned long long word = 0;
    run(2, 1, mixed_sizes, &word, kind);
    EXPECT_EQ(with.kinds(), (Kinds{"mixed sizes"})) << static_cast<int>(kind);
  }
  Detecting with;
  unsigned long long word = 0;
  run(2, 1, mixed_sizes, &word, Mixed::whole);
  EXPECT_NO_RACE(with);
}

// PTX: a read-modify-write writes, even what was there; a compare-and-swap that fails reads.
TEST_P(RaceTest, AnEqualValueIsAWriteAllTheSame) {
  Detecting writes;
  run(2, 1, equal_update, &data_, out_.data(), 0u);
  EXPECT_EQ(writes.kinds(), (Kinds{"read-write"}));
  Detecting reads;
  run(2, 1, equal_update, &data_, out_.data(), 1u);
  EXPECT_NO_RACE(reads);
}

// The recorder says the same as the detector: three updates and a read.
TEST_P(RaceTest, ARecordingTellsAFailedSwapFromAnEqualOne) {
  const auto begin = reinterpret_cast<std::uintptr_t>(&data_);
  check::Recorder recorder({begin, begin + sizeof data_});
  check::Trace trace;
  recorder.begin(&trace, nullptr);
  cpu::set_listener(&recorder);
  run(1, 1, swaps, &data_);
  cpu::set_listener(nullptr);
  recorder.begin(nullptr, nullptr);
  std::vector<check::OpKind> kinds;
  for (const check::Op& op : trace.ops) {
    if (op.address == begin) kinds.push_back(op.kind);
  }
  using check::OpKind;
  EXPECT_EQ(kinds,
            (std::vector<OpKind>{OpKind::update, OpKind::read, OpKind::update, OpKind::update}));
}

TEST_P(RaceTest, AHotVariableKeepsItsRace) {
  Detecting with;
  run(8, 128, all_read, static_cast<const unsigned*>(words_.data()), out_.data());
  EXPECT_NO_RACE(with);
  run(8, 128, all_read, static_cast<const unsigned*>(out_.data()), out_.data());
  EXPECT_EQ(with.kinds(), (Kinds{"read-write"}));
}

TEST_P(RaceTest, TheHostHasToWait) {
  Detecting with;
  const cpu::HostObserver observer;
  Stream stream;
  store_on_host(words_.data(), 1);
  launch(stream, 1, 1, add_one_each, words_.data());
  stream.synchronize();
  EXPECT_EQ(load_on_host(words_.data()), 2u);
  copy_async(stream, &out_[0], &words_[0], 4);
  stream.synchronize();
  EXPECT_EQ(load_on_host(out_.data()), 2u);
  EXPECT_NO_RACE(with);
  Event done;
  launch(stream, 1, 1, add_one_each, words_.data());
  copy_async(stream, &out_[0], &words_[0], 4);
  done.record(stream);
  // Waits in a way that no event tells of.
  bool ran = false;
  while (!ran) {
    try {
      Event::elapsed_ms(done, done);
      ran = true;
    } catch (const Error&) {
    }
  }
  load_on_host(&words_[0]);
  load_on_host(&out_[0]);
  store_on_host(&words_[1], 1);
  EXPECT_EQ(with.kinds(), (Kinds{"host does not wait", "host does not wait"})) << with.text();
}

TEST_P(RaceTest, LittleMemoryLosesRacesAndMakesNone) {
  Detecting with(100'000);
  std::fill(words_.begin(), words_.end(), 1);
  unsigned total = 0;
  run(64, 32, last_block, static_cast<const unsigned*>(words_.data()), out_.data(), &flag_, &total,
      true, true);
  run(64, 64, add_one_each, words_.data());
  EXPECT_TRUE(with.races().empty()) << with.text();
  EXPECT_FALSE(with.detector.complete());
}

TEST_P(RaceTest, AFailedKernelLeavesNothingBehind) {
  Detecting with;
  Stream stream;
  launch(stream, 1, 2, same_value, reinterpret_cast<unsigned*>(16));
  EXPECT_THROW(stream.synchronize(), Error);
  run(1, 64, neighbour, out_.data(), true);
  EXPECT_NO_RACE(with);
}

// What we ship.

class ShippedTest : public Scratch {
 protected:
  // PageMarks::mark() lets any number of threads store the same byte to a page's mark. That is a
  // race by the letter, and the only one.
  static void expect_marks_alone(const Detecting& with) {
    check::SourceLines lines;
    for (const Race& race : with.races()) {
      EXPECT_EQ(race.kind, "write-write");
      for (const check::RaceSide& side : {race.first, race.second}) {
        const check::SourceLine line = lines.resolve(side.site.pc).front();
        EXPECT_TRUE(line.file.ends_with("/holdfast/page_marks.hpp")) << with.text();
      }
    }
    EXPECT_TRUE(with.detector.complete());
  }
  void set_seed(std::uint64_t seed) {
    cpu::Schedule schedule;
    schedule.seed = seed;
    cpu::set_schedule(schedule);
  }
  void TearDown() override {
    cpu::set_schedule({});
    Scratch::TearDown();
  }
};

TEST_F(ShippedTest, UndoLogs) {
  constexpr std::uint32_t kThreads = 70;
  for (const std::uint64_t seed : {0, 1, 2}) {
    set_seed(seed);
    Detecting with;
    Region region = Region::create(path(std::to_string(seed)), options(16 << 20));
    Transaction transaction = Transaction::create(region, "tx");
    Stream stream;
    PinnedBuffer<LogTally> tally(1);
    PinnedBuffer<std::uint32_t> seen(40 * 3);
    for (const LogLayout layout : {LogLayout::coalesced, LogLayout::conventional}) {
      const bool coalesced = layout == LogLayout::coalesced;
      const UndoLog log =
          transaction.create_log(region, coalesced ? "log" : "parts", {layout, kThreads, 96});
      for (const std::uint32_t bytes : {5u, 8u, 24u}) {
        insert_entries(stream, log, kThreads, 3, bytes, tally.data());
        drain_entries(stream, log, kThreads, 2, 2, bytes, tally.data());
        clear_slots(stream, log, kThreads);
      }
      if (!coalesced) {
        insert_shared(stream, log, 40, 3, tally.data());
        pop_shared(stream, log, 40, 3, seen.data());
      }
      stream.synchronize();
    }
    expect_marks_alone(with);
  }
}

TEST_F(ShippedTest, LoggedUpdatesWithMarkedPages) {
  constexpr std::uint32_t kCells = 3000;
  Region region = Region::create(path(), options(16 << 20));
  auto cells = region.allocate<std::uint64_t>("cells", kCells, Tracking::marked);
  Transaction transaction = Transaction::create(region, "tx");
  const UndoLog log = transaction.create_log(region, "log", LogShape::coalesced(kCells, 64));
  Stream stream;
  Detecting with;
  transaction.begin(stream);
  add_one(stream, log, cells.data(), kCells, region.marks());
  recover(stream, transaction, {{log, cells.data(), kCells, region.marks()}});
  transaction.begin(stream);
  add_one(stream, log, cells.data(), kCells, region.marks());
  transaction.commit(stream);
  region.commit(stream);
  stream.synchronize();
  expect_marks_alone(with);
}

using Keys = std::vector<std::uint64_t>;

TEST_F(ShippedTest, KeyValueStore) {
  std::mt19937_64 random(test_seed());
  constexpr std::size_t kBatch = 700;
  RegionOptions options;
  options.size = KvStore::region_bytes({4096, kBatch});
  Region region = Region::create(path(), options);
  for (const std::uint64_t seed : {0, 1, 2}) {
    set_seed(seed);
    Detecting with;
    KvStore store = seed == 0 ? KvStore::create(region, {4096, kBatch}) : KvStore::open(region);
    for (const KvStore::Order order : {KvStore::Order::ordered, KvStore::Order::unordered}) {
      store.set_order(order);
      Keys keys(kBatch), values(kBatch);
      std::vector<std::uint8_t> found(kBatch);
      for (auto& key : keys) key = random() % 1000;
      for (auto& value : values) value = random();
      store.set(keys.data(), values.data(), kBatch);
      store.get(keys.data(), values.data(), found.data(), kBatch);
      store.erase(keys.data(), kBatch / 2);
      EXPECT_EQ(store.verify(), "");
    }
    expect_marks_alone(with);
  }
}

}  // namespace
}  // namespace holdfast::test

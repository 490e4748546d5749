// Both layouts through one interface, and the bytes that they leave on the medium.
#include "holdfast/undo_log.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <vector>

#include "support/scratch.hpp"
#include "undo_log/log_kernels.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::LogTally;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class LogTest : public test::Scratch {
 protected:
  Region region = Region::create(path(), options(64 * kMiB));
  Transaction transaction = Transaction::create(region, "tx");
  Stream stream;
  PinnedBuffer<LogTally> tally{1};

  UndoLog make(const LogShape& shape, const char* name = "log") {
    return transaction.create_log(region, name, shape);
  }
  LogTally insert(const UndoLog& log, std::uint32_t threads, std::uint32_t entries,
                  std::uint32_t bytes) {
    tally[0] = {};
    test::insert_entries(stream, log, threads, entries, bytes, tally.data());
    stream.synchronize();
    return tally[0];
  }
  LogTally drain(const UndoLog& log, std::uint32_t threads, std::uint32_t entries,
                 std::uint32_t newest, std::uint32_t bytes) {
    tally[0] = {};
    test::drain_entries(stream, log, threads, entries, newest, bytes, tally.data());
    stream.synchronize();
    return tally[0];
  }
  std::uint32_t used_slots(const UndoLog& log) {
    PinnedBuffer<std::uint32_t> count(1);
    test::count_used_slots(stream, log, count.data());
    stream.synchronize();
    return count[0];
  }
};

class LayoutTest : public LogTest, public ::testing::WithParamInterface<LogLayout> {};

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutTest,
                         ::testing::Values(LogLayout::coalesced, LogLayout::conventional),
                         [](const auto& info) {
                           return info.param == LogLayout::coalesced ? "coalesced" : "conventional";
                         });

TEST_P(LayoutTest, EntriesOfEverySizeComeBackNewestFirst) {
  constexpr std::uint32_t kThreads = 70;  // the third warp is not whole
  for (const std::uint32_t bytes : {4u, 5u, 8u, 12u, 24u, 64u, 100u, 1023u, 4096u}) {
    const UndoLog log = make({GetParam(), kThreads, 3 * ((bytes + 3) / 4 * 4)});
    EXPECT_EQ(used_slots(log), 0u);
    EXPECT_EQ(insert(log, kThreads, 3, bytes).ok, kThreads * 3) << bytes;
    EXPECT_EQ(used_slots(log), kThreads);
    const LogTally read = drain(log, kThreads, 3, 2, bytes);
    EXPECT_EQ(read.ok, kThreads * 3) << bytes;
    EXPECT_EQ(read.wrong_bytes, 0u) << bytes;
    EXPECT_EQ(used_slots(log), 0u);
    EXPECT_EQ(drain(log, kThreads, 1, 0, bytes).empty, kThreads);
    transaction.remove_log(region, "log");
  }
}

TEST_P(LayoutTest, AFullSlotRefusesAndKeepsWhatItHas) {
  const UndoLog log = make({GetParam(), 40, 64});
  const LogTally first = insert(log, 40, 4, 24);
  EXPECT_EQ(first.ok, 40u * 2);
  EXPECT_EQ(first.full, 40u * 2);
  const LogTally read = drain(log, 40, 2, 1, 24);
  EXPECT_EQ(read.ok, 80u);
  EXPECT_EQ(read.wrong_bytes, 0u);
}

TEST_P(LayoutTest, SizesAndSlotsOutOfBoundsAreRefused) {
  const UndoLog log = make({GetParam(), 32, 64});
  EXPECT_EQ(insert(log, 32, 1, 0).bad_size, 32u);
  EXPECT_EQ(insert(log, 32, 1, kMaxEntryBytes + 1).bad_size, 32u);
  EXPECT_EQ(insert(log, 33, 1, 4).bad_slot, 1u);
  EXPECT_EQ(used_slots(log), 32u);
}

TEST_P(LayoutTest, ClearEmptiesItsSlotAlone) {
  const UndoLog log = make({GetParam(), 64, 64});
  insert(log, 64, 1, 8);
  test::clear_slots(stream, log, 10);
  stream.synchronize();
  EXPECT_EQ(used_slots(log), 54u);
}

TEST_P(LayoutTest, OpensAgainWithItsEntries) {
  const LogShape shape{GetParam(), 50, 256};
  {
    const UndoLog log = make(shape);
    insert(log, 50, 2, 20);
  }
  region.close();
  region = Region::open(path());
  transaction = Transaction::open(region, "tx");
  const UndoLog log = transaction.log("log");
  EXPECT_EQ(log.shape().layout, GetParam());
  const LogTally read = drain(log, 50, 2, 1, 20);
  EXPECT_EQ(read.ok, 100u);
  EXPECT_EQ(read.wrong_bytes, 0u);
}

TEST_P(LayoutTest, ATailThatPointsPastItsSlotIsNotFollowed) {
  {
    const UndoLog log = make({GetParam(), 32, 64});
    insert(log, 32, 1, 8);
  }
  auto* object = static_cast<std::byte*>(region.address(region.object("log")));
  auto* tails = reinterpret_cast<std::uint32_t*>(object + kPageBytes);
  for (int slot = 0; slot < 32; ++slot) tails[slot] |= 0xffff;
  transaction = Transaction::open(region, "tx");
  const UndoLog log = transaction.log("log");
  EXPECT_EQ(drain(log, 32, 100, 0, 8).ok, 32u * 64 / 8);
}

// The format of docs/format.md, read by hand: word k of the 32 slots of a warp is one line.
TEST_F(LogTest, TheCoalescedLayoutIsAsDocumented) {
  constexpr std::uint32_t kWords = 6;
  const UndoLog log = make(LogShape::coalesced(64, kWords * 4));
  insert(log, 64, 1, 24);
  const auto* object = static_cast<const std::byte*>(region.address(region.object("log")));
  const auto* tails = reinterpret_cast<const std::uint32_t*>(object + kPageBytes);
  const std::byte* words = object + 2 * kPageBytes;
  for (std::uint32_t thread = 0; thread < 64; ++thread) {
    EXPECT_EQ(tails[thread], 1u << 16 | kWords);
    for (std::uint32_t i = 0; i < 24; ++i) {
      const std::size_t line = thread / 32 * kWords + i / 4;
      EXPECT_EQ(static_cast<std::uint8_t>(words[line * 128 + thread % 32 * 4 + i % 4]),
                test::entry_byte(thread, 0, i));
    }
  }
}

TEST_F(LogTest, ThreadsThatShareAPartitionLoseNothing) {
  constexpr std::uint32_t kThreads = 500;
  constexpr std::uint32_t kEntries = 4;
  const UndoLog log = make(LogShape::conventional(7, 8 * kThreads * kEntries / 7 + 64));
  PinnedBuffer<std::uint32_t> seen(kThreads * kEntries);
  tally[0] = {};
  test::insert_shared(stream, log, kThreads, kEntries, tally.data());
  test::pop_shared(stream, log, kThreads, kEntries, seen.data());
  stream.synchronize();
  EXPECT_EQ(tally[0].ok, kThreads * kEntries);
  for (std::uint32_t i = 0; i < kThreads * kEntries; ++i) EXPECT_EQ(seen[i], 1u) << i;
}

TEST_F(LogTest, ShapesThatCannotBeAreRefused) {
  const auto code_of = [&](const LogShape& shape) { return error_of([&] { make(shape); }); };
  EXPECT_EQ(code_of(LogShape::coalesced(0, 8)), Errc::invalid_argument);
  EXPECT_EQ(code_of(LogShape::coalesced(8, 0)), Errc::invalid_argument);
  EXPECT_EQ(code_of(LogShape::coalesced(8, LogShape::kMaxSlotBytes + 4)), Errc::invalid_argument);
  EXPECT_EQ(code_of(LogShape::conventional(LogShape::kMaxSlots + 1, 8)), Errc::invalid_argument);
  EXPECT_EQ(code_of({static_cast<LogLayout>(7), 32, 8}), Errc::invalid_argument);
  EXPECT_EQ(code_of(LogShape::coalesced(1 << 20, 4096)), Errc::no_space);
}

// Which transaction a damaged log belongs to cannot be told, and it may hold what is to be undone.
TEST_F(LogTest, ADamagedHeaderIsRefused) {
  make(LogShape::coalesced(32, 64));
  auto* bytes = static_cast<std::uint8_t*>(region.address(region.object("log")));
  for (int i = 0; i < 96; ++i) {
    bytes[i] ^= 4;
    EXPECT_EQ(error_of([&] { Transaction::open(region, "tx"); }, {"'log'", path(), "damaged"}),
              Errc::damaged)
        << i;
    bytes[i] ^= 4;
  }
  EXPECT_NO_THROW(Transaction::open(region, "tx").log("log"));
}

// Only bytes can be a log.
TEST_F(LogTest, AStructOfItsTypeStopsNoTransaction) {
  region.allocate_raw("theirs", "undo_log", 16, 300, Tracking::marked);
  std::memset(region.address(region.object("theirs")), 7, 16 * 300);
  EXPECT_EQ(error_of([&] { make(LogShape::coalesced(32, 64), "theirs"); }), Errc::already_exists);
  make(LogShape::coalesced(32, 64));
  EXPECT_NO_THROW(Transaction::open(region, "tx").log("log"));
  EXPECT_TRUE(region.contains("theirs"));
}

TEST_F(LogTest, AnObjectOfAnotherSizeIsRefused) {
  make(LogShape::coalesced(32, 64));
  const auto* bytes = static_cast<const std::uint8_t*>(region.address(region.object("log")));
  const std::vector<std::uint8_t> header(bytes, bytes + 96);
  for (const std::uint64_t size : {std::uint64_t{50}, 2 * std::uint64_t{kPageBytes}}) {
    transaction.remove_log(region, "log");
    void* const other = region.allocate_raw("log", "undo_log", 1, size, Tracking::marked);
    std::memcpy(other, header.data(), std::min<std::uint64_t>(size, 96));
    EXPECT_EQ(error_of([&] { Transaction::open(region, "tx"); }, {"'log'"}), Errc::damaged);
    region.remove("log");
    transaction.create_log(region, "log", LogShape::coalesced(32, 64));
  }
}

// A kill before the header's magic number leaves an object that is no log yet.
TEST_F(LogTest, ALogWhoseCreationWasCutOffIsMadeAgain) {
  make(LogShape::coalesced(32, 64));
  static_cast<std::uint64_t*>(region.address(region.object("log")))[0] = 0;
  transaction = Transaction::open(region, "tx");
  EXPECT_EQ(error_of([&] { transaction.log("log"); }, {"'tx'", "'log'"}), Errc::not_found);
  EXPECT_EQ(insert(make(LogShape::coalesced(64, 64)), 64, 1, 8).ok, 64u);
}

TEST_F(LogTest, LogsBelongToTheirTransaction) {
  make(LogShape::coalesced(32, 64));
  make(LogShape::conventional(3, 64), "parts");
  Transaction other = Transaction::create(region, "other");
  other.create_log(region, "its own", LogShape::coalesced(32, 64));
  EXPECT_EQ(error_of([&] { make(LogShape::coalesced(32, 64), "its own"); }), Errc::already_exists);
  other = Transaction::open(region, "other");
  EXPECT_EQ(error_of([&] { other.log("log"); }, {"'other'", "'log'"}), Errc::not_found);
  transaction = Transaction::open(region, "tx");
  EXPECT_EQ(transaction.log("log").shape().slots, 32u);
  EXPECT_EQ(transaction.log("parts").shape().layout, LogLayout::conventional);
  EXPECT_EQ(transaction.log("parts").name(), "parts");

  Region second = Region::create(path("second"), options(kMiB));
  EXPECT_EQ(error_of([&] { transaction.create_log(second, "far", LogShape::coalesced(32, 64)); },
                     {"'tx'", path("second")}),
            Errc::invalid_argument);
  // Its tails would count for a transaction that begins with the first epoch, too.
  region.remove("tx");
  EXPECT_EQ(error_of([&] { Transaction::create(region, "tx"); }, {"'tx'", "'log'", "remove it"}),
            Errc::already_exists);
}

// A stripe's words stand 128 bytes apart: a large entry covers pages that neither end of it is in.
TEST_F(LogTest, ACommitHoldsAllOfALargeEntry) {
  constexpr std::uint32_t kBytes = kMaxEntryBytes;
  make(LogShape::coalesced(32, kBytes));
  region.commit();  // from here on marks alone say what changes
  insert(transaction.log("log"), 32, 1, kBytes);
  region.commit();
  region.abandon();
  std::filesystem::remove(only_file(arenas()));
  region = Region::open(path(), last_commit());
  transaction = Transaction::open(region, "tx");
  const LogTally read = drain(transaction.log("log"), 32, 1, 0, kBytes);
  EXPECT_EQ(read.ok, 32u);
  EXPECT_EQ(read.wrong_bytes, 0u);
}

}  // namespace
}  // namespace holdfast

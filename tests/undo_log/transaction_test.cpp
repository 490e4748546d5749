// The transaction flag: commits, recoveries, misuse, and processes that are really killed.
#include "holdfast/transaction.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "holdfast/undo_log.hpp"
#include "support/in_child.hpp"
#include "support/killed_child.hpp"
#include "support/scratch.hpp"
#include "support/stream_gate.hpp"
#include "undo_log/log_kernels.hpp"

namespace holdfast {
namespace {

using detail::concat;
using test::error_of;

constexpr std::uint32_t kCells = 2000;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// An array of counters that go up together, each step a transaction.
struct Counters {
  Region region;
  Transaction transaction;
  UndoLog log;
  std::span<std::uint64_t> cells;
  Stream stream;

  static Counters create(const std::string& path) {
    RegionOptions options;
    options.size = 4 * kMiB;
    Region region = Region::create(path, options);
    Transaction transaction = Transaction::create(region, "tx");
    UndoLog log = transaction.create_log(region, "log", LogShape::coalesced(kCells, 16));
    auto cells = region.allocate<std::uint64_t>("cells", kCells, Tracking::marked);
    return {std::move(region), std::move(transaction), std::move(log), cells, Stream()};
  }
  static Counters open(const std::string& path) {
    Region region = Region::open(path);
    Transaction transaction = Transaction::open(region, "tx");
    UndoLog log = transaction.log("log");
    auto cells = region.find<std::uint64_t>("cells");
    return {std::move(region), std::move(transaction), std::move(log), cells, Stream()};
  }

  test::Cells all() const { return {log, cells.data(), kCells, region.marks()}; }
  void step() {
    transaction.begin(stream);
    test::add_one(stream, log, cells.data(), kCells, region.marks());
    transaction.commit(stream);
    test::finish(stream, transaction, {all()});
  }
  Recovery recover() { return test::recover(stream, transaction, {all()}); }
  std::uint64_t used_slots() {
    PinnedBuffer<std::uint32_t> count(1);
    test::count_used_slots(stream, log, count.data());
    stream.synchronize();
    return count[0];
  }
  std::uint64_t different_cells() const {
    std::uint64_t different = 0;
    for (const std::uint64_t cell : cells) different += cell != cells[0];
    return different;
  }
};

class TransactionTest : public test::Scratch {};

TEST_F(TransactionTest, CommitKeepsAndEmptiesTheLog) {
  Counters counters = Counters::create(path());
  for (int i = 0; i < 3; ++i) counters.step();
  EXPECT_EQ(counters.cells[0], 3u);
  EXPECT_EQ(counters.different_cells(), 0u);
  EXPECT_EQ(counters.used_slots(), 0u);
}

TEST_F(TransactionTest, WhatDidNotCommitIsUndone) {
  {
    Counters counters = Counters::create(path());
    counters.step();
    counters.transaction.begin(counters.stream);
    test::add_one(counters.stream, counters.log, counters.cells.data(), kCells / 2,
                  counters.region.marks());
    counters.stream.synchronize();
    EXPECT_EQ(counters.cells[0], 2u);
    counters.region.abandon();
  }
  Counters counters = Counters::open(path());
  EXPECT_TRUE(counters.transaction.interrupted());
  EXPECT_EQ(error_of([&] { counters.transaction.begin(counters.stream); }, {"recover"}),
            Errc::invalid_argument);
  const Recovery recovery = counters.recover();
  EXPECT_TRUE(recovery.needed);
  EXPECT_EQ(recovery.undone, kCells / 2);
  EXPECT_FALSE(counters.transaction.interrupted());
  EXPECT_FALSE(counters.recover().needed);
  EXPECT_EQ(counters.cells[0], 1u);
  EXPECT_EQ(counters.different_cells(), 0u);
  counters.step();
  EXPECT_EQ(counters.cells[kCells - 1], 2u);
}

// The stream drops what comes behind a fault: the host has counted a commit that never was.
TEST_F(TransactionTest, ABatchWhoseStreamFailedIsTakenBackOnAnother) {
  if (std::strcmp(backend::name(), "cuda") == 0) GTEST_SKIP() << "the context would be lost";
  for (const bool recovers : {true, false}) {
    for (const bool seen : {true, false}) {
      SCOPED_TRACE(concat("recovers ", recovers, ", seen before commit() ", seen));
      Counters counters = Counters::create(path());
      counters.step();
      counters.transaction.begin(counters.stream);
      test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                    counters.region.marks());
      counters.stream.enqueue([] { throw Error(Errc::kernel_fault, "made to fail"); });
      if (seen) {
        EXPECT_EQ(error_of([&] { counters.stream.synchronize(); }), Errc::kernel_fault);
      }
      counters.transaction.commit(counters.stream);
      EXPECT_EQ(
          error_of([&] { test::finish(counters.stream, counters.transaction, {counters.all()}); }),
          Errc::kernel_fault);
      EXPECT_EQ(counters.cells[0], 2u);
      EXPECT_EQ(
          error_of([&] { counters.transaction.remove_log(counters.region, "log"); }, {"finish()"}),
          Errc::invalid_argument);
      counters.stream = Stream();
      if (recovers) {
        EXPECT_TRUE(counters.recover().needed);
      } else {
        EXPECT_EQ(
            error_of([&] { test::finish(counters.stream, counters.transaction, {counters.all()}); },
                     {"stream failed"}),
            Errc::device);
      }
      EXPECT_EQ(counters.cells[0], 1u);
      EXPECT_EQ(counters.different_cells(), 0u);
      counters.step();
      EXPECT_EQ(counters.cells[0], 2u);
      EXPECT_EQ(counters.different_cells(), 0u);
      counters.region.close();
      Region::destroy(path());
    }
  }
}

// Nor does a batch commit that begins on another stream before that was taken back.
TEST_F(TransactionTest, NothingCommitsOnTopOfABatchWhoseStreamFailed) {
  if (std::strcmp(backend::name(), "cuda") == 0) GTEST_SKIP() << "the context would be lost";
  Counters counters = Counters::create(path());
  counters.transaction.begin(counters.stream);
  test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                counters.region.marks());
  counters.stream.enqueue([] { throw Error(Errc::kernel_fault, "made to fail"); });
  counters.transaction.commit(counters.stream);
  EXPECT_EQ(error_of([&] { counters.stream.synchronize(); }), Errc::kernel_fault);
  Stream other;
  const std::vector<std::string> words = {"on another stream", "finish() first"};
  EXPECT_EQ(error_of([&] { counters.transaction.clear_logs(other); }, words),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { counters.transaction.begin(other); }, words), Errc::invalid_argument);
  counters.stream = std::move(other);
  EXPECT_EQ(
      error_of([&] { test::finish(counters.stream, counters.transaction, {counters.all()}); }),
      Errc::device);
  EXPECT_EQ(counters.cells[0], 0u);
  EXPECT_EQ(counters.different_cells(), 0u);
  counters.step();
  EXPECT_EQ(counters.cells[0], 1u);
}

// finish() waits for the batch, whatever stream it is given.
TEST_F(TransactionTest, FinishOnAnotherStreamWaitsForTheBatch) {
  Counters counters = Counters::create(path());
  test::StreamGate gate;
  Stream other;
  gate.hold(counters.stream);
  counters.transaction.begin(counters.stream);
  test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                counters.region.marks());
  counters.transaction.commit(counters.stream);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  test::finish(other, counters.transaction, {counters.all()});
  later.join();
  EXPECT_EQ(counters.cells[kCells - 1], 1u);
}

// A batch on another stream comes behind the last one, which nothing but the host's wait would
// order.
TEST_F(TransactionTest, BatchesOfTwoStreamsComeOneAfterTheOther) {
  Counters counters = Counters::create(path());
  Stream other;
  for (const bool clears : {false, true}) {
    SCOPED_TRACE(clears);
    test::StreamGate gate;
    gate.hold(counters.stream);
    counters.transaction.begin(counters.stream);
    test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                  counters.region.marks());
    counters.transaction.commit(counters.stream);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      gate.open();
    });
    if (clears) counters.transaction.clear_logs(other);
    const auto add = [&](Stream& stream) {
      counters.transaction.begin(stream);
      test::add_one(stream, counters.log, counters.cells.data(), kCells, counters.region.marks());
      counters.transaction.commit(stream);
    };
    if (!clears) add(other);
    add(counters.stream);
    later.join();
    test::finish(counters.stream, counters.transaction, {counters.all()});
    test::finish(other, counters.transaction, {counters.all()});
    counters.stream.synchronize();
    EXPECT_EQ(counters.used_slots(), 0u);
  }
  EXPECT_EQ(counters.cells[0], 5u);
  EXPECT_EQ(counters.different_cells(), 0u);
}

// Else clear_logs() would move the word under a batch that its log had no room for.
TEST_F(TransactionTest, LogsAreNotClearedUnderABatchThatDidNotCommit) {
  Counters counters = Counters::create(path());
  counters.transaction.begin(counters.stream);
  for (int i = 0; i < 2; ++i) {
    test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                  counters.region.marks());
  }
  test::StreamGate gate;
  gate.hold(counters.stream);
  counters.transaction.commit(counters.stream);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  Stream other;
  EXPECT_EQ(error_of([&] { counters.transaction.clear_logs(other); }, {"finish() first"}),
            Errc::invalid_argument);
  later.join();
  EXPECT_EQ(
      error_of([&] { test::finish(counters.stream, counters.transaction, {counters.all()}); }),
      Errc::log_full);
  EXPECT_EQ(counters.cells[0], 0u);
  EXPECT_EQ(counters.different_cells(), 0u);
}

// What an earlier user has queued would set the epoch back under the next one's batches.
TEST_F(TransactionTest, WhoOpensItWaitsForTheLastUsersCommit) {
  Counters counters = Counters::create(path());
  test::StreamGate gate;
  gate.hold(counters.stream);
  counters.transaction.begin(counters.stream);
  test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                counters.region.marks());
  counters.transaction.commit(counters.stream);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  Transaction second = Transaction::open(counters.region, "tx");
  EXPECT_EQ(counters.cells[0], 1u);
  later.join();
  EXPECT_FALSE(second.interrupted());
  EXPECT_EQ(counters.region.find<TransactionHeader>("tx")[0].state, 1u << 2);
}

TEST_F(TransactionTest, OfAClosedRegionItIsClosed) {
  Counters counters = Counters::create(path());
  counters.step();
  const test::Cells area = counters.all();
  counters.region.close();
  const std::vector<std::string> words = {"'tx'", "region was closed"};
  EXPECT_EQ(error_of([&] { counters.transaction.begin(counters.stream); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { counters.transaction.interrupted(); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { counters.log.coalesced(); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { test::recover(counters.stream, counters.transaction, {area}); }, words),
            Errc::closed);
}

// finish() said "committed" when it was asked again, and commit() kept half of the batch.
TEST_F(TransactionTest, AFinishThatThrewIsMadeUpForByTheNext) {
  Counters counters = Counters::create(path());
  Transaction& tx = counters.transaction;
  counters.step();
  for (const bool recovers : {false, true}) {
    SCOPED_TRACE(recovers);
    tx.begin(counters.stream);
    for (int i = 0; i < 2; ++i) {
      test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                    counters.region.marks());
    }
    tx.commit(counters.stream);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(error_of([&] { test::finish(counters.stream, tx, {}); }, {"'log'", "0 undos"}),
                Errc::invalid_argument);
      EXPECT_EQ(error_of([&] { tx.commit(counters.stream); }, {"did not commit"}),
                Errc::invalid_argument);
      EXPECT_EQ(error_of([&] { tx.begin(counters.stream); }), Errc::invalid_argument);
    }
    if (recovers) {
      EXPECT_TRUE(counters.recover().needed);
    } else {
      EXPECT_EQ(error_of([&] { test::finish(counters.stream, tx, {counters.all()}); }),
                Errc::log_full);
    }
    EXPECT_EQ(counters.cells[0], 1u);
    EXPECT_EQ(counters.different_cells(), 0u);
    test::finish(counters.stream, tx, {counters.all()});  // of nothing: committed before
  }
  counters.step();
  EXPECT_EQ(counters.cells[kCells - 1], 2u);
}

// What throws within it leaves the batch open, and nothing of it commits.
TEST_F(TransactionTest, ATakeBackThatFailedIsDoneAgain) {
  Counters counters = Counters::create(path());
  for (const bool committed : {true, false}) {
    SCOPED_TRACE(committed);
    counters.transaction.begin(counters.stream);
    for (int i = 0; i < (committed ? 2 : 1); ++i) {
      test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                    counters.region.marks());
    }
    if (committed) counters.transaction.commit(counters.stream);
    counters.stream.synchronize();
    test::Cells nowhere = counters.all();
    nowhere.count = 0;  // so that every entry points outside
    Stream other;
    const auto fails = [&] {
      if (committed) {
        test::finish(other, counters.transaction, {nowhere});
      } else {
        test::recover(other, counters.transaction, {nowhere});
      }
    };
    EXPECT_EQ(error_of(fails), Errc::damaged);
    EXPECT_EQ(error_of([&] { counters.transaction.commit(counters.stream); }),
              Errc::invalid_argument);
    if (committed) {
      EXPECT_EQ(
          error_of([&] { test::finish(counters.stream, counters.transaction, {counters.all()}); }),
          Errc::log_full);
    } else {
      EXPECT_TRUE(counters.recover().needed);
    }
    EXPECT_EQ(counters.cells[0], 0u);
    EXPECT_EQ(counters.different_cells(), 0u);
  }
}

// Nothing of it is durable.
TEST_F(TransactionTest, ABatchWithoutACommitIsNotFinished) {
  {
    Counters counters = Counters::create(path());
    counters.transaction.begin(counters.stream);
    test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                  counters.region.marks());
    EXPECT_EQ(
        error_of([&] { test::finish(counters.stream, counters.transaction, {counters.all()}); },
                 {"without its commit()"}),
        Errc::invalid_argument);
    Stream moved_from;
    const Stream to = std::move(moved_from);
    EXPECT_EQ(error_of([&] { counters.transaction.commit(moved_from); }), Errc::closed);
    counters.transaction.commit(counters.stream);
    test::finish(counters.stream, counters.transaction, {counters.all()});
    EXPECT_EQ(error_of([&] { counters.transaction.begin(moved_from); }), Errc::closed);
    counters.step();
    counters.transaction.begin(counters.stream);
    counters.stream.synchronize();
    counters.region.abandon();
  }
  Counters counters = Counters::open(path());
  EXPECT_EQ(error_of([&] { test::finish(counters.stream, counters.transaction, {counters.all()}); },
                     {"recover()"}),
            Errc::invalid_argument);
  EXPECT_EQ(counters.cells[0], 2u);
}

// A child's copy of the state is stale as soon as the parent goes on.
TEST_F(TransactionTest, AForkedChildMovesNothingOfIt) {
  if (std::strcmp(backend::name(), "cuda") == 0) GTEST_SKIP() << "a forked child cannot use CUDA";
  Counters counters = Counters::create(path());
  counters.step();
  for (const bool open : {false, true}) {
    if (open) counters.transaction.begin(counters.stream);
    counters.stream.synchronize();
    EXPECT_EQ(test::in_child([&] {
                Stream own;
                Transaction& tx = counters.transaction;
                const std::vector<std::string> words = {"'tx'", "fork"};
                EXPECT_EQ(error_of([&] { tx.begin(own); }, words), Errc::in_use);
                EXPECT_EQ(error_of([&] { tx.commit(own); }, words), Errc::in_use);
                EXPECT_EQ(error_of([&] { tx.clear_logs(own); }, words), Errc::in_use);
                EXPECT_EQ(error_of([&] { tx.interrupted(); }, words), Errc::in_use);
                EXPECT_EQ(error_of([&] { tx.log("log"); }, words), Errc::in_use);
                EXPECT_EQ(error_of([&] { counters.log.coalesced(); }, words), Errc::in_use);
                const auto cells = test::Cells{counters.log, nullptr, 0, {}};
                EXPECT_EQ(error_of([&] { test::finish(own, tx, {cells}); }, words), Errc::in_use);
                EXPECT_EQ(error_of([&] { test::recover(own, tx, {cells}); }, words), Errc::in_use);
              }),
              0);
    const std::uint64_t state = counters.region.find<TransactionHeader>("tx")[0].state;
    EXPECT_EQ(state & TransactionHeader::kActive, open ? TransactionHeader::kActive : 0u);
  }
}

// Two that set one word would make entries count again that a batch had committed.
TEST_F(TransactionTest, TheLastToOpenItIsItsUser) {
  Counters counters = Counters::create(path());
  counters.step();
  Transaction second = Transaction::open(counters.region, "tx");
  EXPECT_EQ(error_of([&] { counters.step(); }, {"'tx'", "another"}), Errc::closed);
  EXPECT_EQ(error_of([&] { counters.recover(); }), Errc::closed);
  EXPECT_EQ(error_of([&] { counters.transaction.clear_logs(counters.stream); }), Errc::closed);
  EXPECT_EQ(error_of([&] { counters.transaction.log("log"); }), Errc::closed);
  EXPECT_EQ(error_of([&] { counters.transaction.interrupted(); }), Errc::closed);
  EXPECT_EQ(error_of([&] { counters.log.visit([](auto) {}); }, {"another"}), Errc::closed);
  counters.transaction = second;
  counters.log = second.log("log");
  counters.step();
  EXPECT_EQ(counters.cells[0], 2u);

  // A batch of the first is not acknowledged once the second has taken it back.
  counters.transaction.begin(counters.stream);
  test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                counters.region.marks());
  counters.stream.synchronize();
  Counters other{std::move(counters.region), Transaction(second), counters.log, counters.cells, {}};
  other.transaction = Transaction::open(other.region, "tx");
  other.log = other.transaction.log("log");
  EXPECT_TRUE(other.recover().needed);
  EXPECT_EQ(error_of([&] { counters.transaction.commit(counters.stream); }), Errc::closed);
  EXPECT_EQ(other.cells[0], 2u);
}

TEST_F(TransactionTest, MisuseIsRefused) {
  Counters counters = Counters::create(path());
  Transaction& tx = counters.transaction;
  EXPECT_EQ(error_of([&] { tx.commit(counters.stream); }, {"'tx'"}), Errc::invalid_argument);
  tx.begin(counters.stream);
  EXPECT_EQ(error_of([&] { tx.begin(counters.stream); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { tx.clear_logs(counters.stream); }), Errc::invalid_argument);
  tx.commit(counters.stream);
}

TEST_F(TransactionTest, OneThatWasMovedFromIsClosed) {
  Counters counters = Counters::create(path());
  Transaction from = Transaction::open(counters.region, "tx");
  const Transaction to = std::move(from);
  const std::vector<std::string> words = {"transaction was moved from"};
  EXPECT_EQ(error_of([&] { from.begin(counters.stream); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { from.commit(counters.stream); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { from.log("log"); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { test::recover(counters.stream, from, {}); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { from.name(); }, words), Errc::closed);
  EXPECT_EQ(to.name(), "tx");
  const UndoLog log = std::move(counters.log);
  EXPECT_EQ(error_of([&] { counters.log.name(); }, {"undo log was moved from"}), Errc::closed);
  EXPECT_EQ(error_of([&] { counters.log.coalesced(); }), Errc::closed);
}

// Tags start over after 65,535 epochs; a tail of the last round must not come to life.
TEST_F(TransactionTest, TagsStartOverWithoutRevivingOldEntries) {
  {
    Counters counters = Counters::create(path());
    counters.step();  // leaves tails with tag 1
    counters.region.find<TransactionHeader>("tx")[0].state = std::uint64_t{65533} << 2;
    counters.region.close();
  }
  Counters counters = Counters::open(path());
  for (int i = 0; i < 4; ++i) {
    counters.step();
    EXPECT_EQ(counters.used_slots(), 0u) << i;
  }
  EXPECT_EQ(counters.cells[0], 5u);
}

TEST_F(TransactionTest, ASweepThatACrashCutOffIsFinished) {
  {
    Counters counters = Counters::create(path());
    counters.step();
    counters.region.find<TransactionHeader>("tx")[0].state =
        std::uint64_t{65535} << 2 | TransactionHeader::kSweeping;
    counters.region.abandon();
  }
  Counters counters = Counters::open(path());
  counters.step();
  EXPECT_EQ(counters.used_slots(), 0u);
  EXPECT_EQ(counters.different_cells(), 0u);
}

// What a transaction knows of its logs does not hang on who holds one: this process lets go of the
// log before tags start over, and the sweep reaches it all the same, and nothing else.
TEST_F(TransactionTest, ALogThatIsLetGoOfIsSwept) {
  {
    Counters counters = Counters::create(path());
    counters.step();
    counters.region.find<TransactionHeader>("tx")[0].state = std::uint64_t{65533} << 2;
    counters.region.close();
  }
  {
    Region region = Region::open(path());
    Transaction transaction = Transaction::open(region, "tx");
    { const UndoLog log = transaction.log("log"); }
    // Takes the place of what the log would have freed.
    const DeviceBuffer<std::uint32_t> other(kCells);
    Stream stream;
    fill_async(stream, other.data(), 0xab, other.bytes());
    for (int i = 0; i < 2; ++i) {
      transaction.begin(stream);
      transaction.commit(stream);
    }
    std::vector<std::uint32_t> values(kCells);
    copy_async(stream, values.data(), other.data(), other.bytes());
    stream.synchronize();
    for (const std::uint32_t value : values) ASSERT_EQ(value, 0xababababu);
    region.close();
  }
  EXPECT_EQ(Counters::open(path()).used_slots(), 0u);
}

// Of the transaction's logs one is not asked for by the process in which tags start over.
TEST_F(TransactionTest, ALogThatIsNotAskedForIsSwept) {
  {
    Counters counters = Counters::create(path());
    const UndoLog other =
        counters.transaction.create_log(counters.region, "other", LogShape::coalesced(kCells, 16));
    counters.transaction.begin(counters.stream);
    test::add_one(counters.stream, other, counters.cells.data(), kCells, counters.region.marks());
    counters.transaction.commit(counters.stream);
    counters.stream.synchronize();
    counters.region.find<TransactionHeader>("tx")[0].state = std::uint64_t{65533} << 2;
    counters.region.close();
  }
  {
    Region region = Region::open(path());
    Transaction transaction = Transaction::open(region, "tx");
    Stream stream;
    for (int i = 0; i < 2; ++i) {
      transaction.begin(stream);
      transaction.commit(stream);
    }
    stream.synchronize();
    region.close();
  }
  Counters counters = Counters::open(path());
  EXPECT_EQ(counters.region.find<TransactionHeader>("tx")[0].state >> 2, 65535u);  // tag 1 again
  counters.log = counters.transaction.log("other");
  EXPECT_EQ(counters.used_slots(), 0u);
}

TEST_F(TransactionTest, AnUndoLogOutlivesItsTransaction) {
  Counters counters = Counters::create(path());
  const std::uint32_t slots = counters.log.shape().slots;
  {
    const Transaction last = Transaction::open(counters.region, "tx");
    counters.transaction = last;
    counters.log = last.log("log");
    Transaction moved = std::move(counters.transaction);
  }
  EXPECT_EQ(counters.log.shape().slots, slots);
  EXPECT_EQ(counters.used_slots(), 0u);
}

// Cells and two logs: the second one has room for the entries of `room` threads alone.
struct TwoLogs {
  static constexpr std::uint32_t kSecond = 512;
  Counters counters;
  std::span<std::uint64_t> second;
  UndoLog small;

  TwoLogs(const std::string& path, std::uint32_t room)
      : counters(Counters::create(path)),
        second(counters.region.allocate<std::uint64_t>("second", kSecond, Tracking::marked)),
        small(counters.transaction.create_log(counters.region, "small",
                                              LogShape::coalesced(room, 16))) {}
  std::vector<test::Cells> all() const {
    return {counters.all(), {small, second.data(), kSecond, counters.region.marks()}};
  }
  // `threads` of the second cells.
  void begin_and_commit(std::uint32_t threads) {
    Stream& stream = counters.stream;
    counters.transaction.begin(stream);
    test::add_one(stream, counters.log, counters.cells.data(), kCells, counters.region.marks());
    if (threads != 0) {
      test::add_one(stream, small, second.data(), threads, counters.region.marks());
    }
    counters.transaction.commit(stream);
  }
  void finish() { test::finish(counters.stream, counters.transaction, all()); }
  std::uint64_t sum() const {
    std::uint64_t total = 0;
    for (const std::uint64_t cell : second) total += cell;
    return total;
  }
};

TEST_F(TransactionTest, ABatchThatDoesNotFitItsLogIsTakenBackWhole) {
  TwoLogs two(path(), 64);
  two.begin_and_commit(64);
  two.finish();
  EXPECT_EQ(two.counters.cells[0], 1u);
  EXPECT_EQ(two.sum(), 64u);

  two.begin_and_commit(100);
  EXPECT_EQ(error_of([&] { two.finish(); },
                     {"'tx'", path(), "36 entries", "past the log's end", "smaller batches"}),
            Errc::log_full);
  EXPECT_EQ(two.counters.cells[0], 1u);
  EXPECT_EQ(two.counters.different_cells(), 0u);
  EXPECT_EQ(two.sum(), 64u);
  EXPECT_EQ(two.counters.used_slots(), 0u);

  two.begin_and_commit(64);
  two.finish();
  EXPECT_EQ(two.counters.cells[0], 2u);
  EXPECT_EQ(two.sum(), 128u);
}

// Who does not ask loses what comes behind the failure with it, in this process or after a crash.
TEST_F(TransactionTest, NothingCommitsBehindABatchThatDidNot) {
  for (const bool crash : {false, true}) {
    const std::string name = path(crash ? "crash" : "no crash");
    {
      TwoLogs two(name, 64);
      two.begin_and_commit(64);
      two.begin_and_commit(100);
      two.begin_and_commit(10);
      if (!crash) {
        EXPECT_EQ(error_of([&] { two.finish(); }, {"'tx'"}), Errc::log_full);
      }
      two.counters.stream.synchronize();
      two.counters.region.abandon();
    }
    Counters counters = Counters::open(name);
    EXPECT_EQ(counters.transaction.interrupted(), crash);
    const auto second = counters.region.find<std::uint64_t>("second");
    test::recover(counters.stream, counters.transaction,
                  {counters.all(),
                   {counters.transaction.log("small"), second.data(), TwoLogs::kSecond,
                    counters.region.marks()}});
    EXPECT_EQ(counters.cells[0], 1u);
    EXPECT_EQ(counters.different_cells(), 0u);
    EXPECT_EQ(std::accumulate(second.begin(), second.end(), std::uint64_t{0}), 64u);
  }
}

// The one of them that fails is the one in which tags start over.
TEST_F(TransactionTest, ASweepWaitsForWhatDidNotCommit) {
  TwoLogs two(path(), 64);
  two.begin_and_commit(64);  // leaves tails with tag 1
  two.finish();
  two.counters.region.find<TransactionHeader>("tx")[0].state = std::uint64_t{65534} << 2;
  two.counters.transaction = Transaction::open(two.counters.region, "tx");
  two.counters.log = two.counters.transaction.log("log");
  two.small = two.counters.transaction.log("small");
  two.begin_and_commit(100);
  two.begin_and_commit(64);
  EXPECT_EQ(error_of([&] { two.finish(); }), Errc::log_full);
  EXPECT_EQ(two.counters.region.find<TransactionHeader>("tx")[0].state, std::uint64_t{65535} << 2);
  EXPECT_EQ(two.counters.cells[0], 1u);
  EXPECT_EQ(two.sum(), 64u);
  EXPECT_EQ(two.counters.used_slots(), 0u);
  two.begin_and_commit(64);
  two.finish();
  EXPECT_EQ(two.sum(), 128u);
}

TEST_F(TransactionTest, WhatIsOpenCanBeTakenBack) {
  Counters counters = Counters::create(path());
  counters.step();
  counters.transaction.begin(counters.stream);
  test::add_one(counters.stream, counters.log, counters.cells.data(), kCells,
                counters.region.marks());
  EXPECT_EQ(counters.recover().undone, kCells);
  EXPECT_EQ(counters.cells[0], 1u);
  EXPECT_EQ(counters.different_cells(), 0u);
  counters.step();
  EXPECT_EQ(counters.cells[0], 2u);
}

// Cuts a transaction off, spoils the log, and opens it again.
Counters with_spoiled_log(const std::string& path,
                          const std::function<void(std::uint32_t*, std::uint32_t*)>& spoil) {
  {
    Counters counters = Counters::create(path);
    counters.transaction.begin(counters.stream);
    test::add_one(counters.stream, counters.log, counters.cells.data(), 64,
                  counters.region.marks());
    counters.stream.synchronize();
    const ObjectInfo info = counters.region.object("log");
    auto* const object = static_cast<std::byte*>(counters.region.address(info));
    const std::uint64_t tails = (kCells + 31) / 32 * 32 * sizeof(std::uint32_t);
    const std::uint64_t pages = (tails + kPageBytes - 1) / kPageBytes;
    spoil(reinterpret_cast<std::uint32_t*>(object + kPageBytes),
          reinterpret_cast<std::uint32_t*>(object + (1 + pages) * kPageBytes));
    counters.region.abandon();
  }
  return Counters::open(path);
}

TEST_F(TransactionTest, AnEntryThatPointsOutsideEndsRecovery) {
  Counters counters = with_spoiled_log(path(), [](auto*, std::uint32_t* words) {
    words[7] = kCells;  // the first word of slot 7: its cell
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of([&] { counters.recover(); }, {"'log'", path(), "1 entries", "outside"}),
              Errc::damaged);
    EXPECT_TRUE(counters.transaction.interrupted());
  }
  EXPECT_EQ(counters.region.find<TransactionHeader>("tx")[0].state, TransactionHeader::kActive);
  counters.region.abandon();
}

// One of two logs is undone then, so that a commit would keep a half.
TEST_F(TransactionTest, WhatWasTakenBackInPartDoesNotCommit) {
  TwoLogs two(path(), 64);
  Transaction& tx = two.counters.transaction;
  Stream& stream = two.counters.stream;
  tx.begin(stream);
  test::add_one(stream, two.counters.log, two.counters.cells.data(), kCells,
                two.counters.region.marks());
  test::add_one(stream, two.small, two.second.data(), 64, two.counters.region.marks());
  stream.synchronize();
  const ObjectInfo info = two.counters.region.object("small");
  auto* const words = reinterpret_cast<std::uint32_t*>(
      static_cast<std::byte*>(two.counters.region.address(info)) + 2 * kPageBytes);
  const std::uint32_t cell = words[7];
  words[7] = TwoLogs::kSecond;
  EXPECT_EQ(error_of([&] { test::recover(stream, tx, two.all()); },
                     {"1 entries", "'small'", "stays open", "in part"}),
            Errc::damaged);
  EXPECT_EQ(two.counters.cells[0], 0u);
  EXPECT_EQ(two.sum(), 1u);
  EXPECT_EQ(error_of([&] { tx.commit(stream); }, {"'tx'", "in part", "last commit"}),
            Errc::invalid_argument);
  words[7] = cell;
  EXPECT_TRUE(test::recover(stream, tx, two.all()).needed);
  EXPECT_EQ(two.sum(), 0u);
  two.begin_and_commit(64);
  two.finish();
  EXPECT_EQ(two.sum(), 64u);
}

TEST_F(TransactionTest, ATailWithinAnEntryEndsRecovery) {
  Counters counters = with_spoiled_log(path(), [](std::uint32_t* tails, auto*) { tails[7] -= 1; });
  EXPECT_EQ(error_of([&] { counters.recover(); }, {"'log'"}), Errc::damaged);
  counters.region.abandon();
}

TEST_F(TransactionTest, EveryLogIsUndoneOnce) {
  TwoLogs two(path(), 64);
  Transaction& tx = two.counters.transaction;
  Stream& stream = two.counters.stream;
  Transaction other = Transaction::create(two.counters.region, "other");
  const UndoLog foreign =
      other.create_log(two.counters.region, "foreign", LogShape::coalesced(32, 16));
  tx.begin(stream);
  const std::vector<test::Cells> all = two.all();
  test::Cells stranger = all[0];
  stranger.log = foreign;
  EXPECT_EQ(error_of([&] { test::recover(stream, tx, {}); }, {"'tx'", "0 undos"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { test::recover(stream, tx, {all[0]}); }, {"'small'", "0 undos"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of(
                [&] {
                  test::recover(stream, tx, {all[0], all[0]});
                },
                {"'log'", "2 undos"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of(
                [&] {
                  test::recover(stream, tx, {all[0], stranger});
                },
                {"'small'"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { tx.remove_log(two.counters.region, "small"); }, {"inside"}),
            Errc::invalid_argument);
  EXPECT_TRUE(test::recover(stream, tx, all).needed);
  tx.remove_log(two.counters.region, "small");
  EXPECT_FALSE(two.counters.region.contains("small"));
  EXPECT_EQ(error_of([&] { tx.remove_log(two.counters.region, "small"); }, {"'small'"}),
            Errc::not_found);
}

TEST_F(TransactionTest, OneWhoseCreationWasCutOffIsMadeAgain) {
  Region region = Region::create(path(), options(kMiB));
  Transaction::create(region, "tx");
  EXPECT_EQ(error_of([&] { Transaction::create(region, "tx"); }), Errc::already_exists);
  region.find<TransactionHeader>("tx")[0].magic = 0;  // a kill before it was stored
  EXPECT_EQ(error_of([&] { Transaction::open(region, "tx"); }, {"'tx'", "cut off"}),
            Errc::not_found);
  Transaction::create(region, "tx");
  EXPECT_FALSE(Transaction::open(region, "tx").interrupted());
}

TEST_F(TransactionTest, AnObjectThatIsNoTransactionIsRefused) {
  Counters counters = Counters::create(path());
  counters.region.find<TransactionHeader>("tx")[0].magic ^= 1;
  EXPECT_EQ(error_of([&] { Transaction::open(counters.region, "tx"); }, {"'tx'", "magic"}),
            Errc::damaged);
}

struct Progress {
  std::uint64_t committed;
};

// The child of the test below.
TEST(TransactionChild, DISABLED_StepsUntilKilled) {
  Counters counters = Counters::open(test::from_environment("HOLDFAST_TEST_PATH"));
  counters.recover();
  test::report(Progress{counters.cells[0]});
  for (;;) {
    counters.step();
    test::report(Progress{counters.cells[0]});
  }
}

TEST_F(TransactionTest, KilledAtAnyMomentItIsAtAStep) {
  std::mt19937_64 random(test::test_seed());
  Counters::create(path()).region.close();
  std::uint64_t acknowledged = 0;
  int interrupted = 0;
  for (test::KillRounds rounds(15); rounds.another(interrupted > 0);) {
    const auto told = test::told_until_killed<Progress>(
        "TransactionChild.DISABLED_StepsUntilKilled", arenas(), {{"HOLDFAST_TEST_PATH", path()}},
        random, rounds.most_microseconds());
    ASSERT_FALSE(told.empty());
    EXPECT_GE(told.front().committed, acknowledged);
    acknowledged = told.back().committed;
    // Looked at twice: a recovery that another crash cuts off, then a whole one.
    Counters counters = Counters::open(path());
    interrupted += counters.transaction.interrupted();
    if (counters.transaction.interrupted() && rounds.number() % 2 == 0) {
      test::undo_cells(counters.stream, counters.all());
      counters.region.abandon();
      counters = Counters::open(path());
      EXPECT_TRUE(counters.transaction.interrupted());
    }
    counters.recover();
    EXPECT_EQ(counters.different_cells(), 0u);
    EXPECT_GE(counters.cells[0], acknowledged);
    EXPECT_LE(counters.cells[0], acknowledged + 1);
    counters.region.abandon();
  }
}

}  // namespace
}  // namespace holdfast

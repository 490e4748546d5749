// Disks and streams that fail under a history: it goes on where it can and says what happened, and
// never gives wrong bytes, calls durable what is not, or waits for ever.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "faulty_engine.hpp"
#include "history/engine.hpp"
#include "history_oracle.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/stream_gate.hpp"
#include "trap.hpp"

namespace holdfast {
namespace {

using history::Engine;
using history::Step;
using test::error_of;
using test::Fault;
using test::Faults;
using test::Field;

constexpr std::uint64_t kUnit = Field::kMost;

class HistoryFaultTest : public test::Scratch {
 protected:
  HistoryFaultTest() { ::alarm(250); }  // what waits for ever fails
  ~HistoryFaultTest() override { ::alarm(0); }

  HistoryOptions options(std::uint64_t gpu = 2, std::uint64_t host = 2) const {
    HistoryOptions options;
    options.gpu_bytes = gpu * kUnit;
    options.host_bytes = host * kUnit;
    options.disk = home_;
    return options;
  }
  std::unique_ptr<Engine> open(const HistoryOptions& options) {
    return test::open_engine(options, faults_);
  }
  std::unique_ptr<Engine> open() { return open(options()); }

  Ticket save(Engine& engine, Step step, Stream& stream) {
    Field& field = *(fields_[step] = std::make_unique<Field>());
    engine.protect("field", {field.data(), field.fill(step + 1), BufferMemory::device});
    return Ticket(engine.save(step, stream, false));
  }
  Ticket save(Engine& engine, Step step) { return save(engine, step, stream_); }
  // Throws what restore() throws.
  ::testing::AssertionResult restores(Engine& engine, Step step, Stream& stream) {
    Field field;
    const std::uint64_t bytes = engine.size(step, "field");
    engine.protect("field", {field.data(), bytes, BufferMemory::device});
    engine.restore(step, stream, false);
    stream.synchronize();
    if (field.holds(step + 1, bytes)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "checkpoint " << step << " came back wrong";
  }
  ::testing::AssertionResult restores(Engine& engine, Step step) {
    return restores(engine, step, stream_);
  }
  std::string file_of(Step step) const { return home_ + "/" + history::step_file_name(step); }
  void flip_a_bit(Step step, std::uint64_t offset) const {
    std::fstream file(file_of(step), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }
  std::uint64_t file_bytes(Step step) const { return std::filesystem::file_size(file_of(step)); }
  void fail(Fault fault, int error = EIO) {
    faults_->fault = Fault::none;
    faults_->error = error;
    faults_->first = 0;
    faults_->fault = fault;
  }
  void heal() { faults_->fault = Fault::none; }

  std::string home_ = arenas() + "/history";
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  Stream stream_;
  std::map<Step, std::unique_ptr<Field>> fields_;
};

// What a program was told of its checkpoints.
struct Told {
  std::set<Step> saved, durable, discarded;
  bool all_durable = false;
};

class EveryOperation : public HistoryFaultTest {
 protected:
  // Errors of the disk are answers; nothing else is.
  template <class Body>
  bool meets_error(Body&& body) {
    try {
      body();
      return false;
    } catch (const Error& error) {
      switch (error.code()) {
        case Errc::io:
        case Errc::no_space:
        case Errc::damaged:  // a file that could not be read whole when it was opened
        case Errc::not_found:
          return true;
        default:
          ADD_FAILURE() << error.what();
          return true;
      }
    }
  }

  Told run(const HistoryOptions& options) {
    Told told;
    std::unique_ptr<Engine> engine;
    if (meets_error([&] { engine = open(options); })) return told;
    std::vector<Ticket> tickets;
    const auto try_save = [&](Step step) {
      bool refused = false;
      refused = meets_error([&] { tickets.push_back(save(*engine, step)); });
      if (refused && options.on_error == OnError::raise) {  // of an earlier one, perhaps
        refused = meets_error([&] { tickets.push_back(save(*engine, step)); });
      }
      if (!refused) told.saved.insert(step);
    };
    const auto try_restore = [&](Step step) {
      meets_error([&] { EXPECT_TRUE(restores(*engine, step)); });
    };
    for (Step step = 0; step < 4; ++step) try_save(step);
    for (const Ticket& ticket : tickets) {
      if (ticket.step() != 1) continue;
      if (!meets_error([&] { ticket.wait(); })) told.durable.insert(1);
    }
    try_restore(0);
    if (engine->discard(2)) told.discarded.insert(2);
    engine->hint(std::vector<Step>{1, 3});
    engine->prefetch_start();
    try_save(4);
    try_restore(3);
    try_restore(1);
    if (!meets_error([&] { engine->flush(); })) told.durable = told.saved;
    try_save(5);
    for (const Step step : told.saved) {
      if (!told.discarded.contains(step)) try_restore(step);
    }
    told.all_durable = !meets_error([&] { engine->close(); });
    for (const Ticket& ticket : tickets) {
      if (ticket.is_in(Tier::disk)) told.durable.insert(ticket.step());
    }
    return told;
  }

  void check(const HistoryOptions& options, const Told& told) {
    const auto engine = open(options);
    const auto steps = engine->steps();
    const auto listed = [&](Step step) {
      return std::find(steps.begin(), steps.end(), step) != steps.end();
    };
    for (const Step step : told.saved) {
      if (told.discarded.contains(step)) {
        EXPECT_FALSE(told.all_durable && listed(step)) << step << " is back";
      } else {
        EXPECT_TRUE(listed(step) || !(told.all_durable || told.durable.contains(step)))
            << step << " was durable, and is lost";
      }
    }
    for (const Step step : steps) EXPECT_TRUE(restores(*engine, step));
    engine->close();
    for (const auto& entry : std::filesystem::directory_iterator(options.disk)) {
      EXPECT_FALSE(history::is_temporary_name(entry.path().filename())) << entry.path();
    }
  }
};

TEST_F(EveryOperation, FailsInTurn) {
  HistoryOptions with = options();
  const Told told = run(with);  // how many there are
  EXPECT_TRUE(told.all_durable);
  check(with, told);
  const std::uint64_t operations = faults_->operations + 10;
  ASSERT_GT(operations, 100u);
  struct Case {
    Fault fault;
    int error;
    std::uint64_t times;
  };
  const Case cases[] = {
      {Fault::error, EIO, 1},       {Fault::error, ENOSPC, 1}, {Fault::short_transfer, 0, 1},
      {Fault::torn, ENOSPC, 1},     {Fault::error, EIO, 4},    {Fault::error, EIO, 1u << 30},
      {Fault::torn, EIO, 1u << 30},
  };
  const test::Every tried = test::every(3, 33);
  ::testing::internal::CaptureStderr();
  std::uint64_t struck = 0, complete = 0, runs = 0;
  for (const Case& fault : cases) {
    for (std::uint64_t first = (tried.first + runs) % tried.step; first < operations;
         first += tried.step) {
      SCOPED_TRACE("fault " + std::to_string(&fault - cases) + " at operation " +
                   std::to_string(first));
      std::filesystem::remove_all(home_);
      with.on_error = first % 2 == 0 ? OnError::raise : OnError::warn;
      faults_->operations = faults_->struck = 0;
      faults_->first = first;
      faults_->times = fault.times;
      faults_->error = fault.error;
      faults_->fault = fault.fault;
      const Told met = run(with);
      heal();
      struck += faults_->struck > 0;
      complete += met.all_durable;
      check(with, met);
      ++runs;
      if (HasFailure()) break;
    }
  }
  ::testing::internal::GetCapturedStderr();
  std::printf("%llu runs, %llu with a fault, %llu ended with everything on disk\n",
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(struck),
              static_cast<unsigned long long>(complete));
  EXPECT_GT(struck * 2, runs);
  EXPECT_GT(complete * 3, runs);  // one fault at a time is lived through
}

TEST_F(HistoryFaultTest, ASlowDiskCostsTimeAndNothingElse) {
  fail(Fault::slow);
  faults_->times = 60;
  const auto engine = open();
  for (Step step = 0; step < 4; ++step) save(*engine, step);
  engine->flush();
  for (Step step = 0; step < 4; ++step) EXPECT_TRUE(restores(*engine, step));
  engine->close();
}

// There is always something to flush, and something to remove.
TEST_F(HistoryFaultTest, AFlushEndsThoughAnotherThreadSavesWithoutAPause) {
  HistoryOptions with = options(2, 4);
  with.keep_last = 3;
  const auto engine = open(with);
  fail(Fault::slow);
  std::atomic<bool> ends = false;
  std::atomic<Step> saved = 0;
  std::thread saver([&] {
    for (Step step = 1; !ends; ++step) {
      save(*engine, step);
      saved = step;
    }
  });
  while (saved < 8) ::usleep(1000);
  for (std::uint64_t i = 0; i < test::some_of(3); ++i) {
    const Step before = saved;
    engine->flush();
    EXPECT_GE(engine->latest(Tier::disk).value_or(0), before);
  }
  ends = true;
  saver.join();
  heal();
  engine->close();
}

TEST_F(HistoryFaultTest, ARemovalThatFailsIsToldToEveryFlush) {
  HistoryOptions with = options();
  with.on_error = OnError::warn;
  const auto engine = open(with);
  ::testing::internal::CaptureStderr();
  for (int round = 0; round < 40; ++round) {
    save(*engine, 1);
    engine->flush();
    faults_->times = 1;
    faults_->first = faults_->operations.load();
    faults_->fault = Fault::error;
    engine->discard(1);
    // Who comes behind the failure tries again, and hears of nothing where that succeeds.
    const auto flush = [&] {
      try {
        engine->flush();
        EXPECT_FALSE(std::filesystem::exists(file_of(1)));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::io) << error.what();
      }
    };
    std::thread other(flush);
    flush();
    other.join();
    heal();
    engine->flush();
    EXPECT_FALSE(std::filesystem::exists(file_of(1)));
  }
  engine->close();
  ::testing::internal::GetCapturedStderr();
}

TEST_F(HistoryFaultTest, ADiskThatIsGoneIsSaidAndTheCachesGoOn) {
  HistoryOptions with = options(3, 3);
  for (const OnError on_error : {OnError::raise, OnError::warn}) {
    with.on_error = on_error;
    heal();
    std::filesystem::remove_all(home_);
    const auto engine = open(with);
    fail(Fault::error);
    ::testing::internal::CaptureStderr();
    const Ticket ticket = save(*engine, 1);
    EXPECT_EQ(error_of([&] { ticket.wait(); }), Errc::io);
    EXPECT_FALSE(ticket.is_in(Tier::disk));
    if (on_error == OnError::raise) {
      EXPECT_EQ(error_of([&] { save(*engine, 2); }), Errc::io);
    }
    save(*engine, 2);  // it is thrown once
    EXPECT_TRUE(restores(*engine, 1));
    EXPECT_EQ(error_of([&] { engine->flush(); }), Errc::io);
    EXPECT_EQ(error_of([&] { engine->flush(); }), Errc::io);  // for as long as it holds
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("checkpoint 1") != said.npos, on_error == OnError::warn) << said;
    heal();
    engine->flush();  // tries again
    ticket.wait();
    engine->verify(1);
    EXPECT_EQ(engine->latest(Tier::disk).has_value(), true);
    save(*engine, 3);  // and nothing stale is thrown
    engine->close();
  }
}

TEST_F(HistoryFaultTest, CloseThrowsWhatIsNotOnDisk) {
  const auto engine = open();
  save(*engine, 1);
  engine->flush();
  fail(Fault::error);
  save(*engine, 2);
  EXPECT_EQ(error_of([&] { engine->close(); }), Errc::io);
  engine->close();
  heal();
  const auto again = open();
  EXPECT_EQ(again->steps(), std::vector<Step>{1});
}

TEST_F(HistoryFaultTest, AFullDiskTakesMoreOnceSomethingIsDiscarded) {
  const auto engine = open(options(8, 0));
  save(*engine, 1);
  engine->flush();
  faults_->capacity = 4096 + file_bytes(1);
  const Ticket ticket = save(*engine, 2);
  EXPECT_EQ(error_of([&] { ticket.wait(); }), Errc::no_space);
  EXPECT_EQ(error_of([&] { engine->flush(); }), Errc::no_space);
  EXPECT_TRUE(restores(*engine, 2));
  faults_->capacity = 4096 + std::max(file_bytes(1), std::uint64_t{2} * kUnit);
  engine->discard(1);
  engine->flush();
  ticket.wait();
  EXPECT_EQ(engine->latest(Tier::disk), 2u);
  engine->close();
}

// The discard alone brings it about: nobody calls flush().
TEST_F(HistoryFaultTest, RoomThatAppearsIsUsedAtOnce) {
  const auto engine = open(options(8, 0));
  save(*engine, 1);
  engine->flush();
  faults_->capacity = 4096 + file_bytes(1);
  const Ticket ticket = save(*engine, 2);
  EXPECT_EQ(error_of([&] { ticket.wait(); }), Errc::no_space);
  faults_->capacity = 2 * kUnit;
  engine->discard(1);
  while (!ticket.is_in(Tier::disk)) std::this_thread::yield();
  ticket.wait();
}

TEST_F(HistoryFaultTest, ABudgetThatIsUsedUpIsSaidAndNobodyWaitsForIt) {
  HistoryOptions with = options(4, 0);
  with.disk_bytes = 1;
  const auto engine = open(with);
  const Ticket ticket = save(*engine, 1);
  EXPECT_EQ(error_of([&] { ticket.wait(); }), Errc::no_space);
  ticket.wait(Tier::gpu);
  EXPECT_EQ(error_of([&] { engine->flush(); }), Errc::no_space);
  EXPECT_EQ(error_of([&] { ticket.wait(); }), Errc::no_space);
  engine->discard(1);
  EXPECT_EQ(error_of([&] { ticket.wait(); }), Errc::not_found);
  engine->flush();
  engine->close();
}

TEST_F(HistoryFaultTest, ADamagedFileIsWrittenAgainFromTheCache) {
  const auto engine = open();
  save(*engine, 1);
  engine->flush();
  flip_a_bit(1, file_bytes(1) - 4096);
  EXPECT_TRUE(restores(*engine, 1));  // the cache has it
  EXPECT_EQ(error_of([&] { engine->verify(1); }), Errc::damaged);
  engine->flush();
  engine->verify(1);
  std::filesystem::remove(file_of(1));
  EXPECT_EQ(error_of([&] { engine->verify(1); }), Errc::not_found);
  engine->flush();
  engine->verify(1);
  EXPECT_TRUE(restores(*engine, 1));
  engine->close();
}

TEST_F(HistoryFaultTest, WhatIsDamagedEverywhereIsSaidAndCanBeSavedAgain) {
  {
    const auto engine = open();
    for (Step step = 1; step < 4; ++step) save(*engine, step);
    engine->close();
  }
  flip_a_bit(1, file_bytes(1) - 4096);  // the blob
  flip_a_bit(2, 40);                    // the front
  {
    const auto engine = open();
    EXPECT_EQ(error_of([&] { restores(*engine, 1); }), Errc::damaged);
    EXPECT_EQ(error_of([&] { engine->size(2, "field"); }), Errc::damaged);
    EXPECT_EQ(engine->steps(), std::vector<Step>{3});
    EXPECT_TRUE(engine->discard(1));
    EXPECT_TRUE(engine->discard(2));
    EXPECT_FALSE(engine->discard(5));
    engine->flush();
    EXPECT_FALSE(std::filesystem::exists(file_of(1)));
    EXPECT_FALSE(std::filesystem::exists(file_of(2)));
    EXPECT_FALSE(engine->discard(2));
    save(*engine, 1);
    engine->close();
  }
  flip_a_bit(3, 40);
  const auto engine = open();
  EXPECT_EQ(engine->steps(), std::vector<Step>{1});
  save(*engine, 3);  // in the place of what cannot be read
  engine->flush();
  engine->verify(3);
  EXPECT_TRUE(restores(*engine, 1));
  engine->close();
}

// However many others failed since.
TEST_F(HistoryFaultTest, WhatIsDamagedIsSaidByItsOwnFile) {
  {
    const auto engine = open();
    for (Step step = 1; step < 4; ++step) save(*engine, step);
    engine->close();
  }
  for (Step step = 1; step < 4; ++step) flip_a_bit(step, file_bytes(step) - 4096);
  const auto engine = open();
  for (const Step step : {1, 2, 3, 2, 1}) {
    EXPECT_EQ(error_of([&] { restores(*engine, step); }, {file_of(step)}), Errc::damaged);
  }
  engine->close();
}

TEST_F(HistoryFaultTest, ARemovalThatFailsIsTriedAgain) {
  const auto engine = open();
  save(*engine, 1);
  save(*engine, 2);
  engine->flush();
  fail(Fault::error);
  engine->discard(1);
  EXPECT_EQ(error_of([&] { engine->flush(); }), Errc::io);
  EXPECT_TRUE(std::filesystem::exists(file_of(1)));
  heal();
  engine->flush();
  EXPECT_FALSE(std::filesystem::exists(file_of(1)));
}

TEST_F(HistoryFaultTest, AStoreThatThrowsWhatNobodyKnowsStopsNobody) {
  const auto engine = open();
  fail(Fault::exception);
  const Ticket ticket = save(*engine, 1);
  EXPECT_THROW(ticket.wait(), int);
  EXPECT_TRUE(restores(*engine, 1));
  heal();
  engine->flush();
  ticket.wait();
}

TEST_F(HistoryFaultTest, AStreamThatFailsFailsItsSavesAlone) {
  for (const OnError on_error : {OnError::raise, OnError::warn}) {
    HistoryOptions with = options(3, 3);
    with.on_error = on_error;
    std::filesystem::remove_all(home_);
    const auto engine = open(with);
    ::testing::internal::CaptureStderr();
    {
      Stream bad;
      test::trap(bad);
      const Ticket ticket = save(*engine, 1, bad);
      EXPECT_EQ(error_of([&] { ticket.wait(); }), Errc::kernel_fault);
      EXPECT_EQ(error_of([&] { ticket.wait_staged(); }), Errc::kernel_fault);
      if (on_error == OnError::raise) {
        EXPECT_EQ(error_of([&] { save(*engine, 2); }), Errc::kernel_fault);
      }
      const Ticket good = save(*engine, 2);
      good.wait();
      EXPECT_EQ(engine->steps(), std::vector<Step>{2});
      EXPECT_TRUE(restores(*engine, 2));
      EXPECT_EQ(error_of([&] { restores(*engine, 2, bad); }), Errc::kernel_fault);
      EXPECT_TRUE(restores(*engine, 2));
      save(*engine, 1).wait();  // the number is free
    }
    try {
      engine->flush();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kernel_fault);
      EXPECT_EQ(on_error, OnError::warn);
    }
    engine->close();
    ::testing::internal::GetCapturedStderr();
  }
}

// The bytes are not where the program could use them, so they are not consumed.
TEST_F(HistoryFaultTest, WhatAFailedStreamWasToRestoreStays) {
  // From the disk through both slots of a bounce buffer, so that nothing waits before the end.
  Step small = 1;
  while (Field::bytes_of(small + 1) > 2 * 4096) ++small;
  struct Tiers {
    std::uint64_t gpu, host;
    bool disk;
  };
  for (const auto& [gpu, host, disk] : {Tiers{1, 1, true}, Tiers{1, 0, false}, Tiers{0, 0, true}}) {
    HistoryOptions with = options(gpu, host);
    with.discard_consumed = true;
    if (!disk) with.disk = "";
    std::filesystem::remove_all(home_);
    const auto engine = disk ? open(with) : std::make_unique<Engine>(with);
    save(*engine, small).wait_staged();
    test::StreamGate gate;
    Stream bad;
    ::testing::internal::CaptureStderr();
    if (gpu > 0) gate.hold(bad);  // from the disk it would be waited for
    test::trap(bad);
    Field field;
    engine->protect("field", {field.data(), engine->size(small, "field"), BufferMemory::device});
    engine->restore(small, bad, false);
    if (gpu > 0) gate.open();
    EXPECT_EQ(error_of([&] { bad.synchronize(); }), Errc::kernel_fault);
    engine->stats();
    EXPECT_EQ(engine->steps(), std::vector<Step>{small}) << disk;
    EXPECT_TRUE(restores(*engine, small));
    EXPECT_TRUE(engine->steps().empty());
    EXPECT_EQ(error_of([&] { engine->restore(small, stream_, false); }), Errc::not_found);
    // A save has its number and, without another tier, its room, once the restore has ended.
    for (int round = 0; round < 20; ++round) {
      save(*engine, small + 1);
      engine->protect("field",
                      {field.data(), engine->size(small + 1, "field"), BufferMemory::device});
      engine->restore(small + 1, stream_, false);
      save(*engine, small + 2);
      stream_.synchronize();
      EXPECT_TRUE(field.holds(small + 2, Field::bytes_of(small + 2)));
      engine->protect("field",
                      {field.data(), engine->size(small + 2, "field"), BufferMemory::device});
      engine->restore(small + 2, stream_, false);
    }
    engine->close();
    ::testing::internal::GetCapturedStderr();
  }
}

// What could not be removed is tried again; by then another checkpoint has the number.
TEST_F(HistoryFaultTest, AFileThatCouldNotBeRemovedTakesNoLaterOneAlong) {
  {
    const auto engine = open();
    save(*engine, 1).wait();
    fail(Fault::error);
    EXPECT_TRUE(engine->discard(1));
    while (engine->stats().failed_transfers == 0) std::this_thread::yield();
    heal();
    EXPECT_EQ(error_of([&] { save(*engine, 1); }), Errc::io);  // thrown once
    save(*engine, 1).wait();
    engine->flush();
    engine->verify(1);
    engine->close();
  }
  const auto engine = open();
  EXPECT_EQ(engine->steps(), std::vector<Step>{1});
  EXPECT_TRUE(restores(*engine, 1));
  engine->close();
}

// Whoever waits meanwhile, and whether there is another call or not.
TEST_F(HistoryFaultTest, WhatIsConsumedGoesWhileACallerWaits) {
  HistoryOptions with = options(3, 0);
  with.discard_consumed = true;
  const auto engine = open(with);
  save(*engine, 1).wait();
  fail(Fault::slow);
  const Ticket slow = save(*engine, 2);
  std::thread waits([&] { slow.wait(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));  // by now the dispatcher rests
  Field field;
  engine->protect("field", {field.data(), engine->size(1, "field"), BufferMemory::device});
  engine->restore(1, stream_, false);
  waits.join();
  for (int i = 0; i < 1000 && std::filesystem::exists(file_of(1)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(std::filesystem::exists(file_of(1)));
  heal();
  engine->close();
}

// A save that fails gives its room back, while a restore that is queued on another stream still
// reads what was there before.
TEST_F(HistoryFaultTest, RoomOfAFailedSaveIsNotGivenAwayUnderAQueuedReader) {
  HistoryOptions with = options(1, 0);
  const auto engine = open(with);
  save(*engine, 1).wait();
  Field field;
  const std::uint64_t bytes = engine->size(1, "field");
  test::StreamGate gate;
  Stream held;
  gate.hold(held);
  engine->protect("field", {field.data(), bytes, BufferMemory::device});
  engine->restore(1, held, false);
  Stream moved;
  const Stream elsewhere = std::move(moved);
  EXPECT_EQ(error_of([&] { save(*engine, 2, moved); }), Errc::closed);
  save(*engine, 3);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(20));  // were it not to wait, it would be done
  gate.open();
  held.synchronize();
  EXPECT_TRUE(field.holds(2, bytes));
  stream_.synchronize();
  EXPECT_TRUE(restores(*engine, 3));
  engine->close();
}

TEST_F(HistoryFaultTest, ChunksOfAnotherSizeComeBackOrAreRefused) {
  {
    const auto engine = open(options(1, 0));  // its store has chunks of a page
    for (Step step = 0; step < 3; ++step) save(*engine, step);
    engine->close();
  }
  constexpr std::uint64_t kLarge = 2 * history::kChunkBytes;
  {
    const auto store = history::open_folder_store(history::open_folder(home_), {},
                                                  {static_cast<std::uint32_t>(kLarge), 1});
    store->write({9, kLarge, {{"field", 0, kLarge}}, 1}, std::vector<std::byte>(kLarge), {});
  }
  const auto engine = open(options(1, 0));
  for (Step step = 0; step < 3; ++step) EXPECT_TRUE(restores(*engine, step));
  DeviceBuffer<std::byte> large(kLarge);
  engine->protect("field", {large.data(), kLarge, BufferMemory::device});
  EXPECT_EQ(error_of([&] { engine->restore(9, stream_, false); }), Errc::unsupported);
  engine->close();
}

// One stream's work waits for what another stream's save comes to.
TEST_F(HistoryFaultTest, AStreamThatIsHeldHoldsUpNoOther) {
  const auto engine = open(options(4, 2));
  test::StreamGate gate;
  Stream held, free;
  gate.hold(held);
  const Ticket first = save(*engine, 1, held);
  const Ticket second = save(*engine, 2, free);
  second.wait();
  EXPECT_FALSE(first.staged());
  gate.open();
  first.wait();
  engine->close();
}

}  // namespace
}  // namespace holdfast

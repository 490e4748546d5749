// Single promises of a history, each broken once: what storage has after losses and retention,
// which checkpoint is the latest, what tickets say, and what hints may cost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "history/engine.hpp"
#include "holdfast/history_folder.hpp"
#include "memory_objects.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using history::Step;
using test::error_of;

constexpr std::uint64_t kUnit = 8192;  // bytes

class HistoryPromises : public test::Scratch {
 protected:
  HistoryPromises() { ::alarm(120); }  // what waits for ever fails
  ~HistoryPromises() override { ::alarm(0); }

  std::string disk() const { return arenas() + "/disk"; }
  std::string remote() const { return arenas() + "/remote"; }
  HistoryOptions options(std::uint64_t host = 16) const {
    HistoryOptions options;
    options.host_bytes = host * kUnit;
    options.disk = disk();
    return options;
  }
  HistoryOptions with_remote() const {
    HistoryOptions with = options();
    with.remote = remote();
    return with;
  }

  Ticket save(History& history, Step step, std::uint64_t value, std::uint64_t bytes = kUnit) {
    stream_.synchronize();  // what earlier saves read
    std::fill_n(words_.data(), bytes / 8, value);
    history.protect("words", words_.data(), bytes / 8);
    Ticket ticket = history.save(step, stream_);
    ticket.wait_staged();
    return ticket;
  }
  std::uint64_t restored(History& history, Step step) {
    const std::uint64_t count = history.size(step, "words") / 8;
    std::fill_n(words_.data(), count, 0);
    history.protect("words", words_.data(), count);
    history.restore(step, stream_, true);
    stream_.synchronize();
    for (std::uint64_t i = 1; i < count; ++i) EXPECT_EQ(words_.data()[i], words_.data()[0]);
    return words_.data()[0];
  }
  static std::string file_of(const std::string& folder, Step step) {
    return folder + "/" + history::step_file_name(step);
  }
  static void flip(const std::string& file, std::streamoff offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(offset);
    const char byte = static_cast<char>(stream.get() ^ 16);
    stream.seekp(offset);
    stream.put(byte);
  }
  static std::vector<Step> files(const std::string& folder) {
    std::vector<Step> steps;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto step = history::step_of_file_name(entry.path().filename());
      if (step) steps.push_back(*step);
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  }

  DeviceBuffer<std::uint64_t> words_{4 * kUnit / 8};
  Stream stream_;
};

// --- Retention -----------------------------------------------------------------------------------

TEST_F(HistoryPromises, RetentionLeavesTheRemoteTierWhatNothingThereHasReplaced) {
  HistoryOptions with = with_remote();
  with.keep_last = 1;
  with.remote_bytes = kUnit;
  {
    History history = History::open(with);
    save(history, 1, 11).wait(Tier::remote);
    for (Step step = 2; step < 6; ++step) save(history, step, step, 2 * kUnit).wait();
    EXPECT_EQ(error_of([&] { history.flush(); }), Errc::no_space);
    EXPECT_EQ(files(remote()), std::vector<Step>{1});
    // What cannot reach the remote tier does not pile up on disk.
    EXPECT_EQ(files(disk()), (std::vector<Step>{1, 5}));
    EXPECT_EQ(error_of([&] { history.close(); }), Errc::no_space);
  }
  std::filesystem::remove_all(disk());
  History history = History::open(with_remote());
  EXPECT_EQ(restored(history, 1), 11u);
}

TEST_F(HistoryPromises, RetentionAppliesOnceTheRemoteTierHasMore) {
  HistoryOptions with = with_remote();
  with.keep_last = 2;
  History history = History::open(with);
  for (Step step = 0; step < 20; ++step) save(history, step, step);
  history.flush();
  EXPECT_EQ(history.steps(), (std::vector<Step>{18, 19}));
  EXPECT_EQ(files(remote()), (std::vector<Step>{18, 19}));
  EXPECT_EQ(files(disk()), (std::vector<Step>{18, 19}));
}

// Also once no save comes any more that would let others go: all were taken in front of the first
// flush that was given up.
TEST_F(HistoryPromises, WhatTheRemoteTierNeverTakesDoesNotRefuseSaves) {
  struct Held : test::MemoryObjects {
    std::atomic<bool> held{true};
    void put(const std::string& key, std::uint64_t bytes, const Source& source) override {
      if (!history::step_of_file_name(key)) return MemoryObjects::put(key, bytes, source);
      held.wait(true);
      throw Error(Errc::io, "the store is down");
    }
  };
  const auto store = std::make_shared<Held>();
  HistoryOptions with = options(0);
  with.disk_bytes = 4 * kUnit;
  with.remote_store = store;
  with.keep_last = 2;
  with.on_error = OnError::warn;
  History history = History::open(with);
  for (Step step = 1; step <= 4; ++step) save(history, step, step).wait(Tier::disk);
  store->held = false;
  store->held.notify_all();
  for (Step step = 5; step <= 20; ++step) {
    EXPECT_EQ(error_of([&] { history.flush(); }), Errc::io);
    ASSERT_NO_THROW(save(history, step, step).wait(Tier::disk));
    EXPECT_LE(history.steps().size(), 3u);
  }
  EXPECT_EQ(error_of([&] { history.close(); }), Errc::io);
  EXPECT_EQ(files(disk()), (std::vector<Step>{19, 20}));
}

// The same without threads: what is on its way to storage may let another go, so a save waits for
// it.
TEST_F(HistoryPromises, ASaveIsNotRefusedWhileRetentionMayMakeRoom) {
  using history::Answer;
  using history::Catalog;
  for (const bool retains : {false, true}) {
    Catalog catalog({{.capacity = 1, .alignment = 1}, {.capacity = 1, .storage = true}},
                    {.retains = retains});
    catalog.finish(catalog.begin_save(0, 1, false).transfer, history::Outcome::done);
    const auto flush = catalog.next_flush(0);
    ASSERT_TRUE(flush.has_value());
    EXPECT_EQ(catalog.begin_save(1, 1, false).verdict,
              retains ? Answer::Verdict::wait : Answer::Verdict::full);
    catalog.finish(*flush, history::Outcome::done);
    const Answer taken = catalog.begin_save(1, 1, false);
    ASSERT_EQ(taken.verdict, Answer::Verdict::go);
    catalog.finish(taken.transfer, history::Outcome::done);
    EXPECT_FALSE(catalog.will_reach(1, 1));
    EXPECT_EQ(catalog.begin_save(2, 1, false).verdict, Answer::Verdict::full);
    catalog.discard(0);  // by the rule
    EXPECT_TRUE(catalog.will_reach(1, 1));
  }
}

TEST_F(HistoryPromises, SavesThatRetentionMakesRoomForAreTaken) {
  HistoryOptions with = options(2);
  with.disk_bytes = 3 * kUnit;
  with.keep_last = 2;
  History history = History::open(with);
  Ticket last = save(history, 0, 0);
  for (Step step = 1; step < 300; ++step) last = save(history, step, step);
  last.wait();
  history.flush();
  EXPECT_EQ(history.steps(), (std::vector<Step>{298, 299}));
}

// --- What storage has ----------------------------------------------------------------------------

TEST_F(HistoryPromises, ADiskIsFilledAgainFromTheRemoteTier) {
  {
    History history = History::open(with_remote());
    for (Step step = 0; step < 5; ++step) save(history, step, step + 100);
    history.flush();
    flip(file_of(disk(), 3), 5000);
    EXPECT_EQ(error_of([&] { history.verify(3); }), Errc::damaged);
    history.flush();
    EXPECT_TRUE(history.is_in(3, Tier::disk));
    history.verify(3);
  }
  EXPECT_EQ(files(disk()), (std::vector<Step>{0, 1, 2, 3, 4}));
  std::filesystem::remove_all(disk());
  {
    History history = History::open(with_remote());
    history.flush();
    EXPECT_EQ(history.latest(), 4u);
  }
  History history = History::open(options());
  EXPECT_EQ(history.steps().size(), 5u);
  for (Step step = 0; step < 5; ++step) EXPECT_EQ(restored(history, step), step + 100);
}

// What has no room within disk_bytes is on the remote tier alone, and nobody waits for it.
TEST_F(HistoryPromises, ADiskIsFilledAgainAsFarAsItsBudgetGoes) {
  {
    History history = History::open(with_remote());
    for (Step step = 0; step < 5; ++step) save(history, step, step);
  }
  std::filesystem::remove_all(disk());
  HistoryOptions with = with_remote();
  with.disk_bytes = 2 * kUnit;
  History history = History::open(with);
  history.flush();
  EXPECT_EQ(files(disk()), (std::vector<Step>{3, 4}));
  history.discard(4);
  history.flush();
  EXPECT_EQ(files(disk()), (std::vector<Step>{2, 3}));
}

TEST_F(HistoryPromises, AStaleFileOfTheDiskDoesNotComeBack) {
  {
    History history = History::open(options());
    save(history, 3, 1);
  }
  {
    HistoryOptions elsewhere = with_remote();
    elsewhere.disk = arenas() + "/other";
    History history = History::open(elsewhere);
    save(history, 3, 2);
  }
  {
    History history = History::open(with_remote());
    EXPECT_EQ(restored(history, 3), 2u);
  }
  {
    History history = History::open(options());  // it has the later one, or none
    if (!history.steps().empty()) {
      EXPECT_EQ(restored(history, 3), 2u);
    }
  }
  {
    History history = History::open(with_remote());
    history.flush();
  }
  History history = History::open(options());
  EXPECT_EQ(restored(history, 3), 2u);
}

// --- Damage --------------------------------------------------------------------------------------

TEST_F(HistoryPromises, DamageInTheFirstBytesIsDamage) {
  {
    History history = History::open(options());
    for (Step step = 0; step < 12; ++step) save(history, step, step);
  }
  for (Step step = 0; step < 12; ++step) flip(file_of(disk(), step), static_cast<long>(step));
  History history = History::open(options());
  EXPECT_TRUE(history.steps().empty());
  for (Step step = 0; step < 6; ++step) {
    EXPECT_EQ(error_of([&] { history.size(step, "words"); }), Errc::damaged) << step;
    EXPECT_TRUE(history.discard(step)) << step;
  }
  for (Step step = 6; step < 12; ++step) save(history, step, step + 50).wait();
  history.flush();
  EXPECT_EQ(files(disk()), (std::vector<Step>{6, 7, 8, 9, 10, 11}));
  for (Step step = 6; step < 12; ++step) EXPECT_EQ(restored(history, step), step + 50);
}

TEST_F(HistoryPromises, WhatNoTierHasWholeMakesWayForASave) {
  {
    History history = History::open(options());
    save(history, 1, 1);
  }
  flip(file_of(disk(), 1), 5000);
  {
    History history = History::open(options());
    EXPECT_EQ(error_of([&] { restored(history, 1); }), Errc::damaged);
    save(history, 1, 2).wait();
    EXPECT_EQ(error_of([&] { save(history, 1, 3); }), Errc::already_exists);
  }
  History history = History::open(options());
  EXPECT_EQ(restored(history, 1), 2u);
}

// --- Which is the latest -------------------------------------------------------------------------

TEST_F(HistoryPromises, AClockThatIsSetBackDoesNotDecideWhichIsLatest) {
  {
    History history = History::open(options());
    save(history, 9, 9);
  }
  const std::uint64_t hour = 3'600'000'000'000;
  {  // as by a process whose clock was ahead
    const auto store = history::open_folder_store(disk());
    const std::vector<std::byte> blob(kUnit);
    const history::StepInfo info{20, kUnit, {{"words", 0, kUnit}}, history::now_ns() + hour};
    ASSERT_TRUE(store->write(info, blob, [](std::uint64_t) { return true; }));
  }
  {
    History history = History::open(options());
    EXPECT_EQ(history.latest(), 20u);
    for (const Step step : {7, 5}) save(history, step, step).wait();
    EXPECT_EQ(history.latest(), 5u);
  }
  {
    History history = History::open(options());
    EXPECT_EQ(history.latest(), 5u);
    history.discard(5);
    EXPECT_EQ(history.latest(), 7u);
  }
  EXPECT_EQ(HistoryFolder(disk()).latest(), 7u);
}

TEST_F(HistoryPromises, ACheckpointThatIsWrittenAgainIsNotTheLatest) {
  {
    History history = History::open(options());
    for (Step step = 0; step < 5; ++step) save(history, step, step).wait();
    flip(file_of(disk(), 0), 5000);
    EXPECT_EQ(error_of([&] { history.verify(0); }), Errc::damaged);
    history.flush();
    history.verify(0);
    EXPECT_EQ(history.latest(), 4u);
    EXPECT_EQ(history.latest(Tier::host), 4u);
  }
  EXPECT_EQ(History::open(options()).latest(), 4u);
  EXPECT_EQ(HistoryFolder(disk()).latest(), 4u);
}

// --- Tickets -------------------------------------------------------------------------------------

TEST_F(HistoryPromises, ATicketOfWhatWasDiscardedSaysSo) {
  HistoryOptions with = options();
  with.keep_last = 2;
  History history = History::open(with);
  const Ticket first = save(history, 1, 1);
  first.wait();
  EXPECT_TRUE(first.is_in(Tier::host) && first.is_in(Tier::disk));
  history.discard(1);
  const auto is_gone = [](const Ticket& ticket) {
    EXPECT_FALSE(ticket.is_in(Tier::disk));
    EXPECT_FALSE(ticket.is_in(Tier::host));
    EXPECT_EQ(error_of([&] { ticket.wait(); }), Errc::not_found);
  };
  is_gone(first);
  const Ticket again = save(history, 1, 2);
  again.wait();
  is_gone(first);
  EXPECT_TRUE(again.is_in(Tier::disk));
  for (Step step = 2; step < 4; ++step) save(history, step, step).wait();
  history.flush();
  is_gone(again);  // by the rule of retention
}

TEST_F(HistoryPromises, ATicketOfWhatWasDamagedOnDiskIsNotDurableUntilItIsWrittenAgain) {
  HistoryOptions with = options();
  with.host_bytes = 0;
  with.gpu_bytes = 16 * kUnit;
  History history = History::open(with);
  const Ticket ticket = save(history, 1, 1);
  ticket.wait();
  flip(file_of(disk(), 1), 5000);
  EXPECT_EQ(error_of([&] { history.verify(1); }), Errc::damaged);
  ticket.wait();  // from the cache
  history.verify(1);
}

// --- Hints ---------------------------------------------------------------------------------------

// How many saves are taken beyond those that fill the slowest tier.
std::uint64_t saves_taken(const std::function<void(Step)>& save, History& history, bool hints,
                          std::uint64_t first) {
  for (Step step = 0; step < first; ++step) save(step);
  try {
    history.flush();
  } catch (const Error&) {
  }
  if (hints) {
    std::vector<std::uint64_t> all(first);
    std::iota(all.begin(), all.end(), 0);
    history.hint(all);
    history.prefetch_start();
    for (int i = 0; i < 2000 && history.stats().prefetch_distance < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GE(history.stats().prefetch_distance, 2u);
  }
  std::uint64_t taken = 0;
  try {
    for (; taken < 8; ++taken) save(first + taken);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::no_space);
  }
  return taken;
}

TEST_F(HistoryPromises, HintsThatNobodyFollowsDoNotRefuseASave) {
  struct Case {
    std::uint64_t gpu, host, disk;
  };
  for (const Case& units : {Case{2, 4, 0}, Case{0, 2, 4}, Case{0, 4, 8}, Case{2, 3, 4}}) {
    std::uint64_t taken[2];
    for (const bool hints : {false, true}) {
      SCOPED_TRACE(std::to_string(units.gpu) + ", " + std::to_string(units.host) + ", " +
                   std::to_string(units.disk) + (hints ? " with hints" : ""));
      std::filesystem::remove_all(disk());
      HistoryOptions with;
      with.gpu_bytes = units.gpu * kUnit;
      with.host_bytes = units.host * kUnit;
      if (units.disk > 0) with.disk = disk();
      with.disk_bytes = units.disk * kUnit;
      with.on_error = OnError::warn;
      History history = History::open(with);
      const auto first = units.disk > 0 ? units.disk : units.host;
      taken[hints] =
          saves_taken([&](Step step) { save(history, step, step); }, history, hints, first);
      for (Step step = 0; step < first; ++step) EXPECT_EQ(restored(history, step), step);
      try {
        history.close();
      } catch (const Error&) {  // what has no room on disk
      }
    }
    EXPECT_GE(taken[1], taken[0]);
    EXPECT_GT(taken[0], 0u);
  }
}

}  // namespace
}  // namespace holdfast

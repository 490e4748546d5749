// The events of a history's trace: exactly what a scripted run does; as many as the statistics,
// which are counted elsewhere, whatever fails; and in a file that is whole or not there.
#include "history/trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "faulty_engine.hpp"
#include "history/engine.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using history::Engine;
using history::Step;
using history::Trace;
using history::TraceEvent;
using test::error_of;
using test::Fault;
using test::Faults;
using Kind = TraceEvent::Kind;
using Ends = TraceEvent::Outcome;

constexpr std::uint64_t kUnit = 64 << 10;  // bytes of the array

class HistoryTraceTest : public test::Scratch {
 protected:
  HistoryOptions options(std::uint64_t gpu, std::uint64_t host) const {
    HistoryOptions options;
    options.gpu_bytes = gpu * kUnit;
    options.host_bytes = host * kUnit;
    options.disk = arenas() + "/history";
    options.trace = trace_;
    options.on_error = OnError::warn;
    return options;
  }
  std::unique_ptr<Engine> open(const HistoryOptions& options) {
    return test::open_engine(options, faults_);
  }
  Ticket save(Engine& engine, Step step) {
    engine.protect("field", {field_.data(), kUnit, BufferMemory::device});
    return Ticket(engine.save(step, stream_, false));
  }
  void restore(Engine& engine, Step step, bool keep = false) {
    engine.protect("field", {field_.data(), kUnit, BufferMemory::device});
    engine.restore(step, stream_, keep);
    stream_.synchronize();
  }

  std::string content() const {
    std::ifstream file(trace_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string trace_ = arenas() + "/trace.json";
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  Stream stream_;
  DeviceBuffer<std::byte> field_{kUnit};
};

// "flush 3 0>1", without times.
std::string in_short(const TraceEvent& event) {
  std::string text = std::string(to_string(event.kind)) + " " + std::to_string(event.step);
  if (event.from >= 0 || event.to >= 0) {
    text += " " + std::to_string(event.from) + ">" + std::to_string(event.to);
  }
  if (event.why != TraceEvent::Why::none) text += std::string(" for ") + to_string(event.why);
  if (event.outcome != Ends::done) text += std::string(", ") + to_string(event.outcome);
  return text;
}

std::multiset<std::string> all_but_held(const std::vector<TraceEvent>& events) {
  std::multiset<std::string> found;
  for (const TraceEvent& event : events) {
    if (event.kind != Kind::held) found.insert(in_short(event));
  }
  return found;
}

TEST_F(HistoryTraceTest, AScriptedRunLeavesExactlyItsEvents) {
  const auto engine = open(options(0, 1));
  for (Step step : {5, 6}) {
    const Ticket ticket = save(*engine, step);
    engine->flush();
    ASSERT_TRUE(ticket.is_in(Tier::disk));
  }
  restore(*engine, 6);  // is in the cache
  restore(*engine, 5);  // is on disk alone
  engine->hint(std::vector<Step>{5});
  engine->prefetch_start();
  while (!engine->is_in(5, Tier::host)) std::this_thread::yield();
  restore(*engine, 5, true);
  EXPECT_TRUE(engine->discard(6));
  EXPECT_EQ(error_of([&] { restore(*engine, 7); }), Errc::not_found);
  EXPECT_EQ(error_of([&] { save(*engine, 5); }), Errc::already_exists);
  const std::multiset<std::string> wanted = {
      "save 5 -1>0",   "copy 5 -1>0",    "flush 5 0>1",      "flush() 0",         "evicted 5 0>-1",
      "save 6 -1>0",   "copy 6 -1>0",    "flush 6 0>1",      "flush() 0",         "restore 6 0>-1",
      "direct 5 1>-1", "restore 5 1>-1", "hint 5",           "prefetch_start 0",  "evicted 6 0>-1",
      "fetch 5 1>0",   "restore 5 0>-1", "discarded 6 1>-1", "restore 7, failed", "save 5, failed",
  };
  EXPECT_EQ(all_but_held(engine->traced()), wanted);
}

TEST_F(HistoryTraceTest, ASaveThatWaitsForRoomSaysInWhichTierAndWhatStoodThere) {
  HistoryOptions with = options(2, 2);
  const auto engine = open(with);
  faults_->fault = Fault::slow;  // each operation of the disk takes 20 ms
  for (Step step = 0; step < 7; ++step) save(*engine, step);
  faults_->fault = Fault::none;
  engine->flush();
  const auto events = engine->traced();
  const auto waits = std::count_if(events.begin(), events.end(), [](const TraceEvent& event) {
    return event.kind == Kind::wait && event.why == TraceEvent::Why::room;
  });
  EXPECT_GE(waits, 1);
  for (const TraceEvent& event : events) {
    if (event.kind != Kind::wait || event.why != TraceEvent::Why::room) continue;
    EXPECT_EQ(event.to, 0);
    EXPECT_EQ(event.census.ready, 0u);
    EXPECT_EQ(event.census.moving + event.census.unflushed + event.census.evictable, 2u);
    EXPECT_GE(event.census.moving + event.census.unflushed, 1u);
  }
}

// Of the histories here.
std::size_t kind_at(std::int8_t tier) {
  constexpr Tier kTiers[] = {Tier::gpu, Tier::host, Tier::disk};
  return index_of(kTiers[tier]);
}

// What must hold of any run's events.
void check(const std::vector<TraceEvent>& events, const HistoryStats& stats) {
  HistoryStats counted{};
  std::map<std::pair<Kind, int>, std::int64_t> lane_end;  // lanes do one thing at a time
  for (const TraceEvent& event : events) {
    ASSERT_LE(event.begin_ns, event.end_ns) << in_short(event);
    const bool done = event.outcome == Ends::done;
    if (event.kind == Kind::save && done) ++counted.saves.checkpoints;
    if (event.kind == Kind::restore && done) ++counted.restores.checkpoints;
    if (event.kind == Kind::flushing || event.kind == Kind::fetching) {
      const bool flush = event.kind == Kind::flushing;
      std::int64_t& end = lane_end[{event.kind, flush ? event.from : event.to}];
      EXPECT_GE(event.begin_ns, end) << in_short(event);
      end = event.end_ns;
      if (done) {
        auto& to = flush ? counted.flushed_to : counted.fetched_to;
        ++to[kind_at(event.to)].checkpoints;
      }
    }
    if (event.kind == Kind::evicted || event.kind == Kind::discarded) {
      ++counted.evicted_from[kind_at(event.from)].checkpoints;
    }
    // Failures and damage that lanes, copies and calls met are what the statistics count; waits
    // and calls are no transfers.
    const bool transfer =
        event.kind == Kind::flushing || event.kind == Kind::fetching || event.kind == Kind::copy;
    if (transfer && (event.outcome == Ends::failed || event.outcome == Ends::damaged)) {
      ++counted.failed_transfers;
      EXPECT_NE(event.message, TraceEvent::kNoMessage) << in_short(event);
    }
  }
  // Waits and direct transfers lie within a call of the same thread and checkpoint.
  for (const TraceEvent& part : events) {
    if (part.kind != Kind::wait && part.kind != Kind::direct) continue;
    EXPECT_TRUE(std::any_of(events.begin(), events.end(), [&](const TraceEvent& call) {
      return call.kind <= Kind::ticket && call.thread == part.thread && call.step == part.step &&
             call.begin_ns <= part.begin_ns && part.end_ns <= call.end_ns;
    })) << in_short(part);
  }
  EXPECT_EQ(counted.saves.checkpoints, stats.saves.checkpoints);
  EXPECT_EQ(counted.restores.checkpoints, stats.restores.checkpoints);
  EXPECT_LE(counted.failed_transfers, stats.failed_transfers);  // which counts removals, too
  for (int tier = 0; tier < kTierKinds; ++tier) {
    EXPECT_EQ(counted.flushed_to[tier].checkpoints, stats.flushed_to[tier].checkpoints) << tier;
    EXPECT_EQ(counted.fetched_to[tier].checkpoints, stats.fetched_to[tier].checkpoints) << tier;
    EXPECT_EQ(counted.evicted_from[tier].checkpoints, stats.evicted_from[tier].checkpoints) << tier;
  }
}

// A call that may meet what the disk does.
template <class Body>
void try_to(Body&& body) {
  try {
    body();
  } catch (const Error&) {
  }
}

std::uint64_t seed() {
  const char* const given = std::getenv("HOLDFAST_TEST_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("HOLDFAST_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

TEST_F(HistoryTraceTest, EventsOfRandomRunsAreWhatWasCountedUnderFailuresToo) {
  std::mt19937_64 dice(seed());
  const auto roll = [&](std::uint64_t faces) { return dice() % faces; };
  for (int run = 0; run < 12; ++run) {
    SCOPED_TRACE(run);
    std::filesystem::remove_all(arenas() + "/history");
    const auto engine = open(options(2 + roll(2), 2 + roll(3)));
    std::vector<Step> there;
    for (int call = 0; call < 60; ++call) {
      const bool faulty = run % 3 != 0 && roll(4) == 0;
      faults_->fault = Fault::none;
      if (faulty) {
        faults_->first = faults_->operations + roll(8);
        faults_->times = 1 + roll(3);
        faults_->error = roll(2) == 0 ? EIO : ENOSPC;
        faults_->fault = roll(2) == 0 ? Fault::error : Fault::torn;
      }
      const std::uint64_t what = roll(10);
      if (what < 5 || there.empty()) {
        there.push_back(static_cast<Step>(call));
        try_to([&] { save(*engine, there.back()); });
      } else if (what < 8) {
        try_to([&] { restore(*engine, there[roll(there.size())], roll(2) == 0); });
      } else if (what == 8) {
        engine->hint(std::vector<Step>{there[roll(there.size())], there[roll(there.size())]});
        engine->prefetch_start();
      } else {
        try_to([&] { engine->discard(there[roll(there.size())]); });
      }
    }
    faults_->fault = Fault::none;
    try_to([&] { engine->flush(); });
    std::vector<TraceEvent> events;
    HistoryStats stats;
    do {  // until nothing is fetched any more
      events = engine->traced();
      stats = engine->stats();
    } while (!engine->snapshot().transfers.empty() || engine->traced().size() != events.size());
    check(events, stats);
    EXPECT_EQ(engine->snapshot().trace_dropped, 0u);
    try_to([&] { engine->close(); });
    EXPECT_NE(content().find("\"dropped\":0,"), std::string::npos);
  }
}

TEST_F(HistoryTraceTest, TheRingKeepsTheLastEventsAndCountsTheOthers) {
  Trace trace(trace_, 5, {{Tier::host, 100}});
  for (Step step = 0; step < 12; ++step) {
    TraceEvent event;
    event.kind = Kind::hint;
    event.step = step;
    trace.note(event);
  }
  EXPECT_EQ(trace.noted(), 12u);
  EXPECT_EQ(trace.dropped(), 7u);
  const auto events = trace.events();
  ASSERT_EQ(events.size(), 5u);
  for (Step step = 0; step < 5; ++step) EXPECT_EQ(events[step].step, step + 7);
  trace.write();
  EXPECT_NE(content().find(R"("events":5,"dropped":7,"limit":5,)"), std::string::npos);
}

TEST_F(HistoryTraceTest, WhateverAMessageHoldsIsEscaped) {
  Trace trace(trace_, 100, {{Tier::host, 100}});
  const std::string odd = "a \"quote\"\\ \n\t\x01 \x7f \xff\xc3 \xe2\x82\xac \xed\xa0\x80";
  TraceEvent event;
  event.kind = Kind::flushing;
  event.from = 0;
  event.to = 0;
  event.outcome = Ends::failed;
  event.message = trace.keep_message(odd);
  trace.note(event);
  trace.write();
  const std::string text = content();
  // Lone surrogates stand for bytes that are no UTF-8.
  EXPECT_NE(text.find(R"(a \"quote\"\\ \u000a\u0009\u0001 \u007f \udcff\udcc3 )"
                      "\xe2\x82\xac"
                      R"( \udced\udca0\udc80)"),
            std::string::npos)
      << text;
}

TEST_F(HistoryTraceTest, AFileThatIsNoTraceIsNotReplaced) {
  std::ofstream(trace_) << "my results";
  EXPECT_EQ(error_of([&] { open(options(0, 1)); }), Errc::already_exists);
  EXPECT_EQ(std::filesystem::file_size(trace_), 10u);
  std::filesystem::remove(trace_);
  std::filesystem::create_directory(trace_);
  EXPECT_EQ(error_of([&] { open(options(0, 1)); }), Errc::invalid_argument);
  std::filesystem::remove(trace_);
  HistoryOptions nowhere = options(0, 1);
  nowhere.trace = arenas() + "/no/such/folder";
  EXPECT_EQ(error_of([&] { open(nowhere); }), Errc::not_found);
  HistoryOptions none = options(0, 1);
  none.trace_events = 0;
  EXPECT_EQ(error_of([&] { open(none); }), Errc::invalid_argument);
  for (int life = 0; life < 2; ++life) {  // an older trace is
    const auto engine = open(options(0, 1));
    save(*engine, static_cast<Step>(life));
    engine->close();
    EXPECT_GT(std::filesystem::file_size(trace_), 100u);
  }
}

// Nor one that came since, nor one of that name in the folder that is the working folder by then.
TEST_F(HistoryTraceTest, WhatComesThereMeanwhileIsNotReplaced) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(path("elsewhere"));
  std::ofstream(path("elsewhere/run.json")) << "mine";
  HistoryOptions with;
  with.host_bytes = 1 << 20;
  with.trace = "run.json";
  std::filesystem::current_path(folder());
  History history = History::open(with);
  std::filesystem::current_path(path("elsewhere"));
  EXPECT_NO_THROW(history.close());
  std::filesystem::current_path(before);
  EXPECT_EQ(std::filesystem::file_size(path("elsewhere/run.json")), 4u);
  EXPECT_TRUE(std::filesystem::exists(path("run.json")));
  with.trace = path("later.json");
  History again = History::open(with);
  std::ofstream(with.trace) << "mine";
  EXPECT_EQ(test::error_of([&] { again.close(); }, {with.trace}), Errc::already_exists);
  EXPECT_EQ(std::filesystem::file_size(with.trace), 4u);
}

TEST_F(HistoryTraceTest, CloseSaysThatTheTraceCannotBeWrittenAndTheCheckpointsAreSafe) {
  HistoryOptions with = options(0, 1);
  const std::string folder = arenas() + "/gone";
  std::filesystem::create_directory(folder);
  with.trace = folder + "/trace.json";
  auto engine = open(with);
  save(*engine, 3);
  std::filesystem::remove(folder);
  EXPECT_EQ(error_of([&] { engine->close(); }), Errc::not_found);
  engine.reset();
  EXPECT_EQ(open(options(0, 1))->steps(), std::vector<Step>{3});
}

TEST_F(HistoryTraceTest, WithoutATraceNothingIsNoted) {
  HistoryOptions with = options(1, 1);
  with.trace = "";
  const auto engine = open(with);
  save(*engine, 1);
  restore(*engine, 1);
  EXPECT_TRUE(engine->traced().empty());
  EXPECT_EQ(engine->snapshot().traced, 0u);
}

}  // namespace
}  // namespace holdfast

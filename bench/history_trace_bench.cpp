// What tracing a history costs: a save and a restore within one cache with a trace and without, in
// turn, and noting an event alone; the best of all repeats. One JSON object per line.
//
//   history_trace_bench [--calls=N] [--repeat=N]
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench.hpp"
#include "history/engine.hpp"

namespace {

using holdfast::BufferMemory;
using holdfast::HistoryOptions;
using holdfast::Stream;
using holdfast::Tier;
using holdfast::history::Clock;
using holdfast::history::Engine;
using holdfast::history::Trace;
using holdfast::history::TraceEvent;

double ns_since(Clock::time_point begin, std::uint64_t calls) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() /
         static_cast<double>(calls);
}

// Nanoseconds of a save and a restore that keeps, of 4 KiB; and the events that they left.
struct Cost {
  double save, restore, events;
};
Cost calls_of(const std::string& trace, std::uint64_t calls) {
  HistoryOptions options;
  options.host_bytes = (calls + 1) * 4096;
  options.trace = trace;
  Engine engine(options);
  const holdfast::DeviceBuffer<std::byte> field(4096);
  engine.protect("field", {field.data(), 4096, BufferMemory::device});
  Stream stream;
  Cost cost{};
  auto begin = Clock::now();
  for (std::uint64_t step = 0; step < calls; ++step) engine.save(step, stream, true);
  cost.save = ns_since(begin, calls);
  stream.synchronize();
  begin = Clock::now();
  for (std::uint64_t step = 0; step < calls; ++step) engine.restore(step, stream, true);
  cost.restore = ns_since(begin, calls);
  cost.events = static_cast<double>(engine.snapshot().traced);
  return cost;
}

double best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// Nanoseconds of noting an event, with the clock read as it is for most.
double note_alone(const std::string& path) {
  constexpr std::uint64_t kEvents = 1'000'000;
  Trace trace(path, 1 << 16, {{Tier::host, 1}});
  TraceEvent event;
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < kEvents; ++i) {
    event.end_ns = trace.now();
    trace.note(event);
  }
  return ns_since(begin, kEvents);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, {{"calls", 256}, {"repeat", 100}});
  const std::uint64_t calls = options["calls"], repeat = options["repeat"];
  if (calls == 0 || repeat == 0) {
    std::fprintf(stderr, "history_trace_bench: --calls and --repeat are 1 or more\n");
    return 2;
  }
  const std::string path = "/tmp/history_trace_bench." + std::to_string(::getpid()) + ".json";
  std::vector<double> saves[2], restores[2], notes;
  double events = 0;
  for (std::uint64_t i = 0; i < repeat; ++i) {
    for (const bool traced : {false, true}) {  // in turn, so that both meet the same machine
      const Cost cost = calls_of(traced ? path : "", calls);
      saves[traced].push_back(cost.save);
      restores[traced].push_back(cost.restore);
      if (traced) events = cost.events / static_cast<double>(calls);
    }
    notes.push_back(note_alone(path));
  }
  ::unlink(path.c_str());
  bench::Line("history_trace")
      .count("calls", calls)
      .number("save_ns", best(saves[0]))
      .number("save_traced_ns", best(saves[1]))
      .number("restore_ns", best(restores[0]))
      .number("restore_traced_ns", best(restores[1]))
      .number("events_per_save_and_restore", events)
      .number("note_ns", best(notes))
      .print();
}

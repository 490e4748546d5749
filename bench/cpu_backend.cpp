// What the CPU backend costs: threads, switches, collectives and (intercepted flavour) accesses.
// Prints a JSON object per line. All figures are of one core.
#include "cpu_backend.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "holdfast/cpu/listener.hpp"

namespace holdfast::bench {
namespace {

constexpr int kRepeats = 5;

double seconds(const std::function<void(Stream&)>& work) {
  Stream stream;
  work(stream);  // touches memory and stacks once
  stream.synchronize();
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work(stream);
    stream.synchronize();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void print(const char* what, const char* unit, double value) {
  std::printf(
      "{\"bench\": \"cpu_backend\", \"what\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, "
      "\"repeats\": %d, \"intercepted\": %s}\n",
      what, unit, value, kRepeats, cpu::can_listen() ? "true" : "false");
}

void rate(const char* what, const char* unit, double count,
          const std::function<void(Stream&)>& work) {
  print(what, unit, count / seconds(work));
}

// As little as a listener can do and still look at each event.
struct Trivial : cpu::Listener {
  void on_event(const cpu::Event& event) override { bytes += event.size; }
  std::uint64_t bytes = 0;
};

void accesses() {
  std::vector<unsigned> in(kWords), out(kWords);
  constexpr unsigned kCount = 20'000, kThreads = 64;
  const auto work = [&](Stream& stream) {
    launch(stream, 1, kThreads, loads_and_stores, kCount, static_cast<const unsigned*>(in.data()),
           out.data());
  };
  constexpr double kAccesses = 2.0 * kCount * kThreads;
  print(cpu::can_listen() ? "access, no listener" : "access", "ns",
        1e9 * seconds(work) / kAccesses);
  if (!cpu::can_listen()) return;
  Trivial listener;
  cpu::set_listener(&listener);
  print("access, trivial listener", "ns", 1e9 * seconds(work) / kAccesses);
  cpu::set_listener(nullptr);
}

void all() {
  constexpr unsigned kBlocks = 16'384, kThreads = 256, kRounds = 20'000;
  DeviceBuffer<unsigned> out(std::size_t{kBlocks} * kThreads);
  rate("threads of one store, blocks of 256", "threads/s", double{kBlocks} * kThreads,
       [&](Stream& stream) { launch(stream, kBlocks, kThreads, store_once, out.data()); });
  rate("threads of one barrier, blocks of 256", "threads/s", double{kBlocks} * kThreads,
       [&](Stream& stream) { launch(stream, kBlocks, kThreads, barriers, 1u); });
  rate("switches at __syncthreads, 256 threads", "switches/s", double{kThreads} * kRounds,
       [&](Stream& stream) { launch(stream, 1, kThreads, barriers, kRounds); });
  rate("switches at yields, 256 threads", "switches/s", double{kThreads} * kRounds,
       [&](Stream& stream) { launch(stream, 1, kThreads, yields, kRounds); });
  rate("switches at yields, 1024 threads", "switches/s", 4.0 * kThreads * kRounds,
       [&](Stream& stream) { launch(stream, 1, 4 * kThreads, yields, kRounds); });
  rate("shuffles, 256 threads", "lane calls/s", double{kThreads} * kRounds,
       [&](Stream& stream) { launch(stream, 1, kThreads, shuffles, kRounds, out.data()); });
  rate("atomicAdd, 256 threads", "atomics/s", double{kThreads} * kRounds,
       [&](Stream& stream) { launch(stream, 1, kThreads, atomics, kRounds, out.data()); });
  rate("launch and synchronize, one thread", "launches/s", 1000, [&](Stream& stream) {
    for (int i = 0; i < 1000; ++i) {
      launch(stream, 1, 1, barriers, 1u);
      stream.synchronize();
    }
  });
  accesses();
}

}  // namespace
}  // namespace holdfast::bench

int main() {
  try {
    holdfast::bench::all();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cpu_backend: %s\n", error.what());
    return 1;
  }
  return 0;
}

#include "costs.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "../bench.hpp"
#include "history/eviction.hpp"
#include "holdfast/history.hpp"
#include "kernels.hpp"

namespace score {

namespace {

using holdfast::DeviceBuffer;
using holdfast::History;
using holdfast::Stream;

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at =
      static_cast<std::size_t>(std::lround(share * static_cast<double>(values.size() - 1)));
  return values[at];
}

void print_call(const char* call, const std::vector<double>& times) {
  bench::Line("score_host")
      .text("call", call)
      .count("calls", times.size())
      .number("median_us", 1e6 * quantile(times, 0.5))
      .number("p99_us", 1e6 * quantile(times, 0.99))
      .print();
}

template <class Body>
void timed(std::vector<double>& times, Body&& body) {
  times.push_back(bench::seconds(body));
}

}  // namespace

namespace {

// Calls on snapshots of 4 KiB, whose copies take next to nothing.
class HostCosts {
 public:
  // One behind the other, with time for the flushes only now and then.
  void in_a_row() {
    // Room for half of them: the later saves evict.
    History history =
        History::open({.gpu_bytes = kBytes * kSteps / 2, .host_bytes = 2 * kBytes * kSteps});
    history.protect("snapshot", array_.data(), kBytes);
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      plain("a copy and an event");
      if (i >= kSteps / 4) pause(100);
    }
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const char* call = step < kSteps / 2 ? "save, with room" : "save, evicting";
      timed(times_[call], [&] { history.save(step, stream_); });
      stream_.synchronize();
      // Time for the flush, as a program's computing would give it.
      if (step >= kSteps / 4) pause(100);
    }
    history.flush();
    std::vector<std::uint64_t> back(kSteps);
    for (std::uint64_t i = 0; i < kSteps; ++i) back[i] = kSteps - 1 - i;
    for (const std::uint64_t step : back) timed(times_["hint"], [&] { history.hint(step); });
    history.prefetch_start();
    for (const std::uint64_t step : back) {
      const bool early = step >= kSteps / 2;
      timed(times_[early ? "restore, saved last" : "restore, prefetched"],
            [&] { history.restore(step, stream_); });
      stream_.synchronize();
      if (!early) pause(100);
    }
  }
  // As in a shot, whose host has slept for an iteration: what it does takes longer then, a plain
  // copy, too.
  void behind_pauses() {
    constexpr std::uint64_t kCalls = 200;
    constexpr int kPause = 2500;
    History history =
        History::open({.gpu_bytes = kBytes * kCalls, .host_bytes = 2 * kBytes * kCalls});
    history.protect("snapshot", array_.data(), kBytes);
    for (std::uint64_t step = 0; step < kCalls; ++step) {
      pause(kPause);
      plain("a copy and an event, behind a pause");
      pause(kPause);
      timed(times_["save, behind a pause"], [&] { history.save(step, stream_); });
      stream_.synchronize();
    }
    for (std::uint64_t step = 0; step < kCalls; ++step) {
      pause(kPause);
      timed(times_["restore, behind a pause"], [&] { history.restore(step, stream_); });
      stream_.synchronize();
    }
  }
  void print() const {
    for (const auto& [call, values] : times_) print_call(call.c_str(), values);
  }

 private:
  static constexpr std::uint64_t kBytes = 4096, kSteps = 2000;

  static void pause(int us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }
  // What a save cannot do without: its copy is queued, and a mark behind it.
  void plain(const char* call) {
    timed(times_[call], [&] {
      holdfast::copy_async(stream_, copy_.data(), array_.data(), kBytes);
      event_.record(stream_);
    });
    stream_.synchronize();
  }

  DeviceBuffer<std::byte> array_{kBytes}, copy_{kBytes};
  Stream stream_;
  holdfast::Event event_;
  std::map<std::string, std::vector<double>> times_;
};

}  // namespace

void print_host_costs(const Settings&) {
  HostCosts costs;
  costs.in_a_row();
  costs.behind_pauses();
  costs.print();
}

void print_eviction_costs(const Settings& settings) {
  using holdfast::history::Fragment;
  for (const std::uint64_t count : {32, 1000, 10000}) {
    std::vector<Fragment> fragments;
    std::uint64_t offset = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t random = mix(settings.seed, count, i);
      Fragment fragment{};
      fragment.offset = offset;
      fragment.bytes = 4096 * (1 + random % 64);
      fragment.step = random >> 60 == 0 ? holdfast::history::kGap : i;
      offset += fragment.bytes;
      fragments.push_back(fragment);
    }
    const std::uint64_t wanted = offset / count * 3;
    std::vector<double> times;
    std::vector<holdfast::history::Score> memory;  // that a tier uses again
    std::size_t found = 0;
    for (int repeat = 0; repeat < 200; ++repeat) {
      timed(times, [&] {
        const auto window = holdfast::history::choose_window(
            fragments, wanted,
            [&](const Fragment& fragment) {
              return holdfast::history::Score{0, fragment.step, fragment.step % 7 == 0};
            },
            memory);
        found += window ? window->last : 0;
      });
    }
    bench::Line("score_eviction")
        .count("fragments", count)
        .number("median_us", 1e6 * quantile(times, 0.5))
        .number("p99_us", 1e6 * quantile(times, 0.99))
        .count("last", found / 200)
        .print();
  }
}

namespace {

// Saves and restores without a pause, so that copies run in both directions of the link.
class Load {
 public:
  explicit Load(const Settings& settings)
      : bytes_(settings.bytes),
        array_(bytes_),
        history_(History::open({.gpu_bytes = 4 * bytes_, .host_bytes = 24 * bytes_})) {
    history_.protect("snapshot", array_.data(), bytes_);
    thread_ = std::thread([this] { run(); });
    while (moved_ < 16 * bytes_) std::this_thread::yield();
  }
  ~Load() {
    stop_ = true;
    thread_.join();
  }
  std::uint64_t moved() const { return moved_; }

 private:
  void run() {
    constexpr std::uint64_t kBehind = 8;  // by then only the host has it
    for (std::uint64_t step = 0; !stop_; ++step) {
      history_.save(step, stream_);
      stream_.synchronize();
      moved_ += bytes_;
      if (step < kBehind) continue;
      history_.restore(step - kBehind, stream_);
      stream_.synchronize();
      moved_ += bytes_;
      history_.discard(step - kBehind);
    }
  }

  const std::uint64_t bytes_;
  DeviceBuffer<std::byte> array_;
  Stream stream_;
  History history_;
  std::atomic<std::uint64_t> moved_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Seconds of one kernel: the median of many, each by itself.
double kernel_seconds(const std::function<void(Stream&)>& kernel, Stream& stream) {
  constexpr int kRepeat = 40;
  std::vector<double> times;
  for (int i = 0; i < kRepeat; ++i) {
    holdfast::Event start, end;
    start.record(stream);
    kernel(stream);
    end.record(stream);
    stream.synchronize();
    times.push_back(1e-3 * static_cast<double>(holdfast::Event::elapsed_ms(start, end)));
  }
  return bench::median(times);
}

}  // namespace

void print_slowdown(const Settings& settings) {
  const bool gpu = std::string(holdfast::backend::name()) == "cuda";
  const std::uint64_t words = (gpu ? std::uint64_t{1} << 30 : std::uint64_t{4} << 20) / 8;
  DeviceBuffer<std::uint64_t> from(words), to(words);
  DeviceBuffer<float> out(compute_outputs());
  Stream stream;
  const std::uint64_t rounds = gpu ? 200'000 : 20'000;
  const std::pair<const char*, std::function<void(Stream&)>> kernels[] = {
      {"arithmetic", [&](Stream& on) { compute(on, out.data(), rounds); }},
      {"memory", [&](Stream& on) { sweep(on, from.data(), to.data(), words); }}};
  for (const auto& [name, kernel] : kernels) {
    kernel(stream);  // code is loaded at its first launch
    const double alone = kernel_seconds(kernel, stream);
    double beside = 0, gb_per_s = 0;
    {
      const Load load(settings);
      const std::uint64_t before = load.moved();
      const double took = bench::seconds([&] { beside = kernel_seconds(kernel, stream); });
      gb_per_s = static_cast<double>(load.moved() - before) / took / 1e9;
    }
    bench::Line("score_slowdown")
        .text("kernel", name)
        .number("alone_ms", 1e3 * alone)
        .number("beside_ms", 1e3 * beside)
        .number("slower_percent", 100 * (beside / alone - 1))
        .number("load_gb_per_s", gb_per_s)
        .print();
  }
}

}  // namespace score

// Transfers over the link of all ranks at once, beside plain copies of all ranks at once.
#include <functional>
#include <vector>

#include "../bench.hpp"
#include "costs.hpp"
#include "holdfast/history.hpp"

namespace score {

namespace {

using holdfast::DeviceBuffer;
using holdfast::History;
using holdfast::PinnedBuffer;
using holdfast::Stream;
using holdfast::Tier;

constexpr std::uint64_t kSteps = 16;
constexpr int kRepeat = 7;

class Together {
 public:
  Together(std::uint64_t bytes, Ranks& ranks)
      : bytes_(bytes), ranks_(ranks), array_(bytes), pinned_(kSteps * bytes) {
    holdfast::fill_async(stream_, array_.data(), 0x5a, bytes_);
    stream_.synchronize();
  }

  // Saves into the GPU's cache, from the first call until the host's cache has all of them.
  void flushes() {
    History history =
        History::open({.gpu_bytes = (kSteps + 1) * bytes_, .host_bytes = (kSteps + 1) * bytes_});
    history.protect("snapshot", array_.data(), bytes_);
    const auto ours = [&] {
      std::vector<holdfast::Ticket> tickets;
      tickets.reserve(kSteps);
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        tickets.push_back(history.save(step, stream_));
      }
      for (const auto& ticket : tickets) ticket.wait(Tier::host);
    };
    const auto again = [&] {
      for (const std::uint64_t step : history.steps()) history.discard(step);
      history.flush();
    };
    pairs(
        "flush, GPU to host tier", ours, [&] { plain(true); }, again);
  }
  // Restores from the host's cache, queued one behind the other.
  void restores() {
    History history = History::open({.host_bytes = (kSteps + 1) * bytes_});
    history.protect("snapshot", array_.data(), bytes_);
    for (std::uint64_t step = 0; step < kSteps; ++step) history.save(step, stream_);
    stream_.synchronize();
    const auto ours = [&] {
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        history.restore(step, stream_, true);
      }
      stream_.synchronize();
    };
    pairs(
        "restore, host tier", ours, [&] { plain(false); }, [] {});
  }

 private:
  void plain(bool to_host) {
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      std::byte* const host = pinned_.data() + step * bytes_;
      holdfast::copy_async(stream_, to_host ? host : array_.data(), to_host ? array_.data() : host,
                           bytes_);
    }
    stream_.synchronize();
  }
  // Each between two barriers, so that all ranks move bytes at once and end together.
  double timed(const std::function<void()>& body) {
    ranks_.barrier();
    return bench::seconds([&] {
      body();
      ranks_.barrier();
    });
  }
  void pairs(const char* path, const std::function<void()>& ours,
             const std::function<void()>& copies, const std::function<void()>& again) {
    std::vector<double> mine, plain;
    for (int repeat = 0; repeat <= kRepeat; ++repeat) {
      const bool first = repeat % 2 == 0;  // neither is always the first
      if (!first) plain.push_back(timed(copies));
      mine.push_back(timed(ours));
      if (first) plain.push_back(timed(copies));
      again();
      if (repeat > 0) continue;
      mine.clear();  // memory that was never touched is slower
      plain.clear();
    }
    ranks_.in_turn([&] { print(path, mine, plain); });
  }
  void print(const char* path, const std::vector<double>& mine, const std::vector<double>& plain) {
    const double all = static_cast<double>(ranks_.count * kSteps * bytes_) / 1e9;
    bench::Line("score_together")
        .text("path", path)
        .count("rank", ranks_.rank)
        .count("ranks", ranks_.count)
        .count("bytes", bytes_)
        .count("snapshots", kSteps)
        .number("gb_per_s", all / bench::median(mine))
        .number("plain_gb_per_s", all / bench::median(plain))
        .number("speed_ratio", bench::median(plain) / bench::median(mine))
        .print();
  }

  const std::uint64_t bytes_;
  Ranks& ranks_;
  DeviceBuffer<std::byte> array_;
  PinnedBuffer<std::byte> pinned_;
  Stream stream_;
};

}  // namespace

void print_together(const Settings& settings, Ranks& ranks) {
  Together together((settings.bytes + 4095) / 4096 * 4096, ranks);
  together.flushes();
  together.restores();
}

}  // namespace score

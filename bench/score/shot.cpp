#include "shot.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include "holdfast/error.hpp"
#include "kernels.hpp"

namespace score {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A folder of the shot's own, which goes with it.
class Folder {
 public:
  Folder(const std::string& parent, unsigned rank) {
    std::string path = parent + "/score-" + std::to_string(rank) + "-XXXXXX";
    if (!::mkdtemp(path.data())) {
      throw holdfast::Error(holdfast::Errc::io,
                            parent + ": no folder can be made here: choose another with --disk");
    }
    path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::unique_ptr<Store> open_store(const std::string& name, const StoreOptions& options) {
  if (name == "history") return open_history(options);
  if (name == "pager") return open_pager(options);
  if (name == "buffers") return open_buffers(options);
  throw holdfast::Error(holdfast::Errc::invalid_argument,
                        "no store '" + name + "': history, pager or buffers");
}

class Shot {
 public:
  Shot(const Cell& cell, const Settings& settings, Ranks& ranks)
      : cell_(cell),
        settings_(settings),
        ranks_(ranks),
        bytes_(snapshot_bytes(cell.sizes, settings.snapshots, settings.bytes, settings.seed,
                              ranks.rank)),
        order_(restore_order(cell.order, settings.snapshots, settings.seed)),
        folder_(settings.disk, ranks.rank),
        array_(*std::max_element(bytes_.begin(), bytes_.end())),
        wrong_(1),
        seen_(1) {
    result_.bytes = std::accumulate(bytes_.begin(), bytes_.end(), std::uint64_t{0});
  }

  ShotResult run() {
    stream_.synchronize();
    Clock::time_point start = Clock::now();
    store_ = open_store(cell_.store, {.array = array_.data(),
                                      .step_bytes = bytes_,
                                      .gpu_bytes = cell_.gpu_bytes,
                                      .host_bytes = cell_.host_bytes,
                                      .page_bytes = settings_.page_bytes,
                                      .folder = folder_.path(),
                                      .discard_consumed = !cell_.wait});
    result_.init_seconds = since(start);
    if (cell_.hints == Hints::all) store_->hint(order_);
    ranks_.barrier();
    start = Clock::now();
    for (Step step = 0; step < settings_.snapshots; ++step) save(step);
    result_.forward_seconds = since(start);
    if (cell_.wait) {
      start = Clock::now();
      store_->flush();
      result_.drain_seconds = since(start);
    }
    // The last snapshot is still in the array, where a restore of it could be left out unseen.
    holdfast::fill_async(stream_, array_.data(), 0xff, array_.bytes());
    stream_.synchronize();
    ranks_.barrier();
    store_->prefetch_start();
    start = Clock::now();
    for (std::uint64_t i = 0; i < order_.size(); ++i) restore(i);
    result_.backward_seconds = since(start);
    result_.counts = store_->counts();
    start = Clock::now();
    store_.reset();
    result_.close_seconds = since(start);
    return std::move(result_);
  }

 private:
  std::uint64_t key(Step step) const { return mix(settings_.seed + 1, ranks_.rank, step); }
  std::uint64_t* words() const { return reinterpret_cast<std::uint64_t*>(array_.data()); }

  // `body` is part of the computing.
  template <class Body>
  void interval(Body&& body) {
    const Clock::time_point end = Clock::now() + std::chrono::microseconds(cell_.interval_us);
    body();
    const Clock::time_point now = Clock::now();
    if (now >= end) return;
    if (settings_.compute == Compute::sleep) {
      std::this_thread::sleep_until(end);
    } else {
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - now);
      busy(stream_, static_cast<std::uint64_t>(left.count()));
      stream_.synchronize();
    }
  }

  // Blocking time of `call`, and of the call alone.
  template <class Call>
  void measure(std::vector<double>& blocking, std::vector<double>& calls, Call&& call) {
    const Clock::time_point start = Clock::now();
    call();
    calls.push_back(since(start));
    stream_.synchronize();
    blocking.push_back(since(start));
  }

  void save(Step step) {
    interval([&] {
      fill(stream_, words(), bytes_[step] / sizeof(std::uint64_t), key(step));
      stream_.synchronize();
    });
    if (cell_.coupled) ranks_.barrier();
    measure(result_.save_seconds, result_.save_call_seconds, [&] { store_->save(step, stream_); });
  }

  void restore(std::uint64_t i) {
    const Step step = order_[i];
    if (cell_.coupled) ranks_.barrier();
    if (cell_.hints == Hints::single && i + 1 < order_.size()) store_->hint({&order_[i + 1], 1});
    result_.ready.push_back(static_cast<double>(store_->ready(std::span(order_).subspan(i))));
    measure(result_.restore_seconds, result_.restore_call_seconds,
            [&] { store_->restore(step, stream_); });
    result_.restored_bytes.push_back(static_cast<double>(bytes_[step]));
    interval([&] { compare(step); });
  }

  void compare(Step step) {
    holdfast::fill_async(stream_, wrong_.data(), 0, sizeof(unsigned long long));
    check(stream_, words(), bytes_[step] / sizeof(std::uint64_t), key(step), wrong_.data());
    holdfast::copy_async(stream_, seen_.data(), wrong_.data(), sizeof(unsigned long long));
    stream_.synchronize();
    if (seen_[0] == 0) return;
    throw holdfast::Error(holdfast::Errc::damaged,
                          cell_.store + ": step " + std::to_string(step) + " came back with " +
                              std::to_string(seen_[0]) + " wrong words (seed " +
                              std::to_string(settings_.seed) + ")");
  }

  const Cell& cell_;
  const Settings& settings_;
  Ranks& ranks_;
  const std::vector<std::uint64_t> bytes_;
  const std::vector<Step> order_;
  Folder folder_;
  holdfast::DeviceBuffer<std::byte> array_;
  holdfast::DeviceBuffer<unsigned long long> wrong_;
  holdfast::PinnedBuffer<unsigned long long> seen_;
  holdfast::Stream stream_;
  std::unique_ptr<Store> store_;
  ShotResult result_;
};

}  // namespace

ShotResult run_shot(const Cell& cell, const Settings& settings, Ranks& ranks) {
  return Shot(cell, settings, ranks).run();
}

}  // namespace score

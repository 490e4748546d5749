// For experiments: makes memory as slow as the medium that it stands for.
//
// A kernel's stores to pinned memory cannot be slowed one by one without distorting what else the
// kernel does. So the medium is a server that takes what it is told of, one after the other, at its
// model's speed, and whoever promises durability waits until it has taken all. Traffic that was
// under way beside computing costs nothing as long as the computing takes longer.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "holdfast/testing/medium_model.hpp"

namespace holdfast {
class Region;
}

namespace holdfast::testing {

// Thread safety: any.
class Throttle {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws as MediumModel::check() does.
  explicit Throttle(MediumModel model = {});
  Throttle(const Throttle&) = delete;
  Throttle& operator=(const Throttle&) = delete;

  const MediumModel& model() const { return model_; }
  // False: nothing here has any effect.
  bool active() const { return active_; }

  // A moment from which traffic can have been under way.
  struct Mark {
    Clock::time_point begin;  // no earlier than the medium was free
    double busy_seconds = 0;  // that had been asked for by then
  };
  Mark mark() const;

  // Says that bytes are written, or read, since `since`. Does not wait.
  void write(const Mark& since, std::uint64_t bytes, Access access);
  void read(const Mark& since, std::uint64_t bytes);
  // Returns once the medium has taken everything, and the latency is over. Nothing said since the
  // last wait, and nothing left: at once.
  void wait();
  // Seconds that wait() took, in all threads together.
  double waited_seconds() const;

 private:
  void ask(const Mark& since, double seconds, double latency_ns);

  const MediumModel model_;
  const bool active_;
  mutable std::mutex mutex_;  // guards what follows
  Clock::time_point free_at_;
  double busy_seconds_ = 0;
  double latency_ns_ = 0;  // of what was said since the last wait; 0: none
  double waited_seconds_ = 0;
};

// Of RegionOptions::medium. Commits of the file domain and checkpoints wait for it; who writes to
// the region in another way says so to it, and waits where durability is promised. Not active on
// the emulated domain. Throws closed.
Throttle& throttle(const Region& region);

}  // namespace holdfast::testing

#include "holdfast/testing/throttle.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace holdfast::testing {

namespace {

using Clock = Throttle::Clock;

constexpr double kLongest = 1e8;  // seconds: what a clock's count holds
// A sleeping thread comes back this much late; the rest is waited for awake.
constexpr auto kAwake = std::chrono::microseconds(100);

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(seconds, kLongest)));
}

void wait_until(Clock::time_point end) {
  if (Clock::now() + kAwake < end) std::this_thread::sleep_until(end - kAwake);
  while (Clock::now() < end) std::this_thread::yield();
}

MediumModel checked(MediumModel model) {
  model.check();
  return model;
}

}  // namespace

Throttle::Throttle(MediumModel model)
    : model_(checked(std::move(model))), active_(model_.slows()) {}

Throttle::Mark Throttle::mark() const {
  if (!active_) return {};
  const std::lock_guard lock(mutex_);
  return {std::max(Clock::now(), free_at_), busy_seconds_};
}

// All that was asked for since the mark fits behind its begin; what was asked for meanwhile by
// others is counted by busy_seconds_, and ended no earlier than free_at_.
void Throttle::ask(const Mark& since, double seconds, double latency_ns) {
  const std::lock_guard lock(mutex_);
  busy_seconds_ += seconds;
  free_at_ = std::max(free_at_, since.begin + duration_of(busy_seconds_ - since.busy_seconds));
  latency_ns_ = std::max(latency_ns_, latency_ns);
}

void Throttle::write(const Mark& since, std::uint64_t bytes, Access access) {
  if (!active_ || bytes == 0) return;
  ask(since, model_.write_seconds(bytes, access), model_.persist_latency_ns);
}

void Throttle::read(const Mark& since, std::uint64_t bytes) {
  if (!active_ || bytes == 0) return;
  ask(since, model_.read_seconds(bytes), model_.read_latency_ns);
}

void Throttle::wait() {
  if (!active_) return;
  const Clock::time_point start = Clock::now();
  Clock::time_point end;
  {
    const std::lock_guard lock(mutex_);
    end = std::max(start, free_at_) + duration_of(latency_ns_ * 1e-9);
    latency_ns_ = 0;
  }
  if (end <= start) return;
  wait_until(end);
  const std::lock_guard lock(mutex_);
  waited_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
}

double Throttle::waited_seconds() const {
  const std::lock_guard lock(mutex_);
  return waited_seconds_;
}

}  // namespace holdfast::testing

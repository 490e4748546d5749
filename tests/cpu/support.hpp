// What the tests of the CPU backend share.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>

#include "holdfast/cpu/executor.hpp"
#include "holdfast/error.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {

// The seed of a randomised test: HOLDFAST_TEST_SEED, or one that the test prints.
inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* text = std::getenv("HOLDFAST_TEST_SEED");
    const std::uint64_t value = text ? std::strtoull(text, nullptr, 0) : std::random_device{}();
    std::printf("HOLDFAST_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

// Sets a schedule for a test's duration.
class ScheduleScope {
 public:
  explicit ScheduleScope(const cpu::Schedule& schedule) : before_(cpu::schedule()) {
    cpu::set_schedule(schedule);
  }
  ~ScheduleScope() { cpu::set_schedule(before_); }
  ScheduleScope(const ScheduleScope&) = delete;
  ScheduleScope& operator=(const ScheduleScope&) = delete;

 private:
  cpu::Schedule before_;
};

inline cpu::Schedule with_seed(std::uint64_t seed) {
  cpu::Schedule schedule;
  schedule.seed = seed;
  return schedule;
}

struct Failure {
  bool failed = false;
  Errc code{};
  std::string message;
};

// What the work that `queue` puts on a fresh stream ends with.
inline Failure failure_of(const std::function<void(Stream&)>& queue) {
  Stream stream;
  queue(stream);
  try {
    stream.synchronize();
  } catch (const Error& error) {
    return {true, error.code(), error.what()};
  }
  return {};
}

inline void expect_failure(Errc code, std::initializer_list<const char*> parts,
                           const std::function<void(Stream&)>& queue) {
  const Failure failure = failure_of(queue);
  EXPECT_TRUE(failure.failed);
  EXPECT_EQ(failure.code, code) << failure.message;
  for (const char* part : parts) {
    EXPECT_NE(failure.message.find(part), std::string::npos)
        << "\"" << part << "\" is not in: " << failure.message;
  }
}

}  // namespace holdfast::test

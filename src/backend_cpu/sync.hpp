// What every operation that other threads can see does before and after itself.
#pragma once

#include <cstdint>

#include "backend_cpu/engine.hpp"
#include "backend_cpu/run.hpp"

namespace holdfast::cpu {

// The running thread, its standing noted. Throws Errc::invalid_argument outside a kernel.
Thread& require_thread(const char* operation, const char* file, unsigned line);

inline constexpr unsigned kStreak = 64;  // operations of a thread that do not yield, at seed 0

// With a seed, the schedule may change hands before each operation.
inline void before_sync(Thread& self) {
  if (kEvents && self.slot->run().engine != nullptr) return;  // a fence: no one else sees it
  if (self.slot->run().seeded() || self.slot->run().lockstep()) self.slot->yield(self);
}

// The same, for an access by which threads may tell each other something.
inline void before_access(Thread& self, bool writes, const void* address, std::size_t size) {
  if (kEvents && self.slot->run().engine != nullptr) {
    stop_thread(self, writes, address, size);
  } else {
    before_sync(self);
  }
}

// Without one, a thread yields when it has done many operations in a row ...
inline void after_sync(Thread& self) {
  if (!self.slot->run().seeded() && ++self.streak >= kStreak) self.slot->yield(self);
}

// ... or when it asks the same again and gets the same answer: it spins.
inline void after_poll(Thread& self, const void* address, std::uint64_t value,
                       std::uint64_t operand) {
  const bool again =
      self.polled_address == address && self.polled_value == value && self.last_operand == operand;
  // A thread that asks something new of the same variable is computing, not spinning, whatever
  // it is told.
  if (self.polled_address == address && self.last_operand != operand) self.slot->progress();
  self.polled_address = address;
  self.polled_value = value;
  self.last_operand = operand;
  if (again && !self.slot->run().seeded()) {
    self.slot->yield(self);
  } else {
    after_sync(self);
  }
}

}  // namespace holdfast::cpu

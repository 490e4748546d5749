// One atomic read-modify-write of a kernel, whatever its operation.
#pragma once

#include <cstdint>

#include "backend_cpu/events.hpp"
#include "backend_cpu/sync.hpp"

namespace holdfast::cpu {

// Replaces the bits at `address` by update(bits), also against host threads. Returns the bits
// before, and those after in `now`.
template <class Bits, class Update>
Bits exchange(Bits* address, Update update, Bits& now) {
  Bits old = __atomic_load_n(address, __ATOMIC_RELAXED);
  do {
    now = update(old);
  } while (now != old && !__atomic_compare_exchange_n(address, &old, now, true, __ATOMIC_SEQ_CST,
                                                      __ATOMIC_RELAXED));
  return old;
}

// Ends the kernel if `address` is not a multiple of `bytes`.
void check_aligned(Thread& self, const void* address, std::size_t bytes);

void deliver_atomic(Thread& self, Scope scope, const void* address, std::size_t size,
                    const void* before, const void* after, bool failed);

// `operand` is what the caller passes, for the spin check. `expected`: of a compare-and-swap, which
// fails where it finds something else; null: of another operation.
template <class Bits, class Update>
Bits run_atomic(detail::ScopeNumber scope, Bits* address, std::uint64_t operand,
                const Standing& standing, Update update, const Bits* expected = nullptr) {
  Bits now;
  if (t_current == nullptr) return exchange(address, update, now);
  Thread& self = *t_current;
  self.standing = standing;
  check_aligned(self, address, sizeof(Bits));
  settle(self);
  before_access(self, true, address, sizeof(Bits));
  const Bits old = exchange(address, update, now);
  const bool failed = expected != nullptr && old != *expected;
  if constexpr (kEvents) {
    Engine* const engine = self.slot->run().engine;
    if (engine != nullptr && failed) engine->only_read(self);
    if (engine != nullptr && !failed && old == now) engine->left_alone(self);
  }
  if (listened(self)) {
    deliver_atomic(self, static_cast<Scope>(scope), address, sizeof(Bits), &old, &now, failed);
  }
  if (old != now) {
    self.slot->progress();
    after_sync(self);
  } else {
    after_poll(self, address, old, operand);
  }
  return old;
}

}  // namespace holdfast::cpu

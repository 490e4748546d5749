// What the hooks of the intercepted flavour need to know about the running thread.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(HOLDFAST_INTERCEPT)
#define HOLDFAST_EVENTS 1
#else
#define HOLDFAST_EVENTS 0
#endif

namespace holdfast::cpu {

class Listener;
struct Thread;

// Whether this build knows events at all; false lets the compiler drop all code for them.
inline constexpr bool kEvents = HOLDFAST_EVENTS != 0;

// A store that was announced and not yet delivered: the hook runs before the store.
struct PendingStore {
  const void* address = nullptr;  // null: none
  std::size_t size = 0;
  const void* pc = nullptr;
  bool is_volatile = false;
  std::uint64_t before = 0;  // the first bytes that a volatile store replaces
};

}  // namespace holdfast::cpu

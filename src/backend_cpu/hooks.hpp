// The hooks that deliver a kernel's loads and stores.
#pragma once

#include "backend_cpu/events.hpp"
#include "backend_cpu/sync.hpp"

namespace holdfast::cpu {

inline bool on_own_stack(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  return byte >= t_hook.stack_low && byte < t_hook.stack_high;
}

// The thread to deliver an access for, or null. Outside a kernel one load and one compare.
inline Thread* hooked(const void* address) {
  Thread* const thread = t_hook.thread;
  if (__builtin_expect(thread == nullptr, 1) || on_own_stack(address)) return nullptr;
  return thread;
}

// REQUIRES: called before the load.
void on_load(Thread& self, const void* address, std::size_t size, bool is_volatile, const void* pc);
// REQUIRES: called before the store, or after it with no other access of the thread between.
void on_store(Thread& self, void* address, std::size_t size, bool is_volatile, const void* pc);

// std::atomic_thread_fence.
void atomic_thread_fence(const void* pc);

// The load and store events of std::atomic and its like.
void deliver_atomic_access(Thread& self, EventKind kind, const void* address, std::size_t size,
                           const void* value, const void* pc);

}  // namespace holdfast::cpu

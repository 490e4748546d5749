// Delivery of a kernel's events to the listener. In the fast flavour all of it compiles to nothing.
#pragma once

#include "backend_cpu/run.hpp"
#include "holdfast/cpu/host_observer.hpp"
#include "holdfast/cpu/listener.hpp"

namespace holdfast::cpu {

// Read by every hook, so kept apart from Thread. `thread` is null wherever hooks must stay
// silent: outside a kernel's own code, and while the listener runs.
struct HookState {
  Thread* thread = nullptr;
  Listener* listener = nullptr;
  bool copies = false;                    // within a copy that is delivered
  HostObserver::State* host = nullptr;    // null: the thread's own code is not observed
  Event access;                           // for loads and stores: names the thread already
  const std::byte* stack_low = nullptr;   // the thread's own stack, whose accesses are not
  const std::byte* stack_high = nullptr;  // delivered
};
extern constinit thread_local HookState t_hook;

Listener* current_listener() noexcept;

// Fills in who does it and delivers `event`. REQUIRES: no store is pending.
void deliver_now(Thread& thread, Event& event);
void deliver_pending(Thread& thread);

// A load or a store of a thread whose hooks are on. REQUIRES: as for deliver_now().
inline void deliver_access(Thread& thread, EventKind kind, const void* address, std::size_t size,
                           bool is_volatile, const void* pc) {
  Event& event = t_hook.access;
  event.kind = kind;
  event.is_volatile = is_volatile;
  event.address = event.value = address;
  event.size = size;
  event.pc = pc;
  t_hook.thread = nullptr;
  t_hook.listener->on_event(event);
  t_hook.thread = &thread;
}

// Delivers the store that the thread announced, if any: memory holds its value now.
inline void settle(Thread& thread) {
  if constexpr (kEvents) {
    if (thread.pending.address != nullptr) deliver_pending(thread);
  }
}

inline bool listened(const Thread& thread) {
  return kEvents && thread.slot->run().listener != nullptr;
}

inline void set_hook(Thread* thread) {
  if constexpr (kEvents) {
    if (thread == nullptr || !thread->in_kernel) {
      t_hook.thread = nullptr;
      return;
    }
    t_hook.thread = thread;
    t_hook.access.stream = thread->slot->run().stream;
    t_hook.access.task = thread->slot->run().task;
    t_hook.access.block = thread->slot->block_number();
    t_hook.access.thread = thread->number;
    t_hook.access.warp = thread->warp();
    t_hook.access.lane = static_cast<std::uint8_t>(thread->lane());
    t_hook.listener = thread->slot->run().listener;
    t_hook.stack_low = thread->stack;
    t_hook.stack_high = thread->stack + thread->slot->stacks().stack_bytes();
  }
}

// An event that has no value.
inline void emit(Thread& thread, EventKind kind, Scope scope, const Standing& where) {
  if constexpr (kEvents) {
    settle(thread);
    if (!listened(thread)) return;
    Event event;
    event.kind = kind;
    event.scope = scope;
    event.pc = where.pc;
    event.file = where.file;
    event.line = where.line;
    deliver_now(thread, event);
  }
}

// An event of the run or of a block, outside any thread.
void emit_run(const Run& run, EventKind kind, std::uint64_t block, bool completed);

}  // namespace holdfast::cpu

#include "backend_cpu/events.hpp"

#include <atomic>
#include <utility>

#include "backend_cpu/host_events.hpp"

namespace holdfast::cpu {

constinit thread_local HookState t_hook;

namespace {
std::atomic<Listener*> g_listener{nullptr};
}

Listener* current_listener() noexcept { return g_listener.load(); }

bool can_listen() noexcept { return kEvents; }

Listener* set_listener(Listener* listener) {
  if (!kEvents && listener != nullptr) {
    throw Error(Errc::unsupported,
                "this program's library delivers no events of kernels: link holdfast::check");
  }
  settle_host();
  return g_listener.exchange(listener);
}

void deliver_now(Thread& thread, Event& event) {
  const Slot& slot = *thread.slot;
  event.stream = slot.run().stream;
  event.task = slot.run().task;
  event.block = slot.block_number();
  event.thread = thread.number;
  event.warp = thread.warp();
  event.lane = static_cast<std::uint8_t>(thread.lane());
  Thread* const hooked = t_hook.thread;
  t_hook.thread = nullptr;
  slot.run().listener->on_event(event);
  t_hook.thread = hooked;
}

void deliver_pending(Thread& thread) {
  PendingStore& store = thread.pending;
  const void* const address = std::exchange(store.address, nullptr);
  if (store.is_volatile) {
    store.address = address;
    if (store.changed()) thread.slot->progress();
    store.address = nullptr;
  }
  if (!listened(thread)) return;
  if (t_hook.thread == &thread) {
    deliver_access(thread, EventKind::store, address, store.size, store.is_volatile, store.pc);
    return;
  }
  Event event;  // the thread has just ended: its hooks are off
  event.kind = EventKind::store;
  event.is_volatile = store.is_volatile;
  event.address = event.value = address;
  event.size = store.size;
  event.pc = store.pc;
  deliver_now(thread, event);
}

void emit_run(const Run& run, EventKind kind, std::uint64_t block, bool completed) {
  if (!kEvents || run.listener == nullptr) return;
  Event event;
  event.kind = kind;
  event.stream = run.stream;
  event.task = run.task;
  event.block = block;
  event.completed = completed;
  event.grid = run.shape.grid;
  event.extent = run.shape.block;
  run.listener->on_event(event);
}

const char* to_string(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::kernel_begin:
      return "kernel_begin";
    case EventKind::kernel_end:
      return "kernel_end";
    case EventKind::block_begin:
      return "block_begin";
    case EventKind::block_end:
      return "block_end";
    case EventKind::thread_begin:
      return "thread_begin";
    case EventKind::thread_end:
      return "thread_end";
    case EventKind::load:
      return "load";
    case EventKind::store:
      return "store";
    case EventKind::atomic:
      return "atomic";
    case EventKind::fence:
      return "fence";
    case EventKind::ordering_fence:
      return "ordering_fence";
    case EventKind::durability_fence:
      return "durability_fence";
    case EventKind::barrier:
      return "barrier";
    case EventKind::warp_barrier:
      return "warp_barrier";
    case EventKind::acquire:
      return "acquire";
    case EventKind::release:
      return "release";
    case EventKind::synchronize:
      return "synchronize";
    case EventKind::launch:
      return "launch";
  }
  return "unknown";
}

}  // namespace holdfast::cpu

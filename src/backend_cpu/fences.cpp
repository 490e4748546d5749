// Fences, persist releases and persist acquires.
#include <atomic>
#include <chrono>

#include "backend_cpu/atomic_core.hpp"
#include "backend_cpu/hooks.hpp"
#include "backend_cpu/host_events.hpp"
#include "core/persist_delay.hpp"
#include "holdfast/persist.hpp"

namespace holdfast {
namespace {

std::atomic<double> g_persist_delay_ns{0};

void wait_for_medium() {
  const double delay = g_persist_delay_ns.load(std::memory_order_relaxed);
  if (delay <= 0) return;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<std::int64_t>(delay));
  while (std::chrono::steady_clock::now() < until) {
  }
}

}  // namespace

void backend::set_persist_delay_ns(double nanoseconds) noexcept {
  g_persist_delay_ns.store(nanoseconds, std::memory_order_relaxed);
}

}  // namespace holdfast

namespace holdfast::cpu {
namespace {

// Outside a kernel a fence is the processor's own.
void fence(EventKind kind, Scope scope, const Standing& standing) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (t_current == nullptr) return;
  Thread& self = *t_current;
  self.standing = standing;
  settle(self);
  before_sync(self);
  emit(self, kind, scope, self.standing);
  after_sync(self);
}

std::uint64_t load_bits(const void* address, unsigned bytes) {
  return bytes == 4 ? __atomic_load_n(static_cast<const std::uint32_t*>(address), __ATOMIC_ACQUIRE)
                    : __atomic_load_n(static_cast<const std::uint64_t*>(address), __ATOMIC_ACQUIRE);
}

void deliver_sync(Thread& self, EventKind kind, Scope scope, const void* address, std::size_t bytes,
                  const void* value) {
  if (!listened(self)) return;
  Event event;
  event.kind = kind;
  event.scope = scope;
  event.address = address;
  event.size = bytes;
  event.value = value;
  event.file = self.standing.file;
  event.line = self.standing.line;
  deliver_now(self, event);
}

}  // namespace

// A persist is work done: a thread that does nothing but persist is not one that spins.
void durability_fence(const char* file, unsigned line) {
  if (t_current != nullptr) t_current->slot->progress();
  wait_for_medium();
  fence(EventKind::durability_fence, Scope::system, {"durability fence", file, line});
}

void ordering_fence(const char* file, unsigned line) {
  if (t_current != nullptr) t_current->slot->progress();
  fence(EventKind::ordering_fence, Scope::system, {"ordering fence", file, line});
}

void before_release(Scope scope, void* address, unsigned bytes, const char* file, unsigned line) {
  Thread& self = require_thread("prel", file, line);
  self.standing.address = address;
  check_aligned(self, address, bytes);
  settle(self);
  before_access(self, true, address, bytes);
  self.release = {address, bytes, scope};
}

void after_release(const void* value) {
  Thread& self = require_thread("prel", t_current ? t_current->standing.file : nullptr,
                                t_current ? t_current->standing.line : 0);
  const auto [address, bytes, scope] = self.release;
  self.standing.address = address;
  settle(self);
  if (bytes == 4) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, value, 4);
    __atomic_store_n(static_cast<std::uint32_t*>(address), bits, __ATOMIC_RELEASE);
  } else {
    std::uint64_t bits;
    __builtin_memcpy(&bits, value, 8);
    __atomic_store_n(static_cast<std::uint64_t*>(address), bits, __ATOMIC_RELEASE);
  }
  deliver_sync(self, EventKind::release, scope, address, bytes, address);
  self.slot->progress();
  after_sync(self);
}

void acquire(Scope scope, const void* address, unsigned bytes, void* value, const char* file,
             unsigned line) {
  Thread& self = require_thread("pacq", file, line);
  self.standing.address = address;
  check_aligned(self, address, bytes);
  settle(self);
  before_access(self, false, address, bytes);
  const std::uint64_t bits = load_bits(address, bytes);
  __builtin_memcpy(value, &bits, bytes);
  deliver_sync(self, EventKind::acquire, scope, address, bytes, value);
  after_poll(self, address, bits, self.last_operand);
}

void detail::thread_fence(ScopeNumber scope, const char* file, unsigned line) {
  constexpr const char* kNames[] = {"__threadfence_block", "__threadfence", "__threadfence_system"};
  fence(EventKind::fence, static_cast<Scope>(scope), {kNames[scope], file, line});
}

void atomic_thread_fence(const void* pc) {
  if (kEvents && t_hook.host != nullptr && t_hook.thread == nullptr) on_host_fence(pc);
  fence(EventKind::fence, Scope::system, {"std::atomic_thread_fence", nullptr, 0, nullptr, pc});
}

}  // namespace holdfast::cpu

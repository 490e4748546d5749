// What -fsanitize=thread calls for loads and stores, in place of the sanitizer's runtime, and the
// copying functions of kernel files.
#include "backend_cpu/hooks.hpp"

#include <algorithm>
#include <cstring>

#include "backend_cpu/host_events.hpp"

namespace holdfast::cpu {
namespace {

// The first bytes at `address`, as a number.
std::uint64_t peek(const void* address, std::size_t size) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, address, std::min(size, sizeof bits));
  return bits;
}

// Touches what is about to be delivered, so that a bad address faults here, as the kernel's
// fault, and not inside the listener.
void probe(const void* address, std::size_t size) {
  const auto* bytes = static_cast<const volatile char*>(address);
  (void)bytes[0];
  (void)bytes[size - 1];
}

// PendingStore says why.
void deliver_presumed(Thread& self) {
  if (!listened(self)) return;
  Event event;
  event.kind = EventKind::load;
  event.presumed = true;
  event.address = self.pending.address;
  event.value = self.pending.replaced();
  event.size = self.pending.size;
  event.pc = self.pending.pc;
  deliver_now(self, event);
}

}  // namespace

void on_load(Thread& self, const void* address, std::size_t size, bool is_volatile,
             const void* pc) {
  const PendingStore& store = self.pending;
  if (store.address != nullptr && store.may_be_of_itself(address, size, is_volatile)) {
    deliver_presumed(self);
    settle(self);
  } else if (is_volatile || store.load_passed || store.address == nullptr ||
             store.is_read_back(address, size) || store.changed()) {
    settle(self);
  } else {
    self.pending.load_passed = true;
  }
  if (is_volatile) {
    self.standing = {"volatile load", nullptr, 0, address, pc};
    before_access(self, false, address, size);
    after_poll(self, address, peek(address, size), self.last_operand);
  }
  if (t_hook.listener == nullptr || size == 0) return;
  probe(address, size);
  deliver_access(self, EventKind::load, address, size, is_volatile, pc);
}

void on_store(Thread& self, void* address, std::size_t size, bool is_volatile, const void* pc) {
  settle(self);
  if (is_volatile) {
    self.standing = {"volatile store", nullptr, 0, address, pc};
    before_access(self, true, address, size);
    after_sync(self);
  } else if (t_hook.listener == nullptr) {
    return;
  }
  if (size == 0) return;
  ++self.stores;
  self.pending.announce(address, size, is_volatile, pc);
}

// nvcc knows nothing of the addresses that memcpy() and its like are given, and stores bytes.
void on_copied(Thread& self, const void* address, std::size_t size, const void* pc) {
  if (!listened(self)) return;
  ++self.stores;
  Event event;
  event.kind = EventKind::store;
  event.by_bytes = true;
  event.address = event.value = address;
  event.size = size;
  event.pc = pc;
  deliver_now(self, event);
}

void deliver_atomic_access(Thread& self, EventKind kind, const void* address, std::size_t size,
                           const void* value, const void* pc) {
  if (!listened(self)) return;
  Event event;
  event.kind = kind;
  event.is_atomic = true;
  event.address = address;
  event.size = size;
  event.value = value;
  event.pc = pc;
  deliver_now(self, event);
}

}  // namespace holdfast::cpu

namespace {

using namespace holdfast::cpu;

[[gnu::always_inline]] inline void before_load(const void* address, std::size_t size,
                                               bool is_volatile, const void* pc) {
  Thread* const self = t_hook.thread;
  if (__builtin_expect(self == nullptr, 1)) {
    if (t_hook.host != nullptr) {
      on_host_load(address, size, is_volatile, pc);
    } else {
      on_unobserved(EventKind::load, address, size, is_volatile, pc);
    }
  } else if (!on_own_stack(address)) {
    on_load(*self, address, size, is_volatile, pc);
  }
}

[[gnu::always_inline]] inline void before_store(void* address, std::size_t size, bool is_volatile,
                                                const void* pc) {
  Thread* const self = t_hook.thread;
  if (__builtin_expect(self == nullptr, 1)) {
    if (t_hook.host != nullptr) {
      on_host_store(address, size, is_volatile, pc);
    } else {
      on_unobserved(EventKind::store, address, size, is_volatile, pc);
    }
  } else if (!on_own_stack(address)) {
    on_store(*self, address, size, is_volatile, pc);
  }
}

// An earlier store is settled before memory changes; the store itself is noted after it.
void before_copy(const void* from, std::size_t bytes, const void* pc) {
  if (Thread* const self = t_hook.thread) settle(*self);
  settle_host();
  if (from != nullptr) before_load(from, bytes, false, pc);
}

void after_copy(void* to, std::size_t bytes, const void* pc) {
  Thread* const self = t_hook.thread;
  if (self == nullptr && t_hook.host != nullptr) {
    on_host_stored(to, bytes, pc);
  } else if (self == nullptr) {
    on_unobserved(EventKind::store, to, bytes, false, pc);
  } else if (!on_own_stack(to) && bytes != 0) {
    on_copied(*self, to, bytes, pc);
  }
}

}  // namespace

#define HOLDFAST_PC __builtin_return_address(0)
#define HOLDFAST_HOOK(read_name, write_name, bytes, is_volatile)                           \
  void read_name(void* address) { before_load(address, bytes, is_volatile, HOLDFAST_PC); } \
  void write_name(void* address) { before_store(address, bytes, is_volatile, HOLDFAST_PC); }
#define HOLDFAST_HOOKS(bytes)                                                                  \
  HOLDFAST_HOOK(__tsan_read##bytes, __tsan_write##bytes, bytes, false)                         \
  HOLDFAST_HOOK(__tsan_unaligned_read##bytes, __tsan_unaligned_write##bytes, bytes, false)     \
  HOLDFAST_HOOK(__tsan_volatile_read##bytes, __tsan_volatile_write##bytes, bytes, true)        \
  HOLDFAST_HOOK(__tsan_unaligned_volatile_read##bytes, __tsan_unaligned_volatile_write##bytes, \
                bytes, true)

extern "C" {

HOLDFAST_HOOKS(1)
HOLDFAST_HOOKS(2)
HOLDFAST_HOOKS(4)
HOLDFAST_HOOKS(8)
HOLDFAST_HOOKS(16)

void __tsan_read_range(void* address, unsigned long size) {
  before_load(address, size, false, HOLDFAST_PC);
}
void __tsan_write_range(void* address, unsigned long size) {
  before_store(address, size, false, HOLDFAST_PC);
}
void __tsan_vptr_read(void** address) {
  before_load(static_cast<void*>(address), 8, false, HOLDFAST_PC);
}
void __tsan_vptr_update(void** address, void* /*value*/) {
  before_store(static_cast<void*>(address), 8, false, HOLDFAST_PC);
}

void __tsan_init() {}
void __tsan_func_entry(void* /*pc*/) {}
void __tsan_func_exit() {}

void* holdfast_intercept_memcpy(void* to, const void* from, std::size_t bytes) noexcept {
  before_copy(from, bytes, HOLDFAST_PC);
  std::memcpy(to, from, bytes);
  after_copy(to, bytes, HOLDFAST_PC);
  return to;
}
void* holdfast_intercept_memmove(void* to, const void* from, std::size_t bytes) noexcept {
  before_copy(from, bytes, HOLDFAST_PC);
  std::memmove(to, from, bytes);
  after_copy(to, bytes, HOLDFAST_PC);
  return to;
}
void* holdfast_intercept_memset(void* to, int byte, std::size_t bytes) noexcept {
  before_copy(nullptr, 0, HOLDFAST_PC);
  std::memset(to, byte, bytes);
  after_copy(to, bytes, HOLDFAST_PC);
  return to;
}
int holdfast_intercept_memcmp(const void* a, const void* b, std::size_t bytes) noexcept {
  before_copy(a, bytes, HOLDFAST_PC);
  before_copy(b, bytes, HOLDFAST_PC);
  return std::memcmp(a, b, bytes);
}

}  // extern "C"

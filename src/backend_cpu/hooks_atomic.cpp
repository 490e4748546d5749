// What -fsanitize=thread calls for std::atomic, std::atomic_ref and the __atomic builtins.
//
// Each is carried out with sequential consistency, whatever order the caller asked for: the
// executor runs one thread at a time, and host threads see no less than they were promised.
#include "backend_cpu/atomic_core.hpp"
#include "backend_cpu/hooks.hpp"
#include "backend_cpu/host_events.hpp"

namespace holdfast::cpu {
namespace {

// The host's own operation is delivered by what follows it.
template <class Operation>
auto silently(Operation operation) {
  const Silence silence;
  return operation();
}

// In host code, of whichever thread.
void before_host_atomic(bool writes, const void* address, std::size_t size, const void* pc) {
  settle_host();
  if (t_hook.host == nullptr) {
    note_unobserved();
  } else {
    before_host_access(writes, address, size, pc);
  }
}

template <class Bits>
Bits load(const volatile Bits* address, const void* pc) {
  auto* plain = const_cast<Bits*>(address);
  Thread* const self = hooked(plain);
  if (self == nullptr) {
    before_host_atomic(false, plain, sizeof(Bits), pc);
    const Bits value = silently([&] { return __atomic_load_n(plain, __ATOMIC_SEQ_CST); });
    if (t_hook.host) on_host_atomic(EventKind::load, plain, sizeof value, &value, pc);
    return value;
  }
  self->standing = {"atomic load", nullptr, 0, plain, pc};
  settle(*self);
  before_access(*self, false, plain, sizeof(Bits));
  const Bits value = __atomic_load_n(plain, __ATOMIC_SEQ_CST);
  deliver_atomic_access(*self, EventKind::load, plain, sizeof value, &value, pc);
  after_poll(*self, plain, value, self->last_operand);
  return value;
}

template <class Bits>
void store(volatile Bits* address, Bits value, const void* pc) {
  auto* plain = const_cast<Bits*>(address);
  Thread* const self = hooked(plain);
  if (self == nullptr) {
    before_host_atomic(true, plain, sizeof(Bits), pc);
    silently([&] { __atomic_store_n(plain, value, __ATOMIC_SEQ_CST); });
    if (t_hook.host) on_host_atomic(EventKind::store, plain, sizeof value, &value, pc);
    return;
  }
  self->standing = {"atomic store", nullptr, 0, plain, pc};
  settle(*self);
  before_access(*self, true, plain, sizeof(Bits));
  if (__atomic_exchange_n(plain, value, __ATOMIC_SEQ_CST) != value) self->slot->progress();
  deliver_atomic_access(*self, EventKind::store, plain, sizeof value, &value, pc);
  after_sync(*self);
}

template <class Bits, class Update>
Bits modify(volatile Bits* address, std::uint64_t operand, const void* pc, Update update,
            const Bits* expected = nullptr) {
  auto* plain = const_cast<Bits*>(address);
  if (hooked(plain) == nullptr) {
    before_host_atomic(true, plain, sizeof(Bits), pc);
    Bits now;
    const Bits old = silently([&] { return exchange(plain, update, now); });
    const bool failed = expected != nullptr && old != *expected;
    if (t_hook.host) {
      if (failed) {
        host_only_read();
      } else if (old == now) {
        host_left_alone();
      }
      on_host_atomic(EventKind::atomic, plain, sizeof old, &old, pc, &now, failed);
    }
    return old;
  }
  return run_atomic(2, plain, operand, Standing{"atomic operation", nullptr, 0, plain, pc}, update,
                    expected);
}

template <class Bits>
Bits compare_exchange(volatile Bits* address, Bits expected, Bits desired, const void* pc) {
  return modify(
      address, expected * 0x9e3779b97f4a7c15 + desired, pc,
      [=](Bits old) { return old == expected ? desired : old; }, &expected);
}

// Returns whether it was exchanged; otherwise *expected gets the value found.
template <class Bits>
int compare_exchange_into(volatile Bits* address, Bits* expected, Bits desired, const void* pc) {
  const Bits found = compare_exchange(address, *expected, desired, pc);
  if (found == *expected) return 1;
  *expected = found;
  if (t_hook.host != nullptr) {
    on_host_stored(expected, sizeof *expected, pc);
  } else if (Thread* const self = hooked(expected)) {
    on_store(*self, expected, sizeof *expected, false, pc);
  }
  return 0;
}

}  // namespace
}  // namespace holdfast::cpu

#define HOLDFAST_PC __builtin_return_address(0)
#define HOLDFAST_MODIFY(bits, name, expression)                                                \
  std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* address,      \
                                                   std::uint##bits##_t value, int /*order*/) { \
    return holdfast::cpu::modify(address, value, HOLDFAST_PC,                                  \
                                 [value]([[maybe_unused]] std::uint##bits##_t old) {           \
                                   return static_cast<std::uint##bits##_t>(expression);        \
                                 });                                                           \
  }
#define HOLDFAST_COMPARE(bits, name)                                                           \
  int __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* address,                      \
                                   std::uint##bits##_t* expected, std::uint##bits##_t desired, \
                                   int /*order*/, int /*failure*/) {                           \
    return holdfast::cpu::compare_exchange_into(address, expected, desired, HOLDFAST_PC);      \
  }
#define HOLDFAST_ATOMICS(bits)                                                                \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* address, \
                                                 int /*order*/) {                             \
    return holdfast::cpu::load(address, HOLDFAST_PC);                                         \
  }                                                                                           \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* address,                     \
                                   std::uint##bits##_t value, int /*order*/) {                \
    holdfast::cpu::store(address, value, HOLDFAST_PC);                                        \
  }                                                                                           \
  HOLDFAST_MODIFY(bits, exchange, value)                                                      \
  HOLDFAST_MODIFY(bits, fetch_add, old + value)                                               \
  HOLDFAST_MODIFY(bits, fetch_sub, old - value)                                               \
  HOLDFAST_MODIFY(bits, fetch_and, old& value)                                                \
  HOLDFAST_MODIFY(bits, fetch_or, old | value)                                                \
  HOLDFAST_MODIFY(bits, fetch_xor, old ^ value)                                               \
  HOLDFAST_MODIFY(bits, fetch_nand, ~(old & value))                                           \
  HOLDFAST_COMPARE(bits, compare_exchange_strong)                                             \
  HOLDFAST_COMPARE(bits, compare_exchange_weak)                                               \
  std::uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                             \
      volatile std::uint##bits##_t* address, std::uint##bits##_t expected,                    \
      std::uint##bits##_t desired, int /*order*/, int /*failure*/) {                          \
    return holdfast::cpu::compare_exchange(address, expected, desired, HOLDFAST_PC);          \
  }

extern "C" {

HOLDFAST_ATOMICS(8)
HOLDFAST_ATOMICS(16)
HOLDFAST_ATOMICS(32)
HOLDFAST_ATOMICS(64)

void __tsan_atomic_thread_fence(int order) {
  if (order != __ATOMIC_RELAXED) holdfast::cpu::atomic_thread_fence(HOLDFAST_PC);
}
void __tsan_atomic_signal_fence(int /*order*/) {}

}  // extern "C"

// CUDA's atomics.
#include "holdfast/cpu/atomics.hpp"

#include <bit>
#include <type_traits>

#include "backend_cpu/atomic_core.hpp"
#include "holdfast/tally.hpp"

namespace holdfast::cpu {
namespace {

using detail::AtomicOp;

const char* name_of(AtomicOp op) {
  constexpr const char* kNames[] = {"atomicAdd", "atomicSub", "atomicExch", "atomicMin",
                                    "atomicMax", "atomicInc", "atomicDec",  "atomicCAS",
                                    "atomicAnd", "atomicOr",  "atomicXor"};
  return kNames[static_cast<unsigned>(op)];
}

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

template <class T>
T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <class T>
T apply(AtomicOp op, T old, T operand) {
  if (op == AtomicOp::add) return wrapping_add(old, operand);
  if (op == AtomicOp::exch) return operand;
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case AtomicOp::sub:
        return wrapping_add(old, static_cast<T>(~operand + T{1}));
      case AtomicOp::min:
        return operand < old ? operand : old;
      case AtomicOp::max:
        return old < operand ? operand : old;
      case AtomicOp::inc:
        return old >= operand ? T{0} : static_cast<T>(old + 1);
      case AtomicOp::dec:
        return old == 0 || old > operand ? operand : static_cast<T>(old - 1);
      case AtomicOp::bit_and:
        return old & operand;
      case AtomicOp::bit_or:
        return old | operand;
      case AtomicOp::bit_xor:
        return old ^ operand;
      default:
        break;
    }
  }
  return old;
}

}  // namespace

void check_aligned(Thread& self, const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    self.slot->note_failure(self, Errc::kernel_fault,
                            concat("address ", address, " is not aligned to ", bytes, " bytes"));
    self.slot->abandon(self);
  }
}

void deliver_atomic(Thread& self, Scope scope, const void* address, std::size_t size,
                    const void* before, const void* after, bool failed) {
  Event event;
  event.kind = EventKind::atomic;
  event.scope = scope;
  event.address = address;
  event.size = size;
  event.value = before;
  event.new_value = after;
  event.failed = failed;
  event.pc = self.standing.pc;
  event.file = self.standing.file;
  event.line = self.standing.line;
  deliver_now(self, event);
}

namespace detail {

template <class T>
T atomic_apply(AtomicOp op, ScopeNumber scope, T* address, T operand, const char* file,
               unsigned line) {
  using Bits = BitsOf<T>;
  const auto update = [op, operand](Bits old) {
    return std::bit_cast<Bits>(apply(op, std::bit_cast<T>(old), operand));
  };
  return std::bit_cast<T>(run_atomic(scope, reinterpret_cast<Bits*>(address),
                                     std::bit_cast<Bits>(operand),
                                     Standing{name_of(op), file, line, address}, update));
}

template <class T>
T atomic_compare_swap(ScopeNumber scope, T* address, T expected, T desired, const char* file,
                      unsigned line) {
  using Bits = BitsOf<T>;
  const auto awaited = std::bit_cast<Bits>(expected);
  const auto update = [awaited, desired](Bits old) {
    return old == awaited ? std::bit_cast<Bits>(desired) : old;
  };
  const std::uint64_t operand = awaited * 0x9e3779b97f4a7c15 + std::bit_cast<Bits>(desired);
  return std::bit_cast<T>(run_atomic(scope, reinterpret_cast<Bits*>(address), operand,
                                     Standing{"atomicCAS", file, line, address}, update, &awaited));
}

#define HOLDFAST_INSTANTIATE(T) \
  template T atomic_apply<T>(AtomicOp, ScopeNumber, T*, T, const char*, unsigned);
HOLDFAST_INSTANTIATE(int)
HOLDFAST_INSTANTIATE(unsigned)
HOLDFAST_INSTANTIATE(long long)
HOLDFAST_INSTANTIATE(unsigned long long)
HOLDFAST_INSTANTIATE(float)
HOLDFAST_INSTANTIATE(double)
#undef HOLDFAST_INSTANTIATE
#define HOLDFAST_INSTANTIATE(T) \
  template T atomic_compare_swap<T>(ScopeNumber, T*, T, T, const char*, unsigned);
HOLDFAST_INSTANTIATE(unsigned short)
HOLDFAST_INSTANTIATE(int)
HOLDFAST_INSTANTIATE(unsigned)
HOLDFAST_INSTANTIATE(unsigned long long)
#undef HOLDFAST_INSTANTIATE

}  // namespace detail
}  // namespace holdfast::cpu

// No event: what is only reported is no part of what a kernel does.
void holdfast::tally(unsigned* counter, unsigned count) noexcept {
  __atomic_fetch_add(counter, count, __ATOMIC_RELAXED);
}

#include "cpu/atomics.hpp"

#include <type_traits>

namespace holdfast::test {
namespace {

#define HOLDFAST_SPELL(function, ...)                                       \
  (spelling == Spelling::block    ? function##_block(variable, __VA_ARGS__) \
   : spelling == Spelling::device ? function(variable, __VA_ARGS__)         \
                                  : function##_system(variable, __VA_ARGS__))

template <class T>
inline constexpr bool kWord = std::is_same_v<T, int> || std::is_same_v<T, unsigned>;
template <class T>
inline constexpr bool kUnsigned64 = std::is_same_v<T, unsigned long long>;
template <class T>
inline constexpr bool kFloat = std::is_floating_point_v<T>;

template <class T>
__device__ T call_one(Rmw rmw, Spelling spelling, T* variable, T operand, T compare) {
  if constexpr (kWord<T> || kUnsigned64<T> || kFloat<T>) {
    if (rmw == Rmw::add) return HOLDFAST_SPELL(atomicAdd, operand);
  }
  if constexpr (kWord<T> || kUnsigned64<T> || std::is_same_v<T, float>) {
    if (rmw == Rmw::exch) return HOLDFAST_SPELL(atomicExch, operand);
  }
  if constexpr (kWord<T>) {
    if (rmw == Rmw::sub) return HOLDFAST_SPELL(atomicSub, operand);
  }
  if constexpr (std::is_integral_v<T> && sizeof(T) >= 4) {
    if (rmw == Rmw::min) return HOLDFAST_SPELL(atomicMin, operand);
    if (rmw == Rmw::max) return HOLDFAST_SPELL(atomicMax, operand);
  }
  if constexpr (std::is_same_v<T, unsigned>) {
    if (rmw == Rmw::inc) return HOLDFAST_SPELL(atomicInc, operand);
    if (rmw == Rmw::dec) return HOLDFAST_SPELL(atomicDec, operand);
  }
  if constexpr (kWord<T> || kUnsigned64<T>) {
    if (rmw == Rmw::bit_and) return HOLDFAST_SPELL(atomicAnd, operand);
    if (rmw == Rmw::bit_or) return HOLDFAST_SPELL(atomicOr, operand);
    if (rmw == Rmw::bit_xor) return HOLDFAST_SPELL(atomicXor, operand);
  }
  if constexpr (kWord<T> || kUnsigned64<T> || std::is_same_v<T, unsigned short>) {
    if (rmw == Rmw::cas) return HOLDFAST_SPELL(atomicCAS, compare, operand);
  }
  (void)spelling, (void)operand, (void)compare;
  return *variable;
}

}  // namespace

template <class T>
__global__ void apply_in_turn(Rmw rmw, Spelling spelling, const T* operands, const T* compares,
                              unsigned count, T* variable, T* old) {
  for (unsigned i = 0; i < count; ++i) {
    old[i] = call_one(rmw, spelling, variable, operands[i], compares[i]);
  }
}
#define HOLDFAST_INSTANTIATE(T) \
  template __global__ void apply_in_turn<T>(Rmw, Spelling, const T*, const T*, unsigned, T*, T*);
HOLDFAST_INSTANTIATE(unsigned short)
HOLDFAST_INSTANTIATE(int)
HOLDFAST_INSTANTIATE(unsigned)
HOLDFAST_INSTANTIATE(long long)
HOLDFAST_INSTANTIATE(unsigned long long)
HOLDFAST_INSTANTIATE(float)
HOLDFAST_INSTANTIATE(double)

template <class T>
__global__ void count_up(T* counter, unsigned count) {
  for (unsigned i = 0; i < count; ++i) atomicAdd(counter, T{1});
}
template __global__ void count_up<unsigned>(unsigned*, unsigned);
template __global__ void count_up<double>(double*, unsigned);

__global__ void locked_increments(unsigned* lock, unsigned* counter, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    while (atomicCAS(lock, 0u, 1u) != 0) {
    }
    const unsigned before = *counter;
    __nanosleep(100);
    *counter = before + 1;
    __threadfence();
    atomicExch(lock, 0u);
  }
}

__global__ void bit_functions(const std::uint64_t* in, std::uint64_t* out, unsigned count) {
  const unsigned i = threadIdx.x;
  if (i >= count) return;
  const std::uint64_t v = in[i];
  const auto low = static_cast<unsigned>(v), high = static_cast<unsigned>(v >> 32);
  const std::uint64_t results[kBitFunctions] = {
      static_cast<std::uint64_t>(__ffs(static_cast<int>(low))),
      static_cast<std::uint64_t>(__ffsll(static_cast<long long>(v))),
      static_cast<std::uint64_t>(__popc(low)),
      static_cast<std::uint64_t>(__popcll(v)),
      static_cast<std::uint64_t>(__clz(static_cast<int>(low))),
      static_cast<std::uint64_t>(__clzll(static_cast<long long>(v))),
      __brev(low),
      __brevll(v),
      __umulhi(low, high),
      __umul64hi(v, ~v),
      __funnelshift_l(low, high, high % 32),
      __funnelshift_r(low, high, high % 32)};
  for (unsigned f = 0; f < kBitFunctions; ++f) out[f * count + i] = results[f];
}

}  // namespace holdfast::test

// CUDA's bit, arithmetic and cached-load functions for the CPU backend.
#pragma once

#include <cmath>
#include <cstdint>

// Position of the lowest set bit, counted from 1; 0 if none.
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) {
  return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value));
}
inline int __clzll(long long value) {
  return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}

inline unsigned long long __brevll(unsigned long long value) {
  value = ((value >> 1) & 0x5555555555555555ULL) | ((value & 0x5555555555555555ULL) << 1);
  value = ((value >> 2) & 0x3333333333333333ULL) | ((value & 0x3333333333333333ULL) << 2);
  value = ((value >> 4) & 0x0F0F0F0F0F0F0F0FULL) | ((value & 0x0F0F0F0F0F0F0F0FULL) << 4);
  return __builtin_bswap64(value);
}
inline unsigned __brev(unsigned value) { return static_cast<unsigned>(__brevll(value) >> 32); }

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
  return static_cast<unsigned>((both << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
  return static_cast<unsigned>(both >> (shift & 31));
}

inline int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
inline float __int_as_float(int value) { return __builtin_bit_cast(float, value); }
inline float __uint_as_float(unsigned value) { return __builtin_bit_cast(float, value); }
inline long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }
inline double __longlong_as_double(long long value) { return __builtin_bit_cast(double, value); }

inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }
inline double rsqrt(double value) { return 1.0 / sqrt(value); }
inline float __fdividef(float a, float b) { return a / b; }

#define HOLDFAST_MINMAX(T)                                   \
  inline constexpr T min(T a, T b) { return b < a ? b : a; } \
  inline constexpr T max(T a, T b) { return a < b ? b : a; }
HOLDFAST_MINMAX(int)
HOLDFAST_MINMAX(unsigned)
HOLDFAST_MINMAX(long)
HOLDFAST_MINMAX(unsigned long)
HOLDFAST_MINMAX(long long)
HOLDFAST_MINMAX(unsigned long long)
HOLDFAST_MINMAX(float)
HOLDFAST_MINMAX(double)
#undef HOLDFAST_MINMAX
// CUDA's mixed forms: the unsigned type wins.
inline constexpr unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline constexpr unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }
inline constexpr unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline constexpr unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }

// Loads and stores with a cache hint, which is ignored. Always inlined: see vector_types.hpp.
#define HOLDFAST_CACHED_LOAD(name)                         \
  template <class T>                                       \
  [[gnu::always_inline]] inline T name(const T* address) { \
    return *address;                                       \
  }
HOLDFAST_CACHED_LOAD(__ldg)
HOLDFAST_CACHED_LOAD(__ldca)
HOLDFAST_CACHED_LOAD(__ldcg)
HOLDFAST_CACHED_LOAD(__ldcs)
HOLDFAST_CACHED_LOAD(__ldcv)
#undef HOLDFAST_CACHED_LOAD
#define HOLDFAST_CACHED_STORE(name)                              \
  template <class T>                                             \
  [[gnu::always_inline]] inline void name(T* address, T value) { \
    *address = value;                                            \
  }
HOLDFAST_CACHED_STORE(__stwb)
HOLDFAST_CACHED_STORE(__stcg)
HOLDFAST_CACHED_STORE(__stcs)
HOLDFAST_CACHED_STORE(__stwt)
#undef HOLDFAST_CACHED_STORE

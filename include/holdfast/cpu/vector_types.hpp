// CUDA's vector types for the CPU backend: dim3, uint3, and the 2- to 4-element vectors.
#pragma once

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};

// A vector and its make_ function. The function is always inlined: a struct that a call returns
// into memory is a store that -fsanitize=thread does not instrument.
#define HOLDFAST_VECTOR2(T, name, align) \
  struct alignas(align) name##2 {        \
    T x, y;                              \
  };                                     \
  [[gnu::always_inline]] constexpr inline name##2 make_##name##2(T x, T y) { return {x, y}; }

#define HOLDFAST_VECTOR3(T, name)                                                 \
  struct name##3 {                                                                \
    T x, y, z;                                                                    \
  };                                                                              \
  [[gnu::always_inline]] constexpr inline name##3 make_##name##3(T x, T y, T z) { \
    return {x, y, z};                                                             \
  }

#define HOLDFAST_VECTOR4(T, name, align)                                               \
  struct alignas(align) name##4 {                                                      \
    T x, y, z, w;                                                                      \
  };                                                                                   \
  [[gnu::always_inline]] constexpr inline name##4 make_##name##4(T x, T y, T z, T w) { \
    return {x, y, z, w};                                                               \
  }

HOLDFAST_VECTOR2(signed char, char, 2)
HOLDFAST_VECTOR2(unsigned char, uchar, 2)
HOLDFAST_VECTOR2(short, short, 4)
HOLDFAST_VECTOR2(unsigned short, ushort, 4)
HOLDFAST_VECTOR2(int, int, 8)
HOLDFAST_VECTOR2(unsigned, uint, 8)
HOLDFAST_VECTOR2(long, long, 16)
HOLDFAST_VECTOR2(unsigned long, ulong, 16)
HOLDFAST_VECTOR2(long long, longlong, 16)
HOLDFAST_VECTOR2(unsigned long long, ulonglong, 16)
HOLDFAST_VECTOR2(float, float, 8)
HOLDFAST_VECTOR2(double, double, 16)
HOLDFAST_VECTOR3(int, int)
HOLDFAST_VECTOR3(float, float)
HOLDFAST_VECTOR3(double, double)
HOLDFAST_VECTOR3(long long, longlong)
HOLDFAST_VECTOR3(unsigned long long, ulonglong)
HOLDFAST_VECTOR4(signed char, char, 4)
HOLDFAST_VECTOR4(unsigned char, uchar, 4)
HOLDFAST_VECTOR4(short, short, 8)
HOLDFAST_VECTOR4(unsigned short, ushort, 8)
HOLDFAST_VECTOR4(int, int, 16)
HOLDFAST_VECTOR4(unsigned, uint, 16)
HOLDFAST_VECTOR4(long long, longlong, 16)
HOLDFAST_VECTOR4(unsigned long long, ulonglong, 16)
HOLDFAST_VECTOR4(float, float, 16)
HOLDFAST_VECTOR4(double, double, 16)

[[gnu::always_inline]] constexpr inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) {
  return {x, y, z};
}

#undef HOLDFAST_VECTOR2
#undef HOLDFAST_VECTOR3
#undef HOLDFAST_VECTOR4

// Routes the copying functions of a kernel file to ones that deliver their accesses. The build
// includes this first in every kernel file of the intercepted flavour; nobody else includes it.
//
// -fsanitize=thread instruments no call of memcpy and its like. With -fno-builtin a call of
// memcpy, std::memcpy and so on is a plain call, which the asm labels below send to us. The
// copies that the compiler makes itself, of structs, keep calling the C library: their accesses
// are instrumented where the copy stands, and must not be delivered twice.
#pragma once

#undef _FORTIFY_SOURCE

extern "C" {
void* memcpy(void* to, const void* from, __SIZE_TYPE__ bytes) noexcept
    __asm__("holdfast_intercept_memcpy");
void* memmove(void* to, const void* from, __SIZE_TYPE__ bytes) noexcept
    __asm__("holdfast_intercept_memmove");
void* memset(void* to, int byte, __SIZE_TYPE__ bytes) noexcept __asm__("holdfast_intercept_memset");
int memcmp(const void* a, const void* b, __SIZE_TYPE__ bytes) noexcept
    __asm__("holdfast_intercept_memcmp");

void* holdfast_intercept_memcpy(void* to, const void* from, __SIZE_TYPE__ bytes) noexcept;
void* holdfast_intercept_memmove(void* to, const void* from, __SIZE_TYPE__ bytes) noexcept;
void* holdfast_intercept_memset(void* to, int byte, __SIZE_TYPE__ bytes) noexcept;
int holdfast_intercept_memcmp(const void* a, const void* b, __SIZE_TYPE__ bytes) noexcept;
}

namespace holdfast::cpu::intercept {

[[gnu::always_inline]] constexpr inline void* copy(void* to, const void* from,
                                                   __SIZE_TYPE__ bytes) {
  if (__builtin_is_constant_evaluated()) return __builtin_memcpy(to, from, bytes);
  return holdfast_intercept_memcpy(to, from, bytes);
}
[[gnu::always_inline]] constexpr inline void* move(void* to, const void* from,
                                                   __SIZE_TYPE__ bytes) {
  if (__builtin_is_constant_evaluated()) return __builtin_memmove(to, from, bytes);
  return holdfast_intercept_memmove(to, from, bytes);
}
[[gnu::always_inline]] constexpr inline void* fill(void* to, int byte, __SIZE_TYPE__ bytes) {
  if (__builtin_is_constant_evaluated()) return __builtin_memset(to, byte, bytes);
  return holdfast_intercept_memset(to, byte, bytes);
}
[[gnu::always_inline]] constexpr inline int compare(const void* a, const void* b,
                                                    __SIZE_TYPE__ bytes) {
  if (__builtin_is_constant_evaluated()) return __builtin_memcmp(a, b, bytes);
  return holdfast_intercept_memcmp(a, b, bytes);
}

}  // namespace holdfast::cpu::intercept

// Function-like, so that __has_builtin(__builtin_memcpy) still holds.
#define __builtin_memcpy(...) ::holdfast::cpu::intercept::copy(__VA_ARGS__)
#define __builtin_memmove(...) ::holdfast::cpu::intercept::move(__VA_ARGS__)
#define __builtin_memset(...) ::holdfast::cpu::intercept::fill(__VA_ARGS__)
#define __builtin_memcmp(...) ::holdfast::cpu::intercept::compare(__VA_ARGS__)

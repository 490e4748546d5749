// The kernel of accesses.hpp. HOLDFAST_TEST_LEVEL: the namespace, o0 or o2.
// A table, one access a line.
// clang-format off
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "cpu/accesses.hpp"

namespace holdfast::test::HOLDFAST_TEST_LEVEL {
namespace {

template <class T>
struct __attribute__((packed)) Unaligned {
  T value;
};
struct S12 {
  std::uint32_t words[3];
};
struct S16 {
  std::uint64_t a, b;
};
struct S24 {
  std::uint64_t words[3];
};
struct S40 {
  std::uint64_t a;
  std::uint32_t b, c;
  std::uint64_t d[3];
};
struct S200 {
  std::uint64_t words[25];
};
struct Fields {
  std::uint32_t low : 7, middle : 5, high : 20;
};
struct Base {
  virtual int number() const { return 1; }
};
struct Derived : Base {
  int number() const override { return 2; }
};

struct Runner {
  std::byte* arena;
  std::uint64_t seen = 0;

  template <class T>
  __device__ T* at(std::uint32_t offset) const {
    return reinterpret_cast<T*>(arena + offset);
  }
  template <class T>
  __device__ void load(const Access& access) {
    seen += static_cast<std::uint64_t>(*at<T>(access.from));
  }
  template <class T>
  __device__ void store(const Access& access) const {
    *at<T>(access.to) = static_cast<T>(access.value);
  }
  template <class T>
  __device__ void copy(const Access& access) const {
    *at<T>(access.to) = *at<T>(access.from);
  }

  __device__ void plain(const Access& a);
  __device__ void odd(const Access& a);
  __device__ void whole(const Access& a);
  __device__ void library(const Access& a);
  __device__ void algorithm(const Access& a);
  __device__ void atomic(const Access& a);
};

__device__ void Runner::plain(const Access& a) {
  switch (a.form) {
    case Form::load1: load<std::uint8_t>(a); break;
    case Form::load2: load<std::uint16_t>(a); break;
    case Form::load4: load<std::uint32_t>(a); break;
    case Form::load8: load<std::uint64_t>(a); break;
    case Form::load16: {
      const uint4 v = *at<uint4>(a.from);
      seen += v.x + v.y + v.z + v.w;
      break;
    }
    case Form::store1: store<std::uint8_t>(a); break;
    case Form::store2: store<std::uint16_t>(a); break;
    case Form::store4: store<std::uint32_t>(a); break;
    case Form::store8: store<std::uint64_t>(a); break;
    case Form::store16: {
      const auto v = static_cast<unsigned>(a.value);
      *at<uint4>(a.to) = make_uint4(v, v + 1, v + 2, v + 3);
      break;
    }
    case Form::add4: *at<std::uint32_t>(a.to) += static_cast<std::uint32_t>(a.value); break;
    case Form::double_store:  // at -O2 one may remain
      *at<std::uint32_t>(a.to) = 1;
      *at<std::uint32_t>(a.to) = static_cast<std::uint32_t>(a.value);
      break;
    default: break;
  }
}

__device__ void Runner::odd(const Access& a) {
  switch (a.form) {
    case Form::unaligned_load4: seen += at<Unaligned<std::uint32_t>>(a.from)->value; break;
    case Form::unaligned_load8: seen += at<Unaligned<std::uint64_t>>(a.from)->value; break;
    case Form::unaligned_store2:
      at<Unaligned<std::uint16_t>>(a.to)->value = static_cast<std::uint16_t>(a.value);
      break;
    case Form::unaligned_store4:
      at<Unaligned<std::uint32_t>>(a.to)->value = static_cast<std::uint32_t>(a.value);
      break;
    case Form::unaligned_store8: at<Unaligned<std::uint64_t>>(a.to)->value = a.value; break;
    case Form::volatile_load4: seen += *at<volatile std::uint32_t>(a.from); break;
    case Form::volatile_load8: seen += *at<volatile std::uint64_t>(a.from); break;
    case Form::volatile_store1:
      *at<volatile std::uint8_t>(a.to) = static_cast<std::uint8_t>(a.value);
      break;
    case Form::volatile_store8: *at<volatile std::uint64_t>(a.to) = a.value; break;
    case Form::volatile_unaligned_store4:
      at<volatile Unaligned<std::uint32_t>>(a.to)->value = static_cast<std::uint32_t>(a.value);
      break;
    case Form::bit_field: at<Fields>(a.to)->middle = a.value & 31; break;
    case Form::virtual_construct: new (arena + a.to) Derived; break;
    default: break;
  }
}

__device__ void Runner::whole(const Access& a) {
  switch (a.form) {
    case Form::copy12: copy<S12>(a); break;
    case Form::copy16: copy<S16>(a); break;
    case Form::copy24: copy<S24>(a); break;
    case Form::copy40: copy<S40>(a); break;
    case Form::copy200: copy<S200>(a); break;
    case Form::clear24: *at<S24>(a.to) = S24{}; break;
    case Form::clear200: *at<S200>(a.to) = S200{}; break;
    default: break;
  }
}

__device__ void Runner::library(const Access& a) {
  std::byte* const to = arena + a.to;
  const std::byte* const from = arena + a.from;
  const int byte = static_cast<int>(a.value & 0xff);
  switch (a.form) {
    case Form::memcpy_any: memcpy(to, from, a.bytes); break;
    case Form::memcpy_3: memcpy(to, from, 3); break;
    case Form::memcpy_8: memcpy(to, from, 8); break;
    case Form::memcpy_64: ::memcpy(to, from, 64); break;
    case Form::std_memcpy: std::memcpy(to, from, 24); break;
    case Form::builtin_memcpy_16: __builtin_memcpy(to, from, 16); break;
    case Form::memmove_any: memmove(to, from, a.bytes); break;
    case Form::std_memmove: std::memmove(to, from, 40); break;
    case Form::builtin_memmove_8: __builtin_memmove(to, from, 8); break;
    case Form::memset_any: memset(to, byte, a.bytes); break;
    case Form::memset_8: memset(to, byte, 8); break;
    case Form::std_memset: std::memset(to, byte, 100); break;
    case Form::builtin_memset_32: __builtin_memset(to, byte, 32); break;
    case Form::memcmp_any: seen += memcmp(to, from, a.bytes) == 0; break;
    default: break;
  }
}

__device__ void Runner::algorithm(const Access& a) {
  auto* const to = at<std::uint32_t>(a.to);
  auto* const from = at<std::uint32_t>(a.from);
  const unsigned words = a.bytes / 4;
  switch (a.form) {
    case Form::std_copy: std::copy(from, from + words, to); break;
    case Form::std_copy_backward: std::copy_backward(from, from + words, to + words); break;
    case Form::std_fill_bytes:
      std::fill_n(at<unsigned char>(a.to), a.bytes, static_cast<unsigned char>(a.value));
      break;
    case Form::std_fill_words: std::fill_n(to, words, static_cast<std::uint32_t>(a.value)); break;
    case Form::std_swap: std::swap(*to, *from); break;
    case Form::loop_copy:
      for (unsigned i = 0; i < words; ++i) to[i] = from[i];
      break;
    case Form::loop_clear:
      for (unsigned i = 0; i < words; ++i) to[i] = 0;
      break;
    default: break;
  }
}

__device__ void Runner::atomic(const Access& a) {
  const auto word = static_cast<std::uint32_t>(a.value);
  switch (a.form) {
    case Form::std_atomic_load: seen += std::atomic_ref(*at<std::uint32_t>(a.to)).load(); break;
    case Form::std_atomic_store: std::atomic_ref(*at<std::uint64_t>(a.to)).store(a.value); break;
    case Form::std_atomic_add: std::atomic_ref(*at<std::uint16_t>(a.to)) += a.value; break;
    case Form::std_atomic_cas: {
      std::uint32_t old = word / 2;
      std::atomic_ref(*at<std::uint32_t>(a.to)).compare_exchange_strong(old, word);
      break;
    }
    case Form::builtin_atomic_or:
      __atomic_fetch_or(at<std::uint8_t>(a.to), static_cast<std::uint8_t>(word),
                        __ATOMIC_RELAXED);
      break;
    case Form::cuda_atomic_add: atomicAdd(at<unsigned>(a.to), word); break;
    case Form::cuda_atomic_cas: atomicCAS(at<unsigned>(a.to), word / 2, word); break;
    case Form::cuda_atomic_max64: atomicMax(at<unsigned long long>(a.to), a.value); break;
    case Form::release4: prel<Scope::device>(at<std::uint32_t>(a.to), word); break;
    case Form::release8: prel<Scope::system>(at<std::uint64_t>(a.to), a.value); break;
    case Form::acquire4: seen += pacq<Scope::device>(at<std::uint32_t>(a.from)); break;
    case Form::acquire8: seen += pacq<Scope::block>(at<std::uint64_t>(a.from)); break;
    default: break;
  }
}

}  // namespace

__global__ void carry_out(const Access* accesses, unsigned count, std::byte* arena,
                          std::uint64_t* sink) {
  Runner runner{arena};
  for (unsigned i = 0; i < count; ++i) {
    const Access& access = accesses[i];
    runner.plain(access);
    runner.odd(access);
    runner.whole(access);
    runner.library(access);
    runner.algorithm(access);
    runner.atomic(access);
    __threadfence_block();
  }
  *sink = runner.seen;
}

}  // namespace holdfast::test::HOLDFAST_TEST_LEVEL

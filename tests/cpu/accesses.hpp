// A kernel that carries out a list of accesses of every form that C++ offers. Compiled twice, at
// -O0 and at -O2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

enum class Form : std::uint32_t {
  load1,
  load2,
  load4,
  load8,
  load16,
  store1,
  store2,
  store4,
  store8,
  store16,
  unaligned_load4,
  unaligned_load8,
  unaligned_store2,
  unaligned_store4,
  unaligned_store8,
  volatile_load4,
  volatile_load8,
  volatile_store1,
  volatile_store8,
  volatile_unaligned_store4,
  add4,  // *p += v
  copy12,
  copy16,
  copy24,
  copy40,
  copy200,  // struct copies
  clear24,
  clear200,   // *p = {}
  bit_field,  // 5 bits of a word
  memcpy_any,
  memcpy_3,
  memcpy_8,
  memcpy_64,
  std_memcpy,
  builtin_memcpy_16,
  memmove_any,
  std_memmove,
  builtin_memmove_8,
  memset_any,
  memset_8,
  std_memset,
  builtin_memset_32,
  memcmp_any,
  std_copy,
  std_copy_backward,
  std_fill_bytes,
  std_fill_words,
  std_swap,
  loop_copy,
  loop_clear,
  std_atomic_load,
  std_atomic_store,
  std_atomic_add,
  std_atomic_cas,
  builtin_atomic_or,
  cuda_atomic_add,
  cuda_atomic_cas,
  cuda_atomic_max64,
  release4,
  release8,
  acquire4,
  acquire8,
  double_store,
  virtual_construct,
  count_
};

struct Access {
  Form form;
  std::uint32_t to;  // offset into the arena; aligned as the form needs
  std::uint32_t from;
  std::uint32_t bytes;  // of the forms that end in _any, and of loops
  std::uint64_t value;
};

inline constexpr std::size_t kArenaBytes = 4096;

// After each access the kernel calls __threadfence_block(), which marks its end in the events.
// *sink gets what was loaded, so that no load is dead.
namespace o0 {
__global__ void carry_out(const Access* accesses, unsigned count, std::byte* arena,
                          std::uint64_t* sink);
}
namespace o2 {
__global__ void carry_out(const Access* accesses, unsigned count, std::byte* arena,
                          std::uint64_t* sink);
}

}  // namespace holdfast::test

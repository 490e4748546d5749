// The key-value store of the paper's Figure 6, written against libgpm.h.
#pragma once

#include <cstdint>

#include "holdfast/compat/libgpm.h"
#include "holdfast/stream.hpp"

namespace figure6 {

inline constexpr int kWays = 8;  // THRD_GRP_SZ

struct Set {
  std::uint64_t key[kWays];
  std::uint64_t value[kWays];
};

struct Data {
  std::uint64_t key;
  std::uint64_t value;
};

inline std::uint32_t hash_of(std::uint64_t key, std::uint32_t sets) {
  return static_cast<std::uint32_t>(key * 0x9e3779b97f4a7c15ull >> 40) % sets;
}

// Eight threads for each of `count` pairs. Counts log failures in *failures.
void insert(holdfast::Stream& stream, Set* kvs, std::uint32_t sets, gpmlog* log, const Data* data,
            std::uint32_t count, std::uint32_t* failures);
// A thread for each thread of the insertion.
void recover(holdfast::Stream& stream, Set* kvs, gpmlog* log, std::uint32_t count);
// Sets and persists the flag that says a transaction is active.
void set_flag(holdfast::Stream& stream, std::uint64_t* flag, std::uint64_t value);
// Every thread of `threads` clears its log.
void clear(holdfast::Stream& stream, gpmlog* log, std::uint32_t threads);
// Uses a partition by its number: inserts `count` numbers into partition 1 and pops their sum.
void fill_partition(holdfast::Stream& stream, gpmlog* log, std::uint32_t count);
void sum_partition(holdfast::Stream& stream, gpmlog* log, std::uint64_t* sum);

}  // namespace figure6

// A stable sort of 32-bit keys with 32-bit values, for ordering a batch by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "holdfast/stream.hpp"

namespace holdfast {

// Owns the scratch memory for sorts of up to `max_count` pairs (CUB on the GPU).
class PairSorter {
 public:
  explicit PairSorter(std::size_t max_count);  // throws Errc::no_memory
  ~PairSorter();
  PairSorter(PairSorter&&) noexcept;
  PairSorter& operator=(PairSorter&&) noexcept;

  // Sorts by the lowest `bits` bits of the keys; equal keys keep their order. All pointers are
  // device memory of `count` elements; outputs do not overlap inputs. Stream-ordered.
  void sort(Stream& stream, const std::uint32_t* keys_in, std::uint32_t* keys_out,
            const std::uint32_t* values_in, std::uint32_t* values_out, std::size_t count,
            unsigned bits);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {

// Before any number of bytes overflows.
inline void check_sorter(std::size_t max_count) {
  if (max_count <= ~std::size_t{0} / 2 / (2 * sizeof(std::uint32_t))) return;
  throw Error(Errc::no_memory, concat("PairSorter: no memory for ", max_count,
                                      " pairs, which are more than can be addressed; give fewer"));
}

inline void check_sort(std::size_t count, unsigned bits, std::size_t max_count) {
  if (count <= max_count && bits <= 32) return;
  throw Error(Errc::invalid_argument,
              concat("PairSorter: ", count, " pairs of ", bits, " bits; made for ", max_count,
                     " pairs of at most 32 bits"));
}

}  // namespace detail
}  // namespace holdfast

// The kernels of a log map: places of values, and the values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/kv_store_ref.hpp"
#include "holdfast/page_marks.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::log_map {

inline constexpr std::uint32_t kNone = ~0u;  // no place
// Places that a block of list_free() has.
inline constexpr std::uint32_t kPlacesOfBlock = 256 * 4 * 32;

// Where values are.
struct Rows {
  std::byte* values;  // on the medium
  std::uint32_t value_bytes;
  std::uint32_t stride;
  PageMarks marks;
};

// What a survey finds wrong.
struct Faults {
  unsigned long long outside;  // pairs whose place there is not
  unsigned long long twice;    // pairs whose place another one has
};

// All are stream-ordered.

// Widens: to[i] = list[i].
void launch_take(Stream& stream, const std::uint32_t* list, std::uint32_t count, std::uint64_t* to);
// Stores row i of `from` to place[i], durably once the kernel has ended.
void launch_store(Stream& stream, const Rows& rows, const std::byte* from,
                  const std::uint64_t* place, std::uint32_t count);
// place[i]: of keys[i], or kNone. `found`: may be null.
void launch_look(Stream& stream, const detail::KvView& index, const std::uint64_t* keys,
                 std::uint32_t count, std::uint32_t* place, std::uint8_t* found);
// Behind the commit of a batch: which places are used. `mine`: those that it took, null: it erased.
// `old`: what launch_look() found before.
void launch_settle(Stream& stream, const detail::KvView& index, const std::uint64_t* keys,
                   const std::uint64_t* mine, const std::uint32_t* old, std::uint32_t count,
                   std::uint32_t* used);
void launch_count_up(Stream& stream, std::uint32_t* to, std::uint32_t count);
// Row op[i] of `out` is the value of place[i], if that is one. `op` null: i.
void launch_gather(Stream& stream, const Rows& rows, const std::uint32_t* place,
                   const std::uint32_t* op, std::uint32_t count, std::byte* out);

// A bit of `used` for the place of each pair of a piece of the index.
void launch_mark_used(Stream& stream, const detail::KvPair* pairs, std::uint64_t count,
                      std::uint32_t places, std::uint32_t* used, Faults* faults);
// list[0], list[1], ...: the places that are not `used`, in rising order. `scratch`: a word for
// each kPlacesOfBlock places.
void launch_list_free(Stream& stream, const std::uint32_t* used, std::uint32_t places,
                      std::uint32_t* list, std::uint32_t* scratch);
// Counts the words in which two maps of bits differ, to *differing.
void launch_compare(Stream& stream, const std::uint32_t* a, const std::uint32_t* b,
                    std::uint32_t words, unsigned long long* differing);

}  // namespace holdfast::log_map

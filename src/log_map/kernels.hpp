// The kernels of a log map: places of values, and the values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/kv_store_ref.hpp"
#include "holdfast/log_map.hpp"
#include "holdfast/map_status.hpp"
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

// Which operations of a batch store their pairs: those whose keys are there already, or not.
enum class Which : std::uint8_t { absent, present };

// Of a batch.
struct Chosen {
  std::uint32_t count;
  std::uint32_t reserved_keys;
};

// What a batch changes, in its order. `op`: which of the batch's operations each is; null: all.
// `kinds`: of a batch that stores and erases, where somebody asks what became of its operations.
struct Changes {
  const std::uint64_t* keys;
  const std::uint32_t* old;  // places, as launch_look() found them
  const std::uint32_t* op;
  std::uint32_t count;
  const LogMap::Op* kinds = nullptr;
};

// All are stream-ordered.

// Widens: to[i] = list[i].
void launch_take(Stream& stream, const std::uint32_t* list, std::uint32_t count, std::uint64_t* to);
// to[op[i]] = from[i]. The others are kNone.
void launch_spread(Stream& stream, const std::uint64_t* from, const std::uint32_t* op,
                   std::uint32_t count, std::uint64_t* to, std::uint32_t all);
// Stores row i of `from` to place[i], if that is one, durably once the kernel has ended.
void launch_store(Stream& stream, const Rows& rows, const std::byte* from,
                  const std::uint64_t* place, std::uint32_t count);
// place[i]: of keys[i], or kNone. `found`: may be null.
void launch_look(Stream& stream, const detail::KvView& index, const std::uint64_t* keys,
                 std::uint32_t count, std::uint32_t* place, std::uint8_t* found);
// A bit of `passed_over` for each operation that `which` leaves out, whose `status` (null: none) is
// said; adds the others up to *chosen.
void launch_choose(Stream& stream, Which which, const std::uint64_t* keys,
                   const std::uint32_t* place, std::uint32_t count, std::uint32_t* passed_over,
                   MapStatus* status, Chosen* chosen);
// What of a batch op[0], op[1], ... have: its keys and places.
void launch_pick(Stream& stream, const std::uint32_t* op, std::uint32_t count,
                 const std::uint64_t* keys, const std::uint32_t* place, std::uint64_t* picked_keys,
                 std::uint32_t* picked_places);
// Behind the commit of a batch: which places are used, and what became of its operations. `mine`:
// the places that it took, null: it erased. `status`: by operation of the batch; null: nobody asks.
void launch_settle(Stream& stream, const detail::KvView& index, const Changes& changes,
                   const std::uint64_t* mine, std::uint32_t* used, MapStatus* status);
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

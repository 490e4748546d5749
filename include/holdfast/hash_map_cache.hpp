// A hash map's cache in device memory: the values of keys that are used most, which a batch's
// lookups then read without the link. docs/map.md, "The cache", says why it is made so.
//
// Source: GPHash (FAST '25), section 3.3, BktCache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast {

struct MapCache {
  // Which values a load takes. An access is a lookup, by find(), of a key that is there, or an
  // operation of update batches that leaves its key with a value; those of kernels with refs are
  // none.
  enum class Policy {
    frozen,  // as lfu in the first load; then it stays as it is, and nothing more is recorded
    lfu,     // those with the most accesses since the map was opened (counted up to 2^31)
    lru,     // those whose last access is in the latest batch
    random,  // any; nothing is recorded of lookups
  };

  // For values, each in a multiple of 16 bytes. 0: there is no cache. Beside it the cache takes 8
  // bytes for each of the map's value_places, and 13 for each value that it has room for.
  std::uint64_t bytes = 0;
  Policy policy = Policy::lfu;
  // Batches from a load to the next, which begins by itself. 0: load_cache() alone begins one.
  std::uint32_t load_every = 0;
};

struct MapCacheStats {
  std::uint64_t rows = 0;    // values that there is room for; 0: there is no cache
  std::uint64_t hits = 0;    // lookups that found their value here ...
  std::uint64_t misses = 0;  // ... and on the medium, since the map was opened
  std::uint64_t loads = 0;   // that are done
};

namespace detail {

// What is known of a value's place.
struct MapCacheEntry {
  std::uint32_t score;  // accesses, or the batch of the last one. 0: none, or no word names it
  std::uint32_t row;    // F of the paper: 1 and the row that has its value; 0: none has
};
// Of a row's number in an entry: it is being loaded; and the value has gone to another place since.
inline constexpr std::uint32_t kMapRowLoading = 1u << 31;
inline constexpr std::uint32_t kMapRowStale = 1u << 30;
inline constexpr std::uint32_t kMapMostRows = kMapRowStale - 1;
inline constexpr std::uint32_t kMapMostScore = (1u << 31) - 1;

enum class MapCacheRecord : std::uint32_t { nothing, counts, batches, names };

// The cache as the kernels of a batch see it that is alone.
//
// Invariants, between kernels of the map's stream: a place that no word names has an entry of
// zeros; entries[place_of_row[y] - 1].row is 1 + y, and no other entry has it; such a row has the
// bytes of that place.
struct MapCacheView {
  MapCacheEntry* entries = nullptr;  // by place; null: there is no cache
  std::byte* rows = nullptr;
  std::uint32_t* place_of_row = nullptr;  // G of the paper: 1 and the place; 0: the row is empty
  std::uint32_t* plan = nullptr;          // of a load: as place_of_row will be
  unsigned long long* hits = nullptr;
  std::uint32_t count = 0;  // of rows
  std::uint32_t now = 0;    // number of this batch
  MapCacheRecord record = MapCacheRecord::nothing;
};

// Where lookups in the cache leave what they found.
struct MapServed {
  std::uint32_t* row;     // by operation: 1 and the row with its value; 0: none
  std::uint32_t* misses;  // how many there are ...
  std::uint32_t* place;   // ... the place of each value ...
  std::uint32_t* op;      // ... and the operation's number
};

}  // namespace detail
}  // namespace holdfast

// A map's cache, as its host has it: its memory, its loads, and what it counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hash_map/format.hpp"
#include "hash_map/table.hpp"
#include "holdfast/hash_map.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::map {

// What a load finds out in device memory.
struct CacheChoice {
  std::uint32_t tally[256];  // values by a digit of their rank
  std::uint32_t least;       // rank of what is chosen; digits that are known so far
  std::uint32_t room;        // how many of that rank are
  std::uint32_t ties;        // ... were
  std::uint32_t fresh;       // chosen, and in no row
  std::uint32_t next;        // of these: given a row so far
};

// A load goes through phases, and from one to the next at a call that the host makes anyway:
//   choosing  another stream reads all entries, and lists what is to be in the cache and is not
//   copying   rows of what is not to be in it are empty, those listed have rows; another stream
//             copies their values from the medium
//   idle      the rows serve
// What changes entries is a kernel of the map's stream, in front of all lookups that see it and
// behind all that do not: it needs no count of a row's readers.
class Cache {
 public:
  // Throws invalid_argument and no_memory.
  Cache(const MapCache& options, const MapParameters& shape);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  detail::MapCacheView view() const;
  std::uint32_t* batch_misses() const { return batch_misses_.data(); }
  // Behind a batch's `count` lookups: tells the host of its misses.
  void note_misses(Stream& stream, std::uint32_t count);
  // What it was told last; where nobody has waited since, maybe those of a batch before.
  std::uint32_t misses() const;
  // About how many a batch will have, by the one before it.
  std::uint32_t expected_misses(std::uint32_t count) const;
  unsigned long long* counters() const { return counters_.data(); }

  // In front of each batch that is alone. `seen`: the map without its cache, as in all of these.
  void begin_batch(Stream& stream, const detail::MapView& seen);
  // Begins a load, unless one is under way or policy frozen has had its own.
  void load(Stream& stream, const detail::MapView& seen);
  // Waits for the load that is under way: batches from here on are served by it.
  void await(Stream& stream, const detail::MapView& seen);
  // Forgets the values of places that are not `used`. The directory's load is behind it.
  void reconcile(Stream& stream, const detail::MapView& seen, const std::uint32_t* used);

  // There are more places. `larger`: an entry for each. REQUIRES: no load is under way.
  void extend(Stream& stream, DeviceBuffer<detail::MapCacheEntry> larger);

  MapCacheStats stats(Stream& stream) const;
  // Empty, or in what it differs from the map. `named`: by place.
  std::string audit(Stream& stream, const Table& table, const std::vector<bool>& named) const;

 private:
  enum class Phase { idle, choosing, copying };
  void advance(Stream& stream, const detail::MapView& seen);
  void choose();
  void tell_when_done();
  detail::MapView with_cache(const detail::MapView& seen) const;

  MapCache options_;
  MapParameters shape_;
  std::uint32_t rows_count_;
  Phase phase_ = Phase::idle;
  std::uint32_t clock_ = 1;  // number of the batch
  std::uint32_t since_ = 0;  // batches since the last load
  std::uint32_t begun_ = 0;  // loads
  std::uint64_t loads_ = 0;  // that are done
  DeviceBuffer<detail::MapCacheEntry> entries_;
  DeviceBuffer<std::byte> rows_;
  DeviceBuffer<std::uint32_t> place_of_row_, plan_, fresh_;
  DeviceBuffer<std::uint8_t> keep_;
  DeviceBuffer<CacheChoice> choice_;
  DeviceBuffer<std::uint32_t> batch_misses_;
  PinnedBuffer<std::uint32_t> misses_;         // of the latest lookups
  std::uint32_t lookups_ = 0;                  // how many they are; 0: there were none yet
  DeviceBuffer<unsigned long long> counters_;  // hits, misses
  Event before_;                               // what the other stream has to wait for
  std::shared_ptr<std::atomic<bool>> done_;    // its part of the phase
  Stream loader_;                              // ends first: it uses all of the above
};

// Null if there is to be none. Throws as Cache's constructor.
std::unique_ptr<Cache> make_cache(const MapCache& options, const MapParameters& shape,
                                  MapOptions::Directory directory);

// Stores the values of a batch of lookups where they are asked for, from rows and from the medium
// side by side.
void launch_deliver(Stream& stream, const detail::MapView& view, const detail::MapBatch& batch,
                    const detail::MapServed& served, unsigned long long* all_misses);

}  // namespace holdfast::map

// The objects that records are in. docs/format.md, "A bytes map".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/bytes_map_record.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::bytes_map {

// The part "records", and the object "<name>.records<n>" of growth n, from 1 on. An object is there
// whole or not at all, and counts from then on: a growth that was cut off leaves nothing behind,
// and there is no word that says how far a map has grown.
//
// Invariant: chunks are as the region has them, and there is one at least.
class Records {
 public:
  // `first`: the part. `where` is for messages. REQUIRES: the region outlives it. Throws damaged.
  Records(Region& region, std::string_view name, std::string where, std::byte* first,
          std::uint64_t grains);

  const std::vector<Chunk>& chunks() const { return chunks_; }
  std::uint64_t grains() const;  // in all chunks
  std::uint64_t end() const { return chunks_.back().end(); }
  // The one that has an extent; null: none has.
  const Chunk* chunk_of(const Extent& extent) const;
  // The numbers below end() that are no grain's.
  std::vector<Extent> gaps() const;
  Chunks view() const;

  // How many grains add() has to add to have so many bytes; 0: none. Whole pages, and, where there
  // is room for that, an eighth of what there is at least, so that objects stay few. Throws
  // invalid_argument (more than words can name), no_space (more than the region can have).
  std::uint64_t missing(std::uint64_t bytes) const;
  // Makes a chunk of so many grains. Enlarges the region where it has no room. Throws
  // already_exists (an object of the program's has the name), no_space, no_memory, and as
  // Region::allocate(), with nothing changed but the region's size.
  const Chunk& add(std::uint64_t grains);
  // REQUIRES: there is no record in it, and add() has made it.
  void remove_last();

  // Removes what growths of a map of this name that is not there any more have left.
  static void remove_all(Region& region, std::string_view name);

 private:
  std::string object_name(std::size_t growth) const;
  void list(DeviceBuffer<Chunk> room);

  Region* region_;
  std::string name_;
  std::string where_;
  std::vector<Chunk> chunks_;
  DeviceBuffer<Chunk> more_;  // all but the first one, for kernels
};

}  // namespace holdfast::bytes_map

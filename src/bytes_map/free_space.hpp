// Which grains are free. Volatile: made anew of the index whenever a map is opened.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/bytes_map_record.hpp"

namespace holdfast::bytes_map {

// Of a batch the records stand side by side, as long as an extent has room: in the smallest one
// that takes all of them, or else in one after the other, the largest first. So a batch is a
// stream, not scattered stores; and small pieces are used when there are no larger ones.
//
// Invariant: extents are sorted, apart from each other, and none is empty.
class FreeSpace {
 public:
  FreeSpace() = default;
  // All of `grains` but what is used. REQUIRES: `used` is sorted, and overlaps nowhere.
  FreeSpace(std::uint64_t grains, const std::vector<Extent>& used);

  // A place for each of `sizes`; one of no grains where there is none, or where 0 were asked for.
  std::vector<Extent> take(const std::vector<std::uint64_t>& sizes);
  // REQUIRES: they are used. Of 0 grains: nothing.
  void give(std::vector<Extent> extents);

  const std::vector<Extent>& extents() const { return free_; }
  std::uint64_t grains() const;
  std::uint64_t largest() const;

 private:
  std::vector<Extent> free_;
};

}  // namespace holdfast::bytes_map

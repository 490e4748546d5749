// Reading the whole table on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gpkvs/table.hpp"

namespace gpkvs {

// Calls visit(index, bucket) for every bucket, a piece of the table at a time: the table may be
// larger than the host's memory, or in the GPU's.
template <class Visit>
void for_each_bucket(const Table& table, holdfast::Stream& stream, Visit&& visit) {
  constexpr std::uint64_t kPiece = (std::uint64_t{16} << 20) / sizeof(Bucket);
  const std::uint64_t buckets = table.mask + 1;
  std::vector<Bucket> piece(std::min(buckets, kPiece));
  for (std::uint64_t start = 0; start < buckets; start += kPiece) {
    const std::uint64_t count = std::min(kPiece, buckets - start);
    holdfast::copy_async(stream, piece.data(), table.buckets + start, count * sizeof(Bucket));
    stream.synchronize();
    for (std::uint64_t i = 0; i < count; ++i) visit(start + i, piece[i]);
  }
}

// Empty if every key is in its own bucket and there once, empty ways hold zeros, and there are
// `records` pairs; otherwise what is wrong.
std::string audit(const Table& table, holdfast::Stream& stream, std::uint64_t records);

}  // namespace gpkvs

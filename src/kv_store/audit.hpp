// Reading the whole table on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kv_store/table.hpp"

namespace holdfast::kv {

// Calls visit(first, piece, count) for the buckets, a piece at a time: they may be more than the
// host's memory holds, or in the GPU's.
template <class Visit>
void for_each_piece(const Bucket* buckets, std::uint64_t all, Stream& stream, Visit&& visit) {
  constexpr std::uint64_t kPiece = (std::uint64_t{16} << 20) / sizeof(Bucket);
  std::vector<Bucket> piece(std::min(all, kPiece));
  for (std::uint64_t first = 0; first < all; first += kPiece) {
    const std::uint64_t count = std::min(kPiece, all - first);
    copy_async(stream, piece.data(), buckets + first, count * sizeof(Bucket));
    stream.synchronize();
    visit(first, piece, count);
  }
}

// Calls visit(index, bucket) for every bucket of the table itself, not of its copy.
template <class Visit>
void for_each_bucket(const Table& table, Stream& stream, Visit&& visit) {
  for_each_piece(table.buckets, table.mask + 1, stream,
                 [&](std::uint64_t first, const std::vector<Bucket>& piece, std::uint64_t count) {
                   for (std::uint64_t i = 0; i < count; ++i) visit(first + i, piece[i]);
                 });
}

// Empty if every key is in its own bucket and there once, empty ways hold zeros, there are
// `records` pairs, and the copy, if there is one, equals the table; otherwise what is wrong.
std::string audit(const Table& table, Stream& stream, std::uint64_t records);

}  // namespace holdfast::kv

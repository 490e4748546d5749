#include "kv_store/audit.hpp"

#include <cstring>

namespace holdfast::kv {
namespace {

// The host's own reading of the hash: nvcc compiles Table::hash for the device alone.
std::uint64_t host_hash(std::uint64_t key) {
  key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
  key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
  return key ^ key >> 33;
}

std::string audit_bucket(std::uint64_t index, std::uint64_t mask, const Bucket& bucket) {
  using detail::concat;
  for (unsigned way = 0; way < kWays; ++way) {
    const Pair& pair = bucket.ways[way];
    if (pair.key == 0) {
      if (pair.value != 0) return concat("bucket ", index, " way ", way, ": a value without a key");
      continue;
    }
    const std::uint64_t key = ~pair.key;
    if ((host_hash(key) & mask) != index) {
      return concat("bucket ", index, " way ", way, ": key ", key, " belongs to bucket ",
                    host_hash(key) & mask);
    }
    for (unsigned other = 0; other < way; ++other) {
      if (bucket.ways[other].key == pair.key) {
        return concat("bucket ", index, ": key ", key, " is there twice");
      }
    }
  }
  return {};
}

// Where the copy in device memory differs from the table.
std::string audit_copy(const Table& table, Stream& stream) {
  std::vector<Bucket> copied;
  std::string wrong;
  for_each_piece(table.buckets, table.mask + 1, stream,
                 [&](std::uint64_t first, const std::vector<Bucket>& piece, std::uint64_t count) {
                   copied.resize(count);
                   copy_async(stream, copied.data(), table.copy + first, count * sizeof(Bucket));
                   stream.synchronize();
                   for (std::uint64_t i = 0; i < count && wrong.empty(); ++i) {
                     if (std::memcmp(&copied[i], &piece[i], sizeof(Bucket)) == 0) continue;
                     wrong = detail::concat("bucket ", first + i,
                                            ": the copy in device "
                                            "memory differs from the table");
                   }
                 });
  return wrong;
}

}  // namespace

std::string audit(const Table& table, Stream& stream, std::uint64_t records) {
  std::string wrong;
  std::uint64_t found = 0;
  for_each_bucket(table, stream, [&](std::uint64_t index, const Bucket& bucket) {
    for (const Pair& pair : bucket.ways) found += pair.key != 0;
    if (wrong.empty()) wrong = audit_bucket(index, table.mask, bucket);
  });
  if (wrong.empty() && found != records) {
    wrong = detail::concat("the counters say ", records, " records; the table has ", found);
  }
  if (wrong.empty() && table.copy != nullptr) wrong = audit_copy(table, stream);
  return wrong;
}

}  // namespace holdfast::kv

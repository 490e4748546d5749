// A bytes map's host side.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "bytes_map/free_space.hpp"
#include "bytes_map/kernels.hpp"
#include "bytes_map/records.hpp"
#include "holdfast/bytes_map.hpp"
#include "holdfast/durable.hpp"

namespace holdfast::bytes_map {

// The durable object. docs/format.md.
struct BytesMapParameters {
  static constexpr const char* kTypeName = "bytes map";
  static constexpr std::uint32_t kVersion = 1;
  std::uint64_t grains;  // for records
  std::uint32_t max_batch;
  std::uint32_t digest_bits;

  std::vector<Part> parts() const;  // throws invalid_argument
};
using BytesMapObject = Durable<BytesMapParameters>;

inline constexpr const char* kRecords = "records";
inline constexpr std::size_t kMostNameBytes = 40;

BytesMapParameters parameters_of(const BytesMapOptions& options);  // throws invalid_argument
std::string index_name(std::string_view name);
MapOptions index_options(const BytesMapOptions& options);

using Digest = Bytes<16>;
using Index = HashMap<Digest>;

// Words that the index has, by slots.
struct Pairs {
  std::vector<Digest> digests;
  std::vector<std::uint64_t> words;
};

}  // namespace holdfast::bytes_map

namespace holdfast::detail {

// Invariant: between calls, what is free is what no word of the index names; or refs are out, and
// it is some of that; or `broken_` says why nothing is known.
class BytesMapHost {
 public:
  BytesMapHost(Region& region, std::string where, bytes_map::BytesMapObject object,
               bytes_map::Records records, bytes_map::Index index, std::uint32_t max_batch);
  ~BytesMapHost();
  BytesMapHost(const BytesMapHost&) = delete;
  BytesMapHost& operator=(const BytesMapHost&) = delete;

  // This, for who may use it. Throws closed; and device: an earlier call failed.
  BytesMapHost& usable();
  // Finds what is free, and ends a growth of the index that was cut off. Throws damaged, with
  // nothing changed.
  void survey();
  void reserve(const BytesMapReserve& wanted);
  BytesMapRef ref(std::uint64_t record_bytes);
  void quiesce();

  BytesMapResult update(MapOperation operation, const ByteStrings& keys, const ByteStrings* values,
                        MapStatus* status);
  void find(const ByteStrings& keys, std::uint64_t* offsets, BytesFound* found,
            const BytesMap::Room& room);
  void contains(const ByteStrings& keys, BytesFound* found);
  std::uint64_t export_batch(std::uint64_t first, std::uint64_t slots, ByteStringVector& keys,
                             ByteStringVector& values);
  BytesMapStats stats();
  std::string verify();
  Stream& stream() const { return index_.stream(); }
  const MapRecovery& recovery() const { return index_.recovery(); }

 private:
  // Strings in device memory.
  struct Staged {
    DeviceBuffer<std::byte> bytes;
    DeviceBuffer<std::uint64_t> offsets;
    bytes_map::DeviceStrings view() const { return {bytes.data(), offsets.data()}; }
  };
  // One batch.
  struct Batch {
    std::uint32_t count = 0;
    std::vector<bytes_map::Digest> digests;
    std::vector<std::uint64_t> words;  // that the index has, where it has one
    std::vector<std::uint8_t> found;
    std::vector<bytes_map::Seen> seen;
    std::vector<bytes_map::RecordHead> heads;
  };

  // Throws invalid_argument while refs are out.
  void check_quiet(const char* call) const;
  void check(const ByteStrings& strings, std::uint64_t most, const char* what) const;
  void stage(const ByteStrings& strings, Staged& to);
  // Finds keys in the index and compares them with those of records.
  Batch look_up(const ByteStrings& keys);
  // Fills heads and seen. Without keys to compare: of words as they are.
  void look(Batch& batch, bool compare);
  // Reads the records of those that are `wanted`; which are damaged is known then.
  void read(Batch& batch, const std::vector<bytes_map::Piece>& pieces,
            const std::vector<std::uint64_t>* key_at, std::byte* keys_out,
            const std::uint64_t* value_at, std::byte* values_out);
  void write(const std::vector<std::uint64_t>& words);
  void apply(MapOperation operation, const Batch& batch, const std::vector<std::uint64_t>& words,
             std::vector<MapStatus>& status);
  bytes_map::Pairs pairs_in(std::uint64_t first, std::uint64_t slots) const;
  bytes_map::Pairs all_pairs() const;
  std::uint64_t export_pairs(const bytes_map::Pairs& pairs, std::size_t first, std::uint32_t count,
                             ByteStringVector& keys, ByteStringVector& values);

  Region& region_;
  std::string where_;
  bytes_map::BytesMapObject object_;
  bytes_map::Records records_;
  mutable bytes_map::Index index_;
  std::uint32_t max_batch_;
  bytes_map::FreeSpace free_;
  std::string broken_;
  bool refs_out_ = false;
  std::vector<DeviceBuffer<unsigned long long>> taken_;  // of refs that have room for records

  Staged keys_, values_;
  DeviceBuffer<bytes_map::Digest> digests_;
  DeviceBuffer<std::uint64_t> words_, key_at_, value_at_;
  DeviceBuffer<std::uint8_t> found_;
  DeviceBuffer<bytes_map::Seen> seen_;
  DeviceBuffer<bytes_map::RecordHead> heads_;
  DeviceBuffer<unsigned long long> sums_;
  DeviceBuffer<bytes_map::Piece> pieces_;
  DeviceBuffer<std::byte> keys_out_, values_out_;
};

}  // namespace holdfast::detail

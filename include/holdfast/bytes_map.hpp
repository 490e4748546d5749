// A hash map that lives in a region, of keys and values that are byte strings of any length: keys
// of up to 64 KiB, values of up to 16 MiB. In batches from the host, and from kernels as they go
// (bytes_map_ref.hpp).
//
// docs/bytes-map.md says how it is made. It stands on HashMap (hash_map.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/bytes_map_ref.hpp"
#include "holdfast/hash_map.hpp"

namespace holdfast {

// Byte strings one behind the other, as Arrow's large_binary has them: string i is
// bytes[offsets[i]] to bytes[offsets[i + 1]]. Does not own them. In host memory.
struct ByteStrings {
  const std::byte* bytes = nullptr;
  const std::uint64_t* offsets = nullptr;  // count + 1 of them, none below the one before
  std::size_t count = 0;

  std::uint64_t length(std::size_t i) const { return offsets[i + 1] - offsets[i]; }
  std::string_view operator[](std::size_t i) const {
    return {reinterpret_cast<const char*>(bytes) + offsets[i], static_cast<std::size_t>(length(i))};
  }
};

// Owns byte strings.
struct ByteStringVector {
  std::vector<std::byte> bytes;
  std::vector<std::uint64_t> offsets{0};

  ByteStringVector() = default;
  explicit ByteStringVector(const std::vector<std::string>& strings) {
    for (const std::string& each : strings) push_back(each);
  }
  std::size_t size() const { return offsets.size() - 1; }
  void push_back(std::string_view string) {
    const auto* const from = reinterpret_cast<const std::byte*>(string.data());
    bytes.insert(bytes.end(), from, from + string.size());
    offsets.push_back(bytes.size());
  }
  std::string_view operator[](std::size_t i) const { return ByteStrings(*this)[i]; }
  operator ByteStrings() const { return {bytes.data(), offsets.data(), size()}; }  // NOLINT
};

struct BytesMapOptions {
  std::uint64_t capacity = 0;       // pairs: slots of the index, of which nine tenths can be taken
  std::uint64_t record_bytes = 0;   // for records; one takes record_bytes_of() of them
  std::uint32_t max_batch = 65536;  // operations of a batch at most; 1 to 2^24
  // Of a key's digest, from 1 on: fewer than all are for tests of keys with one digest.
  std::uint32_t digest_bits = 128;
};

// What a map is to have at least. What it has already needs no more, so that 0 leaves it as it is.
struct BytesMapReserve {
  std::uint64_t capacity = 0;      // slots of the index
  std::uint64_t record_bytes = 0;  // for records, in all
};

// What a batch did: how many of its operations had which MapStatus.
struct BytesMapResult {
  std::uint64_t inserted = 0;
  std::uint64_t assigned = 0;
  std::uint64_t kept = 0;
  std::uint64_t erased = 0;
  std::uint64_t absent = 0;
  std::uint64_t superseded = 0;
  std::uint64_t full = 0;
  std::uint64_t no_value = 0;
  std::uint64_t refused = 0;

  std::uint64_t not_done() const { return full + no_value + refused; }
};

struct BytesMapStats {
  std::uint64_t size = 0;          // pairs
  std::uint64_t capacity = 0;      // slots of the index
  std::uint64_t record_bytes = 0;  // that there are for records, in all of its objects
  std::uint64_t free_bytes = 0;    // of these
  std::uint64_t largest_free = 0;  // bytes that are free side by side: no larger record fits
  std::uint64_t free_extents = 0;  // pieces that the free bytes are in
  std::uint64_t max_batch = 0;
  bool refs_out =
      false;  // ref() was called since the last quiesce(): what they free is not counted
};

namespace detail {
class BytesMapHost;
}

// The durable object `name` of its region, and with it the hash map "<name>.index".
//
// Batches. Of operations with the same key the last one in the batch counts; the others are
// `superseded`. Once a call returned, what it did survives what the region's persist rung survives;
// if a crash cuts it off, each operation is there whole or not at all, whatever of the others is.
// `status`, which may be null, gets what became of each operation. An operation that is `full`,
// `no_value` (no free bytes side by side for its record) or `refused` (another key that is there,
// or a later one of the batch, has its digest of 128 bits) left everything as it was; the rest of
// its batch is done. Until a batch has ended, old and new records need room side by side. A batch
// of more than max_batch operations, or with a key or a value that is too long, or with offsets
// that fall, throws invalid_argument with nothing changed.
//
// Damage. A key whose record is not as it was written counts as there: a lookup says `damaged`,
// insert() keeps it, insert_or_assign() and erase() replace and remove it. If the key in the record
// is damaged that is so of all keys of its digest.
//
// Refs. Once ref() was called, and until quiesce(), kernels change the map, and batches look up and
// export alone: those that change it, and reserve(), throw invalid_argument with nothing changed.
// Lookups may run beside the kernels. What is no record's is free again at quiesce(), not before.
//
// Invariants, between calls: no two records overlap, and, while no refs are out, all bytes that are
// no record's are free.
//
// Opening it again in the same process ends the earlier map: its calls throw closed. While refs of
// that one are out it is refused: invalid_argument. REQUIRES: the region outlives the map, and is
// not moved meanwhile; the map outlives its refs. Thread safety: one thread at a time.
class BytesMap {
 public:
  using Options = BytesMapOptions;

  // A kill leaves the map whole or absent. A name has 40 bytes at most. Throws as
  // HashMap::create().
  static BytesMap create(Region& region, std::string_view name, const Options& options);
  // Removes it, with what growths have added, and otherwise as HashMap::remove().
  static void remove(Region& region, std::string_view name);
  // Opens it, and finds what is free: reads the index once, and no record. Throws damaged (with
  // nothing changed), and as HashMap::open(). `max_batch`: 0: as it was made.
  static BytesMap open(Region& region, std::string_view name, std::uint32_t max_batch = 0);
  // Bytes that a region must have to hold it and nothing else.
  static std::uint64_t region_bytes(const Options& options);
  // Bytes of a record: 16, and those of key and value, each rounded up to a multiple of 16.
  static std::uint64_t record_bytes_of(std::uint64_t key_bytes, std::uint64_t value_bytes);

  // Grows until it has what is wanted, or does nothing where it has. The index doubles
  // (HashMap::reserve()); for records there is another object, which no record spans with what was
  // there, and which has an eighth of what there was at least where the region has room. The region
  // is enlarged where it has none. A crash leaves each of the two as it was, or larger. Throws
  // invalid_argument (more than a map can have), no_space (more than the region's max_size; the
  // message says what it takes), already_exists (an object of the program's is called as one that
  // it needs), no_shared_memory, no_memory: the map is as it was.
  void reserve(const BytesMapReserve& wanted);

  // Inserts what is not there.
  BytesMapResult insert(const ByteStrings& keys, const ByteStrings& values,
                        MapStatus* status = nullptr);
  BytesMapResult insert_or_assign(const ByteStrings& keys, const ByteStrings& values,
                                  MapStatus* status = nullptr);
  BytesMapResult erase(const ByteStrings& keys, MapStatus* status = nullptr);

  // Finds the lengths of the values first: offsets[i + 1] - offsets[i], of keys.count + 1 offsets;
  // 0 of what is absent or damaged. Then asks `room` for all their bytes, and fills them. Of a
  // record whose bytes turn out to be damaged there are zeros. found[i]: what became of key i.
  using Room = std::function<std::byte*(std::uint64_t bytes)>;
  void find(const ByteStrings& keys, std::uint64_t* offsets, BytesFound* found,
            const Room& room) const;
  ByteStringVector find(const ByteStrings& keys, std::vector<BytesFound>& found) const;
  // Compares keys with those of the records; values are not read.
  void contains(const ByteStrings& keys, BytesFound* found) const;

  // Adds the pairs in slots `first` and on, `slots` of them at most, to keys and values, in no
  // order. There are stats().capacity slots. Returns how many were left out, since their records
  // are damaged.
  std::uint64_t export_batch(std::uint64_t first, std::uint64_t slots, ByteStringVector& keys,
                             ByteStringVector& values) const;

  // For kernels, until quiesce(), with so many bytes for the records that they write, rounded up to
  // a multiple of 16: side by side, as record_bytes_of() counts them. 0: for lookups and erasures.
  // There may be several refs, each with its own room. Throws no_space (so many bytes are not free
  // side by side), and as Region::check_writable().
  BytesMapRef ref(std::uint64_t record_bytes = 0);
  // Ends all refs, finds what is free now, and lets batches change the map again. Takes time that
  // grows with the index; does nothing where no ref is out. REQUIRES: kernels with refs have ended.
  // Throws damaged (the index is: reopen the region from its last commit).
  void quiesce();

  std::uint64_t size() const { return stats().size; }
  BytesMapStats stats() const;
  const MapRecovery& recovery() const;  // of open(): of the index

  // Empty if the index, all records and what is free are as they should be, read by the host alone;
  // otherwise what is wrong. While refs are out it is not asked whether bytes are free. REQUIRES:
  // no kernel changes the map meanwhile.
  std::string verify() const;

  // In which batches run.
  Stream& stream() const;

 private:
  explicit BytesMap(std::shared_ptr<detail::BytesMapHost> host);
  detail::Shared<detail::BytesMapHost> host_;
};

}  // namespace holdfast

// verify(): the whole map read by the host, with none of the kernels.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "hash_map/host.hpp"

namespace holdfast::detail {

// What the host makes of a slot.
struct HostSlot {
  std::uint64_t key = 0;
  std::uint64_t word = 0;
};

class Audit {
 public:
  Audit(const map::Table& table, const MapTypes& types, bool refs_out)
      : shape_(table.now),
        levels_(static_cast<unsigned>(table.levels.size())),
        types_(types),
        refs_out_(refs_out),
        places_(table.now.places, false) {}

  // Buckets in turn.
  void bucket(const std::byte* bytes) {
    for (std::uint32_t way = 0; way < shape_.ways && wrong_.empty(); ++way) {
      const HostSlot slot = read(bytes, way);
      wrong_ = judge(slot);
      if (!wrong_.empty()) wrong_ = concat("bucket ", bucket_, " slot ", way, ": ", wrong_);
    }
    ++bucket_;
  }
  const std::string& wrong() const { return wrong_; }
  std::uint64_t pairs() const { return slot_of_.size(); }

  // Places that a word names, by place.
  const std::vector<bool>& named() const { return places_; }

  // The places that are free: exactly those that no word names.
  std::string free_list(const std::vector<std::uint32_t>& free) {
    for (const std::uint32_t place : free) {
      if (place >= places_.size())
        return concat("place ", place, " is listed as free, and is none");
      if (places_[place])
        return concat("place ", place, " is free, and named by a slot or listed twice");
      places_[place] = true;
    }
    const auto lost = std::find(places_.begin(), places_.end(), false);
    if (lost == places_.end()) return {};
    return concat("place ", lost - places_.begin(), " is neither free nor named by a slot");
  }

 private:
  HostSlot read(const std::byte* bytes, std::uint32_t way) const {
    HostSlot slot;
    std::memcpy(&slot.key, bytes + way * shape_.key_bytes, shape_.key_bytes);
    const std::uint32_t words_at = shape_.bucket_bytes - shape_.ways * 8;
    std::memcpy(&slot.word, bytes + words_at + way * 8, 8);
    return slot;
  }

  std::string judge(const HostSlot& slot) {
    if (slot.key == 0) return slot.word == 0 ? std::string() : "a word without a key";
    const std::uint64_t mask = shape_.key_bytes == 4 ? 0xffffffffull : ~0ull;
    const std::uint64_t key = (slot.key ^ shape_.empty_key) & mask;
    if (slot.word <= kMapGone) {
      return refs_out_ ? std::string() : concat("key ", key, " has no value, and no ref is out");
    }
    if (!may_be_here(key)) return concat("key ", key, " cannot be in this bucket");
    if (!slot_of_.emplace(key, bucket_).second) {
      return concat("key ", key, " is in bucket ", slot_of_[key], ", too");
    }
    if (shape_.places == 0) return {};
    const std::uint64_t place = slot.word ^ kMapTag;
    if (place >= places_.size()) {
      return concat("key ", key, " has its value at place ", place, ", which is none");
    }
    if (places_[place]) return concat("key ", key, " shares the place ", place, " with another");
    places_[place] = true;
    return {};
  }

  bool may_be_here(std::uint64_t key) const {
    for (unsigned i = 0; i < levels_ * shape_.hashes; ++i) {
      if (types_.kernels->bucket_of(shape_.buckets, key, i) == bucket_) return true;
    }
    return false;
  }

  const map::MapParameters& shape_;
  const unsigned levels_;
  const MapTypes& types_;
  const bool refs_out_;
  std::uint64_t bucket_ = 0;
  std::string wrong_;
  std::unordered_map<std::uint64_t, std::uint64_t> slot_of_;
  std::vector<bool> places_;
};

std::string MapHost::verify_level(std::size_t level, Audit& audit) {
  const std::uint64_t bucket_bytes = shape().bucket_bytes;
  const std::uint64_t buckets = shape().buckets >> level;
  const std::uint64_t piece = std::max<std::uint64_t>(1, (std::uint64_t{16} << 20) / bucket_bytes);
  const bool compare = has_directory() && !refs_out_;
  std::vector<std::byte> table, directory;
  for (std::uint64_t first = 0; first < buckets; first += piece) {
    const std::uint64_t count = std::min(piece, buckets - first);
    table.resize(count * bucket_bytes);
    copy_async(stream, table.data(), table_.levels[level] + first * bucket_bytes, table.size());
    if (compare) {
      directory.resize(table.size());
      copy_async(stream, directory.data(), memory_.directory[level].data() + first * bucket_bytes,
                 directory.size());
    }
    stream.synchronize();
    if (compare && table != directory) {
      return concat("the directory differs from the table on level ", level,
                    ", in its buckets from ", first, " on");
    }
    for (std::uint64_t i = 0; i < count; ++i) audit.bucket(table.data() + i * bucket_bytes);
    if (!audit.wrong().empty()) return audit.wrong();
  }
  return {};
}

std::string MapHost::verify() {
  Audit audit(table_, types_, refs_out_);
  for (std::size_t level = 0; level < table_.levels.size(); ++level) {
    if (std::string wrong = verify_level(level, audit); !wrong.empty()) return wrong;
  }
  if (refs_out_) return {};  // what they did is counted at quiesce()
  if (audit.pairs() != size_) {
    return concat("the map says that it has ", size_, " pairs; the table has ", audit.pairs());
  }
  if (shape().places == 0) return {};
  if (memory_.cache) {
    const std::string wrong = memory_.cache->audit(stream, table_, audit.named());
    if (!wrong.empty()) return wrong;
  }
  std::vector<std::uint32_t> ring(shape().places), free;
  unsigned long long ends[2];
  copy_async(stream, ends, memory_.ends.data(), sizeof(ends));
  copy_async(stream, ring.data(), memory_.free.data(), memory_.free.bytes());
  stream.synchronize();
  for (std::uint64_t i = ends[0]; i < ends[1]; ++i) free.push_back(ring[i % ring.size()]);
  return audit.free_list(free);
}

}  // namespace holdfast::detail

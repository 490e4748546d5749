// verify(): the whole map read by the host, with none of the kernels.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "hash_map/host.hpp"

namespace holdfast::detail {

// What the host makes of a slot.
struct HostSlot {
  std::uint64_t label = 0;
  std::uint64_t word = 0;
  std::vector<std::uint64_t> key;  // of 16 bytes and more
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
    const std::uint32_t label_bytes = std::min(shape_.key_bytes, 8u);
    std::memcpy(&slot.label, bytes + way * label_bytes, label_bytes);
    std::memcpy(&slot.word, bytes + shape_.words_at() + way * 8, 8);
    if (shape_.key_words() == 0) return slot;
    slot.key.resize(shape_.key_words());
    const std::uint32_t keys_at = shape_.words_at() + shape_.ways * 8;
    std::memcpy(slot.key.data(), bytes + keys_at + way * shape_.key_bytes, shape_.key_bytes);
    return slot;
  }

  std::string judge(const HostSlot& slot) {
    const auto missing = std::count(slot.key.begin(), slot.key.end(), 0);
    if (slot.label == 0) {
      if (slot.word != 0) return "a word without a key";
      return missing == static_cast<std::ptrdiff_t>(slot.key.size()) ? "" : "words of no key";
    }
    const std::uint64_t mask = shape_.key_bytes == 4 ? 0xffffffffull : ~0ull;
    const std::uint64_t label = (slot.label ^ shape_.empty_key) & mask;
    const std::string name = concat(slot.key.empty() ? "key " : "the key with label ", label);
    if (slot.word <= kMapGone) {
      return refs_out_ ? std::string() : concat(name, " has no value, and no ref is out");
    }
    if (missing != 0) return concat(name, " lacks a part of it");
    const auto is_set = [](std::uint64_t word) { return (word & kMapWordIsSet) != 0; };
    if (!std::all_of(slot.key.begin(), slot.key.end(), is_set)) {
      return concat(name, " has a word that does not say that it is stored");
    }
    if (!slot.key.empty() && label_of(slot) != slot.label) {
      return concat(name, " has another label");
    }
    if (!may_be_here(label)) return concat(name, " cannot be in this bucket");
    const auto [at, is_new] = slot_of_.emplace(bytes_of(slot, label), bucket_);
    if (!is_new) return concat(name, " is in bucket ", at->second, ", too");
    if (shape_.places == 0) return {};
    const std::uint64_t place = slot.word ^ kMapTag;
    if (place >= places_.size()) {
      return concat(name, " has its value at place ", place, ", which is none");
    }
    if (places_[place]) return concat(name, " shares the place ", place, " with another");
    places_[place] = true;
    return {};
  }

  std::uint64_t label_of(const HostSlot& slot) const {
    std::vector<std::uint64_t> key(slot.key);
    for (std::uint32_t i = 0; i < key.size(); ++i) {
      key[i] = map_word_of_key(slot.label, key[i], i);
    }
    return types_.kernels->label_of(key.data(), static_cast<std::uint32_t>(key.size()));
  }
  // Different for different keys.
  static std::string bytes_of(const HostSlot& slot, std::uint64_t label) {
    std::string bytes(reinterpret_cast<const char*>(&label), sizeof(label));
    bytes.append(reinterpret_cast<const char*>(slot.key.data()), slot.key.size() * 8);
    return bytes;
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
  std::unordered_map<std::string, std::uint64_t> slot_of_;
  std::vector<bool> places_;
};

std::string MapHost::verify_level(std::size_t level, Audit& audit) {
  const std::uint64_t bucket_bytes = shape().bucket_bytes;
  const std::uint64_t buckets = shape().buckets >> level;
  const std::uint64_t piece = std::max<std::uint64_t>(1, (std::uint64_t{16} << 20) / bucket_bytes);
  const bool compare = has_directory() && !refs_out_;
  std::vector<std::byte> table, directory;
  const core::StreamEnd end(stream);
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
  const core::StreamEnd end(stream);
  copy_async(stream, ends, memory_.ends.data(), sizeof(ends));
  copy_async(stream, ring.data(), memory_.free.data(), memory_.free.bytes());
  stream.synchronize();
  for (std::uint64_t i = ends[0]; i < ends[1]; ++i) free.push_back(ring[i % ring.size()]);
  return audit.free_list(free);
}

}  // namespace holdfast::detail

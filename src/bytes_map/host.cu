#include "bytes_map/host.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/reason.hpp"
#include "core/stream_end.hpp"

namespace holdfast::detail {

using bytes_map::Digest;
using bytes_map::Extent;
using bytes_map::Pairs;
using bytes_map::Piece;
using bytes_map::RecordHead;
using bytes_map::Seen;

namespace {

// Room for at least so many elements; it is not made smaller. What was in it is gone then.
template <class T>
T* room_for(DeviceBuffer<T>& buffer, std::size_t size) {
  if (buffer.size() < size) {
    const std::size_t larger = std::max(size, buffer.size() + buffer.size() / 2);
    buffer.reset();
    buffer = DeviceBuffer<T>(larger);
  }
  return buffer.data();
}

template <class T>
T* upload(Stream& stream, DeviceBuffer<T>& buffer, const T* from, std::size_t size) {
  T* const to = room_for(buffer, std::max<std::size_t>(size, 1));
  copy_async(stream, to, from, size * sizeof(T));
  return to;
}

void add_pieces(std::uint32_t op, std::uint64_t grains, std::vector<Piece>& pieces) {
  const std::uint64_t behind_head = grains - 1;
  std::uint32_t number = 0;
  do {
    pieces.push_back({op, number++});
  } while (number * bytes_map::kPieceGrains < behind_head);
}

BytesFound found_of(Seen seen) {
  if (seen == Seen::same) return BytesFound::present;
  return seen == Seen::damaged ? BytesFound::damaged : BytesFound::absent;
}

// Of operations with one digest the last one is left; those before it get a status. Not done is
// one whose key is another than the last one's.
void supersede(const ByteStrings& keys, const std::vector<Digest>& digests,
               std::vector<MapStatus>& status) {
  constexpr std::uint32_t kNone = ~0u;
  std::size_t size = 16;
  while (size < 2 * keys.count) size *= 2;
  std::vector<std::uint32_t> last(size, kNone);
  for (auto i = static_cast<std::uint32_t>(keys.count); i-- > 0;) {
    std::uint64_t hash = 0;
    std::memcpy(&hash, digests[i].bytes, sizeof(hash));
    std::size_t at = MapHash::digest(hash, 0) & (size - 1);
    while (last[at] != kNone && !(digests[last[at]] == digests[i])) at = (at + 1) & (size - 1);
    if (last[at] == kNone) {
      last[at] = i;
    } else {
      status[i] = keys[last[at]] == keys[i] ? MapStatus::superseded : MapStatus::refused;
    }
  }
}

BytesMapResult count_of(const std::vector<MapStatus>& status) {
  BytesMapResult result;
  for (const MapStatus each : status) {
    switch (each) {
      case MapStatus::inserted:
        ++result.inserted;
        break;
      case MapStatus::assigned:
        ++result.assigned;
        break;
      case MapStatus::kept:
        ++result.kept;
        break;
      case MapStatus::erased:
        ++result.erased;
        break;
      case MapStatus::absent:
        ++result.absent;
        break;
      case MapStatus::superseded:
        ++result.superseded;
        break;
      case MapStatus::full:
        ++result.full;
        break;
      case MapStatus::no_value:
        ++result.no_value;
        break;
      case MapStatus::refused:
        ++result.refused;
        break;
    }
  }
  return result;
}

}  // namespace

BytesMapHost::BytesMapHost(Region& region, std::string where, bytes_map::BytesMapObject object,
                           bytes_map::Records records, bytes_map::Index index,
                           std::uint32_t max_batch)
    : region_(region),
      where_(std::move(where)),
      object_(std::move(object)),
      records_(std::move(records)),
      index_(std::move(index)),
      max_batch_(max_batch) {}

// Its buffers end before the index, whose stream it is.
BytesMapHost::~BytesMapHost() { const core::StreamEnd end(stream()); }

BytesMapHost& BytesMapHost::usable() {
  (void)index_.value_bytes();  // throws closed
  if (!broken_.empty()) {
    throw Error(Errc::device, where_ + ": an earlier call failed (" + broken_ + "): open it again");
  }
  return *this;
}

// ---- What is there -----------------------------------------------------------------------------

Pairs BytesMapHost::pairs_in(std::uint64_t first, std::uint64_t slots) const {
  const std::uint64_t capacity = index_.capacity();
  slots = first < capacity ? std::min(slots, capacity - first) : 0;
  Pairs pairs;
  if (slots == 0) return pairs;
  pairs.digests.resize(slots);
  pairs.words.resize(slots);
  const std::uint64_t count =
      index_.export_batch(first, slots, pairs.digests.data(), pairs.words.data());
  pairs.digests.resize(count);
  pairs.words.resize(count);
  return pairs;
}

Pairs BytesMapHost::all_pairs() const {
  constexpr std::uint64_t kSlots = std::uint64_t{1} << 16;
  Pairs all;
  for (std::uint64_t first = 0; first < index_.capacity(); first += kSlots) {
    const Pairs some = pairs_in(first, kSlots);
    all.digests.insert(all.digests.end(), some.digests.begin(), some.digests.end());
    all.words.insert(all.words.end(), some.words.begin(), some.words.end());
  }
  return all;
}

void BytesMapHost::survey() {
  const auto damaged = [&](const std::string& what) {
    throw Error(Errc::damaged, concat(where_, ": its index is damaged (", what,
                                      "); reopen the region from its last commit"));
  };
  std::vector<Extent> used = records_.gaps();
  for (const std::uint64_t word : all_pairs().words) {
    const Extent extent = bytes_map::extent_of(word);
    if (!bytes_map::is_word(word) || records_.chunk_of(extent) == nullptr) {
      damaged(concat("the word ", word, " names no record"));
    }
    used.push_back(extent);
  }
  std::sort(used.begin(), used.end(),
            [](const Extent& a, const Extent& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < used.size(); ++i) {
    if (used[i - 1].end() > used[i].first) {
      damaged(concat("two records have the place ", used[i].first));
    }
  }
  free_ = bytes_map::FreeSpace(records_.end(), used);
  index_.migrate(~std::uint64_t{0});
}

void BytesMapHost::check_quiet(const char* call) const {
  if (!refs_out_) return;
  throw Error(Errc::invalid_argument,
              concat(where_, ": ", call,
                     " while refs are out, which kernels may still use: wait for "
                     "them, and quiesce() first"));
}

BytesMapRef BytesMapHost::ref(std::uint64_t record_bytes) {
  region_.check_writable("a ref of a bytes map");
  if (record_bytes > free_.largest() * bytes_map::kGrain) {
    throw Error(Errc::no_space,
                concat(where_, ": a ref with ", record_bytes, " bytes for records, of which ",
                       free_.largest() * bytes_map::kGrain,
                       " are free side by side: ask for fewer, or reserve() more first"));
  }
  const std::uint64_t grains = bytes_map::grains_for(record_bytes);
  BytesMapRef::Parts parts{};
  parts.records = records_.view();
  parts.marks = region_.marks();
  parts.digest_bits = object_.parameters().digest_bits;
  if (grains != 0) {
    DeviceBuffer<unsigned long long> taken(1);
    const core::StreamEnd end(stream());
    fill_async(stream(), taken.data(), 0, sizeof(unsigned long long));
    stream().synchronize();  // who uses the ref may do so on another stream
    parts.taken = taken.data();
    taken_.push_back(std::move(taken));
    parts.room = free_.take({grains}).front();
  }
  refs_out_ = true;
  return {index_.ref(), parts};
}

void BytesMapHost::quiesce() {
  region_.check_writable("quiesce()");
  if (!refs_out_) return;
  try {
    index_.quiesce();
    survey();
  } catch (const std::exception& error) {
    core::keep_reason(broken_, error);
    throw;
  }
  taken_.clear();
  refs_out_ = false;
}

void BytesMapHost::reserve(const BytesMapReserve& wanted) {
  region_.check_writable("reserve()");
  check_quiet("reserve()");
  const std::uint64_t grains = records_.missing(wanted.record_bytes);
  // Records first: what was made for them can be given up, and an index stays as it has grown.
  const bytes_map::Chunk* const added = grains != 0 ? &records_.add(grains) : nullptr;
  try {
    index_.reserve(wanted.capacity);
    if (added != nullptr) free_.give({{added->first, added->grains}});
  } catch (...) {
    if (added != nullptr) records_.remove_last();
    throw;
  }
}

BytesMapStats BytesMapHost::stats() {
  const MapStats of_index = index_.stats();
  BytesMapStats result;
  result.size = of_index.size;
  result.capacity = of_index.capacity;
  result.record_bytes = records_.grains() * bytes_map::kGrain;
  result.free_bytes = free_.grains() * bytes_map::kGrain;
  result.largest_free = free_.largest() * bytes_map::kGrain;
  result.free_extents = free_.extents().size();
  result.max_batch = max_batch_;
  result.refs_out = refs_out_;
  return result;
}

// ---- Lookups -----------------------------------------------------------------------------------

void BytesMapHost::check(const ByteStrings& strings, std::uint64_t most, const char* what) const {
  const auto wrong = [&](const std::string& why) {
    throw Error(Errc::invalid_argument, concat(where_, ": ", why));
  };
  if (strings.count > max_batch_) {
    wrong(concat("a batch of ", strings.count, " operations, and max_batch is ", max_batch_,
                 ": give it in parts"));
  }
  if (strings.count == 0) return;
  if (strings.offsets == nullptr) wrong(concat(what, "s without offsets"));
  for (std::size_t i = 0; i < strings.count; ++i) {
    if (strings.offsets[i + 1] < strings.offsets[i]) {
      wrong(concat("the offsets of ", what, "s fall behind number ", i));
    }
    if (strings.length(i) > most) {
      wrong(concat(what, " ", i, " has ", strings.length(i), " bytes; ", most, " are the most"));
    }
  }
  if (strings.bytes == nullptr && strings.offsets[strings.count] != strings.offsets[0]) {
    wrong(concat(what, "s without bytes"));
  }
}

// Offsets are made to begin at 0.
void BytesMapHost::stage(const ByteStrings& strings, Staged& to) {
  const std::uint64_t first = strings.offsets[0];
  const std::uint64_t bytes = strings.offsets[strings.count] - first;
  std::byte* const at = room_for(to.bytes, bytes + bytes_map::kReadBehind);
  std::vector<std::uint64_t> moved(strings.offsets, strings.offsets + strings.count + 1);
  for (std::uint64_t& each : moved) each -= first;
  core::StreamEnd end(stream());
  if (bytes != 0) copy_async(stream(), at, strings.bytes + first, bytes);
  upload(stream(), to.offsets, moved.data(), moved.size());
  stream().synchronize();
  end.has_come();
}

void BytesMapHost::look(Batch& batch, bool compare) {
  const std::size_t count = batch.count;
  core::StreamEnd end(stream());
  bytes_map::Lookup lookup{};
  lookup.records = records_.view();
  lookup.words = upload(stream(), words_, batch.words.data(), count);
  lookup.found = upload(stream(), found_, batch.found.data(), count);
  if (compare) lookup.keys = keys_.view();
  lookup.digests = digests_.data();
  lookup.digest_bits = object_.parameters().digest_bits;
  lookup.heads = room_for(heads_, count);
  lookup.seen = room_for(seen_, count);
  lookup.count = batch.count;
  bytes_map::look(stream(), lookup);
  batch.heads.resize(count);
  batch.seen.resize(count);
  copy_async(stream(), batch.heads.data(), lookup.heads, count * sizeof(RecordHead));
  copy_async(stream(), batch.seen.data(), lookup.seen, count * sizeof(Seen));
  stream().synchronize();
  end.has_come();
}

void BytesMapHost::read(Batch& batch, const std::vector<Piece>& pieces,
                        const std::vector<std::uint64_t>* key_at, std::byte* keys_out,
                        const std::uint64_t* value_at, std::byte* values_out) {
  if (pieces.empty()) return stream().synchronize();  // what the caller has queued
  core::StreamEnd end(stream());
  bytes_map::Reading reading{};
  reading.records = records_.view();
  reading.words = words_.data();
  reading.heads = heads_.data();
  reading.seen = seen_.data();
  if (key_at != nullptr) {
    reading.key_at = upload(stream(), key_at_, key_at->data(), batch.count);
    reading.keys_out = keys_out;
  }
  if (value_at != nullptr) {
    reading.value_at = upload(stream(), value_at_, value_at, batch.count);
    reading.values_out = values_out;
  }
  reading.sums = room_for(sums_, batch.count);
  fill_async(stream(), reading.sums, 0, batch.count * sizeof(*reading.sums));
  reading.count = batch.count;
  const Piece* const from = upload(stream(), pieces_, pieces.data(), pieces.size());
  bytes_map::read_records(stream(), reading, from, pieces.size());
  copy_async(stream(), batch.seen.data(), reading.seen, batch.count * sizeof(Seen));
  stream().synchronize();
  end.has_come();
}

BytesMapHost::Batch BytesMapHost::look_up(const ByteStrings& keys) {
  Batch batch;
  batch.count = static_cast<std::uint32_t>(keys.count);
  core::StreamEnd end(stream());
  stage(keys, keys_);
  Digest* const digests = room_for(digests_, keys.count);
  bytes_map::digest_keys(stream(), keys_.view(), batch.count, object_.parameters().digest_bits,
                         digests);
  batch.digests.resize(keys.count);
  copy_async(stream(), batch.digests.data(), digests, keys.count * sizeof(Digest));
  batch.words.resize(keys.count);
  batch.found.resize(keys.count);
  stream().synchronize();
  end.has_come();
  index_.find(batch.digests.data(), batch.words.data(), batch.found.data(), keys.count);
  look(batch, true);
  return batch;
}

void BytesMapHost::contains(const ByteStrings& keys, BytesFound* found) {
  check(keys, kMostBytesOfKey, "key");
  if (keys.count == 0) return;
  const Batch batch = look_up(keys);
  std::transform(batch.seen.begin(), batch.seen.end(), found, found_of);
}

void BytesMapHost::find(const ByteStrings& keys, std::uint64_t* offsets, BytesFound* found,
                        const BytesMap::Room& room) {
  check(keys, kMostBytesOfKey, "key");
  offsets[0] = 0;
  if (keys.count == 0) return;
  Batch batch = look_up(keys);
  std::vector<Piece> pieces;
  for (std::uint32_t op = 0; op < batch.count; ++op) {
    const bool there = batch.seen[op] == Seen::same;
    offsets[op + 1] = offsets[op] + (there ? batch.heads[op].value_bytes : 0);
    if (there) add_pieces(op, bytes_map::extent_of(batch.words[op]).grains, pieces);
    // It is known what became of the others.
    if (!there) found[op] = found_of(batch.seen[op]);
    if (batch.seen[op] == Seen::other) batch.seen[op] = Seen::absent;
  }
  const core::StreamEnd end(stream());
  const std::uint64_t bytes = offsets[batch.count];
  std::byte* const staged = room_for(values_out_, std::max<std::uint64_t>(bytes, 1));
  std::byte* const to = room(bytes);
  upload(stream(), seen_, batch.seen.data(), batch.count);
  read(batch, pieces, nullptr, nullptr, offsets, staged);
  if (bytes != 0) {
    copy_async(stream(), to, staged, bytes);
    stream().synchronize();
  }
  for (std::uint32_t op = 0; op < batch.count; ++op) {
    if (batch.seen[op] == Seen::absent) continue;
    found[op] = found_of(batch.seen[op]);
    if (found[op] == BytesFound::damaged) {
      std::fill(to + offsets[op], to + offsets[op + 1], std::byte{0});
    }
  }
}

std::uint64_t BytesMapHost::export_pairs(const Pairs& pairs, std::size_t first, std::uint32_t count,
                                         ByteStringVector& keys, ByteStringVector& values) {
  Batch batch;
  batch.count = count;
  const auto from = pairs.words.begin() + static_cast<std::ptrdiff_t>(first);
  batch.words.assign(from, from + count);
  batch.found.assign(count, 1);
  look(batch, false);
  std::vector<Piece> pieces;
  std::vector<std::uint64_t> key_at(count + 1), value_at(count + 1);
  for (std::uint32_t op = 0; op < count; ++op) {
    const bool there = batch.seen[op] == Seen::same;
    if (there) add_pieces(op, bytes_map::extent_of(batch.words[op]).grains, pieces);
    key_at[op + 1] = key_at[op] + (there ? batch.heads[op].key_bytes : 0);
    value_at[op + 1] = value_at[op] + (there ? batch.heads[op].value_bytes : 0);
  }
  const std::uint64_t key_bytes = key_at[count], value_bytes = value_at[count];
  std::byte* const keys_out = room_for(keys_out_, std::max<std::uint64_t>(key_bytes, 1));
  std::byte* const values_out = room_for(values_out_, std::max<std::uint64_t>(value_bytes, 1));
  read(batch, pieces, &key_at, keys_out, value_at.data(), values_out);
  std::vector<std::byte> key_in(key_bytes), value_in(value_bytes);
  const core::StreamEnd end(stream());
  copy_async(stream(), key_in.data(), keys_out, key_bytes);
  copy_async(stream(), value_in.data(), values_out, value_bytes);
  stream().synchronize();
  std::uint64_t damaged = 0;
  for (std::uint32_t op = 0; op < count; ++op) {
    if (batch.seen[op] != Seen::same) {
      ++damaged;
      continue;
    }
    keys.push_back({reinterpret_cast<const char*>(key_in.data()) + key_at[op],
                    static_cast<std::size_t>(key_at[op + 1] - key_at[op])});
    values.push_back({reinterpret_cast<const char*>(value_in.data()) + value_at[op],
                      static_cast<std::size_t>(value_at[op + 1] - value_at[op])});
  }
  return damaged;
}

std::uint64_t BytesMapHost::export_batch(std::uint64_t first, std::uint64_t slots,
                                         ByteStringVector& keys, ByteStringVector& values) {
  const Pairs pairs = pairs_in(first, slots);
  std::uint64_t damaged = 0;
  for (std::size_t at = 0; at < pairs.words.size(); at += max_batch_) {
    const std::size_t some = std::min<std::size_t>(max_batch_, pairs.words.size() - at);
    damaged += export_pairs(pairs, at, static_cast<std::uint32_t>(some), keys, values);
  }
  return damaged;
}

// ---- Updates -----------------------------------------------------------------------------------

// Of the batch that is staged: the records that have a word.
void BytesMapHost::write(const std::vector<std::uint64_t>& words) {
  std::vector<Piece> pieces;
  for (std::uint32_t op = 0; op < words.size(); ++op) {
    if (words[op] != 0) add_pieces(op, bytes_map::extent_of(words[op]).grains, pieces);
  }
  if (pieces.empty()) return;
  core::StreamEnd end(stream());
  bytes_map::Writing writing{};
  writing.records = records_.view();
  writing.words = upload(stream(), words_, words.data(), words.size());
  writing.keys = keys_.view();
  writing.values = values_.view();
  writing.sums = room_for(sums_, words.size());
  fill_async(stream(), writing.sums, 0, words.size() * sizeof(*writing.sums));
  writing.marks = region_.marks();
  writing.count = static_cast<std::uint32_t>(words.size());
  const Piece* const from = upload(stream(), pieces_, pieces.data(), pieces.size());
  bytes_map::write_records(stream(), writing, from, pieces.size());
  stream().synchronize();  // they are durable from here on
  end.has_come();
}

// Operations that have no status yet, in the index.
void BytesMapHost::apply(MapOperation operation, const Batch& batch,
                         const std::vector<std::uint64_t>& words, std::vector<MapStatus>& status) {
  std::vector<Digest> digests;
  std::vector<std::uint64_t> given;
  std::vector<std::uint32_t> ops;
  for (std::uint32_t op = 0; op < batch.count; ++op) {
    if (status[op] != MapStatus{}) continue;
    digests.push_back(batch.digests[op]);
    if (operation != MapOperation::erase) given.push_back(words[op]);
    ops.push_back(op);
  }
  if (ops.empty()) return;
  std::vector<MapStatus> became(ops.size());
  if (operation == MapOperation::erase) {
    index_.erase(digests.data(), digests.size(), became.data());
  } else {
    index_.insert_or_assign(digests.data(), given.data(), digests.size(), became.data());
  }
  for (std::size_t i = 0; i < ops.size(); ++i) status[ops[i]] = became[i];
}

BytesMapResult BytesMapHost::update(MapOperation operation, const ByteStrings& keys,
                                    const ByteStrings* values, MapStatus* status) {
  check_quiet("a batch that changes the map");
  check(keys, kMostBytesOfKey, "key");
  if (values != nullptr) {
    check(*values, kMostBytesOfValue, "value");
    if (values->count != keys.count) {
      throw Error(Errc::invalid_argument, concat(where_, ": ", keys.count, " keys and ",
                                                 values->count, " values: give one for each"));
    }
  }
  if (keys.count == 0) return {};
  if (values != nullptr) stage(*values, values_);
  const Batch batch = look_up(keys);
  std::vector<MapStatus> became(batch.count, MapStatus{});
  supersede(keys, batch.digests, became);
  std::vector<std::uint64_t> sizes(batch.count), words(batch.count);
  for (std::uint32_t op = 0; op < batch.count; ++op) {
    if (became[op] != MapStatus{}) continue;
    const bool there = batch.seen[op] == Seen::same || batch.seen[op] == Seen::damaged;
    if (operation == MapOperation::erase) {
      if (!there) became[op] = MapStatus::absent;
    } else if (batch.seen[op] == Seen::other) {
      became[op] = MapStatus::refused;
    } else if (there && operation == MapOperation::insert) {
      became[op] = MapStatus::kept;
    } else {
      sizes[op] = bytes_map::grains_of(keys.length(op), values->length(op));
    }
  }
  try {
    const std::vector<Extent> places = free_.take(sizes);
    for (std::uint32_t op = 0; op < batch.count; ++op) {
      if (sizes[op] == 0) continue;
      if (places[op].grains == 0) became[op] = MapStatus::no_value;
      if (places[op].grains != 0) words[op] = bytes_map::word_of(places[op]);
    }
    write(words);
    apply(operation, batch, words, became);
    std::vector<Extent> unused;
    for (std::uint32_t op = 0; op < batch.count; ++op) {
      const bool replaced = became[op] == MapStatus::assigned || became[op] == MapStatus::erased;
      if (replaced) unused.push_back(bytes_map::extent_of(batch.words[op]));
      if (became[op] == MapStatus::full) unused.push_back(places[op]);
    }
    free_.give(std::move(unused));
  } catch (const std::exception& error) {
    core::keep_reason(broken_, error);
    throw;
  }
  if (status != nullptr) std::copy(became.begin(), became.end(), status);
  return count_of(became);
}

}  // namespace holdfast::detail

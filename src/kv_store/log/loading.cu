#include "kv_store/log/loading.hpp"

#include <algorithm>
#include <utility>

#include "core/stream_end.hpp"
#include "kv_store/log/block_sum.hpp"
#include "undo_log/medium_store.hpp"

namespace holdfast::kv::log {
namespace {

using detail::concat;

constexpr std::uint32_t kStage = (16u << 20) / sizeof(Record);  // records; whole segments

// A piece as kernels see it, or a segment whose snapshot says what of it counts.
struct Extent {
  static constexpr std::uint32_t kBySnapshot = ~0u;
  std::uint32_t first;  // position
  std::uint32_t records;
  std::uint32_t pairs;  // of them, in front of the tombstones; or kBySnapshot
  std::uint32_t rank;
};

// Part of the log in device memory.
struct Stage {
  const Record* records;
  std::uint32_t first;  // position
  std::uint32_t count;
  const Extent* extents;  // by position
  std::uint32_t extent_count;
  const SnapshotWord* snapshots;  // of its segments, where any of them has an extent
  std::uint32_t shift;            // log2 of a segment's records
};

// A record of the stage, as a thread of a block of kBlock sees it.
struct Read {
  bool within = false;  // an extent
  bool there = false;   // it counts, unless a newer one of its key does
  bool tombstone = false;
  std::uint32_t position = 0;
  std::uint32_t extent = 0;
  std::uint32_t index = 0;  // within its piece
  std::uint32_t rank = 0;   // and 1: 0 is the rank of none
  std::uint64_t sum = 0;    // what it adds to its piece's, or to that of the snapshot
  Record record{0, 0};
};

// What the snapshot of its segment says of it.
__device__ void read_bits(const Stage& stage, std::uint32_t i, Read& read) {
  const auto* const header = reinterpret_cast<const SnapshotHeader*>(
      stage.snapshots + snapshot_offset(i >> stage.shift, 1u << stage.shift));
  const auto* const all = reinterpret_cast<const SnapshotBits*>(header + 1);
  const std::uint32_t span = read.index / kSnapshotSpan;
  const std::uint32_t bit = read.index % kSnapshotSpan;
  const SnapshotBits bits = all[span];
  read.there = (bits.live >> bit & 1) != 0;
  read.tombstone = (bits.tombs >> bit & 1) != 0;
  if (bit == 0) read.sum = bits_sum(bits, span);
}

// The last piece that begins no further; kNone: none does.
__device__ std::uint32_t extent_of(const Stage& stage, std::uint32_t position) {
  std::uint32_t low = 0;
  std::uint32_t high = stage.extent_count;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (stage.extents[middle].first <= position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

__device__ Read read_of_thread(const Stage& stage) {
  Read read;
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= stage.count) return read;
  read.position = stage.first + i;
  read.extent = extent_of(stage, read.position);
  if (read.extent == kNone) return read;
  const Extent extent = stage.extents[read.extent];
  read.index = read.position - extent.first;
  if (read.index >= extent.records) return read;
  read.within = true;
  read.rank = extent.rank + read.index + 1;
  if (extent.pairs == Extent::kBySnapshot) {
    read_bits(stage, i, read);
    if (read.there) read.record = stage.records[i];
    return read;
  }
  read.there = true;
  read.tombstone = read.index >= extent.pairs;
  read.record = stage.records[i];
  read.sum = record_sum(read.record.key, read.record.value, read.index);
  return read;
}

// Sums by piece: one thread of the block adds what the block has of a piece. Threads add nothing up
// by atomics, whose orders are as many schedules to the checker, and little in shared memory, each
// access to which it looks at. REQUIRES: all threads of the block call.
__device__ void add_sums(const Stage& stage, const Read& read, unsigned long long* sums) {
  __shared__ unsigned long long of_warps[kBlock / kWarp];
  __shared__ unsigned long long up_to[kBlock];  // sums of the threads up to each, modulo 2^64
  const unsigned me = threadIdx.x;
  unsigned long long so_far = warp_sum_up_to(read.sum);
  if (me % kWarp == kWarp - 1) of_warps[me / kWarp] = so_far;
  __syncthreads();
  for (unsigned warp = 0; warp < me / kWarp; ++warp) so_far += of_warps[warp];
  up_to[me] = so_far;
  __syncthreads();
  if (!read.within || (me != 0 && read.index != 0)) return;
  const std::uint32_t rest = stage.extents[read.extent].records - read.index;
  const unsigned last = rest < kBlock - me ? me + rest - 1 : kBlock - 1;
  const unsigned long long sum = up_to[last] - (me == 0 ? 0 : up_to[me - 1]);
  atomicAdd(&sums[read.extent], sum);
}

__global__ void add_sums_of(Stage stage, unsigned long long* sums) {
  add_sums(stage, read_of_thread(stage), sums);
}

// The slot of a key, which it is given if it has none; kNone where there are too many keys.
__device__ std::uint32_t slot_for(const Index& index, std::uint64_t inverted) {
  std::uint64_t slot = detail::kv_slot_of(index.view(), inverted);
  for (std::uint64_t passed = 0; passed <= index.mask; ++passed) {
    auto* const key = reinterpret_cast<unsigned long long*>(&index.pairs[slot].key);
    const unsigned long long wanted = inverted;
    unsigned long long held = detail::kv_load_word(&index.pairs[slot].key);
    if (held == 0) held = atomicCAS(key, 0ull, wanted);
    if (held == 0 || held == wanted) return static_cast<std::uint32_t>(slot);
    slot = (slot + 1) & index.mask;
  }
  return kNone;
}

// Which of a key's records is the newest: the one of the highest rank.
__global__ void insert_keys(Index index, Stage stage, std::uint32_t* ranks,
                            unsigned long long* sums, unsigned* lost) {
  const Read read = read_of_thread(stage);
  add_sums(stage, read, sums);
  if (!read.there || read.record.key == 0) return;
  const std::uint32_t slot = slot_for(index, read.record.key);
  if (slot == kNone) {
    atomicAdd(lost, 1u);
    return;
  }
  index.slot_of[read.position] = slot;
  atomicMax(&ranks[slot], read.rank);
}

// What the newest so far says.
__global__ void insert_values(Index index, Stage stage, const std::uint32_t* ranks,
                              const unsigned* lost) {
  const Read read = read_of_thread(stage);
  if (*lost != 0 || !read.there || read.record.key == 0) return;
  const std::uint32_t slot = index.slot_of[read.position];
  if (ranks[slot] != read.rank) return;
  index.pairs[slot].value = read.tombstone ? kErased : read.record.value;
  index.where[slot] = read.position | (read.tombstone ? kErasedBit : 0);
}

// ---- Fingerprints ----

// The rank of the record at a position, as Read has it.
__device__ std::uint32_t rank_at(const Stage& stage, std::uint32_t position) {
  const Extent& extent = stage.extents[extent_of(stage, position)];
  return extent.rank + position - extent.first + 1;
}

// Of a hash, what its fingerprint has not: both together tell keys apart, as kv_hash() is a
// bijection.
__device__ std::uint32_t rest_of(std::uint64_t hash) {
  return static_cast<std::uint32_t>(hash >> 8);
}

// What a thread of insert_words() looks for.
struct Sought {
  std::uint64_t hash;
  std::uint64_t key;
  std::uint32_t rank;
};

// Whether a slot is of that key: by a record of this stage, if it has one, as its rest may not be
// seen yet, and else by the rest that an earlier launch noted. Nothing is read over the link.
__device__ bool is_of_key(const FingerprintIndex& index, const Stage& stage,
                          const std::uint32_t* rests, std::uint64_t slot, std::uint64_t word,
                          const Sought& sought) {
  if (!index.is_like(word, sought.hash)) return false;
  const std::uint32_t i = detail::kv_position_in(word) - stage.first;  // wraps in front of it
  return i < stage.count ? stage.records[i].key == sought.key : rests[slot] == rest_of(sought.hash);
}

// Gives a key the word of its newest record. Returns its slot; kNone where there are too many keys.
__device__ std::uint32_t insert_word(const FingerprintIndex& index, const Stage& stage,
                                     std::uint32_t* rests, const Sought& sought,
                                     std::uint64_t word) {
  auto slot = static_cast<std::uint32_t>(sought.hash & index.mask);
  for (std::uint64_t passed = 0; passed <= index.mask; ++passed) {
    std::uint64_t held = index.word_of(slot);
    if (held == 0) {
      held = index.take(slot, 0, word);
      if (held == 0) {
        rests[slot] = rest_of(sought.hash);
        return slot;
      }
    }
    if (is_of_key(index, stage, rests, slot, held, sought)) {
      while (rank_at(stage, detail::kv_position_in(held)) < sought.rank) {
        const std::uint64_t before = index.take(slot, held, word);
        if (before == held) break;
        held = before;
      }
      return slot;
    }
    slot = static_cast<std::uint32_t>((slot + 1) & index.mask);
  }
  return kNone;
}

__global__ void insert_words(FingerprintIndex index, Stage stage, std::uint32_t* rests,
                             unsigned long long* sums, unsigned* lost) {
  const Read read = read_of_thread(stage);
  add_sums(stage, read, sums);
  if (!read.there || read.record.key == 0) return;
  const Sought sought{index.hash_of(read.record.key), read.record.key, read.rank};
  const std::uint32_t where = read.position | (read.tombstone ? kErasedBit : 0);
  const std::uint32_t slot =
      insert_word(index, stage, rests, sought, index.word_for(sought.hash, where));
  if (slot == kNone) {
    atomicAdd(lost, 1u);
    return;
  }
  index.slot_of[read.position] = slot;
}

// Puts the records of a stage in. `noted`: a word for each slot, zeroed before the first.
void insert_stage(Stream& stream, const Index& index, const Stage& stage, std::uint32_t* noted,
                  unsigned long long* sums, unsigned* lost) {
  const unsigned blocks = blocks_for(stage.count, kBlock);
  launch(stream, blocks, kBlock, insert_keys, index, stage, noted, sums, lost);
  launch(stream, blocks, kBlock, insert_values, index, stage, noted, lost);
}

void insert_stage(Stream& stream, const FingerprintIndex& index, const Stage& stage,
                  std::uint32_t* noted, unsigned long long* sums, unsigned* lost) {
  launch(stream, blocks_for(stage.count, kBlock), kBlock, insert_words, index, stage, noted, sums,
         lost);
}

// ---- What an index holds ----

__device__ void add_census(const Census& mine, Census* census) {
  static_assert(kBlock < 1u << 16, "four counts of a block are in one word");
  const unsigned long long counts =
      block_sum(mine.pairs | mine.tombstones << 16 | mine.slots << 32 | mine.wrong << 48);
  const unsigned long long digest = block_sum(mine.digest);
  if (threadIdx.x != 0 || counts == 0) return;
  atomicAdd(&census->pairs, counts & 0xffff);
  atomicAdd(&census->tombstones, counts >> 16 & 0xffff);
  atomicAdd(&census->slots, counts >> 32 & 0xffff);
  atomicAdd(&census->wrong, counts >> 48);
  atomicAdd(&census->digest, digest);
}

// Counts what the index has, by segment, too. `records`: null, or what the slots are compared with.
__global__ void count_slots(Index index, const Record* records, unsigned* live, unsigned* tombs,
                            Census* census) {
  const std::uint64_t slot = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Census mine{};
  if (slot <= index.mask + 1 && index.pairs[slot].key != 0) {
    const KvPair pair = index.pairs[slot];
    const std::uint32_t where = index.where[slot];
    const std::uint32_t position = where & ~kErasedBit;
    const bool erased = (where & kErasedBit) != 0;
    mine.slots = slot <= index.mask;
    if (position != 0 && position < index.positions) {
      mine.pairs = !erased;
      mine.tombstones = erased;
      if (!erased) mine.digest = pair_digest(pair.key, pair.value);
      atomicAdd(&live[position >> index.shift], 1u);
      if (erased) atomicAdd(&tombs[position >> index.shift], 1u);
    }
    const bool gone = position == 0 && erased && pair.value == kErased;
    if (records != nullptr && !gone) {
      const bool sound = position != 0 && position < index.positions;
      const Record record = sound ? records[position] : Record{0, 0};
      const std::uint64_t value = erased ? kErased : record.value;
      const bool same = record.key == pair.key && value == pair.value;
      const bool known = sound && index.slot_of[position] == slot;
      mine.wrong = !(same && known && find_place(index, pair.key).slot == slot);
    }
  }
  add_census(mine, census);
}

// The same of fingerprints, but for what the records alone say.
__global__ void count_words(FingerprintIndex index, unsigned* live, unsigned* tombs,
                            Census* census) {
  const std::uint64_t slot = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Census mine{};
  const std::uint64_t word = slot <= index.mask ? index.word_of(slot) : 0;
  if (__syncthreads_or(word != 0) == 0) return;
  mine.slots = word != 0;
  if (!index.is_free(word)) {
    const std::uint32_t position = detail::kv_position_in(word);
    const bool erased = (word & kErasedBit) != 0;
    mine.wrong = position == 0 || position >= index.positions || index.slot_of[position] != slot;
    if (mine.wrong == 0) {
      mine.pairs = !erased;
      mine.tombstones = erased;
      atomicAdd(&live[position >> index.shift], 1u);
      if (erased) atomicAdd(&tombs[position >> index.shift], 1u);
    }
  }
  add_census(mine, census);
}

// Adds the digest of all pairs, whose records it reads in the order of the log. `compares`: counts
// those that no search for their keys finds, too.
__global__ void read_live(FingerprintIndex index, bool compares, Census* census) {
  const std::uint64_t position = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Census mine{};
  Held held;
  if (position < index.positions) held = held_at(index, static_cast<std::uint32_t>(position));
  if (__syncthreads_or(held.slot != kNone) == 0) return;
  if (held.slot != kNone) {
    const Record record = index.records[position];
    if (!held.tombstone) mine.digest = pair_digest(record.key, record.value);
    mine.wrong = compares && find_place(index, record.key).slot != held.slot;
  }
  const unsigned long long digest = block_sum(mine.digest);
  const unsigned long long wrong = block_sum(mine.wrong);
  if (threadIdx.x != 0) return;
  if (digest != 0) atomicAdd(&census->digest, digest);
  if (wrong != 0) atomicAdd(&census->wrong, wrong);
}

__global__ void zero_checks(Medium medium, const std::uint32_t* positions, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  auto* const header = reinterpret_cast<RunHeader*>(medium.records + positions[i]);
  header->check = 0;
  medium.marks.mark(&header->check, sizeof(header->check));
  persist();
}

// The pieces in device memory, and the sums of what is read of them.
class Extents {
 public:
  Extents(Stream& stream, const Survey& survey)
      : extents_(survey.pieces.size()), sums_(survey.pieces.size()) {
    std::vector<Extent> extents;
    extents.reserve(survey.pieces.size());
    for (const Piece& piece : survey.pieces) {
      const RunHeader& header = piece.header;
      extents.push_back({piece.first, header.records,
                         piece.snapshot ? Extent::kBySnapshot : header.records - header.tombstones,
                         piece.rank});
    }
    const core::StreamEnd end(stream);
    copy_async(stream, extents_.data(), extents.data(), extents_.bytes());
    stream.synchronize();
  }
  const Extent* data() const { return extents_.data(); }
  unsigned long long* sums() const { return sums_.data(); }

  // The first piece whose records are not as its header says, in words; else nothing.
  std::string wrong(Stream& stream, const Survey& survey, std::uint32_t shift) const {
    std::vector<unsigned long long> sums(sums_.size());
    const core::StreamEnd end(stream);
    copy_async(stream, sums.data(), sums_.data(), sums_.bytes());
    stream.synchronize();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const Piece& piece = survey.pieces[i];
      if (sums[i] == piece.header.sum) continue;
      if (piece.snapshot) return concat("the snapshot of segment ", piece.first >> shift);
      return concat("run ", piece.header.number, " is damaged: its ", piece.header.records,
                    " records in segment ", piece.first >> shift, ", from record ",
                    piece.first & ((1u << shift) - 1), " on, are not those that its sum is of");
    }
    return {};
  }

 private:
  DeviceBuffer<Extent> extents_;
  DeviceBuffer<unsigned long long> sums_;
};

// Calls deal(stage) for all of the log that has pieces, in order, each part of it in device memory.
// What deal() queues on the stream is through before its memory is used again.
template <class Deal>
void for_each_stage(Stream& stream, const IndexBase& index, const Survey& survey,
                    const Extents& extents, const Record* records, const SnapshotWord* snapshots,
                    Deal&& deal) {
  const std::uint32_t segment = 1u << index.shift;
  const std::size_t words = snapshot_words(segment);
  DeviceBuffer<Record> memory[2];
  DeviceBuffer<SnapshotWord> bits[2];
  const std::uint32_t most = std::min(kStage, index.positions);
  for (auto& half : memory) half = DeviceBuffer<Record>(most);
  if (survey.snapshots != 0) {
    for (auto& half : bits) half = DeviceBuffer<SnapshotWord>(most / segment * words);
  }
  Stream copies;
  Event copied[2], dealt[2];
  const core::StreamEnd ends[] = {core::StreamEnd(copies), core::StreamEnd(stream)};
  bool used[2] = {false, false};
  unsigned turn = 0;
  std::size_t from = 0;
  for (std::uint32_t first = 0; first < index.positions; first += most, turn ^= 1) {
    const std::uint32_t end = std::min(index.positions, first + most);
    std::size_t to = from;
    while (to < survey.pieces.size() && survey.pieces[to].first < end) ++to;
    if (to == from) continue;
    // From the first segment that has anything to the last one.
    const std::uint32_t begin = survey.pieces[from].first / segment * segment;
    const std::uint32_t stop = survey.pieces[to - 1].first + survey.pieces[to - 1].header.records;
    const std::size_t bytes = (stop - begin) * sizeof(Record);
    if (std::exchange(used[turn], true)) dealt[turn].wait(copies);
    copy_async(copies, memory[turn].data(), records + begin, bytes);
    if (survey.snapshots != 0) {
      const std::size_t of_stage = (stop - begin + segment - 1) / segment * words;
      copy_async(copies, bits[turn].data(), snapshots + begin / segment * words,
                 of_stage * sizeof(SnapshotWord));
    }
    copied[turn].record(copies);
    copied[turn].wait(stream);
    deal(Stage{memory[turn].data(), begin, stop - begin, extents.data(),
               static_cast<std::uint32_t>(survey.pieces.size()), bits[turn].data(), index.shift});
    dealt[turn].record(stream);
    from = to;
  }
  stream.synchronize();
  copies.synchronize();
}

void launch_census(Stream& stream, const Index& index, const Record* records, unsigned* live,
                   unsigned* tombs, Census* census) {
  launch(stream, blocks_for(index.mask + 2, kBlock), kBlock, count_slots, index, records, live,
         tombs, census);
}

void launch_census(Stream& stream, const FingerprintIndex& index, const Record* records,
                   unsigned* live, unsigned* tombs, Census* census) {
  launch(stream, blocks_for(index.mask + 1, kBlock), kBlock, count_words, index, live, tombs,
         census);
  launch(stream, blocks_for(index.positions, kBlock), kBlock, read_live, index, records != nullptr,
         census);
}

// `records`: null, or what the index is compared with.
template <class Form>
Census take_census(Stream& stream, const Form& index, const Record* records, unsigned* live,
                   unsigned* tombs) {
  const DeviceBuffer<Census> census(1);
  Census result{};
  const core::StreamEnd end(stream);
  launch_census(stream, index, records, live, tombs, census.data());
  copy_async(stream, &result, census.data(), sizeof(result));
  stream.synchronize();
  return result;
}

}  // namespace

template <class Form>
Loaded load_index(Stream& stream, const Form& index, const Survey& survey, const Record* records,
                  const SnapshotWord* snapshots) {
  const DeviceBuffer<std::uint32_t> noted(index.mask + 2);
  const DeviceBuffer<unsigned> lost(1);
  const Extents extents(stream, survey);
  for_each_stage(stream, index, survey, extents, records, snapshots, [&](const Stage& stage) {
    insert_stage(stream, index, stage, noted.data(), extents.sums(), lost.data());
  });
  Loaded loaded;
  loaded.wrong = extents.wrong(stream, survey, index.shift);
  if (!loaded.wrong.empty()) return loaded;
  unsigned without = 0;
  read_back(stream, &without, lost.data(), sizeof(without));
  if (without != 0) {
    loaded.wrong =
        concat("its runs have ", without, " records of keys that are more than it can have");
    return loaded;
  }
  loaded.census = take_census(stream, index, nullptr, index.live, index.tombs);
  if (loaded.census.digest != survey.last.digest) {
    loaded.wrong = concat("its runs do not make the pairs that run ", survey.run,
                          ", the last that was committed, has left: the header of a run is damaged",
                          survey.suspect);
  }
  return loaded;
}

template <class Form>
std::string audit_log(Stream& stream, const Form& index, const Survey& survey,
                      const Record* records, std::uint32_t segments) {
  const Extents extents(stream, survey);
  for_each_stage(stream, index, survey, extents, records, nullptr, [&](const Stage& stage) {
    launch(stream, blocks_for(stage.count, kBlock), kBlock, add_sums_of, stage, extents.sums());
  });
  std::string wrong = extents.wrong(stream, survey, index.shift);
  if (!wrong.empty()) return wrong;
  const DeviceBuffer<unsigned> live(segments), tombs(segments);
  const Census census = take_census(stream, index, records, live.data(), tombs.data());
  if (census.wrong != 0) {
    return concat(census.wrong, " pairs of the index are not as their records");
  }
  if (census.digest != survey.last.digest) return "the pairs are not those that the last run left";
  std::vector<unsigned> counted(segments), noted(segments);
  const core::StreamEnd end(stream);
  for (const auto& [counts, notes] :
       {std::pair(live.data(), index.live), std::pair(tombs.data(), index.tombs)}) {
    copy_async(stream, counted.data(), counts, segments * sizeof(unsigned));
    copy_async(stream, noted.data(), notes, segments * sizeof(unsigned));
    stream.synchronize();
    for (std::uint32_t i = 0; i < segments; ++i) {
      if (counted[i] == noted[i]) continue;
      return concat("segment ", i, " counts ", noted[i], " live records and has ", counted[i]);
    }
  }
  return {};
}

template Loaded load_index(Stream&, const Index&, const Survey&, const Record*,
                           const SnapshotWord*);
template Loaded load_index(Stream&, const FingerprintIndex&, const Survey&, const Record*,
                           const SnapshotWord*);
template std::string audit_log(Stream&, const Index&, const Survey&, const Record*, std::uint32_t);
template std::string audit_log(Stream&, const FingerprintIndex&, const Survey&, const Record*,
                               std::uint32_t);

void drop_headers(Stream& stream, const Medium& medium,
                  const std::vector<std::uint32_t>& positions) {
  if (positions.empty()) return;
  const DeviceBuffer<std::uint32_t> list(positions.size());
  const core::StreamEnd end(stream);
  copy_async(stream, list.data(), positions.data(), list.bytes());
  launch(stream, blocks_for(positions.size(), kBlock), kBlock, zero_checks, medium, list.data(),
         static_cast<std::uint32_t>(positions.size()));
  stream.synchronize();
}

}  // namespace holdfast::kv::log

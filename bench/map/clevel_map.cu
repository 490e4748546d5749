// Clevel hashing on the medium: levels of buckets whose slots point to pairs.
#include <algorithm>
#include <atomic>
#include <bit>
#include <optional>
#include <stdexcept>

#include "device_parts.hpp"
#include "medium.hpp"

namespace maps {
namespace {

constexpr unsigned kSlots = 8;  // of a bucket
constexpr double kLoad = 0.75;  // that it begins with for the keys that it is made for
constexpr unsigned kTagShift = 48;
constexpr Word kRecordMask = (Word{1} << kTagShift) - 1;

struct alignas(64) Bucket {
  static constexpr const char* kTypeName = "map_rival_bucket";
  // A tag of the key, and below it the number of its record + 1; 0: empty.
  Word slot[kSlots];
};

template <unsigned Words>
struct alignas(16) Pair {
  static constexpr const char* kTypeName = Words == 1 ? "map_rival_pair_8" : "map_rival_pair_32";
  Key<Words> key;
  alignas(16) std::byte value[kValueBytes];
};

// Which levels there are, in one word, so that it changes at once. While `moving`, the pairs of the
// lowest level go to the others.
struct Context {
  static constexpr const char* kTypeName = "map_rival_levels";
  std::uint16_t bottom = 0, top = 1;
  std::uint32_t moving = 0;
};
static_assert(sizeof(Context) == 8);

// Level l has base << l buckets, behind those of the levels below it.
template <unsigned Words>
struct ClevelTable {
  Word* slots = nullptr;
  Pair<Words>* pairs = nullptr;
  std::uint32_t base = 0;
  unsigned bottom = 0, top = 1;
  PoolRef pool;
  std::uint32_t* full = nullptr;  // pinned: inserts that found no place

  __host__ __device__ static std::uint64_t first_bucket(std::uint32_t base, unsigned level) {
    return std::uint64_t{base} * ((1u << level) - 1);
  }
};

// One operation, carried out by one thread.
template <unsigned Words>
struct ClevelThread {
  ClevelTable<Words> table;
  Key<Words> key;
  std::uint64_t hash;

  struct Copy {
    Word* slot;
    Word word;
  };

  __device__ Word* bucket(unsigned level, unsigned which) const {
    const std::uint64_t by = which == 0 ? hash : scrambled(hash ^ 0xbb67ae8584caa73bull);
    return table.slots + (ClevelTable<Words>::first_bucket(table.base, level) +
                          place_of(by, table.base << level)) *
                             kSlots;
  }
  __device__ Word word_for(std::uint32_t record) const {
    return hash << kTagShift | (Word{record} + 1);
  }
  __device__ Pair<Words>& pair_of(Word word) const { return table.pairs[(word & kRecordMask) - 1]; }

  // Calls visit(slot, word) for the candidates of levels `lowest` to the top, until it says true.
  template <class Visit>
  __device__ bool scan(unsigned lowest, const Visit& visit) const {
    for (unsigned level = lowest; level <= table.top; ++level) {
      Word* const first = bucket(level, 0);
      for (unsigned which = 0; which < 2; ++which) {
        Word* const at = which == 0 ? first : bucket(level, 1);
        if (which == 1 && at == first) break;
        ulonglong2 words[kSlots / 2];
#pragma unroll
        for (unsigned i = 0; i < kSlots / 2; ++i) {
          words[i] = __ldcv(reinterpret_cast<const ulonglong2*>(at) + i);
        }
#pragma unroll
        for (unsigned i = 0; i < kSlots / 2; ++i) {
          if (visit(at + 2 * i, words[i].x) || visit(at + 2 * i + 1, words[i].y)) return true;
        }
      }
    }
    return false;
  }

  __device__ bool is_copy(Word word) const {
    if (word == 0 || word >> kTagShift != (hash & 0xffff)) return false;
    __threadfence();  // what it points to was there before it
    const auto* const words = reinterpret_cast<const std::uint64_t*>(&pair_of(word).key);
    bool same = true;
    for (unsigned w = 0; w < Words; ++w) same &= load_fresh(words + w) == key.word[w];
    return same;
  }

  // From the bottom up, as pairs move.
  __device__ bool find(unsigned lowest, Copy& copy) const {
    return scan(lowest, [&](Word* slot, Word word) {
      if (!is_copy(word)) return false;
      copy = {slot, word};
      return true;
    });
  }

  // In the less loaded bucket of the highest level that has one. Null: there is none.
  __device__ Word* empty_slot(unsigned lowest) const {
    for (unsigned level = table.top + 1; level-- > lowest;) {
      Word* best = nullptr;
      unsigned most = 0;
      for (unsigned which = 0; which < 2; ++which) {
        Word* const at = bucket(level, which);
        Word* first = nullptr;
        unsigned count = 0;
        for (unsigned i = kSlots; i-- > 0;) {
          if (load_fresh(at + i) != 0) continue;
          first = at + i;
          ++count;
        }
        if (count > most) {
          most = count;
          best = first;
        }
      }
      if (best != nullptr) return best;
    }
    return nullptr;
  }

  __device__ static bool swap(Word* slot, Word before, Word after) {
    if (atomicCAS_system(slot, before, after) != before) return false;
    holdfast::persist();
    return true;
  }
  __device__ void give(Word word) const {
    table.pool.give(static_cast<std::uint32_t>((word & kRecordMask) - 1));
  }

  // A pair that nobody sees yet.
  __device__ bool make_pair(const Chunk* value, std::uint32_t& record) const {
    record = table.pool.take();
    if (record == kNoSlot) return false;
    Pair<Words>& pair = table.pairs[record];
    pair.key = key;
    auto* const to = reinterpret_cast<Chunk*>(pair.value);
    for (unsigned i = 0; i < kChunks; ++i) to[i] = value[i];
    holdfast::persist();
    return true;
  }
  __device__ void load_value(Word word, Chunk* to) const {
    const auto* const from = reinterpret_cast<const ulonglong2*>(pair_of(word).value);
    for (unsigned i = 0; i < kChunks; ++i) {
      const ulonglong2 chunk = __ldcv(from + i);
      to[i] = {chunk.x, chunk.y};
    }
  }

  // Of several copies the first in the order of the scan stays. Says whether `mine` went.
  __device__ bool remove_other_copies(Word mine) const {
    bool gone = false;
    for (bool again = true; again;) {
      again = false;
      bool seen = false;
      scan(table.bottom, [&](Word* slot, Word word) {
        if (!is_copy(word)) return false;
        if (seen) {
          again = true;
          if (swap(slot, word, 0)) {
            gone |= word == mine;
            give(word);
          }
        }
        seen = true;
        return false;
      });
    }
    return gone;
  }

  __device__ Outcome insert(const Chunk* value) const {
    std::uint32_t record = kNoSlot;
    for (;;) {
      Copy copy;
      if (find(table.bottom, copy)) {
        if (record != kNoSlot) table.pool.give(record);
        return Outcome::present;
      }
      if (record == kNoSlot && !make_pair(value, record)) return Outcome::failed;
      Word* const slot = empty_slot(table.bottom);
      if (slot == nullptr) {
        table.pool.give(record);
        atomicAdd_system(table.full, 1u);
        return Outcome::failed;
      }
      const Word mine = word_for(record);
      if (!swap(slot, 0, mine)) continue;
      return remove_other_copies(mine) ? Outcome::present : Outcome::absent;
    }
  }

  __device__ Outcome update(const Chunk* value, Chunk* found) const {
    std::uint32_t record = kNoSlot;
    Copy copy;
    while (find(table.bottom, copy)) {
      if (record == kNoSlot && !make_pair(value, record)) return Outcome::failed;
      if (found != nullptr) load_value(copy.word, found);
      if (!swap(copy.slot, copy.word, word_for(record))) continue;
      give(copy.word);
      return Outcome::present;
    }
    if (record != kNoSlot) table.pool.give(record);
    return Outcome::absent;
  }

  __device__ Outcome erase() const {
    Outcome outcome = Outcome::absent;
    Copy copy;
    while (find(table.bottom, copy)) {
      if (!swap(copy.slot, copy.word, 0)) continue;
      give(copy.word);
      outcome = Outcome::present;
    }
    return outcome;
  }

  __device__ Outcome carry_out(const Batch& batch, std::uint32_t i) const {
    const Chunk* const value = chunks_of(batch.values, i);
    Chunk* const found = chunks_of(batch.found, i);
    switch (batch.ops[i]) {
      case Op::insert:
        return insert(value);
      case Op::update:
        return update(value, nullptr);
      case Op::read_modify_write:
        return update(value, found);
      case Op::erase:
        return erase();
      case Op::find:
        break;
    }
    Copy copy;
    if (!find(table.bottom, copy)) return Outcome::absent;
    load_value(copy.word, found);
    return Outcome::present;
  }
};

// `again`: those alone that have failed.
template <unsigned Words>
__global__ void carry_out_batch(ClevelTable<Words> table, Batch batch, const std::uint32_t* order,
                                bool again) {
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= batch.count) return;
  const std::uint32_t i = order != nullptr ? order[thread] : thread;
  if (again && batch.outcomes[i] != Outcome::failed) return;
  const Key<Words> key = load_key<Words>(batch.keys, i);
  batch.outcomes[i] = ClevelThread<Words>{table, key, key.hash()}.carry_out(batch, i);
}

// A thread for each slot of the lowest level: its pair goes to the others. What a crash has left in
// both goes from here.
template <unsigned Words>
__global__ void move_up(ClevelTable<Words> table) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (thread >= (std::uint64_t{table.base} << table.bottom) * kSlots) return;
  Word* const slot =
      table.slots + ClevelTable<Words>::first_bucket(table.base, table.bottom) * kSlots + thread;
  const Word word = *slot;
  if (word == 0) return;
  const Key<Words> key = table.pairs[(word & kRecordMask) - 1].key;
  const ClevelThread<Words> mover{table, key, key.hash()};
  for (;;) {
    typename ClevelThread<Words>::Copy copy;
    if (mover.find(table.bottom + 1, copy)) break;
    Word* const to = mover.empty_slot(table.bottom + 1);
    if (to == nullptr) {
      atomicAdd_system(table.full, 1u);
      return;
    }
    if (mover.swap(to, 0, word)) break;
  }
  mover.swap(slot, word, 0);
}

// A thread for each slot of the levels: records that are in use; of several copies of a key, which
// a crash has left, all but the first are taken out.
template <unsigned Words>
__global__ void survey_levels(ClevelTable<Words> table, std::uint32_t records, std::uint8_t* used,
                              std::uint32_t* bad) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t first = ClevelTable<Words>::first_bucket(table.base, table.bottom) * kSlots;
  const std::uint64_t end = ClevelTable<Words>::first_bucket(table.base, table.top + 1) * kSlots;
  if (first + thread >= end) return;
  Word* const slot = table.slots + first + thread;
  const Word word = load_fresh(slot);
  if (word == 0) return;
  if ((word & kRecordMask) == 0 || (word & kRecordMask) > records) {
    atomicAdd(bad, 1u);
    return;
  }
  const Key<Words> key = table.pairs[(word & kRecordMask) - 1].key;
  const ClevelThread<Words> mine{table, key, key.hash()};
  typename ClevelThread<Words>::Copy copy;
  if (!mine.find(table.bottom, copy)) {
    atomicAdd(bad, 1u);  // in a bucket that is none of its key's
  } else if (copy.slot == slot) {
    used[(word & kRecordMask) - 1] = 1;
  } else {
    mine.swap(slot, word, 0);
  }
}

std::uint32_t base_for(std::uint64_t keys) {
  // Two levels: three times the base.
  return static_cast<std::uint32_t>(static_cast<double>(keys) / (kSlots * 3 * kLoad)) + 1;
}

template <unsigned Words>
class ClevelGpm : public Contestant {
  using Table = ClevelTable<Words>;

 public:
  explicit ClevelGpm(const Setting& setting)
      : setting_(setting),
        base_(base_for(setting.first_keys != 0 ? setting.first_keys : setting.keys)),
        records_(static_cast<std::uint32_t>(setting.keys + setting.batch)),
        pool_(records_, setting.batch),
        full_(1) {
    // As many as the keys may take, and one more.
    while ((std::uint64_t{base_} << levels_) < 2 * base_for(setting.keys)) ++levels_;
    levels_ = std::max(levels_ + 1, 2u) + 1;
    promise_ = {
        "clevel-gpm",
        setting.ordered ? "ordered by address" : "as printed",
        "process",
        "operations",
        "each operation of a batch is there once run() has returned, and before that whole or "
        "not at all",
        0};
    if (setting.ordered) order_ = BatchOrder(setting.batch);
    open();
  }
  ~ClevelGpm() override { let_go(); }

  const Promise& promise() const override { return promise_; }
  std::uint64_t places() const override {
    const Context context = *context_;
    return (Table::first_bucket(base_, context.top + 1u) -
            Table::first_bucket(base_, context.bottom)) *
           kSlots;
  }

  Phases run(const Batch& batch) override {
    check(batch, setting_);
    Table table = this->table(*context_);
    table.pool = pool_.open(stream_);
    times_[0].record(stream_);
    const std::uint32_t* order = nullptr;
    if (setting_.ordered) {
      const std::uint32_t buckets = base_ << table.top;
      order = order_.by<Words>(stream_, batch, BucketOf{buckets}, bits_of(buckets));
    }
    times_[1].record(stream_);
    for (bool again = false;; again = true) {
      full_[0] = 0;
      holdfast::launch(stream_, holdfast::blocks_for(batch.count, kBlock), kBlock,
                       carry_out_batch<Words>, table, batch, order, again);
      times_[2].record(stream_);
      if (full() == 0 || !grow()) break;
      table = this->table(*context_);
      table.pool = pool_.open(stream_);
    }
    Phases phases;
    phases.order = holdfast::Event::elapsed_ms(times_[0], times_[1]) / 1e3;
    phases.operations = holdfast::Event::elapsed_ms(times_[1], times_[2]) / 1e3;
    return phases;
  }

  void crash_and_reopen() override {
    let_go();
    open();
  }

 private:
  void let_go() {
    if (!region_) return;
    stream_.synchronize();
    region_->abandon();
    region_.reset();
  }

  void open() {
    bool fresh = false;
    const std::uint64_t buckets = Table::first_bucket(base_, levels_);
    region_ = open_or_create(
        setting_.path,
        buckets * sizeof(Bucket) + std::uint64_t{records_} * sizeof(Pair<Words>) + sizeof(Context),
        fresh);
    slots_ = array_in<Bucket>(*region_, fresh, "buckets", buckets)->slot;
    pairs_ = array_in<Pair<Words>>(*region_, fresh, "pairs", records_);
    context_ = array_in<Context>(*region_, fresh, "levels", 1);
    if (fresh) set_context({});
    const Context context = *context_;
    if (context.bottom >= context.top || context.top >= levels_) {
      throw std::runtime_error("clevel-gpm: there are no such levels");
    }
    take_stock();
    if (context.moving != 0) move_bottom();
  }

  void take_stock() {
    const holdfast::DeviceBuffer<std::uint8_t> used(records_);
    const holdfast::DeviceBuffer<std::uint32_t> bad(1);
    holdfast::launch(stream_, holdfast::blocks_for(places(), kBlock), kBlock, survey_levels<Words>,
                     table(*context_), records_, used.data(), bad.data());
    pool_.rebuild(stream_, used.data());
    std::uint32_t found = 0;
    holdfast::copy_async(stream_, &found, bad.data(), sizeof(found));
    stream_.synchronize();
    if (found != 0) throw std::runtime_error("clevel-gpm: a slot points to what is not its pair");
  }

  // No kernel runs. False: there is no room for another level.
  bool grow() {
    const Context context = *context_;
    if (context.top + 1u >= levels_) return false;
    set_context({context.bottom, static_cast<std::uint16_t>(context.top + 1), 1});
    move_bottom();
    return true;
  }
  void move_bottom() {
    const Context context = *context_;
    full_[0] = 0;
    holdfast::launch(
        stream_, holdfast::blocks_for((std::uint64_t{base_} << context.bottom) * kSlots, kBlock),
        kBlock, move_up<Words>, table(context));
    if (full() != 0) throw std::runtime_error("clevel-gpm: a pair finds no place in a new level");
    set_context({static_cast<std::uint16_t>(context.bottom + 1), context.top, 0});
  }
  void set_context(Context context) {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(context_))
        .store(std::bit_cast<std::uint64_t>(context));
    workload::flush_lines(context_, sizeof(Context));
  }

  // Of the kernel that was launched behind full_[0] = 0.
  std::uint32_t full() {
    stream_.synchronize();
    return full_[0];
  }
  Table table(Context context) const {
    return {slots_, pairs_, base_, context.bottom, context.top, {}, full_.data()};
  }

  Setting setting_;
  Promise promise_;
  std::uint32_t base_, records_;
  unsigned levels_ = 0;  // that there is room for
  holdfast::Stream stream_;
  holdfast::Event times_[3];
  SlotPool pool_;
  BatchOrder order_;
  holdfast::PinnedBuffer<std::uint32_t> full_;  // next to never written, so read without a copy
  std::optional<holdfast::Region> region_;
  Word* slots_ = nullptr;
  Pair<Words>* pairs_ = nullptr;
  Context* context_ = nullptr;
};

}  // namespace

std::unique_ptr<Contestant> make_clevel_gpm(const Setting& setting) {
  check(setting);
  if (setting.key_bytes == 8) return std::make_unique<ClevelGpm<1>>(setting);
  return std::make_unique<ClevelGpm<4>>(setting);
}

}  // namespace maps

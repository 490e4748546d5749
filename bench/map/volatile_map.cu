// A table in device memory: open addressing over buckets of eight slots, a group of eight lanes for
// each operation.
#include <algorithm>

#include "device_parts.hpp"

namespace maps {
namespace {

constexpr unsigned kWays = 8;
constexpr double kLoad = 0.6;

// What a slot is, in a word: from the top a tag of its key, how often its value has changed, the
// batch that changed it last, its state. Who inserts a key locks a slot, and who changes a value
// says so in it; who reads a value compares the word before and behind. An update that meets
// another one has been overwritten by it: nobody waits for a key that many update.
//
// As in SlabHash-GPM a slot that this batch has emptied is not taken by it, so that two inserts of
// one key meet in one slot.
enum : Word { kEmpty = 0, kInserting = 1, kUpdating = 2, kGone = 3, kLive = 4, kStates = 7 };
constexpr unsigned kBatchShift = 3, kBatchBits = 13;
constexpr unsigned kVersionShift = kBatchShift + kBatchBits, kVersionBits = 24;
constexpr unsigned kTagShift = kVersionShift + kVersionBits;

struct VolatileTable {
  Word* slots = nullptr;
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::uint32_t buckets = 0;
  Word batch = 0;  // its number, in its place in a word
};

// One operation, carried out by a group. All of its lanes call, with the same arguments.
template <unsigned Words>
struct VolatileGroup {
  VolatileTable table;
  Lanes<kWays> lanes;

  static constexpr Word kBatchMask = ((Word{1} << kBatchBits) - 1) << kBatchShift;
  static constexpr Word kVersionMask = ((Word{1} << kVersionBits) - 1) << kVersionShift;

  struct Place {
    std::uint64_t slot;
    Word word;
  };
  enum class Found { there, changing, free, nowhere };

  __device__ static Word tag_of(std::uint64_t hash) { return hash << kTagShift; }
  __device__ static bool has_tag(Word word, std::uint64_t hash) {
    return word >> kTagShift == tag_of(hash) >> kTagShift;
  }
  __device__ bool is_new(Word word) const { return (word & kBatchMask) == table.batch; }
  // With another state, and changed by this batch.
  __device__ Word changed(Word word, Word state) const {
    const Word version = (word + (Word{1} << kVersionShift)) & kVersionMask;
    return word >> kTagShift << kTagShift | version | table.batch | state;
  }

  // The key's slot, whose value may be changing if the caller does not wait for that; or the first
  // that the key may take; or that it is nowhere.
  __device__ Found find(const Key<Words>& key, std::uint64_t hash, bool wait, Place& at) const {
    bool free = false;
    std::uint32_t bucket = place_of(hash, table.buckets);
    for (std::uint32_t tried = 0; tried < table.buckets;) {
      const std::uint64_t slot = std::uint64_t{bucket} * kWays + lanes.lane;
      const Word word = load_fresh(table.slots + slot);
      const Word state = word & kStates;
      const bool tagged = has_tag(word, hash);
      if (lanes.where(tagged && state == kInserting) != 0) {  // it may become this key
        __nanosleep(50);
        continue;
      }
      const bool may_be = tagged && (state == kLive || state == kUpdating);
      if (lanes.where(may_be) != 0) {
        __threadfence();
        const bool same = may_be && fresh_key(slot) == key;
        if (const unsigned ways = lanes.where(same)) {
          at = place_in(bucket, ways, word);
          if ((at.word & kStates) == kLive) return Found::there;
          if (!wait) return Found::changing;
          __nanosleep(50);
          continue;
        }
      }
      const unsigned empty = lanes.where(state == kEmpty);
      const unsigned takeable = lanes.where(state == kEmpty || (state == kGone && !is_new(word)));
      if (!free && takeable != 0) {
        at = place_in(bucket, takeable, word);
        free = true;
      }
      if (empty != 0) break;
      bucket = bucket + 1 == table.buckets ? 0 : bucket + 1;
      ++tried;
    }
    return free ? Found::free : Found::nowhere;
  }
  __device__ Place place_in(std::uint32_t bucket, unsigned ways, Word word) const {
    const unsigned way = __ffs(static_cast<int>(ways)) - 1;
    return {std::uint64_t{bucket} * kWays + way, lanes.from(way, word)};
  }
  __device__ Key<Words> fresh_key(std::uint64_t slot) const {
    const auto* const words = reinterpret_cast<const std::uint64_t*>(table.keys) + slot * Words;
    Key<Words> key;
    for (unsigned w = 0; w < Words; ++w) key.word[w] = load_fresh(words + w);
    return key;
  }

  // By one lane for all. The word becomes another, if it is what it was.
  __device__ bool swap(const Place& at, Word after) const {
    bool done = false;
    if (lanes.lane == 0) done = atomicCAS(table.slots + at.slot, at.word, after) == at.word;
    return lanes.from(0, static_cast<int>(done)) != 0;
  }
  // What follows is not seen before the lock is.
  __device__ bool lock(const Place& at, Word locked) const {
    const bool mine = swap(at, locked);
    __threadfence();
    return mine;
  }
  __device__ void unlock(const Place& at, Word after) const {
    __threadfence();
    lanes.meet();
    if (lanes.lane == 0) atomicExch(table.slots + at.slot, after);
    lanes.meet();
  }

  // False: it has changed meanwhile.
  __device__ bool load_value(const Place& at, Chunk* to) const {
    const Chunk* const from = chunks_of(static_cast<const std::byte*>(table.values), at.slot);
    const volatile std::uint64_t* const words = &from[lanes.lane].low;
    to[lanes.lane] = {words[0], words[1]};
    __threadfence();
    lanes.meet();
    return lanes.from(0, load_fresh(table.slots + at.slot)) == at.word;
  }
  __device__ void store_value(const Place& at, const Chunk* from) const {
    lanes.copy_value(chunks_of(table.values, at.slot), from);
  }

  __device__ Outcome insert(const Key<Words>& key, std::uint64_t hash, const Chunk* from) const {
    for (;;) {
      Place at;
      const Found found = find(key, hash, false, at);
      if (found == Found::there || found == Found::changing) return Outcome::present;
      if (found == Found::nowhere) return Outcome::failed;
      const Word tagged = tag_of(hash) | (at.word & kVersionMask);
      if (!lock(at, changed(tagged, kInserting))) continue;
      store_value(at, from);
      if (lanes.lane == 0) reinterpret_cast<Key<Words>*>(table.keys)[at.slot] = key;
      unlock(at, changed(tagged, kLive));
      return Outcome::absent;
    }
  }
  // Where another update, or an erase, comes between, it comes behind this one.
  __device__ Outcome overwrite(const Place& at, const Chunk* from) const {
    if (lock(at, changed(at.word, kUpdating))) {
      store_value(at, from);
      unlock(at, changed(at.word, kLive));
    }
    return Outcome::present;
  }
  __device__ Outcome update(const Key<Words>& key, std::uint64_t hash, const Chunk* from) const {
    Place at;
    const Found found = find(key, hash, false, at);
    if (found == Found::there) return overwrite(at, from);
    return found == Found::changing ? Outcome::present : Outcome::absent;
  }
  __device__ Outcome read_and_update(const Key<Words>& key, std::uint64_t hash, const Chunk* from,
                                     Chunk* to) const {
    Place at;
    while (find(key, hash, true, at) == Found::there) {
      if (load_value(at, to)) return overwrite(at, from);
    }
    return Outcome::absent;
  }
  __device__ Outcome erase(const Key<Words>& key, std::uint64_t hash) const {
    Place at;
    while (find(key, hash, true, at) == Found::there) {
      if (swap(at, changed(at.word, kGone))) return Outcome::present;
    }
    return Outcome::absent;
  }

  __device__ Outcome carry_out(Op op, const Key<Words>& key, const Batch& batch, std::uint32_t i,
                               std::uint32_t /*thread*/) const {
    const std::uint64_t hash = key.hash();
    const Chunk* const value = chunks_of(batch.values, i);
    Chunk* const found = chunks_of(batch.found, i);
    switch (op) {
      case Op::insert:
        return insert(key, hash, value);
      case Op::update:
        return update(key, hash, value);
      case Op::read_modify_write:
        return read_and_update(key, hash, value, found);
      case Op::erase:
        return erase(key, hash);
      case Op::find:
        break;
    }
    Place at;
    while (find(key, hash, true, at) == Found::there) {
      if (load_value(at, found)) return Outcome::present;
    }
    return Outcome::absent;
  }
};

template <unsigned Words>
__global__ void carry_out_batch(VolatileTable table, Batch batch, const std::uint32_t* order) {
  carry_out_in_turn<Words>(VolatileGroup<Words>{table, {}}, batch, order);
}

template <unsigned Words>
class VolatileMap : public Contestant {
 public:
  explicit VolatileMap(const Setting& setting)
      : setting_(setting),
        buckets_(static_cast<std::uint32_t>(static_cast<double>(setting.keys) / (kWays * kLoad)) +
                 1) {
    promise_ = {"volatile", setting.ordered ? "ordered by address" : "as given",
                "none",     "nothing",
                "none",     0};
    if (setting.ordered) order_ = BatchOrder(setting.batch);
    make();
  }

  const Promise& promise() const override { return promise_; }
  std::uint64_t places() const override { return std::uint64_t{buckets_} * kWays; }

  Phases run(const Batch& batch) override {
    check(batch, setting_);
    const Word number = ++batch_ & ((Word{1} << kBatchBits) - 1);
    const VolatileTable table{slots_.data(), keys_.data(), values_.data(), buckets_,
                              number << kBatchShift};
    times_[0].record(stream_);
    const std::uint32_t* order = nullptr;
    if (setting_.ordered) {
      order = order_.by<Words>(stream_, batch, BucketOf{buckets_}, bits_of(buckets_));
    }
    times_[1].record(stream_);
    holdfast::launch(stream_, holdfast::blocks_for(batch.count, kBlock), kBlock,
                     carry_out_batch<Words>, table, batch, order);
    times_[2].record(stream_);
    stream_.synchronize();
    Phases phases;
    phases.order = holdfast::Event::elapsed_ms(times_[0], times_[1]) / 1e3;
    phases.operations = holdfast::Event::elapsed_ms(times_[1], times_[2]) / 1e3;
    return phases;
  }

  void crash_and_reopen() override {
    stream_.synchronize();
    make();
  }

 private:
  void make() {
    slots_ = holdfast::DeviceBuffer<Word>(places());
    keys_ = holdfast::DeviceBuffer<std::byte>(places() * sizeof(Key<Words>));
    values_ = holdfast::DeviceBuffer<std::byte>(places() * kValueBytes);
  }

  Setting setting_;
  Promise promise_;
  std::uint32_t buckets_;
  holdfast::Stream stream_;
  holdfast::Event times_[3];
  BatchOrder order_;
  holdfast::DeviceBuffer<Word> slots_;
  holdfast::DeviceBuffer<std::byte> keys_, values_;
  Word batch_ = 0;
};

}  // namespace

std::unique_ptr<Contestant> make_volatile_map(const Setting& setting) {
  check(setting);
  if (setting.key_bytes == 8) return std::make_unique<VolatileMap<1>>(setting);
  return std::make_unique<VolatileMap<4>>(setting);
}

}  // namespace maps

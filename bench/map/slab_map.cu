// SlabHash on the medium, with an undo log.
#include <algorithm>
#include <stdexcept>

#include "bench.hpp"
#include "device_parts.hpp"
#include "holdfast/transaction.hpp"
#include "holdfast/undo.hpp"
#include "holdfast/undo_log.hpp"
#include "medium.hpp"

namespace maps {
namespace {

constexpr unsigned kLineWords = 16;

struct alignas(128) Slab {
  static constexpr const char* kTypeName = "map_rival_slab";
  Word word[kLineWords];
};

// A slab: the keys of its slots, their pointers, and the number of the next slab of the chain (0:
// none). A pointer has the number of the batch that changed it last in its upper half, and below it
// what the slot is: a value's number + kFirstValue, or a state.
//
// A slot that an operation of this batch has emptied is not taken by another of it: so the first
// slot of a chain that may be taken only moves backwards, and two inserts of one key meet in it.
// And what the batch has changed once is logged: nobody logs it again, so that undoing needs no
// order.
template <unsigned Words>
struct SlabShape {
  static constexpr unsigned kSlots = Words == 1 ? 7 : 3;
  static constexpr unsigned kPointers = kSlots * Words;
  static constexpr unsigned kNext = kLineWords - 1;
  static_assert(kPointers + kSlots <= kNext);
  static constexpr double kLoad = 0.75;  // keys for each slot of the slabs that chains begin with
};
constexpr std::uint32_t kEmpty = 0, kClaimed = 1, kGone = 2, kFirstValue = 3;

// A batch is taken back as a whole: a word of a slab as it was before.
struct WordBefore {
  std::uint64_t place;
  std::uint64_t word;
};
struct PutWordBack {
  using Entry = WordBefore;
  Word* words = nullptr;
  std::uint64_t count = 0;
  __device__ bool operator()(const WordBefore& before) const {
    if (before.place >= count) return false;
    words[before.place] = before.word;
    return true;
  }
};

struct SlabTable {
  Word* words = nullptr;
  std::byte* values = nullptr;
  std::uint32_t buckets = 0;  // slabs that chains begin with
  std::uint32_t slabs = 0;
  std::uint32_t* used_slabs = nullptr;  // in device memory
  PoolRef pool;
  std::uint32_t batch = 0;  // its number
};

// One operation, carried out by a warp. All lanes call, with the same arguments.
template <unsigned Words, bool Log>
struct SlabWarp {
  using Shape = SlabShape<Words>;
  SlabTable table;
  holdfast::CoalescedLogRef log;
  Lanes<kWarp> lanes;

  struct Place {
    std::uint32_t slab, slot;
    Word pointer;
  };
  struct Sight {  // bits: of slots
    unsigned same, claimed, free;
    std::uint32_t next;
    Word pointer;  // of the slot of this lane's number
  };
  enum class Swap : int { done, gone, not_logged };

  __device__ static std::uint32_t state_of(Word pointer) {
    return static_cast<std::uint32_t>(pointer);
  }
  __device__ bool is_new(Word pointer) const { return pointer >> 32 == table.batch; }
  __device__ Word pointer_to(std::uint32_t state) const { return Word{table.batch} << 32 | state; }
  __device__ Word* line(std::uint32_t slab) const {
    return table.words + std::uint64_t{slab} * kLineWords;
  }
  __device__ Word* pointer_at(const Place& at) const {
    return line(at.slab) + Shape::kPointers + at.slot;
  }
  __device__ std::uint32_t first_slab(const Key<Words>& key) const {
    return place_of(key.hash(), table.buckets);
  }

  __device__ unsigned equal_words(Word word, const Key<Words>& key) const {
    Word wanted = key.word[0];
    for (unsigned w = 1; w < Words; ++w) wanted = lanes.lane % Words == w ? key.word[w] : wanted;
    return lanes.where(lanes.lane < Shape::kPointers && word == wanted);
  }

  __device__ Sight look(std::uint32_t slab, const Key<Words>& key) const {
    const Word* const words = line(slab);
    Word word = lanes.lane < kLineWords ? load_fresh(words + lanes.lane) : 0;
    Sight sight;
    sight.next = static_cast<std::uint32_t>(lanes.from(Shape::kNext, word));
    sight.pointer = lanes.from((Shape::kPointers + lanes.lane) % kWarp, word);
    const bool slot = lanes.lane < Shape::kSlots;
    const std::uint32_t state = state_of(sight.pointer);
    const bool live = slot && state >= kFirstValue;
    // The key of a pointer that this batch has set was there before it, and may not have been when
    // it was read beside it.
    if (lanes.where(live && is_new(sight.pointer)) != 0) {
      __threadfence();
      word = lanes.lane < Shape::kPointers ? load_fresh(words + lanes.lane) : 0;
    }
    constexpr unsigned kAll = (1u << Words) - 1;
    const unsigned equal = equal_words(word, key);
    sight.same = lanes.where(live && (equal >> (lanes.lane * Words) & kAll) == kAll);
    sight.claimed = lanes.where(slot && state == kClaimed);
    sight.free =
        lanes.where(slot && (state == kEmpty || (state == kGone && !is_new(sight.pointer))));
    return sight;
  }

  __device__ Place place_in(std::uint32_t slab, unsigned slots, const Sight& sight) const {
    const unsigned slot = __ffs(static_cast<int>(slots)) - 1;
    return {slab, slot, lanes.from(slot, sight.pointer)};
  }

  __device__ bool find(const Key<Words>& key, Place& at) const {
    for (std::uint32_t slab = first_slab(key);;) {
      const Sight sight = look(slab, key);
      if (sight.same != 0) {
        at = place_in(slab, sight.same, sight);
        return true;
      }
      if (sight.next == 0) return false;
      slab = sight.next;
    }
  }

  __device__ std::uint32_t take_value() const {
    return lanes.from(0, lanes.lane == 0 ? table.pool.take() : 0);
  }
  __device__ void give_value(std::uint32_t value) const {
    if (lanes.lane == 0 && value != kNoSlot) table.pool.give(value);
  }
  // Not yet persisted.
  __device__ void store_value(std::uint32_t value, const Chunk* from) const {
    lanes.copy_value(chunks_of(table.values, value), from);
  }
  __device__ void load_value(Chunk* to, Word pointer) const {
    lanes.copy_value(to, chunks_of(static_cast<const std::byte*>(table.values),
                                   state_of(pointer) - kFirstValue));
  }

  // One lane.
  __device__ bool log_pointer(const Place& at, Word before, std::uint32_t log_slot) const {
    const std::uint64_t place = static_cast<std::uint64_t>(pointer_at(at) - table.words);
    return log.insert(WordBefore{place, before}, log_slot) == holdfast::LogStatus::ok;
  }

  // One lane. The pointer of a live slot becomes another, whatever value it points to by then.
  __device__ Swap swap_pointer(const Place& at, std::uint32_t state, std::uint32_t log_slot) const {
    bool logged = !Log;
    for (Word before = at.pointer; state_of(before) >= kFirstValue;) {
      if (!logged && !is_new(before)) {
        if (!log_pointer(at, before, log_slot)) return Swap::not_logged;
        logged = true;
      }
      const Word seen = atomicCAS_system(pointer_at(at), before, pointer_to(state));
      if (seen == before) {
        holdfast::persist();
        table.pool.give(state_of(before) - kFirstValue);
        return Swap::done;
      }
      before = seen;
    }
    return Swap::gone;
  }
  __device__ Swap swap_together(const Place& at, std::uint32_t state,
                                std::uint32_t log_slot) const {
    Swap swap = Swap::done;
    if (lanes.lane == 0) swap = swap_pointer(at, state, log_slot);
    return static_cast<Swap>(lanes.from(0, static_cast<int>(swap)));
  }

  // Another slab behind this one. False: there is none left. Of two that do so at once the slab of
  // one is left aside until the map is opened again.
  __device__ bool append(std::uint32_t slab) const {
    bool done = true;
    if (lanes.lane == 0) {
      Word* const next = line(slab) + Shape::kNext;
      const std::uint32_t added = atomicAdd(table.used_slabs, 1u);
      done = added < table.slabs;
      if (done) {
        atomicCAS_system(next, Word{0}, Word{added});
        holdfast::persist();
      }
    }
    return lanes.from(0, static_cast<int>(done)) != 0;
  }

  __device__ bool claim(const Place& at) const {
    bool mine = false;
    if (lanes.lane == 0) {
      mine = atomicCAS_system(pointer_at(at), at.pointer, pointer_to(kClaimed)) == at.pointer;
    }
    return lanes.from(0, static_cast<int>(mine)) != 0;
  }

  // A claimed slot. What is in it counts once its pointer says so; a claim that a crash has left is
  // an empty slot.
  __device__ bool fill(const Place& at, const Key<Words>& key, std::uint32_t value,
                       const Chunk* from, std::uint32_t log_slot) const {
    store_value(value, from);
    if (lanes.lane == 0) {
      for (unsigned w = 0; w < Words; ++w) line(at.slab)[at.slot * Words + w] = key.word[w];
    }
    holdfast::persist();
    lanes.meet();
    bool logged = true;
    if (lanes.lane == 0) {
      logged = !Log || log_pointer(at, kEmpty, log_slot);
      atomicExch_system(pointer_at(at), pointer_to(logged ? value + kFirstValue : kEmpty));
      holdfast::persist();
    }
    return lanes.from(0, static_cast<int>(logged)) != 0;
  }

  __device__ Outcome insert(const Key<Words>& key, const Chunk* from,
                            std::uint32_t log_slot) const {
    const std::uint32_t value = take_value();
    for (;;) {
      Place free{kNoSlot, 0, 0};
      std::uint32_t slab = first_slab(key);
      for (;;) {
        const Sight sight = look(slab, key);
        if (sight.same != 0) {
          give_value(value);
          return Outcome::present;
        }
        if (sight.claimed != 0) {  // it may become this key
          __nanosleep(100);
          continue;
        }
        if (free.slab == kNoSlot && sight.free != 0) free = place_in(slab, sight.free, sight);
        if (sight.next == 0) break;
        slab = sight.next;
      }
      if (value == kNoSlot) return Outcome::failed;
      if (free.slab == kNoSlot) {
        if (append(slab)) continue;
        give_value(value);
        return Outcome::failed;
      }
      if (!claim(free)) continue;
      if (fill(free, key, value, from, log_slot)) return Outcome::absent;
      give_value(value);
      return Outcome::failed;
    }
  }

  // With `found`: what was there is read first.
  __device__ Outcome update(const Key<Words>& key, const Chunk* from, Chunk* found,
                            std::uint32_t log_slot) const {
    Place at;
    if (!find(key, at)) return Outcome::absent;
    const std::uint32_t value = take_value();
    if (value == kNoSlot) return Outcome::failed;
    store_value(value, from);
    holdfast::persist();
    lanes.meet();
    do {
      if (found != nullptr) load_value(found, at.pointer);
      const Swap swap = swap_together(at, value + kFirstValue, log_slot);
      if (swap == Swap::done) return Outcome::present;
      if (swap == Swap::not_logged) {
        give_value(value);
        return Outcome::failed;
      }
    } while (find(key, at));
    give_value(value);
    return Outcome::absent;
  }

  __device__ Outcome erase(const Key<Words>& key, std::uint32_t log_slot) const {
    Place at;
    while (find(key, at)) {
      const Swap swap = swap_together(at, kGone, log_slot);
      if (swap != Swap::gone) return swap == Swap::done ? Outcome::present : Outcome::failed;
    }
    return Outcome::absent;
  }

  __device__ Outcome carry_out(Op op, const Key<Words>& key, const Batch& batch, std::uint32_t i,
                               std::uint32_t log_slot) const {
    const Chunk* const value = chunks_of(batch.values, i);
    Chunk* const found = chunks_of(batch.found, i);
    switch (op) {
      case Op::insert:
        return insert(key, value, log_slot);
      case Op::update:
        return update(key, value, nullptr, log_slot);
      case Op::read_modify_write:
        return update(key, value, found, log_slot);
      case Op::erase:
        return erase(key, log_slot);
      case Op::find:
        break;
    }
    Place at;
    if (!find(key, at)) return Outcome::absent;
    load_value(found, at.pointer);
    return Outcome::present;
  }
};

template <unsigned Words, bool Log>
__global__ void carry_out_batch(SlabTable table, Batch batch, const std::uint32_t* order,
                                holdfast::CoalescedLogRef log) {
  carry_out_in_turn<Words>(SlabWarp<Words, Log>{table, log, {}}, batch, order);
}

// What a crash has left, slot by slot: values that are in use, the slabs that chains reach, the
// latest batch; and slots that no one has are made empty.
struct Survey {
  std::uint32_t slabs, batch, bad;
};
template <unsigned Words>
__global__ void survey_slabs(SlabTable table, std::uint32_t values, std::uint8_t* used,
                             Survey* survey) {
  using Shape = SlabShape<Words>;
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t slab = thread / kLineWords;
  const unsigned word = thread % kLineWords;
  if (slab >= table.slabs) return;
  Word* const at = table.words + slab * kLineWords + word;
  if (word == Shape::kNext) {
    if (*at >= table.slabs) atomicAdd(&survey->bad, 1u);
    if (*at != 0) atomicMax(&survey->slabs, static_cast<std::uint32_t>(*at) + 1);
  }
  if (word < Shape::kPointers || word >= Shape::kPointers + Shape::kSlots || *at == 0) return;
  atomicMax(&survey->batch, static_cast<std::uint32_t>(*at >> 32));
  const auto state = static_cast<std::uint32_t>(*at);
  if (state < kFirstValue) {
    *at = 0;
    holdfast::persist();
  } else if (state - kFirstValue < values) {
    used[state - kFirstValue] = 1;
  } else {
    atomicAdd(&survey->bad, 1u);
  }
}

std::uint32_t buckets_for(const Setting& setting, unsigned slots, double load) {
  return static_cast<std::uint32_t>(static_cast<double>(setting.keys) / (slots * load)) + 1;
}

template <unsigned Words>
class SlabHashGpm : public Contestant {
  using Shape = SlabShape<Words>;

 public:
  explicit SlabHashGpm(const Setting& setting)
      : setting_(setting),
        buckets_(buckets_for(setting, Shape::kSlots, Shape::kLoad)),
        slabs_(buckets_ + buckets_ / 2 + 64),
        values_(static_cast<std::uint32_t>(setting.keys + setting.batch)),
        log_shape_(holdfast::LogShape::coalesced(setting.batch, sizeof(WordBefore))),
        pool_(values_, setting.batch),
        used_slabs_(1) {
    promise_ = {"slabhash-gpm",
                setting.ordered ? "ordered by address" : "as printed",
                setting.log ? "process" : "none",
                setting.log ? "batches" : "nothing",
                setting.log ? "a batch is there once run() has returned, and of another nothing"
                            : "none: to see what the log takes",
                0};
    if (setting.ordered) order_ = BatchOrder(setting.batch);
    open();
  }

  ~SlabHashGpm() override { let_go(); }

  const Promise& promise() const override { return promise_; }
  std::uint64_t places() const override {
    std::uint32_t used = 0;
    holdfast::copy_async(stream_, &used, used_slabs_.data(), sizeof(used));
    stream_.synchronize();
    return std::uint64_t{std::min(used, slabs_)} * Shape::kSlots;
  }

  Phases run(const Batch& batch) override {
    check(batch, setting_);
    SlabTable table = this->table();
    table.pool = pool_.open(stream_);
    table.batch = ++batch_;
    const bool logged = setting_.log && batch.changes;
    times_[0].record(stream_);
    const std::uint32_t* order = nullptr;
    if (setting_.ordered) {
      order = order_.by<Words>(stream_, batch, BucketOf{buckets_}, bits_of(buckets_));
    }
    times_[1].record(stream_);
    const auto kernel = logged ? carry_out_batch<Words, true> : carry_out_batch<Words, false>;
    if (logged) open_->transaction.begin(stream_);
    holdfast::launch(stream_, holdfast::blocks_for(batch.count, kBlock), kBlock, kernel, table,
                     batch, order, logged ? open_->log.coalesced() : holdfast::CoalescedLogRef{});
    times_[2].record(stream_);
    if (logged) {
      open_->transaction.commit(stream_);
      open_->transaction.finish(stream_, undo());
    }
    times_[3].record(stream_);
    stream_.synchronize();
    Phases phases;
    phases.order = between(0);
    phases.operations = between(1);
    phases.commit = between(2);
    return phases;
  }

  void crash_and_reopen() override {
    let_go();
    open();
  }

 private:
  struct Open {
    holdfast::Region region;
    holdfast::Transaction transaction;
    holdfast::UndoLog log;
    Word* words;
    std::byte* values;
  };

  // A region that is closed would keep none of its objects.
  void let_go() {
    if (!open_) return;
    open_->region.abandon();
    open_.reset();
  }

  void open() {
    bool fresh = false;
    holdfast::Region region = open_or_create(setting_.path,
                                             std::uint64_t{slabs_} * sizeof(Slab) +
                                                 std::uint64_t{values_} * sizeof(ValueBlock) +
                                                 holdfast::UndoLog::object_bytes(log_shape_),
                                             fresh);
    auto* const slabs = array_in<Slab>(region, fresh, "slabs", slabs_);
    auto* const values = array_in<ValueBlock>(region, fresh, "values", values_);
    auto transaction = fresh ? holdfast::Transaction::create(region, "tx")
                             : holdfast::Transaction::open(region, "tx");
    auto log = fresh ? transaction.create_log(region, "log", log_shape_) : transaction.log("log");
    open_.emplace(Open{std::move(region), std::move(transaction), std::move(log), slabs->word,
                       values->bytes});
    if (!fresh) open_->transaction.recover(stream_, undo());
    take_stock();
  }

  void take_stock() {
    const holdfast::DeviceBuffer<std::uint8_t> used(values_);
    const holdfast::DeviceBuffer<Survey> survey(1);
    holdfast::launch(stream_, holdfast::blocks_for(std::uint64_t{slabs_} * kLineWords, kBlock),
                     kBlock, survey_slabs<Words>, table(), values_, used.data(), survey.data());
    Survey seen;
    holdfast::copy_async(stream_, &seen, survey.data(), sizeof(seen));
    pool_.rebuild(stream_, used.data());
    if (seen.bad != 0) throw std::runtime_error("slabhash-gpm: a slab points outside of the map");
    batch_ = seen.batch;
    const std::uint32_t slabs = std::max(seen.slabs, buckets_);
    holdfast::copy_async(stream_, used_slabs_.data(), &slabs, sizeof(slabs));
    stream_.synchronize();
  }

  SlabTable table() const {
    return {open_->words, open_->values, buckets_, slabs_, used_slabs_.data(), {}, 0};
  }
  auto undo() const {
    return holdfast::undo(open_->log,
                          PutWordBack{open_->words, std::uint64_t{slabs_} * kLineWords});
  }
  double between(unsigned i) const {
    return holdfast::Event::elapsed_ms(times_[i], times_[i + 1]) / 1e3;
  }

  Setting setting_;
  Promise promise_;
  std::uint32_t buckets_, slabs_, values_;
  holdfast::LogShape log_shape_;
  mutable holdfast::Stream stream_;
  holdfast::Event times_[4];
  SlotPool pool_;
  BatchOrder order_;
  holdfast::DeviceBuffer<std::uint32_t> used_slabs_;
  std::optional<Open> open_;
  std::uint32_t batch_ = 0;
};

}  // namespace

std::unique_ptr<Contestant> make_slabhash_gpm(const Setting& setting) {
  check(setting);
  if (setting.key_bytes == 8) return std::make_unique<SlabHashGpm<1>>(setting);
  return std::make_unique<SlabHashGpm<4>>(setting);
}

}  // namespace maps

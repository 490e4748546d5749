// What is where: every checkpoint of a history in every tier, and what to move next.
//
// Source: Score (HPDC '23), sections 4.1 to 4.3. A catalog decides and remembers; it has no thread,
// no clock, no stream and no bytes. Who owns it begins a transfer, moves the bytes, and says how it
// ended. So one catalog can be copied and every interleaving of a small history explored
// (catalog_model_test), and a random one repeated from its seed
// (catalog_random_test).
//
// Tiers are numbered from the fastest, 0. Cache tiers come first, each a buffer of fixed capacity;
// storage tiers behind them hold checkpoints for good. A *lane* is what moves bytes between two
// tiers in one direction: flush lane t out of cache t, fetch lane t into cache t.
//
// Invariants, held by valid():
// - each copy's state is one of the life cycle (life_cycle.hpp), and in a cache tier it has room in
//   the allocation table if and only if it is not absent;
// - a copy is `..._alone` exactly if no slower tier has the checkpoint whole;
// - a copy with readers keeps its room and its bytes;
// - a transfer's ends are in the states that it needs.
// Promises: what arrived and was not discarded stays whole in some tier, unless damage takes the
// last copy; whoever is told to wait can go on once transfers under way and lanes that have work
// are done, whatever the hints; a caller is told `full` rather than to wait for itself.
//
// Thread safety: none. Source of the eviction: eviction.hpp.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "history/allocation_table.hpp"
#include "history/eviction.hpp"
#include "history/life_cycle.hpp"

namespace holdfast::history {

struct TierSpec {
  std::uint64_t capacity = 0;     // bytes of a cache's buffer; of storage its budget, 0: no limit
  std::uint64_t alignment = 256;  // of offsets in the buffer
  bool storage = false;
  // Of a cache: it is there for who has lost the tiers beside it, and not for speed. What it has is
  // evicted in the order in which it came, so that the newest stay, whatever is hinted or consumed,
  // and once storage has it, if there is some; nothing is fetched into it, and what is promoted out
  // of it counts as before.
  bool keeps_newest = false;
};

inline constexpr int kProgram = -1;  // as an end of a transfer: the program's arrays

struct Transfer {
  // refill: into storage that has lost it, or never had it, from slower storage.
  enum class Kind : std::uint8_t { save, flush, fetch, restore, refill };
  std::uint64_t id = 0;
  Kind kind = Kind::save;
  Step step = 0;
  int from = kProgram, to = kProgram;
  std::uint64_t from_offset = 0, to_offset = 0;  // in the buffers of cache tiers
  std::uint64_t bytes = 0;
  bool keep = false;  // restore: the program will want it again
  bool operator==(const Transfer&) const = default;
};

enum class Outcome : std::uint8_t {
  done,
  failed,   // nothing is said of the source
  damaged,  // the source is not what was written
};

struct Answer {
  enum class Verdict : std::uint8_t {
    go,         // `transfer` was begun
    wait,       // ask again once anything has changed
    full,       // no tier can take it, and waiting would not help
    not_found,  // no such checkpoint
    exists,     // the number is taken
    lost,       // it was there, and every copy of it turned out to be damaged
  };
  Verdict verdict = Verdict::wait;
  Transfer transfer{};
  // wait: for room in this tier, or for a copy that comes into it; negative: until a checkpoint
  // that had the number is gone.
  int tier = kProgram;
};

class Catalog {
 public:
  struct Options {
    // A checkpoint that was restored, and not kept, is discarded (section 2, condition 5).
    bool discard_consumed = false;
    // How often a flush, or a refill, is tried before its checkpoint is left where it is.
    int flush_attempts = 3;
    // What arrives in storage may let others go, by a rule of retention.
    bool retains = false;
    // One flush in so many is of what came first; the others are of what is evicted first.
    int oldest_flush_every = 8;
  };
  // REQUIRES: 1 to kMaxTiers tiers, caches before storage.
  Catalog(const std::vector<TierSpec>& tiers, Options options,
          const LifeCycleTable& table = life_cycle());
  // Further ones are passed over, until restores have taken some away.
  static constexpr std::size_t kMostHints = std::size_t{1} << 20;
  static constexpr int kMaxTiers = 5;

  // --- What the program asks for -----------------------------------------------------------------
  // Room for a new checkpoint in the fastest tier that has some, or will have without the help of
  // whoever asks. Where hints have filled a tier with what only the program can consume, the next
  // tier is taken: the transfer then goes past the caches between.
  Answer begin_save(Step step, std::uint64_t bytes, bool keep);
  // From the fastest tier that has it whole.
  Answer begin_restore(Step step, bool keep);
  // A caller waits: lanes must not wait for what only a caller can consume.
  void caller_waits() { ++waiting_callers_; }
  void caller_goes_on() { --waiting_callers_; }
  int waiting_callers() const { return waiting_callers_; }
  // Between these the program waits until everything is flushed. So it saves nothing, and a flush
  // takes no room in a cache from what it will restore, if storage can be had at once.
  void drain_begins() { ++drains_; }
  void drain_ends() { --drains_; }

  // The program will restore `step` behind those that it has named before; it need not be there
  // yet.
  void hint(Step step);
  void start_prefetch() { prefetching_ = true; }
  // Gone at once, or when the transfers that use it have ended. False: no such checkpoint.
  bool discard(Step step);

  // --- What lanes ask for ------------------------------------------------------------------------
  // REQUIRES: the transfer that the lane got before has ended; of a flush lane, all but one of
  // those.
  std::optional<Transfer> next_flush(int tier);
  std::optional<Transfer> next_fetch(int tier);
  // False: next_flush(), or next_fetch() of any tier, would find nothing.
  bool may_flush(int tier) const { return !tier_at(tier).flush_queue.empty(); }
  bool may_fetch(int tier) const {
    if (is_storage(tier)) return may_refill(tier);
    return prefetching_ && next_to_look_at(tier) != hints_.end();
  }
  // The lane does nothing more.
  void lane_died(Transfer::Kind kind, int tier);
  // A cache takes nothing from here on. What is there, or is on its way, stays and goes on.
  void take_no_more(int tier) { tier_at(tier).takes = false; }

  // Ends a transfer. REQUIRES: it was begun and has not ended.
  void finish(const Transfer& transfer, Outcome outcome);
  // Nobody needs what it brings any longer: it may be ended as `failed`, early.
  bool is_cancelled(const Transfer& transfer) const;

  // Flushes that were given up are tried again. Returns their checkpoints.
  std::vector<Step> retry_flushes();
  // A copy that nobody reads turned out not to be what was written. What is read, its reader tells.
  void found_damaged(Step step, int tier);

  // A checkpoint that a tier had when the history was opened, in a cache at `offset`. False, and
  // nothing changes, if the cache has no room there. REQUIRES: it is of the size that another
  // tier's is, and was not adopted in this tier.
  bool adopt(Step step, std::uint64_t bytes, int tier, std::uint64_t offset = 0);

  // --- What is known -----------------------------------------------------------------------------
  int tiers() const { return static_cast<int>(tiers_.size()); }
  bool contains(Step step) const;  // and not being discarded
  bool knows(Step step) const { return checkpoints_.contains(step); }
  bool is_hinted(Step step) const { return places_.contains(step); }
  const std::map<std::uint64_t, Step>& hints() const { return hints_; }  // by place, ascending
  bool is_prefetching() const { return prefetching_; }
  // Of checkpoints; null: of all.
  using Among = std::function<bool(Step)>;
  // Flushes are under way, or will come to be without the program's help.
  bool flush_pending(const Among& among = nullptr) const;
  // Storage will get, without the program's help, what slower storage has.
  bool refill_pending() const;
  // What goes is still used by transfers.
  bool discard_pending(const Among& among = nullptr) const;
  // The checkpoint is on its way to this tier, or may come to be without the program's help.
  bool will_reach(Step step, int tier) const;
  // Every copy of what was there turned out to be damaged.
  bool is_lost(Step step) const;
  std::uint64_t bytes_of(Step step) const;
  State state(Step step, int tier) const;
  std::vector<Step> steps() const;
  std::vector<Step> known_steps() const;  // with those on their way, in or out
  // The flush of this checkpoint out of this tier was given up.
  bool flush_given_up(Step step, int tier) const;
  bool refill_given_up(Step step) const;
  // Checkpoints that the program will restore next and that the fastest tier has ready, in a row.
  std::uint64_t prefetch_distance() const;
  const AllocationTable& space(int tier) const {
    return tiers_[static_cast<std::size_t>(tier)].space;
  }
  bool is_cache(int tier) const { return !is_storage(tier); }
  // Bytes that are taken of a tier.
  std::uint64_t used(int tier) const {
    return is_storage(tier) ? tier_at(tier).used : tier_at(tier).space.used();
  }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  // Room that was taken from checkpoints since the last forget_evicted(): {tier, step}.
  const std::vector<std::pair<int, Step>>& evicted() const { return evicted_; }
  std::vector<std::pair<int, Step>> take_evicted() { return std::exchange(evicted_, {}); }
  void forget_evicted() { evicted_.clear(); }
  // Whether the invariants hold; `why` is what does not.
  bool valid(std::string* why = nullptr) const;
  // Equal for catalogs that will behave alike.
  std::string fingerprint() const;

  // For predict_evictable (section 4.2): seconds to flush a byte out of a tier, and between two
  // restores of the program.
  void set_costs(int tier, double flush_seconds_per_byte) {
    tiers_[static_cast<std::size_t>(tier)].flush_seconds_per_byte = flush_seconds_per_byte;
  }
  void set_restore_interval(double seconds) { restore_interval_ = seconds; }

 private:
  struct Copy {
    State state = State::absent;
    int readers = 0;
    int failed_flushes = 0;
    std::uint64_t offset = 0;      // of its room, in a cache
    std::uint64_t flush_mark = 0;  // of its tier's `queued`, behind it
    std::uint64_t arrival = 0;     // by the tier's count
  };
  // A copy that waits for its flush.
  struct Unflushed {
    Step step;
    std::uint64_t bytes;
    std::uint64_t mark;  // its flush_mark: these ascend
    std::uint64_t note;
  };
  struct Checkpoint {
    std::uint64_t bytes = 0;
    bool keep = false;
    bool arrived = false;  // was whole once
    bool doomed = false;   // goes when its transfers have ended
    int failed_refills = 0;
    Copy copies[kMaxTiers];
  };
  // Memory that is used again, and no part of what is copied.
  struct Scratch {
    Scratch() = default;
    Scratch(const Scratch&) {}
    Scratch(Scratch&&) = default;
    Scratch& operator=(const Scratch&) { return *this; }
    Scratch& operator=(Scratch&&) = default;
    ~Scratch() = default;
    std::vector<Score> scores;
  };
  struct Tier {
    TierSpec spec;
    // A fragment's note says what a decision asks of most: note_of().
    AllocationTable space{1, 1};
    mutable Scratch scratch;             // decisions of a tier ask those of slower ones
    std::vector<Unflushed> flush_queue;  // in the order of arrival
    int flushes_to_oldest = 0;           // until one is of the oldest
    bool flush_alive = true, fetch_alive = true;
    bool takes = true;  // a cache: what there is room for
    double flush_seconds_per_byte = 1e-10;
    std::uint64_t queued = 0, flushed = 0;  // bytes that ever were in the queue, and left it
    std::uint64_t used = 0;                 // storage: bytes
    std::set<Step> refills;                 // storage: what slower storage has, and this has not
    std::uint64_t least_refill = 0;         // of these, in bytes, at most
    std::uint64_t arrivals = 0;
    // Of a cache: the hints whose checkpoints next_fetch() has to look at, by place: these, and all
    // from `unlooked_from` on. Of the others it would say that they are here, or come.
    std::set<std::uint64_t> unlooked;
    std::uint64_t unlooked_from = 0;
  };
  // Who wants room: a caller cannot wait for what only a caller consumes.
  enum class Asker : std::uint8_t {
    caller,
    lane,
    last_resort,  // a caller whom nothing else has room for: it takes what hints keep
  };
  // What a note says of a copy: in its two last bits one of these; before them whether the fastest
  // cache has the checkpoint, too (kAbove), and whether a slower one has (kBelow); before those its
  // place in the restore order, all ones if it has none. A restore that a faster cache is ready for
  // is not this copy's.
  enum class Noted : std::uint8_t {
    busy,       // it cannot be evicted now
    evictable,  // it was not consumed
    consumed,
  };
  static constexpr int kNoteBits = 4;
  static constexpr std::uint64_t kAbove = 4, kBelow = 8;
  static constexpr std::uint64_t kNoPlace = ~std::uint64_t{0} >> kNoteBits;
  // What notes say of the restore order as it is. Without branches, since a decision asks it of
  // each fragment.
  struct Distances {
    std::uint64_t head, front_end;  // places
    // It is not wanted, or not for its own sake: the fastest cache will have it until its restore.
    bool is_unwanted(std::uint64_t note) const {
      const std::uint64_t place = note >> kNoteBits;
      const bool above = detail::both((note & kAbove) != 0, place < front_end);
      return detail::either(place == kNoPlace, above);
    }
    // How many places behind the head.
    std::uint64_t of(std::uint64_t note) const {
      return ((note >> kNoteBits) - head) | detail::mask(is_unwanted(note));
    }
  };
  Distances distances() const { return {hints_.empty() ? 0 : hints_.begin()->first, front_.end}; }
  // For so many of the next restores a prefetch takes room from what only storage has besides.
  static constexpr std::uint64_t kExchanged = 2;

  Tier& tier_at(int tier) { return tiers_[static_cast<std::size_t>(tier)]; }
  const Tier& tier_at(int tier) const { return tiers_[static_cast<std::size_t>(tier)]; }
  bool is_storage(int tier) const { return tier_at(tier).spec.storage; }
  bool has_whole_below(const Checkpoint& checkpoint, int tier) const;
  int fastest_whole(const Checkpoint& checkpoint) const;  // tiers(): none
  bool in_transfer(Step step) const;
  bool is_flushing(Step step, int tier) const;

  std::uint64_t note_of(Step step, const Checkpoint& checkpoint, int tier) const;
  // REQUIRES: what a note says of this checkpoint has changed, or may have.
  void set_notes(Step step, const Checkpoint& checkpoint);
  void apply(Copy& copy, Input input);
  void drop(Step step, Checkpoint& checkpoint, int tier, Input input);
  void settle(Step step);
  void drop_copies_at_rest(Step step);

  bool storage_takes(int tier, std::uint64_t bytes) const;
  // catalog_refill.cpp
  bool storage_may_take(int tier, std::uint64_t bytes) const;
  bool storage_gets() const;
  void note_refills(Step step, const Checkpoint& checkpoint);
  void forget_refills(Step step);
  bool may_refill(int tier) const;
  std::optional<Transfer> next_refill(int tier);
  std::optional<Answer> save_into(int tier, Step step, std::uint64_t bytes, bool keep, Asker asker);
  bool takes_what_is_hinted(int tier, const Window& window) const;
  bool storage_below_takes(int tier, std::uint64_t bytes) const;
  bool leads_to_newest(int tier) const;
  bool flushes_go_on(int tier) const;
  bool drains(int tier, std::uint64_t bytes, Asker asker) const;
  // What drains() has said so far of one tier: what is smaller drains where something larger does.
  struct Drains {
    std::uint64_t most = 0, least_not = ~std::uint64_t{0};  // bytes
  };
  bool drains(int tier, std::uint64_t bytes, Asker asker, Drains& known) const;
  // If it can be evicted at once; else one that waits for ever.
  static Score score_now(const Fragment& fragment, const Distances& distances,
                         std::uint64_t distance);
  static bool stays(const Fragment& fragment, std::uint64_t own, std::uint64_t distance);
  Score score(int tier, const Fragment& fragment, Asker asker, std::uint64_t distance,
              Drains& known) const;
  std::optional<Window> window(int tier, std::uint64_t bytes, Asker asker,
                               std::uint64_t distance) const;
  std::optional<Window> oldest_window(int tier, std::uint64_t bytes, Asker asker) const;
  bool has_window(int tier, std::uint64_t bytes, Asker asker) const;
  std::uint64_t take(int tier, const Window& window, Step step, std::uint64_t bytes);
  std::optional<Transfer> begin_flush(Step step, int tier);
  bool keeps_front(int tier) const;
  int waits_for_flush_of(const Checkpoint& checkpoint, int tier) const;
  Transfer begin_into(Transfer::Kind kind, Step step, int from, int to, std::uint64_t offset);

  std::uint64_t distance_of(std::uint64_t note) const { return distances().of(note); }
  // catalog_front.cpp
  Checkpoint& learn(Step step, std::uint64_t bytes);
  void forget(Step step);
  bool is_in_front(std::uint64_t note) const { return note >> kNoteBits < front_.end; }
  void count_in_front(Step step, bool counts);
  void enter_front(Step step, bool enters);
  bool front_fits() const;
  void fit_front();
  const char* wrong_front() const;
  std::vector<Unflushed>::iterator find_unflushed(int tier, const Copy& copy, Step step);
  std::vector<Unflushed>::iterator first_to_flush(int tier);
  void consume_below(Step step, Checkpoint& checkpoint);
  bool needs_no_fetch(const Checkpoint& checkpoint, int tier) const;
  std::map<std::uint64_t, Step>::const_iterator next_to_look_at(int tier) const;
  void look_again_at(Step step);
  void drop_hint(Step step);
  void drop_missing_hints_before(Step step);
  void unwant_unless_hinted(Step step);

  std::vector<Tier> tiers_;
  Options options_;
  const LifeCycleTable* table_;
  std::map<Step, Checkpoint> checkpoints_;
  std::vector<Transfer> transfers_;
  std::vector<std::pair<int, Step>> evicted_;
  std::map<std::uint64_t, Step> hints_;               // by place in the restore order
  std::map<Step, std::deque<std::uint64_t>> places_;  // ascending
  std::uint64_t next_place_ = 0;
  // The front of the restore order: those that the fastest cache will have until they are restored.
  // The longest there is within the limit, where a checkpoint still to be saved counts as the mean
  // of all.
  struct Front {
    std::uint64_t limit = 0;  // bytes
    std::uint64_t end = 0;    // the place behind its last
    std::uint64_t count = 0, known = 0, known_bytes = 0;
    static constexpr std::uint64_t kMost = 4096;  // it is followed in any call
  };
  Front front_;
  std::uint64_t known_bytes_ = 0;  // of all checkpoints
  std::uint64_t next_transfer_ = 0;
  int waiting_callers_ = 0, drains_ = 0;
  bool prefetching_ = false;
  double restore_interval_ = 0.01;
};

}  // namespace holdfast::history

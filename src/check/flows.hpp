// Who told whom what while recovery and verification ran: through persistent words, and through
// memory that a crash does not leave behind.
//
// An actor is a thread of recovery's kernels, the host in recovery, or an item of the verification.
// What an actor does may depend on all that it has learnt so far, so that is what its next store
// passes on, and what a reader of that place learns. docs/model.md, "Groups", says what follows.
#pragma once

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

namespace holdfast::check {

// What can be read: a persistent half word (its number, below 2^32), or a place of other memory.
using Item = std::uint64_t;

inline constexpr unsigned kPlaceShift = 60;
inline constexpr Item kDevicePlace = Item{1} << kPlaceShift;   // | allocation << 40 | 4-byte word
inline constexpr Item kSharedPlace = Item{2} << kPlaceShift;   // | a hash of block and offset
inline constexpr Item kMeetingPlace = Item{3} << kPlaceShift;  // | a hash: collectives with values
inline constexpr Item kHostPlace = Item{4} << kPlaceShift;     // all memory of the host
inline bool is_word(Item item) { return item >> 32 == 0; }

class Flows {
 public:
  struct Learnt {
    std::uint64_t actor = 0;
    Item item = 0;
  };
  // Whoever reads `to` learns `from`, too: an item or, where that would be too many, all that an
  // actor has ever learnt.
  struct Told {
    Item to = 0;
    std::uint64_t from = 0;
    bool from_actor = false;
  };

  explicit Flows(std::size_t half_words) : last_learner_(half_words), last_told_(half_words) {}

  // Where a thread of a kernel stands: accesses in different phases of a block are ordered.
  struct Where {
    std::uint32_t launch = 0;  // 0: no thread of a kernel
    std::uint32_t phase = 0;   // barriers of the block that the thread has passed
    std::uint64_t block = 0;
  };

  // Begins a run, in which nobody has learnt anything yet. What was noted stays until it is taken.
  void begin() { ++run_; }
  // Who learns and tells from here on.
  void stand(const Where& where) { where_ = where; }
  // The actor reads the item, or writes a persistent word, whose crash states then concern it.
  void learn(std::uint64_t actor, Item item);
  // The same for all device places in [first, last].
  void learn_range(std::uint64_t actor, Item first, Item last);
  // The actor writes the item.
  void tell(std::uint64_t actor, Item item);

  // Whether two threads of one kernel ever read and wrote, or wrote, an item that somebody reads,
  // and no barrier kept them apart. Then who comes first is the schedule's choice, which depends on
  // what all others do: no actor's words are all that its outcome depends on.
  bool races() const { return races_; }

  // What was noted since the last time: each pair at least once over all runs.
  template <class Take>
  void take(Take&& into) {
    into(learnt_, told_);
    learnt_.clear();
    told_.clear();
  }

 private:
  // Beyond this many items the actor as a whole stands for them.
  static constexpr std::size_t kMostKnown = 32;

  struct Actor {
    std::uint64_t id = 0;
    std::uint32_t run = 0;
    bool is_whole = false;
    std::vector<Item> known;  // in this run
    std::uint64_t signature = 0;
  };
  struct Range {
    std::uint64_t actor = 0;
    Item first = 0;
    Item last = 0;
  };
  // Who has read, or written, an item in a kernel.
  struct Access {
    std::uint32_t run = 0;
    Where where{};
    std::uint64_t actor = 0;
    bool by_many = false;
    bool in_many_blocks = false;
  };
  struct Accesses {
    Access read, write;
  };
  bool collides(const Access& access, std::uint64_t actor) const;
  void note_access(Access& access, std::uint64_t actor) const;
  void look_for_race(std::uint64_t actor, Item item, bool writes);
  Actor& actor(std::uint64_t id);
  static void know(Actor& actor, Item item);
  std::uint64_t& last(std::vector<std::uint64_t>& of_words,
                      std::unordered_map<Item, std::uint64_t>& of_places, Item item) {
    return is_word(item) ? of_words[item] : of_places[item];
  }

  std::uint32_t run_ = 0;
  Where where_;
  std::unordered_map<Item, Accesses> accesses_;
  std::set<Item> contested_;  // places that several wrote at once, and that nobody has read yet
  bool races_ = false;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;  // of actors
  std::vector<Actor> actors_;
  std::uint32_t recent_ = 0;  // in actors_
  // Filters against noting the same again and again; most items have one reader and one writer.
  std::vector<std::uint64_t> last_learner_;
  std::unordered_map<Item, std::uint64_t> last_place_learner_;
  std::vector<std::uint64_t> last_told_;
  std::unordered_map<Item, std::uint64_t> last_place_told_;
  std::set<Item> device_places_;  // that were ever written
  std::vector<Range> ranges_;     // that were ever read
  std::vector<Learnt> learnt_;
  std::vector<Told> told_;
};

}  // namespace holdfast::check

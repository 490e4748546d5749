// Turns the events of kernels, copies and host code into a Trace, and notes what persistent memory
// is read.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "check/decision_tree.hpp"
#include "check/event_site.hpp"
#include "check/flows.hpp"
#include "check/order.hpp"
#include "check/trace.hpp"
#include "holdfast/cpu/listener.hpp"

namespace holdfast::check {

// What one run of recovery and verification touched.
class Footprint {
 public:
  explicit Footprint(PersistentRange range);

  // Begins a run. Noted are the first reads of the cells of `first` and of `second`; null: none.
  void begin(const Order* first, const Order* second);
  // Begins a run of the program itself: what it writes may differ from then on. Its threads are no
  // actors, whatever their numbers.
  void begin_program();

  // `actor` may be kNobody: someone who is told later what was read. `value`: the `size` bytes that
  // were read, where memory holds others by now; null: it holds them.
  // `presumed`: as of cpu::Event.
  void read(std::uint64_t address, std::uint64_t size, std::uint64_t actor,
            const void* value = nullptr, bool presumed = false);
  // The actor learns of bytes that have been read.
  void tell(std::uint64_t address, std::uint64_t size, std::uint64_t actor);
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};
  void write(std::uint64_t address, std::uint64_t size, std::uint64_t actor);

  // What a run read before it wrote it, of the words that are not always the same: word << 8 |
  // bytes of it, and kPresumed. With the values that were read.
  const std::vector<Reading>& readings() const { return readings_; }
  // Takes note of what a run would read, without running it. REQUIRES: such a word and bytes.
  void replay(std::uint64_t what);
  // Words that runs or crash states change. Returns how many there are.
  std::size_t variable() const { return variable_count_; }
  void set_variable(std::uint64_t word);
  std::uint64_t value_of(std::uint64_t what) const { return masked(word_at(word_of(what)), what); }
  // Of a byte of the range: whether it may differ from state to state, whether the run has written
  // in its word, and whether it has read or written the byte.
  bool may_differ(std::uint64_t address) const { return variable_[(address - range_.begin) / 8]; }
  bool wrote(std::uint64_t address) const {
    return word_written_[(address - range_.begin) / 8] == run_;
  }
  bool knows(std::uint64_t address) const {
    const Known& known = known_[(address - range_.begin) / 8];
    return known.run == run_ && (known.bytes >> (address % 8) & 1) != 0;
  }

  // Cells in the order of their first read, without those that the run itself had written.
  const std::vector<std::uint32_t>& reads(unsigned order) const { return planes_[order].reads; }
  // The same of the first order, without what was presumed to be read.
  std::vector<std::uint32_t> sure_reads() const;
  // What several runs from one state have read, in the order in which that was first read.
  struct Noted {
    std::vector<Reading> readings;
    std::vector<std::uint32_t> reads[2];
    std::unordered_set<std::uint64_t> known;  // of the above
  };
  // Adds what the run at hand has read.
  void add_to(Noted& all) const;
  // From here on, up to begin(), readings() and reads() tell of all these runs.
  void show(const Noted& all);
  // Words (of 8 bytes, from the range's first) that the run wrote.
  const std::vector<std::uint32_t>& written() const { return written_; }
  // Who learnt of which half word (4 bytes), by writing it or by reading what may differ, and of
  // which place of other memory; and who told whom. Over all runs, until it is taken.
  Flows& flows() { return flows_; }
  // From the next begin() on. Costs time, and so is off where nobody forms groups.
  void follow_flows(bool follow) { follows_ = follow; }
  bool notes_actors() const { return notes_actors_; }

 private:
  // The cells of one order.
  struct Plane {
    const Order* order = nullptr;
    std::vector<std::uint32_t> first_cell;     // by word: number of its first cell + 1
    std::vector<std::uint32_t> words;          // that have one
    std::vector<std::uint32_t> cell_seen;      // the run in which it was read or written
    std::vector<std::uint32_t> cell_presumed;  // the run in which no read of it was sure
    std::vector<std::uint32_t> reads;

    void set(const Order* next, std::uint64_t begin);
    // Calls visit(cell) for those that overlap bytes [address, end) of the word.
    template <class Visit>
    void for_cells(std::uint64_t word, std::uint64_t address, std::uint64_t end, Visit&& visit);
    void read(std::uint32_t cell, std::uint32_t run, bool presumed);
  };
  static constexpr std::uint64_t kPresumed = std::uint64_t{1} << 63;
  static std::uint64_t word_of(std::uint64_t what) { return (what & ~kPresumed) >> 8; }
  std::uint64_t word_at(std::uint64_t word) const;
  static std::uint64_t masked(std::uint64_t value, std::uint64_t bytes);
  template <class Visit>
  void for_words(std::uint64_t address, std::uint64_t size, Visit&& visit);
  void touch(std::uint64_t actor, std::uint64_t word, std::uint8_t bytes, bool writes);
  // Returns the bytes that the run had neither read nor written before.
  std::uint8_t note_reading(std::uint64_t word, std::uint8_t bytes, std::uint64_t now,
                            bool presumed);

  // What the run has read or written of a word so far.
  struct Known {
    std::uint32_t run = 0;
    std::uint8_t bytes = 0;
  };

  PersistentRange range_;
  Plane planes_[2];
  std::vector<Reading> readings_;
  std::vector<Known> known_;  // by word
  std::vector<bool> variable_;
  std::size_t variable_count_ = 0;
  std::vector<std::uint32_t> written_;
  std::vector<std::uint32_t> word_written_;
  Flows flows_;
  bool follows_ = false;
  bool notes_actors_ = false;  // in this run
  std::uint32_t run_ = 0;
};

// Thread safety: that of cpu::Listener.
class Recorder : public cpu::Listener {
 public:
  explicit Recorder(PersistentRange range) : range_(range) {}
  // What a program may store to, in order of address.
  void allow(std::vector<PersistentRange> objects) { objects_ = std::move(objects); }

  // What follows goes to `trace` and `footprint`; either may be null.
  void begin(Trace* trace, Footprint* footprint);
  // Everything from here on is done by `actor`: an item of verify().
  void set_actor(std::uint64_t actor) { actor_ = actor; }
  void no_actor() { actor_ = kNoActor; }
  // The first store since begin() to persistent memory that is not wholly in an object.
  struct Stray {
    std::uint64_t address = 0;
    Site site;
  };
  const std::optional<Stray>& stray() const { return stray_; }
  // Stops the trace, and goes on with the footprint.
  void end_trace() { trace_ = nullptr; }
  void add_host_op(OpKind kind);

  void on_event(const cpu::Event& event) override;

  static constexpr std::uint64_t kItemActor = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kHostActor = std::uint64_t{1} << 62;

 private:
  static constexpr std::uint64_t kNoActor = ~std::uint64_t{0};

  // A copy of persistent bytes in device memory: who reads it, reads these.
  struct Copy {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t from = 0;
  };

  void begin_kernel(const cpu::Event& event);
  void on_copy(const cpu::Event& event);
  void tell_copied(std::uint64_t address, std::uint64_t size, std::uint64_t actor);
  bool follows_flows() const { return footprint_ != nullptr && footprint_->notes_actors(); }
  void on_volatile(const cpu::Event& event);
  void on_meeting(const cpu::Event& event);
  Item place_of(std::uint64_t address, const cpu::Event& event);
  Item device_place(std::uint64_t address, std::uint64_t start, std::uint64_t number) const;
  void on_access(const cpu::Event& event);
  void on_order(const cpu::Event& event);
  void add(const cpu::Event& event, OpKind kind, const void* value);
  std::uint32_t thread_of(const cpu::Event& event);
  std::uint64_t actor_of(const cpu::Event& event) const;
  std::uint32_t number_of_site(const cpu::Event& event);
  std::uint32_t find_site(const Site& site);
  std::uint32_t group_of(const cpu::Event& event, std::uint32_t thread);
  bool is_sync_variable(std::uint64_t address) const {
    return (sync_filter_[address >> 2 & 0xffff] & 1) != 0;
  }

  void look_for_stray(std::uint64_t address, const cpu::Event& event);

  PersistentRange range_;
  std::vector<PersistentRange> objects_;
  std::size_t last_object_ = 0;  // that was stored to
  std::optional<Stray> stray_;
  Trace* trace_ = nullptr;
  Footprint* footprint_ = nullptr;
  std::uint64_t actor_ = kNoActor;
  Copy copying_;  // what the copy engine has just read
  std::vector<Copy> copies_;
  // A kernel that is underway; where several are, by task.
  struct Kernel {
    std::uint32_t launch = 0;
    std::uint64_t block_threads = 1;
    std::vector<std::uint32_t> numbers;  // of its threads in the trace; 0: none yet
    std::vector<std::uint32_t> phases;   // barriers that each of them has passed
  };
  std::map<std::uint64_t, Kernel> kernels_;
  Kernel* kernel_ = &kernels_[0];  // the one whose event is at hand
  std::uint64_t task_ = 0;
  std::uint32_t launches_ = 0;
  std::uint32_t host_ops_ = 0;  // of the trace
  // What kind of memory 16 bytes are, while a kernel runs.
  struct Known {
    std::uint64_t granule = 0;
    Item place = 0;  // of the granule's first byte; kHostPlace: the host's
  };
  std::vector<Known> places_ = std::vector<Known>(4096);
  std::uint64_t first_allocation_ = 0;  // of device memory in this run
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> sites_;
  struct RecentSite {
    Site site;
    std::uint32_t number = 0;  // 0, which no place of a kernel has: empty
  };
  std::array<RecentSite, 64> recent_sites_;
  std::unordered_map<std::uint64_t, std::uint32_t> groups_;
  std::unordered_map<std::uint64_t, std::uint32_t> warp_arrivals_;
  // Volatile variables that strong accesses went to: plain stores to them matter, too. May hold
  // more than it should.
  std::vector<std::uint8_t> sync_filter_ = std::vector<std::uint8_t>(0x10000);
};

}  // namespace holdfast::check

// The threads, streams and buffers under a history: what the catalog decides is done here.
//
// One mutex is over the catalog and all that is said of checkpoints; no bytes move under it. A
// caller or a thread begins a transfer under the mutex, moves the bytes without it, and ends the
// transfer under it; whoever waits is woken whenever one has ended. Source: Score (HPDC '23),
// section 4.3.1, with a thread for each pair of tiers and direction, since a prefetch from the disk
// must not wait for one to the GPU.
//
// To wake a thread takes as long as all else that save() and restore() do on the host. So they wake
// none: the dispatcher, which looks for copies that have ended anyway, wakes the lanes for them. It
// sleeps for a quarter of the time since something happened, 1 ms at most, and without an end once
// nothing has happened for long. Where a caller waits everybody is woken at once.
//
// Whatever ends, ends for all who wait: a thread that dies, or memory that runs out within a change
// of the catalog, breaks the history (`broken`), and close() lets calls of other threads end first.
//
// Tests: history_test (against a map), history_kill_test, history_fault_test (every operation of
// the disk fails in turn; streams fail), history_attack_test (races, forks, every allocation
// fails).
//
// Threads: the dispatcher (takes saves whose copies have ended), a flush lane out of each tier but
// the last, a fetch lane into each cache but what has nothing below it, and the housekeeper
// (removals).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/process.hpp"
#include "history/bounce.hpp"
#include "history/callers.hpp"
#include "history/catalog.hpp"
#include "history/event_pool.hpp"
#include "history/folder_store.hpp"
#include "history/host_tier.hpp"
#include "history/range_fences.hpp"
#include "history/status_server.hpp"
#include "history/together.hpp"
#include "holdfast/history.hpp"

namespace holdfast {

constexpr std::size_t index_of(Tier tier) { return static_cast<std::size_t>(tier); }

namespace history {

// Ticket::wait(). Throws io behind the deadline.
void wait_for(Ticket::State& state, Tier tier,
              std::optional<std::chrono::steady_clock::time_point> deadline);

// What a history and its tickets share.
struct Core {
  Core(const std::vector<TierSpec>& specs, Catalog::Options options) : catalog(specs, options) {}
  std::mutex mutex;
  std::condition_variable changed;  // for callers, and for transfers that give way to others
  Catalog catalog;
  EventPool events;
  const core::Maker maker;
  bool closing = false;          // no further call begins
  bool closed = false;           // what is not durable will not be
  std::exception_ptr broken;     // what left the catalog half changed; then nothing goes on
  Caller* callers = nullptr;     // under way, the youngest first
  std::unique_ptr<Trace> trace;  // null: nobody asked for one
  std::string partner_lost;      // why what the partner has is not safe; empty: it is

  // Takes the mutex for a call of the program. It is held for a microsecond or two at a time, and
  // for some where a lane decides among hundreds of checkpoints; to sleep and be woken takes ten,
  // and as long for who wakes. So it is tried for as long first.
  static void lock_soon(std::unique_lock<std::mutex>& lock);
  // Throws in_use in a forked child, whose copy of the mutex may be locked for ever.
  void check_process() const {
    if (maker.is_this_process()) return;
    maker.refuse("this history", "open one of the child's own, in another folder");
  }
  // Throws what `broken` says, with the remedy. REQUIRES: the mutex is held.
  void check_whole() const;

  // What sleeps until there is work for it.
  struct Sleeper {
    std::condition_variable due;
    bool asleep = false;
  };
  Sleeper flushers[Catalog::kMaxTiers], fetchers[Catalog::kMaxTiers];
  // What a tier is known to have lost does not count behind it. Empty: the history has
  // ended. REQUIRES: the mutex is held.
  std::function<void()> note_losses;
  std::condition_variable dispatch;
  bool dispatcher_rests = false;  // until it is woken: it looks for nothing
  bool lanes_due = false;         // for the dispatcher to wake

  template <class Visit>
  void for_each_due(const Visit& visit);
  // Something has changed: wakes who may go on. REQUIRES: the mutex is held.
  void go_on();
  // The same for a thread that may let go of the mutex in between, and does while it wakes: who is
  // woken would wait for it again, and a call of the program with them.
  void go_on(std::unique_lock<std::mutex>& lock);
  // The same, for a call of the program: the dispatcher wakes the lanes. True: it rests, and is to
  // be woken, best without the mutex.
  [[nodiscard]] bool go_on_soon();
  // A caller waits while this lives. REQUIRES: the mutex is held.
  class Waiting {
   public:
    explicit Waiting(Core& core) : core_(core) {
      core_.catalog.caller_waits();
      core_.go_on();
      core_.dispatch.notify_one();
    }
    ~Waiting() { core_.catalog.caller_goes_on(); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Core& core_;
  };
  // A caller waits until everything is flushed while this lives. REQUIRES: the mutex is held.
  class Draining {
   public:
    explicit Draining(Core& core) : core_(core) { core_.catalog.drain_begins(); }
    ~Draining() { core_.catalog.drain_ends(); }
    Draining(const Draining&) = delete;
    Draining& operator=(const Draining&) = delete;

   private:
    Core& core_;
  };
};

}  // namespace history

struct Ticket::State {
  std::shared_ptr<history::Core> core;
  std::uint64_t step = 0;
  int tiers[kTierKinds] = {};  // their numbers in the history; -1: it has none
  // The rest under the mutex.
  std::shared_ptr<Event> copied;  // null: it is staged
  bool was_in[kTierKinds] = {};   // complete there at some time
  bool gone = false;              // discarded
  std::exception_ptr error;       // what keeps it from a slower tier, or from any
};

namespace history {

inline std::string name_of(Step step) { return "checkpoint " + std::to_string(step); }

inline constexpr std::uint64_t kNoTime = std::uint64_t{1} << 63;  // ns; no clock has come to it

struct Array {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  BufferMemory memory = BufferMemory::device;
  bool operator==(const Array&) const = default;
};

// What is known of a checkpoint beyond where it is.
struct Record {
  StepInfo info;
  std::shared_ptr<Ticket::State> ticket;   // null: an earlier process saved it
  std::uint64_t id = 0;                    // tells saves under one number apart
  std::uint64_t arrival[kTierKinds] = {};  // by a count over the history; 0: never
  std::string failure;                     // what a transfer of it met last
};

// What save() needs of the protected arrays, until others are protected.
struct Layout {
  std::vector<Part> parts;
  std::vector<Piece> pieces;  // the same, in memory
  std::uint64_t bytes = 0;
  std::uint64_t room = 0;  // that they take in a cache
  bool waits = false;      // some are memory that copies wait for
};

class Engine {
 public:
  // `disk`: the store of the disk, for tests of their own; otherwise `options.disk` is opened.
  // `together`: what this rank has with others; `title`: what its folders are called. `options`
  // are this rank's own.
  explicit Engine(const HistoryOptions& options, std::unique_ptr<StepStore> disk = nullptr,
                  std::unique_ptr<Together> together = nullptr, const std::string& title = {});
  // Collective where there are ranks.
  static std::unique_ptr<Engine> open(const HistoryOptions& options);
  // Whether open() has gone well: regions that it has made end with this if not.
  void set_opened(bool opened);
  ~Engine();
  bool is_of_this_process() const noexcept { return core_->maker.is_this_process(); }

  void protect(std::string_view name, const Array& array);
  void unprotect(std::string_view name);
  std::shared_ptr<Ticket::State> save(Step step, Stream& stream, bool keep);
  void restore(Step step, Stream& stream, bool keep);
  void hint(std::span<const Step> steps);
  void prefetch_start();
  std::uint64_t size(Step step, std::string_view name);
  bool discard(Step step);
  std::vector<Step> steps();
  bool is_in(Step step, Tier tier);
  std::optional<Step> latest(Tier tier);
  Agreed agree(Tier tier, const char* call);
  void wait_for_all(const Ticket& ticket, Tier tier);
  void flush();
  void verify(Step step);
  HistoryStats stats();
  // Throws closed; is_of_any_phase: never, but what memory that runs out gives.
  HistorySnapshot snapshot(bool of_any_phase = false);
  // Events, as far as they are left; none where there is no trace. For tests.
  std::vector<TraceEvent> traced();
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Arrival {  // of a save whose copies are queued
    history::Transfer transfer;
    std::shared_ptr<Event> event;
    const void* stream;          // that tells it from others
    std::int64_t queued_ns = 0;  // by the trace's clock
  };
  // What a lane does, for those who look. Under the mutex, apart from `moved`.
  struct LaneWork {
    Clock::time_point begin{};
    std::int64_t paused_ns = 0;
    std::atomic<std::uint64_t> moved{0};  // bytes of storage
  };
  struct LaneCopy {
    history::Transfer transfer;
    StepInfo info;
    Clock::time_point begin{};        // of its own work, behind that of the one in front
    std::shared_ptr<Event> end = {};  // of its copy, if that is queued
    std::exception_ptr error = {};    // what it has met
  };
  struct Consumed {  // with discard_consumed, by a restore that is queued
    Step step;
    std::uint64_t record;  // its id
    std::shared_ptr<Event> end;
    const void* stream;
  };
  struct Unflushed {  // whose flush was given up
    std::exception_ptr error;
    bool raised = false;  // by a save()
  };
  // A call that lets go of the mutex on its way: close() waits for its end.
  class Call {
   public:
    explicit Call(Engine& engine) : lock(engine.open_lock()), engine_(engine) { ++engine_.calls_; }
    ~Call() {
      if (!lock.owns_lock()) lock.lock();
      --engine_.calls_;
      if (engine_.core_->closing) engine_.core_->changed.notify_all();
      if (!wakes_dispatcher) return;
      const std::shared_ptr<Core> core = engine_.core_;  // the engine may end with the call
      lock.unlock();
      core->dispatch.notify_one();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    std::unique_lock<std::mutex> lock;
    bool wakes_dispatcher = false;  // when it has ended

   private:
    Engine& engine_;
  };

  // engine_open.cpp
  void adopt();
  void remove_stale(Step step, Tier kind);

  // engine.cpp
  Lock open_lock();
  // Runs what changes the catalog. What that throws has left it half changed: nothing goes on then,
  // and whoever waits hears of it. REQUIRES: the mutex is held.
  template <class Change>
  auto changing(Change&& change) {
    try {
      return change();
    } catch (...) {
      break_with(std::current_exception());
      throw;
    }
  }
  void break_with(std::exception_ptr error);
  // Each save has a later time than all that were seen, even if the clock is set back. It is what
  // tells in any tier, and in the next process, which is the latest. One near the end of time is
  // forged, and not followed.
  void note_save_time(std::uint64_t ns) {
    if (ns < kNoTime) last_save_ns_ = std::max(last_save_ns_ + 1, ns);
  }
  int tier_of(Tier kind) const { return numbers_[index_of(kind)]; }
  Tier kind_of(int tier) const { return kinds_[static_cast<std::size_t>(tier)]; }
  bool is_cache(int tier) const { return kind_of(tier) < Tier::disk; }
  StepStore& store_of(int tier) const { return *stores_[index_of(kind_of(tier))]; }
  // Of the kinds that may outlive the process, or are a buffer of the host; null of others.
  HostTier* memory_of(Tier kind) {
    if (kind == Tier::host) return &*host_;
    return kind == Tier::partner ? &*partner_ : nullptr;
  }
  bool is_host_memory(int tier) {
    const HostTier* const memory = memory_of(kind_of(tier));
    return memory && memory->is_host_memory();
  }
  // Whole there, and to be found there as the tier promises. REQUIRES: the mutex is held.
  bool is_there(Step step, Tier tier) const;
  // What a checkpoint takes in a cache. One number for all tiers, as the catalog has it.
  std::uint64_t room_of(const StepInfo& info) const;
  std::byte* address(int tier, std::uint64_t offset);
  // The arrays for a checkpoint of this number.
  std::shared_ptr<const Layout> layout_for(Step step);
  // The arrays of a checkpoint's parts. Throws invalid_argument where they differ.
  std::shared_ptr<const Layout> layout_of(const StepInfo& info);
  std::shared_ptr<const Layout> make_layout(std::vector<Part> parts) const;
  std::vector<Part> protected_parts() const;
  template <class Question>
  Answer ask(Lock& lock, Caller& caller, Question&& question);
  void await_arrival(Lock& lock, Step step);
  void await_other_readers(Lock& lock, const history::Transfer& transfer);
  Outcome restore_from(const history::Transfer& transfer, const Layout& layout, Stream& stream,
                       std::shared_ptr<Event>& done);
  void queue_save(Call& call, const history::Transfer& transfer, const StepInfo& info,
                  const Layout& layout, Stream& stream,
                  const std::shared_ptr<Ticket::State>& ticket, Caller& caller);
  bool drop(Step step);  // False: no such checkpoint. REQUIRES: the mutex is held.
  void raise_pending_error();
  void go_on_soon(Lock& lock);
  [[noreturn]] void refuse_full(Step step, std::uint64_t bytes);
  [[noreturn]] void refuse_unknown(Step step) const;

  // consumption.cpp
  void consumed(Step step, std::shared_ptr<Event> end, const void* stream);
  bool is_consumed(Step step) const;
  void discard_unless_hinted(Step step);
  bool discard_consumed();
  void discard_all_consumed(Lock& lock);

  // durability.cpp
  static std::optional<DamagedFile> damaged_file(const StepStore& store, Step step);
  static bool has_file(const StepStore& store, Step step);
  static void remove_file(StepStore& store, Step step);
  bool write_behind_removals(Tier kind, const std::function<bool()>& write);
  bool await_removals(Tier kind, std::uint64_t made);
  bool is_being_removed(Step step) const;
  void flush(Lock& lock, bool refills);
  void check_all_flushed(const Catalog::Among& among);
  std::exception_ptr confirm(Lock& lock);
  void note_losses();
  void note_loss(Tier kind);
  void note_loss_of_partner();
  bool verify(Step step, Tier kind);
  void end(bool leave);

  // together.cpp
  Offer found_offer(const std::vector<StepInfo> (&stored)[kTierKinds]);
  void agree_on_found(std::vector<StepInfo> (&stored)[kTierKinds]);
  Offer offer_of(Tier tier) const;
  Stamp stamp_of(const Ticket::State& state, Tier tier) const;
  void note_agreed(const Agreed& agreed);
  void retain_agreed();
  bool is_stored(Step step) const;
  bool may_go(const Version& version);
  void release_held();
  void queue_removal(Step step, const Stamp& stamp, Tier kind);

  // lanes.cpp
  void start_threads();
  template <class Body>
  void run_guarded(const Body& body) noexcept;
  bool take_arrivals(Lock& lock);
  void stop_threads();
  void wake_all();
  void run_dispatcher();
  void run_lane(history::Transfer::Kind kind, int tier);
  void begin_work(LaneCopy& copy);
  bool is_queued_ahead(const history::Transfer& transfer);
  void queue_copy(Lock& lock, LaneCopy& copy, std::optional<Stream>& stream);
  void end_copy(Lock& lock, LaneCopy copy);
  void run_transfer(Lock& lock, LaneCopy& copy, std::optional<Stream>& stream);
  void end_transfer(const LaneCopy& copy, Outcome outcome);
  void run_housekeeper();
  Outcome move(const history::Transfer& transfer, const StepInfo& info, Stream& stream,
               std::exception_ptr& error);
  bool move_bytes(const history::Transfer& transfer, const StepInfo& info, Stream& stream,
                  bool& faulty_source);
  bool send(const history::Transfer& transfer, const StepInfo& info, StepStore& to,
            bool& faulty_source);
  bool waits_for_more_than_fetches() const;
  bool gives_way(const history::Transfer& transfer) const;
  void note_read();
  bool keep_pace(const history::Transfer& transfer, std::uint64_t moved);
  LaneWork& work_of(const history::Transfer& transfer);
  const LaneWork& work_of(const history::Transfer& transfer) const;

  // seen.cpp: what others see of a history, and its trace. Under the mutex.
  void start_trace();
  void start_status_server();
  void trace_lane(const history::Transfer& transfer, Outcome outcome,
                  const std::exception_ptr& error);
  void trace_copy(const Arrival& arrival, const std::exception_ptr& error);
  void trace_moment(TraceEvent::Kind kind, Step step, int from = kProgram, std::uint64_t bytes = 0);
  void add_transfers(HistorySnapshot& snapshot) const;
  void add_callers(HistorySnapshot& snapshot) const;
  std::string path_of(Tier kind) const;

  // records.cpp: what follows from a change of the catalog. REQUIRES: the mutex is held.
  // Who calls wakes others.
  void finish(const history::Transfer& transfer, Outcome outcome, const std::exception_ptr& error);
  void note_evictions();
  void forget_if_gone(Step step);
  void note_failure_of(Step step, const std::string& why);
  void note_failure(const history::Transfer& transfer, const std::exception_ptr& error);
  static void warn(Step step, const std::exception_ptr& error);
  void warn_or_keep(Step step, const std::exception_ptr& error);
  void retry_flushes();
  void retain();
  // Before bytes of a cache are written: queued work that uses them comes before what `stream` does
  // next, or before the return. Throw io (HostTier::begin_writing()).
  void come_behind(int tier, std::uint64_t offset, std::uint64_t bytes, Stream& stream);
  void wait_behind(Lock& lock, int tier, std::uint64_t offset, std::uint64_t bytes);

  const HistoryOptions options_;
  std::vector<Tier> kinds_;                        // of the tiers that there are, from the fastest
  int numbers_[kTierKinds];                        // the other way; -1: there is none
  std::unique_ptr<StepStore> stores_[kTierKinds];  // of the kinds that are storage
  DeviceBuffer<std::byte> gpu_;
  std::optional<HostTier> host_, partner_;
  // For callers, flushes, fetches: who holds one may wait for another of these, so they share none.
  struct Bounces {
    Bounce callers{Bounce::kMostSlots}, flushes{2}, fetches{Bounce::kMostSlots};
  };
  std::unique_ptr<Bounces> bounce_;
  std::shared_ptr<Core> core_;
  const std::unique_ptr<Together> together_;  // null: there are no other ranks

  // Under the mutex.
  std::map<std::string, Array, std::less<>> arrays_;
  std::shared_ptr<const Layout> layout_;  // of arrays_; null: not asked for
  bool layout_fits_ = false;              // a file's header
  std::map<Step, Record> records_;
  RangeFences fences_[Catalog::kMaxTiers];
  std::deque<Arrival> arrivals_;
  std::deque<Consumed> consumed_;
  std::condition_variable removal_due_;       // for the housekeeper
  std::set<std::pair<Step, Tier>> removals_;  // files to remove
  std::uint64_t removals_made_ = 0;
  // That flush() tries again, and why.
  std::map<std::pair<Step, Tier>, std::exception_ptr> failed_removals_;
  std::map<std::pair<Step, int>, Unflushed> unflushed_;  // by the tier that they are left in
  std::exception_ptr pending_error_;                     // for the next save() or flush()
  std::string last_failure_;
  std::uint64_t arrivals_counted_ = 0, saves_counted_ = 0;
  std::uint64_t last_save_ns_ = 0;
  HistoryStats stats_{};
  double seconds_per_byte_[Catalog::kMaxTiers] = {};
  bool stopping_ = false;
  bool ended_ = false;               // close() is done
  int calls_ = 0;                    // that close() waits for
  int demands_ = 0;                  // restores that read the disk while their callers wait
  int prefetches_ = 0;               // fetch lanes that read the disk
  Clock::time_point quiet_until_{};  // flushes give way though neither reads

  LaneWork work_[2][Catalog::kMaxTiers];  // of flushes and fetches, by the faster tier

  std::vector<std::thread> threads_;
  std::optional<StatusServer> status_;  // ends first
};

}  // namespace history

struct History::Impl {
  explicit Impl(const HistoryOptions& options)
      : owner(history::Engine::open(options)), engine(*owner) {}
  // A forked child has a copy without the threads, which cannot be joined: there it stays.
  ~Impl() {
    if (!owner->is_of_this_process()) static_cast<void>(owner.release());
  }
  std::unique_ptr<history::Engine> owner;
  history::Engine& engine;
};

}  // namespace holdfast

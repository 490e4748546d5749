// Runs kernels and the host in turns that a Chooser decides: cpu/chooser.hpp.
//
// The host is the thread that made the engine. Its slot 0 runs on that thread's own stack, so that
// a kernel of one block costs no switch of OS threads; each further block that is underway has an
// OS thread of its own (its __shared__ variables are thread_local), and a switch between two blocks
// hands over a baton. Whoever holds the baton decides who goes on.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "backend_cpu/run.hpp"
#include "backend_cpu/stream_impl.hpp"
#include "holdfast/cpu/chooser.hpp"
#include "holdfast/cpu/listener.hpp"

namespace holdfast::cpu {

// What goes on.
struct Decision {
  enum class Kind : std::uint8_t { none, host, work, begin, thread, stuck } kind = Kind::none;
  Slot* slot = nullptr;            // begin, thread
  Thread* thread = nullptr;        // thread
  Stream::Impl* stream = nullptr;  // work
};

class Engine {
 public:
  explicit Engine(Chooser& chooser);
  ~Engine();
  // That of the calling thread, if it is the host of one; else null.
  static Engine* of_host();

  // Calls of the host.
  void push(Stream::Impl& stream, std::function<void()> work, bool always,
            std::function<bool()> ready, std::uint64_t waits_for);
  void launch(Stream::Impl& stream, const Shape& shape, const Schedule& schedule,
              std::function<void()> body);
  void wait_until(const std::function<bool()>& done);
  void wait_for(Stream::Impl& stream);
  void host_point(const Step& step, const void* site, std::uint64_t state);
  // The host asks whether something is done, or reads plainly what others may change: in a loop
  // that does so all else must go on, though it is no step of a schedule.
  void host_asks();
  void host_reads(const void* address, std::size_t size);
  // It stores where its stack does not show it: a loop that counts there is not in the same state.
  void host_stores(const void* address);
  // It does something else of which its stack shows nothing.
  void host_acts() { ++stores_; }
  std::uint64_t host_stores() const { return stores_; }
  const std::byte* host_stack() const { return host_stack_; }
  void set_host_stack(const std::byte* top) { host_stack_ = top; }
  void forget(Stream::Impl& stream);
  bool idle(Stream::Impl& stream);
  std::uint32_t number_of(Stream::Impl& stream);  // from 1, by first use
  std::uint64_t last_task() const { return tasks_; }
  // The host has waited for this stream up to a task; null: for all.
  void synchronized(Stream::Impl* stream, std::uint64_t task);
  std::uint64_t running_task() const { return running_task_; }  // whose work the host carries out
  std::uint32_t running_stream() const { return running_stream_; }
  // A function of a stream runs, and has not accessed these bytes so before; they are not of its
  // own variables.
  bool is_new_to_function(EventKind kind, const void* address, std::size_t size);

  // Calls of threads.
  void point(Thread& self, const Step& step, const void* site, std::uint64_t state);
  void only_read(const Thread& self);
  void host_only_read();
  // The access that was announced last left the value as it was.
  void left_alone(const Thread& self);
  void host_left_alone();
  // Something is done that takes no turns with others: not all schedules can be made.
  void cut() { chooser_.cut(); }
  Decision decide();
  void follow(Thread& self, const Decision& decision);  // leaves self, unless it goes on itself
  void make_local(Thread& thread) { locals_.push_back(&thread); }
  void ended(Thread& thread);
  // Threads [first, ...) of the slot's block, as far as their bits are set.
  void met(const Slot& slot, std::uint32_t first, std::uint32_t lanes);
  void met_block(const Slot& slot);
  void met(const std::vector<Actor>& actors);

  // Calls of a slot's own context.
  Decision take() { return std::exchange(next_, Decision{}); }
  void put(const Decision& decision) { next_ = decision; }
  std::uint64_t next_block(Slot& slot);
  void block_begun(Slot& slot);
  void block_ended(Slot& slot);
  void failed(Slot& slot);

 private:
  struct Kernel {
    Run run;
    std::function<void()> body;
    std::uint64_t unassigned = 0;  // blocks that no slot has yet, or is about to begin
    Stream::Impl* stream = nullptr;
  };
  struct Item {
    std::function<void()> work;
    bool always = false;
    std::function<bool()> ready;
    std::unique_ptr<Kernel> kernel;
    std::uint64_t task = 0;
    std::uint64_t waits_for = 0;
  };
  struct Lane {
    std::uint32_t number = 0;
    std::deque<Item> items;
    std::unique_ptr<Kernel> running;
    Stream::Impl* stream = nullptr;  // null: it is gone
    std::uint64_t last = 0;          // task that was begun last
    std::uint64_t given = 0;         // task that was given last
  };
  // What a thread has read since it last did anything else, to tell whether it spins.
  struct Read {
    const void* site = nullptr;
    const void* address = nullptr;
    std::size_t size = 0;
    std::uint64_t value = 0;
    std::uint64_t state = 0;  // of its stack
    std::uint64_t meetings = 0;
  };
  struct Pending {
    Step step;
    Thread* thread = nullptr;  // null: the host
    const void* site = nullptr;
    std::vector<Read> reads;
    unsigned repeats = 0;
    // With other threads, at barriers, votes and shuffles: they may bring what those have counted.
    std::uint64_t meetings = 0;
    unsigned idle = 0;      // updates in a row that changed nothing
    bool was_idle = false;  // the last access was one
    bool wrote = false;
    bool spins = false;          // it has read all this before
    bool is_cut = false;         // not in quite the same state
    std::uint64_t released = 0;  // number of the last time that it was let go on nevertheless
    bool listed = false;         // in points_
  };

  Lane& lane(Stream::Impl& stream);
  Item& add(Stream::Impl& stream, std::uint64_t waits_for);
  void advance();
  bool begin_task(Lane& lane);
  void begin_kernel(Lane& lane, Item item);
  void do_work(Stream::Impl& stream);
  Kernel& kernel_of(const Slot& slot);
  void free_slot(Kernel& kernel, Slot& slot);
  void end_kernel(Kernel& kernel);
  void fail_all();
  Decision choose();
  Pending& pending_of(Actor actor, Thread* thread);
  void arrive(Pending& pending, const Step& step, const void* site, std::uint64_t state);
  static bool is_blocked(const Pending& pending);
  static void left_alone(Pending& pending);
  bool release_one();
  bool hold_back();
  bool has_work() const;  // some stream has
  Actor actor_of(const Thread& thread) const;

  Chooser& chooser_;
  Engine* const outer_;
  std::deque<Lane> lanes_;  // by number
  std::uint64_t tasks_ = 0;
  std::uint64_t running_task_ = 0;
  std::uint32_t running_stream_ = 0;
  const std::byte* work_frame_ = nullptr;  // of who called the function that runs
  std::set<std::tuple<EventKind, const void*, std::size_t>> accessed_;  // by it
  std::vector<Thread*> locals_;   // can go on without a choice
  std::vector<Slot*> to_begin_;   // have a block to begin
  std::vector<bool> used_slots_;  // by number
  std::map<Actor, Pending> pending_;
  Pending* chosen_ = nullptr;     // whose step was taken last
  std::vector<Pending*> points_;  // that stand before a step, by actor
  std::vector<Step> steps_;
  std::vector<Pending*> offered_;
  Decision next_;
  const std::function<bool()>* host_waits_ = nullptr;
  bool host_at_point_ = false;
  struct Asked {
    const void* address = nullptr;
    std::uint64_t value = 0;
    std::uint64_t times = 0;  // that it was found so
  };
  std::array<Asked, 64> reads_;  // by address
  std::uint64_t asked_ = 0;
  void let_others(std::uint64_t asked);
  std::uint64_t released_ = 0;
  Actor last_ = kHostActor;     // who was chosen last ...
  std::uint64_t in_a_row_ = 0;  // ... so often, while others could have been
  const std::byte* host_stack_ = nullptr;
  std::uint64_t stores_ = 0;  // of the host, elsewhere, and what else it did
};

// The bytes of the caller's stack up to `high`, as a number.
std::uint64_t hash_stack(const std::byte* high) noexcept;

// Before an access of the calling host thread by which it may tell kernels something.
void stop_host(bool writes, const void* address, std::size_t size, const void* site);
inline void before_host_access(bool writes, const void* address, std::size_t size,
                               const void* site) {
  if constexpr (kEvents) {
    if (Engine::of_host() != nullptr) stop_host(writes, address, size, site);
  }
}
inline void after_plain_host_load(const void* address, std::size_t size) {
  if constexpr (kEvents) {
    if (Engine* const engine = Engine::of_host()) engine->host_reads(address, size);
  }
}
inline void before_plain_host_store(const void* address) {
  if constexpr (kEvents) {
    if (Engine* const engine = Engine::of_host()) engine->host_stores(address);
  }
}
// The access that was announced last wrote nothing.
inline void host_only_read() {
  if constexpr (kEvents) {
    if (Engine* const engine = Engine::of_host()) engine->host_only_read();
  }
}
// The value is as it was before.
inline void host_left_alone() {
  if constexpr (kEvents) {
    if (Engine* const engine = Engine::of_host()) engine->host_left_alone();
  }
}
// The same for a kernel's thread.
void stop_thread(Thread& self, bool writes, const void* address, std::size_t size);

}  // namespace holdfast::cpu

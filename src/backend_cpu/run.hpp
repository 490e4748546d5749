// The state of a kernel that runs: its threads, its resident blocks, and the run as a whole.
//
// A Slot is the place of one resident block and has an OS thread of its own, because
// __shared__ variables are thread_local. One OS thread at a time holds the baton and runs; all
// state here belongs to whoever holds it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend_cpu/fiber.hpp"
#include "backend_cpu/intercept_state.hpp"
#include "holdfast/cpu/executor.hpp"
#include "holdfast/cpu/simt.hpp"
#include "holdfast/error.hpp"
#include "holdfast/persist.hpp"

namespace holdfast::cpu {

class Engine;
class Listener;
class Slot;
struct Run;

inline constexpr unsigned kMaxThreads = 1024;  // of a block
inline constexpr unsigned kLanes = 32;

enum class ThreadState : std::uint8_t { fresh, ready, at_barrier, at_collective, exited };

// What a thread does or waits for, for reports.
struct Standing {
  const char* operation = nullptr;
  const char* file = nullptr;
  unsigned line = 0;
  const void* address = nullptr;
  const void* pc = nullptr;  // where no file is known
};

// A thread of the kernel.
struct Thread : Context {
  Slot* slot = nullptr;
  std::byte* stack = nullptr;  // lowest byte; null before it starts and after it ends
  uint3 index{};
  std::uint32_t number = 0;  // within the block
  ThreadState state = ThreadState::fresh;
  bool in_kernel = false;    // between enter_kernel() and the end
  std::uint16_t streak = 0;  // synchronising operations since it last yielded
  Standing standing;
  const void* polled_address = nullptr;  // what it last read at a yield point, and saw there
  std::uint64_t polled_value = 0;
  std::uint64_t last_operand = 0;  // of its last atomic
  struct {
    void* address;
    unsigned bytes;
    Scope scope;
  } release{};  // between before_release() and after_release()
  PendingStore pending;
  std::uint64_t stores = 0;  // announced so far

  unsigned lane() const { return number % kLanes; }
  unsigned warp() const { return number / kLanes; }
};

// A first-in first-out queue of thread numbers, each at most once in it.
class ThreadQueue {
 public:
  bool empty() const { return head_ == tail_; }
  unsigned size() const { return tail_ - head_; }
  void push(std::uint32_t thread) {
    ring_[tail_++ % kMaxThreads] = static_cast<std::uint16_t>(thread);
  }
  std::uint32_t pop() { return ring_[head_++ % kMaxThreads]; }
  // Takes the i-th one from the front; the first one takes its place.
  std::uint32_t take(unsigned i) {
    std::swap(ring_[(head_ + i) % kMaxThreads], ring_[head_ % kMaxThreads]);
    return pop();
  }
  void clear() { head_ = tail_ = 0; }

 private:
  std::array<std::uint16_t, kMaxThreads> ring_;
  unsigned head_ = 0, tail_ = 0;
};

// The lanes of a warp that wait for each other.
struct Warp {
  struct Lane {
    std::uint64_t value, result;
    unsigned argument;
    int width;
  };
  // Lanes that wait for the others of their mask at one operation.
  struct Group {
    detail::WarpOp op;
    std::uint32_t mask;
    std::uint32_t arrived;
  };
  std::uint32_t present = 0;  // lanes that the block has
  std::uint32_t exited = 0;
  unsigned group_count = 0;
  std::array<Group, kLanes> groups;  // no lane is in two of them
  std::array<Lane, kLanes> lanes;
};

struct Barrier {
  detail::BarrierOp op = detail::BarrierOp::sync;
  unsigned arrived = 0;
  int count = 0;  // predicates that were not zero
  int result = 0;
  std::uint64_t generation = 0;
};

// SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t seed = 0) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound).
  unsigned below(unsigned bound) { return static_cast<unsigned>(((next() >> 32) * bound) >> 32); }

 private:
  std::uint64_t state_;
};

// One kernel on its way through the executor.
struct Run {
  Shape shape;
  const std::function<void()>* body = nullptr;
  Schedule schedule;
  Random random;
  Listener* listener = nullptr;
  Engine* engine = nullptr;  // null: no one chooses
  std::uint32_t stream = 1;
  std::uint64_t task = 0;
  unsigned block_threads = 0;
  std::uint64_t blocks = 0;
  std::uint64_t next_block = 0;  // the first one not yet started
  std::uint64_t idle = 0;        // yields since anything progressed
  std::uint64_t idle_limit = 0;
  std::vector<Slot*> slots;    // those in use so far
  std::optional<Error> error;  // why the kernel was abandoned

  bool seeded() const { return schedule.seed != 0; }
  bool lockstep() const { return schedule.seed == 0 && schedule.lockstep; }
  bool over() const { return error || (next_block == blocks && active_slots() == 0); }
  unsigned active_slots() const;
  bool can_start_block() const {
    return next_block < blocks && slots.size() < schedule.resident_blocks;
  }
  // The first error stays.
  void fail(Errc code, const std::string& message) {
    if (!error) error.emplace(code, message);
  }
};

// Why control came back from the threads to the slot's own context.
enum class Outcome : std::uint8_t { block_done, pass_baton, failed };

class Slot {
 public:
  explicit Slot(unsigned number) : number_(number) {}

  // Takes part in `run`. Throws Errc::no_memory.
  void join(Run& run);
  // Forgets its block, whatever state that is in.
  void leave() noexcept;

  // Runs until the baton goes elsewhere; returns the slot to hand it to, or null when the kernel
  // is over. Called on the slot's OS thread.
  Slot* drive();

  // What a running thread calls. Each may switch to other threads and come back.
  void yield(Thread& self);  // self stays runnable
  void wait(Thread& self);   // self was given a state other than ready
  // Makes `what` the kernel's error; then abandon() ends the kernel. Apart, because abandon()
  // unwinds nothing: no string may be alive where it is called.
  void note_failure(const Thread& self, Errc code, const std::string& what);
  [[noreturn]] void abandon(Thread& self);
  void make_ready(std::uint32_t thread);
  // Something happened that other threads may have waited for.
  void progress() {
    run_->idle = 0;
    idle_ = 0;
    patience_ = kPatience;
  }

  int block_barrier(Thread& self, detail::BarrierOp op, int predicate);
  std::uint64_t warp_collective(Thread& self, detail::WarpOp op, unsigned mask, std::uint64_t value,
                                unsigned argument, int width);

  Run& run() const { return *run_; }
  unsigned number() const { return number_; }
  bool active() const { return active_; }
  std::uint64_t block_number() const { return block_number_; }
  uint3 block_index() const { return block_index_; }
  unsigned live() const { return live_; }
  unsigned runnable() const { return ready_.size() + (run_->block_threads - next_fresh_); }
  const Thread& thread(unsigned i) const { return threads_[i]; }
  std::uint64_t barrier_generation() const { return barrier_.generation; }
  void* shared_base() const { return shared_base_; }
  StackPool& stacks() { return stacks_; }
  std::string describe(const Thread& thread) const;  // "block (0,0,0), thread (3,0,0)"

 private:
  friend class Engine;
  static constexpr unsigned kPatience = 2;

  static void fiber_main(boost::context::detail::transfer_t transfer);
  Slot* drive_explored();
  void begin_block(std::uint64_t number);
  void end_block();
  Thread* pick();
  void prepare(Thread& thread);
  void prepare_stack(Thread& thread);
  void set_running(Thread& thread);
  void run_thread(Thread& thread);
  Thread* finish(Thread& thread);
  void go(Thread& self, Thread& next);
  void go_home(Thread& self, Outcome outcome, bool ends);
  void check_stack(Thread& self);
  bool should_pass();
  void check_idle(Thread& self);
  bool has_other() const;
  Slot* next_active() const;
  Slot* choose_other();
  [[noreturn]] void fail_deadlock(Thread& self);
  [[noreturn]] void fail_overflow(Thread& self);

  void complete_barrier();
  void exit_warp(Thread& self);
  void check_mask(Thread& self, const Warp& warp, detail::WarpOp op, unsigned mask, int width);
  bool try_complete(Thread& self, Warp& warp, unsigned group);
  void check_sources(Thread& self, const Warp& warp, detail::WarpOp op, unsigned members);

  const unsigned number_;
  Run* run_ = nullptr;
  Context home_;
  Outcome outcome_ = Outcome::block_done;
  bool active_ = false;  // has a block
  std::uint64_t block_number_ = 0;
  uint3 block_index_{};
  unsigned live_ = 0;        // threads that have not exited
  unsigned next_fresh_ = 0;  // the first thread not yet started or queued
  std::uint64_t idle_ = 0;   // own yields since anything progressed or the baton came
  std::uint64_t turn_ = 0;   // own yields since the baton came
  unsigned patience_ = kPatience;
  Barrier barrier_;
  ThreadQueue ready_, at_barrier_;
  std::array<Warp, kMaxThreads / kLanes> warps_;
  std::unique_ptr<Thread[]> threads_;
  StackPool stacks_;
  std::vector<std::byte> shared_;
  void* shared_base_ = nullptr;
};

// The thread that runs on this OS thread, or null.
extern constinit thread_local Thread* t_current;

const char* name_of(detail::WarpOp op) noexcept;
const char* name_of(detail::BarrierOp op) noexcept;

// Where every thread of the run stands that cannot go on.
std::string describe_stuck(const Run& run);

// "path/file.cu:12", or "an unknown place".
std::string describe_place(const Standing& standing);

}  // namespace holdfast::cpu

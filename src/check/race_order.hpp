// Which accesses of kernels and the host happen before which, for the race detector.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "holdfast/persist.hpp"

namespace holdfast::check::race {

// When a thread does something: the block barriers that it has passed, in the upper half, and
// below that how often it has published something since. So "up to this barrier" is one number for
// all threads of a block.
using Clock = std::uint64_t;

// A block, or a thread in it. Blocks are numbered through all kernels (Order::begin_kernel); number
// 0 is the host's, whose one thread stands for all of its threads.
using Key = std::uint64_t;
inline constexpr unsigned kThreadBits = 11;
inline constexpr std::uint64_t kHostBlock = 0;
inline Key block_key(std::uint64_t block) { return block << kThreadBits; }
inline Key thread_key(std::uint64_t block, std::uint32_t thread) {
  return block_key(block) + 1 + thread;
}
inline std::uint64_t block_of(Key key) { return key >> kThreadBits; }
inline std::uint32_t thread_of(Key key) {
  return static_cast<std::uint32_t>(key & ((1u << kThreadBits) - 1)) - 1;
}
// Stands for all that a stream's tasks have done, its clock being their number.
inline Key stream_key(std::uint32_t stream) { return block_key((std::uint64_t{1} << 50) + stream); }

// Of `key` everything before `clock`.
struct Bound {
  Key key;
  Clock clock;
};

struct Memory {
  std::size_t used = 0;  // bytes
  std::size_t limit = 0;
  bool was_short = false;
};

// What has happened before something: a set of bounds. Immutable, so that many threads share one.
class Known {
 public:
  // `bounds` are sorted.
  Known(Memory& memory, std::vector<Bound> bounds);
  ~Known();
  Known(const Known&) = delete;
  Known& operator=(const Known&) = delete;

  const std::vector<Bound>& bounds() const { return bounds_; }
  // Whether what `thread` does at `clock` is in it.
  bool covers(Key thread, Clock clock) const;

 private:
  Memory& memory_;
  std::vector<Bound> bounds_;
};
using KnownPtr = std::shared_ptr<const Known>;  // null: nothing

struct WarpGroup;

// What is learnt from something by a thread of the same block, by one of another, and where the
// host tells it or is told.
struct Lesson {
  KnownPtr near, far, wide;
};

struct Thread {
  // What the thread knew at a fence, and it itself up to there.
  struct Fence {
    KnownPtr known;
    Clock floor = 0;
    Clock bound = 0;  // 0: there was no fence
  };

  Key key = 0;
  Clock now = 0;
  Clock floor = 0;                                // of its own block it knows all before this
  KnownPtr known;                                 // of others
  Fence block_fence, device_fence, system_fence;  // the last ones of these scopes at least
  Lesson seen;                  // by strong reads; learnt at the next fence that reaches so far
  std::uint64_t last_read = 0;  // address of the variable that it last read strongly ...
  Lesson last_lesson;           // ... and what it found there, all times together
  std::shared_ptr<WarpGroup> waits_for;  // lanes that it met
  bool at_barrier = false;
  std::uint64_t generation = 0;  // of that barrier

  std::uint64_t block() const { return block_of(key); }
  bool is_host() const { return block() == kHostBlock; }
};

// A variable through which threads may synchronise: who wrote what it holds, and what reading that
// makes known.
struct Variable {
  struct ForBlock {
    std::uint64_t block;
    KnownPtr known;
  };
  std::uint64_t address = 0;
  std::uint64_t writer_block = 0;
  Scope writer_scope = Scope::system;
  std::uint32_t chain = 0;       // the same for a write and the updates that build on it
  KnownPtr device;               // to a reader in any block
  KnownPtr system;               // to the host; and what the host said, to any
  std::vector<ForBlock> blocks;  // to one in the same block
  Key released_by = 0;           // the last that released by a release operation, if any ...
  Lesson released;               // ... and what
};

class Order {
 public:
  explicit Order(std::size_t max_bytes);
  ~Order();

  // All threads of the kernel know `start`. Returns the number of its first block.
  std::uint64_t begin_kernel(std::uint64_t blocks, std::uint32_t block_threads, KnownPtr start);
  void end_kernel(std::uint64_t first_block);
  void begin_block(std::uint64_t block);
  void end_block(std::uint64_t block);
  void end_thread(Thread& thread);

  Thread& host() { return host_; }
  // The thread that does something now: what it waited for has come.
  Thread& arrive(std::uint64_t block, std::uint32_t thread);
  void fence(Thread& thread, Scope scope);
  void barrier(Thread& thread, std::uint64_t generation);
  void warp_barrier(Thread& thread, std::uint32_t mask);
  // Strong accesses to `variable`, as PTX has it ("release and acquire patterns"). An acquire and a
  // release need no fence; an update keeps what the variable held before. read() returns the chain
  // of the writes that it observes, or 0.
  std::uint32_t read(Thread& thread, const Variable& variable, Scope scope, bool is_acquire);
  void write(Thread& thread, Variable& variable, Scope scope, bool is_release, bool is_update);

  bool ordered(const Thread& thread, Key earlier, Clock clock) const {
    if (earlier == thread.key) return true;
    if (block_of(earlier) == thread.block() && clock < thread.floor) return true;
    return thread.known && thread.known->covers(earlier, clock);
  }
  KnownPtr merge(const KnownPtr& known, std::span<const Bound> more);  // `more` is sorted
  KnownPtr merge(const KnownPtr& a, const KnownPtr& b);
  bool was_short() const { return memory_.was_short; }

 private:
  struct Block;
  struct Kernel {
    std::uint64_t end = 0;  // of its blocks
    std::uint32_t block_threads = 0;
    KnownPtr start;
  };

  Block& block(std::uint64_t number);
  KnownPtr others_than(const KnownPtr& known, std::uint64_t block);
  KnownPtr publish(const Thread& thread, const Thread::Fence& fence);
  void learn(Lesson& lesson, const Lesson& more);
  void close(WarpGroup& group);

  Memory memory_;
  std::uint32_t chains_ = 0;
  Thread host_;
  std::uint64_t next_block_ = kHostBlock + 1;
  std::map<std::uint64_t, Kernel> kernels_;  // by first block: those that run
  std::unordered_map<std::uint64_t, std::unique_ptr<Block>> blocks_;
  Block* last_ = nullptr;
};

}  // namespace holdfast::check::race

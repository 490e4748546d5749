// What a kernel does, event by event, and what the host does between kernels: for the crash-state
// checker and the timing simulator.
//
// Source: docs/model.md, "Events". Events are delivered in the intercepted flavour alone: in
// programs that link holdfast::check, and in trees configured with HOLDFAST_INTERCEPT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "holdfast/cpu/vector_types.hpp"
#include "holdfast/persist.hpp"

namespace holdfast::cpu {

enum class EventKind : std::uint8_t {
  kernel_begin,  // grid and block extents in Event::grid and Event::extent
  kernel_end,    // Event::completed says whether the kernel ran to its end
  block_begin,
  block_end,
  thread_begin,
  thread_end,
  load,
  store,
  atomic,            // read-modify-write; a write even if new_value == value, unless `failed`
  fence,             // __threadfence and its like, std::atomic_thread_fence
  ordering_fence,    // ofence()
  durability_fence,  // persist(), dfence()
  barrier,           // the thread arrives at __syncthreads and its like
  warp_barrier,      // the lane arrives at __syncwarp or a warp collective; Event::mask
  acquire,           // pacq(): a load
  release,           // prel(): a store
  synchronize,       // the host has waited for a stream, whose work so far is done (host)
  launch,            // the host gives a stream a task: in an Exploration (cpu/chooser.hpp) alone
};

// Returns the enumerator's name, such as "durability_fence".
const char* to_string(EventKind kind) noexcept;

// One thing the compiler hides: where a call that is not inlined returns a struct straight into
// memory (`*p = f()`), or takes one straight from it (`f(*p)`), g++ instruments neither. So check
// at -O2 or above, where functions of the same file are inlined into their kernels, or name the
// struct (`const S s = f(); *p = s;`). A bit field is a store of the word that holds it.
//
// Accesses to the running thread's own stack (CUDA's local memory) are not delivered; those to
// shared memory are. An event is delivered before the next one of any thread, so memory holds
// what all events so far have written.
struct Event {
  EventKind kind = EventKind::load;
  Scope scope = Scope::system;  // atomic, fence, acquire, release
  bool is_volatile = false;     // load, store
  bool is_atomic = false;       // load, store, host's atomic: of std::atomic and its like
  bool host = false;            // made by the host or the copy engine; block and thread are 0
  bool is_copy = false;         // load, store: made by copy_async() and its like
  bool completed = false;       // kernel_end
  bool failed = false;          // atomic: a compare-and-swap that found another value, so a read
  // load: of what a plain store replaced, which may not have happened. g++ announces a copy of a
  // struct by its store, and a store that is read back at once the same way; `value` has the bytes.
  bool presumed = false;
  bool by_bytes = false;   // store: of memcpy() and its like, which nvcc makes byte by byte
  bool exchanges = false;  // barrier, warp_barrier: its threads get values of each other
  std::uint8_t lane = 0;
  std::uint32_t warp = 0;        // within the block
  std::uint32_t thread = 0;      // within the block: x + y * blockDim.x + ...
  std::uint64_t block = 0;       // within the grid: x + y * gridDim.x + ...
  std::uint32_t mask = 0;        // warp_barrier: lanes that take part
  std::uint64_t generation = 0;  // barrier: how many the block completed before this one;
                                 // launch: the task that this one waits for; 0: none
  // Which stream: a small number, by first use; 0: the host. synchronize: the one that was waited
  // for; 0: all. Outside of an Exploration all streams are 1, and every wait is one for all.
  std::uint32_t stream = 0;
  // Which of the tasks that were given to streams, from 1; synchronize: the last one that was
  // waited for. 0: not known, which is so outside of an Exploration.
  std::uint64_t task = 0;
  const void* address = nullptr;    // what is accessed
  std::size_t size = 0;             // bytes of it
  const void* value = nullptr;      // `size` bytes: loaded, stored, or (atomic) before it;
                                    // valid during the call
  const void* new_value = nullptr;  // atomic: `size` bytes after it
  // Where in the source: load, store, and what std::atomic does, have the return address of the
  // hook (copies and `synchronize`: of the call); the rest has file and line.
  const void* pc = nullptr;
  const char* file = nullptr;
  unsigned line = 0;
  dim3 grid, extent;  // kernel_begin
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Called by the thread that runs the kernel, by a stream's worker for copies, and by host threads
  // for their own accesses and waits; one call at a time. Accesses that it makes are not delivered.
  // REQUIRES: does not throw; does not launch or wait for kernels.
  virtual void on_event(const Event& event) = 0;
};

// Whether `address` is in the __shared__ memory, static or dynamic, of the block that runs: the
// addresses serve other blocks later. For listeners, in calls for an event of a kernel's thread.
bool is_shared(const void* address) noexcept;
// How far into that memory it is, by a measure that is the same for every block; none: it is not.
std::optional<std::uint64_t> shared_offset(const void* address) noexcept;

// Whether this build delivers events.
bool can_listen() noexcept;

// Delivers what happens from now on to `listener` (null: to none) and returns the one before.
// Throws Errc::unsupported where can_listen() is false and `listener` is not null.
// REQUIRES: nothing is running or queued on a stream.
Listener* set_listener(Listener* listener);

}  // namespace holdfast::cpu

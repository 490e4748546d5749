// How the CPU backend runs a kernel: its shape, its schedule, and the queueing of it.
//
// A kernel's threads are fibers. Exactly one runs at any time, and it runs until it reaches a
// barrier, a warp collective, or a yield point (an atomic, a fence, a release, an acquire, and a
// volatile access where accesses are intercepted). So a kernel's run is a function of the kernel
// and of the schedule's seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "holdfast/cpu/vector_types.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {
struct LaunchShape;

namespace detail {
// Throws Errc::invalid_argument, naming the limit: a block has at most 1024 threads and
// 1024 x 1024 x 64 extents; a grid at most 2^31 - 1 x 65535 x 65535 blocks; dynamic shared memory
// at most 227 KiB. No extent is 0.
void check_launch_shape(const LaunchShape& shape);
}  // namespace detail

namespace cpu {

struct Shape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic shared memory of a block
};

// How kernels are run from the next launch() on.
struct Schedule {
  // 0: threads and blocks take turns in index order, and an atomic that changes memory yields
  // only now and then. Any other value draws each choice among runnable threads, and among
  // resident blocks, from the seed: the same seed gives the same run.
  std::uint64_t seed = 0;
  // With seed 0: threads take turns at every synchronising operation, and blocks once all threads
  // of a block have had theirs, so that all are at the same place, as far as that goes. The checker
  // uses it: the more is underway, the more a crash may leave behind.
  bool lockstep = false;
  // How many blocks can be underway at once. A block that waits for another one further ahead
  // than this never ends, as on a GPU.
  unsigned resident_blocks = 8;
  // A livelock is reported once every runnable thread has yielded this often and no thread has
  // exited, no barrier or collective completed, and no atomic changed memory meanwhile.
  std::uint64_t livelock_rounds = 1'000'000;
  // Stack of a thread, bytes.
  std::size_t stack_bytes = 64 * 1024;
};

// The schedule that launch() takes next. Starts from the defaults and the environment:
// HOLDFAST_CPU_SEED, HOLDFAST_CPU_RESIDENT_BLOCKS, HOLDFAST_CPU_LIVELOCK_ROUNDS,
// HOLDFAST_CPU_STACK. Thread safety: any thread.
Schedule schedule();
// Throws Errc::invalid_argument (resident_blocks 0 or over 1024, livelock_rounds 0, stack_bytes
// under 16 KiB or over 64 MiB).
void set_schedule(const Schedule& schedule);

// Queues a kernel on the stream's worker thread; `body` runs once per thread of the grid.
// What the kernel meets becomes the stream's error: Errc::kernel_fault for bad memory, a trap, a
// failed assertion, an exception, a stack overflow or a misused collective; Errc::livelock for
// threads that wait for ever. holdfast::launch() is the way in for kernels.
void launch(Stream& stream, const Shape& shape, std::function<void()> body);

// Barriers (__syncthreads and its like, __syncwarp) at which nobody waits from now on: those for
// which `left_out` says so, of their file and line; null: none. They deliver no event, and return
// what the thread alone would get. For builds that deliver events. REQUIRES: nothing is running;
// `left_out` lasts until the next call, and is quick: it runs on a thread's own stack.
void leave_out_barriers(const std::function<bool(const char* file, unsigned line)>* left_out);

// What the host has queued on streams, over all of them: whether nobody has waited for some of it
// yet; and whether, since the last watch_streams(), two streams had such work at once, or
// instrumented host code made a strong access, asked for a task's end or queued a function
// meanwhile.
bool work_is_pending();
bool streams_have_overlapped();
void watch_streams();
// Whether since then another thread of the host than the one that is observed, and no function of a
// stream, gave work to a stream or made a strong access in instrumented code.
bool stranger_was_met();

// What a stream that has ended since the last call met and threw to nobody.
std::optional<Error> take_lost_error();

// Whether the address lies in memory from backend::allocate_device(), which on a GPU the host could
// not read.
bool is_device_memory(const void* address);
// Whether it lies in memory from backend::allocate_pinned(), which the host and kernels share.
bool is_pinned_memory(const void* address);

// The allocation that the address lies in: where it starts, and its number, counted from 1.
struct DeviceAllocation {
  std::uint64_t start = 0;
  std::uint64_t number = 0;
};
std::optional<DeviceAllocation> device_allocation(const void* address);
// How many there have been so far.
std::uint64_t device_allocations();

// Says that the kernel's own code begins: accesses before it (to launch()'s copy of the
// arguments) are not the kernel's and are not delivered to a listener.
void enter_kernel() noexcept;

// Whether it is a kernel's thread that asks, and not the host's.
bool in_kernel() noexcept;

// The first byte of the running block's dynamic shared memory, aligned to 16 bytes.
void* dynamic_shared_base();

}  // namespace cpu
}  // namespace holdfast

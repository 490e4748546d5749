// What a program did, as the persistency model sees it: one execution, in the order in which it
// was made. Recorded from a kernel (recorder.hpp) or made by a litmus test (litmus.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/persist.hpp"

namespace holdfast::check {

// docs/model.md, "Events".
enum class OpKind : std::uint8_t {
  write,
  read,
  update,            // read-modify-write
  ordering_fence,    // ofence()
  durability_fence,  // persist(), dfence()
  fence,             // __threadfence and its like
  release,           // prel(): a strong write
  acquire,           // pacq(): a strong read
  barrier,           // the thread arrives; Op::group says at which one
  exchange,          // the same at a vote or shuffle, which orders no memory
  synchronize,       // the host has waited for what Op::stream has done so far, or for an event
  record,            // an event (Op::group) stands behind what Op::stream has done so far
  wait_event,        // Op::stream goes on behind the event's last record
  start,             // the host begins an operation ...
  acknowledge,       // ... and tells someone that it is done
};

// The first two threads of every trace.
inline constexpr std::uint32_t kHostThread = 0;
inline constexpr std::uint32_t kCopyThread = 1;  // the copy engine, of whichever stream

struct TraceThread {
  std::uint32_t launch = 0;  // kernels are numbered from 1; 0: not of a kernel
  std::uint64_t block = 0;
  std::uint32_t thread = 0;
  std::uint32_t task = 0;  // index into Trace::tasks; 0: not known
};

// What the host gave to a stream: a kernel, a copy, or something else. They are numbered from 1.
struct TraceTask {
  std::uint32_t stream = 0;
  std::uint32_t host_ops = 0;   // the host's first so many operations come before it
  std::uint32_t waits_for = 0;  // another task; 0: none
};

// Where in the source an operation stands. Either a program counter or a file and a line.
struct Site {
  const void* pc = nullptr;
  const char* file = nullptr;
  unsigned line = 0;
  bool operator==(const Site&) const = default;
};

struct Op {
  OpKind kind = OpKind::read;
  Scope scope = Scope::system;  // fence, release, acquire, strong accesses
  bool strong = false;          // write, read, update: atomic or volatile
  bool by_bytes = false;        // write: each byte by itself
  std::uint32_t thread = kHostThread;
  std::uint32_t site = 0;   // index into Trace::sites
  std::uint32_t group = 0;  // barrier: those of one group meet; record, wait_event,
                            // synchronize: the event, numbered from 1
  // Kernels' and the copy engine's: the stream in which they run; record, wait_event: the stream's.
  // synchronize: the stream that the host has waited for. 0: none is known, and a synchronize waits
  // for all.
  std::uint32_t stream = 0;
  // The copy engine's: index into Trace::tasks. synchronize: the last task of the stream that was
  // waited for. 0: not known, or all.
  std::uint32_t task = 0;
  std::uint32_t size = 0;
  std::uint64_t address = 0;
  std::size_t value = 0;  // writes: `size` bytes from Trace::bytes[value]
};

// Memory that survives a crash: addresses [begin, end).
struct PersistentRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool contains(std::uint64_t address) const { return address >= begin && address < end; }
};

struct Trace {
  std::vector<Op> ops;
  std::vector<TraceThread> threads{TraceThread{}, TraceThread{}};
  std::vector<TraceTask> tasks{TraceTask{}};
  std::vector<Site> sites{Site{}};
  std::vector<std::byte> bytes;
  PersistentRange persistent;

  // Appends `size` bytes and returns where they stand.
  std::size_t keep(const void* data, std::size_t size) {
    const std::size_t at = bytes.size();
    const auto* const first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
    return at;
  }
};

}  // namespace holdfast::check

// Finds scoped data races in kernels: what the persistency model promises holds without them only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "check/trace.hpp"
#include "holdfast/cpu/listener.hpp"

namespace holdfast::check {

struct RaceSide {
  Site site;
  bool is_write = false;
  bool host = false;  // of the host, whose block and thread are 0
  bool is_copy = false;
  std::uint64_t block = 0;
  std::uint32_t thread = 0;
};

struct Race {
  // "write-write", "read-write", "scope too narrow: block" (both are strong, but one of them speaks
  // to its own block alone), "mixed sizes" (both are strong, of bytes that overlap but are not the
  // same), "host does not wait" (for the kernel or copy, or the other way round), or "streams do
  // not wait" (for each other).
  std::string kind;
  const void* address = nullptr;  // a byte that both access
  bool is_shared = false;         // it is in __shared__ memory
  RaceSide first, second;         // in the order of execution
};

// "write-write race at 0x1234: a write of block 0, thread 1 and a write of block 0, thread 2".
std::string to_string(const Race& race);

// Two accesses to a common byte, at least one of them a write, race if nothing orders them, unless
// both are strong (atomics, volatile accesses, prel, pacq), of the same bytes, and each thread is
// within the other's scope. What orders: the program, block barriers, __syncwarp, releases
// and acquires, fences around strong accesses of which one reads what the other wrote, the order of
// a stream, events that streams wait for, launches, and the host's waiting. persist() and dfence()
// are system fences; ofence() orders persistent memory alone. std::atomic counts as release and
// acquire of system scope, whatever order it was given, and so do strong accesses of the host, all
// of whose threads count as one.
//
// A race is found in any execution in which the two accesses are not ordered, however far apart
// they are, but only in the execution that was seen: one schedule, sequentially consistent. Not
// found:
// - where events do not tell tasks (outside of an Exploration, cpu/chooser.hpp): races of two
//   streams, and of the host with what runs after it; all kernels and copies count as ordered then;
// - some, where more than 32 unordered accesses share 8 bytes;
// - what complete() says.
// An atomic is a write even if it stores the value that was there, as in PTX; a compare-and-swap
// that fails is a read. Votes and shuffles of a warp order no memory, as CUDA says.
//
// Register it with cpu::set_listener(), or hand it each event; thread safety as cpu::Listener.
class RaceDetector : public cpu::Listener {
 public:
  static constexpr std::size_t kMaxRaces = 100;

  // Takes about `max_bytes` of memory at most.
  explicit RaceDetector(std::size_t max_bytes = std::size_t{512} << 20);
  ~RaceDetector() override;
  RaceDetector(const RaceDetector&) = delete;
  RaceDetector& operator=(const RaceDetector&) = delete;

  void on_event(const cpu::Event& event) override;

  // Each pair of places once, the first kMaxRaces of them.
  std::vector<Race> races() const;
  // False: memory was short, or there were more races than are kept, so that some may be missing.
  bool complete() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::check

// Memory that runs out: in a program that links failing_memory.cpp, operator new, aligned_alloc()
// and (without the sanitizers) mmap() of the whole process fail when told to.
#pragma once

#include <cstdint>
#include <exception>

namespace holdfast::test {

enum class Fails {
  once,        // the n-th allocation alone
  from_there,  // that one and all behind it, until the object ends
  to_death,    // none: the process is killed there
};

// While it lives, allocations of all threads are counted from 0, and one of them fails.
class FailingMemory {
 public:
  FailingMemory(std::uint64_t which, Fails how);
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  // Ends it. Whether there were so many allocations.
  bool end();
};

// How a body ended of which an allocation failed.
struct Starved {
  bool threw = false;
  bool reached = false;  // there were so many allocations
};
template <class Body>
Starved starve(std::uint64_t which, Fails how, Body&& body) {
  Starved result;
  FailingMemory memory(which, how);
  try {
    body();
  } catch (const std::exception&) {
    result.threw = true;
  }
  result.reached = memory.end();
  return result;
}

}  // namespace holdfast::test

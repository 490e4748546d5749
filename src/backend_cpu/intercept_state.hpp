// What the hooks of the intercepted flavour need to know about the running thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(HOLDFAST_INTERCEPT)
#define HOLDFAST_EVENTS 1
#else
#define HOLDFAST_EVENTS 0
#endif

namespace holdfast::cpu {

class Listener;
struct Thread;

// Whether this build knows events at all; false lets the compiler drop all code for them.
inline constexpr bool kEvents = HOLDFAST_EVENTS != 0;

// A store that was announced and not yet delivered: the hook runs before the store.
//
// For a struct copy the compiler calls the hook of the store, then the hook of the load, and then
// copies. So the first load after the announcement leaves the store pending if memory shows no
// sign of it yet. (A store of what was there already may so be delivered behind that load.)
struct PendingStore {
  const void* address = nullptr;  // null: none
  std::size_t size = 0;
  const void* pc = nullptr;
  bool is_volatile = false;
  bool load_passed = false;
  std::uint64_t before[2] = {};      // what is replaced, up to 16 bytes of it
  std::vector<unsigned char> large;  // the same, of larger ones; kept for its capacity

  void announce(const void* at, std::size_t bytes, bool volatile_store, const void* from) {
    address = at;
    size = bytes;
    pc = from;
    is_volatile = volatile_store;
    load_passed = false;
    if (bytes == 8) {
      std::memcpy(before, at, 8);
    } else if (bytes == 4) {
      std::memcpy(before, at, 4);
    } else if (bytes <= sizeof before) {
      std::memcpy(before, at, bytes);
    } else {
      large.assign(static_cast<const unsigned char*>(at),
                   static_cast<const unsigned char*>(at) + bytes);
    }
  }
  const void* replaced() const {
    return size <= sizeof before ? static_cast<const void*>(before) : large.data();
  }
  bool changed() const { return std::memcmp(replaced(), address, size) != 0; }

  // A load that is announced next, of the very same bytes, reads the store back; or it is of a
  // struct that is copied onto itself, and reads what was there. Which, cannot be seen.
  bool may_be_of_itself(const void* from, std::size_t bytes, bool volatile_load) const {
    return from == address && bytes == size && !load_passed && !is_volatile && !volatile_load;
  }
  // What is copied does not overlap what it is copied to, but where it is the same.
  bool is_read_back(const void* from, std::size_t bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto first = reinterpret_cast<std::uintptr_t>(from);
    return first < at + size && at < first + bytes;
  }
};

}  // namespace holdfast::cpu

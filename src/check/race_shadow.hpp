// The accesses that the race detector remembers, by where they were.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check/race_order.hpp"

namespace holdfast::check::race {

inline constexpr std::size_t kGranule = 8;  // bytes that share a list of accesses
inline constexpr std::size_t kPageGranules = 512;

enum class Strength : std::uint8_t { weak, block, device, system };

struct Access {
  Key thread = 0;
  Clock clock = 0;
  std::uint32_t site = 0;
  std::uint32_t work = 0;    // the kernel or copy; 0: the host
  std::uint32_t chain = 0;   // of the writes that it belongs to or observes; 0: none
  std::uint32_t time = 0;    // when it observed that chain
  std::uint32_t next = 0;    // in its granule's list
  std::uint8_t mask = 0;     // bytes of the granule
  std::uint8_t whole = 0;    // the same, before some were superseded
  std::uint16_t length = 0;  // of the list, when this was added
  std::uint32_t size = 0;    // of the access, which may reach into other granules
  bool is_write = false;
  bool is_superseded = false;  // for a while
  bool meets_writes = false;   // there was a write in the list when this was added, or it is one
  Strength strength = Strength::weak;

  bool like(const Access& other) const {
    return is_write == other.is_write && strength == other.strength;
  }
};

// The accesses that may still race with later ones, by granule.
class Shadow {
 public:
  // 0: the list's end.
  std::uint32_t& first(std::uint64_t granule) {
    const std::uint64_t number = granule / kPageGranules;
    if (last_ == nullptr || number != last_number_) {
      auto& page = pages_[number];
      if (!page) page = std::make_unique<Page>();
      last_ = page.get();
      last_number_ = number;
    }
    return (*last_)[granule % kPageGranules];
  }
  // Calls visit(granule, first of its list) for the granules of [begin, end) that have one.
  template <class Visit>
  void for_lists(std::uintptr_t begin, std::uintptr_t end, Visit visit) const {
    for (const auto& [number, page] : pages_) {
      const std::uintptr_t start = number * kPageGranules * kGranule;
      if (start >= end || start + kPageGranules * kGranule <= begin) continue;
      for (std::size_t i = 0; i < kPageGranules; ++i) {
        const std::uintptr_t at = start + i * kGranule;
        if ((*page)[i] != 0 && at < end && at + kGranule > begin) visit(at / kGranule, (*page)[i]);
      }
    }
  }
  Access& operator[](std::uint32_t number) { return accesses_[number - 1]; }
  const Access& operator[](std::uint32_t number) const { return accesses_[number - 1]; }

  std::uint32_t add(const Access& access) {
    if (free_ == 0) {
      accesses_.push_back(access);
      return static_cast<std::uint32_t>(accesses_.size());
    }
    const std::uint32_t number = free_;
    free_ = (*this)[number].next;
    (*this)[number] = access;
    return number;
  }
  void remove(std::uint32_t number) { (*this)[number].next = std::exchange(free_, number); }

  std::size_t bytes() const {
    return pages_.size() * (sizeof(Page) + 64) + accesses_.capacity() * sizeof(Access);
  }
  void clear() {
    pages_.clear();
    accesses_.clear();
    free_ = 0;
    last_ = nullptr;
  }

 private:
  using Page = std::array<std::uint32_t, kPageGranules>;
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::vector<Access> accesses_;
  std::uint32_t free_ = 0;
  Page* last_ = nullptr;
  std::uint64_t last_number_ = 0;
};

// Calls visit(granule, mask) for the bytes [address, address + size).
template <class Visit>
void for_granules(const void* address, std::size_t size, Visit visit) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto end = begin + size;
  for (std::uintptr_t granule = begin / kGranule; granule * kGranule < end; ++granule) {
    const std::uintptr_t start = granule * kGranule;
    const auto low = std::max(begin, start) - start;
    const auto high = std::min(end, start + kGranule) - start;
    visit(granule, static_cast<std::uint8_t>((1u << high) - (1u << low)));
  }
}

}  // namespace holdfast::check::race

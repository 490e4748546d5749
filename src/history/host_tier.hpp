// The buffer of the host's cache: pinned memory, or a part of a region, where what the cache holds
// survives a killed process.
//
// In a region it is a durable object "history" with two parts that no commit looks at: the bytes,
// and a table with a slot for each checkpoint that is whole there. A slot says where the checkpoint
// stands and of what it is made; one word of it, stored last, says that it counts.
//
// Invariants: a slot counts only while its bytes are whole, so it is stored behind the copy's end
// and taken back before the room is given to another; what a kill cuts off between the two is not
// there. A checkpoint of more than kMostParts parts, or one for which no slot is free, is in the
// cache as any other, and does not survive. Opening believes no slot whose checksum does not hold,
// or that lies outside, or over another. Tests: host_region_test (kills, damage of every byte of a
// slot).
//
// Thread safety: none; the history's mutex is over it. Its bytes are moved without it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "history/allocation_table.hpp"
#include "history/step_file.hpp"
#include "holdfast/durable.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::history {

// docs/format.md, "The host tier in a region".
struct HostSlot {
  static constexpr const char* kTypeName = "history_slot";
  static constexpr std::uint32_t kMostParts = 31;
  std::uint64_t counts;  // kCounts, or not
  std::uint64_t step;
  std::uint64_t offset;  // in the bytes
  std::uint64_t bytes;
  std::uint64_t saved_at_ns;
  std::uint64_t parts;
  std::uint64_t stamp_run, stamp_save;
  std::uint64_t reserved[7];  // zero
  std::uint64_t checksum;     // of the slot, with `counts` and this as zero
  PartEntry part[kMostParts];
};
static_assert(sizeof(HostSlot) == core::kPage);
inline constexpr std::uint64_t kCounts = 0x53544e554f434648;  // "HFCOUNTS"

struct HostParameters {
  static constexpr const char* kTypeName = "history_host";
  static constexpr std::uint32_t kVersion = 1;
  std::uint64_t bytes = 0, slots = 0;
  std::vector<holdfast::Part> parts() const;
};

class HostTier {
 public:
  struct Found {
    StepInfo info;
    std::uint64_t offset;
  };

  // `region`: the path of a region of its own; empty: pinned memory. Throws as Region and Durable
  // do; invalid_argument if the region is there with another number of bytes.
  HostTier(std::uint64_t bytes, const std::string& region);

  std::byte* data() const { return data_; }
  // What earlier processes have left, by offset.
  const std::vector<Found>& found() const { return found_; }
  // What is not adopted of that must be forgotten.
  void keep(const StepInfo& info, std::uint64_t offset);
  void forget(Step step);
  // Gives the memory back. `leave`: what a region has stays for the next process.
  void close(bool leave);

 private:
  void open_region(std::uint64_t bytes, const std::string& path);
  void read_slots();

  PinnedBuffer<std::byte> pinned_;
  std::optional<Region> region_;
  std::optional<Durable<HostParameters>> object_;
  std::byte* data_ = nullptr;
  std::span<HostSlot> slots_;
  std::vector<std::size_t> free_;
  std::map<Step, std::size_t> used_;
  std::vector<Found> found_;
};

}  // namespace holdfast::history

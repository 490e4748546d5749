// The buffer of the host's cache, or of the cache that a partner keeps for this process: pinned
// memory, or a part of a region, where what the cache holds survives a killed process.
//
// In a region it is a durable object "history" with two parts that no commit looks at: the bytes,
// and a table with a slot for each checkpoint that is whole there. A slot says where the checkpoint
// stands and of what it is made; one word of it, stored last, says that it counts. What is made of
// more parts than a slot names has a table of them behind its bytes.
//
// Invariants: a slot counts only while its bytes are whole, so it is stored behind the copy's end
// and taken back before the room is given to another; what a kill cuts off between the two is not
// there. Whatever is in the cache has a slot: alignment() makes room for no more than there are.
// Opening believes no slot whose checksum does not hold,
// or that lies outside, or over another. Tests: host_region_test (kills, damage of every byte of a
// slot), partner_test.
//
// A partner's region differs in where it lies and in that it names its owner: whoever comes back
// there has lost all that could tell which copies are its own. Its bytes may be in lent memory of
// another process's device, which copies alone reach; the region then has the slots, and a slot
// counts under the lender's lease alone (lender_file.hpp).
//
// Thread safety: none; the history's mutex is over it. Its bytes are moved without it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "history/allocation_table.hpp"
#include "history/lent_memory.hpp"
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
  std::uint64_t table_checksum;  // of the table of more than kMostParts parts; else 0
  std::uint64_t stamp_run, stamp_save;
  Lease lease;                // of lent memory that has the bytes; else zero
  std::uint64_t reserved[4];  // zero
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

struct OwnedParameters {
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kOwnerBytes = 128;  // with the zero behind it
  std::uint64_t bytes = 0, slots = 0;
  char owner[kOwnerBytes] = {};
};

struct PartnerParameters : OwnedParameters {
  static constexpr const char* kTypeName = "history_partner";
  std::vector<holdfast::Part> parts() const;
};

// The same, of which the region has no bytes.
struct LentParameters : OwnedParameters {
  static constexpr const char* kTypeName = "history_lent";
  std::vector<holdfast::Part> parts() const;
};

// Removes the region that an open() has made if that is refused in the end.
class MadeRegion {
 public:
  MadeRegion() = default;
  ~MadeRegion();
  MadeRegion(const MadeRegion&) = delete;
  MadeRegion& operator=(const MadeRegion&) = delete;
  void note(const std::string& path) { path_ = path; }

  bool is_used = false;

 private:
  std::string path_;  // empty: it was there before
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
  // In a partner's region. Throws as well invalid_argument if it is there with another owner.
  // `lender`: who lends the memory for the bytes; empty: they are in the region. Throws then as
  // LentMemory does.
  HostTier(std::uint64_t bytes, const std::string& region, const std::string& owner,
           const std::string& lender);

  // Of what a region of so many bytes holds.
  static std::uint64_t alignment(std::uint64_t bytes);
  // What a checkpoint takes in a region: its bytes, and the table of its parts if it has one.
  static std::uint64_t room_of(const StepInfo& info);

  std::byte* data() const { return data_; }
  // Whether the host reads and writes its bytes, or copies alone do.
  bool is_host_memory() const { return !lent_; }
  // Why what is here will not survive this process; empty: it will.
  std::string loss() const { return lent_ ? lent_->loss() : std::string(); }
  // Whether open() has gone well. A region that this has made goes with this if it has not.
  void set_opened(bool opened) { made_.is_used = opened; }
  // Before any byte of data() is written. Throws io.
  void begin_writing() {
    if (lent_) lent_->begin_writing();
  }
  // What earlier processes have left, in the order of the saves.
  const std::vector<Found>& found() const { return found_; }
  // What is not adopted of that must be forgotten. REQUIRES: in a region there is room_of(info) at
  // the offset, which nothing else uses.
  void keep(const StepInfo& info, std::uint64_t offset);
  void forget(Step step);
  // Gives the memory back. `leave`: what a region has stays for the next process.
  void close(bool leave);

 private:
  template <class Parameters>
  void open_region(const Parameters& parameters, const std::string& path, const char* option);
  void take_lease();
  void read_slots(std::uint64_t capacity);
  std::optional<Found> decode(const HostSlot& slot, std::uint64_t capacity);
  std::vector<PartEntry> entries_of(const HostSlot& slot);

  PinnedBuffer<std::byte> pinned_;
  std::unique_ptr<LentMemory> lent_;
  Lease lease_{};
  MadeRegion made_;  // ends behind the region
  std::optional<Region> region_;
  std::variant<std::monostate, Durable<HostParameters>, Durable<PartnerParameters>,
               Durable<LentParameters>>
      object_;
  std::byte* data_ = nullptr;
  std::span<HostSlot> slots_;
  std::vector<std::size_t> free_;
  std::map<Step, std::size_t> used_;
  std::vector<Found> found_;
};

}  // namespace holdfast::history

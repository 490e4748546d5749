// The file by which a partner's process lends memory of its device to the history of another
// (holdfast/partner_memory.hpp): what there is to map, and whose copies are in it. docs/format.md,
// "Lent memory".
//
// Two locks, which do not know of each other, tell who is there. The lender has the file's own
// (F_OFD_SETLK) for its life, which others ask for without taking it; a writer has flock(). Both
// end with their process. What a lender has forked has its lock, too, so that it is asked besides
// whether the lender's process has ended.
//
// A *lease* is a random number that a writer writes there when it begins, and into the slots of its
// region: bytes are those that a slot names only under the lease that the slot has. A lender that
// was started anew has none; another region's writer, a new one. So nothing that has overwritten
// bytes, or begun without them, is taken for what was there.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/exported_memory.hpp"
#include "core/files.hpp"
#include "core/process.hpp"

namespace holdfast::history {

struct LenderRecord {
  static constexpr std::uint64_t kMagic = 0x5245444e454c4648;  // "HFLENDER"
  static constexpr std::uint32_t kVersion = 1;
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t record_bytes;  // of this
  char backend[8];             // "cpu" or "cuda"
  char device[96];             // that has the memory, in words
  std::uint64_t bytes;
  std::uint64_t pid, start, pid_namespace;  // core::ProcessName
  backend::MemoryHandle handle;
  std::uint64_t reserved[4];  // zero
  std::uint64_t checksum;     // of what is before
};
static_assert(sizeof(LenderRecord) == 256);

using Lease = std::array<std::uint64_t, 2>;
inline constexpr Lease kNoLease{};

struct LeaseRecord {
  static constexpr std::uint64_t kOffset = sizeof(LenderRecord);
  static constexpr std::size_t kOwnerBytes = 128;  // with the zero behind it
  Lease lease;
  char owner[kOwnerBytes];
  std::uint64_t reserved[13];  // zero
  std::uint64_t checksum;      // of what is before
};
static_assert(sizeof(LeaseRecord) == 256);

class LenderFile {
 public:
  // Throws not_found, permission, foreign, newer_version, damaged, io.
  explicit LenderFile(const std::string& path);
  // Publishes one whose lock this has, in place of one whose lender has ended. REQUIRES: the
  // record has all but what is the same of every one. Throws in_use, foreign, permission,
  // unsupported (no locks here), io.
  static LenderFile publish(const std::string& path, LenderRecord record);
  // Of whoever has published it: takes the file away, if it is this one still.
  void withdraw() noexcept;

  const std::string& path() const { return path_; }
  const LenderRecord& record() const { return record_; }
  // Whether the lender has it lent. Once it has not it never has again.
  bool is_lent() noexcept;
  // "process 17 (NVIDIA H100, 0000:01:00.0)"
  std::string lender() const;

  // Of the one writer, from here on. Throws in_use.
  void lock_for_writer();
  bool has_writer() const noexcept;
  LeaseRecord lease() const;  // Throws damaged.
  void set_lease(const Lease& lease, const std::string& owner);

 private:
  LenderFile(std::string path, core::UniqueFd fd, const LenderRecord& record)
      : path_(std::move(path)), fd_(std::move(fd)), record_(record) {}

  std::string path_;
  core::UniqueFd fd_;
  LenderRecord record_{};
  core::UniqueFd process_;  // readable once it has ended; none: the system has no such thing
  bool ended_ = false;
};

}  // namespace holdfast::history

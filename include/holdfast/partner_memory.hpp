// Memory of this process's device for the checkpoints of another: a history there keeps copies in
// it (HistoryOptions::partner_lender), and whoever takes the place of a process that is lost finds
// them here. docs/history.md, "In the partner's GPU".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace holdfast {

// Lends from its making to its end. A file at `path` says so to histories of this host; what was
// kept ends with this object, or with the process. No more than one history at a time uses it.
//
// While a history has the memory open at the end of this object, the memory itself stays until the
// process ends, since CUDA forbids to free what another process has mapped. A forked child has a
// copy that lends nothing.
//
// Thread safety: none; `path()` and `bytes()` by any number of threads.
class PartnerMemory {
 public:
  // Of the current device. Throws invalid_argument (no bytes, no path), no_memory, unsupported
  // (this device's memory cannot be shared, or files there cannot be locked), in_use (another lends
  // at this path), foreign (something else stands there), not_found (no such folder), permission,
  // io.
  PartnerMemory(const std::string& path, std::uint64_t bytes);
  ~PartnerMemory();
  PartnerMemory(PartnerMemory&&) noexcept;
  PartnerMemory& operator=(PartnerMemory&&) noexcept;

  const std::string& path() const;
  std::uint64_t bytes() const;

 private:
  struct Impl;
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast

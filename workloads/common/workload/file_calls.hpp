// File writes called from a kernel and served by the CPU, as in GPUfs: block by block, all threads
// of a block in one call. Source: GPM (ASPLOS '22) section 6.1, "Comparison with GPUfs".
#pragma once

#include <cstdint>
#include <memory>

#include "holdfast/stream.hpp"
#include "workload/file_target.hpp"

namespace workload {

// Owns the staging memory of the calls. Thread safety: one thread.
class FileCalls {
 public:
  FileCalls();
  ~FileCalls();

  // Writes [from, from + bytes) of device memory to `file` at `offset` by a kernel whose blocks
  // call for it, and syncs the file. Waits for the stream. Throws what the writes meet.
  void write(holdfast::Stream& stream, const FileTarget& file, const void* from,
             std::uint64_t bytes, std::uint64_t offset);

  struct Service;

 private:
  std::unique_ptr<Service> service_;
};

}  // namespace workload

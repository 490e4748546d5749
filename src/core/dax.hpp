// Persistent memory, mapped: a device-DAX character device, or a file on a DAX file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/dax_flush.hpp"
#include "core/files.hpp"
#include "holdfast/platform.hpp"
#include "holdfast/region.hpp"

namespace holdfast::core {

enum class DaxKind {
  device,      // device-DAX: /dev/dax0.0
  file,        // a file on a DAX file system, mapped with MAP_SYNC
  plain_file,  // an ordinary file that stands for a device: tests only
};
const char* to_string(DaxKind kind) noexcept;

struct DaxOptions {
  // Lets an ordinary file stand for a device. Environment: HOLDFAST_DAX_PLAIN_FILE=1.
  bool allow_plain_file = false;
  // Opening: refuse anything smaller, as damaged.
  std::uint64_t min_bytes = 0;
  // Files: address space kept for grow().
  std::uint64_t max_bytes = 0;
  // Stands before the paths of sysfs that are read, as in Platform.
  std::string sysfs_root;
};

// Invariants:
// - Holds an exclusive lock on the device or file, so at most one process has it mapped by us.
// - Address and bytes() are page aligned; grow() keeps the address.
//
// Thread safety: flush() from any thread; all else from one.
class DaxMapping {
 public:
  // Maps all of an existing device or file for reading and writing. Nothing is written. Throws
  // not_found, permission (a link, someone else's file), invalid_argument (a folder, a pipe, a
  // device that is not DAX), in_use, damaged (empty, or smaller than min_bytes), unsupported
  // (no DAX, no libpmem2), no_memory, io.
  static DaxMapping open(const std::string& path, const DaxOptions& options = {});

  // For a device: as open(), and throws no_space if it is smaller than `bytes`; what is on it
  // stays, for the caller to judge. Otherwise makes a file of `bytes` zeroes, which has no name
  // before publish(). Also throws already_exists, no_space.
  static DaxMapping create(const std::string& path, std::uint64_t bytes,
                           const DaxOptions& options = {});

  DaxMapping(DaxMapping&& other) noexcept;
  DaxMapping& operator=(DaxMapping&&) = delete;
  ~DaxMapping();  // unmaps and unlocks; an unpublished file vanishes

  // Gives a created file its name, atomically. Nothing for a device. Throws already_exists, io.
  void publish();

  // Files: enlarges file and mapping with zeroes, within max_bytes. A device has the size it has.
  // Throws invalid_argument, no_space, io; then nothing has changed but perhaps the file's size.
  void grow(std::uint64_t bytes);

  // Makes the host's writes, and a device's writes that rest in the processor's caches, durable:
  // by libpmem2, or msync() for plain files. Throws invalid_argument (outside), io.
  void flush(const void* address, std::size_t bytes) const;

  void* address() const { return address_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t max_bytes() const { return max_bytes_; }
  DaxKind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  // Of this very device: "cpu_cache", "memory_controller" or "unknown".
  const std::string& persistence_domain() const { return domain_; }

 private:
  DaxMapping(const std::string& path, const DaxOptions& options);
  int fd() const { return pending_ ? pending_->fd() : fd_.get(); }
  void open_device(std::uint64_t device_number);
  void open_file();
  void map_device(std::uint64_t device_number);
  void map_file(std::uint64_t bytes);
  void map_range(std::uint64_t offset, std::uint64_t bytes, bool plain);
  void reserve(std::uint64_t bytes);
  void start_flush();
  void unmap() noexcept;

  std::string path_;
  DaxOptions options_;
  UniqueFd fd_;
  std::unique_ptr<NewFile> pending_;
  void* address_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t max_bytes_ = 0;
  std::uint64_t reserved_ = 0;
  DaxKind kind_ = DaxKind::plain_file;
  std::string domain_ = "unknown";
  DaxFlush flush_;
};

// What decides how durable a write is.
struct DaxFacts {
  std::string path;
  DaxKind kind = DaxKind::plain_file;
  std::string persistence_domain = "unknown";
  bool cuda = false;  // kernels run on a GPU, and otherwise on the processor
  std::string gpu;    // its PCI address
};

// `persist` concerns a kernel's writes once persist() returned, `commit` once the host has
// flushed them with DaxMapping::flush(). The reason says what the user can do. Reads the state of
// DDIO as it is now. Does not throw for what it finds.
Guarantee dax_guarantee(const DaxFacts& facts, const Platform& platform);

// Why a GPU cannot use this mapping, to stand in the error of a failed registration; empty if
// nothing is known to be in the way.
std::string dax_pin_hint(DaxKind kind, bool cuda);

}  // namespace holdfast::core

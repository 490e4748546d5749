// The disk as a program has it that does nothing else: a file whose space is taken and written
// beforehand, so that a write changes no metadata, moved by direct I/O where the file system has
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "workload/cpu_flush.hpp"

namespace power {

inline constexpr std::uint64_t kDiskPage = 4096;  // of direct I/O: places, lengths and memory
constexpr std::uint64_t disk_rounded(std::uint64_t bytes) {
  return (bytes + kDiskPage - 1) / kDiskPage * kDiskPage;
}

// Threads that wait for work, the caller among them.
using workload::Team;

// Memory for direct I/O, zeroed and touched. Throws std::bad_alloc.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(std::uint64_t bytes);
  ~AlignedMemory();
  AlignedMemory(AlignedMemory&& other) noexcept;
  AlignedMemory& operator=(AlignedMemory&& other) noexcept;
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// The same, and pinned: the target of one copy, and the source of direct I/O. Throws no_memory,
// too.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::uint64_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&&) noexcept = default;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  std::byte* data() const { return memory_.data(); }
  std::uint64_t bytes() const { return memory_.bytes(); }

 private:
  AlignedMemory memory_;
};

// Functions throw std::runtime_error, with the system's words.
// Thread safety: write() and read() from any number of threads, the rest while nothing else runs.
class DiskFile {
 public:
  // Makes a file of zeros, rounded up to whole pages, and syncs it.
  DiskFile(std::string path, std::uint64_t bytes);
  // Opens one that is there, for reading. Where it is cached, it is taken out of the cache.
  static DiskFile open_cold(const std::string& path);
  ~DiskFile();
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&&) = delete;

  struct Piece {
    std::uint64_t offset;
    std::byte* memory;
    std::uint64_t bytes;
  };
  void write(const Piece& piece);
  void read(const Piece& piece) const;
  // In parts of 4 MiB at most, by the team's threads.
  void write(Team& team, std::span<const Piece> pieces);
  void read(Team& team, const Piece& whole) const;
  void sync();

  std::uint64_t bytes() const { return bytes_; }
  bool direct() const { return direct_; }
  const std::string& path() const { return path_; }

 private:
  DiskFile() = default;
  // Falls back to the page cache where the file system refuses what it seemed to grant.
  bool goes_on_buffered(int error) const;

  std::string path_;
  std::uint64_t bytes_ = 0;
  int fd_ = -1;
  mutable bool direct_ = true;
};

// Takes a file, or all files of a folder, out of the page cache: as after a reboot. Does what the
// system lets it.
void drop_from_cache(const std::string& path);

// "ext4", "xfs", "tmpfs", ... or the number of the type.
std::string file_system_of(const std::string& folder);
bool is_in_memory(const std::string& file_system);

// Bytes that the system counts as written to storage by this process; 0 where it does not say.
std::uint64_t system_write_bytes();

// The bound: the same bytes in one sequential stream and one sync, to a file of its own.
class PlainStream {
 public:
  PlainStream(std::string path, Team& team) : path_(std::move(path)), team_(team) {}
  ~PlainStream();
  PlainStream(const PlainStream&) = delete;
  PlainStream& operator=(const PlainStream&) = delete;
  // Makes room; for outside of what is timed.
  void reserve(std::uint64_t bytes);
  // Seconds. Rounded up to whole pages.
  double write(std::uint64_t bytes);

 private:
  std::string path_;
  Team& team_;
  std::vector<DiskFile> file_;  // none or one
  AlignedMemory memory_;
  std::uint64_t round_ = 0;
};

}  // namespace power

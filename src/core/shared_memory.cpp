#include "core/shared_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "core/files.hpp"
#include "core/parallel.hpp"
#include "holdfast/error.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace holdfast::core {

using detail::concat;

namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

bool lives_in_memory(const std::string& folder) {
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

std::uint64_t memory_available() {
  std::ifstream file("/proc/meminfo");
  std::uint64_t available = kUnlimited;
  std::uint64_t swap = 0;
  std::string name, unit;
  for (std::uint64_t kib = 0; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemAvailable:") available = kib * 1024;
    if (name == "SwapFree:") swap = kib * 1024;
  }
  return available == kUnlimited ? kUnlimited : available + swap;
}

std::uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : kUnlimited;  // "max" is no number
}

// What the control group (version 2) leaves: a container's memory limit.
std::uint64_t group_available() {
  std::ifstream file("/proc/self/cgroup");
  std::uint64_t least = kUnlimited;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string group = line.substr(3);; group = folder_of(group)) {
      const std::string folder = "/sys/fs/cgroup" + (group == "/" ? "" : group);
      const std::uint64_t limit = number_in(folder + "/memory.max");
      const std::uint64_t used = number_in(folder + "/memory.current");
      if (limit != kUnlimited && used != kUnlimited) {
        least = std::min(least, limit > used ? limit - used : 0);
      }
      if (group == "/" || group == "." || group.empty()) break;
    }
  }
  return least;
}

[[noreturn]] void too_little(const std::string& folder, std::uint64_t bytes) {
  throw Error(Errc::no_shared_memory,
              concat("no room for the region's arena: it needs ", human_bytes(bytes), " (", bytes,
                     " bytes), and '", folder, "' has ", human_bytes(shared_bytes_free(folder)),
                     " left; use a smaller region, enlarge the folder (mount -o remount,size=..., "
                     "or docker --shm-size), or name another folder in memory with "
                     "HOLDFAST_ARENA_DIR"));
}

}  // namespace

std::uint64_t memory_free() { return std::min(memory_available(), group_available()); }

std::uint64_t shared_bytes_free(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) throw system_error(errno, "look at", folder);
  // A file system without a limit (tmpfs with size=0) reports no blocks at all.
  std::uint64_t bytes =
      info.f_blocks == 0 ? kUnlimited : std::uint64_t{info.f_bavail} * info.f_frsize;
  if (lives_in_memory(folder)) bytes = std::min(bytes, memory_free());
  return bytes;
}

namespace {

[[noreturn]] void allocation_failed(int error_number, const std::string& folder,
                                    std::uint64_t bytes) {
  switch (error_number) {
    case ENOSPC:
    case ENOMEM:
    case EDQUOT:
    case EFAULT:  // a store there would have been a bus error
      too_little(folder, bytes);
    case EOPNOTSUPP:
      throw Error(Errc::unsupported,
                  concat("the file system of '", folder,
                         "' cannot set memory aside (fallocate); name a folder on tmpfs with "
                         "HOLDFAST_ARENA_DIR"));
    default:
      throw system_error(error_number, "allocate the arena in", folder);
  }
}

// Pieces are taken by several threads; and a signal makes the system undo and repeat the piece
// at hand.
constexpr std::uint64_t kPiece = std::uint64_t{64} << 20;

void allocate_in_file(int fd, const std::string& folder, std::uint64_t offset,
                      std::uint64_t bytes) {
  const IgnoreFileSizeSignal guard;
  for (std::uint64_t done = 0; done < bytes; done += kPiece) {
    int result;
    do {
      result = ::fallocate(fd, 0, static_cast<off_t>(offset + done),
                           static_cast<off_t>(std::min(kPiece, bytes - done)));
    } while (result != 0 && errno == EINTR);
    if (result != 0) allocation_failed(errno, folder, bytes);
  }
}

}  // namespace

int populate(std::byte* address, std::uint64_t bytes) {
  std::atomic<int> error{0};
  parallel_for((bytes + kPiece - 1) / kPiece, worker_count(), [&](std::size_t i) {
    const std::uint64_t from = i * kPiece;
    while (error == 0 &&
           ::madvise(address + from, std::min(kPiece, bytes - from), MADV_POPULATE_WRITE) != 0) {
      if (errno != EINTR && errno != EAGAIN) error = errno;
    }
  });
  return error;
}

void enlarge_shared(int fd, const std::string& folder, std::uint64_t end, std::uint64_t bytes) {
  // Asked beforehand, because memory that the file system promises and the machine does not have
  // ends in the system killing processes.
  if (shared_bytes_free(folder) < bytes) too_little(folder, bytes);
  const IgnoreFileSizeSignal guard;
  if (::ftruncate(fd, static_cast<off_t>(end + bytes)) != 0) {
    allocation_failed(errno, folder, bytes);
  }
}

void allocate_shared(int fd, const std::string& folder, std::uint64_t offset, std::uint64_t bytes,
                     std::byte* address) {
  if (!lives_in_memory(folder)) {
    allocate_in_file(fd, folder, offset, bytes);
    return;
  }
  // fallocate() is one at a time, and the first touch of each page would come on top.
  const int error = populate(address, bytes);
  if (error == EINVAL) {  // Linux before 5.14
    allocate_in_file(fd, folder, offset, bytes);
  } else if (error != 0) {
    allocation_failed(error, folder, bytes);
  }
}

}  // namespace holdfast::core

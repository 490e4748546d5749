#include "core/shared_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "core/files.hpp"
#include "holdfast/error.hpp"

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

void allocate_shared(int fd, const std::string& folder, std::uint64_t offset, std::uint64_t bytes) {
  // Asked beforehand, because memory that the file system promises and the machine does not have
  // ends in the system killing processes.
  if (shared_bytes_free(folder) < bytes) too_little(folder, bytes);
  const IgnoreFileSizeSignal guard;
  // In pieces, because a signal makes the system undo and repeat the piece at hand.
  constexpr std::uint64_t kPiece = std::uint64_t{128} << 20;
  int result = 0;
  for (std::uint64_t done = 0; done < bytes && result == 0; done += kPiece) {
    do {
      result = ::fallocate(fd, 0, static_cast<off_t>(offset + done),
                           static_cast<off_t>(std::min(kPiece, bytes - done)));
    } while (result != 0 && errno == EINTR);
  }
  if (result == 0) return;
  if (errno == ENOSPC || errno == ENOMEM || errno == EDQUOT) too_little(folder, bytes);
  if (errno == EOPNOTSUPP) {
    throw Error(Errc::unsupported,
                concat("the file system of '", folder,
                       "' cannot set memory aside (fallocate); name a folder on tmpfs with "
                       "HOLDFAST_ARENA_DIR"));
  }
  throw system_error(errno, "allocate the arena in", folder);
}

}  // namespace holdfast::core

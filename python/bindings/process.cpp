// The process around the interpreter: how it ends, and what a fork leaves in its child.
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "bindings.hpp"

namespace holdfast::python {
namespace {

std::atomic<pid_t> failed_process = 0;

// What Python's own handlers raise does not change the exit status, and leaving from within one
// would skip the others. This one runs behind the whole interpreter; what it skips are the handlers
// of libraries that were loaded before it.
void end_process(int status, void* /*argument*/) {
  if (status != 0 || failed_process != ::getpid()) return;
  std::fflush(nullptr);
  ::_exit(EXIT_FAILURE);
}

// A line of /proc/self/maps, such as
// "7f0000000000-7f0000100000 rw-s 00000000 00:19 4711   /dev/shm/...".
struct Mapping {
  std::uintptr_t first = 0, last = 0;
  off_t offset = 0;  // in the file
  dev_t device = 0;
  ino_t inode = 0;  // 0: of no file
};

std::vector<Mapping> mappings() {
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    Mapping mapping;
    char dash = 0, colon = 0;
    std::string access;
    unsigned major_number = 0, minor_number = 0;
    if (!(words >> std::hex >> mapping.first >> dash >> mapping.last >> access >> mapping.offset >>
          major_number >> colon >> minor_number >> std::dec >> mapping.inode)) {
      continue;
    }
    mapping.device = makedev(major_number, minor_number);
    found.push_back(mapping);
  }
  return found;
}

// The inode of the file that is mapped at `base`; 0 if there is none.
ino_t mapped_inode(const void* base) {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  for (const Mapping& mapping : mappings()) {
    if (mapping.first <= address && address < mapping.last) return mapping.inode;
  }
  return 0;
}

bool has_lock(int fd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("lock:", 0) != 0) continue;
    for (const char* kind : {"FLOCK", "OFDLCK"}) {
      if (line.find(kind) != std::string::npos) return true;
    }
  }
  return false;
}

// Maps what is mapped of a file within a range once more, privately, by a descriptor of its own.
void map_anew(int fd, const std::byte* first, const std::byte* last) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  for (const Mapping& mapping : mappings()) {
    if (mapping.inode != info.st_ino || mapping.device != info.st_dev ||
        mapping.first < reinterpret_cast<std::uintptr_t>(first) ||
        mapping.last > reinterpret_cast<std::uintptr_t>(last)) {
      continue;
    }
    const std::string again = "/proc/self/fd/" + std::to_string(fd);
    const int unlocked = ::open(again.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (unlocked < 0) return;
    ::mmap(reinterpret_cast<void*>(mapping.first), mapping.last - mapping.first,
           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, unlocked,
           mapping.offset);
    ::close(unlocked);
  }
}

}  // namespace

void fail_at_exit() noexcept { failed_process = ::getpid(); }

void watch_exit() { ::on_exit(end_process, nullptr); }

bool is_running(pid_t process) {
  if (::getppid() == process) return true;
  // A line such as "4711 (python3) S 1 ..."; one that has ended and was not waited for is a Z.
  std::ifstream status("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(status, line)) return false;
  const std::size_t name_end = line.rfind(')');
  const char state = name_end + 2 < line.size() ? line[name_end + 2] : 'X';
  return state != 'Z' && state != 'X';
}

std::vector<ino_t> inodes_of(const std::string& path, const void* base) {
  std::vector<ino_t> inodes;
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) inodes.push_back(info.st_ino);
  if (const ino_t inode = mapped_inode(base)) inodes.push_back(inode);
  return inodes;
}

std::set<ino_t> locked_inodes() {
  std::set<ino_t> inodes;
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return inodes;
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    struct stat info {};
    if (::fstat(fd, &info) == 0 && has_lock(fd)) inodes.insert(info.st_ino);
  }
  ::closedir(folder);
  return inodes;
}

void leave_inherited_locks(const std::vector<ino_t>& inodes, const std::byte* first,
                           const std::byte* last) noexcept {
  // A lock lasts until every copy of its descriptor is closed and unmapped, those in children
  // included.
  std::vector<int> found;
  try {
    DIR* const folder = ::opendir("/proc/self/fd");
    if (folder == nullptr) return;
    while (const dirent* const entry = ::readdir(folder)) {
      const int fd = std::atoi(entry->d_name);
      struct stat info {};
      if (fd <= 2 || ::fstat(fd, &info) != 0) continue;
      const bool ours = std::find(inodes.begin(), inodes.end(), info.st_ino) != inodes.end();
      if (ours && has_lock(fd)) found.push_back(fd);
    }
    ::closedir(folder);
    for (const int fd : found) map_anew(fd, first, last);
  } catch (const std::exception&) {
    // No memory: what was not found stays open, as it would without this.
  }
  for (const int fd : found) ::close(fd);
}

}  // namespace holdfast::python

#include "core/lock_holder.hpp"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "core/process.hpp"
#include "holdfast/error.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

// Bounds of a search, for machines with very many processes.
constexpr int kMostProcesses = 4096;
constexpr int kMostDescriptors = 4096;  // of one process

struct File {
  dev_t device = 0;
  ino_t inode = 0;
};

// The process that took a lock on the file, from lines such as
// "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"; 0 if it is not told.
long taker_of_lock(const File& file) {
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "%02x:%02x:%lu", major(file.device), minor(file.device),
                static_cast<unsigned long>(file.inode));
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, inode;
    long pid = 0;
    if (words >> number >> kind >> advisory >> access >> pid >> inode && kind == "FLOCK" &&
        inode == wanted && pid > 0) {
      return pid;
    }
  }
  return 0;
}

// Calls `visit` with the names in a folder of /proc that are numbers until it says that it has
// found something. Returns whether it did; `readable` says whether there was a folder to read.
bool find_number(const std::string& folder, int most, const std::function<bool(long)>& visit,
                 bool* readable = nullptr) {
  DIR* const handle = ::opendir(folder.c_str());
  if (readable != nullptr) *readable = handle != nullptr;
  if (handle == nullptr) return false;
  bool found = false;
  while (const dirent* const entry = ::readdir(handle)) {
    char* end = nullptr;
    const long number = std::strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || *end != '\0') continue;
    if (--most < 0) break;
    if (visit(number)) {
      found = true;
      break;
    }
  }
  ::closedir(handle);
  return found;
}

// Locks belong to what open() gave: a descriptor of the same file that was opened by itself has
// none.
bool has_lock(const std::string& process, long fd) {
  std::ifstream info(concat(process, "/fdinfo/", fd));
  if (!info) return true;
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("lock:", 0) == 0 && line.find("FLOCK") != std::string::npos) return true;
  }
  return false;
}

// A mapping keeps what it is of open, from lines such as
// "7f0000000000-7f0000100000 rw-s 00000000 00:1b 4711   /dev/shm/...".
bool maps(const std::string& process, const File& file) {
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "%02x:%02x", major(file.device), minor(file.device));
  std::ifstream lines(process + "/maps");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string range, access, offset, device;
    ino_t inode = 0;
    if (words >> range >> access >> offset >> device >> inode && inode == file.inode &&
        device == wanted) {
      return true;
    }
  }
  return false;
}

enum class Holds { yes, no, unknown };

Holds holds(long pid, const File& file) {
  const std::string process = concat("/proc/", pid);
  bool readable = false;
  const bool found = find_number(
      process + "/fd", kMostDescriptors,
      [&](long fd) {
        struct stat info {};
        return ::stat(concat(process, "/fd/", fd).c_str(), &info) == 0 &&
               info.st_dev == file.device && info.st_ino == file.inode && has_lock(process, fd);
      },
      &readable);
  if (found || maps(process, file)) return Holds::yes;
  return readable ? Holds::no : Holds::unknown;
}

enum class State { running, zombie, gone };

State state_of(long pid) {
  const char state = state_letter(static_cast<std::uint64_t>(pid));
  if (state == 0) {
    const bool gone = ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
    return gone ? State::gone : State::running;
  }
  return state == 'Z' || state == 'X' ? State::zombie : State::running;
}

// Another process than `taker` that holds the lock; 0 if none is found.
long holder_but(long taker, const File& file) {
  long holder = 0;
  find_number("/proc", kMostProcesses, [&](long pid) {
    if (pid == taker || pid == ::getpid() || holds(pid, file) != Holds::yes) return false;
    holder = pid;
    return true;
  });
  return holder;
}

}  // namespace

LockHolder lock_holder(int fd) {
  const std::string close_there = "; close it there first";
  struct stat info {};
  if (::fstat(fd, &info) != 0) return {"another process" + close_there, true};
  const File file{info.st_dev, info.st_ino};
  const long taker = taker_of_lock(file);
  if (taker == 0) {
    // In a namespace of process numbers locks are not told of who is not in it, or has ended.
    if (holds(::getpid(), file) == Holds::yes) return {"this process" + close_there, true};
    const long holder = holder_but(0, file);
    if (holder != 0) return {concat("process ", holder, close_there), true};
    return {"another process" + close_there, false};
  }
  const std::string named = concat("process ", taker);
  const std::string plain = (taker == ::getpid() ? "this process" : named) + close_there;
  const State state = state_of(taker);
  if (state == State::running && holds(taker, file) != Holds::no) return {plain, true};
  if (taker != ::getpid() && holds(::getpid(), file) == Holds::yes) {
    return {concat("this process, which ", named, " forked; close it here first"), true};
  }
  const long holder = holder_but(taker, file);
  if (holder != 0) return {concat("process ", holder, ", which ", named, " forked; end it"), true};
  if (state == State::gone) {
    return {concat("a process that ", named, " forked, which itself has ended", close_there),
            false};
  }
  return {plain, false};
}

}  // namespace holdfast::core

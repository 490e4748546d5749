#include "core/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include "core/lock_holder.hpp"

namespace holdfast::core {

using detail::concat;

int UniqueFd::above_standard_streams(int fd) {
  const int above = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  const int error = errno;
  ::close(fd);
  errno = error;
  return above;
}

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool is_shortage(int error_number) noexcept {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOMEM;
}

Error system_error(int error_number, const std::string& action, const std::string& path) {
  const std::string start =
      concat("cannot ", action, " '", path, "': ", std::strerror(error_number));
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return {Errc::not_found, concat(start, "; check the path")};
    case EEXIST:
      return {Errc::already_exists, concat(start, "; choose another name or remove it")};
    case EACCES:
    case EPERM:
      return {Errc::permission,
              concat(start, "; check the owner and the mode of it and its folder")};
    case EROFS:
      return {Errc::permission, concat(start, "; regions need a writable file system")};
    case ELOOP:
      return {Errc::permission,
              concat("'", path,
                     "' is a symbolic link, which is not followed; give the file's own path")};
    case ENOSPC:
    case EDQUOT:
      return {Errc::no_space,
              concat(start, "; free space there (or raise the quota) and try again")};
    case EFBIG:
      return {Errc::no_space,
              concat(start, "; raise the file-size limit (ulimit -f) or use another file system")};
    case ENAMETOOLONG:
      return {Errc::invalid_argument, concat(start, "; use a shorter path")};
    case ENOMEM:
      return {Errc::no_memory, start};
    case EISDIR:
      return {Errc::invalid_argument, concat("'", path, "' is a folder, not a region")};
    case ENXIO:
      return {Errc::invalid_argument, concat("'", path, "' is a socket or a pipe, not a region")};
    case EMFILE:
    case ENFILE:
      return {Errc::io, concat(start, "; close files or raise the limit (ulimit -n)")};
    default:
      return {Errc::io, start};
  }
}

namespace {

void check_regular_and_own(const struct stat& info, const std::string& path,
                           const std::string& what) {
  if (S_ISDIR(info.st_mode)) {
    throw Error(Errc::invalid_argument, concat("'", path, "' is a folder, not ", what));
  }
  if (!S_ISREG(info.st_mode)) {
    const char* kind = S_ISFIFO(info.st_mode)   ? "a pipe"
                       : S_ISSOCK(info.st_mode) ? "a socket"
                                                : "a device";
    throw Error(Errc::invalid_argument, concat("'", path, "' is ", kind, ", not ", what));
  }
  if (info.st_uid != ::geteuid()) {
    throw Error(Errc::permission,
                concat("'", path, "' belongs to user ", info.st_uid, ", and this process runs as ",
                       ::geteuid(), "; run as its owner, or chown it"));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(Errc::permission, concat("others may write '", path,
                                         "', so its content cannot be trusted; chmod go-w it"));
  }
}

}  // namespace

UniqueFd open_own_file(const std::string& path, bool writable, const std::string& what) {
  // O_NONBLOCK: opening a pipe must not wait for its other end. It means nothing for files.
  const int flags = (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  UniqueFd fd(::open(path.c_str(), flags));
  struct stat info {};
  if (!fd) {
    const int error = errno;
    // A refusal of something that is no file at all is better explained by what it is.
    if (error != ENOENT && ::lstat(path.c_str(), &info) == 0 && !S_ISLNK(info.st_mode)) {
      check_regular_and_own(info, path, what);
    }
    throw system_error(error, "open", path);
  }
  if (::fstat(fd.get(), &info) != 0) throw system_error(errno, "look at", path);
  check_regular_and_own(info, path, what);
  return fd;
}

namespace {

int try_lock(int fd, int operation) {
  int result;
  do {
    result = ::flock(fd, operation | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

// A lock that no process has is about to be free: the system closes the files of a process that was
// killed after it has reported its end.
void lock_file(int fd, bool exclusive, const std::string& path) {
  constexpr std::chrono::seconds kMostWait{2};
  const int operation = exclusive ? LOCK_EX : LOCK_SH;
  int error = try_lock(fd, operation);
  if (error == EWOULDBLOCK && !lock_holder(fd).was_found) {
    const auto end = std::chrono::steady_clock::now() + kMostWait;
    while (error == EWOULDBLOCK && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      error = try_lock(fd, operation);
    }
  }
  if (error == 0) return;
  if (error != EWOULDBLOCK) throw system_error(error, "lock", path);
  throw Error(Errc::in_use, concat("'", path, "' is in use by ", lock_holder(fd).words));
}

void unlock_file(int fd) noexcept { ::flock(fd, LOCK_UN); }

void check_lock_holds(int fd, bool exclusive, const std::string& path) {
  const int access = (exclusive ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK;
  const UniqueFd again(::open(concat("/proc/self/fd/", fd).c_str(), access));
  if (!again) throw system_error(errno, "open once more", path);
  if (try_lock(again.get(), LOCK_EX) != 0) return;
  throw Error(Errc::unsupported,
              concat("the file system of '", path,
                     "' gives one lock to two: nothing would keep a second process out; use a "
                     "local file system (ext4, XFS, Btrfs, tmpfs), or mount this one with locks"));
}

// ---- NewFile ----------------------------------------------------------------------------------

bool NewFile::use_named_temporaries = false;

namespace {

constexpr char kTemporarySuffix[] = ".holdfast-tmp";

// Removes temporaries whose maker is dead: only a dead maker's lock can be taken.
void remove_dead_temporaries(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(::opendir(folder.c_str()), ::closedir);
  if (!handle) return;
  while (const dirent* entry = ::readdir(handle.get())) {
    const std::string name = entry->d_name;
    const std::size_t suffix = sizeof kTemporarySuffix - 1;
    if (name.size() <= suffix ||
        name.compare(name.size() - suffix, suffix, kTemporarySuffix) != 0) {
      continue;
    }
    const std::string path = folder + "/" + name;
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0) continue;
    if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) continue;
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

}  // namespace

NewFile::NewFile(const std::string& folder, const std::string& name)
    : folder_(folder), name_(name) {
  if (!use_named_temporaries) {
    fd_ = UniqueFd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    const int error = errno;
    if (!fd_ && error != EOPNOTSUPP && error != EISDIR && error != EINVAL && error != ENOENT) {
      throw system_error(error, "make a file in", folder);
    }
  }
  if (!fd_) open_named();
  if (temporary_.empty()) lock_file(fd_.get(), true, folder_ + "/" + name_);
}

void NewFile::open_named() {
  remove_dead_temporaries(folder_);
  std::random_device random;
  for (int attempt = 0; attempt < 16; ++attempt) {
    const std::string path =
        concat(folder_, "/.", name_, ".", ::getpid(), ".", random(), kTemporarySuffix);
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) {
      if (errno == EEXIST) continue;
      throw system_error(errno, "make a file in", folder_);
    }
    // Another process's clean-up may come between creation and lock: then try another name.
    struct stat info {};
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || ::fstat(fd.get(), &info) != 0 ||
        info.st_nlink == 0) {
      continue;
    }
    temporary_ = path;
    fd_ = std::move(fd);
    return;
  }
  throw Error(Errc::io, concat("cannot make a temporary file in '", folder_, "'; try again"));
}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

UniqueFd NewFile::publish() {
  const std::string target = folder_ + "/" + name_;
  const std::string source = temporary_.empty() ? concat("/proc/self/fd/", fd_.get()) : temporary_;
  if (::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, target.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    throw system_error(errno, "create", target);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    temporary_.clear();
  }
  return std::move(fd_);
}

// ---- Paths and bytes --------------------------------------------------------------------------

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string base_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string absolute_path(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(path.c_str(), nullptr), ::free);
  return resolved ? std::string(resolved.get()) : from_anywhere(path);
}

std::string from_anywhere(const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) throw system_error(error.value(), "find the working folder for", path);
  return absolute.string();
}

void sync_folder_of(const std::string& path) {
  const std::string folder = folder_of(path);
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw system_error(errno, "open the folder", folder);
  // Some file systems cannot sync a folder and say EINVAL; there is nothing more to be done.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) throw system_error(errno, "sync", folder);
}

bool read_exactly(int fd, void* data, std::size_t bytes, std::uint64_t offset,
                  const std::string& path) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, to, bytes, static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      throw system_error(errno, "read", path);
    }
    if (got == 0) return false;
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

int write_exactly(int fd, const void* data, std::size_t bytes, std::uint64_t offset) noexcept {
  const IgnoreFileSizeSignal guard;
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (put < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (put == 0) return ENOSPC;
    from += put;
    offset += static_cast<std::uint64_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
  return 0;
}

std::span<iovec> skip_bytes(std::span<iovec> parts, std::size_t bytes) noexcept {
  while (!parts.empty() && bytes >= parts.front().iov_len) {
    bytes -= parts.front().iov_len;
    parts = parts.subspan(1);
  }
  if (bytes > 0) {
    parts.front().iov_base = static_cast<std::byte*>(parts.front().iov_base) + bytes;
    parts.front().iov_len -= bytes;
  }
  return parts;
}

IgnoreFileSizeSignal::IgnoreFileSizeSignal() noexcept {
  sigset_t signal, before;
  sigemptyset(&signal);
  sigaddset(&signal, SIGXFSZ);
  if (pthread_sigmask(SIG_BLOCK, &signal, &before) == 0) {
    blocked_ = sigismember(&before, SIGXFSZ) == 0;
  }
}

IgnoreFileSizeSignal::~IgnoreFileSizeSignal() {
  if (!blocked_) return;
  const int saved = errno;
  sigset_t signal, pending;
  sigemptyset(&signal);
  sigaddset(&signal, SIGXFSZ);
  if (sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1) {
    const timespec now{};
    sigtimedwait(&signal, nullptr, &now);
  }
  pthread_sigmask(SIG_UNBLOCK, &signal, nullptr);
  errno = saved;
}

std::string human_bytes(std::uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

}  // namespace holdfast::core

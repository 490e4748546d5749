// Files as the region layer needs them: never through a symbolic link, never someone else's,
// made whole or not at all, locked against a second process.
#pragma once

#include <sys/stat.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "holdfast/error.hpp"

namespace holdfast::core {

class UniqueFd {
 public:
  UniqueFd() = default;
  // A file gets none of the numbers 0 to 2, which are free where a program has closed its standard
  // streams: what anyone prints there would be written over it.
  explicit UniqueFd(int fd) : fd_(fd >= 0 && fd <= 2 ? above_standard_streams(fd) : fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  static int above_standard_streams(int fd);  // -1 and errno where there is no other number
  int fd_ = -1;
};

// The Error for a failed system call on `path`, with the remedy where there is one.
Error system_error(int error_number, const std::string& action, const std::string& path);

// Whether a system call failed for want of descriptors or memory, which says nothing about what it
// asked for.
bool is_shortage(int error_number) noexcept;

// Opens a regular file that belongs to this user and that no one else may write. Throws
// not_found, permission (link, other owner, group or world writable, refused), invalid_argument
// (a folder, a pipe, a device), io. Never blocks. `what` names the kind of file in messages.
UniqueFd open_own_file(const std::string& path, bool writable, const std::string& what);

// Takes the advisory lock of an open file: exclusive for a writer, shared for a reader. Throws
// in_use, naming the process that has it if /proc/locks tells. A dead process's lock is gone, or
// will be in a moment: waits for that, up to two seconds.
void lock_file(int fd, bool exclusive, const std::string& path);
// At once, and for every copy of the descriptor, those that forked children have included.
void unlock_file(int fd) noexcept;

// REQUIRES: lock_file() succeeded. Tries the same lock from another descriptor. Throws unsupported
// if it can be had twice: then locks do nothing on this file system.
void check_lock_holds(int fd, bool exclusive, const std::string& path);

// A file under construction: invisible (O_TMPFILE) or, where the file system cannot do that,
// under a temporary name that the next construction in the folder cleans up.
class NewFile {
 public:
  // Mode 0600, opened for reading and writing, exclusively locked. Throws permission, io,
  // no_space, not_found (no such folder).
  NewFile(const std::string& folder, const std::string& name);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  int fd() const { return fd_.get(); }
  // Gives the file its name, atomically and only if that is free. Throws already_exists, io.
  // Returns the descriptor, still locked.
  UniqueFd publish();

  // Tests: behave as on a file system without O_TMPFILE.
  static bool use_named_temporaries;

 private:
  void open_named();
  std::string folder_, name_, temporary_;
  UniqueFd fd_;
};

void sync_folder_of(const std::string& path);
std::string folder_of(const std::string& path);
std::string base_name(const std::string& path);
std::string absolute_path(const std::string& path);
// The same file or folder whatever the working folder becomes.
std::string from_anywhere(const std::string& path);

// Reads exactly `bytes`; false if the file ends before. Throws io.
bool read_exactly(int fd, void* data, std::size_t bytes, std::uint64_t offset,
                  const std::string& path);
// Writes exactly `bytes`. Returns 0 or the errno. A file-size limit is an error, not a signal.
int write_exactly(int fd, const void* data, std::size_t bytes, std::uint64_t offset) noexcept;

// What is left of the parts of a vectored read or write once `bytes` are done.
std::span<iovec> skip_bytes(std::span<iovec> parts, std::size_t bytes) noexcept;

// While it lives, crossing RLIMIT_FSIZE on this thread gives EFBIG and no SIGXFSZ.
class IgnoreFileSizeSignal {
 public:
  IgnoreFileSizeSignal() noexcept;
  ~IgnoreFileSizeSignal();
  IgnoreFileSizeSignal(const IgnoreFileSizeSignal&) = delete;
  IgnoreFileSizeSignal& operator=(const IgnoreFileSizeSignal&) = delete;

 private:
  bool blocked_ = false;
};

// "512 B", "64.0 MiB".
std::string human_bytes(std::uint64_t bytes);

}  // namespace holdfast::core

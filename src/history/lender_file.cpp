#include "history/lender_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/checksum.hpp"

namespace holdfast::history {

using core::UniqueFd;
using holdfast::detail::concat;

namespace {

constexpr const char* kWhat = "what a partner's memory is lent by";

template <class Record>
std::uint64_t checksum_of(const Record& record) {
  return core::hash_bytes(&record, offsetof(Record, checksum));
}

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Whether the lender's lock is free, and this one's from here on.
bool takes_lock(int fd, const std::string& path) {
  const struct flock lock = whole_file();
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  throw core::system_error(errno, "lock", path);
}

core::ProcessName process_of(const LenderRecord& record) {
  return {record.pid, record.start, record.pid_namespace};
}

bool is_at(const std::string& path, int fd) {
  struct stat named {
  }, opened{};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

bool is_lenders(int fd, const std::string& path, LenderRecord& record) {
  return core::read_exactly(fd, &record, sizeof(record), 0, path) &&
         record.magic == LenderRecord::kMagic;
}

// Removes what a lender has left that has ended. Throws in_use where it has not.
void take_away_ended(const std::string& path) {
  constexpr std::chrono::seconds kMostWait{2};  // for what was killed to be gone
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  for (;;) {
    UniqueFd fd;
    try {
      fd = core::open_own_file(path, true, kWhat);
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) return;
      throw;
    }
    LenderRecord record{};
    if (!is_lenders(fd.get(), path, record)) {
      throw Error(Errc::foreign, concat("'", path, "' is there, and is not ", kWhat,
                                        ": give a path that is free"));
    }
    if (takes_lock(fd.get(), path)) {
      // Another may have done the same a moment ago, and have a new one there.
      if (is_at(path, fd.get()) && ::unlink(path.c_str()) != 0 && errno != ENOENT) {
        throw core::system_error(errno, "remove", path);
      }
      continue;
    }
    const bool ended = core::life_of(process_of(record)) != core::Life::running;
    if (!ended || std::chrono::steady_clock::now() > end) {
      throw Error(Errc::in_use, ended
                                    ? concat("'", path, "' is in use by what process ", record.pid,
                                             ", which has ended, had forked: end that")
                                    : concat("'", path, "' is lent by process ", record.pid,
                                             ": end that, or give each lender a path of its own"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

LenderFile::LenderFile(const std::string& path) : path_(path) {
  try {
    fd_ = core::open_own_file(path, true, kWhat);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    throw Error(Errc::not_found,
                concat("nobody lends memory at '", path,
                       "': start the partner's PartnerMemory first, or check partner_lender"));
  }
  if (!is_lenders(fd_.get(), path, record_)) {
    throw Error(Errc::foreign, concat("'", path, "' is not ", kWhat,
                                      ": give partner_lender the path of a PartnerMemory"));
  }
  if (record_.version > LenderRecord::kVersion) {
    throw Error(Errc::newer_version,
                concat("'", path, "' has version ", record_.version, ", and this library knows ",
                       LenderRecord::kVersion, ": use the library of the lender"));
  }
  const auto has_end = [](const auto& text) {
    return std::memchr(text, 0, sizeof(text)) != nullptr;
  };
  if (record_.version != LenderRecord::kVersion || record_.record_bytes != sizeof(record_) ||
      record_.checksum != checksum_of(record_) || !has_end(record_.backend) ||
      !has_end(record_.device)) {
    throw Error(Errc::damaged, concat("'", path,
                                      "' is damaged: its checksum does not hold; "
                                      "start the PartnerMemory that has made it anew"));
  }
  const core::ProcessName process = process_of(record_);
  if (process.pid == 0 || process.pid_namespace != core::this_process().pid_namespace) return;
  process_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!process_ && core::is_shortage(errno)) {
    throw core::system_error(errno, "watch the process that lends", path);
  }
  // Asked behind it: the descriptor is that of the process meant, or that has ended.
  ended_ = core::life_of(process) != core::Life::running;
}

LenderFile LenderFile::publish(const std::string& path, LenderRecord record) {
  const core::ProcessName process = core::this_process();
  record.magic = LenderRecord::kMagic;
  record.version = LenderRecord::kVersion;
  record.record_bytes = sizeof(record);
  record.pid = process.pid;
  record.start = process.start;
  record.pid_namespace = process.pid_namespace;
  record.checksum = checksum_of(record);
  LeaseRecord lease{};
  lease.checksum = checksum_of(lease);
  for (;;) {
    take_away_ended(path);
    core::NewFile file(core::folder_of(path), core::base_name(path));
    core::check_lock_holds(file.fd(), true, path);
    int error = core::write_exactly(file.fd(), &record, sizeof(record), 0);
    if (error == 0) {
      error = core::write_exactly(file.fd(), &lease, sizeof(lease), LeaseRecord::kOffset);
    }
    if (error != 0) throw core::system_error(error, "write", path);
    if (!takes_lock(file.fd(), path)) throw core::system_error(EAGAIN, "lock", path);
    core::unlock_file(file.fd());  // that is the writer's
    try {
      return LenderFile(path, file.publish(), record);
    } catch (const Error& met) {
      if (met.code() != Errc::already_exists) throw;  // else another was faster: it is named
    }
  }
}

void LenderFile::withdraw() noexcept {
  if (is_at(path_, fd_.get())) ::unlink(path_.c_str());
  struct flock lock = whole_file();
  lock.l_type = F_UNLCK;
  ::fcntl(fd_.get(), F_OFD_SETLK, &lock);  // what was forked has copies of the descriptor
}

bool LenderFile::is_lent() noexcept {
  if (ended_) return false;
  pollfd process{process_.get(), POLLIN, 0};
  if (process_ && ::poll(&process, 1, 0) > 0) ended_ = true;
  struct flock lock = whole_file();
  if (::fcntl(fd_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) ended_ = true;
  return !ended_;
}

std::string LenderFile::lender() const {
  return concat("process ", record_.pid, " (", record_.device, ")");
}

void LenderFile::lock_for_writer() { core::lock_file(fd_.get(), true, path_); }

bool LenderFile::has_writer() const noexcept {
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) return true;
  core::unlock_file(fd_.get());
  return false;
}

LeaseRecord LenderFile::lease() const {
  LeaseRecord lease{};
  const bool whole =
      core::read_exactly(fd_.get(), &lease, sizeof(lease), LeaseRecord::kOffset, path_);
  if (!whole || lease.checksum != checksum_of(lease) ||
      std::memchr(lease.owner, 0, sizeof(lease.owner)) == nullptr) {
    throw Error(Errc::damaged, concat("'", path_,
                                      "' is damaged: it does not tell whose copies are "
                                      "there; start the PartnerMemory anew"));
  }
  return lease;
}

void LenderFile::set_lease(const Lease& lease, const std::string& owner) {
  LeaseRecord record{};
  record.lease = lease;
  std::memcpy(record.owner, owner.data(), std::min(owner.size(), sizeof(record.owner) - 1));
  record.checksum = checksum_of(record);
  const int error = core::write_exactly(fd_.get(), &record, sizeof(record), LeaseRecord::kOffset);
  if (error != 0) throw core::system_error(error, "write", path_);
}

}  // namespace holdfast::history

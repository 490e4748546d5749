#include "history/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "core/process.hpp"

namespace holdfast::history {

using core::UniqueFd;
using detail::concat;

namespace {

class PosixFile : public FolderFile {
 public:
  PosixFile(UniqueFd fd, bool direct) : fd_(std::move(fd)), direct_(direct) {}

  std::int64_t read(void* to, std::size_t bytes, std::uint64_t offset) override {
    return transfer([&] { return ::pread(fd_.get(), to, bytes, static_cast<off_t>(offset)); });
  }
  std::int64_t write(const void* from, std::size_t bytes, std::uint64_t offset) override {
    const core::IgnoreFileSizeSignal guard;
    return transfer([&] { return ::pwrite(fd_.get(), from, bytes, static_cast<off_t>(offset)); });
  }
  int reserve(std::uint64_t bytes) override {
    const core::IgnoreFileSizeSignal guard;
    if (::fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
    // NFS before 4.2, for one. There a full file system is found out by writing.
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) return errno;
    return ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }
  std::int64_t size() override {
    struct stat info {};
    return ::fstat(fd_.get(), &info) == 0 ? info.st_size : -errno;
  }
  int sync() override { return ::fdatasync(fd_.get()) == 0 ? 0 : errno; }

 private:
  // A file system may take O_DIRECT when a file is opened and refuse the first transfer, or one
  // that goes on behind a short one: then the page cache serves it. Of several threads that are
  // refused each comes here, so that none may ask whether another was here already.
  template <class Call>
  std::int64_t transfer(Call&& call) {
    std::int64_t moved = call();
    if (moved < 0 && errno == EINVAL && direct_) {
      const int flags = ::fcntl(fd_.get(), F_GETFL);
      if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) != 0) return -EINVAL;
      moved = call();
    }
    return moved < 0 ? -errno : moved;
  }

  UniqueFd fd_;
  const bool direct_;
};

class PosixFolder : public Folder {
 public:
  PosixFolder(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  ~PosixFolder() override {
    // A forked child has a copy of the descriptor, which would hold on to the lock; and the child's
    // copy of this object must not let go of what is its parent's.
    if (lock_ && maker_.is_this_process()) core::unlock_file(lock_.get());
  }

  Opened open(const std::string& name) override {
    // O_NONBLOCK: opening a pipe must not wait for its other end. It means nothing for files.
    return open_direct(name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  }
  Opened create(const std::string& name) override {
    return open_direct(name, O_RDWR | O_CREAT | O_EXCL);
  }
  int look_for(const std::string& name) override {
    struct stat info {};
    return ::fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  }
  int rename(const std::string& from, const std::string& to) override {
    return ::renameat(fd_.get(), from.c_str(), fd_.get(), to.c_str()) == 0 ? 0 : errno;
  }
  int unlink(const std::string& name) override {
    return ::unlinkat(fd_.get(), name.c_str(), 0) == 0 ? 0 : errno;
  }
  int sync() override {
    // Some file systems cannot sync a folder and say EINVAL; there is nothing more to be done.
    return ::fsync(fd_.get()) == 0 || errno == EINVAL ? 0 : errno;
  }
  int list(std::vector<std::string>& names) override;
  void lock(const std::string& name) override;
  const std::string& path() const override { return path_; }

 private:
  Opened open_direct(const std::string& name, int flags);

  UniqueFd fd_;
  const std::string path_;
  core::Maker maker_;
  UniqueFd lock_;
};

bool is_own_file(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

Folder::Opened PosixFolder::open_direct(const std::string& name, int flags) {
  flags |= O_NOFOLLOW | O_CLOEXEC;
  bool direct = !use_page_cache;
  UniqueFd fd(::openat(fd_.get(), name.c_str(), flags | (direct ? O_DIRECT : 0), 0600));
  if (!fd && direct && errno == EINVAL) {
    direct = false;
    // The name may be there: some file systems make the file and refuse then.
    if ((flags & O_EXCL) != 0) ::unlinkat(fd_.get(), name.c_str(), 0);
    fd = UniqueFd(::openat(fd_.get(), name.c_str(), flags, 0600));
  }
  if (!fd) return {nullptr, errno};
  if (!is_own_file(fd.get())) return {nullptr, EPERM};
  return {std::make_unique<PosixFile>(std::move(fd), direct), 0};
}

int PosixFolder::list(std::vector<std::string>& names) {
  names.clear();
  // Of its own, since a descriptor has one position.
  const int fd = ::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  DIR* const opened = ::fdopendir(fd);
  if (opened == nullptr) {
    const int error = errno;
    ::close(fd);
    return error;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(opened, ::closedir);
  errno = 0;
  while (const dirent* entry = ::readdir(handle.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  return errno;
}

void PosixFolder::lock(const std::string& name) {
  const std::string file = path_ + "/" + name;
  UniqueFd fd(::openat(fd_.get(), name.c_str(),
                       O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
  if (!fd) throw core::system_error(errno, "make or open", file);
  if (!is_own_file(fd.get())) throw core::system_error(EPERM, "use", file);
  core::lock_file(fd.get(), true, file);
  core::check_lock_holds(fd.get(), true, file);
  lock_ = std::move(fd);
}

}  // namespace

std::unique_ptr<Folder> open_folder(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd && errno == ENOTDIR) {
    throw Error(Errc::invalid_argument,
                concat("'", path, "' is no folder; give the folder of a history"));
  }
  if (!fd) throw core::system_error(errno, "open the folder", path);
  return std::make_unique<PosixFolder>(std::move(fd), core::absolute_path(path));
}

}  // namespace holdfast::history

#include "core/exported_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/files.hpp"
#include "core/shared_memory.hpp"

namespace holdfast::backend {

namespace {

struct FileHandle {
  std::uint64_t device, inode;  // which tell the file from another under the descriptor's number
  std::int64_t fd;
};
static_assert(sizeof(FileHandle) <= sizeof(MemoryHandle));

FileHandle decode(const MemoryHandle& handle) {
  FileHandle file;
  std::memcpy(&file, handle.bytes, sizeof(file));
  return file;
}

void* map(int fd, std::size_t bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return address == MAP_FAILED ? nullptr : address;
}

Error no_memory(std::size_t bytes, const std::string& why) {
  return {Errc::no_memory, detail::concat("no room for ", bytes, " bytes of memory to lend: ", why,
                                          "; lend less or free some")};
}

}  // namespace

void* allocate_exported(std::size_t bytes, MemoryHandle& handle) {
  // The system would take what others need before it says that there is too little.
  const std::uint64_t free = core::memory_free();
  if (bytes > free) throw no_memory(bytes, detail::concat(free, " are available on this machine"));
  const int fd = ::memfd_create("holdfast-lent", MFD_CLOEXEC);
  if (fd < 0) throw no_memory(bytes, std::strerror(errno));
  struct stat info {};
  // Taken now, so that no store can fail later.
  const bool taken = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0;
  void* const address = taken && ::fstat(fd, &info) == 0 ? map(fd, bytes) : nullptr;
  if (!address) {
    const int error = errno;
    ::close(fd);
    throw no_memory(bytes, std::strerror(error));
  }
  const FileHandle file{info.st_dev, info.st_ino, fd};
  handle = {};
  std::memcpy(handle.bytes, &file, sizeof(file));
  return address;
}

void free_exported(void* address, std::size_t bytes, const MemoryHandle& handle) noexcept {
  ::munmap(address, bytes);
  ::close(static_cast<int>(decode(handle).fd));
}

void* import_memory(const MemoryHandle& handle, std::uint64_t process, std::size_t bytes) {
  const FileHandle file = decode(handle);
  const std::string path = detail::concat("/proc/", process, "/fd/", file.fd);
  const core::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat info {};
  const auto refuse = [&](const std::string& why) {
    return Error(Errc::unsupported, detail::concat(path, ": ", why));
  };
  if (!fd && core::is_shortage(errno)) throw core::system_error(errno, "open", path);
  if (!fd || ::fstat(fd.get(), &info) != 0) throw refuse(std::strerror(errno));
  if (info.st_dev != file.device || info.st_ino != file.inode ||
      static_cast<std::uint64_t>(info.st_size) != bytes) {
    throw refuse("is another file");
  }
  void* const address = map(fd.get(), bytes);
  if (!address && core::is_shortage(errno)) throw core::system_error(errno, "map", path);
  if (!address) throw refuse(std::strerror(errno));
  return address;
}

void release_imported(void* address, std::size_t bytes) noexcept { ::munmap(address, bytes); }

}  // namespace holdfast::backend

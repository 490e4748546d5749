#include "disk.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <utility>

#include "bench.hpp"
#include "holdfast/stream.hpp"
#include "plain_file.hpp"

namespace power {
namespace {

using bench::check;

constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;

struct FileSystem {
  std::uint64_t magic;
  const char* name;
};
constexpr FileSystem kFileSystems[] = {
    {EXT4_SUPER_MAGIC, "ext4"}, {0x58465342, "xfs"},    {BTRFS_SUPER_MAGIC, "btrfs"},
    {TMPFS_MAGIC, "tmpfs"},     {RAMFS_MAGIC, "ramfs"}, {OVERLAYFS_SUPER_MAGIC, "overlayfs"},
    {NFS_SUPER_MAGIC, "nfs"},   {0x2fc12fc1, "zfs"},
};

}  // namespace

// Mapped rather than allocated: the allocator's memory is set aside for a rival.
AlignedMemory::AlignedMemory(std::uint64_t bytes) : bytes_(disk_rounded(bytes)) {
  void* const made = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (made == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(made);
}

AlignedMemory::~AlignedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

AlignedMemory::AlignedMemory(AlignedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

AlignedMemory& AlignedMemory::operator=(AlignedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedMemory::PinnedMemory(std::uint64_t bytes) : memory_(bytes) {
  holdfast::backend::register_host(memory_.data(), memory_.bytes(), "a buffer for the disk");
}

PinnedMemory::~PinnedMemory() {
  if (data() != nullptr) holdfast::backend::unregister_host(data(), bytes());
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  return *this;
}

DiskFile::DiskFile(std::string path, std::uint64_t bytes)
    : path_(std::move(path)), bytes_(disk_rounded(bytes)) {
  constexpr int kHow = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  fd_ = ::open(path_.c_str(), kHow | O_DIRECT, 0600);
  if (fd_ < 0 && errno == EINVAL) {
    direct_ = false;
    ::unlink(path_.c_str());  // some make it before they refuse
    fd_ = ::open(path_.c_str(), kHow, 0600);
  }
  check(fd_ >= 0, path_.c_str());
  const AlignedMemory zeros(std::min(bytes_, kPieceBytes));
  for (std::uint64_t at = 0; at < bytes_; at += kPieceBytes) {
    write({at, zeros.data(), std::min(kPieceBytes, bytes_ - at)});
  }
  check(::fsync(fd_) == 0, path_.c_str());
}

DiskFile DiskFile::open_cold(const std::string& path) {
  drop_from_cache(path);
  DiskFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (file.fd_ < 0 && errno == EINVAL) {
    file.direct_ = false;
    file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  check(file.fd_ >= 0, path.c_str());
  struct stat info {};
  check(::fstat(file.fd_, &info) == 0, path.c_str());
  file.bytes_ = static_cast<std::uint64_t>(info.st_size);
  return file;
}

DiskFile::~DiskFile() {
  if (fd_ >= 0) ::close(fd_);
}

DiskFile::DiskFile(DiskFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(other.bytes_),
      fd_(std::exchange(other.fd_, -1)),
      direct_(other.direct_) {}

bool DiskFile::goes_on_buffered(int error) const {
  if (error != EINVAL || !direct_) return false;
  direct_ = false;
  const int flags = ::fcntl(fd_, F_GETFL);
  return flags >= 0 && ::fcntl(fd_, F_SETFL, flags & ~O_DIRECT) == 0;
}

void DiskFile::write(const Piece& piece) {
  for (std::uint64_t done = 0; done < piece.bytes;) {
    const ssize_t put = ::pwrite(fd_, piece.memory + done, piece.bytes - done,
                                 static_cast<off_t>(piece.offset + done));
    if (put < 0 && (errno == EINTR || goes_on_buffered(errno))) continue;
    check(put > 0, path_.c_str());
    done += static_cast<std::uint64_t>(put);
  }
}

void DiskFile::read(const Piece& piece) const {
  for (std::uint64_t done = 0; done < piece.bytes;) {
    const ssize_t got = ::pread(fd_, piece.memory + done, piece.bytes - done,
                                static_cast<off_t>(piece.offset + done));
    if (got < 0 && (errno == EINTR || goes_on_buffered(errno))) continue;
    if (got == 0) throw std::runtime_error(path_ + " has been cut short");
    check(got > 0, path_.c_str());
    done += static_cast<std::uint64_t>(got);
  }
}

void DiskFile::write(Team& team, std::span<const Piece> pieces) {
  std::vector<Piece> parts;
  for (const Piece& piece : pieces) {
    for (std::uint64_t at = 0; at < piece.bytes; at += kPieceBytes) {
      parts.push_back(
          {piece.offset + at, piece.memory + at, std::min(kPieceBytes, piece.bytes - at)});
    }
  }
  // Several at a time where they are many, so that threads do not queue for their next one.
  const std::uint64_t chunk = std::max<std::uint64_t>(1, parts.size() / team.threads() / 32);
  team.for_chunks(parts.size(), chunk, [&](unsigned, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = first; i < first + count; ++i) write(parts[i]);
  });
}

void DiskFile::read(Team& team, const Piece& whole) const {
  team.for_chunks(whole.bytes, kPieceBytes,
                  [&](unsigned, std::uint64_t first, std::uint64_t count) {
                    read({whole.offset + first, whole.memory + first, count});
                  });
}

void DiskFile::sync() { check(::fdatasync(fd_) == 0, path_.c_str()); }

void drop_from_cache(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      if (entry.is_regular_file(error)) drop_from_cache(entry.path().string());
    }
    return;
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

std::string file_system_of(const std::string& folder) {
  struct statfs info {};
  check(::statfs(folder.c_str(), &info) == 0, folder.c_str());
  const auto magic = static_cast<std::uint64_t>(info.f_type);
  for (const FileSystem& known : kFileSystems) {
    if (known.magic == magic) return known.name;
  }
  char number[32];
  std::snprintf(number, sizeof(number), "type 0x%llx", static_cast<unsigned long long>(magic));
  return number;
}

bool is_in_memory(const std::string& file_system) {
  return file_system == "tmpfs" || file_system == "ramfs";
}

std::uint64_t system_write_bytes() {
  std::ifstream file("/proc/self/io");
  std::string name;
  for (std::uint64_t value = 0; file >> name >> value;) {
    if (name == "write_bytes:") return value;
  }
  return 0;
}

PlainStream::~PlainStream() { ::unlink(path_.c_str()); }

void PlainStream::reserve(std::uint64_t bytes) {
  bytes = disk_rounded(bytes);
  if (!file_.empty() && file_[0].bytes() >= bytes) return;
  file_.clear();
  ::unlink(path_.c_str());
  file_.emplace_back(path_, bytes);
  memory_ = AlignedMemory();
  memory_ = AlignedMemory(bytes);
  for (std::uint64_t at = 0; at < memory_.bytes(); at += sizeof(at)) {
    const std::uint64_t word = (at + 1) * 0x9e3779b97f4a7c15u;
    std::memcpy(memory_.data() + at, &word, sizeof(word));
  }
}

double PlainStream::write(std::uint64_t bytes) {
  reserve(bytes);
  bytes = disk_rounded(bytes);
  ++round_;
  // No page as it was: a disk might notice.
  for (std::uint64_t at = 0; at < bytes; at += kDiskPage) {
    std::memcpy(memory_.data() + at, &round_, sizeof(round_));
  }
  const DiskFile::Piece whole{0, memory_.data(), bytes};
  return bench::seconds([&] {
    file_[0].write(team_, {&whole, 1});
    file_[0].sync();
  });
}

}  // namespace power

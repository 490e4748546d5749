#include "core/block_reader.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/large_pages.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

constexpr std::size_t kMaxParts = 1024;  // IOV_MAX of Linux

bool is_cached(int fd, std::uint64_t block) {
  alignas(kPage) std::byte probe[kPage];
  iovec part{probe, kPage};
  return ::preadv2(fd, &part, 1, static_cast<off_t>(block * kPage), RWF_NOWAIT) > 0;
}

// A second descriptor that bypasses the page cache, or none.
UniqueFd open_direct(int fd, std::uint64_t sample) {
  UniqueFd direct(::open(concat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  alignas(kPage) std::byte probe[kPage];
  if (direct && ::pread(direct.get(), probe, kPage, static_cast<off_t>(sample * kPage)) !=
                    static_cast<ssize_t>(kPage)) {
    return UniqueFd();  // larger blocks, or a file system that only seems to know O_DIRECT
  }
  return direct;
}

}  // namespace

PageBuffer::PageBuffer(std::uint64_t pages) : memory_(allocate_pages(pages * kPage), std::free) {
  if (!memory_) throw Error(Errc::no_memory, "no memory to read or write the image");
}

BlockReader::BlockReader(const BlockStore& store) : store_(store), discarded_(kDiskGap) {}

BlockReader::BlockReader(const BlockStore& store, std::span<const std::uint64_t> samples)
    : BlockReader(store) {
  const int fd = store.fd();
  if (fd < 0) return;
  std::size_t cached = 0;
  for (const std::uint64_t block : samples) cached += is_cached(fd, block) ? 1 : 0;
  if (samples.empty() || 2 * cached >= samples.size()) {
    gap_ = kCacheGap;
  } else {
    direct_ = open_direct(fd, samples[0]);
  }
}

bool BlockReader::read(std::span<const BlockTarget> targets) const {
  bool whole = true;
  std::array<iovec, kMaxParts> parts;
  for (std::size_t i = 0; i < targets.size();) {
    const std::uint64_t first = targets[i].block;
    std::uint64_t next = first;
    std::size_t count = 0;
    for (; i < targets.size() && count + 2 <= kMaxParts; ++i) {
      const BlockTarget& target = targets[i];
      const std::uint64_t gap = target.block - next;
      if (gap > gap_) break;
      if (gap > 0) parts[count++] = {discarded_.get(), gap * kPage};
      if (count > 0 && gap == 0 &&
          static_cast<std::byte*>(parts[count - 1].iov_base) + parts[count - 1].iov_len ==
              target.to) {
        parts[count - 1].iov_len += kPage;
      } else {
        parts[count++] = {target.to, kPage};
      }
      next = target.block + 1;
    }
    const std::uint64_t offset = first * kPage;
    if (direct_) {
      const ssize_t got = ::preadv(direct_.get(), parts.data(), static_cast<int>(count),
                                   static_cast<off_t>(offset));
      if (got == static_cast<ssize_t>((next - first) * kPage)) continue;
    }
    if (!store_.read_parts(offset, {parts.data(), count})) whole = false;
  }
  return whole;
}

}  // namespace holdfast::core

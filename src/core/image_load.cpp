// Reading an image's pages: runs of neighbours at a time, on several threads, each verified
// while the next ones are being read.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "core/checksum.hpp"
#include "core/image.hpp"
#include "core/parallel.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

bool is_cached(int fd, std::uint64_t offset) {
  alignas(kPage) std::byte probe[kPage];
  iovec part{probe, kPage};
  return ::preadv2(fd, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT) > 0;
}

// A second descriptor that bypasses the page cache, or none. What is not cached yet is read
// faster without going through it, and what is cached is read faster from it; some pages stand
// for all.
UniqueFd open_direct(int fd, const std::vector<std::uint64_t>& samples) {
  std::size_t cached = 0;
  for (const std::uint64_t offset : samples) cached += is_cached(fd, offset) ? 1 : 0;
  if (samples.empty() || 2 * cached >= samples.size()) return UniqueFd();
  UniqueFd direct(::open(concat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  alignas(kPage) std::byte probe[kPage];
  if (direct && ::pread(direct.get(), probe, kPage, static_cast<off_t>(samples[0])) !=
                    static_cast<ssize_t>(kPage)) {
    return UniqueFd();  // larger blocks, or a file system that only seems to know O_DIRECT
  }
  return direct;
}

bool read_run(int direct_fd, int fd, std::byte* to, std::size_t bytes, std::uint64_t offset,
              const std::string& path) {
  if (direct_fd >= 0) {
    const ssize_t got = ::pread(direct_fd, to, bytes, static_cast<off_t>(offset));
    if (got == static_cast<ssize_t>(bytes)) return true;
  }
  return read_exactly(fd, to, bytes, offset, path);
}

}  // namespace

void Image::read_segment(std::uint64_t segment, std::byte* to, int direct_fd,
                         std::vector<std::uint64_t>& bad) const {
  const std::uint64_t first = segment * kSegmentPages;
  const std::uint64_t last = first + kSegmentPages;
  for (std::uint64_t page = first; page < last;) {
    const std::uint64_t head = table_[page];
    if (head == 0) {
      ++page;
      continue;
    }
    std::uint64_t end = page + 1;
    while (end < last && table_[end] != 0 && entry_slot(table_[end]) == entry_slot(head)) ++end;
    std::byte* const target = to + (page - first) * kPage;
    const bool whole = read_run(direct_fd, fd(), target, (end - page) * kPage,
                                page_offset(page, entry_slot(head)), path());
    for (; page < end; ++page) {
      const std::byte* const content = to + (page - first) * kPage;
      if (!whole || !same_content(page_entry(content), table_[page])) bad.push_back(page);
    }
  }
}

void Image::read_all(std::byte* region, const Describe& describe) const {
  constexpr std::uint64_t kSamples = 9;
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    std::uint64_t page = table_.size() * i / kSamples;
    const std::uint64_t end = table_.size() * (i + 1) / kSamples;
    while (page < end && table_[page] == 0) ++page;
    if (page < end) samples.push_back(page_offset(page, entry_slot(table_[page])));
  }
  const UniqueFd direct = open_direct(fd(), samples);
  std::mutex mutex;
  std::vector<std::uint64_t> bad;
  parallel_for(root_.size(), worker_count(), [&](std::size_t segment) {
    if (root_[segment] == 0) return;
    std::vector<std::uint64_t> bad_here;
    if (region != nullptr) {
      read_segment(segment, region + segment * kSegmentPages * kPage, direct.get(), bad_here);
    } else {
      const std::unique_ptr<std::byte, void (*)(void*)> buffer(
          static_cast<std::byte*>(std::aligned_alloc(kPage, kSegmentPages * kPage)), std::free);
      if (!buffer) throw Error(Errc::no_memory, "no memory to read the image");
      read_segment(segment, buffer.get(), direct.get(), bad_here);
    }
    if (bad_here.empty()) return;
    const std::lock_guard lock(mutex);
    bad.insert(bad.end(), bad_here.begin(), bad_here.end());
  });
  if (bad.empty()) return;
  const std::uint64_t first = *std::min_element(bad.begin(), bad.end());
  throw Error(Errc::damaged,
              concat("the region '", path(), "' is damaged: ", describe(first),
                     bad.size() > 1 ? concat(" and ", bad.size() - 1, " more do") : " does",
                     " not match the hash; restore it from a copy"));
}

void Image::load(std::byte* region, const Describe& describe) const { read_all(region, describe); }

void Image::load_metadata(std::byte* metadata) const {
  for (std::uint64_t page = 0; page < kMetadataPages; ++page) {
    if (table_[page] == 0) continue;
    alignas(8) std::byte content[kPage];
    if (!read_exactly(fd(), content, kPage, page_offset(page, entry_slot(table_[page])), path()) ||
        !same_content(page_entry(content), table_[page])) {
      throw Error(Errc::damaged,
                  concat("the region '", path(), "' is damaged: page ", page,
                         page == 0 ? " (the region's header)" : " (the object directory)",
                         " does not match its hash; restore it from a copy"));
    }
    std::memcpy(metadata + page * kPage, content, kPage);
  }
}

void Image::verify(const Describe& describe) const { read_all(nullptr, describe); }

}  // namespace holdfast::core

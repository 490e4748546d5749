#include "core/medium.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/files.hpp"
#include "core/parallel.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::core {

using detail::concat;

void Medium::zero(std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
  std::byte* const start = base() + offset;
  parallel_for((bytes + kPiece - 1) / kPiece, worker_count(), [&](std::size_t i) {
    const std::uint64_t from = i * kPiece;
    std::memset(start + from, 0, std::min(kPiece, bytes - from));
  });
  flush(start, bytes);
}

void Medium::flush(const void*, std::size_t) {}

namespace {

// Large pages of the system: a mapping that is congruent to its file modulo this can use them.
constexpr std::uint64_t kAlignment = std::uint64_t{2} << 20;
// Drivers are reported to cap one registration at 512 GiB.
constexpr std::uint64_t kPinChunk = std::uint64_t{64} << 30;

}  // namespace

struct AddressSpace::Pinned {
  struct Range {
    std::byte* address;
    std::uint64_t bytes;
  };
  std::vector<Range> ranges;
};

AddressSpace::AddressSpace(std::uint64_t max_bytes, std::string what)
    : pinned_(std::make_unique<Pinned>()), what_(std::move(what)) {
  reserved_bytes_ = max_bytes + kAlignment;
  void* address = ::mmap(nullptr, reserved_bytes_, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw Error(Errc::no_memory, concat("cannot reserve ", human_bytes(max_bytes),
                                        " of address space for ", what_, ": ", std::strerror(errno),
                                        "; give a smaller max_size, or raise ulimit -v"));
  }
  reserved_ = static_cast<std::byte*>(address);
  const auto value = reinterpret_cast<std::uintptr_t>(reserved_);
  base_ = reserved_ + ((value + kAlignment - 1) / kAlignment * kAlignment - value);
}

AddressSpace::~AddressSpace() {
  unpin();
  ::munmap(reserved_, reserved_bytes_);
}

void AddressSpace::map(int fd, std::uint64_t from, std::uint64_t to, Sharing sharing) {
  const int kind =
      (sharing == Sharing::all ? MAP_SHARED : MAP_PRIVATE) | (fd < 0 ? MAP_ANONYMOUS : 0);
  void* const wanted = base_ + from;
  const off_t offset = fd < 0 ? 0 : static_cast<off_t>(from);
  if (::mmap(wanted, to - from, PROT_READ | PROT_WRITE, kind | MAP_FIXED, fd, offset) != wanted) {
    throw Error(Errc::no_memory, concat("cannot map ", human_bytes(to - from), " for ", what_, ": ",
                                        std::strerror(errno)));
  }
  // Best effort: fewer page faults and fewer entries in the translation tables.
  ::madvise(wanted, to - from, MADV_HUGEPAGE);
}

void AddressSpace::unmap(std::uint64_t from, std::uint64_t to) noexcept {
  ::mmap(base_ + from, to - from, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void AddressSpace::pin(std::uint64_t from, std::uint64_t to) {
  auto& ranges = pinned_->ranges;
  const std::size_t before = ranges.size();
  try {
    while (from < to) {
      const std::uint64_t bytes = std::min(kPinChunk, to - from);
      ranges.reserve(ranges.size() + 1);
      backend::register_host(base_ + from, bytes, what_);
      ranges.push_back({base_ + from, bytes});
      from += bytes;
    }
  } catch (...) {
    for (; ranges.size() > before; ranges.pop_back()) {
      backend::unregister_host(ranges.back().address, ranges.back().bytes);
    }
    throw;
  }
}

void AddressSpace::unpin() noexcept {
  for (const Pinned::Range& range : pinned_->ranges) {
    backend::unregister_host(range.address, range.bytes);
  }
  pinned_->ranges.clear();
}

}  // namespace holdfast::core

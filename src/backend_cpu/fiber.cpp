#include "backend_cpu/fiber.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "holdfast/error.hpp"

#if HOLDFAST_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace holdfast::cpu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kGuard = std::size_t{1} << 20;  // address space that faults, below all
constexpr std::size_t kColour = 17 * 64;              // an odd number of cache lines between stacks
constexpr std::size_t kCanaryWords = 128;  // more than most frames have, so that few step over it
constexpr std::size_t kSampleStride = 16;  // of the words looked at when a thread ends
constexpr std::uint64_t kCanary = 0x486f6c6466617374;

}  // namespace

StackPool::~StackPool() {
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

void StackPool::configure(std::size_t count, std::size_t bytes) {
  bytes = (bytes + 63) & ~std::size_t{63};
  if (bytes == bytes_ && count <= count_) {
    reset();
    return;
  }
  if (mapping_) munmap(mapping_, mapping_bytes_);
  mapping_ = nullptr;
  bytes_ = 0;
  const std::size_t stride = bytes + kColour;
  const std::size_t room = (bytes + kPage - 1) / kPage * kPage;
  mapping_bytes_ = (kGuard + room + count * stride + kPage - 1) / kPage * kPage;
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED || mprotect(mapping, kGuard, PROT_NONE) != 0) {
    throw Error(Errc::no_memory, concat("no memory for ", count, " stacks of ", bytes,
                                        " bytes: lower HOLDFAST_CPU_STACK"));
  }
  mapping_ = static_cast<std::byte*>(mapping);
  first_ = mapping_ + kGuard + room;
  bytes_ = bytes;
  stride_ = stride;
  count_ = count;
  touched_ = 0;
  free_.clear();
  free_.reserve(count);
}

std::byte* StackPool::take() {
  std::byte* stack;
  if (!free_.empty()) {
    stack = free_.back();
    free_.pop_back();
  } else {
    stack = first_ + touched_++ * stride_;
    auto* const words = reinterpret_cast<std::uint64_t*>(stack);
    std::fill_n(words, kCanaryWords, kCanary);
  }
#if HOLDFAST_FIBER_ASAN
  __asan_unpoison_memory_region(stack, bytes_);
#endif
  return stack;
}

void StackPool::reset() {
  free_.clear();
  for (std::size_t i = touched_; i > 0; --i) free_.push_back(first_ + (i - 1) * stride_);
}

bool StackPool::contains(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  return mapping_ != nullptr && byte >= mapping_ && byte < mapping_ + mapping_bytes_;
}

void StackPool::forget() {
  free_.clear();
  touched_ = 0;
}

#if HOLDFAST_FIBER_ASAN
__attribute__((no_sanitize_address))
#endif
bool StackPool::intact(const std::byte* stack, std::size_t stride) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(stack);
  for (std::size_t i = 0; i < kCanaryWords; i += stride) {
    if (words[i] != kCanary) return false;
  }
  return true;
}

bool StackPool::intact(const std::byte* stack) { return intact(stack, kSampleStride); }

bool StackPool::any_overflow() const {
  for (std::size_t i = 0; i < touched_; ++i) {
    if (!intact(first_ + i * stride_, 1)) return true;
  }
  return false;
}

}  // namespace holdfast::cpu

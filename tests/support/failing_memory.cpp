#include "support/failing_memory.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

std::atomic<bool> g_armed{false};
std::atomic<std::uint64_t> g_count{0};
std::atomic<std::uint64_t> g_first{kNever};  // that fails
std::atomic<std::uint64_t> g_last{0};
std::atomic<bool> g_kills{false};

bool fails() noexcept {
  if (!g_armed) return false;
  const std::uint64_t n = g_count++;
  if (g_kills && n == g_first) ::kill(::getpid(), SIGKILL);
  return !g_kills && n >= g_first && n <= g_last;
}

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (fails()) return nullptr;
  if (bytes == 0) bytes = 1;
  return alignment > alignof(std::max_align_t) ? ::memalign(alignment, bytes) : std::malloc(bytes);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace holdfast::test {

FailingMemory::FailingMemory(std::uint64_t which, Fails how) {
  g_count = 0;
  g_first = which;
  g_last = how == Fails::once ? which : kNever;
  g_kills = how == Fails::to_death;
  g_armed = true;
}

FailingMemory::~FailingMemory() { end(); }

bool FailingMemory::end() {
  g_armed = false;
  return g_count > g_first;
}

}  // namespace holdfast::test

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, 0); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes, 0); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 0);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

// In place of the C library's, for calls from this program.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  if (fails()) {
    errno = ENOMEM;
    return nullptr;
  }
  return ::memalign(alignment, bytes);
}

extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (fails()) return ENOMEM;
  *memory = ::memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}

// The sanitizers map memory for themselves by this name.
#ifndef HOLDFAST_SANITIZE
extern "C" void* mmap(void* address, std::size_t bytes, int access, int flags, int fd,
                      off_t offset) noexcept {
  if (fails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, access, flags, fd, offset));
}
#endif

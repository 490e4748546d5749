#include "workload/cpu_flush.hpp"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace workload {
namespace {

constexpr std::uint64_t kLine = 64;

enum class Instruction { clwb, clflushopt, clflush };

Instruction detect() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return Instruction::clflush;
  if (b & (1u << 24)) return Instruction::clwb;
  if (b & (1u << 23)) return Instruction::clflushopt;
  return Instruction::clflush;
}

const Instruction kInstruction = detect();

using Address = std::uintptr_t;

__attribute__((target("clwb"))) void with_clwb(Address at, Address end) noexcept {
  for (; at < end; at += kLine) _mm_clwb(reinterpret_cast<void*>(at));
}
__attribute__((target("clflushopt"))) void with_clflushopt(Address at, Address end) noexcept {
  for (; at < end; at += kLine) _mm_clflushopt(reinterpret_cast<void*>(at));
}
void with_clflush(Address at, Address end) noexcept {
  for (; at < end; at += kLine) _mm_clflush(reinterpret_cast<const void*>(at));
}

}  // namespace

void flush_lines(const void* address, std::uint64_t bytes) noexcept {
  const auto begin = reinterpret_cast<Address>(address);
  const Address at = begin / kLine * kLine;
  switch (kInstruction) {
    case Instruction::clwb:
      with_clwb(at, begin + bytes);
      break;
    case Instruction::clflushopt:
      with_clflushopt(at, begin + bytes);
      break;
    case Instruction::clflush:
      with_clflush(at, begin + bytes);
      break;
  }
  _mm_sfence();
}

const char* flush_instruction() noexcept {
  switch (kInstruction) {
    case Instruction::clwb:
      return "clwb";
    case Instruction::clflushopt:
      return "clflushopt";
    case Instruction::clflush:
      break;
  }
  return "clflush";
}

void for_chunks(std::uint64_t size, std::uint64_t chunk, unsigned threads,
                const std::function<void(unsigned, std::uint64_t, std::uint64_t)>& body) {
  const std::uint64_t parts = (size + chunk - 1) / chunk;
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto work = [&](unsigned thread) {
    try {
      for (std::uint64_t part; (part = next.fetch_add(1)) < parts;) {
        body(thread, part * chunk, std::min(chunk, size - part * chunk));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
      next = parts;
    }
  };
  std::vector<std::thread> others;
  const auto wanted = static_cast<unsigned>(std::min<std::uint64_t>(parts, std::max(1u, threads)));
  for (unsigned i = 1; i < wanted; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& other : others) other.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace workload

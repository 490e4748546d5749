#include "workload/cpu_flush.hpp"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace workload {
namespace {

constexpr std::uint64_t kLine = 64;

FlushInstruction detect() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return FlushInstruction::clflush;
  if (b & (1u << 24)) return FlushInstruction::clwb;
  if (b & (1u << 23)) return FlushInstruction::clflushopt;
  return FlushInstruction::clflush;
}

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

// Threads flush a line at a time: a count that they share would slow what is measured.
class ThreadCount {
 public:
  ThreadCount() {
    const std::lock_guard lock(mutex);
    all.push_back(this);
  }
  ~ThreadCount() {
    const std::lock_guard lock(mutex);
    ended += bytes_;
    std::erase(all, this);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

  void add(std::uint64_t bytes) {  // only by its thread
    bytes_.store(bytes_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  static std::uint64_t sum() {
    const std::lock_guard lock(mutex);
    std::uint64_t sum = ended;
    for (const ThreadCount* count : all) sum += count->bytes_;
    return sum;
  }

 private:
  static std::mutex mutex;  // guards what follows
  static std::vector<ThreadCount*> all;
  static std::uint64_t ended;
  std::atomic<std::uint64_t> bytes_{0};
};

std::mutex ThreadCount::mutex;
std::vector<ThreadCount*> ThreadCount::all;
std::uint64_t ThreadCount::ended = 0;

}  // namespace

const FlushInstruction kFlushInstruction = detect();

void count_flushed(std::uint64_t bytes) {
  thread_local ThreadCount count;
  count.add(bytes);
}

std::uint64_t flushed_bytes() { return ThreadCount::sum(); }

void flush_lines(const void* address, std::uint64_t bytes) noexcept {
  const auto begin = reinterpret_cast<Address>(address);
  const Address at = begin / kLine * kLine;
  switch (kFlushInstruction) {
    case FlushInstruction::clwb:
      with_clwb(at, begin + bytes);
      break;
    case FlushInstruction::clflushopt:
      with_clflushopt(at, begin + bytes);
      break;
    case FlushInstruction::clflush:
      with_clflush(at, begin + bytes);
      break;
  }
  _mm_sfence();
}

void store_past_caches(void* to, const void* from, std::uint64_t bytes) noexcept {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  const auto copy_cached = [&](std::uint64_t count) {
    std::memcpy(out, in, count);
    flush_lines(out, count);
    out += count;
    in += count;
    bytes -= count;
  };
  const std::uint64_t head = -reinterpret_cast<Address>(to) % kLine;
  if (head != 0 && bytes != 0) copy_cached(std::min(head, bytes));
  for (; bytes >= kLine; out += kLine, in += kLine, bytes -= kLine) {
    __m128i values[4];
    for (int i = 0; i < 4; ++i) {
      values[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in) + i);
    }
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(out) + i, values[i]);
  }
  if (bytes != 0) copy_cached(bytes);
  _mm_sfence();
}

const char* flush_instruction() noexcept {
  switch (kFlushInstruction) {
    case FlushInstruction::clwb:
      return "clwb";
    case FlushInstruction::clflushopt:
      return "clflushopt";
    case FlushInstruction::clflush:
      break;
  }
  return "clflush";
}

Team::Team(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i) others_.emplace_back([this, i] { serve(i); });
}

Team::~Team() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  for (std::thread& other : others_) other.join();
}

void Team::serve(unsigned thread) {
  std::uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return over_ || round_ != seen; });
      if (over_) return;
      seen = round_;
      if (thread >= wanted_) continue;
    }
    work(thread);
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) idle_.notify_one();
  }
}

void Team::work(unsigned thread) {
  try {
    for (std::uint64_t first; (first = next_.fetch_add(chunk_)) < size_;) {
      (*body_)(thread, first, std::min(chunk_, size_ - first));
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    next_ = size_;
  }
}

void Team::for_chunks(std::uint64_t size, std::uint64_t chunk, const Body& body) {
  const std::uint64_t parts = (size + chunk - 1) / chunk;
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    size_ = size;
    chunk_ = chunk;
    next_ = 0;
    error_ = nullptr;
    wanted_ = static_cast<unsigned>(std::min<std::uint64_t>(parts, threads()));
    busy_ = wanted_ > 0 ? wanted_ - 1 : 0;
    ++round_;
  }
  if (busy_ > 0) wake_.notify_all();
  work(0);
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return busy_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

}  // namespace workload

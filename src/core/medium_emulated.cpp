// Shared memory without a file, and what a persist to it costs.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "core/emulated.hpp"
#include "core/medium.hpp"
#include "core/shared_memory.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

struct Emulated {
  const std::byte* base;
  std::uint64_t max_bytes;
  MediumModel model;
};

std::mutex g_mutex;
std::vector<Emulated> g_media;        // guarded by g_mutex
std::atomic<std::size_t> g_count{0};  // so that fences cost nothing where there are none

double cost_ns(const MediumModel& model, std::uint64_t bytes) {
  const double transfer = model.write_bytes_per_second > 0
                              ? 1e9 * static_cast<double>(bytes) / model.write_bytes_per_second
                              : 0;
  return model.persist_latency_ns + transfer;
}

class EmulatedMedium : public Medium {
 public:
  EmulatedMedium(std::uint64_t size, std::uint64_t max_size, const MediumModel& model,
                 const std::string& name)
      : size_(size),
        max_size_(std::max(size, max_size)),
        space_(max_size_, concat("the emulated region '", name, "'")) {
    check_memory(size);
    space_.map(-1, 0, size);
    space_.pin(0, size);
    const std::lock_guard lock(g_mutex);
    g_media.push_back({space_.base(), max_size_, model});
    g_count = g_media.size();
  }

  ~EmulatedMedium() override {
    const std::lock_guard lock(g_mutex);
    std::erase_if(g_media, [&](const Emulated& other) { return other.base == space_.base(); });
    g_count = g_media.size();
  }

  std::byte* base() const override { return space_.base(); }
  std::uint64_t size() const override { return size_; }
  std::uint64_t max_size() const override { return max_size_; }

  void grow(std::uint64_t size) override {
    check_memory(size - size_);
    try {
      space_.map(-1, size_, size);
      space_.pin(size_, size);
    } catch (...) {
      space_.unmap(size_, size);
      throw;
    }
    size_ = size;
  }

  Guarantee guarantee() const override {
    return {Rung::none, Rung::none,
            "an emulated region is ordinary memory of this process: it ends with the process"};
  }

 private:
  static void check_memory(std::uint64_t bytes) {
    const std::uint64_t there = memory_free();
    if (bytes <= there) return;
    throw Error(Errc::no_memory, concat("an emulated region of ", bytes, " bytes does not fit: ",
                                        there, " bytes of memory are free; make it smaller"));
  }

  std::uint64_t size_;
  std::uint64_t max_size_;
  AddressSpace space_;
};

}  // namespace

std::unique_ptr<Medium> make_emulated_medium(std::uint64_t size, std::uint64_t max_size,
                                             const MediumModel& model, const std::string& name) {
  if (!(model.persist_latency_ns >= 0) || !(model.write_bytes_per_second >= 0)) {
    throw Error(Errc::invalid_argument, "a medium's latency and bandwidth cannot be negative");
  }
  return std::make_unique<EmulatedMedium>(size, max_size, model, name);
}

double persist_cost_ns(const void* address, std::uint64_t bytes) noexcept {
  if (g_count.load(std::memory_order_relaxed) == 0) return 0;
  const auto* const at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(g_mutex);
  for (const Emulated& medium : g_media) {
    if (at >= medium.base && at < medium.base + medium.max_bytes)
      return cost_ns(medium.model, bytes);
  }
  return 0;
}

double fence_cost_ns(std::uint64_t bytes) noexcept {
  if (g_count.load(std::memory_order_relaxed) == 0) return 0;
  double slowest = 0;
  const std::lock_guard lock(g_mutex);
  for (const Emulated& medium : g_media) slowest = std::max(slowest, cost_ns(medium.model, bytes));
  return slowest;
}

}  // namespace holdfast::core

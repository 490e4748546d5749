// Shared memory without a file, and what a persist to it costs.
#include <algorithm>
#include <mutex>
#include <vector>

#include "core/domain.hpp"
#include "core/persist_delay.hpp"
#include "core/shared_memory.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

// The persists that a fence waits for are stores of a word each.
constexpr std::uint64_t kPersistBytes = 8;

std::mutex g_mutex;
std::vector<double> g_delays;  // of the media that are open; guarded by g_mutex

// A fence does not know which medium its thread's stores went to: it waits for the slowest.
void set_slowest() {
  const auto slowest = std::max_element(g_delays.begin(), g_delays.end());
  backend::set_persist_delay_ns(slowest == g_delays.end() ? 0 : *slowest);
}

using testing::MediumModel;

double cost_ns(const MediumModel& model, std::uint64_t bytes) {
  return model.persist_latency_ns + 1e9 * model.write_seconds(bytes, testing::Access::aligned);
}

class EmulatedMedium : public Medium {
 public:
  EmulatedMedium(std::uint64_t size, std::uint64_t max_size, const MediumModel& model,
                 const std::string& name)
      : size_(size),
        max_size_(std::max(size, max_size)),
        delay_ns_(cost_ns(model, kPersistBytes)),
        space_(max_size_, concat("the emulated region '", name, "'")) {
    check_memory(size);
    space_.map(-1, 0, size);
    space_.pin(0, size);
    const std::lock_guard lock(g_mutex);
    g_delays.push_back(delay_ns_);
    set_slowest();
  }

  ~EmulatedMedium() override {
    const std::lock_guard lock(g_mutex);
    g_delays.erase(std::find(g_delays.begin(), g_delays.end(), delay_ns_));
    set_slowest();
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
  double delay_ns_;
  AddressSpace space_;
};

// Its throttle is not active: persists wait one by one.
std::unique_ptr<RegionDomain> create(const NewRegion& region) {
  const MediumModel model = model_of(region.options.medium);
  auto medium = std::make_unique<EmulatedMedium>(region.size, region.max_size, model, region.path);
  return std::make_unique<InPlaceDomain>(Domain::emulated, region.path,
                                         formatted(std::move(medium)));
}

}  // namespace

const DomainKind kEmulatedDomain{.domain = Domain::emulated, .name = "emulated", .create = create};

}  // namespace holdfast::core

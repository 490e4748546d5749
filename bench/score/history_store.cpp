// holdfast::History behind the benchmark's interface.
#include <filesystem>

#include "holdfast/history.hpp"
#include "store.hpp"

namespace score {

namespace {

class HistoryStore final : public Store {
 public:
  explicit HistoryStore(const StoreOptions& options)
      : options_(options),
        history_(holdfast::History::open({.gpu_bytes = options.gpu_bytes,
                                          .host_bytes = options.host_bytes,
                                          .disk = options.folder,
                                          .discard_consumed = options.discard_consumed})) {}

  void save(Step step, holdfast::Stream& stream) override {
    protect(step);
    history_.save(step, stream);
  }
  void restore(Step step, holdfast::Stream& stream) override {
    protect(step);
    history_.restore(step, stream);
  }
  void hint(std::span<const Step> steps) override { history_.hint(steps); }
  void prefetch_start() override { history_.prefetch_start(); }
  void flush() override { history_.flush(); }
  std::uint64_t ready(std::span<const Step>) override { return history_.stats().prefetch_distance; }
  StoreCounts counts() override {
    const holdfast::HistoryStats stats = history_.stats();
    StoreCounts counts;
    int place = 0;
    for (const auto tier : {holdfast::Tier::gpu, holdfast::Tier::host, holdfast::Tier::disk}) {
      counts.restored_bytes[place++] = stats.restored_from[static_cast<int>(tier)].bytes;
    }
    for (int tier = 0; tier < 2; ++tier) counts.fetched_bytes[tier] = stats.fetched_to[tier].bytes;
    counts.waits = stats.waits;
    // Beside the cache: ten buffers of 4 MiB, through which checkpoints go past caches.
    counts.pinned_bytes = options_.host_bytes + (std::uint64_t{10 * 4} << 20);
    return counts;
  }

 private:
  void protect(Step step) {
    const std::uint64_t bytes = options_.step_bytes[step];
    if (bytes == protected_bytes_) return;
    history_.protect("snapshot", options_.array, bytes);
    protected_bytes_ = bytes;
  }

  const StoreOptions options_;
  holdfast::History history_;
  std::uint64_t protected_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Store> open_history(const StoreOptions& options) {
  return std::make_unique<HistoryStore>(options);
}

}  // namespace score

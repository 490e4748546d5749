#include <unistd.h>

#include <algorithm>
#include <optional>

#include "bench.hpp"
#include "holdfast/kv_store.hpp"
#include "system.hpp"

namespace power {
namespace {

using holdfast::KvStore;
using holdfast::Region;

using Layout = KvStore::Layout;

Promise promise_of(Layout layout, unsigned batches_per_commit) {
  Promise promise{"holdfast",
                  layout == Layout::log ? "log" : "in place",
                  "process",
                  "batches",
                  "each batch survives kill -9 once it returned",
                  layout == Layout::log ? "adopts the arena in shared memory, makes the index"
                                        : "adopts the arena in shared memory"};
  if (batches_per_commit == 0) return promise;
  promise.rung = "power";
  promise.guarantee = "batches survive a power cut once their commit returned, and kill -9 before";
  promise.recovery = layout == Layout::log
                         ? "reads the image, pins it, makes the index in device memory"
                         : "reads the image, pins it, loads the copy in device memory";
  promise.batches_per_commit = batches_per_commit;
  return promise;
}

// The table has four places for each key or so, and the log as many records at least: it holds the
// keys, and what two batches leave behind.
KvStore::Options options_for(const Shape& shape, Layout layout) {
  KvStore::Options options;
  options.max_batch = shape.batch;
  options.layout = layout;
  options.capacity = layout == Layout::log ? shape.keys : shape.capacity();
  if (layout == Layout::log) {
    options.log_records = std::max(shape.capacity(), 2 * (shape.keys + 2 * shape.batch));
  }
  return options;
}

class HoldfastSystem : public System {
 public:
  HoldfastSystem(const Setting& setting, Layout layout, unsigned batches_per_commit)
      : promise_(promise_of(layout, batches_per_commit)),
        commits_(batches_per_commit > 0),
        shape_(setting.shape),
        options_(options_for(setting.shape, layout)),
        path_(setting.folder + (layout == Layout::log ? "/holdfast-log-" : "/holdfast-") +
              std::to_string(batches_per_commit)) {
    holdfast::RegionOptions region;
    region.size = KvStore::region_bytes(options_);
    region.max_size = region.size;
    region_.emplace(Region::create(path_, region));
    try {
      store_.emplace(KvStore::create(*region_, options_));
      region_->commit();
    } catch (...) {
      remove();
      throw;
    }
  }
  ~HoldfastSystem() override { remove(); }
  HoldfastSystem(const HoldfastSystem&) = delete;
  HoldfastSystem& operator=(const HoldfastSystem&) = delete;

  const Promise& promise() const override { return promise_; }

  Turn run(const Inputs& inputs) override {
    Turn turn;
    turn.batch_seconds = bench::seconds([&] {
      for (unsigned i = 0; i < inputs.count(); ++i) {
        store_->set(inputs.device_keys(i), inputs.device_values(i), shape_.batch);
      }
    });
    if (commits_) {
      holdfast::CommitStats stats;
      turn.commit_seconds = bench::seconds([&] { stats = region_->commit(); });
      turn.disk_bytes = stats.bytes_written;
    }
    turn.total_seconds = turn.batch_seconds + turn.commit_seconds;
    return turn;
  }

  void crash() override {
    store_.reset();
    region_->abandon();
    region_.reset();
  }

  Recovered recover(const Oracle& oracle) override {
    drop_from_cache(path_);
    holdfast::OpenOptions options;
    options.last_commit = commits_;  // of what a power cut leaves, the arena is no part
    options.max_size = KvStore::region_bytes(options_);
    Recovered result;
    result.seconds = bench::seconds([&] {
      region_.emplace(Region::open(path_, options));
      store_.emplace(KvStore::open(*region_));
      store_->await_cache();
    });
    const std::string aside = region_->open_report().arena_set_aside;
    if (!aside.empty()) ::unlink(aside.c_str());
    const std::string wrong = store_->verify();
    if (!wrong.empty()) throw std::runtime_error("holdfast: the store is not sound: " + wrong);
    compare(oracle, result);
    return result;
  }

 private:
  void compare(const Oracle& oracle, Recovered& result) {
    const std::uint64_t there = store_->scan(nullptr, nullptr, 0);
    std::vector<std::uint64_t> keys(there), values(there);
    store_->scan(keys.data(), values.data(), there);
    Comparison comparison(oracle, promise_.system);
    for (std::uint64_t i = 0; i < there; ++i) comparison.pair(keys[i], values[i]);
    result.pairs =
        comparison.finish(options_.layout == Layout::log ? Comparison::Losses::none
                                                         : Comparison::Losses::by_eviction);
    result.lost = oracle.distinct() - result.pairs;
  }

  void remove() noexcept {
    try {
      store_.reset();
      if (region_) region_->abandon();
      region_.reset();
      Region::destroy(path_);
    } catch (const std::exception&) {
      // Nothing is left to clean up with.
    }
  }

  Promise promise_;
  bool commits_;
  Shape shape_;
  KvStore::Options options_;
  std::string path_;
  std::optional<Region> region_;
  std::optional<KvStore> store_;
};

}  // namespace

std::unique_ptr<System> make_holdfast(const Setting& setting, Layout layout,
                                      unsigned batches_per_commit) {
  return std::make_unique<HoldfastSystem>(setting, layout, batches_per_commit);
}

}  // namespace power

#include "gpkvs/engine.hpp"

#include <optional>

#include "gpkvs/input_log.hpp"
#include "workload/delta.hpp"

namespace gpkvs {
namespace {

using holdfast::KvStore;
using workload::Mode;

constexpr std::uint64_t kBucketBytes = kWays * 16;

KvStore::Options store_options(const EngineOptions& options) {
  if (options.layout == KvStore::Layout::in_place) {
    return {options.buckets * kWays, options.max_batch, options.cache, options.log};
  }
  // Fuller, each batch would look its keys up before it is appended.
  const std::uint64_t capacity = options.keys + options.max_batch;
  return {capacity,    options.max_batch, options.cache,
          options.log, options.layout,    options.log_records};
}

const char* name_of(KvStore::Layout layout) {
  return layout == KvStore::Layout::log ? "log" : "in_place";
}

// gpm, eadr: the store, whose kernels log and persist.
class StoreEngine : public Engine {
 public:
  StoreEngine(workload::Backing& backing, const EngineOptions& options)
      : backing_(backing), options_(options) {}

  // A creation that was cut off is begun anew; one that was not is opened.
  std::uint64_t begin_set_up() override {
    try {
      open();
    } catch (const holdfast::Error& error) {
      if (error.code() != holdfast::Errc::not_found) throw;
      store_.emplace(KvStore::create(backing_.region(), store_options(options_)));
    }
    return store_->stats().batches;
  }
  void load(const std::uint64_t* keys, const std::uint64_t* values, std::uint64_t count) override {
    store_->set(keys, values, count);
  }
  void end_set_up() override { backing_.set_progress(1); }

  std::uint64_t resume(std::uint64_t loads) override {
    if (!store_) open();
    return store_->stats().batches - loads;
  }
  void set(std::uint64_t, const std::uint64_t* keys, const std::uint64_t* values,
           std::uint64_t count) override {
    if (options_.layout == KvStore::Layout::log) {
      append(keys, values, count);
      return;
    }
    const KvStore::BatchResult done = store_->set(keys, values, count);
    // A way: the entry of the log, its tail, the pair. A batch: the counters, logged, and the
    // transaction's word, twice.
    constexpr std::uint64_t kLogOfWay = 24 + 4;
    constexpr std::uint64_t kOfWay = kLogOfWay + 16;
    constexpr std::uint64_t kOfBatch = 2 * 48 + 4 + 2 * 8;
    const std::uint64_t ways = done.inserted + done.updated;
    const std::uint64_t around = cached() ? ways * kAroundPair : 0;
    bytes_stored_ += ways * kOfWay + kOfBatch + around;
    bytes_unchanged_ += around;
    // A warp's entries are side by side, and so are its tails.
    if (options_.log == holdfast::LogLayout::coalesced) bytes_streamed_ += ways * kLogOfWay;
  }
  void get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
           std::uint64_t count) override {
    store_->get(keys, values, found, count);
  }
  Pairs pairs() override {
    Pairs all;
    all.keys.resize(store_->stats().records);
    all.values.resize(all.keys.size());
    const std::uint64_t there = store_->scan(all.keys.data(), all.values.data(), all.keys.size());
    // The counters may be wrong: the pairs count.
    if (there != all.keys.size()) {
      all.keys.resize(there);
      all.values.resize(there);
      store_->scan(all.keys.data(), all.values.data(), there);
    }
    return all;
  }
  std::uint64_t bytes_stored() const override { return bytes_stored_; }
  std::uint64_t bytes_streamed() const override { return bytes_streamed_; }
  std::uint64_t bytes_unchanged() const override { return bytes_unchanged_; }
  bool cached() const override { return store_ && store_->stats().cached; }

 private:
  // Runs and what cleaning copies are sequential: but for commit words and freed segments, all of
  // it.
  void append(const std::uint64_t* keys, const std::uint64_t* values, std::uint64_t count) {
    const std::uint64_t before = store_->stats().bytes_stored;
    store_->set(keys, values, count);
    const std::uint64_t stored = store_->stats().bytes_stored - before;
    bytes_stored_ += stored;
    bytes_streamed_ += stored;
  }
  void open() {
    store_.emplace(KvStore::open(backing_.region(), options_.cache));
    const KvStore::Layout layout = store_->stats().layout;
    if (layout != options_.layout) {
      throw holdfast::Error(
          holdfast::Errc::invalid_argument,
          holdfast::detail::concat(
              "region '", backing_.region().path(), "' holds a store of the layout ",
              name_of(layout), ": give option layout=", name_of(layout), ", or another region"));
    }
    const holdfast::LogLayout log = store_->stats().log;
    if (log == options_.log) return;
    const char* const name = log == holdfast::LogLayout::coalesced ? "coalesced" : "conventional";
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("region '", backing_.region().path(), "' holds a store with a ",
                                 name, " log: give option log=", name, ", or another region"));
  }

  workload::Backing& backing_;
  EngineOptions options_;
  std::optional<KvStore> store_;
  std::uint64_t bytes_stored_ = 0;
  std::uint64_t bytes_streamed_ = 0;
  std::uint64_t bytes_unchanged_ = 0;
};

}  // namespace

std::unique_ptr<Engine> Engine::make(workload::Backing& backing, const EngineOptions& options) {
  if (workload::kernel_persists(backing.mode())) {
    return std::make_unique<StoreEngine>(backing, options);
  }
  if (backing.mode() == Mode::cpu) return make_cpu_engine(backing, options);
  return make_plain_engine(backing, options);
}

std::uint64_t Engine::medium_bytes(Mode mode, const EngineOptions& options) {
  if (workload::kernel_persists(mode)) return KvStore::region_bytes(store_options(options));
  const std::uint64_t table =
      options.buckets * kBucketBytes + workload::Delta::medium_bytes(mode, options.max_sets);
  if (mode == Mode::cap_log) {
    return table + InputLog::medium_bytes(options.log_batches, options.max_sets);
  }
  return mode == Mode::cpu ? table + cpu_undo_bytes(options) : table;
}

}  // namespace gpkvs

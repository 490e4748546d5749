#include <optional>

#include "gpkvs/engine.hpp"
#include "gpkvs/input_log.hpp"
#include "gpkvs/rival_kernels.hpp"
#include "kv_store/audit.hpp"
#include "kv_store/batch.hpp"
#include "kv_store/kernels.hpp"
#include "kv_store/read_copy.hpp"
#include "kv_store/rules.hpp"
#include "workload/delta.hpp"

namespace gpkvs {
namespace {

namespace kv = holdfast::kv;
using kv::Bucket;

static_assert(kWays == kv::kWays);

class PlainEngine : public Engine {
 public:
  PlainEngine(workload::Backing& backing, const EngineOptions& options)
      : backing_(backing),
        device_input_(options.device_input),
        array_(backing.array<Bucket>("table", options.buckets)),
        table_{array_.data, options.buckets - 1, {}},
        planner_(options.max_batch),
        values_(options.max_batch),
        found_(options.max_batch) {
    if (backing.mode() == workload::Mode::cap_log) {
      log_.emplace(backing, options.log_batches, options.max_sets);
    }
    // Reads cross the link where the store's do, so they get what it has.
    if (workload::stores_directly(backing.mode())) load_copy(options.cache);
    if (workload::gathers(backing.mode())) {
      delta_.emplace(backing, array_, options.max_sets, options.changes);
    }
  }

  void load(const std::uint64_t* keys, const std::uint64_t* values, std::uint64_t count) override {
    launch(keys, values, count, false);
    finish();
  }
  void end_set_up() override {
    backing_.publish(array_);
    backing_.set_progress(1);
  }
  std::uint64_t resume(std::uint64_t) override {
    if (delta_) delta_->recover();
    const std::uint64_t done = backing_.progress() - 1;
    if (log_) replay(done);
    return done;
  }

  // Where the changes are not gathered the whole table is made durable: which buckets a batch
  // changed is known to the kernel alone.
  void set(std::uint64_t step, const std::uint64_t* keys, const std::uint64_t* values,
           std::uint64_t count) override {
    if (log_ && log_->full(step)) {
      backing_.publish(array_);
      log_->begin_at(step);
    }
    launch(keys, values, count, delta_.has_value());
    // Beside the kernels, which change nothing that is durable.
    if (log_) log_->append(step, keys, values, count, device_input_);
    const RivalOutcome done = finish();
    if (delta_) {
      delta_->publish(done.gathered, step + 2);
      return;
    }
    if (!log_) backing_.publish(array_);
    backing_.set_progress(step + 2);
    if (workload::stores_directly(backing_.mode())) {
      const std::uint64_t ways = done.store.inserted + done.store.updated;
      const std::uint64_t around = cached() ? ways * kAroundPair : 0;
      bytes_stored_ += ways * sizeof(kv::Pair) + around;
      bytes_unchanged_ += around;
    }
  }

  void get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
           std::uint64_t count) override {
    holdfast::Stream& stream = backing_.stream();
    planner_.load(stream, keys, nullptr, count);
    const kv::Batch batch = plan(count, false);
    holdfast::launch(stream, holdfast::blocks_for(count, kv::kBlock), kv::kBlock, kv::get_from_kvs,
                     table_, batch, values_.data(), found_.data());
    holdfast::copy_async(stream, values, values_.data(), count * sizeof(*values));
    holdfast::copy_async(stream, found, found_.data(), count);
    stream.synchronize();
  }

  Pairs pairs() override {
    // What is durable, and not what kernels work on.
    if (!workload::stores_directly(backing_.mode())) backing_.reload(array_.id);
    if (log_) replay(backing_.progress() - 1);
    Pairs all;
    kv::for_each_bucket(table_, backing_.stream(), [&](std::uint64_t, const Bucket& bucket) {
      for (const kv::Pair& pair : bucket.ways) {
        if (pair.key == 0) continue;
        all.keys.push_back(~pair.key);
        all.values.push_back(pair.value);
      }
    });
    return all;
  }
  std::uint64_t bytes_stored() const override { return bytes_stored_; }
  std::uint64_t bytes_unchanged() const override { return bytes_unchanged_; }
  bool cached() const override { return copy_.size() != 0; }

 private:
  void load_copy(holdfast::KvStore::Cache cache) {
    copy_ = kv::make_copy(cache, array_.count, false);
    if (copy_.size() == 0) return;
    holdfast::copy_async(backing_.stream(), copy_.data(), array_.data, copy_.bytes());
    table_.copy = copy_.data();
  }

  kv::Batch plan(std::uint64_t count, bool updates) {
    const bool ordered = kv::ordering_pays(table_.bytes(), table_.copy != nullptr, count, updates);
    return planner_.plan(backing_.stream(), table_, ordered, updates, &outcome_.data()->store);
  }

  // Does the batches of the log again, on the table of the medium: that has the pairs of an earlier
  // moment, or of several, and no batch takes a way from a key.
  void replay(std::uint64_t steps) {
    log_->check(steps);
    const holdfast::testing::Throttle::Mark begun = backing_.throttle().mark();
    std::uint64_t pairs = 0;
    for (std::uint64_t step = log_->first(); step < steps; ++step) {
      const InputLog::Batch batch = log_->batch(step);
      if (batch.count == 0) continue;
      launch(batch.keys, batch.values, batch.count, false);
      if (finish().store.reserved_keys != 0) {
        throw holdfast::Error(
            holdfast::Errc::damaged,
            "the input log of gpKVS holds a key that cannot be stored: remove the "
            "region and begin anew");
      }
      pairs += batch.count;
    }
    backing_.throttle().read(begun, pairs * sizeof(kv::Pair));
    backing_.throttle().wait();
  }

  // Begins a batch of SETs.
  void launch(const std::uint64_t* keys, const std::uint64_t* values, std::uint64_t count,
              bool gathers) {
    holdfast::Stream& stream = backing_.stream();
    planner_.load(stream, keys, values, count);
    holdfast::fill_async(stream, outcome_.data(), 0, sizeof(RivalOutcome));
    const kv::Batch batch = plan(count, true);
    planner_.choose(stream, table_, batch, &outcome_.data()->store);
    if (gathers) {
      launch_store_gathered(stream, table_, batch, delta_->ref(), outcome_.data());
    } else {
      launch_store_unlogged(stream, table_, batch, &outcome_.data()->store);
    }
    holdfast::copy_async(stream, outcome_host_.data(), outcome_.data(), sizeof(RivalOutcome));
  }
  // Waits for it.
  RivalOutcome finish() {
    backing_.stream().synchronize();
    return outcome_host_[0];
  }

  workload::Backing& backing_;
  bool device_input_;
  workload::Array<Bucket> array_;
  kv::Table table_;
  holdfast::DeviceBuffer<Bucket> copy_;  // of the table; may be empty
  std::optional<workload::Delta> delta_;
  std::optional<InputLog> log_;  // mode cap_log
  kv::BatchPlanner planner_;
  holdfast::DeviceBuffer<std::uint64_t> values_;
  holdfast::DeviceBuffer<std::uint8_t> found_;
  holdfast::DeviceBuffer<RivalOutcome> outcome_{1};
  holdfast::PinnedBuffer<RivalOutcome> outcome_host_{1};
  std::uint64_t bytes_stored_ = 0;
  std::uint64_t bytes_unchanged_ = 0;
};

}  // namespace

std::unique_ptr<Engine> make_plain_engine(workload::Backing& backing,
                                          const EngineOptions& options) {
  return std::make_unique<PlainEngine>(backing, options);
}

}  // namespace gpkvs

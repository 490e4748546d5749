#include "gpkvs/gpkvs_workload.hpp"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "gpkvs/engine.hpp"
#include "gpkvs/gpkvs_oracle.hpp"
#include "gpkvs/operations.hpp"
#include "workload/inputs.hpp"

namespace gpkvs {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;
using workload::Settings;
using workload::Size;
using Cache = holdfast::KvStore::Cache;

struct Scale {
  std::uint64_t capacity;  // pairs
  std::uint64_t keys;
  std::uint64_t operations;  // of a batch
  std::uint64_t set_steps;
  std::uint64_t mixed_steps;
};

// Batches of mode cap_log's log before the table is written: usually more than a run has.
constexpr std::uint64_t kLogBatches = 64;
constexpr std::uint64_t kMostLogBatches = 1u << 20;

Scale scale_of(Size size) {
  switch (size) {
    case Size::test:
      return {8192, 1000, 400, 4, 4};
    case Size::real:
      return {1 << 22, 200'000, 50'000, 10, 20};
    case Size::paper:
      break;
  }
  return {1 << 28, 1 << 25, 2'000'000, 25, 100};
}

OperationsShape shape_of(const Settings& settings, bool mixed) {
  const Scale scale = scale_of(settings.size);
  const std::uint64_t capacity =
      workload::number_option(settings, "capacity", scale.capacity, kWays, std::uint64_t{1} << 33);
  const std::uint64_t operations =
      workload::number_option(settings, "operations", scale.operations, mixed ? 20 : 1, 1 << 25);
  OperationsShape shape;
  shape.buckets = std::bit_ceil((capacity + kWays - 1) / kWays);
  // Usually two keys a bucket on average: seldom eight. As many as there are ways fill all of them.
  const std::uint64_t most_keys = kWays * shape.buckets;
  shape.keys = workload::number_option(settings, "keys", std::min(scale.keys, 2 * shape.buckets), 1,
                                       std::uint64_t{1} << 32);
  if (shape.keys > most_keys) {
    throw Error(Errc::invalid_argument,
                concat("option keys=", shape.keys, ": a table of ", shape.buckets * kWays,
                       " pairs takes ", most_keys, " keys at most; give a larger capacity"));
  }
  shape.steps = mixed ? scale.mixed_steps : scale.set_steps;
  if (settings.steps != 0) shape.steps = settings.steps;
  shape.sets = mixed ? operations / 20 : operations;
  shape.gets = operations - shape.sets;
  if (shape.steps > (std::uint64_t{1} << 34) / operations) {
    throw Error(Errc::invalid_argument, concat("gpkvs: ", shape.steps, " steps of ", operations,
                                               " operations: give fewer of either"));
  }
  shape.zipf = mixed;
  shape.load = mixed;
  shape.seed = settings.seed;
  return shape;
}

class KvsWorkload : public workload::Workload {
 public:
  KvsWorkload(const Settings& settings, bool mixed)
      : settings_(settings), operations_(shape_of(settings, mixed)) {
    const OperationsShape& shape = operations_.shape;
    options_.buckets = shape.buckets;
    options_.max_batch = static_cast<std::uint32_t>(shape.gets + shape.sets);
    options_.max_sets = static_cast<std::uint32_t>(shape.sets);
    options_.cache = workload::choice_option<Cache>(
        settings, "cache",
        {{"automatic", Cache::automatic}, {"on", Cache::on}, {"off", Cache::off}});
    options_.log = workload::choice_option<holdfast::LogLayout>(
        settings, "log",
        {{"coalesced", holdfast::LogLayout::coalesced},
         {"conventional", holdfast::LogLayout::conventional}});
    using Layout = holdfast::KvStore::Layout;
    options_.layout = workload::choice_option<Layout>(
        settings, "layout", {{"in_place", Layout::in_place}, {"log", Layout::log}});
    if (options_.layout == Layout::log && options_.log != holdfast::LogLayout::coalesced) {
      throw Error(Errc::invalid_argument,
                  "option log=conventional: the layout log has no undo log; leave one of them out");
    }
    options_.keys = shape.keys;
    options_.log_records =
        workload::number_option(settings, "log_records", 0, 0, std::uint64_t{1} << 31);
    options_.changes = workload::delta_order_option(settings);
    options_.log_batches = workload::number_option(
        settings, "log_batches", std::min(shape.steps, kLogBatches), 1, kMostLogBatches);
    options_.device_input =
        workload::choice_option<bool>(settings, "input", {{"host", false}, {"device", true}});
    if (options_.device_input && settings.mode == workload::Mode::cpu) {
      throw Error(Errc::invalid_argument,
                  "option input=device: in mode cpu host threads read the batches; leave it out");
    }
  }
  // OpenMP's threads do not outlive it: a process that has some cannot fork.
  ~KvsWorkload() override { omp_pause_resource_all(omp_pause_soft); }

  std::string input() const override {
    const OperationsShape& shape = operations_.shape;
    return concat(
        "generated: ", shape.steps, " batches of ", shape.gets, " GETs and ", shape.sets,
        " SETs on ", shape.keys, " keys, ", shape.zipf ? "Zipf 0.99" : "uniform",
        is_log() ? ", in a log" : concat(", in a table of ", shape.buckets * kWays, " pairs"),
        ", seed ", shape.seed);
  }
  std::uint64_t steps() const override { return operations_.shape.steps; }
  std::uint64_t medium_bytes() const override {
    return Engine::medium_bytes(settings_.mode, options_);
  }

  void prepare(workload::Backing& backing) override {
    engine_ = Engine::make(backing, options_);
    reopened_ = backing.was_there();
    if (operations_.shape.gets != 0) {
      values_ = holdfast::PinnedBuffer<std::uint64_t>(operations_.shape.gets);
      found_ = holdfast::PinnedBuffer<std::uint8_t>(operations_.shape.gets);
    }
    load_input(backing);
    if (backing.progress() != 0) return;
    for (std::uint64_t batch = engine_->begin_set_up(); batch < loads(); ++batch) {
      const std::uint64_t first = batch * load_batch();
      const std::uint64_t count = std::min(load_batch(), operations_.loaded.size() - first);
      engine_->load(operations_.keys.data() + first, operations_.loaded.data() + first, count);
    }
    engine_->end_set_up();
  }

  std::uint64_t resume() override {
    const std::uint64_t step = engine_->resume(loads());
    const bool has_log =
        workload::kernel_persists(settings_.mode) || settings_.mode == workload::Mode::cpu ||
        settings_.mode == workload::Mode::cap_delta || settings_.mode == workload::Mode::cap_log;
    if (reopened_ && !has_log) redone_ = step;
    return step;
  }

  void step(std::uint64_t number) override {
    const OperationsShape& shape = operations_.shape;
    if (shape.gets != 0) {
      engine_->get(gets_ + number * shape.gets, values_.data(), found_.data(), shape.gets);
    }
    const std::uint64_t first = number * shape.sets;
    engine_->set(number, sets_ + first, set_values_ + first, shape.sets);
  }

  // A checksum takes as long as a GPU's GETs. Without a log, GETs of a batch that is done again may
  // answer what the batch itself has set before it was cut off.
  void note_step(std::uint64_t number) override {
    const OperationsShape& shape = operations_.shape;
    if (shape.gets == 0 || number == redone_) return;
    answers_[number] = workload::checksum(values_.data(), shape.gets * sizeof(std::uint64_t));
  }

  // Of the pairs, in whatever place they are.
  workload::Digest digest() override {
    const Pairs pairs = engine_->pairs();
    workload::PairDigester all;
    for (std::uint64_t i = 0; i < pairs.keys.size(); ++i) all.add(pairs.keys[i], pairs.values[i]);
    return all.finish();
  }
  std::string answers() const override {
    if (answers_.empty() || answers_.size() != operations_.shape.steps) return {};
    workload::Digester all;
    for (const auto& [step, answered] : answers_) all.add(&answered, sizeof(answered));
    return all.finish().text();
  }
  std::string verify() override { return oracle::compare(operations_, engine_->pairs(), answers_); }
  std::uint64_t kernel_bytes() const override { return engine_->bytes_stored(); }
  std::uint64_t streamed_bytes() const override { return engine_->bytes_streamed(); }
  std::uint64_t unchanged_bytes() const override { return engine_->bytes_unchanged(); }
  // "input": where a step's operations are. "log_batches": mode cap_log's. "cache": whether kernels
  // read a copy of the table in device memory, off where they read the medium, none where the table
  // itself is in device or host memory, on of the layout log, whose index is in device memory.
  // "layout": of the store, in the modes that have one. "sets", "gets": of a step.
  std::map<std::string, std::string> facts() const override {
    const bool direct = workload::stores_directly(settings_.mode);
    std::map<std::string, std::string> all{{"cache", !direct             ? "none"
                                                     : engine_->cached() ? "on"
                                                                         : "off"},
                                           {"input", options_.device_input ? "device" : "host"},
                                           {"sets", std::to_string(operations_.shape.sets)},
                                           {"gets", std::to_string(operations_.shape.gets)}};
    if (workload::kernel_persists(settings_.mode)) {
      all["layout"] = is_log() ? "log" : "in_place";
    }
    if (settings_.mode == workload::Mode::cap_log) {
      all["log_batches"] = std::to_string(options_.log_batches);
    }
    return all;
  }

 private:
  // Brings the steps' operations to where they are read from.
  void load_input(workload::Backing& backing) {
    gets_ = operations_.gets.data();
    sets_ = operations_.sets.data();
    set_values_ = operations_.values.data();
    if (!options_.device_input) return;
    const auto on_device = [&](const holdfast::PinnedBuffer<std::uint64_t>& from,
                               holdfast::DeviceBuffer<std::uint64_t>& to) {
      if (from.size() == 0) return to.data();
      to = holdfast::DeviceBuffer<std::uint64_t>(from.size());
      holdfast::copy_async(backing.stream(), to.data(), from.data(), to.bytes());
      return to.data();
    };
    gets_ = on_device(operations_.gets, device_input_[0]);
    sets_ = on_device(operations_.sets, device_input_[1]);
    set_values_ = on_device(operations_.values, device_input_[2]);
    backing.stream().synchronize();
  }
  bool is_log() const {
    return workload::kernel_persists(settings_.mode) &&
           options_.layout == holdfast::KvStore::Layout::log;
  }
  std::uint64_t load_batch() const { return options_.max_batch; }
  std::uint64_t loads() const {
    return (operations_.loaded.size() + load_batch() - 1) / load_batch();
  }

  Settings settings_;
  Operations operations_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  // Of all steps: in pinned host memory, or in device memory.
  const std::uint64_t* gets_ = nullptr;
  const std::uint64_t* sets_ = nullptr;
  const std::uint64_t* set_values_ = nullptr;
  holdfast::DeviceBuffer<std::uint64_t> device_input_[3];
  holdfast::PinnedBuffer<std::uint64_t> values_;
  holdfast::PinnedBuffer<std::uint8_t> found_;
  bool reopened_ = false;
  std::uint64_t redone_ = ~std::uint64_t{0};        // the step that may have been cut off
  std::map<std::uint64_t, std::uint64_t> answers_;  // checksums, of steps that this process did
};

workload::Info info_of(const char* name, const char* summary, bool mixed) {
  workload::Info info;
  info.name = name;
  info.summary = summary;
  info.kind = workload::Info::Class::transactional;
  info.table_row = 1;
  info.kernel_access = holdfast::testing::Access::random;
  info.options = {
      {"cache",
       "on, off or automatic (default): a copy of the table in device memory for reads, in modes "
       "whose kernels store to the medium"},
      {"log", "coalesced (default) or conventional: how kernels log, in the modes gpm and eadr"},
      {"layout",
       "in_place (default) or log: how the store of the modes gpm and eadr keeps its pairs"},
      {"log_records",
       "of the layout log (default: twice the keys, and four batches); fewer: cleaned more often"},
      {"changes", workload::kDeltaOrderWords},
      {"input",
       "host (default) or device: the memory that a step's operations are in; not in mode cpu"},
      {"log_batches",
       "batches that mode cap-log keeps before it writes the table (default 64, or all of fewer)"},
      {"capacity", "pairs of the table (default 8,192; real: 4,194,304; paper: 268,435,456)"},
      {"keys", "that operations take (default 1,000; real: 200,000; paper: 33,554,432)"},
      {"operations", "of a batch (default 400; real: 50,000; paper: 2,000,000)"}};
  info.make = [mixed](const Settings& settings) {
    return std::make_unique<KvsWorkload>(settings, mixed);
  };
  return info;
}

}  // namespace

workload::Info set_info() {
  return info_of("gpkvs", "gpKVS: batches of SETs to a key-value store", false);
}

workload::Info mixed_info() {
  return info_of("gpkvs_95_5", "gpKVS: batches of 95 GETs to 5 SETs, keys by Zipf's law", true);
}

std::vector<workload::Info> workloads() { return {set_info(), mixed_info()}; }

}  // namespace gpkvs

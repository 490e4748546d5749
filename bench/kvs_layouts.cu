#include "kvs_layouts.hpp"

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench.hpp"
#include "holdfast/kv_store.hpp"
#include "scratch_region.hpp"

namespace bench {
namespace {

using holdfast::KvStore;
using Layout = KvStore::Layout;
using Index = KvStore::Index;

const char* name_of(Layout layout) { return layout == Layout::log ? "log" : "in_place"; }

// What every line says of the store that it is of.
Line line_of(const char* benchmark, const KvStore::Stats& stats, const LayoutRun& run) {
  Line line(benchmark);
  line.text("layout", name_of(stats.layout));
  if (stats.layout == Layout::log) {
    line.text("index", stats.index == Index::whole ? "whole" : "fingerprints");
  }
  line.count("pairs", run.pairs);
  return line;
}

// The table of the layout in place is twice the pairs: fuller, it would evict.
KvStore::Options options_for(Layout layout, const LayoutRun& run, Index index) {
  KvStore::Options options;
  options.index = index;
  options.max_batch = run.batch;
  options.layout = layout;
  if (layout == Layout::in_place) {
    options.capacity = 2 * run.pairs;
    return options;
  }
  options.capacity = run.pairs + run.batch;
  options.log_records = run.pairs * 100 / run.live_percent;
  return options;
}

// The same batches for both layouts: keys below `pairs`, spread over 64 bits, and a new value for
// each SET: the layout in place does not store what does not change.
class Input {
 public:
  Input(std::size_t count, std::uint64_t pairs)
      : pairs_(pairs), host_(2 * count), device_(2 * count) {}
  static std::uint64_t key(std::uint64_t number) { return number * 0x9e3779b97f4a7c15ull >> 1; }
  // From here on the same batches come for each layout, however many it took to be warm: those of
  // a measurement. No two share one, as what was set in one order dies in that order.
  void begin_measurement() { counter_ = ++measurement_ << 40; }
  void refill(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t random = next();
      host_[i] = key(static_cast<std::uint64_t>((__uint128_t{random} * pairs_) >> 64));
      host_[count + i] = random;
    }
    to_device(count);
  }
  void fill_from(std::uint64_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      host_[i] = key(first + i);
      host_[count + i] = first + i;
    }
    to_device(count);
  }
  const std::uint64_t* keys(bool from_host) const {
    return from_host ? host_.data() : device_.data();
  }
  KvStore::BatchResult set_all(KvStore& store, bool from_host) const {
    return store.set(keys(from_host), keys(from_host) + count_, count_);
  }
  void draw_operations(KvStore::Op* operations, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      operations[i] = next() % 2 == 0 ? KvStore::Op::set : KvStore::Op::erase;
    }
  }
  KvStore::BatchResult apply_all(KvStore& store, const KvStore::Op* operations) const {
    return store.apply(operations, keys(false), keys(false) + count_, count_);
  }
  // As set_all(), of those from `first` on.
  KvStore::BatchResult set_from(KvStore& store, std::uint32_t first) const {
    return store.set(device_.data() + first, device_.data() + count_ + first, count_ - first);
  }

 private:
  // SplitMix64 of a counter: the host makes batches while nothing is measured, and a GPU waits.
  std::uint64_t next() {
    std::uint64_t word = ++counter_ * 0x9e3779b97f4a7c15ull;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ word >> 27) * 0x94d049bb133111ebull;
    return word ^ word >> 31;
  }
  void to_device(std::uint32_t count) {
    count_ = count;
    holdfast::copy_async(stream_, device_.data(), host_.data(), 2 * count * sizeof(std::uint64_t));
    stream_.synchronize();
  }
  std::uint64_t pairs_;
  holdfast::PinnedBuffer<std::uint64_t> host_;  // keys, and values behind them
  holdfast::DeviceBuffer<std::uint64_t> device_;
  std::uint32_t count_ = 0;
  holdfast::Stream stream_;
  std::uint64_t measurement_ = 0;
  std::uint64_t counter_ = 0;
};

void load(KvStore& store, Input& input, const LayoutRun& run) {
  for (std::uint64_t first = 0; first < run.pairs; first += run.batch) {
    const auto count =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(run.batch, run.pairs - first));
    input.fill_from(first, count);
    input.set_all(store, false);
  }
}

void overwrite(KvStore& store, Input& input, const LayoutRun& run) {
  input.refill(run.batch);
  input.set_all(store, false);
}

// Of twice the log, until cleaning is steady.
std::uint64_t steady_rounds(const KvStore::Options& options) {
  return 2 * options.log_records / options.max_batch + 1;
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(share * last + 0.5)];
}

// What a batch takes.
Line& add_times(Line& line, const std::vector<double>& times) {
  return line.number("p50_us", percentile(times, 0.5) * 1e6)
      .number("p99_us", percentile(times, 0.99) * 1e6)
      .number("max_us", percentile(times, 1) * 1e6);
}

// Of batches of the measurement that has begun, of which the first is left out.
template <class Body>
std::vector<double> times_of_batches(Input& input, const LayoutRun& run, const Body& body) {
  std::vector<double> times;
  for (int i = 0; i <= run.batches; ++i) {
    input.refill(run.batch);
    const double took = seconds(body);
    if (i > 0) times.push_back(took);
  }
  return times;
}

constexpr std::uint32_t kSmallRuns = 256;  // SETs

// Whether there is cleaning meanwhile: none before the log is full.
enum class Cleaning { none, steady };

struct SetRun {
  std::uint32_t count;  // SETs of a batch
  bool from_host;
  int batches;
  Cleaning cleaning;
};

void print_sets(const KvStore::Stats& before, const KvStore& store,
                const std::vector<double>& times, const LayoutRun& run, const SetRun& sets) {
  const KvStore::Stats after = store.stats();
  double all = 0;
  for (const double took : times) all += took;
  const KvStore::Timing timing = store.timing();
  Line line = line_of("kvs_layout_set", after, run);
  line.text("input", sets.from_host ? "pinned host memory" : "device memory")
      .text("cleaning", sets.cleaning == Cleaning::none ? "none" : "steady")
      .count("batch", sets.count)
      .count("batches", times.size())
      .number("million_sets_per_s", sets.count * static_cast<double>(times.size()) / all / 1e6);
  add_times(line, times)
      .number("last_copy_ms", timing.copy)
      .number("last_order_ms", timing.order)
      .number("last_update_ms", timing.update)
      .number("last_commit_ms", timing.commit)
      .count("evicted", after.total.evicted - before.total.evicted);
  if (after.layout == Layout::log) {
    const auto stored = static_cast<double>(after.bytes_stored - before.bytes_stored);
    const auto had = static_cast<double>(after.batch_records - before.batch_records);
    line.count("log_records", after.log_records)
        .count("live_records", after.live_records)
        .number("write_amplification", stored / (16 * had))
        .number("space_amplification", after.space_amplification())
        .count("copied_records", after.copied_records - before.copied_records)
        .count("snapshot_bytes", after.snapshot_bytes - before.snapshot_bytes);
  }
  line.print();
}

void measure_sets(KvStore& store, Input& input, const LayoutRun& run, const SetRun& sets) {
  input.begin_measurement();
  input.refill(sets.count);
  input.set_all(store, sets.from_host);  // to be warm
  const KvStore::Stats before = store.stats();
  std::vector<double> times;
  for (int i = 0; i < sets.batches; ++i) {
    input.refill(sets.count);
    times.push_back(seconds([&] { input.set_all(store, sets.from_host); }));
  }
  if (sets.cleaning == Cleaning::none && store.stats().copied_records != 0) {
    throw std::runtime_error("the log was full too soon: take a larger table or smaller batches");
  }
  print_sets(before, store, times, run, sets);
}

// Small batches are more, but no more than leave most of the log's free half.
void measure_all_sets(KvStore& store, Input& input, const LayoutRun& run, Cleaning cleaning) {
  const bool steady = cleaning == Cleaning::steady;
  const std::uint64_t most = (run.pairs * 100 / run.live_percent - run.pairs) / 8;  // operations
  const auto fit = [&](std::uint32_t count) {
    return static_cast<int>(std::clamp<std::uint64_t>(most / count, 1, 2000));
  };
  const int large = steady ? run.batches : std::min(fit(run.batch), 16);
  measure_sets(store, input, run, {run.batch, false, large, cleaning});
  measure_sets(store, input, run, {run.batch, true, large, cleaning});
  for (const std::uint32_t count : {1u, 1024u, 1u << 16}) {
    if (count >= run.batch) continue;
    const int small = steady ? 20 * run.batches : fit(count);
    measure_sets(store, input, run, {count, false, small, cleaning});
  }
}

// Batches of 95 GETs to 5 SETs, the GETs first, as gpKVS has them; of uniform keys.
void measure_mixed(KvStore& store, Input& input, const LayoutRun& run) {
  const std::uint32_t sets = run.batch / 20;
  const std::uint32_t gets = run.batch - sets;
  if (sets == 0) return;
  const holdfast::DeviceBuffer<std::uint64_t> values(gets);
  const holdfast::DeviceBuffer<std::uint8_t> found(gets);
  input.begin_measurement();
  const std::vector<double> times = times_of_batches(input, run, [&] {
    store.get(input.keys(false), values.data(), found.data(), gets);
    input.set_from(store, gets);
  });
  Line line = line_of("kvs_layout_mixed", store.stats(), run);
  line.count("gets", gets)
      .count("sets", sets)
      .count("batches", times.size())
      .number("million_operations_per_s", run.batch / median(times) / 1e6);
  add_times(line, times).print();
}

// SETs and ERASEs of uniform keys in one batch, half of each by chance.
void measure_apply(KvStore& store, Input& input, const LayoutRun& run) {
  const holdfast::PinnedBuffer<KvStore::Op> operations(run.batch);
  input.begin_measurement();
  input.draw_operations(operations.data(), run.batch);
  const std::vector<double> times =
      times_of_batches(input, run, [&] { input.apply_all(store, operations.data()); });
  Line line = line_of("kvs_layout_apply", store.stats(), run);
  line.count("batch", run.batch)
      .count("batches", times.size())
      .number("million_operations_per_s", run.batch / median(times) / 1e6);
  add_times(line, times).print();
}

// Room for twice as many pairs, while the store is open: new memory of the region included.
void measure_growth(KvStore& store, const LayoutRun& run) {
  const KvStore::Stats before = store.stats();
  const double took = seconds([&] { store.reserve(2 * before.capacity); });
  line_of("kvs_layout_grow", store.stats(), run)
      .count("capacity_before", before.capacity)
      .number("milliseconds", took * 1e3)
      .print();
}

void measure_gets(KvStore& store, Input& input, const LayoutRun& run) {
  const holdfast::DeviceBuffer<std::uint64_t> values(run.batch);
  const holdfast::DeviceBuffer<std::uint8_t> found(run.batch);
  input.begin_measurement();
  const std::vector<double> times = times_of_batches(
      input, run, [&] { store.get(input.keys(false), values.data(), found.data(), run.batch); });
  line_of("kvs_layout_get", store.stats(), run)
      .count("batch", run.batch)
      .number("million_gets_per_s", run.batch / median(times) / 1e6)
      .print();
}

void measure(Layout layout, const LayoutRun& run, Index index = Index::automatic) {
  const KvStore::Options options = options_for(layout, run, index);
  const std::uint64_t bytes = KvStore::region_bytes(options);
  ScratchRegion scratch(bytes, 8 * bytes);  // a log grows beside itself, to twice its pairs
  Input input(run.batch, run.pairs);
  {
    KvStore store = KvStore::create(scratch.get(), options);
    load(store, input, run);
    measure_all_sets(store, input, run, Cleaning::none);
    if (layout == Layout::log) {
      for (std::uint64_t i = 0; i < steady_rounds(options); ++i) overwrite(store, input, run);
      measure_all_sets(store, input, run, Cleaning::steady);
    }
    measure_mixed(store, input, run);
    measure_gets(store, input, run);
  }
  std::vector<double> times;
  KvStore::Stats stats;
  for (int i = 0; i < 3; ++i) {
    times.push_back(seconds([&] {
      KvStore store = KvStore::open(scratch.get(), KvStore::Cache::automatic, index);
      store.await_cache();
      stats = store.stats();
    }));
  }
  line_of("kvs_layout_open", stats, run).number("milliseconds", median(times) * 1e3).print();
  KvStore store = KvStore::open(scratch.get(), KvStore::Cache::automatic, index);
  store.await_cache();
  measure_apply(store, input, run);
  if (layout == Layout::log) measure_growth(store, run);
}

// The snapshots of a region's log, as bytes.
class SnapshotPart {
 public:
  explicit SnapshotPart(holdfast::Region& region) {
    const holdfast::ObjectInfo info = region.object("kvs.snapshots");
    at_ = static_cast<char*>(region.address(info));
    bytes_ = info.bytes();
  }
  std::vector<char> copy() const { return {at_, at_ + bytes_}; }
  void put(const std::vector<char>& bytes) const { std::memcpy(at_, bytes.data(), bytes_); }
  void forget() const { std::memset(at_, 0, bytes_); }

 private:
  char* at_;
  std::size_t bytes_;
};

void measure_opening(ScratchRegion& scratch, const char* age, const char* snapshots,
                     const LayoutRun& run) {
  std::vector<double> times;
  KvStore::Stats stats;
  for (int i = 0; i < 3; ++i) {
    times.push_back(seconds([&] { stats = KvStore::open(scratch.get()).stats(); }));
  }
  Line("kvs_log_open")
      .text("age", age)
      .text("snapshots", snapshots)
      .text("x", "log_records")
      .text("y", "milliseconds")
      .text("plot", age)
      .text("series", std::string("snapshots: ") + snapshots)
      .count("log_records", stats.log_records)
      .count("log_bytes", stats.log_records * 16)
      .count("records_in_use", (stats.segments - stats.free_segments) * stats.segment_records)
      .count("live_records", stats.live_records)
      .count("pairs", stats.records)
      .count("batch", run.batch)
      .count("segments", stats.segments)
      .count("snapshots_used", stats.snapshots_used)
      .count("snapshot_age", stats.snapshot_age)
      .number("milliseconds", median(times) * 1e3)
      .number("least_ms", percentile(times, 0) * 1e3)
      .number("max_ms", percentile(times, 1) * 1e3)
      .print();
}

// A store that `work` has changed: closed; as a kill would have left it in front of that; and
// without any snapshots. Then as it was closed.
template <class Work>
void measure_openings_behind(ScratchRegion& scratch, const char* age, const LayoutRun& run,
                             Work&& work) {
  const SnapshotPart snapshots(scratch.get());
  std::vector<char> killed;
  {
    KvStore store = KvStore::open(scratch.get());
    work(store);
    killed = snapshots.copy();
  }
  const std::vector<char> closed = snapshots.copy();
  measure_opening(scratch, age, "closed", run);
  snapshots.put(killed);
  measure_opening(scratch, age, "killed", run);
  snapshots.forget();
  measure_opening(scratch, age, "none", run);
  snapshots.put(closed);
}

void measure_openings_of(const LayoutRun& run) {
  const KvStore::Options options = options_for(Layout::log, run, Index::whole);
  ScratchRegion scratch(KvStore::region_bytes(options));
  Input input(run.batch, run.pairs);
  (void)KvStore::create(scratch.get(), options);
  measure_openings_behind(scratch, "loaded", run, [&](KvStore& store) { load(store, input, run); });
  // The batch that is next would be followed by cleaning, or nearly so.
  measure_openings_behind(scratch, "full", run, [&](KvStore& store) {
    for (KvStore::Stats now = store.stats();
         (now.free_segments - std::min<std::uint64_t>(now.free_segments, 4)) * now.segment_records >
         2 * std::uint64_t{run.batch};
         now = store.stats()) {
      overwrite(store, input, run);
    }
  });
  measure_openings_behind(scratch, "aged", run, [&](KvStore& store) {
    for (std::uint64_t i = 0; i < steady_rounds(options); ++i) overwrite(store, input, run);
  });
  // By small batches, whose runs leave a header for each few records.
  LayoutRun small = run;
  small.batch = std::min(run.batch, kSmallRuns);
  measure_openings_behind(scratch, "aged by small batches", small, [&](KvStore& store) {
    for (std::uint64_t set = 0; set < options.log_records; set += small.batch) {
      overwrite(store, input, small);
    }
  });
}

}  // namespace

void measure_openings(std::uint64_t records, const LayoutRun& run) {
  for (const std::uint64_t part : {16, 4, 1}) {
    LayoutRun one = run;
    one.batch = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(1, std::min<std::uint64_t>(run.batch, records / part / 32)));
    one.pairs = std::max<std::uint64_t>(1, records / part * run.live_percent / 100);
    measure_openings_of(one);
  }
}

void compare_layouts(const LayoutRun& run) {
  measure(Layout::in_place, run);
  measure(Layout::log, run, Index::whole);
  measure(Layout::log, run, Index::fingerprints);
}

}  // namespace bench

#include "kvs_layouts.hpp"

#include <random>
#include <vector>

#include "bench.hpp"
#include "holdfast/kv_store.hpp"
#include "scratch_region.hpp"

namespace bench {
namespace {

using holdfast::KvStore;
using Layout = KvStore::Layout;

const char* name_of(Layout layout) { return layout == Layout::log ? "log" : "in_place"; }

// The table of the layout in place is twice the pairs: fuller, it would evict.
KvStore::Options options_for(Layout layout, const LayoutRun& run) {
  KvStore::Options options;
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

// The same batches for both layouts: keys below `pairs`, spread over 64 bits.
class Input {
 public:
  Input(std::size_t count, std::uint64_t pairs) : pairs_(pairs), host_(count), device_(count) {}
  static std::uint64_t key(std::uint64_t number) { return number * 0x9e3779b97f4a7c15ull >> 1; }
  void refill(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) host_[i] = key(random_() % pairs_);
    to_device(count);
  }
  void fill_from(std::uint64_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) host_[i] = key(first + i);
    to_device(count);
  }
  const std::uint64_t* data(bool from_host) const {
    return from_host ? host_.data() : device_.data();
  }

 private:
  void to_device(std::uint32_t count) {
    holdfast::copy_async(stream_, device_.data(), host_.data(), count * sizeof(std::uint64_t));
    stream_.synchronize();
  }
  std::uint64_t pairs_;
  holdfast::PinnedBuffer<std::uint64_t> host_;
  holdfast::DeviceBuffer<std::uint64_t> device_;
  holdfast::Stream stream_;
  std::mt19937_64 random_{7};
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(share * last + 0.5)];
}

void measure_sets(KvStore& store, Input& input, const LayoutRun& run, std::uint32_t count,
                  bool from_host, int batches) {
  const KvStore::Stats before = store.stats();
  std::vector<double> times;
  for (int i = 0; i < batches; ++i) {
    input.refill(count);
    const std::uint64_t* const data = input.data(from_host);
    times.push_back(seconds([&] { store.set(data, data, count); }));
  }
  const KvStore::Stats after = store.stats();
  double all = 0;
  for (const double took : times) all += took;
  const KvStore::Timing timing = store.timing();
  Line line("kvs_layout_set");
  line.text("layout", name_of(after.layout))
      .text("input", from_host ? "pinned host memory" : "device memory")
      .count("pairs", run.pairs)
      .count("batch", count)
      .count("batches", times.size())
      .number("million_sets_per_s", count * static_cast<double>(times.size()) / all / 1e6)
      .number("p50_us", percentile(times, 0.5) * 1e6)
      .number("p99_us", percentile(times, 0.99) * 1e6)
      .number("max_us", percentile(times, 1) * 1e6)
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
        .count("copied_records", after.copied_records - before.copied_records);
  }
  line.print();
}

void measure_gets(KvStore& store, Input& input, const LayoutRun& run) {
  const holdfast::DeviceBuffer<std::uint64_t> values(run.batch);
  const holdfast::DeviceBuffer<std::uint8_t> found(run.batch);
  std::vector<double> times;
  for (int i = 0; i <= run.batches; ++i) {
    input.refill(run.batch);
    const double took =
        seconds([&] { store.get(input.data(false), values.data(), found.data(), run.batch); });
    if (i > 0) times.push_back(took);
  }
  Line("kvs_layout_get")
      .text("layout", name_of(store.stats().layout))
      .count("pairs", run.pairs)
      .count("batch", run.batch)
      .number("million_gets_per_s", run.batch / median(times) / 1e6)
      .print();
}

void measure(Layout layout, const LayoutRun& run) {
  const KvStore::Options options = options_for(layout, run);
  ScratchRegion scratch(KvStore::region_bytes(options));
  Input input(run.batch, run.pairs);
  {
    KvStore store = KvStore::create(scratch.get(), options);
    for (std::uint64_t first = 0; first < run.pairs; first += run.batch) {
      const auto count =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(run.batch, run.pairs - first));
      input.fill_from(first, count);
      store.set(input.data(false), input.data(false), count);
    }
    // Twice the log, until cleaning is steady; of the other layout a few, to be warm.
    const std::uint64_t rounds =
        layout == Layout::log ? 2 * options.log_records / run.batch + 1 : 3;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      input.refill(run.batch);
      store.set(input.data(false), input.data(false), run.batch);
    }
    measure_sets(store, input, run, run.batch, false, run.batches);
    measure_sets(store, input, run, run.batch, true, run.batches);
    for (const std::uint32_t count : {1u, 1024u, 1u << 16}) {
      if (count < run.batch) measure_sets(store, input, run, count, false, 20 * run.batches);
    }
    measure_gets(store, input, run);
  }
  std::vector<double> times;
  for (int i = 0; i < 3; ++i) {
    times.push_back(seconds([&] { KvStore::open(scratch.get()).await_cache(); }));
  }
  Line("kvs_layout_open")
      .text("layout", name_of(layout))
      .count("pairs", run.pairs)
      .number("milliseconds", median(times) * 1e3)
      .print();
}

}  // namespace

void compare_layouts(const LayoutRun& run) {
  measure(Layout::in_place, run);
  measure(Layout::log, run);
}

}  // namespace bench

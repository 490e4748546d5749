// The key-value store: batches of SETs of random keys in random order, everything included;
// lookups, by batch and by kernels; undoing a batch; opening; where ordering a batch by bucket
// pays. Without and with the copy of the table in device memory (--cache: 0 without, 1 with, 2
// both).
//
//   kvs_bench [--table_mib=N] [--batch=N] [--batches=N] [--sweep=0|1] [--cache=0|1|2]
//
// With --layouts=1 the layouts in place and log in turn instead, the log with both forms of its
// index, on stores of half as many pairs as the table has places for; --live: how much of the log
// these are, in percent.
//
//   kvs_bench --layouts=1 [--live=50|75] [--table_mib=N] [--batch=N] [--batches=N]
//
// With --open_records=N, instead or behind it, how long a log of N records takes to open, of a
// quarter and of a sixteenth of them, by its age, with snapshots and without; --live as above.
//
//   kvs_bench --open_records=N [--live=50] [--batch=N]
#include <random>
#include <thread>

#include "bench.hpp"
#include "holdfast/kv_store.hpp"
#include "kv_store/batch.hpp"
#include "kv_store/kernels.hpp"
#include "kvs_layouts.hpp"
#include "link.hpp"
#include "scratch_region.hpp"

namespace {

namespace kv = holdfast::kv;
using holdfast::KvStore;
using Cache = KvStore::Cache;
using Order = KvStore::Order;

const char* name_of(Order order) { return order == Order::ordered ? "ordered" : "unordered"; }
const char* name_of(Cache cache) { return cache == Cache::on ? "on" : "off"; }

// Batches of random keys, made anew for each: the same keys twice would find their buckets warm.
class Keys {
 public:
  explicit Keys(std::size_t count) : host_(count), device_(count) {}
  void refill() {
    std::mt19937_64 random(++round_);
    for (std::size_t i = 0; i < host_.size(); ++i) host_[i] = random() >> 1;
    holdfast::copy_async(stream_, device_.data(), host_.data(), device_.bytes());
    stream_.synchronize();
  }
  const std::uint64_t* host() const { return host_.data(); }
  const std::uint64_t* device() const { return device_.data(); }
  std::size_t size() const { return host_.size(); }

 private:
  holdfast::PinnedBuffer<std::uint64_t> host_;
  holdfast::DeviceBuffer<std::uint64_t> device_;
  holdfast::Stream stream_;
  std::uint64_t round_ = 0;
};

struct Parts {
  std::vector<double> total, copy, order, update, commit;
  void add(double seconds, const KvStore::Timing& timing) {
    total.push_back(seconds);
    copy.push_back(timing.copy);
    order.push_back(timing.order);
    update.push_back(timing.update);
    commit.push_back(timing.commit);
  }
};

// What a batch of SETs must move over the link: a bucket in, unless there is a copy of it; out, a
// log entry with its tail, and a pair.
double link_read_bytes(const KvStore& store) { return store.stats().cached ? 0 : 128; }
constexpr double kSetWriteBytes = 24 + 4 + 16;

const char* cache_of(const KvStore& store) { return store.stats().cached ? "on" : "off"; }

double measure_sets(KvStore& store, Keys& keys, Order order, bool from_host, int batches,
                    std::uint64_t table_bytes, double link) {
  store.set_order(order);
  Parts parts;
  std::uint64_t evicted = 0;
  for (int i = 0; i <= batches; ++i) {
    keys.refill();
    const std::uint64_t* data = from_host ? keys.host() : keys.device();
    KvStore::BatchResult result;
    const double took = bench::seconds([&] { result = store.set(data, data, keys.size()); });
    evicted += result.evicted;
    if (i > 0) parts.add(took, store.timing());
  }
  const double took = bench::median(parts.total);
  const double rate = static_cast<double>(keys.size()) / took;
  bench::Line("kvs_set")
      .text("order", name_of(order))
      .text("cache", cache_of(store))
      .text("input", from_host ? "pinned host memory" : "device memory")
      .count("table_bytes", table_bytes)
      .count("batch", keys.size())
      .number("million_sets_per_s", rate / 1e6)
      .number("batch_ms", took * 1e3)
      .number("copy_ms", bench::median(parts.copy))
      .number("order_ms", bench::median(parts.order))
      .number("update_ms", bench::median(parts.update))
      .number("commit_ms", bench::median(parts.commit))
      .count("evicted", evicted)
      .number("link_read_share", rate * link_read_bytes(store) / link)
      .number("link_write_share", rate * kSetWriteBytes / link)
      .number("copy_engine_gb_per_s", link / 1e9)
      .print();
  return took;
}

double measure_gets(KvStore& store, Keys& keys, Order order, int batches, std::uint64_t table_bytes,
                    double link) {
  store.set_order(order);
  const holdfast::DeviceBuffer<std::uint64_t> values(keys.size());
  const holdfast::DeviceBuffer<std::uint8_t> found(keys.size());
  std::vector<double> times;
  for (int i = 0; i <= batches; ++i) {
    keys.refill();
    const double took =
        bench::seconds([&] { store.get(keys.device(), values.data(), found.data(), keys.size()); });
    if (i > 0) times.push_back(took);
  }
  const double took = bench::median(times);
  const double rate = static_cast<double>(keys.size()) / took;
  bench::Line("kvs_get")
      .text("order", name_of(order))
      .text("cache", cache_of(store))
      .count("table_bytes", table_bytes)
      .count("batch", keys.size())
      .number("million_gets_per_s", rate / 1e6)
      .number("link_read_share", rate * link_read_bytes(store) / link)
      .print();
  return took;
}

enum class Looking { alone, by_warp };

template <Looking L>
__global__ void look_up(holdfast::KvStoreRef ref, const std::uint64_t* keys, std::uint64_t* values,
                        std::size_t count) {
  const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint64_t key = i < count ? keys[i] : holdfast::KvStoreRef::kReservedKey;
  std::uint64_t value = 0;
  if (L == Looking::alone ? ref.find(key, &value) : ref.find_by_warp(key, &value))
    values[i] = value;
}

// By a kernel of its own, in the order of the keys.
template <Looking L>
void measure_kernel(KvStore& store, Keys& keys, int batches, std::uint64_t table_bytes,
                    double link) {
  const holdfast::DeviceBuffer<std::uint64_t> values(keys.size());
  const holdfast::KvStoreRef ref = store.ref();
  const double took = bench::warmed(batches, [&](std::uint64_t) {
    keys.refill();
    return bench::seconds([&] {
      holdfast::launch(store.stream(), holdfast::blocks_for(keys.size(), 256), 256, look_up<L>, ref,
                       keys.device(), values.data(), keys.size());
      store.stream().synchronize();
    });
  });
  const double rate = static_cast<double>(keys.size()) / took;
  bench::Line("kvs_lookup")
      .text("by", L == Looking::alone ? "thread" : "warp")
      .text("cache", cache_of(store))
      .count("table_bytes", table_bytes)
      .count("batch", keys.size())
      .number("million_lookups_per_s", rate / 1e6)
      .number("link_read_share", rate * link_read_bytes(store) / link)
      .print();
}

// A batch that is cut off just before its commit, the worst moment; then the region is found
// again and the store opened, which undoes it.
void measure_undo(bench::ScratchRegion& scratch, Keys& keys, Order order,
                  std::uint64_t table_bytes) {
  std::vector<double> times;
  std::uint64_t undone = 0;
  for (int i = 0; i < 3; ++i) {
    {
      holdfast::Region& region = scratch.get();
      auto transaction = holdfast::Transaction::open(region, "kvs.tx");
      const auto log = transaction.log("kvs.log");
      const auto info = region.object("kvs.table");
      const kv::Table table{static_cast<kv::Bucket*>(region.address(info)), info.count - 1,
                            region.marks()};
      kv::BatchPlanner planner(static_cast<std::uint32_t>(keys.size()));
      const holdfast::DeviceBuffer<kv::Outcome> outcome(1);
      holdfast::Stream stream;
      keys.refill();
      planner.load(stream, keys.device(), keys.device(), keys.size());
      const auto batch = planner.plan(stream, table, order == Order::ordered, true, outcome.data());
      planner.choose(stream, table, batch, outcome.data());
      transaction.begin(stream);
      kv::launch_store(stream, table, log, batch, outcome.data());
      stream.synchronize();
    }
    scratch.reopen();
    const KvStore store = KvStore::open(scratch.get(), Cache::off);
    times.push_back(store.recovery().milliseconds);
    undone = store.recovery().undone;
  }
  bench::Line("kvs_undo")
      .text("order", name_of(order))
      .count("table_bytes", table_bytes)
      .count("batch", keys.size())
      .count("entries_undone", undone)
      .number("milliseconds", bench::median(times))
      .print();
}

// Opening a store that nothing has to be undone in; with the copy, that is loading it.
void measure_open(bench::ScratchRegion& scratch, Cache cache, std::uint64_t table_bytes) {
  std::vector<double> times;
  for (int i = 0; i < 3; ++i) {
    times.push_back(bench::seconds([&] { KvStore::open(scratch.get(), cache).await_cache(); }));
  }
  bench::Line("kvs_open")
      .text("cache", name_of(cache))
      .count("table_bytes", table_bytes)
      .number("milliseconds", bench::median(times) * 1e3)
      .print();
}

void compare(std::uint64_t table_mib, std::uint64_t batch, int batches, Cache cache, bool whole) {
  const std::uint64_t table_bytes = table_mib << 20;
  const KvStore::Options options{table_bytes / 16, static_cast<std::uint32_t>(batch), cache};
  bench::ScratchRegion scratch(KvStore::region_bytes(options));
  const double link = bench::copy_engine_bandwidth();
  Keys keys(batch);
  {
    KvStore store = KvStore::create(scratch.get(), options);
    const double ordered =
        measure_sets(store, keys, Order::ordered, false, batches, table_bytes, link);
    const double unordered =
        measure_sets(store, keys, Order::unordered, false, batches, table_bytes, link);
    const double get_ordered =
        measure_gets(store, keys, Order::ordered, batches, table_bytes, link);
    const double get_unordered =
        measure_gets(store, keys, Order::unordered, batches, table_bytes, link);
    bench::Line("kvs_ordering")
        .text("cache", name_of(cache))
        .count("table_bytes", table_bytes)
        .count("batch", batch)
        .number("set_ratio", unordered / ordered)
        .number("get_ratio", get_unordered / get_ordered)
        .print();
    if (whole) {
      measure_sets(store, keys, Order::ordered, true, batches, table_bytes, link);
      measure_kernel<Looking::alone>(store, keys, batches, table_bytes, link);
      measure_kernel<Looking::by_warp>(store, keys, batches, table_bytes, link);
    }
  }
  if (!whole) return;
  measure_open(scratch, cache, table_bytes);
  if (cache == Cache::on) return;  // undoing knows no copy
  measure_undo(scratch, keys, Order::ordered, table_bytes);
  measure_undo(scratch, keys, Order::unordered, table_bytes);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"table_mib", 256},
                                {"batch", 1 << 17},
                                {"batches", 5},
                                {"sweep", 0},
                                {"cache", 2},
                                {"layouts", 0},
                                {"open_records", 0},
                                {"live", 50}});
  const int batches = static_cast<int>(options["batches"]);
  if (options["layouts"] != 0 || options["open_records"] != 0) {
    if (options["live"] < 1 || options["live"] > 90) {
      std::fprintf(stderr, "--live=%llu: give 1 to 90 percent\n",
                   static_cast<unsigned long long>(options["live"]));
      return 2;
    }
    const bench::LayoutRun run{(options["table_mib"] << 20) / 32, options["live"],
                               static_cast<std::uint32_t>(options["batch"]), batches};
    if (options["layouts"] != 0) bench::compare_layouts(run);
    if (options["open_records"] != 0) bench::measure_openings(options["open_records"], run);
    return 0;
  }
  for (const Cache cache : {Cache::off, Cache::on}) {
    if (options["cache"] == (cache == Cache::on ? 0 : 1)) continue;
    compare(options["table_mib"], options["batch"], batches, cache, true);
    if (options["sweep"] == 0) continue;
    for (const std::uint64_t table_mib : {64, 256, 512, 1024, 4096}) {
      for (const unsigned batch : {10u, 12u, 14u, 16u, 18u, 20u}) {
        compare(table_mib, std::uint64_t{1} << batch, batches, cache, false);
      }
    }
  }
  return 0;
}

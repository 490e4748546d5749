// The hash map: loaded with random keys, then lookups, upserts, and erasures with insertions, by
// batches of several sizes; without and with ordering; without and with the directory in device
// memory. And how full a table is when a key does not fit.
//
//   map_bench [--keys=N] [--value_bytes=N] [--load=PERCENT] [--batches=N] [--least=LOG2]
//             [--most=LOG2] [--directory=0|1|2] [--order=0|1|2] [--host=0|1]
//
// --keys: pairs that are loaded; the table has room for them at --load percent. --least, --most:
// batches of 2^least to 2^most operations, in steps of 4. --directory, --order: 0 without, 1 with,
// 2 both. --host: batches come from, and go to, pinned host memory. --fill_slots: of the table that
// is filled until a key does not fit (values of 8 bytes, in slots); 0: none is.
#include <random>

#include "bench.hpp"
#include "holdfast/hash_map.hpp"
#include "link.hpp"
#include "scratch_region.hpp"

namespace {

using Map = holdfast::HashMap<std::uint64_t>;
using holdfast::MapOptions;
using holdfast::MapResult;
using Order = MapOptions::Order;
using Directory = MapOptions::Directory;

// Key number i: all different, in no order.
__host__ __device__ std::uint64_t key_number(std::uint64_t i) {
  i = (i ^ i >> 31) * 0x7fb5d329728ea185ull;
  i = (i ^ i >> 27) * 0x81dadef4bc2dd44dull;
  return i ^ i >> 33;
}

__global__ void fill_keys(std::uint64_t* keys, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) keys[i] = key_number(first + i);
}

// Of keys [0, all), drawn with a seed.
__global__ void draw_keys(std::uint64_t* keys, std::uint64_t all, std::uint64_t seed,
                          std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) keys[i] = key_number(key_number(seed << 32 | i) % all);
}

// The operations of a batch, in device memory, or from pinned host memory.
class Batch {
 public:
  Batch(std::size_t most, std::uint32_t value_bytes, bool host)
      : host_(host),
        keys_(most),
        values_(most * value_bytes),
        found_(most),
        host_keys_(host ? most : 0),
        host_values_(host ? most * value_bytes : 0),
        host_found_(host ? most : 0) {}

  void take_first(std::uint64_t first, std::size_t count) {
    launch(stream_, dim3(holdfast::blocks_for(count, 256)), dim3(256), fill_keys, keys_.data(),
           first, std::uint64_t{count});
    finish(count);
  }
  void draw(std::uint64_t all, std::size_t count) {
    launch(stream_, dim3(holdfast::blocks_for(count, 256)), dim3(256), draw_keys, keys_.data(), all,
           ++seed_, std::uint64_t{count});
    finish(count);
  }
  const std::uint64_t* keys() const { return host_ ? host_keys_.data() : keys_.data(); }
  std::byte* values() const { return host_ ? host_values_.data() : values_.data(); }
  std::uint8_t* found() const { return host_ ? host_found_.data() : found_.data(); }

 private:
  void finish(std::size_t count) {
    if (host_) copy_async(stream_, host_keys_.data(), keys_.data(), count * 8);
    stream_.synchronize();
  }
  bool host_;
  holdfast::DeviceBuffer<std::uint64_t> keys_;
  holdfast::DeviceBuffer<std::byte> values_;
  holdfast::DeviceBuffer<std::uint8_t> found_;
  holdfast::PinnedBuffer<std::uint64_t> host_keys_;
  holdfast::PinnedBuffer<std::byte> host_values_;
  holdfast::PinnedBuffer<std::uint8_t> host_found_;
  holdfast::Stream stream_;
  std::uint64_t seed_ = 0;
};

struct Run {
  std::uint64_t keys;
  std::uint32_t value_bytes;
  int batches;
  bool host;
};

struct Times {
  std::vector<double> total, prepare, apply, report;
  void add(double seconds, const holdfast::MapTiming& timing) {
    total.push_back(seconds);
    prepare.push_back(timing.prepare);
    apply.push_back(timing.apply);
    report.push_back(timing.report);
  }
};

void print(const char* operation, const Map& map, Order order, const Run& run, std::size_t count,
           const Times& times) {
  const double took = bench::median(times.total);
  const holdfast::MapStats stats = map.stats();
  bench::Line("map")
      .text("operation", operation)
      .text("order", order == Order::ordered ? "ordered" : "unordered")
      .text("directory", stats.directory ? "on" : "off")
      .text("memory", run.host ? "pinned host memory" : "device memory")
      .count("table_bytes", stats.table_bytes)
      .count("value_bytes", run.value_bytes)
      .count("pairs", stats.size)
      .number("load_factor", static_cast<double>(stats.size) / static_cast<double>(stats.capacity))
      .count("batch", count)
      .number("million_per_s", static_cast<double>(count) / took / 1e6)
      .number("batch_ms", took * 1e3)
      .number("prepare_ms", bench::median(times.prepare))
      .number("apply_ms", bench::median(times.apply))
      .number("report_ms", bench::median(times.report))
      .print();
}

template <class Draw, class Body>
Times measure(Map& map, const Run& run, Draw&& draw, Body&& body) {
  Times times;
  for (int i = 0; i <= run.batches; ++i) {
    draw();
    const double took = bench::seconds(body);
    if (i > 0) times.add(took, map.timing());
  }
  return times;
}

void measure_batch(Map& map, Batch& batch, Order order, const Run& run, std::size_t count) {
  map.set_order(order);
  const auto known = [&] { batch.draw(run.keys, count); };
  print("find", map, order, run, count, measure(map, run, known, [&] {
          map.find(batch.keys(), batch.values(), batch.found(), count);
        }));
  print("contains", map, order, run, count,
        measure(map, run, known, [&] { map.contains(batch.keys(), batch.found(), count); }));
  std::uint64_t next = run.keys;
  const auto unknown = [&] { batch.take_first(next += count, count); };
  print("find_absent", map, order, run, count, measure(map, run, unknown, [&] {
          map.find(batch.keys(), batch.values(), batch.found(), count);
        }));
  print("insert_or_assign", map, order, run, count, measure(map, run, known, [&] {
          map.insert_or_assign(batch.keys(), batch.values(), count);
        }));
  // Erased, and inserted again: the table is as full as before.
  Times erasures, insertions;
  for (int i = 0; i <= run.batches; ++i) {
    batch.take_first(std::uint64_t(i) * count % (run.keys - count + 1), count);
    const double erased = bench::seconds([&] { map.erase(batch.keys(), count); });
    if (i > 0) erasures.add(erased, map.timing());
    MapResult result;
    const double inserted =
        bench::seconds([&] { result = map.insert_or_assign(batch.keys(), batch.values(), count); });
    if (i > 0) insertions.add(inserted, map.timing());
    if (result.not_done() != 0) {
      bench::Line("map_not_done").count("full", result.full).count("batch", count).print();
    }
  }
  print("erase", map, order, run, count, erasures);
  print("insert", map, order, run, count, insertions);
}

// Reopened, as after a kill.
void measure_open(bench::ScratchRegion& scratch, Directory directory, const Run& run) {
  scratch.reopen();
  const double took = bench::seconds([&] {
    const Map map = Map::open(scratch.get(), "map", {run.value_bytes, 0, directory});
  });
  bench::Line("map_open")
      .text("directory", directory == Directory::on ? "on" : "off")
      .count("pairs", run.keys)
      .number("pin_ms", scratch.get().open_report().pin_ms)
      .number("open_ms", took * 1e3)
      .print();
}

void compare(const bench::Options& options, Directory directory) {
  const Run run{options["keys"], static_cast<std::uint32_t>(options["value_bytes"]),
                static_cast<int>(options["batches"]), options["host"] != 0};
  const std::size_t most = std::size_t{1} << options["most"];
  MapOptions shape;
  shape.capacity = run.keys * 100 / options["load"];
  shape.value_bytes = run.value_bytes;
  shape.max_batch = static_cast<std::uint32_t>(most);
  shape.directory = directory;
  bench::ScratchRegion scratch(Map::region_bytes(shape));
  {
    Map map = Map::create(scratch.get(), "map", shape);
    Batch batch(most, run.value_bytes, run.host);
    Times load;
    MapResult all;
    for (std::uint64_t first = 0; first < run.keys; first += most) {
      const std::size_t count = std::min<std::uint64_t>(most, run.keys - first);
      batch.take_first(first, count);
      MapResult result;
      const double took =
          bench::seconds([&] { result = map.insert(batch.keys(), batch.values(), count); });
      if (count == most) load.add(took, map.timing());
      all.inserted += result.inserted;
      all.full += result.full;
    }
    print("load", map, Order::unordered, run, most, load);
    bench::Line("map_loaded").count("inserted", all.inserted).count("full", all.full).print();
    for (std::uint64_t log = options["least"]; log <= options["most"]; log += 2) {
      for (const Order order : {Order::unordered, Order::ordered}) {
        if (options["order"] == (order == Order::ordered ? 0 : 1)) continue;
        measure_batch(map, batch, order, run, std::size_t{1} << log);
      }
    }
  }
  measure_open(scratch, directory, run);
}

// Filled by batches until a key does not fit.
void measure_fill(std::uint64_t slots) {
  MapOptions shape;
  shape.capacity = slots;
  shape.value_bytes = 8;
  shape.max_batch = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(slots >> 10, 64, 1 << 20));
  bench::ScratchRegion scratch(Map::region_bytes(shape));
  Map map = Map::create(scratch.get(), "map", shape);
  Batch batch(shape.max_batch, 8, false);
  std::uint64_t next = 0;
  double at_first = 0;
  for (std::uint64_t full = 0; full < slots >> 10; next += shape.max_batch) {
    batch.take_first(next, shape.max_batch);
    full += map.insert(batch.keys(), batch.values(), shape.max_batch).full;
    if (full != 0 && at_first == 0) at_first = map.load_factor();
  }
  bench::Line("map_fill")
      .count("slots", map.capacity())
      .number("load_factor_at_first_failure", at_first)
      .number("load_factor_with_a_1024th_failed", map.load_factor())
      .print();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"keys", 1 << 16},
                                {"value_bytes", 128},
                                {"load", 75},
                                {"batches", 5},
                                {"least", 12},
                                {"most", 16},
                                {"directory", 2},
                                {"order", 2},
                                {"host", 0},
                                {"fill_slots", 1 << 16}});
  if (options["most"] < options["least"] ||
      (std::uint64_t{1} << options["most"]) > options["keys"] || options["load"] < 1 ||
      options["load"] > 95) {
    std::fprintf(stderr,
                 "map_bench: --least to --most are batches of at most --keys operations; --load is "
                 "1 to 95 percent\n");
    return 2;
  }
  for (const Directory directory : {Directory::off, Directory::on}) {
    if (options["directory"] == (directory == Directory::on ? 0 : 1)) continue;
    compare(options, directory);
  }
  if (options["fill_slots"] != 0) measure_fill(options["fill_slots"]);
  return 0;
}

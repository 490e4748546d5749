// The hash map: loaded with random keys, then lookups, upserts, and erasures with insertions, by
// batches of several sizes; without and with ordering; without and with the directory in device
// memory. And how full a table is when a key does not fit.
//
//   map_bench [--keys=N] [--key_bytes=8|16|32|64|128] [--value_bytes=N] [--load=PERCENT]
//   [--batches=N] [--least=LOG2]
//             [--most=LOG2] [--directory=0|1|2] [--order=0|1|2|3] [--host=0|1] [--fill_slots=N]
//             [--resize_items=N] [--resize_steps=N]
//
// --keys: pairs that are loaded; the table has room for them at --load percent. --least, --most:
// batches of 2^least to 2^most operations, in steps of 4. --directory, --order: 0 without, 1 with,
// 2 both; --order=3: where the map finds that it pays. --host: batches come from, and go to, pinned
// host memory. --fill_slots: of the table that is filled until a key does not fit (values of 8
// bytes, in slots); 0: none is.
//
// --resize_items: instead of all that, a table of so many pairs, at --load percent, that doubles:
// at once; and in about --resize_steps steps, each behind a batch of 2^most lookups or upserts,
// whose throughput in windows of 50 ms is set beside that of the same batches before. The clock is
// that of the map's calls: the drawing of keys is left out.
//
//   map_bench --cache=1 [--policy=0|1|2|3] [--warm=N] and those above but --directory and --order
//
// --cache=1: in place of all that, lookups of keys by power laws, with caches from none to a
// quarter of the pairs. --policy: of MapCache, 1 is lfu. --warm: batches in front of a load.
#include <cmath>
#include <random>

#include "bench.hpp"
#include "holdfast/hash_map.hpp"
#include "link.hpp"
#include "map_batch.hpp"
#include "scratch_region.hpp"

namespace {

template <class Key>
using Map = holdfast::HashMap<Key>;
using bench::Batch;
using holdfast::MapOptions;
using holdfast::MapResult;
using Order = MapOptions::Order;
using Directory = MapOptions::Directory;

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

template <class Key>
void print(const char* operation, const Map<Key>& map, Order order, const Run& run,
           std::size_t count, const Times& times) {
  const double took = bench::median(times.total);
  const holdfast::MapStats stats = map.stats();
  bench::Line("map")
      .text("operation", operation)
      .text("order", order == Order::ordered     ? "ordered"
                     : order == Order::unordered ? "unordered"
                                                 : "automatic")
      .text("directory", stats.directory ? "on" : "off")
      .text("memory", run.host ? "pinned host memory" : "device memory")
      .count("table_bytes", stats.table_bytes)
      .count("key_bytes", sizeof(Key))
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

template <class Key, class Draw, class Body>
Times measure(Map<Key>& map, const Run& run, Draw&& draw, Body&& body) {
  Times times;
  for (int i = 0; i <= run.batches; ++i) {
    draw();
    const double took = bench::seconds(body);
    if (i > 0) times.add(took, map.timing());
  }
  return times;
}

template <class Key>
void measure_batch(Map<Key>& map, Batch<Key>& batch, Order order, const Run& run,
                   std::size_t count) {
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
template <class Key>
void measure_open(bench::ScratchRegion& scratch, Directory directory, const Run& run) {
  scratch.reopen();
  const double took = bench::seconds([&] {
    const Map<Key> map = Map<Key>::open(scratch.get(), "map", {run.value_bytes, 0, directory});
  });
  bench::Line("map_open")
      .text("directory", directory == Directory::on ? "on" : "off")
      .count("pairs", run.keys)
      .number("pin_ms", scratch.get().open_report().pin_ms)
      .number("open_ms", took * 1e3)
      .print();
}

std::vector<Order> orders_of(std::uint64_t option) {
  if (option == 3) return {Order::automatic};
  if (option == 2) return {Order::unordered, Order::ordered};
  return {option == 0 ? Order::unordered : Order::ordered};
}

template <class Key>
void compare(const bench::Options& options, Directory directory) {
  const Run run{options["keys"], static_cast<std::uint32_t>(options["value_bytes"]),
                static_cast<int>(options["batches"]), options["host"] != 0};
  const std::size_t most = std::size_t{1} << options["most"];
  MapOptions shape;
  shape.capacity = run.keys * 100 / options["load"];
  shape.value_bytes = run.value_bytes;
  shape.max_batch = static_cast<std::uint32_t>(most);
  shape.directory = directory;
  bench::ScratchRegion scratch(Map<Key>::region_bytes(shape));
  {
    Map<Key> map = Map<Key>::create(scratch.get(), "map", shape);
    Batch<Key> batch(most, run.value_bytes, run.host);
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
      for (const Order order : orders_of(options["order"])) {
        measure_batch(map, batch, order, run, std::size_t{1} << log);
      }
    }
  }
  measure_open<Key>(scratch, directory, run);
}

// ---- The cache ---------------------------------------------------------------------------------

struct CacheRun {
  Run run;
  double exponent;
  holdfast::MapCache::Policy policy;
  std::uint64_t warm;  // batches
  double link;         // bytes a second
};

// Lookups while `goes_on(batches)`: seconds of each batch.
template <class Key, class GoesOn>
std::vector<double> look_up(Map<Key>& map, Batch<Key>& batch, const CacheRun& of, std::size_t count,
                            GoesOn&& goes_on) {
  std::vector<double> times;
  while (goes_on(times.size())) {
    batch.draw_by_power(of.run.keys, of.exponent, count);
    times.push_back(
        bench::seconds([&] { map.find(batch.keys(), batch.values(), batch.found(), count); }));
  }
  return times;
}

// Warmed, and loaded beside batches that go on.
template <class Key>
void fill_cache(Map<Key>& map, Batch<Key>& batch, const CacheRun& of, std::size_t count) {
  look_up(map, batch, of, count, [&](std::size_t done) { return done < of.warm; });
  if (map.stats().cache.rows == 0) return;
  std::vector<double> beside;
  const double took = bench::seconds([&] {
    map.load_cache();
    beside = look_up(map, batch, of, count,
                     [&](std::size_t done) { return done < 1000 && map.stats().cache.loads == 0; });
    map.await_cache();
  });
  bench::Line("map_cache_load")
      .number("exponent", of.exponent)
      .count("rows", map.stats().cache.rows)
      .count("key_bytes", sizeof(Key))
      .count("value_bytes", of.run.value_bytes)
      .count("batch", count)
      .number("load_ms", took * 1e3)  // the drawing of keys among it
      .number("million_per_s_beside", static_cast<double>(count) / bench::median(beside) / 1e6)
      .print();
}

template <class Key>
void measure_cached(Map<Key>& map, Batch<Key>& batch, const CacheRun& of, std::size_t count) {
  const holdfast::MapCacheStats before = map.stats().cache;
  std::vector<double> times = look_up(map, batch, of, count, [&](std::size_t done) {
    return done <= static_cast<std::size_t>(of.run.batches);
  });
  const holdfast::MapStats stats = map.stats();
  double miss_share = 1;
  if (stats.cache.rows != 0) {
    miss_share = static_cast<double>(stats.cache.misses - before.misses) /
                 static_cast<double>(times.size() * count);
  }
  times.erase(times.begin());
  const double rate = static_cast<double>(count) / bench::median(times);
  bench::Line("map_cache")
      .number("exponent", of.exponent)
      .count("policy", static_cast<std::uint64_t>(of.policy))
      .count("pairs", stats.size)
      .count("key_bytes", sizeof(Key))
      .count("value_bytes", of.run.value_bytes)
      .number("cache_share",
              static_cast<double>(stats.cache.rows) / static_cast<double>(stats.size))
      .count("batch", count)
      .number("miss_share", miss_share)
      .number("million_per_s", rate / 1e6)
      .number("link_gb_per_s", of.link / 1e9)
      .number("share_of_link", rate * miss_share * of.run.value_bytes / of.link)
      .print();
}

template <class Key>
void measure_caches(const bench::Options& options) {
  CacheRun of{{options["keys"], static_cast<std::uint32_t>(options["value_bytes"]),
               static_cast<int>(options["batches"]), options["host"] != 0},
              0,
              static_cast<holdfast::MapCache::Policy>(options["policy"]),
              options["warm"],
              bench::copy_engine_bandwidth()};
  const std::size_t most = std::size_t{1} << options["most"];
  MapOptions shape;
  shape.capacity = of.run.keys * 100 / options["load"];
  shape.value_bytes = of.run.value_bytes;
  shape.max_batch = static_cast<std::uint32_t>(most);
  shape.directory = Directory::on;
  bench::ScratchRegion scratch(Map<Key>::region_bytes(shape));
  Batch<Key> batch(most, of.run.value_bytes, of.run.host);
  {
    Map<Key> map = Map<Key>::create(scratch.get(), "map", shape);
    for (std::uint64_t first = 0; first < of.run.keys; first += most) {
      const std::size_t count = std::min<std::uint64_t>(most, of.run.keys - first);
      batch.take_first(first, count);
      map.insert(batch.keys(), batch.values(), count);
    }
  }
  const std::uint64_t stride = (of.run.value_bytes + 15) / 16 * 16;
  for (const double exponent : {1.05, .99}) {
    of.exponent = exponent;
    for (const std::uint64_t thousandths : {0, 10, 25, 50, 100, 150, 200, 250}) {
      holdfast::MapOpenOptions how;
      how.directory = Directory::on;
      how.cache.bytes = of.run.keys * thousandths / 1000 * stride;
      how.cache.policy = of.policy;
      Map<Key> map = Map<Key>::open(scratch.get(), "map", how);
      fill_cache(map, batch, of, most);
      for (std::uint64_t log = options["least"]; log <= options["most"]; log += 2) {
        measure_cached(map, batch, of, std::size_t{1} << log);
      }
    }
  }
}

// Filled by batches until a key does not fit.
template <class Key>
void measure_fill(std::uint64_t slots) {
  MapOptions shape;
  shape.capacity = slots;
  shape.value_bytes = 8;
  shape.max_batch = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(slots >> 10, 64, 1 << 20));
  bench::ScratchRegion scratch(Map<Key>::region_bytes(shape));
  Map<Key> map = Map<Key>::create(scratch.get(), "map", shape);
  Batch<Key> batch(shape.max_batch, 8, false);
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

// ---- Resizing ----------------------------------------------------------------------------------

// Operations by the time they took, in windows. A batch is spread evenly over its time.
class Windows {
 public:
  static constexpr double kSeconds = 0.05;
  void add(double seconds, double operations) {
    const double rate = operations / seconds;
    for (double left = seconds; left > 0;) {
      const std::size_t window = static_cast<std::size_t>(now_ / kSeconds);
      const double until = (static_cast<double>(window) + 1) * kSeconds;
      const double here = std::min(left, std::max(until - now_, 1e-9));
      if (counts_.size() <= window) counts_.resize(window + 1, 0);
      counts_[window] += rate * here;
      now_ += here;
      left -= here;
    }
  }
  double seconds() const { return now_; }
  // Of whole windows; of all the time where there is none.
  std::vector<double> million_per_s() const {
    const auto whole = static_cast<std::size_t>(now_ / kSeconds);
    std::vector<double> rates;
    for (std::size_t i = 0; i < whole; ++i) rates.push_back(counts_[i] / kSeconds / 1e6);
    if (rates.empty() && now_ > 0) rates.push_back(counts_[0] / now_ / 1e6);
    return rates;
  }

 private:
  std::vector<double> counts_;
  double now_ = 0;
};

// A table that is loaded, in a region that has room for twice as much.
template <class Key>
struct Resizable {
  static MapOptions shape_of(const Run& run, const bench::Options& options, Directory directory) {
    MapOptions shape;
    shape.capacity = run.keys * 100 / options["load"];
    shape.value_bytes = run.value_bytes;
    shape.max_batch = 1u << options["most"];
    shape.directory = directory;
    return shape;
  }
  Resizable(const Run& run, const bench::Options& options, Directory directory)
      : shape(shape_of(run, options, directory)),
        scratch(3 * Map<Key>::region_bytes(shape)),
        map(Map<Key>::create(scratch.get(), "map", shape)),
        batch(shape.max_batch, run.value_bytes, run.host) {
    for (std::uint64_t first = 0; first < run.keys; first += shape.max_batch) {
      const std::size_t count = std::min<std::uint64_t>(shape.max_batch, run.keys - first);
      batch.take_first(first, count);
      not_done += map.insert(batch.keys(), batch.values(), count).not_done();
    }
  }
  MapOptions shape;
  bench::ScratchRegion scratch;
  Map<Key> map;
  Batch<Key> batch;
  std::uint64_t not_done = 0;
};

template <class Key>
void measure_resize_at_once(const Run& run, const bench::Options& options, Directory directory) {
  Resizable<Key> of(run, options, directory);
  const std::uint64_t before = of.map.size();
  const double begin = bench::seconds([&] { of.map.grow(); });
  const std::uint64_t buckets = of.map.stats().left_to_move;
  const double move = bench::seconds([&] { of.map.migrate(buckets); });
  of.map.quiesce();  // counts what the table has
  bench::Line("map_resize")
      .text("directory", of.map.stats().directory ? "on" : "off")
      .count("pairs", of.map.size())
      .count("pairs_before", before)
      .count("key_bytes", sizeof(Key))
      .count("value_bytes", run.value_bytes)
      .count("capacity", of.map.capacity())
      .count("buckets_emptied", buckets)
      .number("begin_ms", begin * 1e3)
      .number("move_ms", move * 1e3)
      .number("resize_ms", (begin + move) * 1e3)
      .print();
}

template <class Key>
void measure_resize_beside(const Run& run, const bench::Options& options, Directory directory,
                           bool upserts) {
  Resizable<Key> of(run, options, directory);
  const std::size_t count = of.shape.max_batch;
  const auto operate = [&] {
    if (upserts) {
      of.map.insert_or_assign(of.batch.keys(), of.batch.values(), count);
    } else {
      of.map.find(of.batch.keys(), of.batch.values(), of.batch.found(), count);
    }
  };
  const auto time_batch = [&](Windows& windows, auto&& body) {
    of.batch.draw(run.keys, count);
    windows.add(bench::seconds(body), static_cast<double>(count));
  };
  Windows first, steady, beside;
  for (int i = 0; i < 3; ++i) time_batch(first, operate);
  while (steady.seconds() < 10 * Windows::kSeconds) time_batch(steady, operate);
  const double begin = bench::seconds([&] { of.map.grow(); });
  const std::uint64_t step = of.map.stats().left_to_move / options["resize_steps"] + 1;
  double longest = 0;
  bool growing = true;
  std::uint64_t steps = 0;
  while (growing) {
    time_batch(beside, [&] {
      operate();
      longest = std::max(longest, bench::seconds([&] { growing = of.map.migrate(step); }));
    });
    ++steps;
  }
  const std::vector<double> rates = beside.million_per_s();
  const double least = *std::min_element(rates.begin(), rates.end());
  const double usual = bench::median(steady.million_per_s());
  bench::Line("map_resize_beside")
      .text("operation", upserts ? "insert_or_assign" : "find")
      .text("directory", of.map.stats().directory ? "on" : "off")
      .count("pairs", of.map.size())
      .count("key_bytes", sizeof(Key))
      .count("value_bytes", run.value_bytes)
      .count("batch", count)
      .count("steps", steps)
      .count("buckets_of_step", step)
      .number("begin_ms", begin * 1e3)
      .number("longest_step_ms", longest * 1e3)
      .number("growth_ms", beside.seconds() * 1e3)
      .number("steady_million_per_s", usual)
      .number("least_window_million_per_s", least)
      .number("least_share_of_steady", least / usual)
      .numbers("windows_million_per_s", rates)
      .print();
}

template <class Key>
void measure_resizes(const bench::Options& options, Directory directory) {
  const Run run{options["resize_items"], static_cast<std::uint32_t>(options["value_bytes"]),
                static_cast<int>(options["batches"]), options["host"] != 0};
  measure_resize_at_once<Key>(run, options, directory);
  measure_resize_beside<Key>(run, options, directory, false);
  measure_resize_beside<Key>(run, options, directory, true);
}

template <class Key>
void run_all(const bench::Options& options) {
  if (options["cache"] != 0) {
    measure_caches<Key>(options);
    return;
  }
  for (const Directory directory : {Directory::off, Directory::on}) {
    if (options["directory"] == (directory == Directory::on ? 0 : 1)) continue;
    if (options["resize_items"] != 0) {
      measure_resizes<Key>(options, directory);
    } else {
      compare<Key>(options, directory);
    }
  }
  if (options["resize_items"] == 0 && options["fill_slots"] != 0)
    measure_fill<Key>(options["fill_slots"]);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"keys", 1 << 16},
                                {"key_bytes", 8},
                                {"value_bytes", 128},
                                {"load", 75},
                                {"batches", 5},
                                {"least", 12},
                                {"most", 16},
                                {"directory", 2},
                                {"order", 2},
                                {"host", 0},
                                {"cache", 0},
                                {"policy", 1},
                                {"warm", 8},
                                {"fill_slots", 1 << 16},
                                {"resize_items", 0},
                                {"resize_steps", 128}});
  const std::uint64_t pairs =
      options["resize_items"] != 0 ? options["resize_items"] : options["keys"];
  if (options["most"] < options["least"] || (std::uint64_t{1} << options["most"]) > pairs ||
      options["load"] < 1 || options["load"] > 95 || options["resize_steps"] == 0) {
    std::fprintf(stderr,
                 "map_bench: --least to --most are batches of at most --keys (--resize_items) "
                 "operations; --load is 1 to 95 percent; --resize_steps is 1 or more\n");
    return 2;
  }
  switch (options["key_bytes"]) {
    case 8:
      run_all<std::uint64_t>(options);
      return 0;
    case 16:
      run_all<holdfast::Bytes<16>>(options);
      return 0;
    case 32:
      run_all<holdfast::Bytes<32>>(options);
      return 0;
    case 64:
      run_all<holdfast::Bytes<64>>(options);
      return 0;
    case 128:
      run_all<holdfast::Bytes<128>>(options);
      return 0;
    default:
      std::fprintf(stderr, "map_bench: --key_bytes is 8, 16, 32, 64 or 128\n");
      return 2;
  }
}

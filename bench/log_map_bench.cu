// The log map beside the hash map on the same batches, in one process: pairs that are loaded, then
// batches of upserts and of lookups of uniform keys, all of which are there.
//
//   log_map_bench [--keys=N] [--value_bytes=N] [--load=PERCENT] [--batches=N] [--least=LOG2]
//                 [--most=LOG2] [--age=N] [--hash_map=0|1] [--host=0|1]
//
// --load: pairs of 100 that there is room for. --age: as many upserts come first as N times the
// places that values have, in batches of 2^most. Batches of 2^least to 2^most operations, in device
// memory (--host=1: pinned host memory).
#include <vector>

#include "bench.hpp"
#include "holdfast/log_map.hpp"
#include "map_batch.hpp"
#include "scratch_region.hpp"

namespace {

using Key = std::uint64_t;
using bench::Batch;
using holdfast::HashMap;
using holdfast::LogMap;

struct Run {
  std::uint64_t keys;
  std::uint64_t capacity;
  std::uint32_t value_bytes;
  int batches;
  std::uint64_t least, most;
  std::uint64_t age;
  bool host;
};

template <class Call>
void measure(const char* map, const char* operation, Batch<Key>& batch, const Run& run,
             std::size_t count, Call&& call) {
  std::vector<double> times;
  for (int i = 0; i <= run.batches; ++i) {
    batch.draw(run.keys, count);
    const double took = bench::seconds(call);
    if (i > 0) times.push_back(took);
  }
  const double took = bench::median(times);
  bench::Line("log_map")
      .text("map", map)
      .text("operation", operation)
      .text("memory", run.host ? "pinned" : "device")
      .count("value_bytes", run.value_bytes)
      .count("pairs", run.keys)
      .count("capacity", run.capacity)
      .count("batch", count)
      .count("age", run.age)
      .number("million_per_s", static_cast<double>(count) / took / 1e6)
      .number("gb_per_s", static_cast<double>(count) * run.value_bytes / took / 1e9)
      .number("batch_ms", took * 1e3)
      .print();
}

// `upsert(count)` and `find(count)` are of the batch.
template <class Upsert, class Find>
void measure_all(const char* map, Batch<Key>& batch, const Run& run, Upsert&& upsert, Find&& find) {
  const std::size_t most = std::size_t{1} << run.most;
  const double loading = bench::seconds([&] {
    for (std::uint64_t first = 0; first < run.keys; first += most) {
      const std::size_t count = std::min<std::uint64_t>(most, run.keys - first);
      batch.take_first(first, count);
      upsert(count);
    }
  });
  bench::Line("log_map_load").text("map", map).number("seconds", loading).print();
  for (std::uint64_t left = run.age * (run.capacity + most); left > 0;
       left -= std::min<std::uint64_t>(left, most)) {
    batch.draw(run.keys, most);
    upsert(most);
  }
  for (std::uint64_t log = run.least; log <= run.most; log += 2) {
    const std::size_t count = std::size_t{1} << log;
    measure(map, "insert_or_assign", batch, run, count, [&] { upsert(count); });
    measure(map, "find", batch, run, count, [&] { find(count); });
  }
}

void measure_log_map(Batch<Key>& batch, const Run& run) {
  LogMap::Options shape;
  shape.capacity = run.capacity;
  shape.value_bytes = run.value_bytes;
  shape.max_batch = 1u << run.most;
  bench::ScratchRegion scratch(LogMap::region_bytes(shape));
  LogMap map = LogMap::create(scratch.get(), "map", shape);
  measure_all(
      "log_map", batch, run,
      [&](std::size_t count) { map.insert_or_assign(batch.keys(), batch.values(), count); },
      [&](std::size_t count) { map.find(batch.keys(), batch.values(), batch.found(), count); });
  const LogMap::Stats stats = map.stats();
  bench::Line("log_map_stats")
      .count("size", stats.size)
      .number("write_amplification", stats.index.write_amplification())
      .number("space_amplification", stats.index.space_amplification())
      .print();
}

void measure_hash_map(Batch<Key>& batch, const Run& run) {
  holdfast::MapOptions shape;
  shape.capacity = run.capacity;
  shape.value_bytes = run.value_bytes;
  shape.max_batch = 1u << run.most;
  using Map = HashMap<Key>;
  bench::ScratchRegion scratch(Map::region_bytes(shape));
  Map map = Map::create(scratch.get(), "map", shape);
  measure_all(
      "hash_map", batch, run,
      [&](std::size_t count) { map.insert_or_assign(batch.keys(), batch.values(), count); },
      [&](std::size_t count) { map.find(batch.keys(), batch.values(), batch.found(), count); });
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
                                {"age", 0},
                                {"hash_map", 1},
                                {"host", 0}});
  if (options["most"] < options["least"] || options["most"] > 24 ||
      (std::uint64_t{1} << options["most"]) > options["keys"] || options["load"] < 1 ||
      options["load"] > 90 || options["age"] > 100) {
    std::fprintf(stderr,
                 "log_map_bench: --least to --most are batches of at most --keys operations, and "
                 "of 2^24; --load is 1 to 90 percent, --age at most 100\n");
    return 2;
  }
  const Run run{options["keys"],
                options["keys"] * 100 / options["load"],
                static_cast<std::uint32_t>(options["value_bytes"]),
                static_cast<int>(options["batches"]),
                options["least"],
                options["most"],
                options["age"],
                options["host"] != 0};
  try {
    Batch<Key> batch(std::size_t{1} << run.most, run.value_bytes, run.host);
    measure_log_map(batch, run);
    if (options["hash_map"] != 0) measure_hash_map(batch, run);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "log_map_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

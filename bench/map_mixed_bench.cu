// Mixed batches of the hash map, half lookups and half upserts, of keys by a power law: as one
// batch by apply(); and as two batches of one kind each, which is what a program does without it,
// and which says less: all lookups see what was there before. The latter's keys are half of the
// batch's each, drawn alike.
//
//   map_mixed_bench [--keys=N] [--value_bytes=N] [--load=PERCENT] [--batches=N] [--least=LOG2]
//                   [--most=LOG2] [--directory=0|1] [--cache=0|1]
//
// --keys: pairs that are loaded; all are there. --cache=1: an LFU cache of a tenth of the values,
// loaded before. Exponents are 0 (uniform) and .99, and batches of 2^least to 2^most operations in
// device memory.
#include <vector>

#include "bench.hpp"
#include "map_batch.hpp"
#include "scratch_region.hpp"

namespace {

using Key = std::uint64_t;
using Map = holdfast::HashMap<Key>;
using bench::Batch;
using holdfast::MapOp;
using holdfast::MapOptions;
using holdfast::MapResult;

__global__ void alternate(MapOp* kinds, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) kinds[i] = i % 2 == 0 ? MapOp::find : MapOp::insert_or_assign;
}

struct Run {
  std::uint64_t keys;
  std::uint32_t value_bytes;
  int batches;
};

struct Arrays {
  Arrays(std::size_t most, std::uint32_t value_bytes)
      : batch(most, value_bytes, false), out(most * value_bytes), kinds(most) {
    holdfast::Stream stream;
    launch(stream, dim3(holdfast::blocks_for(most, 256)), dim3(256), alternate, kinds.data(),
           static_cast<std::uint32_t>(most));
    stream.synchronize();
  }
  void draw(const Run& run, double exponent, std::size_t count) {
    if (exponent == 0) {
      batch.draw(run.keys, count);
    } else {
      batch.draw_by_power(run.keys, exponent, count);
    }
  }
  Batch<Key> batch;
  holdfast::DeviceBuffer<std::byte> out;
  holdfast::DeviceBuffer<MapOp> kinds;
};

void print(const char* how, const Map& map, const Run& run, double exponent, std::size_t count,
           const std::vector<double>& times, const std::vector<double>& prepare) {
  const double took = bench::median(times);
  const holdfast::MapStats stats = map.stats();
  bench::Line("map_mixed")
      .text("how", how)
      .number("exponent", exponent)
      .text("directory", stats.directory ? "on" : "off")
      .count("cache_rows", stats.cache.rows)
      .count("value_bytes", run.value_bytes)
      .count("pairs", stats.size)
      .count("batch", count)
      .number("million_per_s", static_cast<double>(count) / took / 1e6)
      .number("batch_ms", took * 1e3)
      .number("prepare_ms", bench::median(prepare))
      .print();
}

// `call()` makes a batch, which is timed, and returns the milliseconds of its preparation.
template <class Call>
void measure(const char* how, const Map& map, Arrays& arrays, const Run& run, double exponent,
             std::size_t count, Call&& call) {
  std::vector<double> times, prepare;
  for (int i = 0; i <= run.batches; ++i) {
    arrays.draw(run, exponent, count);
    double prepared = 0;
    const double took = bench::seconds([&] { prepared = call(); });
    if (i > 0) times.push_back(took), prepare.push_back(prepared);
  }
  print(how, map, run, exponent, count, times, prepare);
}

void measure_all(Map& map, Arrays& arrays, const Run& run, double exponent, std::size_t count) {
  Batch<Key>& batch = arrays.batch;
  measure("one mixed batch", map, arrays, run, exponent, count, [&] {
    map.apply(arrays.kinds.data(), batch.keys(), batch.values(), arrays.out.data(), count);
    return map.timing().prepare;
  });
  measure("a batch of each kind", map, arrays, run, exponent, count, [&] {
    const std::size_t half = count / 2;
    map.find(batch.keys(), arrays.out.data(), batch.found(), half);
    const double prepared = map.timing().prepare;
    map.insert_or_assign(batch.keys() + half, batch.values(), half);
    return prepared + map.timing().prepare;
  });
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
                                {"directory", 1},
                                {"cache", 0}});
  if (options["most"] < options["least"] ||
      (std::uint64_t{1} << options["most"]) > options["keys"] || options["load"] < 1 ||
      options["load"] > 90) {
    std::fprintf(stderr,
                 "map_mixed_bench: --least to --most are batches of at most --keys operations; "
                 "--load is 1 to 90 percent\n");
    return 2;
  }
  const Run run{options["keys"], static_cast<std::uint32_t>(options["value_bytes"]),
                static_cast<int>(options["batches"])};
  const std::size_t most = std::size_t{1} << options["most"];
  MapOptions shape;
  shape.capacity = run.keys * 100 / options["load"];
  shape.value_bytes = run.value_bytes;
  shape.max_batch = static_cast<std::uint32_t>(most);
  shape.directory =
      options["directory"] != 0 ? MapOptions::Directory::on : MapOptions::Directory::off;
  if (options["cache"] != 0) shape.cache = {run.keys / 10 * run.value_bytes};
  bench::ScratchRegion scratch(Map::region_bytes(shape));
  Map map = Map::create(scratch.get(), "map", shape);
  Arrays arrays(most, run.value_bytes);
  for (std::uint64_t first = 0; first < run.keys; first += most) {
    const std::size_t count = std::min<std::uint64_t>(most, run.keys - first);
    arrays.batch.take_first(first, count);
    map.insert(arrays.batch.keys(), arrays.batch.values(), count);
  }
  for (const double exponent : {0., .99}) {
    for (std::uint64_t log = options["least"]; log <= options["most"]; log += 2) {
      const std::size_t count = std::size_t{1} << log;
      if (options["cache"] != 0) {
        for (int i = 0; i < 8; ++i) {
          arrays.draw(run, exponent, count);
          map.find(arrays.batch.keys(), arrays.out.data(), arrays.batch.found(), count);
        }
        map.load_cache();
        map.await_cache();
      }
      measure_all(map, arrays, run, exponent, count);
    }
  }
}

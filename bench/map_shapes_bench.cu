// The hash map by the shape of its table: how full it is when a key first does not fit, and what
// inserts and lookups take, without a directory, so that they read what the shape says (GPHash,
// FAST '25, figure 13).
//
//   map_shapes_bench [--slots=N] [--batch=N] [--batches=N]
//
// --slots: of the table, about. --batches: of lookups, of --batch keys each, at a load of three
// quarters. Keys and values of 8 bytes. A shape is levels, hashes and slots of a bucket (L-H-S).
#include <string>
#include <vector>

#include "bench.hpp"
#include "map_batch.hpp"
#include "scratch_region.hpp"

namespace {

using Key = std::uint64_t;
using bench::Batch;
using holdfast::MapConfig;
using holdfast::MapOptions;

struct Run {
  std::uint64_t slots, batch;
  int batches;
};

template <class Config>
std::string name() {
  return std::to_string(Config::kLevels) + "L-" + std::to_string(Config::kHashes) + "H-" +
         std::to_string(Config::kWays) + "S";
}

template <class Config>
void measure(const Run& run) {
  using Map = holdfast::HashMap<Key, Config>;
  MapOptions shape;
  shape.capacity = run.slots;
  shape.value_bytes = 8;
  shape.max_batch = static_cast<std::uint32_t>(run.batch);
  shape.directory = MapOptions::Directory::off;
  bench::ScratchRegion scratch(Map::region_bytes(shape));
  Map map = Map::create(scratch.get(), "map", shape);
  Batch<Key> batch(run.batch, 8, false);
  std::uint64_t next = 0, full = 0;
  const auto insert = [&](std::uint64_t count) {
    batch.take_first(next, count);
    next += count;
    return bench::seconds([&] { full += map.insert(batch.keys(), batch.values(), count).full; });
  };
  std::vector<double> inserts, finds, misses;
  while (map.size() + run.batch <= map.capacity() / 4 * 3) inserts.push_back(insert(run.batch));
  const std::uint64_t there = next;
  for (int i = 0; i <= run.batches; ++i) {
    batch.draw(there, run.batch);
    const double found =
        bench::seconds([&] { map.find(batch.keys(), batch.values(), batch.found(), run.batch); });
    batch.take_first(there + i * run.batch, run.batch);
    const double missed =
        bench::seconds([&] { map.find(batch.keys(), batch.values(), batch.found(), run.batch); });
    if (i > 0) finds.push_back(found), misses.push_back(missed);
  }
  // In small batches, so that the first failure is seen where it is.
  const std::uint64_t few = std::max<std::uint64_t>(1, std::min(run.batch, map.capacity() >> 12));
  double at_first = full == 0 ? 1 : map.load_factor();
  while (full == 0 && map.size() < map.capacity()) {
    insert(few);
    if (full != 0) at_first = map.load_factor();
  }
  const auto rate = [&](const std::vector<double>& times) {
    return static_cast<double>(run.batch) / bench::median(times) / 1e6;
  };
  bench::Line("map_shapes")
      .text("shape", name<Config>().c_str())
      .count("width", Config::kWidth)
      .count("slots", map.capacity())
      .count("batch", run.batch)
      .number("load_factor_at_first_failure", at_first)
      .number("insert_million_per_s", rate(inserts))
      .number("find_million_per_s", rate(finds))
      .number("find_absent_million_per_s", rate(misses))
      .print();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"slots", 1 << 16}, {"batch", 1 << 12}, {"batches", 5}});
  if (options["slots"] < 4096 || options["batch"] < 1 || options["batches"] < 1 ||
      options["batch"] > options["slots"] / 4) {
    std::fprintf(stderr,
                 "map_shapes_bench: --slots is 4096 or more, --batch at most a quarter of them, "
                 "--batches 1 or more\n");
    return 2;
  }
  const Run run{options["slots"], options["batch"], static_cast<int>(options["batches"])};
  measure<MapConfig<4>>(run);
  measure<MapConfig<8>>(run);
  measure<MapConfig<16>>(run);
  measure<MapConfig<32>>(run);
  measure<MapConfig<32, 1, 2>>(run);
  measure<MapConfig<32, 2, 1>>(run);
  measure<MapConfig<32, 2, 4>>(run);
  measure<MapConfig<32, 4, 2>>(run);
}

// The stores of a hash map's changes, and nothing else of them: what its batches cannot be faster
// than, as its table is laid out. Operations go all over the table; values go to places in a row,
// as a new map's do.
//
//   map_stores_bench [--slots=N] [--value_bytes=N] [--batch=N] [--repeat=N]
//
// erase: a label and a word. assign: a value, durable in front of a word. insert: a value, durable
// in front of a label and a word.
#include <algorithm>
#include <stdexcept>

#include "bench.hpp"
#include "hash_map/kernels.hpp"
#include "holdfast/hash_map.hpp"
#include "holdfast/kernel.hpp"
#include "scratch_region.hpp"

namespace {

using Shape = holdfast::detail::MapShape<std::uint64_t, holdfast::MapConfig<>>;
constexpr std::uint32_t kBucketWords = Shape::bucket_bytes(0) / 8;
constexpr std::uint32_t kWordsAt = Shape::kWordsAt / 8;
constexpr unsigned kBlock = 256;

enum class Change { erase, assign, insert };
constexpr const char* kNames[] = {"erase", "assign", "insert"};

// As many threads for an operation as its value has pieces of 16 bytes, up to a warp.
__global__ void store_all(std::uint64_t* table, std::uint64_t buckets, uint4* values,
                          std::uint32_t pieces, unsigned width, std::uint32_t count,
                          std::uint64_t seed, Change change) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t op = thread / width;
  const auto rank = static_cast<unsigned>(thread % width);
  if (op >= count) return;
  if (change != Change::erase) {
    uint4* const to = values + op * pieces;
    for (unsigned i = rank; i < pieces; i += width) to[i] = make_uint4(i, i, i, i);
    holdfast::persist();
    __syncwarp();
  }
  if (rank != 0) return;
  // Far from that of the operation before.
  const std::uint64_t bucket = (op * 0x9e3779b1ull + seed) % buckets;
  std::uint64_t* const words = table + bucket * kBucketWords + op % Shape::kWays;
  holdfast::detail::map_store(words + kWordsAt, op + seed);
  if (change != Change::assign) holdfast::detail::map_store(words, op + seed);
}

void measure(const bench::Options& options, Change change) {
  const std::uint64_t buckets = std::max<std::uint64_t>(1, options["slots"] / Shape::kWays);
  const auto batch = static_cast<std::uint32_t>(options["batch"]);
  const auto pieces = static_cast<std::uint32_t>((options["value_bytes"] + 15) / 16);
  const std::uint64_t table_bytes = buckets * kBucketWords * 8;
  const std::uint64_t value_bytes = std::uint64_t{batch} * pieces * 16;
  bench::ScratchRegion scratch(table_bytes + value_bytes + (8 << 20));
  const auto table = scratch.get().allocate<std::uint64_t>("table", buckets * kBucketWords);
  const auto values = scratch.get().allocate<std::uint64_t>("values", value_bytes / 8);
  const unsigned width = change == Change::erase ? 1 : holdfast::map::width_for(pieces * 16);
  holdfast::Stream stream;
  const double took = bench::warmed(options["repeat"], [&](std::uint64_t i) {
    return bench::seconds([&] {
      holdfast::launch(stream, dim3(holdfast::blocks_for(std::uint64_t{batch} * width, kBlock)),
                       dim3(kBlock), store_all, table.data(), buckets,
                       reinterpret_cast<uint4*>(values.data()), pieces, width, batch, i * 7919,
                       change);
      stream.synchronize();
    });
  });
  bench::Line("map_stores")
      .text("operation", kNames[static_cast<unsigned>(change)])
      .count("slots", buckets * Shape::kWays)
      .count("table_bytes", table_bytes)
      .count("value_bytes", options["value_bytes"])
      .count("batch", batch)
      .number("milliseconds", took * 1e3)
      .number("million_per_s", batch / took / 1e6)
      .print();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(
      argc, argv, {{"slots", 1 << 16}, {"value_bytes", 128}, {"batch", 1 << 12}, {"repeat", 5}});
  try {
    const std::uint64_t most = std::uint64_t{1} << 30;
    for (const char* name : {"slots", "value_bytes", "batch", "repeat"}) {
      if (options[name] < 1 || options[name] > most) {
        throw std::invalid_argument(std::string("--") + name + " is 1 to 2^30");
      }
    }
    for (const Change change : {Change::erase, Change::assign, Change::insert}) {
      measure(options, change);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "map_stores_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

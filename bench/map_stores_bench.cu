// What a hash map's batches take of the medium, and nothing else of them: what they cannot be
// faster than, as its table and its values are laid out.
//
//   map_stores_bench [--slots=N] [--value_bytes=N] [--places=N] [--least=LOG2] [--most=LOG2]
//                    [--repeat=N]
//
// erase: a label and a word. assign: a value, durable in front of a word. insert: a value, durable
// in front of a label and a word. find: a value is read, as a lookup through the directory does.
// Words go all over the table. Values are of places in rising order, one of each stretch of
// --places (0: in a row, as a new map's are stored). Batches of 2^least to 2^most operations.
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

enum class Operation { erase, assign, insert, find };
constexpr const char* kNames[] = {"erase", "assign", "insert", "find"};

// Far from that of the operation before.
__device__ std::uint64_t scattered(std::uint64_t op, std::uint64_t seed, std::uint64_t among) {
  return (op * 0x9e3779b1ull + seed) % among;
}

struct Values {
  uint4* all;
  std::uint32_t pieces;   // of a value
  std::uint64_t stretch;  // places for each operation

  __device__ uint4* of(std::uint64_t op, std::uint64_t seed) const {
    return all + (op * stretch + scattered(op, seed, stretch)) * pieces;
  }
};

// As many threads for an operation as its value has pieces of 16 bytes, up to a warp.
__global__ void store_all(std::uint64_t* table, std::uint64_t buckets, Values values,
                          unsigned width, std::uint32_t count, std::uint64_t seed,
                          Operation change) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t op = thread / width;
  const auto rank = static_cast<unsigned>(thread % width);
  if (op >= count) return;
  if (change != Operation::erase) {
    uint4* const to = values.of(op, seed);
    for (unsigned i = rank; i < values.pieces; i += width) to[i] = make_uint4(i, i, i, i);
    holdfast::persist();
    __syncwarp();
  }
  if (rank != 0) return;
  std::uint64_t* const words =
      table + scattered(op, seed, buckets) * kBucketWords + op % Shape::kWays;
  holdfast::detail::map_store(words + kWordsAt, op + seed);
  if (change != Operation::assign) holdfast::detail::map_store(words, op + seed);
}

__global__ void read_all(Values values, uint4* out, unsigned width, std::uint32_t count,
                         std::uint64_t seed) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t op = thread / width;
  if (op >= count) return;
  const uint4* const from = values.of(op, seed);
  for (auto i = static_cast<unsigned>(thread % width); i < values.pieces; i += width) {
    out[op * values.pieces + i] = from[i];
  }
}

struct Run {
  std::uint64_t buckets, places;
  std::uint32_t value_bytes, pieces;
  std::uint64_t least, most, repeat;
};

void measure(const Run& run, std::uint64_t* table, uint4* all, uint4* out, std::uint32_t batch,
             Operation operation) {
  const unsigned width =
      operation == Operation::erase ? 1 : holdfast::map::width_for(run.pieces * 16);
  const Values values{all, run.pieces, std::max<std::uint64_t>(run.places / batch, 1)};
  const dim3 grid(holdfast::blocks_for(std::uint64_t{batch} * width, kBlock));
  holdfast::Stream stream;
  const double took = bench::warmed(run.repeat, [&](std::uint64_t i) {
    const std::uint64_t seed = i * 7919;
    return bench::seconds([&] {
      if (operation == Operation::find) {
        holdfast::launch(stream, grid, dim3(kBlock), read_all, values, out, width, batch, seed);
      } else {
        holdfast::launch(stream, grid, dim3(kBlock), store_all, table, run.buckets, values, width,
                         batch, seed, operation);
      }
      stream.synchronize();
    });
  });
  bench::Line("map_stores")
      .text("operation", kNames[static_cast<unsigned>(operation)])
      .count("slots", run.buckets * Shape::kWays)
      .count("table_bytes", run.buckets * kBucketWords * 8)
      .count("value_bytes", run.value_bytes)
      .count("places", std::max<std::uint64_t>(run.places, batch))
      .count("batch", batch)
      .number("milliseconds", took * 1e3)
      .number("million_per_s", batch / took / 1e6)
      .print();
}

void measure_all(const Run& run) {
  const std::uint64_t most = std::uint64_t{1} << run.most;
  const std::uint64_t words = run.buckets * kBucketWords;
  const std::uint64_t value_words = std::max(run.places, most) * run.pieces * 2;
  bench::ScratchRegion scratch((words + value_words) * 8 + (8 << 20));
  const auto table = scratch.get().allocate<std::uint64_t>("table", words);
  const auto values = scratch.get().allocate<std::uint64_t>("values", value_words);
  holdfast::DeviceBuffer<uint4> out(most * run.pieces);
  for (std::uint64_t log = run.least; log <= run.most; log += 2) {
    for (const Operation operation :
         {Operation::erase, Operation::assign, Operation::insert, Operation::find}) {
      measure(run, table.data(), reinterpret_cast<uint4*>(values.data()), out.data(),
              std::uint32_t{1} << log, operation);
    }
  }
}

std::uint64_t checked(const bench::Options& options, const char* name, std::uint64_t least,
                      std::uint64_t most) {
  if (options[name] < least || options[name] > most) {
    throw std::invalid_argument(std::string("--") + name + " is " + std::to_string(least) + " to " +
                                std::to_string(most));
  }
  return options[name];
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"slots", 1 << 16},
                                {"value_bytes", 128},
                                {"places", 0},
                                {"least", 12},
                                {"most", 12},
                                {"repeat", 5}});
  try {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
    Run run{};
    run.buckets = std::max<std::uint64_t>(1, checked(options, "slots", 1, kMost) / Shape::kWays);
    run.value_bytes = static_cast<std::uint32_t>(checked(options, "value_bytes", 1, 4096));
    run.pieces = (run.value_bytes + 15) / 16;
    run.places = checked(options, "places", 0, kMost);
    run.most = checked(options, "most", 0, 24);
    run.least = checked(options, "least", 0, run.most);
    run.repeat = checked(options, "repeat", 1, 1000);
    measure_all(run);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "map_stores_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

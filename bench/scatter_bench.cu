// Stores of 16 bytes at random places of a table, each persisted: in order of their addresses, and
// not. What a store's batches of SETs cannot be faster than.
//
//   scatter_bench [--most_mib=N] [--stores=N] [--repeat=N]
#include <algorithm>
#include <random>

#include "bench.hpp"
#include "holdfast/kernel.hpp"
#include "scratch_region.hpp"

namespace {

struct alignas(16) Pair {
  static constexpr const char* kTypeName = "scatter_pair";
  std::uint64_t key;
  std::uint64_t value;
};

__global__ void persist_at(Pair* pairs, const std::uint32_t* places, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  pairs[places[i]] = Pair{places[i], i};
  holdfast::persist();
}

// Places are drawn anew each time: what was stored to a moment ago may be in the host's caches.
void measure(std::uint64_t bytes, std::uint32_t count, std::uint64_t repeat) {
  constexpr unsigned kBlock = 256;
  bench::ScratchRegion scratch(bytes + (4 << 20));
  const std::uint64_t pairs = bytes / sizeof(Pair);
  const auto table = scratch.get().allocate<Pair>("pairs", pairs);
  std::mt19937_64 random(bytes);
  std::vector<std::uint32_t> places(count);
  holdfast::DeviceBuffer<std::uint32_t> on_device(count);
  holdfast::Stream stream;
  for (const bool by_address : {true, false}) {
    const double took = bench::warmed(repeat, [&](std::uint64_t) {
      for (auto& place : places) place = static_cast<std::uint32_t>(random() % pairs);
      if (by_address) std::sort(places.begin(), places.end());
      holdfast::copy_async(stream, on_device.data(), places.data(), on_device.bytes());
      stream.synchronize();
      return bench::seconds([&] {
        holdfast::launch(stream, holdfast::blocks_for(count, kBlock), kBlock, persist_at,
                         table.data(), on_device.data(), count);
        stream.synchronize();
      });
    });
    bench::Line("persisted_scattered")
        .text("order", by_address ? "by address" : "random")
        .count("table_bytes", bytes)
        .count("store_bytes", sizeof(Pair))
        .count("stores", count)
        .number("milliseconds", took * 1e3)
        .number("million_stores_per_s", count / took / 1e6)
        .print();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, {{"most_mib", 64}, {"stores", 1 << 16}, {"repeat", 5}});
  try {
    const auto stores = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(options["stores"], 1, std::uint64_t{1} << 30));
    const std::uint64_t most = std::min<std::uint64_t>(options["most_mib"], 32 << 10);
    for (std::uint64_t mib = 16; mib <= most; mib *= 4) {
      measure(mib << 20, stores, options["repeat"]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scatter_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

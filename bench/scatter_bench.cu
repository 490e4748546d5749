// Stores at random places of a table, each persisted: in order of their addresses, and not. What a
// store's batches of SETs cannot be faster than.
//
//   scatter_bench [--least_mib=N] [--most_mib=N] [--stores=N] [--store_bytes=16|32|64|128, 0: each]
//                 [--repeat=N]
//
// Tables of least_mib to most_mib, each four times the one before. Neighbouring threads store the
// parts of one that is longer than 16 bytes.
#include <algorithm>
#include <bit>
#include <random>

#include "bench.hpp"
#include "holdfast/kernel.hpp"
#include "scratch_region.hpp"

namespace {

// What a thread stores.
struct alignas(16) Part {
  static constexpr const char* kTypeName = "scatter_part";
  std::uint64_t words[2];
};

__global__ void persist_at(Part* table, const std::uint32_t* places, std::uint64_t count,
                           unsigned parts) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count * parts) return;
  const std::uint32_t place = places[i / parts];
  table[std::uint64_t{place} * parts + i % parts] = Part{{place, i}};
  holdfast::persist();
}

// Places are drawn anew each time: what was stored to a moment ago may be in the host's caches.
void measure(std::uint64_t bytes, std::uint32_t count, std::uint64_t store_bytes,
             std::uint64_t repeat) {
  constexpr unsigned kBlock = 256;
  bench::ScratchRegion scratch(bytes + (4 << 20));
  const auto parts = static_cast<unsigned>(store_bytes / sizeof(Part));
  const auto table = scratch.get().allocate<Part>("table", bytes / sizeof(Part));
  std::mt19937_64 random(bytes);
  std::vector<std::uint32_t> places(count);
  holdfast::DeviceBuffer<std::uint32_t> on_device(count);
  holdfast::Stream stream;
  for (const bool by_address : {true, false}) {
    const double took = bench::warmed(repeat, [&](std::uint64_t) {
      for (auto& place : places) {
        place = static_cast<std::uint32_t>(random() % (bytes / store_bytes));
      }
      if (by_address) std::sort(places.begin(), places.end());
      holdfast::copy_async(stream, on_device.data(), places.data(), on_device.bytes());
      stream.synchronize();
      return bench::seconds([&] {
        holdfast::launch(stream, dim3(holdfast::blocks_for(std::uint64_t{count} * parts, kBlock)),
                         dim3(kBlock), persist_at, table.data(), on_device.data(),
                         std::uint64_t{count}, parts);
        stream.synchronize();
      });
    });
    bench::Line("persisted_scattered")
        .text("order", by_address ? "by address" : "random")
        .count("table_bytes", bytes)
        .count("store_bytes", store_bytes)
        .count("stores", count)
        .number("milliseconds", took * 1e3)
        .number("million_stores_per_s", count / took / 1e6)
        .print();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"least_mib", 16},
                                {"most_mib", 64},
                                {"stores", 1 << 16},
                                {"store_bytes", 16},
                                {"repeat", 5}});
  try {
    const auto stores = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(options["stores"], 1, std::uint64_t{1} << 30));
    const std::uint64_t store_bytes = options["store_bytes"];
    if (store_bytes != 0 &&
        (store_bytes < 16 || store_bytes > 128 || !std::has_single_bit(store_bytes))) {
      throw std::invalid_argument("--store_bytes is 16, 32, 64 or 128, or 0 for each of them");
    }
    const std::uint64_t least = std::max<std::uint64_t>(options["least_mib"], 1);
    const std::uint64_t most = std::min<std::uint64_t>(options["most_mib"], 32 << 10);
    for (std::uint64_t mib = least; mib <= most; mib *= 4) {
      for (std::uint64_t width = 16; width <= 128; width *= 2) {
        if (store_bytes != 0 && width != store_bytes) continue;
        measure(mib << 20, stores, width, options["repeat"]);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scatter_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

// Stores that are persisted one by one, from a kernel into a region, against the copy engine.
//
//   persist_bench [--mib=N] [--repeat=N]
#include "bench.hpp"
#include "holdfast/kernel.hpp"
#include "link.hpp"
#include "scratch_region.hpp"

namespace {

__global__ void persist_each(std::uint64_t* words, std::uint64_t count, std::uint64_t value) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    words[i] = value + i;
    holdfast::persist();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, {{"mib", 256}, {"repeat", 5}});
  const std::uint64_t bytes = options["mib"] << 20;
  const int repeat = static_cast<int>(options["repeat"]);
  bench::ScratchRegion scratch(bytes + (4 << 20));
  const auto words = scratch.get().allocate<std::uint64_t>("words", bytes / 8);
  const double link = bench::copy_engine_bandwidth();
  constexpr unsigned kBlock = 256;
  for (const unsigned threads :
       {32u, 64u, 128u, kBlock, 4 * kBlock, 16 * kBlock, 64 * kBlock, 132 * kBlock, 264 * kBlock,
        528 * kBlock, 1056 * kBlock, 2112 * kBlock}) {
    const unsigned block = std::min(threads, kBlock);
    const unsigned blocks = threads / block;
    holdfast::Stream stream;
    // A few blocks need no more than a sample of the words.
    const std::uint64_t count = blocks < 132 ? bytes / 8 / 16 : bytes / 8;
    const double took = bench::warmed(repeat, [&](std::uint64_t i) {
      return bench::seconds([&] {
        holdfast::launch(stream, dim3(blocks), dim3(block), persist_each, words.data(), count, i);
        stream.synchronize();
      });
    });
    const double rate = static_cast<double>(count * 8) / took;
    bench::Line("persisted_stream")
        .count("blocks", blocks)
        .count("threads", threads)
        .count("store_bytes", 8)
        .count("bytes", count * 8)
        .number("gb_per_s", rate / 1e9)
        .number("copy_engine_gb_per_s", link / 1e9)
        .number("ratio_to_copy_engine", rate / link)
        .print();
  }
  return 0;
}

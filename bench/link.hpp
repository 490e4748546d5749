// The roofline of everything that kernels write to host memory: the copy engine.
#pragma once

#include <vector>

#include "bench.hpp"
#include "holdfast/stream.hpp"

namespace bench {

// Bytes per second of a large copy from device memory to pinned host memory: the best of many, so
// that what is compared with it is not flattered by a slow moment.
inline double copy_engine_bandwidth() {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  constexpr int kRepeat = 20;
  const holdfast::PinnedBuffer<char> pinned(kBytes);
  holdfast::DeviceBuffer<char> source(kBytes);
  holdfast::Stream stream;
  // Pages that were never written cost the CPU backend nothing to read.
  holdfast::copy_async(stream, source.data(), pinned.data(), kBytes);
  stream.synchronize();
  std::vector<double> times;
  for (int i = 0; i < kRepeat; ++i) {
    const double took = seconds([&] {
      holdfast::copy_async(stream, pinned.data(), source.data(), kBytes);
      stream.synchronize();
    });
    times.push_back(took);
  }
  return static_cast<double>(kBytes) / *std::min_element(times.begin(), times.end());
}

}  // namespace bench

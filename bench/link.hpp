// The roofline of everything that kernels write to host memory: the copy engine.
#pragma once

#include <vector>

#include "bench.hpp"
#include "holdfast/stream.hpp"

namespace bench {

// Bytes per second of a large copy from device memory to pinned host memory; median of `repeat`.
inline double copy_engine_bandwidth(void* pinned, std::size_t bytes, int repeat) {
  holdfast::DeviceBuffer<char> source(bytes);
  holdfast::Stream stream;
  std::vector<double> times;
  for (int i = 0; i <= repeat; ++i) {
    const double took = seconds([&] {
      holdfast::copy_async(stream, pinned, source.data(), bytes);
      stream.synchronize();
    });
    if (i > 0) times.push_back(took);
  }
  return static_cast<double>(bytes) / median(times);
}

}  // namespace bench

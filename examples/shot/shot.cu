// [shot]
#include "holdfast/history.hpp"
#include "holdfast/kernel.hpp"

__global__ void advance(float* field) { field[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

__global__ void correlate(const float* field, float* image) {
  image[blockIdx.x * blockDim.x + threadIdx.x] += field[blockIdx.x * blockDim.x + threadIdx.x];
}

int main() {
  constexpr unsigned kCells = 1 << 16, kSteps = 100;
  auto history =
      holdfast::History::open({.gpu_bytes = 4 << 20, .host_bytes = 8 << 20, .disk = "shot"});
  holdfast::DeviceBuffer<float> field(kCells);
  holdfast::PinnedBuffer<float> image(kCells);
  holdfast::Stream stream;
  history.protect("field", field.data(), kCells);
  for (unsigned step = 0; step < kSteps; ++step) {
    holdfast::launch(stream, kCells / 256, 256, advance, field.data());
    history.save(step, stream);       // queued; it goes on to the host and to disk by itself
    history.hint(kSteps - 1 - step);  // the order in which they are restored
  }
  history.prefetch_start();
  for (unsigned step = kSteps; step-- > 0;) {
    history.restore(step, stream);
    holdfast::launch(stream, kCells / 256, 256, correlate, field.data(), image.data());
  }
  stream.synchronize();
  return image[0] == 5050 ? 0 : 1;
}
// [end]

// The iterative program of the paper's Figure 7, written against libgpm.h: weights are trained in
// device memory and checkpointed after every iteration.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/compat/libgpm.h"
#include "holdfast/stream.hpp"

namespace figure7 {

inline constexpr std::size_t kWeights = 30000;
inline constexpr int kElements = 2;
inline constexpr int kGroups = 1;
inline constexpr int kGroup = 0;
inline constexpr std::size_t kBytes = kWeights * sizeof(float) + sizeof(std::uint32_t);

// What a training leaves in place of the weights: whole numbers, which float holds exactly.
#if HOLDFAST_DEVICE_CODE
__host__ __device__
#endif
    inline float
    trained(float weight, std::size_t i, std::uint32_t iteration) {
  return static_cast<float>((static_cast<std::uint32_t>(weight) * 5 + i + iteration) % 65521);
}

// One pass of the training, and the number of passes, which is checkpointed along with the weights.
void train(holdfast::Stream& stream, float* weights, std::uint32_t* iterations);

// The figure's function. `report` hears of the passes that are checkpointed, at first of those
// found, and of the weights found; the training goes on until it returns false.
template <class Report>
void dnn_training(const char* file, bool recovery_mode, Report&& report) {
  holdfast::Stream stream;
  const holdfast::DeviceBuffer<float> weights(kWeights);
  const holdfast::DeviceBuffer<std::uint32_t> iterations(1);
  gpmcp* checkpoint = nullptr;
  if (!recovery_mode) {
    checkpoint = gpmcp_create(file, kBytes, kElements, kGroups);
  } else {
    checkpoint = gpmcp_open(file);
  }
  gpmcp_register(checkpoint, weights.data(), weights.bytes(), kGroup);
  gpmcp_register(checkpoint, iterations.data(), iterations.bytes(), kGroup);
  if (recovery_mode) gpmcp_restore(checkpoint, kGroup);
  const auto passes = [&] {
    std::uint32_t number = 0;
    holdfast::copy_async(stream, &number, iterations.data(), sizeof(number));
    stream.synchronize();
    return number;
  };
  std::vector<float> found(kWeights);
  holdfast::copy_async(stream, found.data(), weights.data(), weights.bytes());
  while (report(passes(), found)) {
    train(stream, weights.data(), iterations.data());  // the checkpoint waits for it
    gpmcp_checkpoint(checkpoint, kGroup);
  }
  gpmcp_close(checkpoint);
}

}  // namespace figure7

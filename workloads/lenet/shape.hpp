// The network: its layers' sizes, and where each layer's numbers stand among the parameters.
#pragma once

#include <cstdint>

namespace lenet {

// Convolution, pooling, convolution, pooling, fully connected, fully connected. Convolutions are
// 5 x 5 without padding; pooling takes the largest of 2 x 2; the first fully connected layer ends
// in a ReLU, the second in a softmax.
inline constexpr unsigned kSide = 28;  // of a digit, in pixels
inline constexpr unsigned kPixels = kSide * kSide;
inline constexpr unsigned kTaps = 5;
inline constexpr unsigned kWindow = kTaps * kTaps;
inline constexpr unsigned kPooled1 = 12;  // side of what the first pooling leaves
inline constexpr unsigned kPooled2 = 4;
inline constexpr unsigned kArea1 = kPooled1 * kPooled1;
inline constexpr unsigned kArea2 = kPooled2 * kPooled2;
inline constexpr unsigned kClasses = 10;

struct Shape {
  std::uint32_t channels1 = 6;
  std::uint32_t channels2 = 16;
  std::uint32_t hidden = 120;

  constexpr std::uint32_t features() const { return channels2 * kArea2; }

  // The parameters in one row, each layer's weights and then its biases. Convolutions:
  // [output][input][row][column]. Fully connected: [input][output].
  constexpr std::uint32_t conv1() const { return 0; }
  constexpr std::uint32_t conv1_bias() const { return conv1() + channels1 * kWindow; }
  constexpr std::uint32_t conv2() const { return conv1_bias() + channels1; }
  constexpr std::uint32_t conv2_bias() const { return conv2() + channels2 * channels1 * kWindow; }
  constexpr std::uint32_t dense1() const { return conv2_bias() + channels2; }
  constexpr std::uint32_t dense1_bias() const { return dense1() + features() * hidden; }
  constexpr std::uint32_t dense2() const { return dense1_bias() + hidden; }
  constexpr std::uint32_t dense2_bias() const { return dense2() + hidden * kClasses; }
  constexpr std::uint32_t parameters() const { return dense2_bias() + kClasses; }
};

}  // namespace lenet

#include "lenet/lenet_oracle.hpp"

#include <algorithm>
#include <cmath>

namespace lenet::oracle {
namespace {

using Values = std::vector<double>;

// `planes` of side x side numbers.
struct Maps {
  std::size_t planes, side;
  Values values;
  Maps(std::size_t planes_, std::size_t side_)
      : planes(planes_), side(side_), values(planes_ * side_ * side_, 0.0) {}
  double& at(std::size_t plane, std::size_t y, std::size_t x) {
    return values[(plane * side + y) * side + x];
  }
  double at(std::size_t plane, std::size_t y, std::size_t x) const {
    return values[(plane * side + y) * side + x];
  }
};

Maps convolve(const Maps& in, std::size_t outputs, const double* weights, const double* bias) {
  Maps out(outputs, in.side - kTaps + 1);
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t y = 0; y < out.side; ++y) {
      for (std::size_t x = 0; x < out.side; ++x) {
        double sum = bias[o];
        for (std::size_t i = 0; i < in.planes; ++i) {
          for (std::size_t v = 0; v < kTaps; ++v) {
            for (std::size_t u = 0; u < kTaps; ++u) {
              sum +=
                  weights[((o * in.planes + i) * kTaps + v) * kTaps + u] * in.at(i, y + v, x + u);
            }
          }
        }
        out.at(o, y, x) = sum;
      }
    }
  }
  return out;
}

// Adds to the gradients of weights and biases; returns that of the input.
Maps convolve_back(const Maps& in, const Maps& d_out, const double* weights, double* d_weights,
                   double* d_bias) {
  Maps d_in(in.planes, in.side);
  for (std::size_t o = 0; o < d_out.planes; ++o) {
    for (std::size_t y = 0; y < d_out.side; ++y) {
      for (std::size_t x = 0; x < d_out.side; ++x) {
        const double d = d_out.at(o, y, x);
        if (d == 0) continue;
        d_bias[o] += d;
        for (std::size_t i = 0; i < in.planes; ++i) {
          for (std::size_t v = 0; v < kTaps; ++v) {
            for (std::size_t u = 0; u < kTaps; ++u) {
              const std::size_t w = ((o * in.planes + i) * kTaps + v) * kTaps + u;
              d_weights[w] += d * in.at(i, y + v, x + u);
              d_in.at(i, y + v, x + u) += d * weights[w];
            }
          }
        }
      }
    }
  }
  return d_in;
}

// Of equal numbers the first, row by row, counts as the largest.
Maps pool(const Maps& in) {
  Maps out(in.planes, in.side / 2);
  for (std::size_t p = 0; p < out.planes; ++p) {
    for (std::size_t y = 0; y < out.side; ++y) {
      for (std::size_t x = 0; x < out.side; ++x) {
        out.at(p, y, x) = std::max({in.at(p, 2 * y, 2 * x), in.at(p, 2 * y, 2 * x + 1),
                                    in.at(p, 2 * y + 1, 2 * x), in.at(p, 2 * y + 1, 2 * x + 1)});
      }
    }
  }
  return out;
}

Maps pool_back(const Maps& in, const Maps& out, const Maps& d_out) {
  Maps d_in(in.planes, in.side);
  for (std::size_t p = 0; p < out.planes; ++p) {
    for (std::size_t y = 0; y < out.side; ++y) {
      for (std::size_t x = 0; x < out.side; ++x) {
        for (std::size_t k = 0; k < 4; ++k) {
          const std::size_t row = 2 * y + k / 2, column = 2 * x + k % 2;
          if (in.at(p, row, column) != out.at(p, y, x)) continue;
          d_in.at(p, row, column) = d_out.at(p, y, x);
          break;
        }
      }
    }
  }
  return d_in;
}

Values connect(const Values& in, std::size_t outputs, const double* weights, const double* bias) {
  Values out(bias, bias + outputs);
  for (std::size_t i = 0; i < in.size(); ++i) {
    for (std::size_t o = 0; o < outputs; ++o) out[o] += in[i] * weights[i * outputs + o];
  }
  return out;
}

Values connect_back(const Values& in, const Values& d_out, const double* weights, double* d_weights,
                    double* d_bias) {
  Values d_in(in.size(), 0.0);
  for (std::size_t o = 0; o < d_out.size(); ++o) d_bias[o] += d_out[o];
  for (std::size_t i = 0; i < in.size(); ++i) {
    for (std::size_t o = 0; o < d_out.size(); ++o) {
      d_weights[i * d_out.size() + o] += in[i] * d_out[o];
      d_in[i] += weights[i * d_out.size() + o] * d_out[o];
    }
  }
  return d_in;
}

struct Forward {
  Maps input, conv1, pool1, conv2, pool2;
  Values sums, hidden, logits;

  Forward(const Shape& shape, const double* p, const float* pixels)
      : input(image(pixels)),
        conv1(convolve(input, shape.channels1, p + shape.conv1(), p + shape.conv1_bias())),
        pool1(pool(conv1)),
        conv2(convolve(pool1, shape.channels2, p + shape.conv2(), p + shape.conv2_bias())),
        pool2(pool(conv2)),
        sums(connect(pool2.values, shape.hidden, p + shape.dense1(), p + shape.dense1_bias())),
        hidden(sums) {
    for (double& value : hidden) value = std::max(value, 0.0);
    logits = connect(hidden, kClasses, p + shape.dense2(), p + shape.dense2_bias());
  }

  static Maps image(const float* pixels) {
    Maps maps(1, kSide);
    std::copy(pixels, pixels + kPixels, maps.values.begin());
    return maps;
  }
};

// The logarithm of the sum of the logits' exponentials.
double log_sum(const Values& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// Adds one digit's share, `scale` of it.
void backward(const Shape& shape, const double* p, const Forward& at, unsigned label, double scale,
              double* d) {
  const double total = log_sum(at.logits);
  Values d_logits(kClasses);
  for (unsigned c = 0; c < kClasses; ++c) {
    d_logits[c] = scale * (std::exp(at.logits[c] - total) - (c == label ? 1 : 0));
  }
  Values d_hidden = connect_back(at.hidden, d_logits, p + shape.dense2(), d + shape.dense2(),
                                 d + shape.dense2_bias());
  for (std::size_t i = 0; i < d_hidden.size(); ++i) {
    if (at.sums[i] <= 0) d_hidden[i] = 0;
  }
  Maps d_pool2(shape.channels2, kPooled2);
  d_pool2.values = connect_back(at.pool2.values, d_hidden, p + shape.dense1(), d + shape.dense1(),
                                d + shape.dense1_bias());
  const Maps d_conv2 = pool_back(at.conv2, at.pool2, d_pool2);
  const Maps d_pool1 = convolve_back(at.pool1, d_conv2, p + shape.conv2(), d + shape.conv2(),
                                     d + shape.conv2_bias());
  const Maps d_conv1 = pool_back(at.conv1, at.pool1, d_pool1);
  convolve_back(at.input, d_conv1, p + shape.conv1(), d + shape.conv1(), d + shape.conv1_bias());
}

}  // namespace

double loss(const Shape& shape, const std::vector<double>& parameters, const Examples& examples,
            const std::vector<std::uint32_t>& digits, std::vector<double>* gradient) {
  if (gradient) gradient->assign(parameters.size(), 0.0);
  const double scale = 1.0 / static_cast<double>(digits.size());
  double sum = 0;
  for (const std::uint32_t digit : digits) {
    const Forward at(shape, parameters.data(),
                     examples.pixels.data() + std::size_t{digit} * kPixels);
    const unsigned label = examples.labels[digit];
    sum += scale * (log_sum(at.logits) - at.logits[label]);
    if (gradient) backward(shape, parameters.data(), at, label, scale, gradient->data());
  }
  return sum;
}

std::vector<std::uint8_t> classify(const Shape& shape, const std::vector<double>& parameters,
                                   const Examples& examples,
                                   const std::vector<std::uint32_t>& digits) {
  std::vector<std::uint8_t> classes;
  for (const std::uint32_t digit : digits) {
    const Values logits =
        Forward(shape, parameters.data(), examples.pixels.data() + std::size_t{digit} * kPixels)
            .logits;
    classes.push_back(
        static_cast<std::uint8_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return classes;
}

}  // namespace lenet::oracle

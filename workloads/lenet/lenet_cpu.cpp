// The network on host threads (mode cpu): OpenMP over digits, or over rows of a gradient, each of
// which is added up in the digits' order by one thread.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "lenet/trainer.hpp"

namespace lenet {
namespace {

// A pooled map's number and which of the four sums it was, 2 * row + column.
template <unsigned kInput>
void convolve_and_pool(const float* in, unsigned planes, const float* weights, const float* bias,
                       unsigned outputs, float* value, std::uint8_t* which) {
  constexpr unsigned kSums = kInput - kTaps + 1;
  constexpr unsigned kSideOut = kSums / 2;
  float sums[kSums * kSums];
  for (unsigned output = 0; output < outputs; ++output) {
    std::fill(std::begin(sums), std::end(sums), bias[output]);
    for (unsigned plane = 0; plane < planes; ++plane) {
      const float* const window = weights + (output * planes + plane) * kWindow;
      for (unsigned tap = 0; tap < kWindow; ++tap) {
        const float* const from = in + plane * kInput * kInput + tap / kTaps * kInput + tap % kTaps;
        for (unsigned y = 0; y < kSums; ++y) {
          for (unsigned x = 0; x < kSums; ++x) {
            sums[y * kSums + x] += window[tap] * from[y * kInput + x];
          }
        }
      }
    }
    for (unsigned place = 0; place < kSideOut * kSideOut; ++place) {
      const float* const corner = sums + place / kSideOut * 2 * kSums + place % kSideOut * 2;
      const float four[4] = {corner[0], corner[1], corner[kSums], corner[kSums + 1]};
      const auto largest = std::max_element(four, four + 4);
      *value++ = *largest;
      *which++ = static_cast<std::uint8_t>(largest - four);
    }
  }
}

// One row of a window's gradient, over the whole batch. `in(digit)`: the digit's maps.
template <unsigned kInput, class In>
void convolve_gradient(unsigned row, const In& in, unsigned planes, const float* d_pooled,
                       const std::uint8_t* which, unsigned outputs, unsigned batch,
                       float* d_weights, float* d_bias) {
  constexpr unsigned kSideOut = (kInput - kTaps + 1) / 2;
  constexpr unsigned kArea = kSideOut * kSideOut;
  const unsigned v = row % kTaps;
  const unsigned plane = row / kTaps % planes;
  const unsigned output = row / kTaps / planes;
  float sum[kTaps] = {};
  float bias = 0;
  for (unsigned digit = 0; digit < batch; ++digit) {
    const float* const map = in(digit) + (plane * kInput + v) * kInput;
    const std::size_t at = std::size_t{digit * outputs + output} * kArea;
    for (unsigned place = 0; place < kArea; ++place) {
      const float d = d_pooled[at + place];
      const unsigned k = which[at + place];
      const float* const corner =
          map + (place / kSideOut * 2 + k / 2) * kInput + place % kSideOut * 2 + k % 2;
      bias += d;
      for (unsigned u = 0; u < kTaps; ++u) sum[u] += d * corner[u];
    }
  }
  std::copy(sum, sum + kTaps, d_weights + row * kTaps);
  if (plane == 0 && v == 0) d_bias[output] = bias;
}

class HostTrainer : public Trainer {
 public:
  HostTrainer(unsigned threads, const Shape& shape, const Descent& descent, const Digits& digits)
      : threads_(static_cast<int>(threads)),
        shape_(shape),
        descent_(descent),
        pixels_(digits.normalised()),
        labels_(digits.labels),
        parameters_(shape.parameters()),
        gradient_(shape.parameters()),
        pooled1_(std::size_t{descent.batch} * shape.channels1 * kArea1),
        d_pooled1_(pooled1_.size()),
        pooled2_(std::size_t{descent.batch} * shape.features()),
        d_pooled2_(pooled2_.size()),
        hidden_(std::size_t{descent.batch} * shape.hidden),
        d_hidden_(hidden_.size()),
        d_logits_(std::size_t{descent.batch} * kClasses),
        which1_(pooled1_.size()),
        which2_(pooled2_.size()),
        classes_(descent.batch) {}

  // Lets OpenMP's threads go: a process that is forked later has none of them, and would wait.
  ~HostTrainer() override { omp_pause_resource_all(omp_pause_soft); }

  float* parameters() override { return parameters_.data(); }

  void start(const std::vector<float>& parameters) override {
    std::copy(parameters.begin(), parameters.end(), parameters_.begin());
  }

  void train(const std::vector<std::uint32_t>& digits, const std::vector<float>& rates) override {
#pragma omp parallel num_threads(threads_)
    {
      const std::uint32_t* batch = digits.data();
      for (const float rate : rates) {
        pass(batch, descent_.batch);
        add_up(batch);
        descend(rate);
        batch += descent_.batch;
      }
    }
  }

  std::vector<float> read_parameters() override { return parameters_; }

  std::vector<float> gradient(const std::vector<std::uint32_t>& digits) override {
#pragma omp parallel num_threads(threads_)
    {
      pass(digits.data(), descent_.batch);
      add_up(digits.data());
    }
    return gradient_;
  }

  std::vector<std::uint8_t> classify(const std::vector<std::uint32_t>& digits) override {
    std::vector<std::uint8_t> classes;
    for (std::size_t first = 0; first < digits.size(); first += descent_.batch) {
      const std::size_t count = std::min<std::size_t>(descent_.batch, digits.size() - first);
#pragma omp parallel num_threads(threads_)
      pass(digits.data() + first, static_cast<unsigned>(count));
      classes.insert(classes.end(), classes_.begin(),
                     classes_.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return classes;
  }

 private:
  // All threads of a team call these three, which end in a barrier.
  // Forward and backward, digit by digit, down to the gradients of what the layers pass on.
  void pass(const std::uint32_t* digits, unsigned batch) {
#pragma omp for schedule(static)
    for (unsigned i = 0; i < batch; ++i) {
      forward(i, digits[i]);
      judge(i, labels_[digits[i]], 1.0f / static_cast<float>(batch));
      backward(i);
    }
  }

  void add_up(const std::uint32_t* digits);
  void descend(float rate);

  void forward(unsigned i, std::uint32_t digit);
  void judge(unsigned i, unsigned label, float scale);
  void backward(unsigned i);
  void connect_gradient(const float* in, unsigned inputs, const float* d_out, unsigned outputs,
                        float* d_weights, float* d_bias);

  const int threads_;
  const Shape shape_;
  const Descent descent_;
  const std::vector<float> pixels_;
  const std::vector<std::uint8_t> labels_;
  std::vector<float> parameters_, gradient_;
  // Of the batch at hand; d_: the loss's gradient by it.
  std::vector<float> pooled1_, d_pooled1_, pooled2_, d_pooled2_, hidden_, d_hidden_, d_logits_;
  std::vector<std::uint8_t> which1_, which2_, classes_;
};

void HostTrainer::forward(unsigned i, std::uint32_t digit) {
  const float* const p = parameters_.data();
  const std::size_t at1 = std::size_t{i} * shape_.channels1 * kArea1;
  const std::size_t at2 = std::size_t{i} * shape_.features();
  convolve_and_pool<kSide>(pixels_.data() + std::size_t{digit} * kPixels, 1, p + shape_.conv1(),
                           p + shape_.conv1_bias(), shape_.channels1, pooled1_.data() + at1,
                           which1_.data() + at1);
  convolve_and_pool<kPooled1>(pooled1_.data() + at1, shape_.channels1, p + shape_.conv2(),
                              p + shape_.conv2_bias(), shape_.channels2, pooled2_.data() + at2,
                              which2_.data() + at2);
  float* const hidden = hidden_.data() + std::size_t{i} * shape_.hidden;
  std::copy_n(p + shape_.dense1_bias(), shape_.hidden, hidden);
  for (unsigned f = 0; f < shape_.features(); ++f) {
    const float value = pooled2_[at2 + f];
    const float* const weights = p + shape_.dense1() + f * shape_.hidden;
    for (unsigned h = 0; h < shape_.hidden; ++h) hidden[h] += value * weights[h];
  }
  for (unsigned h = 0; h < shape_.hidden; ++h) hidden[h] = std::max(hidden[h], 0.0f);
}

// The second fully connected layer and the softmax, and back to the hidden numbers.
void HostTrainer::judge(unsigned i, unsigned label, float scale) {
  const float* const weights = parameters_.data() + shape_.dense2();
  const float* const hidden = hidden_.data() + std::size_t{i} * shape_.hidden;
  float logits[kClasses];
  std::copy_n(parameters_.data() + shape_.dense2_bias(), kClasses, logits);
  for (unsigned h = 0; h < shape_.hidden; ++h) {
    for (unsigned c = 0; c < kClasses; ++c) logits[c] += weights[h * kClasses + c] * hidden[h];
  }
  const float* const largest = std::max_element(logits, logits + kClasses);
  classes_[i] = static_cast<std::uint8_t>(largest - logits);
  const float peak = *largest;
  float sum = 0;
  for (float& logit : logits) sum += logit = std::exp(logit - peak);
  float* const d_logits = d_logits_.data() + std::size_t{i} * kClasses;
  for (unsigned c = 0; c < kClasses; ++c) {
    d_logits[c] = scale * (logits[c] / sum - (c == label ? 1.0f : 0.0f));
  }
  float* const d_hidden = d_hidden_.data() + std::size_t{i} * shape_.hidden;
  for (unsigned h = 0; h < shape_.hidden; ++h) {
    float d = 0;
    for (unsigned c = 0; c < kClasses; ++c) d += weights[h * kClasses + c] * d_logits[c];
    d_hidden[h] = hidden[h] > 0 ? d : 0;
  }
}

void HostTrainer::backward(unsigned i) {
  const float* const p = parameters_.data();
  const float* const d_hidden = d_hidden_.data() + std::size_t{i} * shape_.hidden;
  const std::size_t at2 = std::size_t{i} * shape_.features();
  for (unsigned f = 0; f < shape_.features(); ++f) {
    const float* const weights = p + shape_.dense1() + f * shape_.hidden;
    // Eight sums, so that the processor need not wait for one.
    float sum[8] = {};
    unsigned h = 0;
    for (; h + 8 <= shape_.hidden; h += 8) {
      for (unsigned k = 0; k < 8; ++k) sum[k] += weights[h + k] * d_hidden[h + k];
    }
    for (; h < shape_.hidden; ++h) sum[0] += weights[h] * d_hidden[h];
    d_pooled2_[at2 + f] =
        ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
  }
  const unsigned planes = shape_.channels1;
  float* const d_in = d_pooled1_.data() + std::size_t{i} * planes * kArea1;
  std::fill_n(d_in, std::size_t{planes} * kArea1, 0.0f);
  for (unsigned f = 0; f < shape_.features(); ++f) {
    const float d = d_pooled2_[at2 + f];
    if (d == 0) continue;
    const unsigned k = which2_[at2 + f];
    const unsigned place = f % kArea2;
    const unsigned y = place / kPooled2 * 2 + k / 2;
    const unsigned x = place % kPooled2 * 2 + k % 2;
    const float* const windows = p + shape_.conv2() + f / kArea2 * planes * kWindow;
    for (unsigned plane = 0; plane < planes; ++plane) {
      float* const to = d_in + (plane * kPooled1 + y) * kPooled1 + x;
      const float* const window = windows + plane * kWindow;
      for (unsigned v = 0; v < kTaps; ++v) {
        for (unsigned u = 0; u < kTaps; ++u) to[v * kPooled1 + u] += d * window[v * kTaps + u];
      }
    }
  }
}

void HostTrainer::add_up(const std::uint32_t* digits) {
  float* const d = gradient_.data();
  const unsigned batch = descent_.batch;
  connect_gradient(hidden_.data(), shape_.hidden, d_logits_.data(), kClasses, d + shape_.dense2(),
                   d + shape_.dense2_bias());
  connect_gradient(pooled2_.data(), shape_.features(), d_hidden_.data(), shape_.hidden,
                   d + shape_.dense1(), d + shape_.dense1_bias());
  const auto image = [&](unsigned i) { return pixels_.data() + std::size_t{digits[i]} * kPixels; };
  const auto map = [&](unsigned i) {
    return pooled1_.data() + std::size_t{i} * shape_.channels1 * kArea1;
  };
#pragma omp for schedule(static) nowait
  for (unsigned row = 0; row < shape_.channels1 * kTaps; ++row) {
    convolve_gradient<kSide>(row, image, 1, d_pooled1_.data(), which1_.data(), shape_.channels1,
                             batch, d + shape_.conv1(), d + shape_.conv1_bias());
  }
#pragma omp for schedule(static) nowait
  for (unsigned row = 0; row < shape_.channels2 * shape_.channels1 * kTaps; ++row) {
    convolve_gradient<kPooled1>(row, map, shape_.channels1, d_pooled2_.data(), which2_.data(),
                                shape_.channels2, batch, d + shape_.conv2(),
                                d + shape_.conv2_bias());
  }
#pragma omp barrier
}

void HostTrainer::connect_gradient(const float* in, unsigned inputs, const float* d_out,
                                   unsigned outputs, float* d_weights, float* d_bias) {
  const unsigned batch = descent_.batch;
#pragma omp for schedule(static) nowait
  for (unsigned input = 0; input < inputs; ++input) {
    float* const row = d_weights + std::size_t{input} * outputs;
    std::fill_n(row, outputs, 0.0f);
    for (unsigned i = 0; i < batch; ++i) {
      const float value = in[std::size_t{i} * inputs + input];
      const float* const d = d_out + std::size_t{i} * outputs;
      for (unsigned o = 0; o < outputs; ++o) row[o] += value * d[o];
    }
  }
#pragma omp single nowait
  {
    std::fill_n(d_bias, outputs, 0.0f);
    for (unsigned i = 0; i < batch; ++i) {
      for (unsigned o = 0; o < outputs; ++o) d_bias[o] += d_out[std::size_t{i} * outputs + o];
    }
  }
}

void HostTrainer::descend(float rate) {
#pragma omp for schedule(static)
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i] -= rate * gradient_[i];
  }
}

}  // namespace

std::unique_ptr<Trainer> make_host_trainer(unsigned threads, const Shape& shape,
                                           const Descent& descent, const Digits& digits) {
  return std::make_unique<HostTrainer>(threads, shape, descent, digits);
}

}  // namespace lenet

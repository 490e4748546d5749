// The network in kernels. No sum depends on the order in which threads run: each is taken by one
// thread, or in parts that another kernel adds in their order.
#include "holdfast/kernel.hpp"
#include "lenet/device_trainer.hpp"

namespace lenet {
namespace {

constexpr unsigned kThreads = 128;
// Digits whose share of a convolution's gradient one thread adds up; the shares are added later.
constexpr unsigned kShare = 4;
// Digits, or rows of a weight matrix, that one thread carries, so that what they have in common is
// loaded once.
constexpr unsigned kTile = 4;
// Parameters per thread where each is a step of a loop.
constexpr unsigned kPerThread = 4;

__device__ unsigned thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

// The maps that a convolution reads: of a batch, or of digits by their place.
struct Maps {
  const float* data;
  const std::uint32_t* places;  // null: by number in the batch
  unsigned planes;
  unsigned area;
  __device__ const float* of(unsigned number) const {
    return data + std::size_t{places ? places[number] : number} * planes * area;
  }
};

// What a convolution and its pooling leave: the largest of four sums, and which of them it was.
struct Pooled {
  float* value;
  std::uint8_t* which;  // 2 * row + column
};

// Four neighbouring sums of a convolution.
struct Quad {
  float at[4];
};

template <unsigned kInput>
__device__ Quad convolve(const float* in, unsigned planes, const float* weights, float bias) {
  Quad sum{{bias, bias, bias, bias}};
  for (unsigned plane = 0; plane < planes; ++plane) {
#pragma unroll
    for (unsigned v = 0; v < kTaps; ++v) {
#pragma unroll
      for (unsigned u = 0; u < kTaps; ++u) {
        const float weight = weights[v * kTaps + u];
        const float* const corner = in + v * kInput + u;
        sum.at[0] += weight * corner[0];
        sum.at[1] += weight * corner[1];
        sum.at[2] += weight * corner[kInput];
        sum.at[3] += weight * corner[kInput + 1];
      }
    }
    in += kInput * kInput;
    weights += kWindow;
  }
  return sum;
}

// A thread makes one number of `out`. Of equal sums the first counts as the largest.
template <unsigned kInput>
__global__ void convolve_and_pool(Maps in, const float* weights, const float* bias,
                                  unsigned outputs, unsigned batch, Pooled out) {
  constexpr unsigned kSideOut = (kInput - kTaps + 1) / 2;
  constexpr unsigned kArea = kSideOut * kSideOut;
  const unsigned i = thread_number();
  if (i >= batch * outputs * kArea) return;
  const unsigned place = i % kArea;
  const unsigned output = i / kArea % outputs;
  const float* const corner =
      in.of(i / kArea / outputs) + place / kSideOut * 2 * kInput + place % kSideOut * 2;
  const Quad sum =
      convolve<kInput>(corner, in.planes, weights + output * in.planes * kWindow, bias[output]);
  unsigned which = 0;
  float largest = sum.at[0];
#pragma unroll
  for (unsigned k = 1; k < 4; ++k) {
    if (sum.at[k] > largest) {
      largest = sum.at[k];
      which = k;
    }
  }
  out.value[i] = largest;
  out.which[i] = static_cast<std::uint8_t>(which);
}

// The first fully connected layer: a thread makes one hidden number of kTile digits.
__global__ void connect(const float* features, unsigned inputs, const float* weights,
                        const float* bias, unsigned outputs, unsigned batch, float* hidden) {
  const unsigned output = thread_number() % outputs;
  const unsigned first = thread_number() / outputs * kTile;
  if (first >= batch) return;
  const float* in[kTile];
  float sum[kTile];
  for (unsigned k = 0; k < kTile; ++k) {
    in[k] = features + std::size_t{min(first + k, batch - 1)} * inputs;
    sum[k] = bias[output];
  }
  for (unsigned i = 0; i < inputs; ++i) {
    const float weight = weights[i * outputs + output];
#pragma unroll
    for (unsigned k = 0; k < kTile; ++k) sum[k] += weight * in[k][i];
  }
  for (unsigned k = 0; k < kTile && first + k < batch; ++k) {
    hidden[(first + k) * outputs + output] = sum[k] > 0 ? sum[k] : 0;
  }
}

// The softmax over kClasses logits, less 1 at the label: the gradient by the logits.
__device__ void softmax_gradient(const float* logits, unsigned label, float scale, float* delta) {
  float largest = logits[0];
  for (unsigned c = 1; c < kClasses; ++c) largest = logits[c] > largest ? logits[c] : largest;
  float sum = 0;
  for (unsigned c = 0; c < kClasses; ++c) sum += expf(logits[c] - largest);
  const unsigned c = threadIdx.x;
  delta[c] = scale * (expf(logits[c] - largest) / sum - (c == label ? 1.0f : 0.0f));
}

struct Verdicts {
  const std::uint8_t* labels;
  const std::uint32_t* places;
  std::uint8_t* classes;  // what each digit of the batch is taken for
  float* d_logits;
  float* d_hidden;
};

// The second fully connected layer, the softmax, and the way back to the hidden numbers. A block
// takes one digit.
__global__ void judge(const float* hidden, unsigned inputs, const float* weights, const float* bias,
                      float scale, Verdicts out) {
  __shared__ float logits[kClasses];
  __shared__ float delta[kClasses];
  const unsigned digit = blockIdx.x;
  const unsigned c = threadIdx.x;
  const float* const in = hidden + digit * inputs;
  if (c < kClasses) {
    float sum = bias[c];
    for (unsigned i = 0; i < inputs; ++i) sum += weights[i * kClasses + c] * in[i];
    logits[c] = sum;
  }
  __syncthreads();
  if (c < kClasses) {
    softmax_gradient(logits, out.labels[out.places[digit]], scale, delta);
    out.d_logits[digit * kClasses + c] = delta[c];
  }
  if (c == kClasses) {
    unsigned best = 0;
    for (unsigned k = 1; k < kClasses; ++k) best = logits[k] > logits[best] ? k : best;
    out.classes[digit] = static_cast<std::uint8_t>(best);
  }
  __syncthreads();
  for (unsigned i = c; i < inputs; i += blockDim.x) {
    float sum = 0;
    for (unsigned k = 0; k < kClasses; ++k) sum += weights[i * kClasses + k] * delta[k];
    out.d_hidden[digit * inputs + i] = in[i] > 0 ? sum : 0;
  }
}

// The gradient of a fully connected layer. A thread makes kTile rows of one column; the first of
// each column makes the bias, too.
__global__ void connect_gradient(const float* in, unsigned inputs, const float* d_out,
                                 unsigned outputs, unsigned batch, float* d_weights,
                                 float* d_bias) {
  const unsigned output = thread_number() % outputs;
  const unsigned row = thread_number() / outputs * kTile;
  if (row >= inputs) return;
  float sum[kTile] = {};
  float bias = 0;
  for (unsigned digit = 0; digit < batch; ++digit) {
    const float d = d_out[digit * outputs + output];
    const float* const values = in + std::size_t{digit} * inputs + row;
    bias += d;
#pragma unroll
    for (unsigned k = 0; k < kTile; ++k) sum[k] += d * values[k];
  }
  for (unsigned k = 0; k < kTile; ++k) d_weights[(row + k) * outputs + output] = sum[k];
  if (row == 0) d_bias[output] = bias;
}

// The gradient by the first fully connected layer's input: a thread makes one of kTile digits.
__global__ void connect_back(const float* d_out, unsigned outputs, const float* weights,
                             unsigned inputs, unsigned batch, float* d_in) {
  const unsigned input = thread_number() % inputs;
  const unsigned first = thread_number() / inputs * kTile;
  if (first >= batch) return;
  const float* d[kTile];
  float sum[kTile] = {};
  for (unsigned k = 0; k < kTile; ++k) d[k] = d_out + min(first + k, batch - 1) * outputs;
  for (unsigned o = 0; o < outputs; ++o) {
    const float weight = weights[input * outputs + o];
#pragma unroll
    for (unsigned k = 0; k < kTile; ++k) sum[k] += weight * d[k][o];
  }
  for (unsigned k = 0; k < kTile && first + k < batch; ++k) {
    d_in[(first + k) * inputs + input] = sum[k];
  }
}

// The gradient by the second convolution's input. Of each four sums that were pooled one alone has
// a gradient, so a thread, which makes one number, looks at the pooled numbers whose windows may
// hold its place.
__global__ void convolve_back(const float* d_pooled, const std::uint8_t* which,
                              const float* weights, unsigned planes, unsigned outputs,
                              unsigned batch, float* d_in) {
  const unsigned i = thread_number();
  if (i >= batch * planes * kArea1) return;
  const unsigned y = i % kArea1 / kPooled1;
  const unsigned x = i % kPooled1;
  const unsigned plane = i / kArea1 % planes;
  const unsigned digit = i / kArea1 / planes;
  const unsigned first_y = y < kTaps ? 0 : (y - kTaps + 1) / 2;
  const unsigned first_x = x < kTaps ? 0 : (x - kTaps + 1) / 2;
  const unsigned last_y = min(y / 2, kPooled2 - 1);
  const unsigned last_x = min(x / 2, kPooled2 - 1);
  float sum = 0;
  for (unsigned output = 0; output < outputs; ++output) {
    const float* const window = weights + (output * planes + plane) * kWindow;
    const unsigned at = (digit * outputs + output) * kArea2;
    for (unsigned py = first_y; py <= last_y; ++py) {
      for (unsigned px = first_x; px <= last_x; ++px) {
        const unsigned place = at + py * kPooled2 + px;
        const unsigned k = which[place];
        const unsigned v = y - 2 * py - k / 2;  // wraps around where the window begins behind it
        const unsigned u = x - 2 * px - k % 2;
        if (v < kTaps && u < kTaps) sum += d_pooled[place] * window[v * kTaps + u];
      }
    }
  }
  d_in[i] = sum;
}

// The share of kShare digits in a convolution's gradient. A thread makes one row of a window, for
// one share; the first of each output makes the bias, too. Shares are laid out as the layer's
// parameters.
template <unsigned kInput>
__global__ void convolve_gradient(Maps in, const float* d_pooled, const std::uint8_t* which,
                                  unsigned outputs, unsigned batch, float* shares) {
  constexpr unsigned kSideOut = (kInput - kTaps + 1) / 2;
  constexpr unsigned kArea = kSideOut * kSideOut;
  const unsigned rows = outputs * in.planes * kTaps;
  const unsigned row = thread_number() % rows;
  const unsigned share = thread_number() / rows;
  if (share * kShare >= batch) return;
  const unsigned v = row % kTaps;
  const unsigned plane = row / kTaps % in.planes;
  const unsigned output = row / kTaps / in.planes;
  float sum[kTaps] = {};
  float bias = 0;
  for (unsigned digit = share * kShare; digit < min((share + 1) * kShare, batch); ++digit) {
    const float* const map = in.of(digit) + plane * in.area + v * kInput;
    const unsigned at = (digit * outputs + output) * kArea;
    for (unsigned place = 0; place < kArea; ++place) {
      const float d = d_pooled[at + place];
      const unsigned k = which[at + place];
      const float* const corner =
          map + (place / kSideOut * 2 + k / 2) * kInput + place % kSideOut * 2 + k % 2;
      bias += d;
#pragma unroll
      for (unsigned u = 0; u < kTaps; ++u) sum[u] += d * corner[u];
    }
  }
  float* const out = shares + share * (rows * kTaps + outputs);
#pragma unroll
  for (unsigned u = 0; u < kTaps; ++u) out[row * kTaps + u] = sum[u];
  if (plane == 0 && v == 0) out[rows * kTaps + output] = bias;
}

__global__ void add_shares(const float* shares, unsigned count, unsigned length, float* sums) {
  const unsigned i = thread_number();
  if (i >= length) return;
  float sum = 0;
  for (unsigned share = 0; share < count; ++share) sum += shares[share * length + i];
  sums[i] = sum;
}

__global__ void descend(const float* gradient, unsigned count, float rate, float* parameters) {
  for (unsigned i = thread_number(); i < count; i += gridDim.x * blockDim.x) {
    parameters[i] -= rate * gradient[i];
  }
}

dim3 blocks(std::size_t threads) { return dim3(holdfast::blocks_for(threads, kThreads)); }

unsigned tiles(unsigned count, unsigned tile) { return (count + tile - 1) / tile; }

class KernelTrainer : public DeviceTrainer {
 public:
  KernelTrainer(holdfast::Stream& stream, const Shape& shape, const Descent& descent,
                const Digits& digits)
      : DeviceTrainer(stream, shape, descent, digits),
        gradient_(shape.parameters()),
        shares1_(std::size_t{tiles(descent.batch, kShare)} * shape.conv2()),
        shares2_(std::size_t{tiles(descent.batch, kShare)} * (shape.dense1() - shape.conv2())),
        pooled1_(std::size_t{descent.batch} * shape.channels1 * kArea1),
        which1_(pooled1_.size()),
        d_pooled1_(pooled1_.size()),
        pooled2_(std::size_t{descent.batch} * shape.features()),
        which2_(pooled2_.size()),
        d_pooled2_(pooled2_.size()),
        hidden_(std::size_t{descent.batch} * shape.hidden),
        d_hidden_(hidden_.size()),
        d_logits_(std::size_t{descent.batch} * kClasses) {}

  void train(const std::vector<std::uint32_t>& digits, const std::vector<float>& rates) override {
    begin(digits);
    const std::uint32_t* places = places_.data();
    for (const float rate : rates) {
      forward(places, descent_.batch);
      backward(places);
      places += descent_.batch;
      holdfast::launch(stream_, blocks(tiles(shape_.parameters(), kPerThread)), dim3(kThreads),
                       descend, gradient_.data(), shape_.parameters(), rate, parameters_.data());
    }
  }

  std::vector<float> gradient(const std::vector<std::uint32_t>& digits) override {
    begin(digits);
    forward(places_.data(), descent_.batch);
    backward(places_.data());
    return read(gradient_, gradient_.size());
  }

 private:
  Maps images(const std::uint32_t* places) const { return {pixels_.data(), places, 1, kPixels}; }
  Maps maps1() const { return {pooled1_.data(), nullptr, shape_.channels1, kArea1}; }

  void forward(const std::uint32_t* places, unsigned batch) override;
  void backward(const std::uint32_t* places);

  holdfast::DeviceBuffer<float> gradient_;
  holdfast::DeviceBuffer<float> shares1_, shares2_;
  // Of the batch at hand; d_: the loss's gradient by it.
  holdfast::DeviceBuffer<float> pooled1_;
  holdfast::DeviceBuffer<std::uint8_t> which1_;
  holdfast::DeviceBuffer<float> d_pooled1_;
  holdfast::DeviceBuffer<float> pooled2_;
  holdfast::DeviceBuffer<std::uint8_t> which2_;
  holdfast::DeviceBuffer<float> d_pooled2_;
  holdfast::DeviceBuffer<float> hidden_, d_hidden_, d_logits_;
};

// Down to the hidden numbers' gradient.
void KernelTrainer::forward(const std::uint32_t* places, unsigned batch) {
  const float* const p = parameters_.data();
  const dim3 block(kThreads);
  holdfast::launch(stream_, blocks(std::size_t{batch} * shape_.channels1 * kArea1), block,
                   convolve_and_pool<kSide>, images(places), p + shape_.conv1(),
                   p + shape_.conv1_bias(), shape_.channels1, batch,
                   Pooled{pooled1_.data(), which1_.data()});
  holdfast::launch(stream_, blocks(std::size_t{batch} * shape_.features()), block,
                   convolve_and_pool<kPooled1>, maps1(), p + shape_.conv2(),
                   p + shape_.conv2_bias(), shape_.channels2, batch,
                   Pooled{pooled2_.data(), which2_.data()});
  holdfast::launch(stream_, blocks(std::size_t{tiles(batch, kTile)} * shape_.hidden), block,
                   connect, pooled2_.data(), shape_.features(), p + shape_.dense1(),
                   p + shape_.dense1_bias(), shape_.hidden, batch, hidden_.data());
  holdfast::launch(
      stream_, dim3(batch), dim3(kThreads / 2), judge, hidden_.data(), shape_.hidden,
      p + shape_.dense2(), p + shape_.dense2_bias(), 1.0f / static_cast<float>(batch),
      Verdicts{labels_.data(), places, classes_.data(), d_logits_.data(), d_hidden_.data()});
}

// From there to the gradient of every parameter. REQUIRES: a whole batch went forward.
void KernelTrainer::backward(const std::uint32_t* places) {
  const float* const p = parameters_.data();
  float* const d = gradient_.data();
  const unsigned batch = descent_.batch;
  const unsigned shares = tiles(batch, kShare);
  const dim3 block(kThreads);
  holdfast::launch(stream_, blocks(std::size_t{tiles(shape_.hidden, kTile)} * kClasses), block,
                   connect_gradient, hidden_.data(), shape_.hidden, d_logits_.data(), kClasses,
                   batch, d + shape_.dense2(), d + shape_.dense2_bias());
  holdfast::launch(stream_, blocks(std::size_t{tiles(shape_.features(), kTile)} * shape_.hidden),
                   block, connect_gradient, pooled2_.data(), shape_.features(), d_hidden_.data(),
                   shape_.hidden, batch, d + shape_.dense1(), d + shape_.dense1_bias());
  holdfast::launch(stream_, blocks(std::size_t{tiles(batch, kTile)} * shape_.features()), block,
                   connect_back, d_hidden_.data(), shape_.hidden, p + shape_.dense1(),
                   shape_.features(), batch, d_pooled2_.data());
  holdfast::launch(stream_,
                   blocks(std::size_t{shares} * shape_.channels2 * shape_.channels1 * kTaps), block,
                   convolve_gradient<kPooled1>, maps1(), d_pooled2_.data(), which2_.data(),
                   shape_.channels2, batch, shares2_.data());
  holdfast::launch(stream_, blocks(std::size_t{batch} * shape_.channels1 * kArea1), block,
                   convolve_back, d_pooled2_.data(), which2_.data(), p + shape_.conv2(),
                   shape_.channels1, shape_.channels2, batch, d_pooled1_.data());
  holdfast::launch(stream_, blocks(std::size_t{shares} * shape_.channels1 * kTaps), block,
                   convolve_gradient<kSide>, images(places), d_pooled1_.data(), which1_.data(),
                   shape_.channels1, batch, shares1_.data());
  const unsigned length1 = shape_.conv2();
  const unsigned length2 = shape_.dense1() - shape_.conv2();
  holdfast::launch(stream_, blocks(length1), block, add_shares, shares1_.data(), shares, length1,
                   d);
  holdfast::launch(stream_, blocks(length2), block, add_shares, shares2_.data(), shares, length2,
                   d + shape_.conv2());
}

}  // namespace

std::unique_ptr<Trainer> make_kernel_trainer(holdfast::Stream& stream, const Shape& shape,
                                             const Descent& descent, const Digits& digits) {
  return std::make_unique<KernelTrainer>(stream, shape, descent, digits);
}

}  // namespace lenet

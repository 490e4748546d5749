// One network in training: by kernels, by cuDNN, or by host threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/stream.hpp"
#include "lenet/digits.hpp"
#include "lenet/shape.hpp"

namespace lenet {

// Stochastic gradient descent without momentum, as GPM's artifact has it, so that weights and
// biases are all there is to save: w = w - rate g, where g is the gradient of the mean cross
// entropy over a batch.
struct Descent {
  std::uint32_t batch = 64;
};

// Digits are named by their place in the Digits that the trainer was made with.
//
// Every sum is taken in an order of its own that does not depend on threads: the same parameters
// and digits give the same result, bit for bit, on one machine and build.
// Thread safety: one thread.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // What a checkpoint takes in: Shape::parameters() numbers.
  virtual float* parameters() = 0;

  // Starts from these parameters.
  virtual void start(const std::vector<float>& parameters) = 0;
  // Forward and backward passes, one for each rate, each over the next `batch` digits of the list.
  // May return before they are done.
  virtual void train(const std::vector<std::uint32_t>& digits, const std::vector<float>& rates) = 0;

  // These wait.
  virtual std::vector<float> read_parameters() = 0;
  // The gradient of one batch; the parameters stay.
  virtual std::vector<float> gradient(const std::vector<std::uint32_t>& digits) = 0;
  // What the network takes each digit for.
  virtual std::vector<std::uint8_t> classify(const std::vector<std::uint32_t>& digits) = 0;
};

// Kernels, ordered by `stream`, which outlives the trainer.
std::unique_ptr<Trainer> make_kernel_trainer(holdfast::Stream& stream, const Shape& shape,
                                             const Descent& descent, const Digits& digits);
// By cuDNN and cuBLAS, ordered by `stream`, which outlives the trainer. The same network,
// parameters and layout, but other bits than of the kernels above, as sums are in another order.
// Throws unsupported where cudnn_usable() is false or the libraries do not start on this machine,
// device where a call of theirs fails, then or later.
std::unique_ptr<Trainer> make_cudnn_trainer(holdfast::Stream& stream, const Shape& shape,
                                            const Descent& descent, const Digits& digits);
// Whether this is a build that knows cuDNN, and its libraries are there; `why` says what is
// missing.
bool cudnn_usable(std::string* why);
// OpenMP threads, on host memory.
std::unique_ptr<Trainer> make_host_trainer(unsigned threads, const Shape& shape,
                                           const Descent& descent, const Digits& digits);

}  // namespace lenet

// LeNet, trained on handwritten digits: a checkpoint after every so many forward and backward
// passes. Source: GPM (ASPLOS '22) section 4.2, "DNN training"; LeCun et al. (1998) for the
// network.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lenet/digits.hpp"
#include "lenet/trainer.hpp"
#include "workload/saver.hpp"
#include "workload/workload.hpp"

namespace lenet {

workload::Info info();

// What trains in the modes whose training is a GPU's: option `kernels`. Networks as small as these
// train faster by own kernels, so they are the default (docs/workloads.md).
enum class Kernels { own, cudnn };

// A step is an interval between checkpoints. A checkpoint holds weights and
// biases; which digits a pass takes follows from the seed and the pass's number alone. So
// training that was cut off ends with the same bits as training that was not.
//
// Every fifth digit is held back from training, to measure by.
class LeNet : public workload::Workload {
 public:
  // Throws invalid_argument (options), not_found (a file that they name), damaged (a file of
  // digits that is none), unsupported (kernels=cudnn, and there is no cuDNN).
  explicit LeNet(const workload::Settings& settings);

  std::string input() const override;
  std::uint64_t steps() const override { return steps_; }
  std::uint64_t medium_bytes() const override;
  void prepare(workload::Backing& backing) override;
  // Throws invalid_argument where the run was begun by other kernels: they round otherwise, so the
  // result would be neither's.
  std::uint64_t resume() override;
  void step(std::uint64_t number) override;
  workload::Digest digest() override;
  // Gradients and verdicts against the oracle's; of short runs the whole training; of all runs the
  // bits of a training by the same kernels that nothing was saved of; and, where handwritten digits
  // were passed over as often as the size says, an accuracy of 95 %.
  std::string verify() override;
  // Kernels do not store to the medium: the saver does, and counts for itself.
  std::uint64_t kernel_bytes() const override { return 0; }
  // "kernels": own, cudnn or host threads; "checkpoint": what copies it. REQUIRES: prepare().
  std::map<std::string, std::string> facts() const override;

  // The durable parameters. REQUIRES: prepare().
  std::vector<float> parameters();
  // The part of the digits held back that the durable parameters tell right, 0 to 1.
  // REQUIRES: prepare().
  double accuracy();

  const Shape& shape() const { return shape_; }
  const Descent& descent() const { return descent_; }
  const Digits& digits() const { return digits_; }
  std::uint64_t passes() const { return passes_; }  // in a step
  // The digits that pass `number` takes.
  std::vector<std::uint32_t> batch(std::uint64_t number);
  // The learning rate of pass `number`: falls in a line, to nearly 0 at the end.
  float rate(std::uint64_t number) const;
  // What training starts from, the same for the same seed.
  std::vector<float> first_parameters() const;
  Trainer& trainer() { return *trainer_; }

 private:
  std::unique_ptr<Trainer> make_trainer(workload::Backing& backing);
  void keep_kernels(bool is_new);
  // Loads the last checkpoint, or what training starts from. Returns the steps that are done.
  std::uint64_t load();
  std::vector<std::uint32_t> batches(std::uint64_t first, std::uint64_t count);
  std::string verify_gradient(const std::vector<float>& parameters);
  std::string verify_verdicts(const std::vector<float>& parameters);
  std::string verify_training(const std::vector<float>& parameters);
  // Leaves other parameters in the trainer.
  std::string verify_replay(const std::vector<float>& parameters);
  void train_step(std::uint64_t number);

  workload::Size size_;
  workload::Mode mode_;
  std::uint64_t seed_;
  Shape shape_;
  Descent descent_;
  float first_rate_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t usual_passes_ = 0;  // in all, as the size says
  std::uint64_t passes_ = 0;
  Digits digits_;
  std::vector<std::uint32_t> trained_on_, held_back_;
  std::uint64_t epoch_ = ~std::uint64_t{0};  // whose order `order_` is
  std::vector<std::uint32_t> order_;
  workload::CopiedBy copied_by_;
  Kernels kernels_ = Kernels::own;
  workload::Backing* backing_ = nullptr;
  workload::Array<std::uint32_t> kept_kernels_;  // 1 where cuDNN trains, 0 elsewhere
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<workload::Saver> saver_;
};

}  // namespace lenet

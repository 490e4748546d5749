// LeNet's training with a checkpoint after every pass, recovered by going on from the last one. The
// network is a tiny one; its kernels, and those that save it, are those of every size.
#include <memory>

#include "checking/sized_offer.hpp"
#include "holdfast/checkpoint.hpp"
#include "holdfast/kernel.hpp"
#include "lenet/trainer.hpp"

namespace holdfast::check {
namespace {

constexpr lenet::Shape kShape{1, 1, 4};
constexpr std::uint32_t kBatch = 1;
constexpr std::uint64_t kSteps = 2;

lenet::Digits digits() { return lenet::draw_digits(kSteps, 7); }

std::vector<float> first_parameters() {
  lenet::Random random(3);
  std::vector<float> values(kShape.parameters());
  for (float& value : values) value = random.between(-0.2f, 0.2f);
  return values;
}

// A training that stands at its start.
struct Training {
  Stream stream;
  std::unique_ptr<lenet::Trainer> trainer;

  Training() : trainer(lenet::make_kernel_trainer(stream, kShape, {kBatch}, digits())) {
    trainer->start(first_parameters());
  }
  void step(std::uint64_t number) { trainer->train({static_cast<std::uint32_t>(number)}, {0.05f}); }
};

// What the network should be after each number of steps.
std::vector<std::vector<float>> train_undisturbed() {
  Training training;
  std::vector<std::vector<float>> parameters = {training.trainer->read_parameters()};
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    training.step(step);
    parameters.push_back(training.trainer->read_parameters());
  }
  return parameters;
}

struct Saved {
  Training training;
  Checkpoint checkpoint;

  explicit Saved(Region& region) : checkpoint(region, "lenet") {
    checkpoint.add("model", "parameters", training.trainer->parameters(), kShape.parameters());
  }
  std::uint64_t restore() { return checkpoint.restore(training.stream, "model").value_or(0); }
  void step(std::uint64_t number) {
    training.step(number);
    checkpoint.save(training.stream, "model", number + 1);
    training.stream.synchronize();
  }
};

// Every step by a process of its own, as it were.
void run(Region& region, Session& session) {
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    Saved saved(region);
    saved.restore();
    session.start();
    saved.step(step);
    session.acknowledge();
  }
}

void recover(Region& region) {
  Saved saved(region);
  *region.find<std::uint64_t>("resumed").data() = saved.restore();
}

// The weights are those of the step that they are said to be of; and training goes on from them,
// and is saved, as if there had been no crash.
std::string verify(Region& region, const History& history,
                   const std::vector<std::vector<float>>& expected) {
  const std::uint64_t resumed = *region.find<std::uint64_t>("resumed").data();
  if (resumed < history.acknowledged || resumed > history.started) {
    return detail::concat("training goes on from step ", resumed, ", and ", history.acknowledged,
                          " were saved");
  }
  {
    Saved saved(region);
    const std::uint64_t step = saved.restore();
    if (step != resumed) return detail::concat("step ", resumed, ", and then step ", step);
    if (saved.training.trainer->read_parameters() != expected[step]) {
      return detail::concat("the weights are not those of step ", step);
    }
    for (std::uint64_t next = step; next < kSteps; ++next) saved.step(next);
  }
  Saved saved(region);
  const std::uint64_t step = saved.restore();
  if (step != kSteps) return detail::concat("the last checkpoint is of step ", step);
  if (saved.training.trainer->read_parameters() == expected[step]) return {};
  return "the weights are not those of a training without a crash";
}

Program make(const Sizes&) {
  const auto expected = std::make_shared<std::vector<std::vector<float>>>(train_undisturbed());
  Program program;
  program.region_bytes =
      Checkpoint::region_bytes(sizeof(float) * kShape.parameters(), 1) + (1u << 18);
  program.set_up = [](Region& region) {
    region.allocate<std::uint64_t>("resumed", 1);
    Saved(region).restore();  // makes the checkpoint's object
  };
  program.run = run;
  program.recover = recover;
  program.verify = [=](Region& region, const History& history, std::uint64_t) {
    return verify(region, history, *expected);
  };
  return program;
}

}  // namespace
}  // namespace holdfast::check

namespace lenet {

std::vector<holdfast::check::Offer> check_programs() {
  return {holdfast::check::sized_offer(
      "lenet", "LeNet in training, a checkpoint after each pass, recovered by going on", {},
      holdfast::check::make)};
}

}  // namespace lenet

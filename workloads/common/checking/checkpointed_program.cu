#include "checkpointed_program.hpp"

#include <cstring>

#include "holdfast/kernel.hpp"

namespace holdfast::check {
namespace {

using Maker = std::function<std::unique_ptr<Simulation>()>;

constexpr std::uint64_t kSteps = 2;
constexpr const char* kGroup = "buffers";

// Bit by bit, since interrupted or not the result is the same.
std::vector<std::uint32_t> state_of(Simulation& simulation) {
  std::vector<std::uint32_t> bits;
  for (const DeviceBuffer<float>* buffer : simulation.saved()) {
    std::vector<float> values(buffer->size());
    copy_async(simulation.stream, values.data(), buffer->data(), buffer->bytes());
    simulation.stream.synchronize();
    for (const float value : values) {
      bits.emplace_back();
      std::memcpy(&bits.back(), &value, sizeof value);
    }
  }
  return bits;
}

// A simulation at its start, and its checkpoints.
struct Saved {
  std::unique_ptr<Simulation> simulation;
  Checkpoint checkpoint;

  Saved(Region& region, const Maker& make) : simulation(make()), checkpoint(region, "workload") {
    simulation->start();
    std::uint64_t number = 0;
    for (const DeviceBuffer<float>* buffer : simulation->saved()) {
      checkpoint.add(kGroup, detail::concat("buffer ", number++), buffer->data(), buffer->size());
    }
  }
  std::uint64_t restore() { return checkpoint.restore(simulation->stream, kGroup).value_or(0); }
  void step(std::uint64_t number) {
    simulation->step(number);
    checkpoint.save(simulation->stream, kGroup, number + 1);
    simulation->stream.synchronize();
  }
};

void run(Region& region, Session& session, const Maker& make) {
  Saved saved(region, make);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    session.start();
    saved.step(step);
    session.acknowledge();
  }
}

void recover(Region& region, const Maker& make) {
  Saved saved(region, make);
  std::uint64_t step = saved.restore();
  *region.find<std::uint64_t>("resumed").data() = step;
  for (; step < kSteps; ++step) saved.step(step);
}

std::string verify(Region& region, const History& history, const Maker& make,
                   const std::vector<std::uint32_t>& expected) {
  const std::uint64_t resumed = *region.find<std::uint64_t>("resumed").data();
  if (resumed < history.acknowledged) {
    return detail::concat("went on from step ", resumed, ", and ", history.acknowledged,
                          " were saved");
  }
  Saved saved(region, make);
  const std::uint64_t step = saved.restore();
  if (step != kSteps) return detail::concat("the last checkpoint is of step ", step);
  if (state_of(*saved.simulation) == expected) return {};
  return "the result is not that of a run without a crash";
}

}  // namespace

void Simulation::set(const DeviceBuffer<float>& buffer, const std::vector<float>& values) {
  copy_async(stream, buffer.data(), values.data(), buffer.bytes());
  stream.synchronize();
}

Program checkpointed_program(Maker make) {
  const std::unique_ptr<Simulation> undisturbed = make();
  undisturbed->start();
  for (std::uint64_t step = 0; step < kSteps; ++step) undisturbed->step(step);
  std::uint64_t bytes = 0;
  for (const DeviceBuffer<float>* buffer : undisturbed->saved()) bytes += buffer->bytes();
  Program program;
  program.region_bytes = Checkpoint::region_bytes(bytes, undisturbed->saved().size()) + (1u << 18);
  program.set_up = [=](Region& region) {
    region.allocate<std::uint64_t>("resumed", 1);
    Saved(region, make).restore();  // makes the checkpoint's object
  };
  program.run = [=](Region& region, Session& session) { run(region, session, make); };
  program.recover = [=](Region& region) { recover(region, make); };
  program.verify = [=, expected = state_of(*undisturbed)](Region& region, const History& history,
                                                          std::uint64_t) {
    return verify(region, history, make, expected);
  };
  return program;
}

}  // namespace holdfast::check

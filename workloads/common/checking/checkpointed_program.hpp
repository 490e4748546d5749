// What the programs of the checkpointing workloads have in common: iterations, a checkpoint after
// each step, and recovery that goes on from the last one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "holdfast/check.hpp"
#include "holdfast/checkpoint.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::check {

// Volatile buffers and the workload's kernels that change them.
class Simulation {
 public:
  virtual ~Simulation() = default;
  // Before step 0.
  virtual void start() = 0;
  // Stream-ordered.
  virtual void step(std::uint64_t number) = 0;
  // The buffers of a checkpoint, all of floats.
  virtual std::vector<DeviceBuffer<float>*> saved() = 0;

  Stream stream;

 protected:
  void set(const DeviceBuffer<float>& buffer, const std::vector<float>& values);
};

Program checkpointed_program(std::function<std::unique_ptr<Simulation>()> make);

}  // namespace holdfast::check

// What trainers on the device have in common, whoever's kernels they run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lenet/trainer.hpp"

namespace lenet {

// Holds the digits, the network, and the list of digits that is passed over.
class DeviceTrainer : public Trainer {
 public:
  float* parameters() override { return parameters_.data(); }

  void start(const std::vector<float>& parameters) override {
    holdfast::copy_async(stream_, parameters_.data(), parameters.data(), parameters_.bytes());
    stream_.synchronize();
  }

  std::vector<float> read_parameters() override { return read(parameters_, parameters_.size()); }

  std::vector<std::uint8_t> classify(const std::vector<std::uint32_t>& digits) override {
    begin(digits);
    std::vector<std::uint8_t> classes;
    for (std::size_t first = 0; first < digits.size(); first += descent_.batch) {
      const std::size_t count = std::min<std::size_t>(descent_.batch, digits.size() - first);
      forward(places_.data() + first, static_cast<unsigned>(count));
      const std::vector<std::uint8_t> some = read(classes_, count);
      classes.insert(classes.end(), some.begin(), some.end());
    }
    return classes;
  }

 protected:
  DeviceTrainer(holdfast::Stream& stream, const Shape& shape, const Descent& descent,
                const Digits& digits)
      : stream_(stream),
        shape_(shape),
        descent_(descent),
        pixels_(digits.pixels.size()),
        labels_(digits.labels.size()),
        parameters_(shape.parameters()),
        classes_(descent.batch) {
    const std::vector<float> pixels = digits.normalised();
    holdfast::copy_async(stream_, pixels_.data(), pixels.data(), pixels_.bytes());
    holdfast::copy_async(stream_, labels_.data(), digits.labels.data(), labels_.bytes());
    stream_.synchronize();
  }

  // Uploads a list of digits.
  virtual void begin(const std::vector<std::uint32_t>& digits) {
    stream_.synchronize();  // passes that still read the former list
    if (places_.size() < digits.size()) {
      places_ = holdfast::DeviceBuffer<std::uint32_t>(digits.size());
    }
    if (digits.empty()) return;
    holdfast::copy_async(stream_, places_.data(), digits.data(),
                         digits.size() * sizeof(std::uint32_t));
    stream_.synchronize();  // the list is the caller's
  }
  // Leaves in classes_ what the network takes `count` digits for, a batch at most.
  virtual void forward(const std::uint32_t* places, unsigned count) = 0;

  template <class T>
  std::vector<T> read(const holdfast::DeviceBuffer<T>& buffer, std::size_t count) {
    std::vector<T> values(count);
    holdfast::copy_async(stream_, values.data(), buffer.data(), count * sizeof(T));
    stream_.synchronize();
    return values;
  }

  holdfast::Stream& stream_;
  const Shape shape_;
  const Descent descent_;
  holdfast::DeviceBuffer<float> pixels_;
  holdfast::DeviceBuffer<std::uint8_t> labels_;
  holdfast::DeviceBuffer<std::uint32_t> places_;  // of the digits that are passed over
  holdfast::DeviceBuffer<float> parameters_;
  holdfast::DeviceBuffer<std::uint8_t> classes_;
};

}  // namespace lenet

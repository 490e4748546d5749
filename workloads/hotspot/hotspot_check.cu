// Two steps of hotspot on the smallest grid.
#include "checkpointed_program.hpp"
#include "hotspot/hotspot.hpp"
#include "program_makers.hpp"

namespace holdfast::check {
namespace {

constexpr std::uint64_t kCells = hotspot::kMinSide * hotspot::kMinSide;

class Hotspot : public Simulation {
 public:
  void start() override {
    std::vector<float> temperature(kCells), power(kCells);
    for (std::uint64_t i = 0; i < kCells; ++i) {
      temperature[i] = 320.0f + static_cast<float>(i);
      power[i] = 0.01f * static_cast<float>(i % 3);
    }
    set(temperature_, temperature);
    set(power_, power);
  }
  void step(std::uint64_t) override {
    hotspot::iterate(stream, hotspot::kMinSide, 1, temperature_.data(), other_.data(),
                     power_.data());
  }
  std::vector<DeviceBuffer<float>*> saved() override { return {&temperature_}; }

 private:
  DeviceBuffer<float> temperature_{kCells}, other_{kCells}, power_{kCells};
};

}  // namespace

Program hotspot_program(const ProgramOptions&) {
  return checkpointed_program([] { return std::make_unique<Hotspot>(); });
}

}  // namespace holdfast::check

// Two steps of hotspot on the smallest grid.
#include "checking/checkpointed_program.hpp"
#include "checking/sized_offer.hpp"
#include "hotspot/hotspot.hpp"

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

Program make(const Sizes&) {
  return checkpointed_program([] { return std::make_unique<Hotspot>(); });
}

}  // namespace
}  // namespace holdfast::check

namespace hotspot {

std::vector<holdfast::check::Offer> check_programs() {
  return {holdfast::check::sized_offer(
      "hotspot",
      "two iterations of a chip's temperatures, a checkpoint after each, recovered by going on", {},
      holdfast::check::make)};
}

}  // namespace hotspot

// Two scenarios of a few options.
#include "black_scholes/black_scholes.hpp"
#include "checking/checkpointed_program.hpp"
#include "checking/sized_offer.hpp"

namespace holdfast::check {
namespace {

constexpr std::uint64_t kCount = 4;  // whole words, which keeps the states few
constexpr std::uint64_t kSeed = 3;

class BlackScholes : public Simulation {
 public:
  void start() override {
    const black_scholes::Options options = black_scholes::make_options(kSeed, 0, kCount);
    set(spot_, options.spot);
    set(strike_, options.strike);
    set(years_, options.years);
  }
  void step(std::uint64_t number) override {
    black_scholes::price(
        stream, {kCount, spot_.data(), strike_.data(), years_.data(), call_.data(), put_.data()},
        black_scholes::scenario(kSeed, number), number);
  }
  std::vector<DeviceBuffer<float>*> saved() override { return {&call_, &put_}; }

 private:
  DeviceBuffer<float> spot_{kCount}, strike_{kCount}, years_{kCount}, call_{kCount}, put_{kCount};
};

Program make(const Sizes&) {
  return checkpointed_program([] { return std::make_unique<BlackScholes>(); });
}

}  // namespace
}  // namespace holdfast::check

namespace black_scholes {

std::vector<holdfast::check::Offer> check_programs() {
  return {holdfast::check::sized_offer(
      "black_scholes",
      "option prices over two scenarios, a checkpoint after each, recovered by going on", {},
      holdfast::check::make)};
}

}  // namespace black_scholes

#include "black_scholes/black_scholes.hpp"
#include "checkpointing/iterative.hpp"

namespace black_scholes {
namespace {

constexpr std::uint64_t kChunk = std::uint64_t{1} << 22;  // options that are generated at once

struct Shape {
  std::uint64_t count, steps, scenarios;
};

Shape usual_shape(workload::Size size) {
  switch (size) {
    case workload::Size::test:
      return {10'000, 4, 3};
    case workload::Size::real:
      return {1'000'000, 10, 4};
    case workload::Size::paper:
      return {std::uint64_t{1} << 28, 10, 16};
  }
  return {10'000, 4, 3};
}

class BlackScholes : public checkpointing::Iterative {
 public:
  BlackScholes(const workload::Settings& settings, const Shape& usual)
      : Iterative(settings, usual.steps),
        count_(workload::number_option(settings, "count", usual.count, 1, kMaxOptions)),
        scenarios_(workload::number_option(settings, "scenarios", usual.scenarios, 1, 1'000'000)),
        seed_(settings.seed) {}

  std::string input() const override {
    return holdfast::detail::concat("generated: ", count_, " options, seed ", seed_);
  }

 private:
  std::vector<std::uint64_t> saved_bytes() const override {
    return {count_ * sizeof(float), count_ * sizeof(float)};
  }
  std::vector<workload::Buffer> allocate(workload::Backing& backing) override {
    for (auto* values : {&spot_, &strike_, &years_, &call_, &put_}) {
      values->allocate(backing, count_);
    }
    for (std::uint64_t first = 0; first < count_; first += kChunk) {
      const Options options =
          make_options(seed_, first, std::min(kChunk, count_ - first), backing.cpu_threads());
      spot_.set(first, options.spot.data(), options.spot.size());
      strike_.set(first, options.strike.data(), options.strike.size());
      years_.set(first, options.years.data(), options.years.size());
    }
    return {call_.buffer("call"), put_.buffer("put")};
  }
  // The first scenario's weight is 1: what was there before does not matter, unless it is NaN.
  void start() override {
    call_.set(std::vector<float>(count_));
    put_.set(std::vector<float>(count_));
  }
  void iterate(std::uint64_t number) override {
    const Book book{count_, spot_.data(), strike_.data(), years_.data(), call_.data(), put_.data()};
    for (std::uint64_t i = number * scenarios_; i < (number + 1) * scenarios_; ++i) {
      if (on_cpu()) {
        price_on_cpu(threads(), book, scenario(seed_, i), i);
      } else {
        price(backing().stream(), book, scenario(seed_, i), i);
      }
    }
  }
  void add_to(workload::Digester& all) override {
    all.add(call_.get());
    all.add(put_.get());
  }
  std::string compare() override {
    return compare_with_oracle(seed_, steps() * scenarios_, call_.get(), put_.get());
  }

  std::uint64_t count_, scenarios_, seed_;
  checkpointing::Values<float> spot_, strike_, years_, call_, put_;
};

}  // namespace

workload::Info info() {
  return {
      .name = "black_scholes",
      .summary = "prices of options over scenarios, checkpointed every so many of them",
      .kind = workload::Info::Class::checkpointing,
      .table_row = 5,
      .options = {{"count", "options, 1 to 2^32 (default 10,000, 1,000,000 or 2^28 by size)"},
                  {"scenarios", "between two checkpoints (default 3, 4 or 16 by size)"},
                  {"checkpoint", workload::kCopiedByWords}},
      .make = [](const workload::Settings& settings) -> std::unique_ptr<workload::Workload> {
        return std::make_unique<BlackScholes>(settings, usual_shape(settings.size));
      },
  };
}

std::vector<workload::Info> workloads() { return {info()}; }

}  // namespace black_scholes

#include "checkpointing/iterative.hpp"
#include "hotspot/hotspot.hpp"

namespace hotspot {
namespace {

// What a size comes to, where neither options nor Settings::steps say otherwise.
struct Length {
  std::uint64_t steps, iterations;
};

Length usual_length(workload::Size size) {
  switch (size) {
    case workload::Size::test:
      return {4, 5};
    case workload::Size::real:
      return {10, 20};
    case workload::Size::paper:
      return {10, 50};
  }
  return {4, 5};
}

class Hotspot : public checkpointing::Iterative {
 public:
  Hotspot(const workload::Settings& settings, Length usual)
      : Iterative(settings, usual.steps),
        iterations_(
            workload::number_option(settings, "iterations", usual.iterations, 1, 1'000'000)),
        grids_(make_grids(settings)) {}

  std::string input() const override { return grids_.name; }

 private:
  std::vector<std::uint64_t> saved_bytes() const override {
    return {grids_.temperature.size() * sizeof(float)};
  }
  std::vector<workload::Buffer> allocate(workload::Backing& backing) override {
    for (auto* values : {&temperature_, &other_, &power_}) {
      values->allocate(backing, grids_.temperature.size());
    }
    power_.set(grids_.power);
    return {temperature_.buffer("temperature")};
  }
  void start() override { temperature_.set(grids_.temperature); }
  void iterate(std::uint64_t) override {
    if (on_cpu()) {
      iterate_on_cpu(threads(), grids_.side, iterations_, temperature_.data(), other_.data(),
                     power_.data());
    } else {
      hotspot::iterate(backing().stream(), grids_.side, iterations_, temperature_.data(),
                       other_.data(), power_.data());
    }
  }
  void add_to(workload::Digester& all) override { all.add(temperature_.get()); }
  std::string compare() override {
    return compare_with_oracle(grids_, steps() * iterations_, temperature_.get());
  }

  std::uint64_t iterations_;
  Grids grids_;
  checkpointing::Values<float> temperature_, other_, power_;
};

}  // namespace

workload::Info info() {
  return {
      .name = "hotspot",
      .summary = "temperatures of a chip (Rodinia), checkpointed every so many iterations",
      .kind = workload::Info::Class::checkpointing,
      .table_row = 6,
      .options = {{"grid", "rows and columns, 4 to 65,536 (default 64, 512 or 16,384 by size)"},
                  {"iterations", "between two checkpoints (default 5, 20 or 50 by size)"},
                  {"temperature", "file of grid x grid temperatures in kelvins, one a line"},
                  {"power", "file of as many powers in watts"},
                  {"checkpoint", workload::kCopiedByWords}},
      .make = [](const workload::Settings& settings) -> std::unique_ptr<workload::Workload> {
        return std::make_unique<Hotspot>(settings, usual_length(settings.size));
      },
  };
}

std::vector<workload::Info> workloads() { return {info()}; }

}  // namespace hotspot

#include "checkpointing/iterative.hpp"
#include "hotspot/hotspot.hpp"

namespace hotspot {
namespace {

using holdfast::detail::concat;

std::uint64_t usual_side(workload::Size size) {
  switch (size) {
    case workload::Size::test:
      return 64;
    case workload::Size::real:
      return 512;
    case workload::Size::paper:
      return 16384;
  }
  return 64;
}

// A warm chip with hot units on it.
Grids generate(std::uint64_t side, std::uint64_t seed) {
  Grids grids{side, std::vector<float>(side * side), std::vector<float>(side * side),
              concat("generated: ", side, " x ", side, " cells, seed ", seed)};
  const std::uint64_t unit = std::max<std::uint64_t>(side / 16, 1);
  const std::uint64_t of_chip = std::min(side, kFinestSide);
#pragma omp parallel for schedule(static)
  for (std::uint64_t row = 0; row < side; ++row) {
    for (std::uint64_t column = 0; column < side; ++column) {
      const std::uint64_t i = row * side + column;
      const std::uint64_t of_unit =
          checkpointing::mix(seed + 1, (row / unit) << 32 | column / unit);
      const bool hot = of_unit % 4 == 0;
      grids.temperature[i] = (hot ? 335.0f : 324.0f) +
                             checkpointing::uniform(checkpointing::mix(seed, i), -0.5f, 0.5f);
      // Some 60 W over a chip of 16 mm, whatever the number of cells.
      grids.power[i] = (hot ? 200.0f : 10.0f) / static_cast<float>(of_chip * of_chip);
    }
  }
  return grids;
}

// The user's two files.
bool read_given(const workload::Settings& settings, std::uint64_t side, Grids& grids) {
  workload::check_together(settings, {"temperature", "power"});
  const auto temperature = workload::read_named_input(
      settings, "temperature",
      "temperatures in kelvins, one a line, such as data/hotspot/temp_512 of Rodinia");
  const auto power = workload::read_named_input(
      settings, "power", "powers in watts, one a line, such as data/hotspot/power_512 of Rodinia");
  if (!temperature) return false;
  grids = {side, read_grid(temperature->text, temperature->path, side),
           read_grid(power->text, power->path, side),
           concat("temperatures of ", temperature->path, ", power of ", power->path, ", ", side,
                  " x ", side, " cells")};
  return true;
}

bool read_stored(const workload::Settings& settings, std::uint64_t side, Grids& grids) {
  const std::string temperature_name = concat("hotspot/temp_", side, ".xz");
  const std::string power_name = concat("hotspot/power_", side, ".xz");
  const auto temperature = workload::read_input(settings.data_folder, temperature_name);
  const auto power = workload::read_input(settings.data_folder, power_name);
  if (!temperature || !power) return false;
  grids = {side, read_grid(*temperature, temperature_name, side),
           read_grid(*power, power_name, side),
           concat("Rodinia's hotspot, ", side, " x ", side, " cells")};
  return true;
}

}  // namespace

std::vector<float> read_grid(const std::string& text, const std::string& name, std::uint64_t side) {
  workload::NumberReader reader(text, name);
  std::vector<float> values(side * side);
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    if (reader.at_end()) {
      workload::damaged_input(name, concat("has ", i, " numbers, and ", side, " x ", side,
                                           " are needed, unless option grid says otherwise"));
    }
    values[i] = static_cast<float>(reader.real());
    if (!(values[i] >= 0 && values[i] < 1e6f)) {
      workload::damaged_input(name,
                              concat("number ", i + 1, " is ", values[i],
                                     ", neither a temperature in kelvins nor a power in watts"));
    }
  }
  if (!reader.at_end()) {
    workload::damaged_input(
        name, concat("has more than ", side, " x ", side, " numbers: set option grid to its rows"));
  }
  return values;
}

Grids make_grids(const workload::Settings& settings) {
  const std::uint64_t side =
      workload::number_option(settings, "grid", usual_side(settings.size), kMinSide, kMaxSide);
  Grids grids;
  if (read_given(settings, side, grids) || read_stored(settings, side, grids)) return grids;
  return generate(side, settings.seed);
}

Rates rates(std::uint64_t side) {
  constexpr double kChip = 0.016, kThickness = 0.0005, kSpecificHeat = 1.75e6, kConductivity = 100;
  constexpr double kFactorChip = 0.5, kMaxPowerDensity = 3.0e6, kPrecision = 0.001;
  const double width = kChip / static_cast<double>(std::min(side, kFinestSide));
  const double height = width;
  const double capacitance = kFactorChip * kSpecificHeat * kThickness * width * height;
  const double max_slope = kMaxPowerDensity / (kFactorChip * kThickness * kSpecificHeat);
  const double time_step = kPrecision / max_slope;
  return {static_cast<float>(time_step / capacitance),
          static_cast<float>(2.0 * kConductivity * kThickness * width / height),
          static_cast<float>(2.0 * kConductivity * kThickness * height / width),
          static_cast<float>(kConductivity * height * width / kThickness)};
}

}  // namespace hotspot

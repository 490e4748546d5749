// Temperatures against the oracle and against Rodinia's own output; modes, kills, files.
#include "hotspot/hotspot.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "checkpointing/iterative_checks.hpp"
#include "workload/inputs.hpp"

namespace hotspot {
namespace {

using checkpointing_checks::error_with;
using holdfast::Errc;
using holdfast::test::error_of;

std::vector<float> simulate(const Grids& grids, std::uint64_t iterations) {
  holdfast::Stream stream;
  const std::uint64_t count = grids.temperature.size();
  holdfast::DeviceBuffer<float> temperature(count), other(count), power(count);
  const std::size_t bytes = temperature.bytes();
  holdfast::copy_async(stream, temperature.data(), grids.temperature.data(), bytes);
  holdfast::copy_async(stream, power.data(), grids.power.data(), bytes);
  iterate(stream, grids.side, iterations, temperature.data(), other.data(), power.data());
  std::vector<float> result(count);
  holdfast::copy_async(stream, result.data(), temperature.data(), bytes);
  stream.synchronize();
  return result;
}

std::vector<float> simulate_on_cpu(const Grids& grids, std::uint64_t iterations) {
  std::vector<float> temperature = grids.temperature, other(temperature.size());
  iterate_on_cpu(2, grids.side, iterations, temperature.data(), other.data(), grids.power.data());
  return temperature;
}

Grids generated(std::uint64_t side) {
  workload::Settings settings;
  settings.options["grid"] = std::to_string(side);
  return make_grids(settings);
}

TEST(Hotspot, CheckpointsAreAlikeWhateverCopiesThem) {
  checkpointing_checks::expect_either_copier(info(), {});
}

TEST(Hotspot, EveryModeVerifiesAndResumes) {
  workload::Settings settings;
  settings.options["iterations"] = "3";  // odd: the result changes places
  checkpointing_checks::expect_every_mode(info(), settings);
}

TEST(Hotspot, KillsAreSurvived) {
  workload::Settings settings;
  settings.steps = 40;
  checkpointing_checks::expect_kills_survived(info(), settings);
}

TEST(Hotspot, KernelsAndHostThreadsAgreeWithTheOracle) {
  for (const std::uint64_t side : {4, 5, 31, 64, 100}) {
    const Grids grids = generated(side);
    for (const std::uint64_t iterations : {1, 2, 7}) {
      EXPECT_EQ(compare_with_oracle(grids, iterations, simulate(grids, iterations)), "");
      EXPECT_EQ(compare_with_oracle(grids, iterations, simulate_on_cpu(grids, iterations)), "");
    }
  }
}

// Windows are as good as the whole, where they look; and an oracle must be able to say no.
TEST(Hotspot, TheOracleLooksAtWindowsOfLargeGrids) {
  const Grids grids = generated(200);
  std::vector<float> result = simulate(grids, 10);
  EXPECT_EQ(compare_with_oracle(grids, 10, result, true), "");
  EXPECT_NE(compare_with_oracle(grids, 9, result, true), "");
  EXPECT_NE(compare_with_oracle(grids, 11, result), "");
  result[100 * 200 + 100] += 0.01f;
  const std::string wrong = compare_with_oracle(grids, 10, result, true);
  EXPECT_NE(wrong.find("cell (100, 100)"), std::string::npos) << wrong;
  result[100 * 200 + 100] = NAN;
  EXPECT_NE(compare_with_oracle(grids, 10, result, true), "");
}

// A chip without power, as warm as its surroundings, stays as it is; power warms it.
TEST(Hotspot, HeatComesFromPower) {
  Grids grids{8, std::vector<float>(64, 80.0f), std::vector<float>(64), "still"};
  EXPECT_EQ(simulate(grids, 50), grids.temperature);
  grids.power[27] = 0.5f;
  const std::vector<float> warmed = simulate(grids, 50);
  for (const float temperature : warmed) EXPECT_GE(temperature, 80.0f);
  EXPECT_EQ(std::max_element(warmed.begin(), warmed.end()) - warmed.begin(), 27);
}

// A grid beyond the finest that Rodinia's time step allows: temperatures stay where they may be.
TEST(Hotspot, LargeGridsAreStable) {
  const Grids grids = generated(1500);
  const std::vector<float> result = simulate_on_cpu(grids, 60);
  EXPECT_EQ(compare_with_oracle(grids, 60, result, true), "");
  for (const float temperature : result) {
    ASSERT_GT(temperature, 300.0f);
    ASSERT_LT(temperature, 350.0f);
  }
}

// Rodinia's output for `512 2 2` has six digits: half a unit of the last is 0.0005.
TEST(Hotspot, RodiniasOutputIsReproduced) {
  workload::Settings settings;
  settings.size = workload::Size::real;
  settings.data_folder = checkpointing_checks::data_folder();
  const auto reference = workload::read_input(settings.data_folder, "hotspot/output_512_2_2.xz");
  if (!reference) GTEST_SKIP() << "set HOLDFAST_DATA to the folder that holds hotspot/";
  const Grids grids = make_grids(settings);
  ASSERT_EQ(grids.name, "Rodinia's hotspot, 512 x 512 cells");
  const std::vector<float> by_kernels = simulate(grids, 2);
  const std::vector<float> on_cpu = simulate_on_cpu(grids, 2);
  workload::NumberReader reader(*reference, "output_512_2_2");
  for (std::uint64_t i = 0; i < by_kernels.size(); ++i) {
    ASSERT_EQ(reader.whole(0, by_kernels.size()), i);
    const double temperature = reader.real();
    ASSERT_NEAR(by_kernels[i], temperature, 6e-4) << "cell " << i;
    ASSERT_NEAR(on_cpu[i], temperature, 6e-4) << "cell " << i;
  }
  EXPECT_TRUE(reader.at_end());
}

TEST(Hotspot, BadOptionsAreRefused) {
  EXPECT_EQ(error_with(info(), {{"grid", "3"}}, {"grid=3", "4 to 65536"}), Errc::invalid_argument);
  EXPECT_EQ(error_with(info(), {{"grid", "many"}}, {"grid=many"}), Errc::invalid_argument);
  EXPECT_EQ(error_with(info(), {{"iterations", "0"}}, {"iterations", "1 to"}),
            Errc::invalid_argument);
}

class HotspotFiles : public checkpointing_checks::Files {
 protected:
  static std::string numbers(unsigned count, const std::string& each) {
    std::string text;
    for (unsigned i = 0; i < count; ++i) text += each + "\n";
    return text;
  }
};

TEST_F(HotspotFiles, TheUsersAreTaken) {
  workload::Settings settings;
  settings.options = {{"grid", "8"},
                      {"temperature", write("t", numbers(64, "330.5"))},
                      {"power", write("p", numbers(64, "1e-3"))}};
  const Grids grids = make_grids(settings);
  EXPECT_EQ(grids.temperature, std::vector<float>(64, 330.5f));
  EXPECT_EQ(grids.power, std::vector<float>(64, 1e-3f));
  EXPECT_NE(grids.name.find(path("t")), std::string::npos);
  EXPECT_EQ(workload_checks::run_whole(info(), settings).wrong, "");
  settings.options.erase("power");
  EXPECT_EQ(error_of([&] { make_grids(settings); }, {"temperature and power"}),
            Errc::invalid_argument);
}

TEST_F(HotspotFiles, DamagedOnesAreRefused) {
  const std::string power = write("p", numbers(64, "0.001"));
  const auto error_of_text = [&](const std::string& text, const std::vector<std::string>& words) {
    return error_with(info(), {{"grid", "8"}, {"temperature", write("t", text)}, {"power", power}},
                      words);
  };
  EXPECT_EQ(error_of_text("", {"0 numbers", "8 x 8"}), Errc::damaged);
  EXPECT_EQ(error_of_text(numbers(63, "330"), {path("t"), "63 numbers", "grid"}), Errc::damaged);
  EXPECT_EQ(error_of_text(numbers(65, "330"), {"more than 8 x 8", "grid"}), Errc::damaged);
  EXPECT_EQ(error_of_text(numbers(30, "330") + "warm\n", {"line 31", "warm"}), Errc::damaged);
  EXPECT_EQ(error_of_text(numbers(64, "-3"), {"number 1", "-3"}), Errc::damaged);
  EXPECT_EQ(error_of_text(numbers(64, "nan"), {}), Errc::damaged);
}

}  // namespace
}  // namespace hotspot

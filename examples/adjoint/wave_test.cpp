// The kernels against the scheme written down once more, plainly; and waves that do what waves do.
#include "adjoint/wave.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "adjoint/solver.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace adjoint {
namespace {

using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::Stream;
using holdfast::test::error_of;

// One shot on the host, in double: u of all steps as maps from a cell of the image's grid.
class Oracle {
 public:
  Oracle(const Survey& survey, std::vector<double> courant2)
      : survey_(survey), courant2_(std::move(courant2)) {}

  std::vector<double> traces(std::uint64_t shot) {
    const std::uint64_t cells = survey_.grid.cells;
    std::vector<double> before(cells), now(cells), next(cells), result;
    for (std::uint64_t n = 0; n < survey_.steps; ++n) {
      for (std::int64_t z = 0; z < survey_.grid.nz; ++z) {
        for (std::int64_t x = 0; x < survey_.grid.nx; ++x) {
          const std::uint64_t i = index(x, z);
          double second = 0;
          for (int k = -4; k <= 4; ++k) {
            second += kWeights[std::abs(k)] * (at(now, x + k, z) + at(now, x, z + k));
          }
          if (i == survey_.sources[shot]) second += survey_.wavelet[n];
          const double a = survey_.damping[i];
          next[i] = (2 * now[i] - (1 - a) * before[i] + courant2_[i] * second) / (1 + a);
        }
      }
      before.swap(now);
      now.swap(next);
      for (const std::uint32_t cell : survey_.receivers) result.push_back(now[cell]);
    }
    return result;
  }

 private:
  // Of the second difference; Fornberg's table.
  static constexpr double kWeights[] = {-2.8472222222222222, 1.6, -0.2, 0.025396825396825397,
                                        -0.0017857142857142857};
  std::uint64_t index(std::int64_t x, std::int64_t z) const {
    return survey_.grid.at(static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(z));
  }
  double at(const std::vector<double>& field, std::int64_t x, std::int64_t z) const {
    const bool outside = x < 0 || z < 0 || x >= survey_.grid.nx || z >= survey_.grid.nz;
    return outside ? 0.0 : field[index(x, z)];
  }
  const Survey& survey_;
  std::vector<double> courant2_;
};

template <class Real>
std::vector<double> traces(const Survey& survey, const std::vector<double>& courant2,
                           std::uint64_t shot) {
  Stream stream;
  Solver<Real> solver(survey);
  const DeviceBuffer<Real> model = to_device<Real>(stream, courant2);
  DeviceBuffer<Real> result(solver.trace_values());
  solver.record(stream, model.data(), shot, result.data());
  return to_host(stream, result.data(), result.size());
}

double worst(const std::vector<double>& a, const std::vector<double>& b) {
  double size = 0, difference = 0;
  for (std::uint64_t i = 0; i < a.size(); ++i) {
    size = std::max(size, std::abs(b[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return difference / size;
}

// Sizes that are no multiples of what a block of threads does, and long enough for echoes.
TEST(Wave, KernelsAgreeWithTheOracle) {
  const Survey survey = make_survey(37, 21, 160, 2);
  const std::vector<double> model = courant2(survey, layered_velocity(37, 21));
  for (std::uint64_t shot = 0; shot < 2; ++shot) {
    const std::vector<double> should = Oracle(survey, model).traces(shot);
    EXPECT_LT(worst(traces<double>(survey, model, shot), should), 1e-12);
    EXPECT_LT(worst(traces<float>(survey, model, shot), should), 1e-4);
  }
}

TEST(Wave, ARunGivesTheSameBits) {
  const Survey survey = make_survey(40, 30, 100, 1);
  const std::vector<double> model = courant2(survey, layered_velocity(40, 30));
  EXPECT_EQ(traces<float>(survey, model, 0), traces<float>(survey, model, 0));
}

// In water: the wavelet's crest is at a receiver when it should be, and what the edges send back
// is a thirtieth of it at most.
TEST(Wave, ItArrivesInTimeAndLeaves) {
  Survey survey = make_survey(120, 40, 900, 1);
  const std::vector<double> water(120 * 40, 1500.0);
  const std::vector<double> all = traces<double>(survey, courant2(survey, water), 0);
  const std::uint64_t count = survey.receivers.size(), near = 80, far = 110;  // the source is at 60
  const auto crest = [&](std::uint64_t receiver) {
    std::uint64_t at = 0;
    for (std::uint64_t n = 0; n < survey.steps; ++n) {
      if (std::abs(all[n * count + receiver]) > std::abs(all[at * count + receiver])) at = n;
    }
    return at;
  };
  const double steps =
      static_cast<double>(far - near) * survey.scale.spacing / 1500.0 / survey.scale.time_step;
  EXPECT_NEAR(static_cast<double>(crest(far) - crest(near)), steps, 4.0);
  double late = 0;
  for (std::uint64_t n = crest(far) + 200; n < survey.steps; ++n) {
    late = std::max(late, std::abs(all[n * count + far]));
  }
  EXPECT_LT(late, 0.03 * std::abs(all[crest(far) * count + far]));
}

TEST(Wave, TheFrameStaysZero) {
  Stream stream;
  std::mt19937_64 random(holdfast::test::test_seed());
  const Grid grid = make_grid(21, 13);
  std::vector<double> inner(grid.cells), some(grid.cells, 0.1);
  for (std::uint32_t z = 0; z < 13; ++z) {
    for (std::uint32_t x = 0; x < 21; ++x) inner[grid.at(x, z)] = 1.0 + random() % 10;
  }
  const auto now = to_device<double>(stream, inner), before = to_device<double>(stream, inner);
  const auto medium = to_device<double>(stream, some);
  DeviceBuffer<double> next(grid.cells);
  step<double>(stream, grid, {medium.data(), medium.data()}, now.data(), before.data(), next.data(),
               {});
  const std::vector<double> result = to_host(stream, next.data(), next.size());
  for (std::uint32_t i = 0; i < grid.cells; ++i) {
    ASSERT_EQ(result[i] != 0, inner[i] != 0) << "cell " << i;
  }
}

TEST(Survey, WhatCannotBeSimulatedIsRefused) {
  EXPECT_EQ(error_of([] { make_survey(15, 40, 10, 1); }, {"nx 15", "16"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([] { make_survey(40, 20000, 10, 1); }, {"nz 20000"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([] { make_survey(40, 40, 0, 1); }, {"steps 0"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([] { make_survey(40, 40, 10, 0); }, {"shots 0"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([] { make_grid(1u << 20, 1u << 20); }, {"2^31"}), Errc::invalid_argument);
  const Survey survey = make_survey(16, 16, 10, 1);
  std::vector<double> velocity(256, 1500.0);
  EXPECT_EQ(error_of([&] { courant2(survey, {1500.0}); }, {"1 velocities"}),
            Errc::invalid_argument);
  for (const double wrong : {0.0, -1500.0, 4500.0, std::nan("")}) {
    velocity[77] = wrong;
    EXPECT_EQ(error_of([&] { courant2(survey, velocity); }, {"m/s", "below"}),
              Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace adjoint

// The solver against the oracle and against what physics conserves; modes, kills.
#include "cfd/cfd.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "checkpointing/iterative_checks.hpp"

namespace cfd {
namespace {

using checkpointing_checks::error_with;
using holdfast::Errc;

struct Flow {
  std::vector<float> variables, fluxes;
};

// In pinned memory, which kernels and host threads can use.
template <class T>
holdfast::PinnedBuffer<T> pinned(const std::vector<T>& values) {
  holdfast::PinnedBuffer<T> buffer(values.size());
  std::copy(values.begin(), values.end(), buffer.data());
  return buffer;
}

Flow simulate(const Mesh& mesh, std::uint64_t iterations, bool on_cpu) {
  holdfast::Stream stream;
  std::vector<float> start(mesh.cells * kVariables);
  for (std::uint64_t i = 0; i < start.size(); ++i) {
    start[i] = far_field().variables[i / mesh.cells];
  }
  const auto areas = pinned(mesh.areas), normals = pinned(mesh.normals), variables = pinned(start);
  const auto neighbours = pinned(mesh.neighbours);
  holdfast::PinnedBuffer<float> fluxes(start.size()), old(start.size()), factors(mesh.cells);
  const Arrays arrays{mesh.cells,       areas.data(),  neighbours.data(), normals.data(),
                      variables.data(), fluxes.data(), old.data(),        factors.data()};
  if (on_cpu) {
    iterate_on_cpu(2, arrays, iterations);
  } else {
    iterate(stream, arrays, iterations);
  }
  stream.synchronize();
  return {{variables.data(), variables.data() + start.size()},
          {fluxes.data(), fluxes.data() + start.size()}};
}

TEST(Cfd, CheckpointsAreAlikeWhateverCopiesThem) {
  checkpointing_checks::expect_either_copier(info(), {});
}

TEST(Cfd, EveryModeVerifiesAndResumes) { checkpointing_checks::expect_every_mode(info(), {}); }

TEST(Cfd, KillsAreSurvived) {
  workload::Settings settings;
  settings.steps = 25;
  settings.options = {{"cells", "200"}, {"iterations", "2"}};
  checkpointing_checks::expect_kills_survived(info(), settings);
}

TEST(Cfd, KernelsAndHostThreadsAgreeWithTheOracle) {
  for (const std::uint64_t cells : {6, 7, 100, 1500}) {
    const Mesh mesh = generate_mesh(cells, 4);
    for (const bool on_cpu : {false, true}) {
      for (const std::uint64_t iterations : {1, 2, 30}) {
        const Flow flow = simulate(mesh, iterations, on_cpu);
        EXPECT_EQ(compare_with_oracle(mesh, iterations, flow.variables, flow.fluxes), "") << cells;
      }
    }
  }
}

TEST(Cfd, TheOracleSaysNo) {
  const Mesh mesh = generate_mesh(600, 1);
  const Flow flow = simulate(mesh, 10, false);
  EXPECT_EQ(compare_with_oracle(mesh, 10, flow.variables, flow.fluxes), "");
  EXPECT_NE(compare_with_oracle(mesh, 9, flow.variables, flow.fluxes), "");
  EXPECT_NE(compare_with_oracle(mesh, 11, flow.variables, flow.fluxes), "");
  EXPECT_NE(compare_with_oracle(generate_mesh(600, 2), 10, flow.variables, flow.fluxes), "");
  for (const float wrong : {0.01f, NAN, INFINITY}) {
    Flow other = flow;
    other.variables[3 * 600 + 17] += wrong;
    const std::string said = compare_with_oracle(mesh, 10, other.variables, other.fluxes);
    EXPECT_NE(said.find("cell 17 has momentum in z"), std::string::npos) << said;
    other = flow;
    other.fluxes[18] += wrong;
    EXPECT_NE(compare_with_oracle(mesh, 10, other.variables, other.fluxes), "");
  }
}

// In a box of walls neither mass nor energy comes in or goes out: what leaves a cell enters
// another.
TEST(Cfd, WhatLeavesACellEntersItsNeighbour) {
  Mesh mesh = generate_mesh(3000, 2);
  std::replace(mesh.neighbours.begin(), mesh.neighbours.end(), kFarField, kWall);
  const Flow flow = simulate(mesh, 5, false);
  for (const unsigned variable : {0u, 4u}) {
    double sum = 0, moved = 0;
    for (std::uint64_t i = 0; i < mesh.cells; ++i) {
      const double flux = flow.fluxes[variable * mesh.cells + i];
      sum += flux;
      moved += std::abs(flux);
    }
    EXPECT_GT(moved, 0);
    EXPECT_LT(std::abs(sum), 1e-5 * moved) << "variable " << variable;
  }
  EXPECT_EQ(compare_with_oracle(mesh, 5, flow.variables, flow.fluxes), "");
}

// Without a body in it the flow stays as it is, since the faces of a cell close.
TEST(Cfd, AFreeStreamStaysAsItIs) {
  Mesh mesh = generate_mesh(2000, 3);
  std::replace(mesh.neighbours.begin(), mesh.neighbours.end(), kWall, kFarField);
  const Flow flow = simulate(mesh, 20, false);
  for (std::uint64_t i = 0; i < flow.variables.size(); ++i) {
    ASSERT_NEAR(flow.variables[i], far_field().variables[i / mesh.cells], 1e-4);
  }
}

// The bump slows the flow down before it, and turns it upwards there.
TEST(Cfd, TheBumpIsFelt) {
  const Mesh mesh = generate_mesh(3000, 1);
  const Flow flow = simulate(mesh, 100, false);
  const auto range = [&](unsigned variable) {
    const auto first = flow.variables.begin() + static_cast<std::ptrdiff_t>(variable * mesh.cells);
    return std::minmax_element(first, first + static_cast<std::ptrdiff_t>(mesh.cells));
  };
  EXPECT_GT(*range(0).second, 1.1f * far_field().variables[0]);
  EXPECT_LT(*range(0).first, 0.95f * far_field().variables[0]);
  EXPECT_GT(*range(3).second, 0.05f);
}

TEST(Cfd, BadOptionsAreRefused) {
  EXPECT_EQ(error_with(info(), {{"cells", "5"}}, {"cells=5", "6 to"}), Errc::invalid_argument);
  EXPECT_EQ(error_with(info(), {{"iterations", "x"}}, {"iterations=x"}), Errc::invalid_argument);
  EXPECT_EQ(error_with(info(), {{"cells", "9"}, {"mesh", "/no/such/file"}}, {"leave out cells"}),
            Errc::invalid_argument);
}

// Table 1: 8.9 MB on the medium, where a checkpoint is kept twice.
TEST(Cfd, PaperSizeIsThatOfThePaper) {
  workload::Settings settings;
  settings.size = workload::Size::paper;
  const std::uint64_t bytes = info().make(settings)->medium_bytes();
  EXPECT_NEAR(static_cast<double>(bytes) / (1 << 20), 8.9, 0.1);
}

}  // namespace
}  // namespace cfd

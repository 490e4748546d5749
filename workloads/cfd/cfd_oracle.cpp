// The same equations once more, in double precision and face by face with flux vectors.
#include <algorithm>
#include <array>
#include <cmath>

#include "cfd/cfd.hpp"
#include "holdfast/error.hpp"
#include "workload/in_parts.hpp"

namespace cfd {
namespace {

using Vector = std::array<double, 3>;
using Five = std::array<double, 5>;  // density, momentum, energy

double dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

constexpr double kHeatRatio = 1.4;

Vector velocity(const Five& u) { return {u[1] / u[0], u[2] / u[0], u[3] / u[0]}; }
double pressure(const Five& u) {
  const Vector v = velocity(u);
  return (kHeatRatio - 1) * (u[4] - u[0] * dot(v, v) / 2);
}
double fastest_wave(const Five& u) {
  const Vector v = velocity(u);
  return std::sqrt(dot(v, v)) + std::sqrt(kHeatRatio * pressure(u) / u[0]);
}

// The Euler fluxes through an area `n`: U (v n) + p (0, n, v n).
Five flow(const Five& u, const Vector& n) {
  const double p = pressure(u), vn = dot(velocity(u), n);
  return {u[0] * vn, u[1] * vn + p * n[0], u[2] * vn + p * n[1], u[3] * vn + p * n[2],
          (u[4] + p) * vn};
}

// Air that moves along x at Mach 1.2.
Five undisturbed() {
  const double density = 1.4, pressure = 1.0, speed = 1.2;
  return {density, density * speed, 0, 0,
          density * speed * speed / 2 + pressure / (kHeatRatio - 1)};
}

class Solver {
 public:
  explicit Solver(const Mesh& mesh)
      : mesh_(mesh),
        now_(mesh.cells, undisturbed()),
        inflows_(mesh.cells),
        moved_(mesh.cells),
        borders_(mesh.cells) {}

  void advance() {
    const std::vector<Five> before = now_;
    std::vector<double> reach(mesh_.cells);
    for_cells([&](std::uint64_t i) {
      reach[i] = 0.5 / (std::sqrt(double{mesh_.areas[i]}) * fastest_wave(before[i]));
    });
    for (const int divisor : {3, 2, 1}) {
      add_up_inflows();
      for_cells([&](std::uint64_t i) {
        for (unsigned v = 0; v < 5; ++v) {
          now_[i][v] = before[i][v] + reach[i] / divisor * inflows_[i][v];
        }
      });
    }
  }

  const Five& at(std::uint64_t i) const { return now_[i]; }
  // Of the last stage: what came into cell i, and how much moved through its faces on balance or
  // not.
  const Five& inflow_of(std::uint64_t i) const { return inflows_[i]; }
  const Five& moved_of(std::uint64_t i) const { return moved_[i]; }
  // What came through the borders of the mesh in the last stage.
  Five through_borders() const {
    Five all{};
    for (const Five& cell : borders_) {
      for (unsigned v = 0; v < 5; ++v) all[v] += cell[v];
    }
    return all;
  }

 private:
  template <class Body>
  void for_cells(const Body& body) const {
    constexpr std::uint64_t kLeast = 4096;  // that are worth a thread
    workload::in_parts(mesh_.cells, kLeast, [&](std::uint64_t first, std::uint64_t end) {
      for (std::uint64_t i = first; i < end; ++i) body(i);
    });
  }

  void add_up_inflows() {
    for_cells([&](std::uint64_t i) {
      inflows_[i] = moved_[i] = borders_[i] = {};
      for (unsigned face = 0; face < kFaces; ++face) {
        const Five in = inflow(i, face);
        for (unsigned v = 0; v < 5; ++v) {
          inflows_[i][v] += in[v];
          moved_[i][v] += std::abs(in[v]);
          if (neighbour(i, face) < 0) borders_[i][v] += in[v];
        }
      }
    });
  }

  // What comes into cell i through one of its faces.
  Five inflow(std::uint64_t i, unsigned face) const {
    const Vector n = normal(i, face);
    const std::int32_t beyond = neighbour(i, face);
    const Five& here = now_[i];
    if (beyond == kWall) {
      const double p = pressure(here);
      return {0, p * n[0], p * n[1], p * n[2], 0};
    }
    const Five there =
        beyond == kFarField ? undisturbed() : now_[static_cast<std::uint64_t>(beyond)];
    const Five a = flow(here, n), b = flow(there, n);
    const double levelling = beyond == kFarField ? 0
                                                 : 0.1 * std::sqrt(dot(n, n)) *
                                                       (fastest_wave(here) + fastest_wave(there));
    Five in;
    for (unsigned v = 0; v < 5; ++v) in[v] = (a[v] + b[v]) / 2 + levelling * (there[v] - here[v]);
    return in;
  }

  std::int32_t neighbour(std::uint64_t i, unsigned face) const {
    return mesh_.neighbours[face * mesh_.cells + i];
  }
  Vector normal(std::uint64_t i, unsigned face) const {
    Vector n;
    for (unsigned axis = 0; axis < 3; ++axis) {
      n[axis] = mesh_.normals[(axis * kFaces + face) * mesh_.cells + i];
    }
    return n;
  }

  const Mesh& mesh_;
  std::vector<Five> now_, inflows_, moved_, borders_;
};

constexpr const char* kNames[] = {"density", "momentum in x", "momentum in y", "momentum in z",
                                  "energy"};

std::string compare_flux(const Solver& oracle, std::uint64_t i, const Five& flux) {
  for (unsigned v = 0; v < 5; ++v) {
    const double in = oracle.inflow_of(i)[v];
    if (std::abs(flux[v] - in) <= kTolerance * std::max(oracle.moved_of(i)[v], 1e-6)) continue;
    return holdfast::detail::concat("cell ", i, " has a flux of ", kNames[v], " of ", flux[v],
                                    ", and should have ", in);
  }
  return {};
}

std::string compare_cell(const Solver& oracle, std::uint64_t i, const Five& is) {
  using holdfast::detail::concat;
  for (unsigned v = 0; v < 5; ++v) {
    const double should = oracle.at(i)[v];
    // Comparisons are false for NaN.
    if (!(std::abs(is[v] - should) <= kTolerance * std::max(1.0, std::abs(should)))) {
      return concat("cell ", i, " has ", kNames[v], " ", is[v], ", and should have ", should);
    }
  }
  if (is[0] > 0 && pressure(is) > 0) return {};
  return concat("cell ", i, " has density ", is[0], " and pressure ", pressure(is),
                ", which must be positive");
}

// What leaves a cell enters its neighbour: all fluxes together are those through the borders. Of a
// mesh whose faces agree, which the oracle's own sum tells.
std::string check_conservation(const Solver& oracle, const std::vector<Five>& fluxes) {
  Five oracle_sum{}, sum{}, moved{};
  for (std::uint64_t i = 0; i < fluxes.size(); ++i) {
    for (unsigned v = 0; v < 5; ++v) {
      oracle_sum[v] += oracle.inflow_of(i)[v];
      sum[v] += fluxes[i][v];
      moved[v] += oracle.moved_of(i)[v];
    }
  }
  for (unsigned v = 0; v < 5; ++v) {
    const double should = oracle.through_borders()[v];
    if (std::abs(oracle_sum[v] - should) > 1e-6 * moved[v]) continue;
    if (std::abs(sum[v] - should) <= 1e-5 * moved[v]) continue;
    return holdfast::detail::concat("not conserved: ", kNames[v], " of ", sum[v],
                                    " comes into all cells, and ", should, " through the borders");
  }
  return {};
}

Five five(const std::vector<float>& values, std::uint64_t cells, std::uint64_t i) {
  Five result;
  for (unsigned v = 0; v < 5; ++v) result[v] = values[v * cells + i];
  return result;
}

}  // namespace

std::string compare_with_oracle(const Mesh& mesh, std::uint64_t iterations,
                                const std::vector<float>& variables,
                                const std::vector<float>& fluxes) {
  Solver oracle(mesh);
  for (std::uint64_t i = 0; i < iterations; ++i) oracle.advance();
  std::vector<Five> each;
  for (std::uint64_t i = 0; i < mesh.cells; ++i) {
    std::string wrong = compare_cell(oracle, i, five(variables, mesh.cells, i));
    if (wrong.empty() && !fluxes.empty()) {
      each.push_back(five(fluxes, mesh.cells, i));
      wrong = compare_flux(oracle, i, each.back());
    }
    if (!wrong.empty()) {
      return holdfast::detail::concat("after ", iterations, " iterations ", wrong);
    }
  }
  return each.empty() ? std::string() : check_conservation(oracle, each);
}

}  // namespace cfd

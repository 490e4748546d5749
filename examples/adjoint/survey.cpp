#include "adjoint/survey.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;

namespace {

constexpr double kWater = 1500.0;    // metres a second
constexpr std::uint32_t kDepth = 2;  // of sources and receivers, in cells below the sponge

void check(const char* what, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  throw Error(Errc::invalid_argument, concat("adjoint: ", what, " ", value,
                                             " is out of range: give ", least, " to ", most));
}

// Ricker's wavelet, centred where its tail before time 0 is gone.
std::vector<double> ricker(std::uint64_t steps, const Scale& scale) {
  std::vector<double> result(steps);
  for (std::uint64_t n = 0; n < steps; ++n) {
    const double time = static_cast<double>(n) * scale.time_step - 1.2 / scale.peak_frequency;
    const double square = std::pow(std::numbers::pi * scale.peak_frequency * time, 2);
    result[n] = (1.0 - 2.0 * square) * std::exp(-square);
  }
  return result;
}

// How far a cell is inside the sponge of one direction, 0 to 1.
double inside(std::uint32_t at, std::uint32_t size) {
  const std::uint32_t from_edge = std::min(at, size - 1 - at);
  return from_edge >= kSponge ? 0.0 : static_cast<double>(kSponge - from_edge) / kSponge;
}

// Grows as the square of the depth, so that nothing reflects where it begins. Its most is such that
// a wave of a usual velocity comes back a thousandth as strong.
std::vector<double> sponge(const Grid& grid, const Scale& scale) {
  constexpr double kLeft = 1e-3;
  const double most = 3.0 * scale.usual_velocity * std::log(1.0 / kLeft) /
                      (2.0 * kSponge * scale.spacing) * scale.time_step;
  std::vector<double> result(grid.cells, 0.0);
  for (std::uint32_t z = 0; z < grid.nz; ++z) {
    for (std::uint32_t x = 0; x < grid.nx; ++x) {
      const double across = inside(x, grid.nx), down = inside(z, grid.nz);
      result[grid.at(x, z)] = most * (across * across + down * down);
    }
  }
  return result;
}

}  // namespace

Grid make_grid(std::uint64_t nx, std::uint64_t nz) {
  const std::uint64_t pitch = nx + 2 * kRadius, rows = nz + 2 * kRadius;
  if (nx == 0 || nz == 0 || nx > 1u << 30 || nz > 1u << 30 || pitch * rows > 1u << 31) {
    throw Error(Errc::invalid_argument,
                concat("adjoint: a grid of ", nx, " x ", nz, " cells: give 1 to 2^31 in all"));
  }
  return {static_cast<std::uint32_t>(nx), static_cast<std::uint32_t>(nz),
          static_cast<std::uint32_t>(pitch), static_cast<std::uint32_t>(pitch * rows)};
}

Scale scale_of(const std::vector<double>& velocity, double spacing) {
  const auto [slowest, fastest] = std::minmax_element(velocity.begin(), velocity.end());
  return {spacing, 0.4 * spacing / *fastest, *slowest / (10.0 * spacing),
          0.5 * (*slowest + *fastest)};
}

Survey make_survey(std::uint64_t nx, std::uint64_t nz, std::uint64_t steps, std::uint64_t shots,
                   std::uint64_t every, const Scale& scale) {
  check("nx", nx, kMinSide, kMaxSide);
  check("nz", nz, kMinSide, kMaxSide);
  check("steps", steps, 1, kMaxSteps);
  check("shots", shots, 1, kMaxShots);
  check("every", every, 1, steps);
  Survey survey;
  survey.image_nx = nx;
  survey.image_nz = nz;
  survey.steps = steps;
  survey.every = every;
  survey.grid = make_grid(nx + 2 * kSponge, nz + 2 * kSponge);
  survey.scale = scale;
  survey.wavelet = ricker(steps, scale);
  survey.damping = sponge(survey.grid, scale);
  for (std::uint64_t shot = 0; shot < shots; ++shot) {
    survey.sources.push_back(survey.image_at((2 * shot + 1) * nx / (2 * shots), kDepth));
  }
  for (std::uint64_t x = 0; x < nx; ++x) survey.receivers.push_back(survey.image_at(x, kDepth));
  return survey;
}

std::vector<double> layered_velocity(std::uint64_t nx, std::uint64_t nz) {
  // Where each layer begins in the middle, as a part of the depth, how far it dips from the left to
  // the right, and its velocity.
  struct Layer {
    double top, dip, velocity;
  };
  constexpr Layer kLayers[] = {
      {0.18, 0.00, 1800.0}, {0.36, 0.08, 2150.0}, {0.58, -0.06, 2500.0}, {0.80, 0.03, 2900.0}};
  std::vector<double> result(nx * nz, kWater);
  for (std::uint64_t z = 0; z < nz; ++z) {
    for (std::uint64_t x = 0; x < nx; ++x) {
      const double across = (static_cast<double>(x) + 0.5) / static_cast<double>(nx) - 0.5;
      const double down = (static_cast<double>(z) + 0.5) / static_cast<double>(nz);
      double& velocity = result[z * nx + x];
      for (const Layer& layer : kLayers) {
        if (down >= layer.top + layer.dip * across) velocity = layer.velocity;
      }
      const double lens = std::pow((across - 0.06) / 0.17, 2) + std::pow((down - 0.50) / 0.06, 2);
      if (lens <= 1.0) velocity = 3200.0;
    }
  }
  return result;
}

std::vector<double> smoothed(const std::vector<double>& velocity, std::uint64_t nx,
                             std::uint64_t nz, double radius) {
  const auto reach = static_cast<std::int64_t>(std::ceil(3 * radius));
  std::vector<double> weights;
  for (std::int64_t offset = -reach; offset <= reach; ++offset) {
    weights.push_back(std::exp(-0.5 * std::pow(static_cast<double>(offset) / radius, 2)));
  }
  std::vector<double> slowness(velocity.size()), across(velocity.size());
  for (std::uint64_t i = 0; i < velocity.size(); ++i) slowness[i] = 1.0 / velocity[i];
  // The mean along one direction; what is beyond an edge is as at the edge.
  const auto blur = [&](const std::vector<double>& from, std::vector<double>& to,
                        std::uint64_t stride, std::uint64_t length) {
    for (std::uint64_t i = 0; i < from.size(); ++i) {
      const auto here = static_cast<std::int64_t>(i / stride % length);
      const std::uint64_t start = i - static_cast<std::uint64_t>(here) * stride;
      double sum = 0, weight_sum = 0;
      for (std::int64_t offset = -reach; offset <= reach; ++offset) {
        const double weight = weights[static_cast<std::uint64_t>(offset + reach)];
        const std::int64_t at =
            std::clamp<std::int64_t>(here + offset, 0, static_cast<std::int64_t>(length) - 1);
        sum += weight * from[start + static_cast<std::uint64_t>(at) * stride];
        weight_sum += weight;
      }
      to[i] = sum / weight_sum;
    }
  };
  blur(slowness, across, 1, nx);
  blur(across, slowness, nx, nz);
  std::vector<double> result(velocity.size());
  for (std::uint64_t i = 0; i < velocity.size(); ++i) {
    result[i] = velocity[i] == kWater ? kWater : 1.0 / slowness[i];
  }
  return result;
}

std::vector<double> courant2(const Survey& survey, const std::vector<double>& velocity) {
  const std::uint64_t nx = survey.image_nx, nz = survey.image_nz;
  if (velocity.size() != nx * nz) {
    throw Error(Errc::invalid_argument, concat("adjoint: ", velocity.size(), " velocities for ", nx,
                                               " x ", nz, " cells: give one a cell"));
  }
  // The stencil's largest eigenvalue is 13.01 in two dimensions, and a step must not exceed 4.
  const double limit = std::sqrt(4.0 / 13.01) * survey.scale.spacing / survey.scale.time_step;
  std::vector<double> result(survey.grid.cells, 0.0);
  for (std::uint32_t z = 0; z < survey.grid.nz; ++z) {
    for (std::uint32_t x = 0; x < survey.grid.nx; ++x) {
      const auto clamped = [](std::uint32_t at, std::uint64_t size) {
        return std::min<std::uint64_t>(at > kSponge ? at - kSponge : 0, size - 1);
      };
      const double c = velocity[clamped(z, nz) * nx + clamped(x, nx)];
      if (!(c > 0 && c < limit)) {
        throw Error(Errc::invalid_argument, concat("adjoint: a velocity of ", c,
                                                   " m/s: the scheme takes those below ", limit));
      }
      result[survey.grid.at(x, z)] = std::pow(c * survey.scale.time_step / survey.scale.spacing, 2);
    }
  }
  return result;
}

}  // namespace adjoint

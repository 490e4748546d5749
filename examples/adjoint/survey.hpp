// What is simulated: a grid, a velocity, a source and receivers at the top, all made here from a
// few numbers.
//
// Units: metres, seconds. The velocities are made, layers over a half space and a fast lens, or
// read from a file (velocity_file.hpp). Tested by: wave_test (absorption, arrival), image_test (the
// layers are seen where they are).
#pragma once

#include <cstdint>
#include <vector>

namespace adjoint {

inline constexpr std::uint32_t kRadius = 4;   // of the stencil, in cells
inline constexpr std::uint32_t kSponge = 24;  // cells of damping along each edge

// nx x nz cells, row by row, x in a row and z downwards, within a frame of kRadius cells that are
// zero for ever: so the stencil needs no branch at an edge, and stays symmetric there.
struct Grid {
  std::uint32_t nx = 0;
  std::uint32_t nz = 0;
  std::uint32_t pitch = 0;  // from a row to the next
  std::uint32_t cells = 0;  // with the frame

  std::uint32_t at(std::uint32_t x, std::uint32_t z) const {
    return (z + kRadius) * pitch + x + kRadius;
  }
};
// Throws invalid_argument: no cells, or more than 2^31.
Grid make_grid(std::uint64_t nx, std::uint64_t nz);

inline constexpr std::uint64_t kMinSide = 16;
inline constexpr std::uint64_t kMaxSide = 1u << 14;
inline constexpr std::uint64_t kMaxSteps = 1u << 24;
inline constexpr std::uint64_t kMaxShots = 1u << 16;

// What follows from a cell and the velocities; the defaults are those of layered_velocity().
struct Scale {
  double spacing = 10.0;         // of cells
  double time_step = 0.00125;    // 0.4 cells of the fastest wave, which the scheme is stable for
  double peak_frequency = 15.0;  // of the wavelet: ten cells to a length of the slowest wave
  double usual_velocity = 2500.0;
};
Scale scale_of(const std::vector<double>& velocity, double spacing);

struct Survey {
  std::uint64_t image_nx = 0;  // cells of the image; the sponge is around them
  std::uint64_t image_nz = 0;
  std::uint64_t steps = 0;
  std::uint64_t every = 1;  // steps from one that the image is made of to the next; 0 is the first
  Grid grid;                // with the sponge
  Scale scale;
  std::vector<double> wavelet;           // of `steps`: what the source adds, a Ricker wavelet
  std::vector<double> damping;           // of a cell, per time step
  std::vector<std::uint32_t> sources;    // a cell for each shot
  std::vector<std::uint32_t> receivers;  // cells, each once

  // Steps that the image is made of.
  std::uint64_t imaged() const { return (steps - 1) / every + 1; }
  std::uint64_t shots() const { return sources.size(); }
  // Of a cell of the image, in the grid.
  std::uint32_t image_at(std::uint64_t x, std::uint64_t z) const {
    return grid.at(static_cast<std::uint32_t>(x) + kSponge,
                   static_cast<std::uint32_t>(z) + kSponge);
  }
};

// Sources evenly along the top, a receiver in every column. Throws invalid_argument: a number out
// of the ranges above.
Survey make_survey(std::uint64_t nx, std::uint64_t nz, std::uint64_t steps, std::uint64_t shots,
                   std::uint64_t every = 1, const Scale& scale = {});

// The true velocity of each cell of the image, in metres a second.
std::vector<double> layered_velocity(std::uint64_t nx, std::uint64_t nz);
// What a migration knows of it: the slowness blurred by a Gaussian of `radius` cells, but for water
// at the top, whose velocity is known.
std::vector<double> smoothed(const std::vector<double>& velocity, std::uint64_t nx,
                             std::uint64_t nz, double radius);
// (c dt / dx)^2 for every cell of the grid, as far beyond the image as its edge is; zero in the
// frame. Throws invalid_argument for a velocity that the scheme is not stable for, or that is no
// positive number.
std::vector<double> courant2(const Survey& survey, const std::vector<double>& velocity);

}  // namespace adjoint

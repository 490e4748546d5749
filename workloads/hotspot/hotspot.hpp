// The temperature of a chip, by the model of Rodinia's hotspot, with a checkpoint of the
// temperatures every so many iterations. Source: GPM (ASPLOS '22) section 4.2 and Table 1;
// the model: Huang et al., HotSpot (TVLSI 2006).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/stream.hpp"
#include "workload/workload.hpp"

namespace hotspot {

inline constexpr std::uint64_t kMinSide = 4;
inline constexpr std::uint64_t kMaxSide = 1u << 16;

workload::Info info();

// Square grids, row by row.
struct Grids {
  std::uint64_t side = 0;
  std::vector<float> temperature;  // kelvins
  std::vector<float> power;        // watts
  std::string name;                // in words
};

// Reads side x side numbers, one a line. Throws damaged: too few, too many, or not numbers.
std::vector<float> read_grid(const std::string& text, const std::string& name, std::uint64_t side);
// The grids that the settings ask for: the user's files, those of the data folder, or generated.
// Throws invalid_argument (a side out of range, one file of two), not_found, damaged.
Grids make_grids(const workload::Settings& settings);

// A chip of 16 mm is cut into so many cells a side at most: were they smaller, Rodinia's time step
// would be too long for the scheme (it diverges from some 1,400 on). Larger grids are of larger
// chips.
inline constexpr std::uint64_t kFinestSide = 1024;

// Of one iteration, for cells of a chip that is cut into side x side.
struct Rates {
  float per_watt;    // kelvins
  float vertical;    // watts per kelvin to the cell above, and below
  float horizontal;  // to the left, and to the right
  float ambient;     // to the surroundings
};
Rates rates(std::uint64_t side);

// Iterates `iterations` times. The result is in `temperature`; `other` is as large. Kernels:
// stream-ordered, device memory.
void iterate(holdfast::Stream& stream, std::uint64_t side, std::uint64_t iterations,
             float* temperature, float* other, const float* power);
// The same with OpenMP, in host memory.
void iterate_on_cpu(int threads, std::uint64_t side, std::uint64_t iterations, float* temperature,
                    float* other, const float* power);

// Compares temperatures after `iterations` with a simulation of the whole grid in double precision,
// by host threads, or, for tests of great chips, of windows at the corners and in the middle alone.
// Empty, or what is wrong. Each iteration may round by as much as tolerance() says.
std::string compare_with_oracle(const Grids& grids, std::uint64_t iterations,
                                const std::vector<float>& temperature, bool in_windows = false);
double tolerance(std::uint64_t iterations);  // kelvins

}  // namespace hotspot

// What the program does: a migration, shot by shot, or the test of its gradient.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "adjoint/misfit.hpp"

namespace adjoint {

struct Options {
  std::uint64_t nx = 120, nz = 120, steps = 1000, shots = 3, every = 1;
  std::string store = "memory";
  std::uint64_t snapshots = 0;                  // 0: the store's own
  std::uint64_t gpu_cache = 0, host_cache = 0;  // MiB; of store history
  std::string folder;                           // of store history
  std::string host_region;                      // of store history
  std::uint64_t points = 50;                    // steps from one that a killed run goes on from
  bool verbose = false;                         // prints those
  bool compress = false;
  std::string velocity;  // a file of the model; empty: layered_velocity()
  double spacing = 0;    // metres, of its cells; 0: 10
  std::string image;     // where to write it; empty: nowhere
  std::string region;    // where a killed run is gone on from; empty: nowhere
  bool check_gradient = false;
};
extern const char* const kUsage;
// Throws invalid_argument.
Options parse(int argc, const char* const* argv);

// Prints a line for each shot as it is done. The exit status: 0, or 1 if a gradient does not hold.
int run(const Options& options, std::ostream& out);

}  // namespace adjoint

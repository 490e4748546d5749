// A velocity model from a file: nz rows of nx numbers, float32 with the least byte first, in metres
// a second, the top row first. examples/adjoint/velocity_model.py writes published ones.
//
// Tested by velocity_test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace adjoint {

// Throws io (it cannot be read), and invalid_argument: it has another size, or a number in it that
// is no velocity, which the message places.
std::vector<double> read_velocity(const std::string& path, std::uint64_t nx, std::uint64_t nz);

}  // namespace adjoint

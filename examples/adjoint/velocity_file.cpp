#include "adjoint/velocity_file.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "adjoint/survey.hpp"
#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;

static_assert(std::endian::native == std::endian::little);

std::vector<double> read_velocity(const std::string& path, std::uint64_t nx, std::uint64_t nz) {
  constexpr double kLeast = 10.0, kMost = 1e5;  // metres a second
  if (nx > kMaxSide || nz > kMaxSide) {
    throw Error(Errc::invalid_argument, concat("adjoint: ", nx, " x ", nz, " cells are too many: ",
                                               "give at most ", kMaxSide, " a side"));
  }
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) {
    throw Error(Errc::io, concat("adjoint: cannot read ", path, ": ", error.message()));
  }
  if (bytes != nx * nz * sizeof(float)) {
    throw Error(Errc::invalid_argument,
                concat("adjoint: ", path, " has ", bytes, " bytes, and ", nx, " x ", nz,
                       " velocities of four bytes are ", nx * nz * sizeof(float),
                       ": give --nx and --nz as it was written with"));
  }
  std::vector<float> values(nx * nz);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(bytes));
  if (!file || file.gcount() != static_cast<std::streamsize>(bytes)) {
    throw Error(Errc::io, concat("adjoint: cannot read ", path, ": ",
                                 errno != 0 ? std::strerror(errno) : "it ended early"));
  }
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    if (values[i] >= kLeast && values[i] <= kMost) continue;
    throw Error(Errc::invalid_argument,
                concat("adjoint: ", path, " has ", values[i], " at x ", i % nx, ", z ", i / nx,
                       ": velocities are in metres a second, ", kLeast, " to ", kMost));
  }
  return {values.begin(), values.end()};
}

}  // namespace adjoint

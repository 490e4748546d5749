#include "adjoint/image.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;

Image migrated(const Survey& survey, const std::vector<double>& correlation,
               const std::vector<double>& illumination) {
  constexpr double kLeast = 1e-3;  // of the strongest illumination, beside each
  const double strongest = *std::max_element(illumination.begin(), illumination.end());
  const auto at = [&](std::uint64_t i) {
    return strongest > 0 ? correlation[i] / (illumination[i] + kLeast * strongest) : 0.0;
  };
  Image image{survey.image_nx, survey.image_nz, {}};
  image.values.reserve(image.nx * image.nz);
  for (std::uint64_t z = 0; z < image.nz; ++z) {
    for (std::uint64_t x = 0; x < image.nx; ++x) {
      const std::uint64_t i = survey.image_at(x, z), pitch = survey.grid.pitch;
      image.values.push_back(4 * at(i) - at(i - 1) - at(i + 1) - at(i - pitch) - at(i + pitch));
    }
  }
  return image;
}

std::string greymap(const Image& image) {
  std::vector<double> sizes;
  sizes.reserve(image.values.size());
  for (const double value : image.values) sizes.push_back(std::abs(value));
  const auto most = sizes.begin() + static_cast<std::ptrdiff_t>((sizes.size() - 1) * 99 / 100);
  std::nth_element(sizes.begin(), most, sizes.end());
  const double white = *most > 0 ? *most : 1.0;
  std::string result = concat("P5\n", image.nx, " ", image.nz, "\n255\n");
  for (const double value : image.values) {
    const double grey = std::round(127.5 + 127.5 * std::clamp(value / white, -1.0, 1.0));
    result += static_cast<char>(static_cast<unsigned char>(grey));
  }
  return result;
}

void write_file(const std::string& path, const std::string& bytes) {
  const std::string other = path + ".new";
  std::ofstream file(other, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file && std::rename(other.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  std::remove(other.c_str());
  throw Error(Errc::io, concat("adjoint: cannot write ", path, ": ", std::strerror(error)));
}

}  // namespace adjoint

// The migrated image, and its file.
//
// Tested by image_test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adjoint/survey.hpp"

namespace adjoint {

struct Image {
  std::uint64_t nx = 0, nz = 0;
  std::vector<double> values;  // row by row
};

// The correlation over the illumination, and of that the negative Laplacian, which takes away what
// is smooth: the waves that went the same way. Both sums are of the whole grid.
Image migrated(const Survey& survey, const std::vector<double>& correlation,
               const std::vector<double>& illumination);

// As a portable greymap (binary, P5): zero is grey, and one value in a hundred is beyond black or
// white.
std::string greymap(const Image& image);
// Whole or not at all. Throws io.
void write_file(const std::string& path, const std::string& bytes);

}  // namespace adjoint

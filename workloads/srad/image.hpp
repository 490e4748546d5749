// Images to be despeckled: read from PGM text, or made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace srad {

inline constexpr std::uint32_t kMostSide = 1u << 20;
inline constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 31;

struct Image {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::uint32_t most = 255;           // what a white pixel has
  std::vector<std::uint16_t> pixels;  // row by row, 0 to `most`
  std::uint64_t size() const { return std::uint64_t{rows} * columns; }
};

// Netpbm's text form, P2, with comments anywhere a number may stand. `name` is for messages. Throws
// Error(damaged) for whatever else the text holds.
Image parse_pgm(std::string_view text, const std::string& name);

// Discs of tissue on a darker ground, under multiplicative noise as in ultrasound. The same image
// for the same numbers. REQUIRES: sides of 1 to kMostSide, at most kMostPixels in all.
Image make_speckled(std::uint32_t rows, std::uint32_t columns, std::uint64_t seed);

// Brightness to what is diffused, exp(pixel / most), from 1 to e.
std::vector<float> intensities(const Image& image);

}  // namespace srad

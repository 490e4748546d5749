#include "srad/image.hpp"

#include <algorithm>
#include <cmath>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace srad {
namespace {

using workload::damaged_input;

// splitmix64's finalizer.
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

Image parse_pgm(std::string_view text, const std::string& name) {
  workload::NumberReader reader(text, name);
  const auto next = [&](std::uint64_t least, std::uint64_t most) {
    reader.skip_lines('#');
    return reader.whole(least, most);
  };
  if (reader.word() != "P2")
    damaged_input(name, "does not begin with P2, as a PGM in text form does");
  Image image;
  image.columns = static_cast<std::uint32_t>(next(1, kMostSide));
  image.rows = static_cast<std::uint32_t>(next(1, kMostSide));
  image.most = static_cast<std::uint32_t>(next(1, 65535));
  // Before memory is set aside for what a header claims: a pixel takes two characters.
  if (image.size() > text.size() / 2 + 1) {
    damaged_input(name, holdfast::detail::concat("its header speaks of ", image.columns, " x ",
                                                 image.rows, " pixels, more than the text holds"));
  }
  image.pixels.resize(image.size());
  for (std::uint16_t& pixel : image.pixels) {
    pixel = static_cast<std::uint16_t>(next(0, image.most));
  }
  reader.skip_lines('#');
  if (!reader.at_end()) {
    damaged_input(name, holdfast::detail::concat("more follows the ", image.size(),
                                                 " pixels of which its header speaks"));
  }
  return image;
}

Image make_speckled(std::uint32_t rows, std::uint32_t columns, std::uint64_t seed) {
  constexpr std::uint64_t kPattern = 64;  // one disc in each square of this side
  const std::uint64_t start = mixed(seed + 0x9e3779b97f4a7c15u);
  Image image;
  image.rows = rows;
  image.columns = columns;
  image.pixels.resize(image.size());
  for (std::uint64_t i = 0; i < image.size(); ++i) {
    const auto y = static_cast<std::int64_t>(i / columns % kPattern) - 44;
    const auto x = static_cast<std::int64_t>(i % columns % kPattern) - 44;
    const std::uint64_t ground = x * x + y * y < 18 * 18 ? 180 : 70;  // the first 32 x 32 are even
    const std::uint64_t noise = 60 + mixed(start + i) % 81;           // percent
    image.pixels[i] =
        static_cast<std::uint16_t>(std::min<std::uint64_t>(255, ground * noise / 100));
  }
  return image;
}

std::vector<float> intensities(const Image& image) {
  // There are few different pixels and many of them.
  std::vector<float> of_pixel(image.most + 1);
  for (std::uint32_t pixel = 0; pixel <= image.most; ++pixel) {
    of_pixel[pixel] = static_cast<float>(std::exp(double(pixel) / image.most));
  }
  std::vector<float> result(image.size());
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = of_pixel[image.pixels[i]];
  return result;
}

}  // namespace srad

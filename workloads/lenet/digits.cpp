#include "lenet/digits.hpp"

#include <algorithm>
#include <cmath>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace lenet {
namespace {

using holdfast::detail::concat;
using workload::damaged_input;

// An idx file: two zero bytes, the element's type, the number of dimensions, each dimension as a
// big-endian word, then the elements.
constexpr std::uint8_t kBytes = 0x08;

std::uint32_t word(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

// The sizes that the header names, checked against the file's length.
std::vector<std::uint32_t> parse_header(const std::string& bytes, const std::string& name,
                                        unsigned dimensions) {
  const std::size_t header = 4 + 4 * std::size_t{dimensions};
  if (bytes.size() < header) {
    damaged_input(name, concat("ends in its header, after ", bytes.size()));
  }
  const std::uint32_t magic = kBytes << 8 | dimensions;
  if (word(bytes, 0) != magic) {
    damaged_input(name, concat("starts with ", word(bytes, 0), ", not ", magic,
                               " (an idx file of bytes with ", dimensions, " dimensions)"));
  }
  std::vector<std::uint32_t> sizes;
  sizes.reserve(dimensions);
  for (unsigned i = 0; i < dimensions; ++i) sizes.push_back(word(bytes, 4 + 4 * std::size_t{i}));
  // Each factor is checked as it comes, so that no product overflows.
  std::uint64_t elements = 1;
  for (const std::uint32_t size : sizes) {
    elements *= size;
    if (size == 0 || elements > bytes.size()) break;
  }
  if (elements != bytes.size() - header) {
    damaged_input(name, concat("its header names ", elements, " or more bytes, and ",
                               bytes.size() - header, " follow"));
  }
  return sizes;
}

struct Point {
  float x, y;
};
struct Stroke {
  Point from, to;
};

// Seven segments and a few slanted ones, in a box of width 1 and height 2.
constexpr Stroke kTop{{0, 0}, {1, 0}}, kMiddle{{0, 1}, {1, 1}}, kBottom{{0, 2}, {1, 2}};
constexpr Stroke kUpperLeft{{0, 0}, {0, 1}}, kUpperRight{{1, 0}, {1, 1}};
constexpr Stroke kLowerLeft{{0, 1}, {0, 2}}, kLowerRight{{1, 1}, {1, 2}};

std::vector<Stroke> strokes(unsigned digit) {
  switch (digit) {
    case 0:
      return {kTop, kBottom, kUpperLeft, kUpperRight, kLowerLeft, kLowerRight};
    case 1:
      return {{{0.2f, 0.5f}, {0.6f, 0}}, {{0.6f, 0}, {0.6f, 2}}};
    case 2:
      return {kTop, kUpperRight, {{1, 1}, {0, 2}}, kBottom};
    case 3:
      return {kTop, kMiddle, kBottom, kUpperRight, kLowerRight};
    case 4:
      return {{{0.3f, 0}, {0, 1}}, kMiddle, {{0.8f, 0.3f}, {0.8f, 2}}};
    case 5:
      return {kTop, kUpperLeft, kMiddle, kLowerRight, kBottom};
    case 6:
      return {{{0.8f, 0}, {0, 1}}, kMiddle, kLowerLeft, kLowerRight, kBottom};
    case 7:
      return {kTop, {{1, 0}, {0.3f, 2}}};
    case 8:
      return {kTop, kMiddle, kBottom, kUpperLeft, kUpperRight, kLowerLeft, kLowerRight};
    default:
      return {kTop, kUpperLeft, kMiddle, kUpperRight, {{1, 1}, {0.5f, 2}}};
  }
}

float distance(const Stroke& stroke, Point point) {
  const float dx = stroke.to.x - stroke.from.x;
  const float dy = stroke.to.y - stroke.from.y;
  const float along =
      ((point.x - stroke.from.x) * dx + (point.y - stroke.from.y) * dy) / (dx * dx + dy * dy);
  const float t = std::clamp(along, 0.0f, 1.0f);
  return std::hypot(point.x - stroke.from.x - t * dx, point.y - stroke.from.y - t * dy);
}

void draw(unsigned digit, Random& random, std::uint8_t* pixels) {
  const float width = random.between(6, 9);
  const float height = random.between(7.5f, 10);  // of half a digit
  const float slant = random.between(-0.25f, 0.25f);
  const float centre_x = random.between(12.5f, 14.5f);
  const float centre_y = random.between(12.5f, 14.5f);
  const float pen = random.between(0.8f, 1.7f);
  std::vector<Stroke> lines = strokes(digit);
  const auto place = [&](Point& point) {
    const float y = (point.y - 1) * height + random.between(-0.7f, 0.7f);
    point.x = centre_x + (point.x - 0.5f) * width - slant * y + random.between(-0.7f, 0.7f);
    point.y = centre_y + y;
  };
  for (Stroke& line : lines) {
    place(line.from);
    place(line.to);
  }
  for (unsigned i = 0; i < kPixels; ++i) {
    const unsigned row = i / kSide;
    const Point point{static_cast<float>(i % kSide), static_cast<float>(row)};
    float nearest = static_cast<float>(kSide);
    for (const Stroke& line : lines) nearest = std::min(nearest, distance(line, point));
    const float ink = std::clamp(pen + 0.5f - nearest, 0.0f, 1.0f);
    pixels[i] = static_cast<std::uint8_t>(ink * 255);
  }
}

}  // namespace

void Digits::shorten(std::uint32_t most) {
  if (count() <= most) return;
  labels.resize(most);
  pixels.resize(std::size_t{most} * kPixels);
  source += concat(", the first ", most);
}

std::vector<float> Digits::normalised() const {
  constexpr float kMean = 0.13f, kDeviation = 0.31f;  // of handwritten digits, white being 1
  std::vector<float> result(pixels.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = (static_cast<float>(pixels[i]) / 255.0f - kMean) / kDeviation;
  }
  return result;
}

Digits parse_idx(const std::string& images, const std::string& images_name,
                 const std::string& labels, const std::string& labels_name) {
  const std::vector<std::uint32_t> sizes = parse_header(images, images_name, 3);
  if (sizes[1] != kSide || sizes[2] != kSide) {
    damaged_input(images_name, concat("its images are ", sizes[1], " x ", sizes[2], ", not ", kSide,
                                      " x ", kSide));
  }
  const std::uint32_t count = parse_header(labels, labels_name, 1)[0];
  if (count != sizes[0]) {
    damaged_input(labels_name, concat("has ", count, " labels for the ", sizes[0], " images of '",
                                      images_name, "'"));
  }
  Digits digits;
  digits.source = concat(count, " handwritten digits of ", images_name);
  digits.handwritten = true;
  digits.pixels.assign(images.end() - static_cast<std::ptrdiff_t>(std::size_t{count} * kPixels),
                       images.end());
  digits.labels.assign(labels.end() - static_cast<std::ptrdiff_t>(count), labels.end());
  for (std::uint32_t i = 0; i < count; ++i) {
    if (digits.labels[i] >= kClasses) {
      damaged_input(labels_name, concat("label ", i, " is ", unsigned{digits.labels[i]}));
    }
  }
  return digits;
}

Digits draw_digits(std::uint32_t count, std::uint64_t seed) {
  Random random(seed ^ 0x646967697473);
  Digits digits;
  digits.source = concat("generated: ", count, " digits drawn from strokes");
  digits.pixels.resize(std::size_t{count} * kPixels);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t digit = random.below(kClasses);
    draw(digit, random, digits.pixels.data() + std::size_t{i} * kPixels);
    digits.labels.push_back(static_cast<std::uint8_t>(digit));
  }
  return digits;
}

// SplitMix64.
std::uint64_t Random::next() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

std::uint32_t Random::below(std::uint32_t bound) {
  return static_cast<std::uint32_t>((next() >> 32) * bound >> 32);
}

float Random::between(float least, float most) {
  return least + (most - least) * (static_cast<float>(next() >> 40) * 0x1p-24f);
}

}  // namespace lenet

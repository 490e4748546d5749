// Handwritten digits: read from idx files, or drawn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lenet/shape.hpp"

namespace lenet {

struct Digits {
  std::string source;                // in words
  bool handwritten = false;          // not drawn
  std::vector<std::uint8_t> pixels;  // kPixels each; 0 is background
  std::vector<std::uint8_t> labels;  // below kClasses

  std::uint32_t count() const { return static_cast<std::uint32_t>(labels.size()); }
  // Keeps the first `most`.
  void shorten(std::uint32_t most);
  // The pixels, shifted and scaled to a mean near 0 and a deviation near 1.
  std::vector<float> normalised() const;
};

// Parses the two files of a set of digits. Throws Error(damaged), naming the file and what is
// wrong: another magic number, size or length, counts that differ, a label above 9.
Digits parse_idx(const std::string& images, const std::string& images_name,
                 const std::string& labels, const std::string& labels_name);

// `count` digits drawn from strokes, each with a position, slant, size and pen of its own. The same
// for the same seed.
Digits draw_digits(std::uint32_t count, std::uint64_t seed);

// A sequence of random numbers: the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // In [0, bound); bound at least 1.
  std::uint32_t below(std::uint32_t bound);
  // In [least, most).
  float between(float least, float most);

 private:
  std::uint64_t state_;
};

}  // namespace lenet

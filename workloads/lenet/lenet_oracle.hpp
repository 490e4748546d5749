// The network once more, serial and in double precision, layer by layer as textbooks have it: what
// kernels and host threads are compared with. Shares the layout of Shape with them and no code.
#pragma once

#include <cstdint>
#include <vector>

#include "lenet/digits.hpp"
#include "lenet/shape.hpp"

namespace lenet::oracle {

// Pixels as Digits::normalised(); labels as Digits.
struct Examples {
  std::vector<float> pixels;
  std::vector<std::uint8_t> labels;
};

// The mean cross entropy over the digits of the list; with `gradient`, its derivative by each
// parameter, too.
double loss(const Shape& shape, const std::vector<double>& parameters, const Examples& examples,
            const std::vector<std::uint32_t>& digits, std::vector<double>* gradient = nullptr);

// What the network takes each digit for.
std::vector<std::uint8_t> classify(const Shape& shape, const std::vector<double>& parameters,
                                   const Examples& examples,
                                   const std::vector<std::uint32_t>& digits);

}  // namespace lenet::oracle

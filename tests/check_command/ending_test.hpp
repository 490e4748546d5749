// A kernel that never ends, and does nothing by which the executor could tell.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

__global__ void spin(std::uint32_t* words);

}  // namespace holdfast::test

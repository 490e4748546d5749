// The check programs that the project ships.
#pragma once

#include <vector>

#include "holdfast/check_command.hpp"

namespace holdfast::check {

// Those of the example, of the layers, and of the workloads by folder.
std::vector<Offer> shipped_programs();

}  // namespace holdfast::check

// Check programs whose sizes are numbers in a range, as those of the project are.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "holdfast/check_command.hpp"

namespace holdfast::check {

// An offer of a program that has those sizes which are not 0 in `usual`. `make` is called with what
// is asked for, and with `usual` for the rest. Sizes that the program does not have are refused,
// and those that are out of range (threads 2 to 1,024, blocks and persists 1 to 64).
Offer sized_offer(const std::string& name, const std::string& summary, const Sizes& usual,
                  std::function<Program(const Sizes& sizes)> make,
                  std::vector<Sizes> mutant_sizes = {});

}  // namespace holdfast::check

// Deposits into accounts, each with an entry in the books, as the crash-state checker takes them.
#pragma once

#include <vector>

#include "holdfast/check_command.hpp"

namespace bank {

std::vector<holdfast::check::Offer> offers();

}  // namespace bank

// The example's programs, as the crash-state checker takes them.
#pragma once

#include <vector>

#include "holdfast/check_command.hpp"

namespace checked_append {

std::vector<holdfast::check::Offer> offers();

}  // namespace checked_append

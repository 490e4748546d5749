// Lines of source, for quoting.
#pragma once

#include <string>

#include "holdfast/check.hpp"

namespace holdfast::check {

// The text of the line, without the blanks around it; empty where the file is not to be had.
std::string source_line(const Place& place);

}  // namespace holdfast::check

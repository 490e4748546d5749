// What the folders of workloads/ have for the checker, as CMake finds them.
#pragma once

#include <vector>

#include "holdfast/check_command.hpp"

namespace holdfast::check {

// By folder. CMake writes its definition.
std::vector<Offer> programs_of_folders();

}  // namespace holdfast::check

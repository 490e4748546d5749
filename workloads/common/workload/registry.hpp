// What the folders of workloads/ define, as CMake finds them.
#pragma once

#include <vector>

#include "workload/workload.hpp"

namespace workload {

// By folder. CMake writes its definition.
std::vector<Info> infos_of_folders();

}  // namespace workload

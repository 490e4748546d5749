// A workload that is listed, and nothing else.
#include "workload/workload.hpp"

namespace added {

std::vector<workload::Info> workloads() {
  return {{.name = "added",
           .summary = "is listed",
           .kind = workload::Info::Class::native,
           .options = {},
           .make = {}}};
}

}  // namespace added

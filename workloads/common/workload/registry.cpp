#include "workload/registry.hpp"

#include <algorithm>
#include <tuple>

namespace workload {

const std::vector<Info>& workloads() {
  static const std::vector<Info> all = [] {
    std::vector<Info> infos = infos_of_folders();
    std::sort(infos.begin(), infos.end(), [](const Info& a, const Info& b) {
      return std::tie(a.table_row, a.name) < std::tie(b.table_row, b.name);
    });
    return infos;
  }();
  return all;
}

const Info& find_workload(const std::string& name) {
  std::string known;
  for (const Info& info : workloads()) {
    if (info.name == name) return info;
    known += (known.empty() ? "" : ", ") + info.name;
  }
  throw holdfast::Error(
      holdfast::Errc::not_found,
      holdfast::detail::concat("there is no workload '", name, "': use one of ", known));
}

}  // namespace workload

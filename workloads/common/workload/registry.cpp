#include "bfs/bfs.hpp"
#include "black_scholes/black_scholes.hpp"
#include "cfd/cfd.hpp"
#include "gpdb/gpdb.hpp"
#include "gpkvs/gpkvs_workload.hpp"
#include "hotspot/hotspot.hpp"
#include "lenet/lenet.hpp"
#include "prefix_sum/prefix_sum_workload.hpp"
#include "srad/srad.hpp"
#include "workload/workload.hpp"

namespace workload {

const std::vector<Info>& workloads() {
  static const std::vector<Info> all = {
      gpkvs::set_info(), gpkvs::mixed_info(), gpdb::insert_info(),   gpdb::update_info(),
      lenet::info(),     cfd::info(),         black_scholes::info(), hotspot::info(),
      bfs::info(),       srad::info(),        prefix_sum::info(),
  };
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

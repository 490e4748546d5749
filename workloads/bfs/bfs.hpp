// Breadth-first search whose costs and search sequence are persistent and which resumes from the
// last level that is whole. Source: GPM (ASPLOS '22) sections 4.3 and 6.1 ("native persistence").
#pragma once

#include <cstdint>
#include <vector>

#include "bfs/graph.hpp"
#include "workload/workload.hpp"

namespace bfs {

workload::Info info();

inline constexpr std::uint32_t kUnreached = UINT32_MAX;

// The oracle: edges from `source` to each node, by a queue. Shares no code with the searches.
std::vector<std::uint32_t> oracle_costs(const Graph& graph, std::uint32_t source);

}  // namespace bfs

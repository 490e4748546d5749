#include <queue>

#include "bfs/bfs.hpp"

namespace bfs {

std::vector<std::uint32_t> oracle_costs(const Graph& graph, std::uint32_t source) {
  std::vector<std::uint32_t> costs(graph.nodes(), kUnreached);
  std::queue<std::uint32_t> open;
  costs[source] = 0;
  open.push(source);
  while (!open.empty()) {
    const std::uint32_t node = open.front();
    open.pop();
    for (std::uint32_t arc = graph.offsets[node]; arc < graph.offsets[node + 1]; ++arc) {
      const std::uint32_t neighbour = graph.targets[arc];
      if (costs[neighbour] != kUnreached) continue;
      costs[neighbour] = costs[node] + 1;
      open.push(neighbour);
    }
  }
  return costs;
}

}  // namespace bfs

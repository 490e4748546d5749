#include "bfs/graph.hpp"

#include <utility>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace bfs {
namespace {

using workload::damaged_input;
using Arc = std::pair<std::uint32_t, std::uint32_t>;

Graph graph_of(std::uint32_t nodes, const std::vector<Arc>& arcs, bool both_ways) {
  Graph graph;
  graph.offsets.assign(std::size_t{nodes} + 1, 0);
  for (const auto& [from, to] : arcs) {
    ++graph.offsets[from + 1];
    if (both_ways) ++graph.offsets[to + 1];
  }
  for (std::uint32_t i = 0; i < nodes; ++i) graph.offsets[i + 1] += graph.offsets[i];
  graph.targets.resize(graph.offsets[nodes]);
  std::vector<std::uint32_t> next(graph.offsets.begin(), graph.offsets.end() - 1);
  for (const auto& [from, to] : arcs) {
    graph.targets[next[from]++] = to;
    if (both_ways) graph.targets[next[to]++] = from;
  }
  return graph;
}

// splitmix64's finalizer.
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

class RoadGrid {
 public:
  RoadGrid(std::uint32_t width, std::uint32_t height, std::uint64_t seed)
      : width_(width), height_(height), seed_(mixed(seed + 0x9e3779b97f4a7c15u)) {}

  // Calls take(neighbour) for each neighbour.
  template <class Take>
  void neighbours(std::uint32_t row, std::uint32_t column, Take take) const {
    const std::uint32_t node = row * width_ + column;
    if (row > 0 && road_down(row - 1, column)) take(node - width_);
    if (column > 0) take(node - 1);
    if (column + 1 < width_) take(node + 1);
    if (row + 1 < height_ && road_down(row, column)) take(node + width_);
  }

 private:
  bool road_down(std::uint32_t row, std::uint32_t column) const {
    if (column == mixed(seed_ + row) % width_) return true;  // so that all is connected
    return mixed(seed_ ^ (std::uint64_t{row} << 32 | column)) % 5 == 0;
  }
  std::uint32_t width_;
  std::uint32_t height_;
  std::uint64_t seed_;
};

}  // namespace

Graph parse_graph(std::string_view text, const std::string& name) {
  workload::NumberReader reader(text, name);
  reader.skip_lines('c');
  if (reader.word() != "p")
    damaged_input(name, "does not begin with a line 'p tw n m' or 'p sp n m'");
  const std::string_view form = reader.word();
  if (form != "tw" && form != "sp")
    damaged_input(name, "is of a form that is neither 'tw' nor 'sp'");
  const bool arcs_given = form == "sp";
  const auto nodes = static_cast<std::uint32_t>(reader.whole(1, kMostNodes));
  const std::uint64_t count = reader.whole(0, UINT32_MAX / 2);
  // Before memory is set aside for what a header claims. The shortest edge is "1 2" and a line end.
  if (count > text.size() / 4 + 1 || nodes > text.size()) {
    damaged_input(name, holdfast::detail::concat("the first line speaks of ", nodes, " nodes and ",
                                                 count, " edges, more than the text holds"));
  }
  std::vector<Arc> arcs;
  arcs.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    reader.skip_lines('c');
    if (arcs_given && reader.word() != "a")
      damaged_input(name, "a line of an arc does not begin with a");
    const auto from = static_cast<std::uint32_t>(reader.whole(1, nodes)) - 1;
    const auto to = static_cast<std::uint32_t>(reader.whole(1, nodes)) - 1;
    if (arcs_given) reader.whole(0, UINT64_MAX);
    arcs.emplace_back(from, to);
  }
  reader.skip_lines('c');
  if (!reader.at_end()) {
    damaged_input(name, holdfast::detail::concat("more follows the ", count,
                                                 " edges of which the first line speaks"));
  }
  return graph_of(nodes, arcs, !arcs_given);
}

Graph make_road_grid(std::uint32_t width, std::uint32_t height, std::uint64_t seed) {
  const RoadGrid grid(width, height, seed);
  Graph graph;
  graph.offsets.reserve(std::size_t{width} * height + 1);
  graph.offsets.push_back(0);
  graph.targets.reserve(std::size_t{width} * height * 5 / 2);
  for (std::uint32_t row = 0; row < height; ++row) {
    for (std::uint32_t column = 0; column < width; ++column) {
      grid.neighbours(row, column, [&](std::uint32_t node) { graph.targets.push_back(node); });
      graph.offsets.push_back(static_cast<std::uint32_t>(graph.targets.size()));
    }
  }
  return graph;
}

}  // namespace bfs

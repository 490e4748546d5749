// Graphs for breadth-first search: read from the DIMACS text form, or made like a road network.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bfs {

inline constexpr std::uint32_t kMostNodes = 1u << 28;

// Compressed sparse rows: the neighbours of node i are targets[offsets[i]] to
// targets[offsets[i + 1] - 1]. Nodes count from 0.
struct Graph {
  std::vector<std::uint32_t> offsets;
  std::vector<std::uint32_t> targets;
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(offsets.size() - 1); }
};

// Lines that start with c are comments; nodes count from 1 in the text. Two forms:
// - "p tw n m", then m lines "a b": edges, to be followed both ways;
// - "p sp n m", then m lines "a from to weight": arcs (9th DIMACS challenge). Weights are ignored.
// `name` is for messages. Throws Error(damaged) for whatever else the text holds.
Graph parse_graph(std::string_view text, const std::string& name);

// A grid of width x height crossings like a road network's: each row is a road, and one crossing
// in five has a road to the row below, at least one in each row (mean degree 2.4; the USA network
// has 2.4, too). Connected. The same graph for the same numbers. REQUIRES: width and height are at
// least 1, and their product at most kMostNodes.
Graph make_road_grid(std::uint32_t width, std::uint32_t height, std::uint64_t seed);

}  // namespace bfs

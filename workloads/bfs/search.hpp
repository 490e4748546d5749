// The search itself: levels that kernels expand, and what is on the medium after each.
#pragma once

#include <cstdint>
#include <vector>

#include "bfs/graph.hpp"
#include "holdfast/stream.hpp"

namespace bfs {

// What is on the medium. Zeroed when new.
//
// Invariant, after any crash: where ends[0] to ends[i] are not zero, elements [0, ends[i]) of the
// sequence hold the source and all nodes up to i edges away, in the order of their cost. What lies
// behind is of a level that was cut off. Costs follow from these.
struct Durable {
  // Volatile: one for each node, zeroed: edges from the source, and 1; 0: not seen.
  std::uint32_t* costs = nullptr;
  std::uint32_t* sequence = nullptr;  // nodes in the order in which the search met them
  std::uint32_t* ends = nullptr;      // ends[i]: nodes up to i edges away; 0: not known yet
};

// How far it is.
struct Reached {
  std::uint32_t levels = 0;  // that are expanded: costs up to this are known
  std::uint32_t begin = 0;   // of the frontier, the nodes `levels` edges away, in the sequence
  std::uint32_t end = 0;
  bool complete() const { return begin == end; }
};

// Reads `ends`, elements [0, most], as far as it is known; empty when new. Throws Error(damaged).
std::vector<std::uint32_t> known_ends(const std::uint32_t* ends, std::uint32_t most,
                                      std::uint32_t nodes);
Reached reached_by(const std::vector<std::uint32_t>& ends);

// Two numbers that are read and changed together, of 32 bits.
using Pair = unsigned long long;

// Of a search by kernels; in device memory, shared by the grid.
struct SearchState {
  Pair found;             // high: blocks at the level's end; low: the sequence's tail
  Pair whole;             // high: levels that are whole; low: their end. What blocks wait for
  std::uint32_t begin;    // of the frontier
  std::uint32_t damaged;  // the sequence holds what is no node
};

// A node and its arcs: what a thread of a level reads at once, a sector. Of more than kArcs of them
// the first is where they are.
struct alignas(32) Node {
  static constexpr std::uint32_t kArcs = 7;
  std::uint32_t count;
  std::uint32_t arcs[kArcs];
};

// When kernels persist what they have found: each level before the next one begins, or what one
// expand() finds at its end.
enum class Persists { never, levels, expansions };

// What a search adds in some levels, in host memory.
struct Gathered {
  const std::uint32_t* nodes = nullptr;  // of the sequence, from its end before them on
  const std::uint32_t* ends = nullptr;   // of each level
  std::uint32_t levels = 0;
};

// A search by kernels. The graph, the frontier and a bit for each node seen are in device memory;
// the medium is written, and read only after a crash.
//
// Thread safety: one thread. The stream and what `durable` names outlive it.
class Search {
 public:
  // `most_levels`: ends has one element more. `threads`: of a block, 32 to 1,024 (tests and the
  // checker may take fewer).
  Search(holdfast::Stream& stream, const Graph& graph, const Durable& durable,
         std::uint32_t most_levels, Persists persists, std::uint32_t threads = 256);

  // Begins at `source`, or goes on from what the medium holds. Makes the volatile state anew, costs
  // among it. Throws Error(damaged): what the medium holds is no
  // search sequence of this graph.
  Reached recover(std::uint32_t source);
  // Expands `levels` levels, fewer where the search ends before. Waits. Where kernels persist, they
  // are durable then.
  Reached expand(std::uint32_t levels);
  const Reached& reached() const { return reached_; }

  // Copies the costs to `to`, in one stream; durable on return where kernels persist.
  void store_costs(std::uint32_t* to);

  // Sets memory aside for expand_gathered().
  void set_up_gathering();
  // As expand(), and returns what that adds, until the next call: one copy, where the levels are
  // not much wider than those of the call before. REQUIRES: set_up_gathering(); kernels that do not
  // persist.
  Gathered expand_gathered(std::uint32_t levels);

 private:
  void read_state();
  void launch_expand(std::uint32_t levels, bool gathers);

  holdfast::Stream& stream_;
  Durable durable_;
  std::uint32_t nodes_;
  std::uint32_t most_levels_;
  Persists persists_;
  std::uint32_t threads_;
  Reached reached_;
  holdfast::DeviceBuffer<Node> graph_;
  holdfast::DeviceBuffer<std::uint32_t> targets_;
  holdfast::DeviceBuffer<std::uint32_t> ends_;   // of a call's levels, where it persists them
  holdfast::DeviceBuffer<std::uint32_t> queue_;  // as the sequence
  holdfast::DeviceBuffer<std::uint32_t> seen_;   // a bit for each node
  holdfast::DeviceBuffer<SearchState> state_;
  // A head, ends of levels, and nodes; may be empty.
  holdfast::DeviceBuffer<std::uint32_t> gathered_;
  holdfast::PinnedBuffer<std::uint32_t> gathered_host_;
  std::uint32_t last_found_ = 0;  // nodes, by the last expand_gathered()
};

// The same by OpenMP threads, on the medium itself, for mode cpu.
class CpuSearch {
 public:
  CpuSearch(const Graph& graph, const Durable& durable, std::uint32_t most_levels,
            unsigned threads);
  Reached recover(std::uint32_t source);
  // Sequence and level end are durable after each level; costs only once flush_costs() returned.
  Reached expand(std::uint32_t levels);
  const Reached& reached() const { return reached_; }

 private:
  std::uint32_t expand_level(std::uint32_t level, std::uint32_t begin, std::uint32_t end);
  bool claim(std::uint32_t node);

  const Graph& graph_;
  Durable durable_;
  std::uint32_t most_levels_;
  int threads_;
  Reached reached_;
  std::vector<std::uint32_t> seen_;
};

}  // namespace bfs

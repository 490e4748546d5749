// The search of mode cpu.
#include <omp.h>

#include <algorithm>
#include <atomic>

#include "bfs/search.hpp"
#include "workload/backing.hpp"

namespace bfs {
namespace {

using u32 = std::uint32_t;
using workload::Backing;

// Frontiers below this are not worth waking threads for.
constexpr u32 kParallelFrontier = 512;

}  // namespace

CpuSearch::CpuSearch(const Graph& graph, const Durable& durable, u32 most_levels, unsigned threads)
    : graph_(graph),
      durable_(durable),
      most_levels_(most_levels),
      threads_(static_cast<int>(threads)),
      seen_(graph.nodes() / 32 + 1) {}

bool CpuSearch::claim(u32 node) {
  std::atomic_ref<u32> word(seen_[node / 32]);
  const u32 bit = 1u << (node % 32);
  if (word.load(std::memory_order_relaxed) & bit) return false;
  return (word.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

Reached CpuSearch::recover(u32 source) {
  if (durable_.ends[0] == 0) {
    durable_.sequence[0] = source;
    Backing::flush(durable_.sequence, sizeof(u32));
    durable_.ends[0] = 1;
    Backing::flush(durable_.ends, sizeof(u32));
  }
  const std::vector<u32> ends = known_ends(durable_.ends, most_levels_, graph_.nodes());
  std::fill(seen_.begin(), seen_.end(), 0u);
  for (u32 level = 0, i = 0; level < ends.size(); ++level) {
    for (; i < ends[level]; ++i) {
      const u32 node = durable_.sequence[i];
      if (node >= graph_.nodes() || !claim(node)) {
        throw holdfast::Error(holdfast::Errc::damaged,
                              "the search on the medium names a node twice, or one that is not "
                              "there: it is of another graph, or damaged; remove the region");
      }
      durable_.costs[node] = level + 1;
    }
  }
  reached_ = reached_by(ends);
  return reached_;
}

Reached CpuSearch::expand(u32 levels) {
  levels = std::min(levels, most_levels_ - reached_.levels);
  for (; levels > 0 && !reached_.complete(); --levels) {
    const u32 tail = expand_level(reached_.levels, reached_.begin, reached_.end);
    u32& end = durable_.ends[reached_.levels + 1];
    end = tail;
    Backing::flush(&end, sizeof(end));
    reached_ = {reached_.levels + 1, reached_.end, tail};
  }
  return reached_;
}

// Each thread expands a part of the frontier and then stores what it found as one run of the
// sequence, durable when all have returned. Returns the sequence's new end.
u32 CpuSearch::expand_level(u32 level, u32 begin, u32 end) {
  u32 tail = end;
#pragma omp parallel num_threads(threads_) if (end - begin >= kParallelFrontier)
  {
    std::vector<u32> found;
#pragma omp for schedule(static) nowait
    for (u32 i = begin; i < end; ++i) {
      const u32 node = durable_.sequence[i];
      for (u32 arc = graph_.offsets[node]; arc < graph_.offsets[node + 1]; ++arc) {
        const u32 neighbour = graph_.targets[arc];
        if (!claim(neighbour)) continue;
        durable_.costs[neighbour] = level + 2;
        found.push_back(neighbour);
      }
    }
    const auto count = static_cast<u32>(found.size());
    u32 first = 0;
#pragma omp atomic capture
    {
      first = tail;
      tail += count;
    }
    std::copy(found.begin(), found.end(), durable_.sequence + first);
    if (count != 0) Backing::flush(durable_.sequence + first, count * sizeof(u32));
  }
  return tail;
}

}  // namespace bfs

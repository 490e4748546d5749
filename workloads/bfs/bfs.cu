#include <algorithm>
#include <cstring>
#include <string>

#include "bfs/search.hpp"
#include "holdfast/kernel.hpp"

namespace bfs {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::persist;
using holdfast::detail::concat;
using u32 = std::uint32_t;

// Blocks wait for one another at each level's end, so that all of a grid must be resident: any GPU
// holds this many, and the CPU backend 8.
constexpr u32 kMostBlocks = 64;
constexpr u32 kMostBlocksOnCpu = 4;
constexpr u32 kSetUpThreads = 256;  // of a block

__host__ __device__ constexpr Pair pair_of(u32 high, u32 low) { return Pair{high} << 32 | low; }
__host__ __device__ constexpr u32 high_of(Pair pair) { return static_cast<u32>(pair >> 32); }
__host__ __device__ constexpr u32 low_of(Pair pair) { return static_cast<u32>(pair); }

struct DeviceGraph {
  const Node* nodes;
  const u32* targets;  // of nodes with many arcs

  __device__ const u32* arcs_of(u32 node) const {
    const Node& found = nodes[node];
    return found.count <= Node::kArcs ? found.arcs : targets + found.arcs[0];
  }
};

__global__ void make_nodes(const u32* offsets, const u32* targets, Node* nodes, u32 count) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Node node{offsets[i + 1] - offsets[i], {offsets[i]}};
  if (node.count <= Node::kArcs) {
    for (u32 arc = 0; arc < node.count; ++arc) node.arcs[arc] = targets[offsets[i] + arc];
  }
  nodes[i] = node;
}

// The next level begins with it: it comes from memory while blocks wait for one another.
__device__ void prefetch(const Node* node) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(node));
#else
  (void)node;
#endif
}

struct Working {
  u32* queue;
  u32* seen;
  SearchState* state;
  u32* ends = nullptr;      // of the call's levels, to be persisted behind them; null: with each
  u32* gathered = nullptr;  // the head, which ends of levels and nodes follow; null: nothing is
  u32 levels = 0;           // of the ends that are gathered
  u32 first_level = 0;      // the first of them, or of `ends`
  u32 first_place = 0;      // in the sequence, of the first node
};

// How far the search is, as Reached, before what is gathered.
constexpr u32 kHeadWords = 4;
// Nodes that are copied before it is known how many there are.
constexpr u32 kFewestCopied = 2048;

// Whether this thread is the first to come to the node.
__device__ bool claim(u32* seen, u32 node) {
  const u32 bit = 1u << (node % 32);
  u32* const word = seen + node / 32;
  if (*static_cast<volatile u32*>(word) & bit) return false;  // most arcs lead back
  return (atomicOr(word, bit) & bit) == 0;
}

// Claims the nodes that `count` arcs lead to, 32 at most, and returns for which this thread was the
// first, as bits. Four at a time, so that their loads, and then their updates, are under way
// together: a level of a sparse graph takes as long as a chain of them.
__device__ u32 claim_all(u32* seen, const u32* targets, u32 count) {
  constexpr u32 kAtOnce = 4;
  u32 claimed = 0;
  for (u32 from = 0; from < count; from += kAtOnce) {
    u32 node[kAtOnce];
    u32 word[kAtOnce];
    for (u32 i = 0; i < kAtOnce; ++i) node[i] = targets[min(from + i, count - 1)];
    for (u32 i = 0; i < kAtOnce; ++i) word[i] = static_cast<volatile u32*>(seen)[node[i] / 32];
    for (u32 i = 0; i < kAtOnce; ++i) {
      const u32 bit = 1u << (node[i] % 32);
      const bool may_be_first = from + i < count && (word[i] & bit) == 0;  // most arcs lead back
      word[i] = may_be_first ? atomicOr(seen + node[i] / 32, bit) : bit;
    }
    for (u32 i = 0; i < kAtOnce; ++i) {
      if ((word[i] >> (node[i] % 32) & 1) == 0) claimed |= 1u << (from + i);
    }
  }
  return claimed;
}

// Expands this thread's node, if it has one; all threads of the block call this together. What they
// find goes to one run of the sequence, so that the stores to the medium coalesce: 32 arcs of each
// node at a time.
__device__ void expand_nodes(const DeviceGraph& graph, const Durable& durable, const Working& work,
                             u32 position, u32 end, u32 cost) {
  __shared__ u32 found;
  __shared__ u32 first;
  const u32* arc = nullptr;
  u32 left = 0;
  if (position < end) {
    const u32 node = work.queue[position];
    arc = graph.arcs_of(node);
    left = graph.nodes[node].count;
  }
  do {
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    const u32 arcs = min(left, 32u);
    u32 claimed = claim_all(work.seen, arc, arcs);
    const u32 place = claimed ? atomicAdd(&found, static_cast<u32>(__popc(claimed))) : 0;
    __syncthreads();
    if (threadIdx.x == 0 && found != 0) first = low_of(atomicAdd(&work.state->found, Pair{found}));
    __syncthreads();
    u32 slot = first + place;
    for (; claimed != 0; claimed &= claimed - 1, ++slot) {
      const u32 node = arc[__ffs(static_cast<int>(claimed)) - 1];
      prefetch(graph.nodes + node);
      work.queue[slot] = node;
      durable.sequence[slot] = node;
      durable.costs[node] = cost + 1;
      if (work.gathered != nullptr) {
        work.gathered[kHeadWords + work.levels + slot - work.first_place] = node;
      }
    }
    arc += arcs;
    left -= arcs;
  } while (__syncthreads_or(left != 0));
}

// One thread of the block that comes last: the level is whole, which it says to the others, and on
// the medium. REQUIRES: what all blocks found is durable, where each level is persisted; and the
// caller persists before it arrives again. An end without those before it would count a level that
// is found again, and may then be in another order.
__device__ void end_level(const Durable& durable, const Working& work, u32 level, u32 begin,
                          u32 tail) {
  SearchState* const state = work.state;
  *static_cast<volatile Pair*>(&state->found) = pair_of(0, tail);
  __threadfence();  // what all blocks did comes before what the others wait for
  *static_cast<volatile Pair*>(&state->whole) = pair_of(level + 1, tail);
  state->begin = begin;
  if (work.gathered != nullptr) {
    work.gathered[0] = level + 1;
    work.gathered[1] = begin;
    work.gathered[2] = tail;
    work.gathered[kHeadWords + level - work.first_level] = tail;
  }
  (work.ends != nullptr ? work.ends[level - work.first_level] : durable.ends[level + 1]) = tail;
}

// One thread of each block: returns where the level ends, once all blocks are there; 0 where nobody
// asks for it, since it is the last one (`is_last`).
__device__ u32 wait_for_level(const Durable& durable, const Working& work, u32 level, u32 begin,
                              bool is_last) {
  __threadfence();  // what all threads of the block did comes before its arrival
  const Pair found = atomicAdd(&work.state->found, pair_of(1, 0));
  Pair whole = pair_of(level + 1, low_of(found));
  if (high_of(found) == gridDim.x - 1) {
    end_level(durable, work, level, begin, low_of(found));
  } else if (is_last) {
    return 0;
  } else {
    // No atomic: one that adds 0 is still a write, which races with who reads its first level.
    const volatile Pair* const waited_for = &work.state->whole;
    while (high_of(whole = *waited_for) <= level) __nanosleep(20);
  }
  __threadfence();
  return low_of(whole);
}

// Expands up to `levels` levels in one launch. A grid-wide barrier ends each.
__global__ void expand_levels(DeviceGraph graph, Durable durable, Working work, u32 levels,
                              Persists persists) {
  __shared__ u32 next_end;
  // Nobody moves them before this block has arrived.
  const Pair whole = work.state->whole;
  u32 begin = work.state->begin;
  u32 end = low_of(whole);
  if (threadIdx.x == 0) next_end = end;  // not what another launch has left, in a changed program
  const u32 last_level = high_of(whole) + levels - 1;
  const u32 grid = gridDim.x * blockDim.x;
  for (u32 level = high_of(whole); level <= last_level && begin != end; ++level) {
    for (u32 tile = begin + blockIdx.x * blockDim.x; tile < end; tile += grid) {
      expand_nodes(graph, durable, work, tile + threadIdx.x, end, level + 1);
    }
    // Nodes, before whoever counts them; and the end of the level before.
    if (persists == Persists::levels) persist();
    __syncthreads();
    if (threadIdx.x == 0) {
      next_end = wait_for_level(durable, work, level, end, level == last_level);
    }
    __syncthreads();
    begin = end;
    end = next_end;
  }
  if (persists != Persists::never) persist();  // the last end, or all nodes
}

// Behind levels that are durable: their ends. One block.
__global__ void persist_ends(Durable durable, Working work) {
  const u32 levels = high_of(work.state->whole) - work.first_level;
  for (u32 i = threadIdx.x; i < levels; i += blockDim.x) {
    durable.ends[work.first_level + 1 + i] = work.ends[i];
  }
  persist();
}

// Those that a crash left without others before them.
__global__ void forget_ends(Durable durable, u32 from, u32 most) {
  for (u32 i = from + threadIdx.x; i <= most; i += blockDim.x) durable.ends[i] = 0;
  persist();
}

__global__ void begin_search(Durable durable, u32 source, bool persists) {
  durable.sequence[0] = source;
  if (persists) persist();
  durable.ends[0] = 1;
  if (persists) persist();
}

// The cost of the node at `position` of the sequence: the first of the ends that is behind it.
__device__ u32 cost_at(const u32* ends, u32 levels, u32 position) {
  u32 low = 0;
  u32 high = levels;
  while (low < high) {
    const u32 middle = (low + high) / 2;
    if (ends[middle] > position) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Makes the volatile state from the sequence.
__global__ void load_search(Durable durable, Working work, const u32* ends, u32 levels, u32 nodes) {
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < ends[levels];
       i += gridDim.x * blockDim.x) {
    const u32 node = durable.sequence[i];
    if (node >= nodes || !claim(work.seen, node)) {
      work.state->damaged = 1;
      continue;
    }
    work.queue[i] = node;
    durable.costs[node] = cost_at(ends, levels, i) + 1;
  }
}

// Four costs: what a thread stores at once.
struct alignas(16) Quad {
  u32 costs[4];
};

__global__ void copy_costs(const u32* from, u32* to, u32 nodes, bool persists) {
  const u32 threads = gridDim.x * blockDim.x;
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 quads = nodes / 4;
  for (u32 i = thread; i < quads; i += threads) {
    reinterpret_cast<Quad*>(to)[i] = reinterpret_cast<const Quad*>(from)[i];
  }
  for (u32 i = quads * 4 + thread; i < nodes; i += threads) to[i] = from[i];
  if (persists) persist();
}

bool on_cpu() { return std::strcmp(holdfast::backend::name(), "cpu") == 0; }

[[noreturn]] void refuse_medium(const std::string& what) {
  throw Error(Errc::damaged, concat("the search on the medium: ", what,
                                    "; it is of another graph, or damaged: remove the region"));
}

}  // namespace

std::vector<u32> known_ends(const u32* ends, u32 most, u32 nodes) {
  std::vector<u32> known;
  for (u32 i = 0; i <= most && ends[i] != 0; ++i) {
    const bool fits = i == 0 ? ends[i] == 1 : ends[i] >= known.back() && ends[i] <= nodes;
    if (!fits) refuse_medium(concat("level ", i, " ends at ", ends[i], " of ", nodes, " nodes"));
    known.push_back(ends[i]);
  }
  return known;
}

Reached reached_by(const std::vector<u32>& ends) {
  const std::size_t count = ends.size();
  Reached reached;
  if (count == 0) return reached;
  reached.levels = static_cast<u32>(count - 1);
  reached.begin = count > 1 ? ends[count - 2] : 0;
  reached.end = ends[count - 1];
  return reached;
}

Search::Search(holdfast::Stream& stream, const Graph& graph, const Durable& durable,
               u32 most_levels, Persists persists, u32 threads)
    : stream_(stream),
      durable_(durable),
      nodes_(graph.nodes()),
      most_levels_(most_levels),
      persists_(persists),
      threads_(threads),
      graph_(nodes_),
      targets_(graph.targets.size()),
      ends_(persists == Persists::expansions ? most_levels : 0),
      queue_(nodes_),
      seen_(nodes_ / 32 + 1),
      state_(1) {
  const holdfast::DeviceBuffer<u32> offsets(graph.offsets.size());
  holdfast::copy_async(stream_, offsets.data(), graph.offsets.data(), offsets.bytes());
  if (targets_.size() != 0) {
    holdfast::copy_async(stream_, targets_.data(), graph.targets.data(), targets_.bytes());
  }
  holdfast::launch(stream_, dim3(holdfast::blocks_for(nodes_, kSetUpThreads)), dim3(kSetUpThreads),
                   make_nodes, offsets.data(), targets_.data(), graph_.data(), nodes_);
  stream_.synchronize();
}

Reached Search::recover(u32 source) {
  std::vector<u32> stored(std::size_t{most_levels_} + 1);
  const auto read_ends = [&] {
    holdfast::copy_async(stream_, stored.data(), durable_.ends, stored.size() * sizeof(u32));
    stream_.synchronize();
    return known_ends(stored.data(), most_levels_, nodes_);
  };
  std::vector<u32> ends = read_ends();
  if (ends.empty()) {
    holdfast::launch(stream_, dim3(1), dim3(1), begin_search, durable_, source,
                     persists_ != Persists::never);
    ends = read_ends();
  }
  if (persists_ == Persists::expansions) {
    holdfast::launch(stream_, dim3(1), dim3(std::min(threads_, kSetUpThreads)), forget_ends,
                     durable_, static_cast<u32>(ends.size()), most_levels_);
  }
  reached_ = reached_by(ends);
  const SearchState state{pair_of(0, reached_.end), pair_of(reached_.levels, reached_.end),
                          reached_.begin, 0};
  holdfast::fill_async(stream_, seen_.data(), 0, seen_.bytes());
  holdfast::copy_async(stream_, state_.data(), &state, sizeof(state));
  const holdfast::DeviceBuffer<u32> device_ends(ends.size());
  holdfast::copy_async(stream_, device_ends.data(), ends.data(), device_ends.bytes());
  const u32 blocks = std::min(holdfast::blocks_for(reached_.end, threads_), 1024u);
  holdfast::launch(stream_, dim3(blocks), dim3(threads_), load_search, durable_,
                   Working{queue_.data(), seen_.data(), state_.data()}, device_ends.data(),
                   reached_.levels, nodes_);
  read_state();
  return reached_;
}

Reached Search::expand(u32 levels) {
  levels = std::min(levels, most_levels_ - reached_.levels);
  if (levels == 0 || reached_.complete()) return reached_;
  launch_expand(levels, false);
  read_state();
  return reached_;
}

void Search::launch_expand(u32 levels, bool gathers) {
  const u32 frontier = reached_.end - reached_.begin;
  const u32 blocks =
      std::min(holdfast::blocks_for(frontier, threads_), on_cpu() ? kMostBlocksOnCpu : kMostBlocks);
  Working work{queue_.data(), seen_.data(), state_.data(), ends_.data()};
  work.first_level = reached_.levels;
  if (gathers) {
    work.gathered = gathered_.data();
    work.levels = levels;
    work.first_place = reached_.end;
  }
  holdfast::launch(stream_, dim3(blocks), dim3(threads_), expand_levels,
                   DeviceGraph{graph_.data(), targets_.data()}, durable_, work, levels, persists_);
  if (persists_ != Persists::expansions) return;
  holdfast::launch(stream_, dim3(1), dim3(std::min(threads_, kSetUpThreads)), persist_ends,
                   durable_, work);
}

void Search::store_costs(u32* to) {
  const u32 blocks = std::min(holdfast::blocks_for(nodes_, 4 * threads_), 1024u);
  holdfast::launch(stream_, dim3(blocks), dim3(threads_), copy_costs, durable_.costs, to, nodes_,
                   persists_ != Persists::never);
  stream_.synchronize();
}

void Search::set_up_gathering() {
  gathered_ =
      holdfast::DeviceBuffer<u32>(kHeadWords + std::size_t{most_levels_} + std::size_t{nodes_});
  gathered_host_ = holdfast::PinnedBuffer<u32>(gathered_.size());
}

Gathered Search::expand_gathered(u32 levels) {
  levels = std::min(levels, most_levels_ - reached_.levels);
  if (levels == 0 || reached_.complete()) return {};
  u32* const here = gathered_host_.data();
  const u32 frontier = reached_.end - reached_.begin;
  const Reached before = reached_;
  launch_expand(levels, true);
  // A frontier is seldom twice as large as the one before it: one copy and one wait.
  const u32 likely = levels == 1 ? 2 * frontier : last_found_ + last_found_ / 4;
  const u32 copied = std::min(std::max(likely, kFewestCopied), nodes_);
  const std::size_t nodes_at = kHeadWords + std::size_t{levels};
  holdfast::copy_async(stream_, here, gathered_.data(), (nodes_at + copied) * sizeof(u32));
  stream_.synchronize();
  reached_ = {here[0], here[1], here[2]};
  last_found_ = reached_.end - before.end;
  if (last_found_ > copied) {
    const std::size_t from = nodes_at + copied;
    holdfast::copy_async(stream_, here + from, gathered_.data() + from,
                         (last_found_ - copied) * sizeof(u32));
    stream_.synchronize();
  }
  return {here + nodes_at, here + kHeadWords, reached_.levels - before.levels};
}

void Search::read_state() {
  SearchState state;
  holdfast::copy_async(stream_, &state, state_.data(), sizeof(state));
  stream_.synchronize();
  if (state.damaged) refuse_medium("its sequence names a node twice, or one that is not there");
  reached_ = {high_of(state.whole), state.begin, low_of(state.whole)};
}

}  // namespace bfs

#include "kv_store/kernels.hpp"

#include <algorithm>

#include "kv_store/impl.hpp"
#include "kv_store/replacement.hpp"

namespace holdfast::kv {
namespace {

// Eight neighbouring threads, one for each way of a bucket.
struct Group {
  unsigned way = threadIdx.x % kWays;
  unsigned mask = 0xffu << (threadIdx.x % 32 / kWays * kWays);

  template <class T>
  __device__ T from(unsigned member, T value) const {
    return __shfl_sync(mask, value, member, kWays);
  }
  // The ways for which `holds` is true, as bits.
  __device__ unsigned ways_where(bool holds) const {
    return __ballot_sync(mask, holds) >> (threadIdx.x % 32 / kWays * kWays) & 0xffu;
  }
};

__device__ unsigned first_of(unsigned ways) { return __ffs(ways) - 1; }

// A way of a bucket while a chain of operations is applied to it in registers.
struct Way {
  std::uint64_t key;
  std::uint32_t written_by = kNone;  // the operation, kNone: none so far
};

struct Tally {
  std::uint32_t inserted = 0;
  std::uint32_t updated = 0;
  std::uint32_t evicted = 0;
  std::uint32_t removed = 0;
};

// Writes one operation's pair into the way that has its key, else an empty one, else the one
// that the key's hash evicts. Of two operations on one key the later in the batch stays.
struct Set {
  static constexpr bool kMixed = false;
  __device__ static void apply(const Group& group, Way& way, std::uint64_t key, std::uint32_t op,
                               Tally& tally) {
    const unsigned same = group.ways_where(way.key == key);
    const unsigned empty = group.ways_where(way.key == 0);
    const unsigned chosen = same    ? first_of(same)
                            : empty ? first_of(empty)
                                    : static_cast<unsigned>(Table::hash(key) % kWays);
    if (group.way != chosen) return;
    if (same && way.written_by != kNone && way.written_by > op) return;
    if (!same && way.written_by != kNone) ++tally.inserted, ++tally.evicted;
    way.key = key;
    way.written_by = op;
  }
  __device__ static void count(std::uint64_t key_before, const Way& way, Tally& tally) {
    if (way.written_by == kNone) return;
    if (key_before == way.key) {
      ++tally.updated;
    } else {
      ++tally.inserted;
      if (key_before != 0) ++tally.evicted;
    }
  }
};

struct Erase {
  static constexpr bool kMixed = false;
  __device__ static void apply(const Group&, Way& way, std::uint64_t key, std::uint32_t op,
                               Tally&) {
    if (way.key != key) return;
    way.key = 0;
    way.written_by = op;
  }
  __device__ static void count(std::uint64_t, const Way& way, Tally& tally) {
    tally.removed += way.written_by != kNone;
  }
};

// Of a mixed batch, in which a chain's links are one for each key (link_at()). All ERASEs come
// first: what they leave is room for what is set.
struct Either {
  static constexpr bool kMixed = true;
  // Beside the number of an operation: it is not the last of its key; it is an ERASE.
  static constexpr std::uint32_t kPassed = 1u << 31;
  static constexpr std::uint32_t kErases = 1u << 30;
  static_assert(kMaxBatch <= kErases);

  struct Erases {
    static constexpr bool kMixed = true;
    __device__ static void apply(const Group& group, Way& way, std::uint64_t key,
                                 std::uint32_t link, Tally& tally) {
      if ((link & (kPassed | kErases)) != kErases) return;
      tally.removed += way.key == key;
      Erase::apply(group, way, key, link & ~kErases, tally);
    }
  };
  struct Sets {
    static constexpr bool kMixed = true;
    __device__ static void apply(const Group& group, Way& way, std::uint64_t key,
                                 std::uint32_t link, Tally& tally) {
      if ((link & (kPassed | kErases)) != 0) return;
      const Way held = way;
      Tally counted_here;  // which Set leaves in part to count()
      Set::apply(group, way, key, link, counted_here);
      if (way.written_by == held.written_by) return;
      if (held.key == key) {
        ++tally.updated;
      } else {
        ++tally.inserted;
        tally.evicted += held.key != 0;
      }
    }
  };
  __device__ static void count(std::uint64_t, const Way&, Tally&) {}
};

// A link of a chain.
struct Link {
  std::uint32_t op = 0;   // of a mixed batch with Either's bits
  std::uint64_t key = 0;  // as buckets hold it
};

// `mixed`: of a batch that is.
template <bool mixed>
__device__ Link link_at(const Batch& batch, std::uint32_t index) {
  const std::uint32_t op = batch.chain_op[index];
  Link link{op, ~batch.keys[op]};
  if constexpr (mixed) {
    if (batch.erases(op)) link.op |= Either::kErases;
    if (!is_last_claim(batch.claims, batch.claim_of[op], op)) link.op |= Either::kPassed;
  }
  return link;
}

__device__ bool is_link_of(const Batch& batch, std::uint32_t bucket, std::uint32_t index) {
  return index < batch.count && batch.chain_bucket[index] == bucket;
}

__device__ void add_up(const Tally& tally, Outcome* outcome) {
  __shared__ std::uint32_t sums[4];
  if (threadIdx.x < 4) sums[threadIdx.x] = 0;
  __syncthreads();
  if (tally.inserted) atomicAdd(&sums[0], tally.inserted);
  if (tally.updated) atomicAdd(&sums[1], tally.updated);
  if (tally.evicted) atomicAdd(&sums[2], tally.evicted);
  if (tally.removed) atomicAdd(&sums[3], tally.removed);
  __syncthreads();
  unsigned long long* const totals[4] = {&outcome->inserted, &outcome->updated, &outcome->evicted,
                                         &outcome->removed};
  if (threadIdx.x < 4 && sums[threadIdx.x]) {
    atomicAdd(totals[threadIdx.x], static_cast<unsigned long long>(sums[threadIdx.x]));
  }
}

// A chain as the thread that leads it knows it.
struct Chain {
  std::uint32_t bucket = kNone;  // kNone: this thread leads none
  std::uint32_t start = 0;       // index of the first link
  Link first;
  std::uint32_t more = 0;  // whether there is a second

  // Of another thread of the group.
  __device__ Chain of(const Group& group, unsigned member) const {
    return {group.from(member, bucket),
            group.from(member, start),
            {group.from(member, first.op), group.from(member, first.key)},
            group.from(member, more)};
  }
};

template <bool mixed>
__device__ Chain chain_of_thread(const Batch& batch) {
  Chain chain;
  const std::uint32_t position = position_of_thread();
  const std::uint32_t start = position < batch.count ? batch.starts[position] : kNone;
  if (start == kNone) return chain;
  chain.bucket = batch.bucket[position];
  chain.start = start;
  chain.first = link_at<mixed>(batch, start);
  chain.more = is_link_of(batch, chain.bucket, start + 1);
  return chain;
}

// The last of the links from `link` on that are of one key, one behind the other: what those before
// it store does not stay.
__device__ std::uint32_t last_of_its_key(const Batch& batch, std::uint32_t link) {
  if (link >= batch.count) return link;
  for (std::uint32_t next; (next = batch.skips[link]) != link;) link = next;
  return link;
}

// Applies a chain's links to the way that this thread holds, in turn, but for those that one of the
// same key follows at once: of a key that is in most of a batch there are thousands. Each thread of
// the group fetches one of the next eight.
template <class Operation>
__device__ void apply_links(const Group& group, const Batch& batch, const Chain& chain, Way& way,
                            Tally& tally) {
  Operation::apply(group, way, chain.first.key, chain.first.op, tally);
  std::uint32_t next = chain.start + 1;
  for (bool more = chain.more; more;) {
    next = last_of_its_key(batch, next);
    const std::uint32_t index = next + group.way;
    const bool mine = is_link_of(batch, chain.bucket, index);
    const Link link = mine ? link_at<Operation::kMixed>(batch, index) : Link{};
    const unsigned links = __popc(group.ways_where(mine));
    for (unsigned i = 0; i < links; ++i) {
      Operation::apply(group, way, group.from(i, link.key), group.from(i, link.op), tally);
    }
    next += links;
    more = links == kWays;
  }
}

// Applies a chain to a bucket whose ways the group holds. The ways that are to change, never more
// than there are links, go to the positions of the first links.
template <class Operation>
__device__ void apply_chain(const Group& group, const Batch& batch, const Chain& chain,
                            const Pair& before, Tally& tally) {
  Way way{before.key};
  if constexpr (Operation::kMixed) {
    apply_links<Either::Erases>(group, batch, chain, way, tally);
    apply_links<Either::Sets>(group, batch, chain, way, tally);
  } else {
    apply_links<Operation>(group, batch, chain, way, tally);
  }
  Operation::count(before.key, way, tally);

  const bool changes = way.written_by != kNone;
  const unsigned changed = group.ways_where(changes);
  if (!changes) return;
  const unsigned rank = __popc(changed & ((1u << group.way) - 1));
  const unsigned in_line = changed >> (group.way / kLineCells * kLineCells) & 0xfu;
  batch.changes[batch.position_of(chain.start + rank)] =
      Change{chain.bucket, group.way, way.written_by, __popc(in_line) == 1, before};
}

// Groups of eight threads pick the way for each of their eight operations in turn. What they need
// of memory is asked for before the first is looked at: each is a trip, and of the buckets one to
// the host's memory where there is no copy of the table.
template <class Operation>
__global__ void choose_changes(Table kvs, Batch batch, Outcome* outcome) {
  if (outcome->reserved_keys != 0) return;
  const Group group;
  const Chain mine = chain_of_thread<Operation::kMixed>(batch);
  Pair pairs[kWays];
#pragma unroll
  for (unsigned member = 0; member < kWays; ++member) {
    const std::uint32_t bucket = group.from(member, mine.bucket);
    if (bucket != kNone) pairs[member] = kvs.readable()[bucket].ways[group.way];
  }
  Tally tally;
#pragma unroll
  for (unsigned member = 0; member < kWays; ++member) {
    const Chain chain = mine.of(group, member);
    if (chain.bucket == kNone) continue;
    apply_chain<Operation>(group, batch, chain, pairs[member], tally);
  }
  add_up(tally, outcome);
}

// Logs what each change overwrites, then stores in place, then persists. Both waits are needed: the
// log's before anything is overwritten, the other before the transaction commits. A kernel of its
// own: beside stores that wait for the link, reads would wait for them (docs/results.md).
template <class Log>
__global__ void log_and_store(Table kvs, Log log, Batch batch, const Outcome* outcome) {
  Replacement mine = replacement_of_thread(batch, outcome);
  if (mine.needed) {
    const Change& change = mine.change;
    const LogEntry entry{change.bucket, change.way, change.before.key, change.before.value};
    mine.needed = log.insert(entry, log.slot_for(position_of_thread())) == LogStatus::ok;
  }
  const bool stored = store_in_table(kvs, mine);
  if (mine.needed) kvs.marks.mark(kvs.place_of(mine.change), sizeof(Pair));
  if (stored) persist();
  if (mine.needed) store_in_copy(kvs, mine);
}

// A thread has a way of some of the buckets: whole lines are stored, empty ways too.
__global__ void spread(Table from, Table to, std::uint32_t* strays) {
  const std::uint64_t ways = (to.mask + 1) * kWays;
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = position_of_thread(); i < ways; i += step) {
    const std::uint64_t bucket = i / kWays;
    const auto way = static_cast<unsigned>(i % kWays);
    Pair pair = from.readable()[bucket & from.mask].ways[way];
    if (pair.key != 0 && bucket <= from.mask && from.bucket_of(~pair.key) != bucket) {
      atomicAdd(strays, 1u);
    }
    if (pair.key == 0 || to.bucket_of(~pair.key) != bucket) pair = {0, 0};
    detail::kv_store_pair(&to.buckets[bucket].ways[way], pair);
    if (to.copy != nullptr) detail::kv_store_pair(&to.copy[bucket].ways[way], pair);
    if (way == 0) to.marks.mark(&to.buckets[bucket], sizeof(Bucket));
  }
  persist();
}

}  // namespace

void launch_choose(Stream& stream, const Table& kvs, const Batch& batch, Outcome* outcome) {
  const auto kernel = batch.mixed()    ? choose_changes<Either>
                      : batch.erases() ? choose_changes<Erase>
                                       : choose_changes<Set>;
  launch(stream, blocks_for(batch.count, kBlock), kBlock, kernel, kvs, batch, outcome);
}

void launch_store(Stream& stream, const Table& kvs, const UndoLog& log, const Batch& batch,
                  const Outcome* outcome) {
  log.visit([&](auto view) {
    launch(stream, blocks_for(batch.count, kBlock), kBlock, log_and_store<decltype(view)>, kvs,
           view, batch, outcome);
  });
}

void launch_spread(Stream& stream, const Table& from, const Table& to, std::uint32_t* strays) {
  // A thread's stores wait for their durability together, at its end.
  constexpr unsigned kMostBlocks = 2048;
  const std::uint64_t ways = (to.mask + 1) * kWays;
  launch(stream, std::min(blocks_for(ways, kBlock), kMostBlocks), kBlock, spread, from, to, strays);
}

__global__ void get_from_kvs(Table kvs, Batch batch, std::uint64_t* values, std::uint8_t* found) {
  const std::uint32_t position = position_of_thread();
  const bool asks = position < batch.count;
  const std::uint32_t op = asks ? batch.op[position] : 0;
  const std::uint64_t key = asks ? batch.keys[op] : kReservedKey;
  std::uint64_t value = 0;
  const bool there =
      detail::kv_find_in_buckets_by_warp<detail::KvLoads::plain>(kvs.view(), key, &value);
  if (!asks) return;
  values[op] = value;
  found[op] = there;
}

__global__ void count_batch(Counters* counters, ConventionalLogRef log, PageMarks marks,
                            const Outcome* outcome) {
  if (outcome->reserved_keys != 0) return;
  const Counters before = *counters;
  if (log.insert(before) != LogStatus::ok) return;
  counters->records = before.records + outcome->inserted - outcome->evicted - outcome->removed;
  counters->batches = before.batches + 1;
  counters->inserted = before.inserted + outcome->inserted;
  counters->updated = before.updated + outcome->updated;
  counters->evicted = before.evicted + outcome->evicted;
  counters->removed = before.removed + outcome->removed;
  marks.mark(counters, sizeof(Counters));
  persist();
}

}  // namespace holdfast::kv

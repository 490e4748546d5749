#include "gpkvs/kernels.hpp"

namespace gpkvs {
namespace {

using holdfast::LogStatus;
using holdfast::persist;

// Eight neighbouring threads, one for each way of a bucket.
struct Group {
  unsigned way = threadIdx.x % kWays;
  unsigned mask = 0xffu << (threadIdx.x % 32 / kWays * kWays);

  template <class T>
  __device__ T from(unsigned member, T value) const {
    return __shfl_sync(mask, value, member, kWays);
  }
  __device__ Pair from(unsigned member, Pair pair) const {
    return {from(member, pair.key), from(member, pair.value)};
  }
  // The ways for which `holds` is true, as bits.
  __device__ unsigned ways_where(bool holds) const {
    return __ballot_sync(mask, holds) >> (threadIdx.x % 32 / kWays * kWays) & 0xffu;
  }
};

__device__ unsigned first_of(unsigned ways) { return __ffs(ways) - 1; }
__device__ bool operator==(const Pair& a, const Pair& b) {
  return a.key == b.key && a.value == b.value;
}

// A way of a bucket while a chain of operations is applied to it in registers.
struct Way {
  Pair now;
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
  __device__ static void apply(const Group& group, Way& way, const Batch& batch, std::uint32_t op,
                               Tally& tally) {
    const Pair pair{~batch.keys[op], batch.values[op]};
    const unsigned same = group.ways_where(way.now.key == pair.key);
    const unsigned empty = group.ways_where(way.now.key == 0);
    const unsigned chosen = same    ? first_of(same)
                            : empty ? first_of(empty)
                                    : static_cast<unsigned>(Table::hash(pair.key) % kWays);
    if (group.way != chosen) return;
    if (same && way.written_by != kNone && way.written_by > op) return;
    if (!same && way.written_by != kNone) ++tally.inserted, ++tally.evicted;
    way.now = pair;
    way.written_by = op;
  }
};

struct Erase {
  __device__ static void apply(const Group&, Way& way, const Batch& batch, std::uint32_t op,
                               Tally&) {
    if (way.now.key != ~batch.keys[op]) return;
    way.now = Pair{0, 0};
    way.written_by = op;
  }
};

__device__ void count_way(const Pair& before, const Way& way, Tally& tally) {
  if (way.written_by == kNone) return;
  if (before.key == way.now.key) {
    ++tally.updated;
  } else if (way.now.key == 0) {
    ++tally.removed;
  } else {
    ++tally.inserted;
    if (before.key != 0) ++tally.evicted;
  }
}

// What a thread is to store: one way of one bucket.
struct Change {
  std::uint32_t bucket = kNone;
  std::uint32_t way = 0;
  Pair before;
  Pair after;
};

__device__ Pair* place_of(const Table& kvs, const Change& change) {
  return &kvs.buckets[change.bucket].ways[change.way];
}

// Of a change that is in the table, in the copy that kernels read.
__device__ void store_in_copy(const Table& kvs, const Change& change) {
  if (kvs.copy != nullptr) kvs.copy[change.bucket].ways[change.way] = change.after;
}

// A position's slot is its own in the coalesced log, and a partition that it shares in the other.
__device__ std::uint32_t slot_for(const holdfast::CoalescedLogRef&, std::uint32_t position) {
  return position;
}
__device__ std::uint32_t slot_for(const holdfast::ConventionalLogRef& log, std::uint32_t position) {
  return position % log.slots;
}

// Logs what the change overwrites, then stores in place, then persists. Both waits are needed: the
// log's before anything is overwritten, the other before the transaction commits.
template <class Log>
struct LoggedStore {
  Log log;

  __device__ void operator()(const Table& kvs, const Change& change, std::uint32_t position,
                             Outcome* outcome) const {
    LogEntry entry;
    entry.bucket = change.bucket;
    entry.way = change.way;
    entry.key = change.before.key;
    entry.value = change.before.value;
    if (log.insert(entry, slot_for(log, position)) != LogStatus::ok) {
      atomicAdd(&outcome->log_failures, 1u);
      return;
    }
    Pair* const place = place_of(kvs, change);
    *place = change.after;
    kvs.marks.mark(place, sizeof(Pair));
    persist();
    store_in_copy(kvs, change);
  }
};

// For tables that the CPU makes durable behind the kernel.
struct PlainStore {
  __device__ void operator()(const Table& kvs, const Change& change, std::uint32_t,
                             Outcome*) const {
    *place_of(kvs, change) = change.after;
    store_in_copy(kvs, change);
  }
};

__device__ std::uint32_t position_of_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Applies the chain that starts at `lead` to a bucket whose ways the group holds. The leading
// thread gets the first change to store; the rare others are stored here, each in the log slot
// of a further operation of the chain, which no one else uses.
template <class Operation, class Store>
__device__ void apply_chain(const Group& group, const Table& kvs, const Store& store,
                            const Batch& batch, std::uint32_t lead, unsigned member,
                            std::uint32_t bucket, const Pair& before, Change& mine, Tally& tally,
                            Outcome* outcome) {
  Way way{before};
  for (std::uint32_t p = lead; p != kNone; p = batch.next[p]) {
    Operation::apply(group, way, batch, batch.op[p], tally);
  }
  count_way(before, way, tally);

  const unsigned changed = group.ways_where(!(way.now == before));
  if (changed == 0) return;
  const unsigned first = first_of(changed);
  const Pair old_pair = group.from(first, before);
  const Pair new_pair = group.from(first, way.now);
  if (group.way == member) mine = Change{bucket, first, old_pair, new_pair};

  if (group.way != first && (changed >> group.way & 1u)) {
    std::uint32_t slot = lead;
    for (unsigned rank = __popc(changed & ((1u << group.way) - 1)); rank > 0; --rank) {
      slot = batch.next[slot];
    }
    store(kvs, Change{bucket, group.way, before, way.now}, slot, outcome);
  }
}

// Groups of eight threads pick the way for each of their eight operations in turn. All eight
// buckets are asked for before the first is looked at: each is a trip to memory, and to the host's
// where there is no copy of the table.
template <class Operation, class Store>
__device__ Change choose(const Table& kvs, const Store& store, const Batch& batch, Tally& tally,
                         Outcome* outcome) {
  const Group group;
  const std::uint32_t position = position_of_thread();
  const bool leads = position < batch.count && batch.leads[position];
  const std::uint32_t my_bucket = leads ? batch.bucket[position] : kNone;

  Pair pairs[kWays];
#pragma unroll
  for (unsigned member = 0; member < kWays; ++member) {
    const std::uint32_t bucket = group.from(member, my_bucket);
    if (bucket != kNone) pairs[member] = kvs.readable()[bucket].ways[group.way];
  }
  Change mine;
#pragma unroll
  for (unsigned member = 0; member < kWays; ++member) {
    const std::uint32_t bucket = group.from(member, my_bucket);
    if (bucket == kNone) continue;
    const std::uint32_t lead = position - group.way + member;
    apply_chain<Operation>(group, kvs, store, batch, lead, member, bucket, pairs[member], mine,
                           tally, outcome);
  }
  return mine;
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

template <class Operation, class Store>
__device__ void update(const Table& kvs, const Store& store, const Batch& batch, Outcome* outcome) {
  if (outcome->reserved_keys != 0) return;
  Tally tally;
  const Change change = choose<Operation>(kvs, store, batch, tally, outcome);
  if (change.bucket != kNone) store(kvs, change, position_of_thread(), outcome);
  add_up(tally, outcome);
}

// Launched with a whole number of warps. Four blocks a multiprocessor: with less in flight the
// trips to the host show (docs/results.md).
template <class Log>
__global__ void __launch_bounds__(kBlock, 4)
    insert_into_kvs(Table kvs, Log log, Batch batch, Outcome* outcome) {
  update<Set>(kvs, LoggedStore<Log>{log}, batch, outcome);
}

template <class Log>
__global__ void __launch_bounds__(kBlock, 4)
    erase_from_kvs(Table kvs, Log log, Batch batch, Outcome* outcome) {
  update<Erase>(kvs, LoggedStore<Log>{log}, batch, outcome);
}

// A thread for each slot of the log.
template <class Log>
__global__ void recover(Table kvs, Log log, Outcome* outcome) {
  const std::uint32_t slot = position_of_thread();
  LogEntry entry;
  while (log.read_bytes(&entry, sizeof(entry), slot) == LogStatus::ok) {
    if (entry.bucket > kvs.mask || entry.way >= kWays) {
      atomicAdd(&outcome->bad_entries, 1u);
      return;
    }
    Pair* const place = &kvs.buckets[entry.bucket].ways[entry.way];
    *place = Pair{entry.key, entry.value};
    kvs.marks.mark(place, sizeof(Pair));
    persist();
    if (log.remove(sizeof(LogEntry), slot) != LogStatus::ok) return;
    atomicAdd(&outcome->undone, 1u);
  }
}

dim3 grid_for(std::uint32_t threads) { return dim3((threads + kBlock - 1) / kBlock); }

// Calls body(view) with the view of the log's layout.
template <class Body>
void with_view(const holdfast::UndoLog& log, Body&& body) {
  if (log.shape().layout == holdfast::LogLayout::coalesced) {
    body(log.coalesced());
  } else {
    body(log.conventional());
  }
}

}  // namespace

void launch_insert(holdfast::Stream& stream, const Table& kvs, const holdfast::UndoLog& log,
                   const Batch& batch, Outcome* outcome) {
  with_view(log, [&](auto view) {
    holdfast::launch(stream, grid_for(batch.count), dim3(kBlock), insert_into_kvs<decltype(view)>,
                     kvs, view, batch, outcome);
  });
}

void launch_erase(holdfast::Stream& stream, const Table& kvs, const holdfast::UndoLog& log,
                  const Batch& batch, Outcome* outcome) {
  with_view(log, [&](auto view) {
    holdfast::launch(stream, grid_for(batch.count), dim3(kBlock), erase_from_kvs<decltype(view)>,
                     kvs, view, batch, outcome);
  });
}

void launch_recover(holdfast::Stream& stream, const Table& kvs, const holdfast::UndoLog& log,
                    Outcome* outcome) {
  with_view(log, [&](auto view) {
    holdfast::launch(stream, grid_for(log.shape().slots), dim3(kBlock), recover<decltype(view)>,
                     kvs, view, outcome);
  });
}

__global__ void __launch_bounds__(kBlock, 4)
    store_into_kvs(Table kvs, Batch batch, Outcome* outcome) {
  update<Set>(kvs, PlainStore{}, batch, outcome);
}

__global__ void get_from_kvs(Table kvs, Batch batch, std::uint64_t* values, std::uint8_t* found) {
  const Group group;
  const std::uint32_t position = position_of_thread();
  const bool asks = position < batch.count;
  const std::uint32_t op = asks ? batch.op[position] : 0;
  const std::uint32_t my_bucket = asks ? batch.bucket[position] : kNone;
  const std::uint64_t my_key = asks ? ~batch.keys[op] : 0;

  Pair pairs[kWays];
#pragma unroll
  for (unsigned member = 0; member < kWays; ++member) {
    const std::uint32_t bucket = group.from(member, my_bucket);
    if (bucket != kNone) pairs[member] = kvs.readable()[bucket].ways[group.way];
  }
#pragma unroll
  for (unsigned member = 0; member < kWays; ++member) {
    const std::uint64_t key = group.from(member, my_key);
    if (key == 0) continue;
    const unsigned same = group.ways_where(pairs[member].key == key);
    const std::uint64_t value = group.from(same ? first_of(same) : 0, pairs[member].value);
    if (group.way != member) continue;
    values[op] = same ? value : 0;
    found[op] = same != 0;
  }
  if (asks && my_key == 0) {  // the reserved key is never there
    values[op] = 0;
    found[op] = 0;
  }
}

__global__ void count_batch(Counters* counters, holdfast::ConventionalLogRef log,
                            holdfast::PageMarks marks, Outcome* outcome) {
  if (outcome->reserved_keys != 0) return;
  const Counters before = *counters;
  if (log.insert(before) != LogStatus::ok) {
    outcome->log_failures += 1;
    return;
  }
  counters->records = before.records + outcome->inserted - outcome->evicted - outcome->removed;
  counters->batches = before.batches + 1;
  counters->inserted = before.inserted + outcome->inserted;
  counters->updated = before.updated + outcome->updated;
  counters->evicted = before.evicted + outcome->evicted;
  counters->removed = before.removed + outcome->removed;
  marks.mark(counters, sizeof(Counters));
  persist();
}

__global__ void recover_counters(Counters* counters, holdfast::ConventionalLogRef log,
                                 holdfast::PageMarks marks) {
  Counters before;
  if (log.read(&before) != LogStatus::ok) return;
  *counters = before;
  marks.mark(counters, sizeof(Counters));
  persist();
  if (log.remove(sizeof(Counters)) != LogStatus::ok) return;
}

}  // namespace gpkvs

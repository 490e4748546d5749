#include "kv_store/log/batch.hpp"

#include "kv_store/log/append.hpp"
#include "kv_store/log/block_sum.hpp"
#include "kv_store/log/counts.hpp"
#include "kv_store/log/line_words.hpp"
#include "kv_store/log/look.hpp"

namespace holdfast::kv::log {
namespace {

__device__ std::uint32_t thread_in_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

// ---- Which operation is the last of its key -----------------------------------------------------

// No fence: one would wait for what the thread's warp has on the link. Who finds a claim whose key
// is not there yet looks again. It was stored in front of the claim, so that this waits for no
// thread that is still to run.
__device__ void claim(const Batch& batch, const KeysIn& in, std::uint32_t op, std::uint64_t key,
                      Outcome* outcome) {
  if (key == KvStoreRef::kReservedKey) {
    atomicAdd(&outcome->reserved_keys, 1u);
    return;
  }
  if (in.to != nullptr) *const_cast<volatile std::uint64_t*>(&in.to[op]) = key;
  batch.claim_of[op] = enter_claim(batch.claims, key, op, [&](std::uint32_t other) {
    std::uint64_t held = detail::kv_load_word(&batch.keys[other]);
    while (in.to != nullptr && held == KvStoreRef::kReservedKey) {
      held = detail::kv_load_word(&batch.keys[other]);
    }
    return held == key;
  });
}

__global__ void claim_keys(KeysIn in, Batch batch, Outcome* outcome) {
  const std::uint32_t op = thread_in_row();
  if (op < batch.count) claim(batch, in, op, in.from[op], outcome);
}

// Operations of a block stay together, and in no order.
__global__ void order_records(const KvStore::Op* kinds, std::uint32_t count, std::uint32_t sets,
                              std::uint32_t* order, std::uint32_t* cursors) {
  __shared__ std::uint32_t counts[2];
  __shared__ std::uint32_t begins[2];
  if (threadIdx.x < 2) counts[threadIdx.x] = 0;
  __syncthreads();
  const std::uint32_t op = thread_in_row();
  const unsigned kind = op < count && kinds[op] == KvStore::Op::erase;
  const std::uint32_t rank = op < count ? atomicAdd(&counts[kind], 1u) : 0;
  __syncthreads();
  if (threadIdx.x < 2) {
    const std::uint32_t first = threadIdx.x == 0 ? 0 : sets;
    begins[threadIdx.x] = first + atomicAdd(&cursors[threadIdx.x], counts[threadIdx.x]);
  }
  __syncthreads();
  if (op < count) order[begins[kind] + rank] = op;
}

// The link brings keys, and values of the pages ahead, and takes these pages' records meanwhile.
__global__ void claim_ahead(Medium medium, KeysIn in, Batch batch, RunPlan run, Ahead ahead,
                            Work work) {
  __shared__ LineWords keys;
  __shared__ LineWords values;
  __shared__ Record records[kBlock];
  const std::uint32_t page = ahead.page_of(blockIdx.x);
  const bool appends = page < ahead.pages;
  const Spot spot = spot_of(run, page);
  const unsigned key_at = keys.load(in.from, spot.number, batch.count);
  const unsigned value_at = appends ? values.load(batch.values, spot.number, batch.count) : 0;
  __syncthreads();
  const std::uint64_t key = spot.stores ? keys.words[key_at] : 0;
  if (!appends) {
    if (spot.stores) claim(batch, in, spot.number, key, work.outcome);
    return;
  }
  unsigned long long sum = 0;
  if (spot.stores) {
    const Record record{~key, values.words[value_at]};
    records[threadIdx.x] = record;
    if (ahead.values != nullptr) ahead.values[spot.number] = record.value;
    sum = sum_of(spot, record);
  }
  __syncthreads();
  if (is_appender()) append_page(medium, run, page, records);
  if (spot.stores) claim(batch, in, spot.number, key, work.outcome);
  if (is_appender()) persist();
  add_sums(work, spot, sum);
}

// ---- The run, and what it changes in the index --------------------------------------------------

template <class Form>
__global__ void look_keys(Form index, Batch batch, Outcome* outcome) {
  if (outcome->reserved_keys != 0) return;
  const std::uint32_t op = thread_in_row();
  add_up(op < batch.count ? look(index, batch, op) : Tally{}, batch, outcome);
}

// `found`: of the key. Of a SET `pair` is the record; an ERASE has one if its key is there. Where
// the batch has ERASEs, too, a SET has one if it is the last of its key: the ERASE of a key that
// was not there has none to stand behind it.
__device__ Record record_of(const Batch& batch, bool erases, std::uint32_t found,
                            const Record& pair) {
  if (!erases) return batch.mixed() && found == kNone ? Record{0, 0} : pair;
  const bool removes = found != kNone && (found & kPresentBit) != 0;
  return {removes ? pair.key : 0, 0};
}

// Makes an operation's record, at `position`, what the index has of its key. Returns whether it is.
template <class Form>
__device__ bool apply(const Form& index, bool erases, std::uint32_t found, const Record& pair,
                      std::uint32_t position, Tally* tally) {
  if (found == kNone) return false;
  const bool present = (found & kPresentBit) != 0;
  std::uint32_t slot = found & ~kPresentBit;
  if (erases) {
    if (!present) return false;
    index.erase(slot, pair.key, position);
  } else {
    const Put put = index.put(slot, present, pair, position);
    if (put.slot == kNone) {
      ++tally->lost;
      return false;
    }
    tally->fresh += put.fresh;
    slot = put.slot;
  }
  index.slot_of[position] = slot;
  return true;
}

__device__ std::uint64_t digest_of(const Record& pair) { return pair_digest(pair.key, pair.value); }

// A thread has one operation from its words to the index; the first warp appends meanwhile, and
// waits for the link behind its own. Of fingerprints a record is on the medium before the index has
// its position, which lookups beside batches rely on; they read none of an index that is whole.
template <class Form>
__global__ void step(Medium medium, Form index, Batch batch, RunPlan run, Ahead ahead, bool looks,
                     Work work) {
  __shared__ LineWords values;
  __shared__ Record records[kBlock];
  if (work.outcome->reserved_keys != 0) return;
  const std::uint32_t page = ahead.page_of(blockIdx.x);
  const bool appends = page >= ahead.pages;
  const Spot spot = spot_of(run, page);
  std::uint32_t op = spot.number;
  bool erases = batch.erases();
  std::uint64_t value = 0;
  if (batch.mixed()) {
    erases = spot.number >= run.records - run.tombstones;
    if (spot.stores) op = batch.order[spot.number];
    if (spot.stores && !erases) value = batch.values[op];
  } else if (!erases) {
    const bool kept = !appends && ahead.values != nullptr;
    const unsigned at = values.load(kept ? ahead.values : batch.values, spot.number, batch.count);
    __syncthreads();
    if (spot.stores) value = values.words[at];
  }
  Record pair{0, value};
  std::uint32_t found = kNone;
  unsigned long long sum = 0;
  if (spot.stores) {
    pair.key = ~batch.keys[op];
    if (!looks) found = batch.slots[op];
  }
  if (appends) {
    if (spot.stores) {
      const Record record = record_of(batch, erases, found, pair);
      records[threadIdx.x] = record;
      sum = sum_of(spot, record);
    }
    __syncthreads();
    if (is_appender()) append_page(medium, run, page, records);
    if (!looks) {
      if (is_appender()) persist();
      __syncthreads();
      __threadfence();
    }
  }
  Tally tally;
  bool lives = false;
  if (spot.stores) {
    if (looks && is_last_of_key(batch, op)) {
      const Place place = find_place(index, pair.key);
      tally = tally_of(index, erases, pair.key, place);
      found = found_at(place);
    }
    lives = apply(index, erases, found, pair, spot.position, &tally);
    if (lives && !erases) tally.digest += digest_of(pair);
  }
  const auto live = static_cast<unsigned>(__syncthreads_count(lives));
  unsigned tombs = batch.erases() ? live : 0;
  if (batch.mixed()) tombs = static_cast<unsigned>(__syncthreads_count(lives && erases));
  if (threadIdx.x == 0 && live != 0) {
    const std::uint32_t segment = spot.position >> run.shift;
    atomicAdd(&index.live[segment], live);
    if (tombs != 0) atomicAdd(&index.tombs[segment], tombs);
  }
  if (appends) add_sums(work, spot, sum);
  add_up(tally, batch, work.outcome);
  if (appends && looks && is_appender()) persist();
  if (!is_last_block(work.outcome, gridDim.x) || seen(work.outcome->lost) != 0) return;
  commit_run(medium, run, work);
}

// ---- A small batch ------------------------------------------------------------------------------

__device__ Record pair_of(const Batch& batch, std::uint32_t op) {
  return {~batch.keys[op], batch.erases(op) ? 0 : batch.values[op]};
}

// A thread has the record of its number. Not persisted yet: each thread's records are with what it
// persists in commit_run(). `op`: of the thread.
__device__ void append_small(const Medium& medium, const Batch& batch, const RunPlan& run,
                             std::uint32_t op, const Work& work) {
  const std::uint32_t number = threadIdx.x;
  const bool appends = number < batch.count;
  const std::uint32_t mine = appends ? run.piece_of(number) : kNone;
  unsigned long long of_record = 0;
  if (appends) {
    const std::uint32_t position = run.position_of(number);
    const Record record = record_of(batch, batch.erases(op), batch.slots[op], pair_of(batch, op));
    medium.records[position] = record;
    medium.marks.mark(&medium.records[position], sizeof(Record));
    of_record = record_sum(record.key, record.value, number - run.begin_of(mine));
  }
  for (std::uint32_t piece = 0; piece < run.pieces; ++piece) {
    const unsigned long long sum = block_sum(mine == piece ? of_record : 0);
    if (threadIdx.x == 0) work.sums[piece] = sum;
  }
  __threadfence_block();
  __syncthreads();
}

template <class Form>
__device__ void apply_small(const Form& index, const Batch& batch, const RunPlan& run,
                            std::uint32_t op, const SegmentCounts& counts, Outcome* outcome) {
  Tally tally;
  const std::uint32_t number = threadIdx.x;
  const bool erases = batch.erases(op);
  if (apply(index, erases, batch.slots[op], pair_of(batch, op), run.position_of(number), &tally)) {
    counts.add(number, erases);
  }
  if (tally.fresh != 0) atomicAdd(&outcome->slots, 1ull);
  if (tally.lost != 0) atomicAdd(&outcome->lost, 1ull);
}

// What atomics of the block have made of the outcome. The host waits for the ticket alone.
__device__ void tell(const Outcome& outcome, Report* report, std::uint64_t ticket) {
  static_assert(sizeof(Outcome) % sizeof(unsigned long long) == 0);
  const auto* const from = reinterpret_cast<const unsigned long long*>(&outcome);
  auto* const to = reinterpret_cast<unsigned long long*>(&report->outcome);
  for (unsigned i = 0; i < sizeof(Outcome) / sizeof(*from); ++i) to[i] = seen(from[i]);
  __threadfence_system();
  *static_cast<volatile std::uint64_t*>(&report->ticket) = ticket;
}

// What a small batch works with, in shared memory: each access to device memory would wait longer
// than all that is done between two of them. Its words are read once, as they may be across the
// link.
struct SmallBatch {
  Outcome outcome;
  unsigned long long sums[SegmentCounts::kPieces];
  unsigned long long claims[2 * kSmallBatch];
  std::uint32_t claim_of[kSmallBatch];
  std::uint32_t slots[kSmallBatch];
  std::uint64_t keys[kSmallBatch];
  std::uint64_t values[kSmallBatch];
  KvStore::Op kinds[kSmallBatch];
};

// REQUIRES: all threads of the block call, one for each operation at least.
__device__ Batch take_in(const Batch& given, SmallBatch& own) {
  const std::uint32_t op = threadIdx.x;
  std::uint32_t claims = 2;
  while (claims < 2 * given.count) claims *= 2;
  if (op == 0) own.outcome = Outcome{};
  if (op < SegmentCounts::kPieces) own.sums[op] = 0;
  for (std::uint32_t i = op; i < claims; i += blockDim.x) own.claims[i] = 0;
  if (op < given.count) {
    own.keys[op] = given.keys[op];
    if (!given.erases()) own.values[op] = given.values[op];
    if (given.mixed()) own.kinds[op] = given.kinds[op];
  }
  __syncthreads();
  constexpr std::uint32_t kTag = 1;  // any but 0
  return {own.keys,
          given.erases() ? nullptr : own.values,
          given.count,
          {own.claims, claims - 1, kTag},
          own.claim_of,
          own.slots,
          given.mixed() ? own.kinds : nullptr,
          given.order};
}

// One block, a thread for each operation: no launch, copy or wait but one of each.
template <class Form>
__global__ void small_batch(Medium medium, Form index, Batch given, RunPlan run, Report* report,
                            std::uint64_t ticket) {
  __shared__ SmallBatch own;
  __shared__ unsigned live[SegmentCounts::kPieces];
  __shared__ unsigned tombs[SegmentCounts::kPieces];
  const std::uint32_t number = threadIdx.x;
  const bool orders = given.mixed() && number < given.count;
  const std::uint32_t op = orders ? given.order[number] : number;
  const Batch batch = take_in(given, own);
  Outcome* const outcome = &own.outcome;
  const Work work{outcome, own.sums};
  if (op < batch.count) claim(batch, {batch.keys, nullptr}, op, batch.keys[op], outcome);
  __threadfence_block();
  __syncthreads();
  if (*const_cast<volatile std::uint32_t*>(&outcome->reserved_keys) == 0) {
    Tally tally;
    if (op < batch.count) tally = look(index, batch, op);
    const bool sets = op < batch.count && !batch.erases(op) && batch.slots[op] != kNone;
    if (sets) tally.digest += digest_of(pair_of(batch, op));
    add_up(tally, batch, outcome);
    __threadfence_block();
    __syncthreads();
    if (seen(outcome->lost) == 0) {
      append_small(medium, batch, run, op, work);
      commit_run(medium, run, work);
      const SegmentCounts counts(live, tombs, run, 0);
      if (op < batch.count) apply_small(index, batch, run, op, counts, outcome);
      counts.flush(index);
    }
  }
  __threadfence_block();
  __syncthreads();
  if (threadIdx.x == 0) tell(*outcome, report, ticket);
}

template <class Form>
__global__ void get_from_log(Form index, const std::uint64_t* keys, std::uint64_t* values,
                             std::uint8_t* found, std::uint32_t count) {
  const std::uint32_t i = thread_in_row();
  if (i >= count) return;
  std::uint64_t value = 0;
  const bool there = find_value(index, keys[i], &value);
  values[i] = there ? value : 0;
  found[i] = there;
}

template <class Form>
__global__ void list_pairs(Form index, std::uint64_t first, std::uint64_t count, KvPair* pairs) {
  const std::uint64_t i = thread_in_row();
  if (i < count) pairs[i] = index.listed_at(first + i);
}

}  // namespace

void launch_claim(Stream& stream, const KeysIn& keys, const Batch& batch, Outcome* outcome) {
  launch(stream, blocks_for(batch.count, kBlock), kBlock, claim_keys, keys, batch, outcome);
}

void launch_claim_ahead(Stream& stream, const Medium& medium, const KeysIn& keys,
                        const Batch& batch, const RunPlan& run, const Ahead& ahead,
                        const Work& work) {
  launch(stream, dim3(pages_of(run)), dim3(kBlock), claim_ahead, medium, keys, batch, run, ahead,
         work);
}

void launch_order(Stream& stream, const KvStore::Op* kinds, std::uint32_t count, std::uint32_t sets,
                  std::uint32_t* order, std::uint32_t* cursors) {
  launch(stream, blocks_for(count, kBlock), kBlock, order_records, kinds, count, sets, order,
         cursors);
}

template <class Form>
void launch_look(Stream& stream, const Form& index, const Batch& batch, Outcome* outcome) {
  launch(stream, blocks_for(batch.count, kBlock), kBlock, look_keys<Form>, index, batch, outcome);
}

template <class Form>
void launch_step(Stream& stream, const Medium& medium, const Form& index, const Batch& batch,
                 const RunPlan& run, const Ahead& ahead, bool looks, const Work& work) {
  launch(stream, dim3(pages_of(run)), dim3(kBlock), step<Form>, medium, index, batch, run, ahead,
         looks, work);
}

template <class Form>
void launch_small(Stream& stream, const Medium& medium, const Form& index, const Batch& batch,
                  const RunPlan& run, Report* report, std::uint64_t ticket) {
  const unsigned warps = (batch.count + 31) / 32;
  launch(stream, dim3(1), dim3(warps * 32), small_batch<Form>, medium, index, batch, run, report,
         ticket);
}

template <class Form>
void launch_get(Stream& stream, const Form& index, const std::uint64_t* keys, std::uint64_t* values,
                std::uint8_t* found, std::uint32_t count) {
  launch(stream, blocks_for(count, kBlock), kBlock, get_from_log<Form>, index, keys, values, found,
         count);
}

template <class Form>
void launch_list(Stream& stream, const Form& index, std::uint64_t first, std::uint64_t count,
                 KvPair* pairs) {
  launch(stream, blocks_for(count, kBlock), kBlock, list_pairs<Form>, index, first, count, pairs);
}

#define HOLDFAST_FORM(Form)                                                                     \
  template void launch_look(Stream&, const Form&, const Batch&, Outcome*);                      \
  template void launch_step(Stream&, const Medium&, const Form&, const Batch&, const RunPlan&,  \
                            const Ahead&, bool, const Work&);                                   \
  template void launch_small(Stream&, const Medium&, const Form&, const Batch&, const RunPlan&, \
                             Report*, std::uint64_t);                                           \
  template void launch_get(Stream&, const Form&, const std::uint64_t*, std::uint64_t*,          \
                           std::uint8_t*, std::uint32_t);                                       \
  template void launch_list(Stream&, const Form&, std::uint64_t, std::uint64_t, KvPair*);
HOLDFAST_FORM(Index)
HOLDFAST_FORM(FingerprintIndex)
#undef HOLDFAST_FORM

}  // namespace holdfast::kv::log

#include "kv_store/log/batch.hpp"

#include "kv_store/log/append.hpp"
#include "kv_store/log/block_sum.hpp"
#include "kv_store/log/counts.hpp"
#include "kv_store/log/look.hpp"

namespace holdfast::kv::log {
namespace {

__device__ std::uint32_t thread_in_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

// ---- Which operation is the last of its key -----------------------------------------------------

__device__ void claim(const Batch& batch, std::uint32_t op, Outcome* outcome) {
  const std::uint64_t key = batch.keys[op];
  if (key == KvStoreRef::kReservedKey) atomicAdd(&outcome->reserved_keys, 1u);
  batch.claim_of[op] = enter_claim(batch.claims, batch.keys, op);
}

__global__ void take_words(const std::uint64_t* keys, const std::uint64_t* values,
                           std::uint64_t* to_keys, std::uint64_t* to_values, std::uint32_t count) {
  const std::uint32_t i = thread_in_row();
  if (i >= count) return;
  to_keys[i] = keys[i];
  if (values != nullptr) to_values[i] = values[i];
}

__global__ void claim_keys(Batch batch, Outcome* outcome) {
  const std::uint32_t op = thread_in_row();
  if (op < batch.count) claim(batch, op, outcome);
}

// ---- The run ------------------------------------------------------------------------------------

__device__ Record record_of(const Batch& batch, std::uint32_t op) {
  if (!batch.erases()) return {~batch.keys[op], batch.values[op]};
  const std::uint32_t slot = batch.slots[op];
  const bool removes = slot != kNone && (slot & kPresentBit) != 0;
  return {removes ? ~batch.keys[op] : 0, 0};
}

// Blocks of both kinds in turn, so that lookups, which wait for device memory, run beside the
// append, which waits for the link.
template <class Form>
__global__ void step(Medium medium, Form index, Batch batch, RunPlan run, Work work,
                     std::uint32_t append_blocks, std::uint32_t look_blocks) {
  const std::uint32_t both = append_blocks < look_blocks ? append_blocks : look_blocks;
  const std::uint32_t block = blockIdx.x;
  const bool paired = block < 2 * both;
  const bool looks = paired ? block % 2 == 1 : look_blocks > append_blocks;
  const std::uint32_t number = paired ? block / 2 : block - both;
  const bool refused = work.outcome->reserved_keys != 0;
  if (!refused && looks) {
    const std::uint32_t op = number * kBlock + threadIdx.x;
    add_up(op < batch.count ? look(index, batch, op) : Tally{}, work.outcome);
  } else if (!refused) {
    append_page(medium, run, work, number,
                [&](std::uint32_t record, std::uint32_t) { return record_of(batch, record); });
  }
  if (append_blocks == 0) return;
  if (!is_last_block(work.outcome, append_blocks + look_blocks)) return;
  if (refused || seen(work.outcome->lost) != 0) return;
  commit_run(medium, run, work);
}

// ---- What it changes in the index ---------------------------------------------------------------

template <class Form>
__device__ void apply(const Form& index, const Batch& batch, const RunPlan& run, std::uint32_t op,
                      const SegmentCounts& counts, Outcome* outcome) {
  const std::uint32_t found = batch.slots[op];
  if (found == kNone) return;
  const bool present = (found & kPresentBit) != 0;
  std::uint32_t slot = found & ~kPresentBit;
  const std::uint32_t position = run.position_of(op);
  const std::uint64_t key = ~batch.keys[op];
  if (batch.erases()) {
    if (!present) return;
    index.erase(slot, key, position);
  } else {
    const Put put = index.put(slot, present, {key, batch.values[op]}, position);
    if (put.slot == kNone) {
      atomicAdd(&outcome->lost, 1ull);
      return;
    }
    if (put.fresh) atomicAdd(&outcome->slots, 1ull);
    slot = put.slot;
  }
  index.slot_of[position] = slot;
  counts.add(op, batch.erases());
}

template <class Form>
__global__ void apply_batch(Form index, Batch batch, RunPlan run, Outcome* outcome) {
  __shared__ unsigned live[SegmentCounts::kPieces];
  __shared__ unsigned tombs[SegmentCounts::kPieces];
  if (outcome->committed == 0) return;
  const std::uint32_t op = thread_in_row();
  const SegmentCounts counts(live, tombs, run, blockIdx.x * blockDim.x);
  if (op < batch.count) apply(index, batch, run, op, counts, outcome);
  counts.flush(index);
}

// ---- A small batch ------------------------------------------------------------------------------

// Not persisted yet: each thread's records are with what it persists in commit_run().
__device__ void append_small(const Medium& medium, const Batch& batch, const RunPlan& run,
                             const Work& work) {
  const std::uint32_t op = threadIdx.x;
  const bool appends = op < batch.count;
  const std::uint32_t mine = appends ? run.piece_of(op) : kNone;
  unsigned long long of_record = 0;
  if (appends) {
    const std::uint32_t position = run.position_of(op);
    const Record record = record_of(batch, op);
    medium.records[position] = record;
    medium.marks.mark(&medium.records[position], sizeof(Record));
    of_record = record_sum(record.key, record.value, op - run.begin_of(mine));
  }
  for (std::uint32_t piece = 0; piece < run.pieces; ++piece) {
    const unsigned long long sum = block_sum(mine == piece ? of_record : 0);
    if (threadIdx.x == 0) work.sums[piece] = sum;
  }
  __threadfence_block();
  __syncthreads();
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
  }
  __syncthreads();
  constexpr std::uint32_t kTag = 1;  // any but 0
  return {own.keys,     given.erases() ? nullptr : own.values,
          given.count,  {own.claims, claims - 1, kTag},
          own.claim_of, own.slots};
}

// One block, a thread for each operation: no launch, copy or wait but one of each.
template <class Form>
__global__ void small_batch(Medium medium, Form index, Batch given, RunPlan run, Report* report,
                            std::uint64_t ticket) {
  __shared__ SmallBatch own;
  __shared__ unsigned live[SegmentCounts::kPieces];
  __shared__ unsigned tombs[SegmentCounts::kPieces];
  const std::uint32_t op = threadIdx.x;
  const Batch batch = take_in(given, own);
  Outcome* const outcome = &own.outcome;
  const Work work{outcome, own.sums};
  if (op < batch.count) claim(batch, op, outcome);
  __threadfence_block();
  __syncthreads();
  if (*const_cast<volatile std::uint32_t*>(&outcome->reserved_keys) == 0) {
    add_up(op < batch.count ? look(index, batch, op) : Tally{}, outcome);
    __threadfence_block();
    __syncthreads();
    if (seen(outcome->lost) == 0) {
      append_small(medium, batch, run, work);
      commit_run(medium, run, work);
      const SegmentCounts counts(live, tombs, run, 0);
      if (op < batch.count) apply(index, batch, run, op, counts, outcome);
      counts.flush(index);
    }
  }
  __threadfence_block();
  __syncthreads();
  if (op == 0) tell(*outcome, report, ticket);
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

void launch_take_in(Stream& stream, const std::uint64_t* keys, const std::uint64_t* values,
                    std::uint64_t* to_keys, std::uint64_t* to_values, std::uint32_t count) {
  launch(stream, blocks_for(count, kBlock), kBlock, take_words, keys, values, to_keys, to_values,
         count);
}

void launch_claim(Stream& stream, const Batch& batch, Outcome* outcome) {
  launch(stream, blocks_for(batch.count, kBlock), kBlock, claim_keys, batch, outcome);
}

template <class Form>
void launch_step(Stream& stream, Step what, const Medium& medium, const Form& index,
                 const Batch& batch, const RunPlan& run, const Work& work) {
  const std::uint32_t append_blocks = what == Step::look ? 0 : pages_of(run);
  const std::uint32_t look_blocks = what == Step::append ? 0 : (batch.count + kBlock - 1) / kBlock;
  launch(stream, dim3(append_blocks + look_blocks), dim3(kBlock), step<Form>, medium, index, batch,
         run, work, append_blocks, look_blocks);
}

template <class Form>
void launch_apply(Stream& stream, const Form& index, const Batch& batch, const RunPlan& run,
                  Outcome* outcome) {
  launch(stream, blocks_for(batch.count, kBlock), kBlock, apply_batch<Form>, index, batch, run,
         outcome);
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
  template void launch_step(Stream&, Step, const Medium&, const Form&, const Batch&,            \
                            const RunPlan&, const Work&);                                       \
  template void launch_apply(Stream&, const Form&, const Batch&, const RunPlan&, Outcome*);     \
  template void launch_small(Stream&, const Medium&, const Form&, const Batch&, const RunPlan&, \
                             Report*, std::uint64_t);                                           \
  template void launch_get(Stream&, const Form&, const std::uint64_t*, std::uint64_t*,          \
                           std::uint8_t*, std::uint32_t);                                       \
  template void launch_list(Stream&, const Form&, std::uint64_t, std::uint64_t, KvPair*);
HOLDFAST_FORM(Index)
HOLDFAST_FORM(FingerprintIndex)
#undef HOLDFAST_FORM

}  // namespace holdfast::kv::log

#include "kv_store/log/cleaning.hpp"

#include "kv_store/log/append.hpp"
#include "kv_store/log/counts.hpp"

namespace holdfast::kv::log {
namespace {

__device__ std::uint32_t thread_in_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Positions that a thread of gather_live() looks at: loads that wait for none of each other.
constexpr std::uint32_t kSpan = 4;

__device__ std::uint32_t span_of(const IndexBase& index) {
  const std::uint32_t pages = (1u << index.shift) / kBlock;
  return pages < kSpan ? 1 : kSpan;
}

// The slots of what a block keeps, by number within the run: pairs come from the run's first record
// on, tombstones from its last one down; in any order. REQUIRES: all threads of the block call.
__device__ void note_kept(const Held (&held)[kSpan], const RunPlan& run, std::uint32_t* kept,
                          Outcome* outcome) {
  __shared__ std::uint32_t counts[2];
  __shared__ unsigned long long bases[2];
  if (threadIdx.x < 2) counts[threadIdx.x] = 0;
  __syncthreads();
  std::uint32_t ranks[kSpan] = {};
  for (std::uint32_t i = 0; i < kSpan; ++i) {
    if (held[i].slot != kNone) ranks[i] = atomicAdd(&counts[held[i].tombstone ? 1 : 0], 1u);
  }
  __syncthreads();
  if (threadIdx.x < 2) {
    const unsigned long long mine = counts[threadIdx.x];
    unsigned long long* const total = threadIdx.x == 0 ? &outcome->kept : &outcome->kept_tombs;
    bases[threadIdx.x] = mine == 0 ? 0 : atomicAdd(total, mine);
  }
  __syncthreads();
  const std::uint32_t pairs = run.records - run.tombstones;
  for (std::uint32_t i = 0; i < kSpan; ++i) {
    if (held[i].slot == kNone) continue;
    const bool tombstone = held[i].tombstone;
    const unsigned long long number = bases[tombstone ? 1 : 0] + ranks[i];
    if (number >= (tombstone ? run.tombstones : pairs)) continue;  // it is not committed then
    kept[tombstone ? run.records - 1 - number : number] = held[i].slot;
  }
}

template <class Form>
__global__ void gather_live(Form index, VictimList victims, RunPlan run, std::uint32_t* kept,
                            Outcome* outcome) {
  const std::uint32_t span = span_of(index);
  const std::uint32_t per_segment = (1u << index.shift) / (span * kBlock);
  const std::uint32_t segment = victims.segments[blockIdx.x / per_segment];
  const std::uint32_t first =
      (segment << index.shift) + blockIdx.x % per_segment * span * kBlock + threadIdx.x;
  Held held[kSpan];
#pragma unroll
  for (std::uint32_t i = 0; i < kSpan; ++i) {
    if (i < span) held[i] = held_at(index, first + i * kBlock);
    if (held[i].tombstone && segment == victims.drops) held[i] = {};
  }
  note_kept(held, run, kept, outcome);
}

template <class Form>
__global__ void append_kept(Medium medium, Form index, RunPlan run, const std::uint32_t* kept,
                            Work work) {
  const std::uint32_t pairs = run.records - run.tombstones;
  if (seen(work.outcome->kept) != pairs || seen(work.outcome->kept_tombs) != run.tombstones) return;
  const Spot spot = spot_of(run, blockIdx.x);
  unsigned long long sum = 0;
  if (spot.stores) {
    const std::uint32_t slot = kept[spot.number];
    Record record = index.record_of(slot);
    if (spot.number >= pairs) record.value = 0;
    index.slot_of[spot.position] = slot;
    append(medium, spot.position, record);
    sum = sum_of(spot, record);
    persist();
  }
  add_sums(work, spot, sum);
  if (is_last_block(work.outcome, gridDim.x)) commit_run(medium, run, work);
}

// The copies become what the index knows.
template <class Form>
__global__ void follow_copies(Form index, RunPlan run, const Outcome* outcome) {
  __shared__ unsigned live[SegmentCounts::kPieces];
  __shared__ unsigned tombs[SegmentCounts::kPieces];
  if (outcome->committed == 0) return;
  const std::uint32_t number = thread_in_row();
  const SegmentCounts counts(live, tombs, run, blockIdx.x * blockDim.x);
  if (number < run.records) {
    const bool tombstone = number >= run.records - run.tombstones;
    const std::uint32_t position = run.position_of(number);
    index.follow(index.slot_of[position], position | (tombstone ? kErasedBit : 0));
    counts.add(number, tombstone);
  }
  counts.flush(index);
}

// Nothing on the medium has a record of their keys that is older.
template <class Form>
__global__ void drop_tombstones(Form index, std::uint32_t segment, bool runs, Outcome* outcome) {
  if (runs && outcome->committed == 0) return;
  const std::uint32_t position = (segment << index.shift) + thread_in_row();
  const Held held = held_at(index, position);
  if (held.slot == kNone || !held.tombstone) return;
  index.drop(held.slot);
  atomicAdd(&outcome->gone, 1ull);
}

template <class Form>
__global__ void free_segments(Medium medium, Form index, VictimList victims, bool runs,
                              const Outcome* outcome) {
  if (runs && outcome->committed == 0) return;
  const std::uint32_t i = thread_in_row();
  if (i >= victims.count) return;
  const std::uint32_t segment = victims.segments[i];
  index.end_segment(segment);
  index.live[segment] = 0;
  index.tombs[segment] = 0;
  auto* const header = reinterpret_cast<RunHeader*>(medium.records + (segment << index.shift));
  header->check = 0;
  medium.marks.mark(&header->check, sizeof(header->check));
  persist();
}

// Slots that others make empty meanwhile change no answer: no search passes by them.
template <class Form>
__global__ void sweep_slots(Form index, Outcome* outcome) {
  const std::uint64_t slot = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (slot > index.mask || !index.is_gone(slot) || index.is_passed(slot)) return;
  index.make_empty(slot);
  atomicAdd(&outcome->gone, 1ull);
}

}  // namespace

template <class Form>
void launch_keep(Stream& stream, const Medium& medium, const Form& index, const VictimList& victims,
                 const RunPlan& run, std::uint32_t* kept, const Work& work) {
  const std::uint32_t pages = (1u << index.shift) / kBlock;
  const std::uint32_t blocks = victims.count * (pages < kSpan ? pages : pages / kSpan);
  launch(stream, dim3(blocks), dim3(kBlock), gather_live<Form>, index, victims, run, kept,
         work.outcome);
  launch(stream, dim3(pages_of(run)), dim3(kBlock), append_kept<Form>, medium, index, run, kept,
         work);
}

template <class Form>
void launch_retire(Stream& stream, const Medium& medium, const Form& index,
                   const VictimList& victims, const RunPlan& run, Outcome* outcome) {
  const bool runs = run.records != 0;
  if (runs) {
    launch(stream, blocks_for(run.records, kBlock), kBlock, follow_copies<Form>, index, run,
           outcome);
  }
  if (victims.drops != kNone) {
    launch(stream, dim3((1u << index.shift) / kBlock), dim3(kBlock), drop_tombstones<Form>, index,
           victims.drops, runs, outcome);
  }
  launch(stream, blocks_for(victims.count, kBlock), kBlock, free_segments<Form>, medium, index,
         victims, runs, outcome);
}

template <class Form>
void launch_sweep(Stream& stream, const Form& index, Outcome* outcome) {
  launch(stream, blocks_for(index.mask + 1, kBlock), kBlock, sweep_slots<Form>, index, outcome);
}

#define HOLDFAST_FORM(Form)                                                           \
  template void launch_keep(Stream&, const Medium&, const Form&, const VictimList&,   \
                            const RunPlan&, std::uint32_t*, const Work&);             \
  template void launch_retire(Stream&, const Medium&, const Form&, const VictimList&, \
                              const RunPlan&, Outcome*);                              \
  template void launch_sweep(Stream&, const Form&, Outcome*);
HOLDFAST_FORM(Index)
HOLDFAST_FORM(FingerprintIndex)
#undef HOLDFAST_FORM

}  // namespace holdfast::kv::log

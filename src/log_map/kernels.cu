#include "log_map/kernels.hpp"

#include <algorithm>

#include "holdfast/kernel.hpp"

namespace holdfast::log_map {
namespace {

constexpr unsigned kThreads = 256;
// Rows are stored by so many blocks at most: a thread's stores wait for their durability together,
// at its end.
constexpr unsigned kMostBlocks = 2048;

struct alignas(16) Wide {
  std::uint64_t halves[2];
};

__device__ std::uint64_t thread_of_grid() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__device__ std::uint32_t free_in(const std::uint32_t* used, std::uint32_t places,
                                 std::uint64_t word) {
  const std::uint64_t first = word * 32;
  if (first >= places) return 0;
  const std::uint32_t free = ~used[word];
  const std::uint64_t left = places - first;
  return left < 32 ? free & ((1u << left) - 1) : free;
}

__global__ void take(const std::uint32_t* list, std::uint32_t count, std::uint64_t* to) {
  const std::uint64_t i = thread_of_grid();
  if (i < count) to[i] = list[i];
}

__global__ void spread(const std::uint64_t* from, const std::uint32_t* op, std::uint32_t count,
                       std::uint64_t* to) {
  const std::uint64_t i = thread_of_grid();
  if (i < count) to[op[i]] = from[i];
}

template <class Unit>
__global__ void store(Rows rows, const std::byte* from, const std::uint64_t* place,
                      std::uint32_t count) {
  const std::uint32_t units = rows.value_bytes / static_cast<std::uint32_t>(sizeof(Unit));
  const std::uint64_t all = std::uint64_t{count} * units;
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = thread_of_grid(); i < all; i += step) {
    const std::uint64_t row = i / units;
    const auto unit = static_cast<std::uint32_t>(i - row * units);
    if (static_cast<std::uint32_t>(place[row]) == kNone) continue;
    std::byte* const to = rows.values + place[row] * rows.stride;
    reinterpret_cast<Unit*>(to)[unit] = reinterpret_cast<const Unit*>(from)[i];
    if (unit == 0) rows.marks.mark(to, rows.value_bytes);
  }
  persist();
}

// Ordered with all batches.
__device__ bool find(const detail::KvView& index, std::uint64_t key, std::uint64_t* place) {
  return index.layout == detail::KvLayout::fingerprints
             ? detail::kv_find_by_fingerprint<detail::KvLoads::plain>(index, key, place)
             : detail::kv_find_in_index<detail::KvLoads::plain>(index, key, place);
}

__global__ void look(detail::KvView index, const std::uint64_t* keys, std::uint32_t count,
                     std::uint32_t* place, std::uint8_t* found) {
  const std::uint64_t i = thread_of_grid();
  if (i >= count) return;
  std::uint64_t at = kNone;
  const bool is_there = find(index, keys[i], &at);
  place[i] = is_there ? static_cast<std::uint32_t>(at) : kNone;
  if (found != nullptr) found[i] = is_there ? 1 : 0;
}

// A thread has the operations of a word of bits.
__global__ void choose(Which which, const std::uint64_t* keys, const std::uint32_t* place,
                       std::uint32_t count, std::uint32_t* passed_over, MapStatus* status,
                       Chosen* chosen) {
  const std::uint64_t word = thread_of_grid();
  const std::uint64_t first = word * 32;
  if (first >= count) return;
  const auto mine = static_cast<std::uint32_t>(count - first < 32 ? count - first : 32);
  std::uint32_t passed = 0;
  std::uint32_t reserved = 0;
  for (std::uint32_t i = 0; i < mine; ++i) {
    if (keys[first + i] == KvStoreRef::kReservedKey) ++reserved;
    if ((place[first + i] != kNone) == (which == Which::present)) continue;
    passed |= 1u << i;
    if (status == nullptr) continue;
    status[first + i] = which == Which::present ? MapStatus::absent : MapStatus::kept;
  }
  passed_over[word] = passed;
  const auto left = mine - static_cast<std::uint32_t>(__popc(passed));
  if (left != 0) atomicAdd(&chosen->count, left);
  if (reserved != 0) atomicAdd(&chosen->reserved_keys, reserved);
}

__global__ void pick(const std::uint32_t* op, std::uint32_t count, const std::uint64_t* keys,
                     const std::uint32_t* place, std::uint64_t* picked_keys,
                     std::uint32_t* picked_places) {
  const std::uint64_t i = thread_of_grid();
  if (i >= count) return;
  picked_keys[i] = keys[op[i]];
  picked_places[i] = place[op[i]];
}

// Of a key that occurs more than once the index has one operation's place; the other operations'
// were not used. Of those that erase it whoever frees its place counts: none that stores does so,
// unless nobody asks.
__global__ void settle(detail::KvView index, Changes changes, const std::uint64_t* mine,
                       std::uint32_t* used, MapStatus* status) {
  const std::uint64_t i = thread_of_grid();
  if (i >= changes.count) return;
  const std::uint32_t old = changes.old[i];
  const bool erases =
      mine == nullptr || (changes.kinds != nullptr && changes.kinds[i] == LogMap::Op::erase);
  std::uint64_t now = kNone;
  const bool is_there = mine != nullptr && find(index, changes.keys[i], &now);
  MapStatus became = MapStatus::superseded;
  if (is_there && now == static_cast<std::uint32_t>(mine[i])) {
    atomicOr(&used[now / 32], 1u << now % 32);
    became = old == kNone ? MapStatus::inserted : MapStatus::assigned;
  } else if (erases && !is_there && old == kNone) {
    became = MapStatus::absent;
  }
  if (old != kNone && (changes.kinds == nullptr || erases != is_there)) {
    const std::uint32_t bit = 1u << old % 32;
    const bool frees = (atomicAnd(&used[old / 32], ~bit) & bit) != 0;
    if (erases && frees) became = MapStatus::erased;
  }
  if (status != nullptr) status[changes.op == nullptr ? i : changes.op[i]] = became;
}

__global__ void count_up(std::uint32_t* to, std::uint32_t count) {
  const std::uint64_t i = thread_of_grid();
  if (i < count) to[i] = static_cast<std::uint32_t>(i);
}

template <class Unit>
__global__ void gather(Rows rows, const std::uint32_t* place, const std::uint32_t* op,
                       std::uint32_t count, std::byte* out) {
  const std::uint32_t units = rows.value_bytes / static_cast<std::uint32_t>(sizeof(Unit));
  const std::uint64_t i = thread_of_grid();
  if (i >= std::uint64_t{count} * units) return;
  const std::uint64_t row = i / units;
  if (place[row] == kNone) return;
  const std::byte* const from = rows.values + std::uint64_t{place[row]} * rows.stride;
  std::byte* const to = out + std::uint64_t{op == nullptr ? row : op[row]} * rows.value_bytes;
  reinterpret_cast<Unit*>(to)[i - row * units] =
      reinterpret_cast<const Unit*>(from)[i - row * units];
}

__global__ void mark_used(const detail::KvPair* pairs, std::uint64_t count, std::uint32_t places,
                          std::uint32_t* used, Faults* faults) {
  const std::uint64_t i = thread_of_grid();
  if (i >= count || pairs[i].key == 0) return;
  const std::uint64_t place = pairs[i].value;
  if (place >= places) {
    atomicAdd(&faults->outside, 1ull);
    return;
  }
  const std::uint32_t bit = 1u << place % 32;
  if ((atomicOr(&used[place / 32], bit) & bit) != 0) atomicAdd(&faults->twice, 1ull);
}

// How much the threads of the block in front of this one have; *all: all of them. By one thread:
// under the checker each look of another at shared memory is an event.
__device__ std::uint32_t sum_before(std::uint32_t mine, std::uint32_t* all) {
  __shared__ std::uint32_t before[kThreads + 1];
  before[threadIdx.x + 1] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    before[0] = 0;
    for (unsigned i = 1; i <= kThreads; ++i) before[i] += before[i - 1];
  }
  __syncthreads();
  *all = before[kThreads];
  return before[threadIdx.x];
}

// The words of `used` that a thread has, one after the other.
constexpr std::uint32_t kWordsOfThread = kPlacesOfBlock / 32 / kThreads;

__device__ std::uint32_t free_of_thread(const std::uint32_t* used, std::uint32_t places) {
  std::uint32_t free = 0;
  for (std::uint32_t i = 0; i < kWordsOfThread; ++i) {
    free += static_cast<std::uint32_t>(
        __popc(free_in(used, places, thread_of_grid() * kWordsOfThread + i)));
  }
  return free;
}

__global__ void count_free(const std::uint32_t* used, std::uint32_t places, std::uint32_t* counts) {
  std::uint32_t all = 0;
  (void)sum_before(free_of_thread(used, places), &all);
  if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

// Of each block's count where its places begin, by one block.
__global__ void add_up(std::uint32_t* counts, std::uint32_t blocks) {
  const std::uint32_t each = (blocks + kThreads - 1) / kThreads;
  const std::uint32_t first = threadIdx.x * each;
  const std::uint32_t end = first + each < blocks ? first + each : blocks;
  std::uint32_t mine = 0;
  for (std::uint32_t i = first; i < end; ++i) mine += counts[i];
  std::uint32_t all = 0;
  std::uint32_t before = sum_before(mine, &all);
  for (std::uint32_t i = first; i < end; ++i) {
    const std::uint32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

__global__ void list_free(const std::uint32_t* used, std::uint32_t places, std::uint32_t* list,
                          const std::uint32_t* first) {
  std::uint32_t all = 0;
  std::uint32_t to = first[blockIdx.x] + sum_before(free_of_thread(used, places), &all);
  for (std::uint32_t i = 0; i < kWordsOfThread; ++i) {
    const std::uint64_t word = thread_of_grid() * kWordsOfThread + i;
    for (std::uint32_t free = free_in(used, places, word); free != 0; free &= free - 1) {
      const auto bit = static_cast<std::uint32_t>(__ffs(static_cast<int>(free)) - 1);
      list[to++] = static_cast<std::uint32_t>(word * 32) + bit;
    }
  }
}

__global__ void compare(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t words,
                        unsigned long long* differing) {
  const std::uint64_t i = thread_of_grid();
  if (i < words && a[i] != b[i]) atomicAdd(differing, 1ull);
}

bool has_wide_units(const Rows& rows, const void* address) {
  return rows.value_bytes % sizeof(Wide) == 0 &&
         reinterpret_cast<std::uintptr_t>(address) % sizeof(Wide) == 0;
}

}  // namespace

void launch_take(Stream& stream, const std::uint32_t* list, std::uint32_t count,
                 std::uint64_t* to) {
  launch(stream, blocks_for(count, kThreads), kThreads, take, list, count, to);
}

void launch_spread(Stream& stream, const std::uint64_t* from, const std::uint32_t* op,
                   std::uint32_t count, std::uint64_t* to, std::uint32_t all) {
  fill_async(stream, to, 0xff, all * sizeof(*to));
  launch(stream, blocks_for(count, kThreads), kThreads, spread, from, op, count, to);
}

void launch_store(Stream& stream, const Rows& rows, const std::byte* from,
                  const std::uint64_t* place, std::uint32_t count) {
  const bool wide = has_wide_units(rows, from);
  const std::uint64_t units =
      std::uint64_t{count} * (rows.value_bytes / (wide ? sizeof(Wide) : sizeof(std::uint32_t)));
  const unsigned blocks = std::min(blocks_for(units, kThreads), kMostBlocks);
  launch(stream, blocks, kThreads, wide ? store<Wide> : store<std::uint32_t>, rows, from, place,
         count);
}

void launch_look(Stream& stream, const detail::KvView& index, const std::uint64_t* keys,
                 std::uint32_t count, std::uint32_t* place, std::uint8_t* found) {
  launch(stream, blocks_for(count, kThreads), kThreads, look, index, keys, count, place, found);
}

void launch_choose(Stream& stream, Which which, const std::uint64_t* keys,
                   const std::uint32_t* place, std::uint32_t count, std::uint32_t* passed_over,
                   MapStatus* status, Chosen* chosen) {
  const std::uint32_t words = (count + 31) / 32;
  launch(stream, blocks_for(words, kThreads), kThreads, choose, which, keys, place, count,
         passed_over, status, chosen);
}

void launch_pick(Stream& stream, const std::uint32_t* op, std::uint32_t count,
                 const std::uint64_t* keys, const std::uint32_t* place, std::uint64_t* picked_keys,
                 std::uint32_t* picked_places) {
  launch(stream, blocks_for(count, kThreads), kThreads, pick, op, count, keys, place, picked_keys,
         picked_places);
}

void launch_settle(Stream& stream, const detail::KvView& index, const Changes& changes,
                   const std::uint64_t* mine, std::uint32_t* used, MapStatus* status) {
  launch(stream, blocks_for(changes.count, kThreads), kThreads, settle, index, changes, mine, used,
         status);
}

void launch_count_up(Stream& stream, std::uint32_t* to, std::uint32_t count) {
  launch(stream, blocks_for(count, kThreads), kThreads, count_up, to, count);
}

void launch_gather(Stream& stream, const Rows& rows, const std::uint32_t* place,
                   const std::uint32_t* op, std::uint32_t count, std::byte* out) {
  const bool wide = has_wide_units(rows, out);
  const std::uint64_t units =
      std::uint64_t{count} * (rows.value_bytes / (wide ? sizeof(Wide) : sizeof(std::uint32_t)));
  launch(stream, blocks_for(units, kThreads), kThreads, wide ? gather<Wide> : gather<std::uint32_t>,
         rows, place, op, count, out);
}

void launch_mark_used(Stream& stream, const detail::KvPair* pairs, std::uint64_t count,
                      std::uint32_t places, std::uint32_t* used, Faults* faults) {
  launch(stream, blocks_for(count, kThreads), kThreads, mark_used, pairs, count, places, used,
         faults);
}

void launch_list_free(Stream& stream, const std::uint32_t* used, std::uint32_t places,
                      std::uint32_t* list, std::uint32_t* scratch) {
  const unsigned blocks = blocks_for(places, kPlacesOfBlock);
  launch(stream, blocks, kThreads, count_free, used, places, scratch);
  launch(stream, 1, kThreads, add_up, scratch, blocks);
  launch(stream, blocks, kThreads, list_free, used, places, list, scratch);
}

void launch_compare(Stream& stream, const std::uint32_t* a, const std::uint32_t* b,
                    std::uint32_t words, unsigned long long* differing) {
  launch(stream, blocks_for(words, kThreads), kThreads, compare, a, b, words, differing);
}

}  // namespace holdfast::log_map

#include "hash_map/kernels.hpp"

namespace holdfast::map {
namespace {

using detail::MapBatch;
using detail::MapView;

constexpr unsigned kThreads = 256;

__device__ std::uint32_t thread_in_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Whether two operations have one key, of 16 bytes and more.
__device__ bool have_one_key(const MapView& view, const MapBatch& batch, std::uint32_t a,
                             std::uint32_t b) {
  if (batch.labels[a] != batch.labels[b]) return false;
  const auto* const words = static_cast<const std::uint64_t*>(batch.keys);
  const std::uint64_t* const of_a = words + std::size_t{a} * view.key_words;
  const std::uint64_t* const of_b = words + std::size_t{b} * view.key_words;
  bool same = true;
  for (std::uint32_t i = 0; i < view.key_words; ++i) same &= of_a[i] == of_b[i];
  return same;
}

template <class Key>
__global__ void enter_claims(MapView view, MapBatch batch, kv::Claims claims,
                             std::uint32_t* entry_of, Report* report) {
  const std::uint32_t op = thread_in_row();
  if (op >= batch.count) return;
  if (batch.values != nullptr && view.values == nullptr &&
      !detail::map_is_value(
          detail::map_small_value(view, batch.values + std::size_t{op} * view.value_bytes))) {
    atomicAdd(&report->counts[kRefusedValues], 1u);
  }
  if constexpr (std::is_integral_v<Key>) {
    const auto* const keys = static_cast<const Key*>(batch.keys);
    const Key stored = keys[op] ^ static_cast<Key>(view.empty_key);
    if (stored == 0) atomicAdd(&report->counts[kRefusedKeys], 1u);
    entry_of[op] = kv::enter_claim(claims, keys, op);
  } else {
    entry_of[op] = kv::enter_claim(claims, batch.labels[op], op, [&](std::uint32_t other) {
      return have_one_key(view, batch, op, other);
    });
  }
}

__global__ void find_superseded(MapBatch batch, kv::Claims claims, const std::uint32_t* entry_of) {
  const std::uint32_t op = thread_in_row();
  if (op >= batch.count) return;
  batch.status[op] =
      kv::is_last_claim(claims, entry_of[op], op) ? MapStatus{} : MapStatus::superseded;
}

__global__ void count_statuses(MapView view, MapBatch batch, Report* report) {
  const std::uint32_t op = thread_in_row();
  const unsigned mine = op < batch.count ? static_cast<unsigned>(batch.status[op]) : 0;
  for (unsigned status = 1; status <= static_cast<unsigned>(MapStatus::no_value); ++status) {
    const int all = __syncthreads_count(mine == status);
    if (threadIdx.x == 0 && all != 0) {
      atomicAdd(&report->counts[status], static_cast<unsigned>(all));
    }
  }
  if (op == 0 && view.values != nullptr) {
    report->head = *view.head;
    report->tail = *view.tail;
  }
}

__global__ void retry_full(MapBatch batch) {
  const std::uint32_t op = thread_in_row();
  if (op < batch.count && batch.status[op] == MapStatus::full) batch.status[op] = MapStatus{};
}

template <unsigned Width>
__global__ void gather(MapView view, const std::uint32_t* place, const std::uint32_t* op,
                       std::byte* out, std::uint32_t count) {
  const MapGroup<Width> group;
  const std::uint64_t i = detail::map_thread() / Width;
  if (i >= count || place[i] >= view.capacity) return;
  detail::map_copy(group, out + std::uint64_t{op[i]} * view.value_bytes,
                   detail::map_value_at(view, place[i]), view.value_bytes);
}

__global__ void list_free(MapView view, const std::uint32_t* used) {
  const std::uint64_t word = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (word * 32 >= view.capacity) return;
  unsigned free = ~used[word];
  const std::uint32_t left = view.capacity - static_cast<std::uint32_t>(word * 32);
  if (left < 32) free &= (1u << left) - 1;
  if (free == 0) return;
  unsigned long long to = atomicAdd(view.tail, static_cast<unsigned long long>(__popc(free)));
  for (; free != 0; free &= free - 1) {
    view.free[to++] = static_cast<std::uint32_t>(word * 32) + __ffs(static_cast<int>(free)) - 1;
  }
}

__global__ void append_places(std::uint32_t* to, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t i = thread_in_row();
  if (i < count) to[i] = first + i;
}

}  // namespace

void launch_claims(Stream& stream, const MapView& view, const MapBatch& batch,
                   std::uint32_t key_bytes, const kv::Claims& claims, std::uint32_t* entry_of,
                   Report* report) {
  const dim3 grid(blocks_for(batch.count, kThreads));
  const auto kernel = key_bytes == 4   ? enter_claims<std::uint32_t>
                      : key_bytes == 8 ? enter_claims<std::uint64_t>
                                       : enter_claims<detail::MapLongKey>;
  launch(stream, grid, dim3(kThreads), kernel, view, batch, claims, entry_of, report);
  launch(stream, grid, dim3(kThreads), find_superseded, batch, claims, entry_of);
}

void launch_report(Stream& stream, const MapView& view, const MapBatch& batch, Report* report) {
  launch(stream, dim3(blocks_for(batch.count, kThreads)), dim3(kThreads), count_statuses, view,
         batch, report);
}

void launch_retry(Stream& stream, const MapBatch& batch) {
  launch(stream, dim3(blocks_for(batch.count, kThreads)), dim3(kThreads), retry_full, batch);
}

void launch_gather(Stream& stream, const MapView& view, const std::uint32_t* place,
                   const std::uint32_t* op, std::byte* out, std::uint32_t count) {
  const unsigned width = width_for(view.value_bytes);
  const auto kernel = width == 4 ? gather<4> : width == 8 ? gather<8> : gather<32>;
  launch(stream, dim3(blocks_for(std::uint64_t{count} * width, kThreads)), dim3(kThreads), kernel,
         view, place, op, out, count);
}

void launch_list_free(Stream& stream, const MapView& view, const std::uint32_t* used) {
  const std::uint64_t words = (std::uint64_t{view.capacity} + 31) / 32;
  launch(stream, dim3(blocks_for(words, kThreads)), dim3(kThreads), list_free, view, used);
}

void launch_append_places(Stream& stream, std::uint32_t* to, std::uint32_t first,
                          std::uint32_t count) {
  launch(stream, dim3(blocks_for(count, kThreads)), dim3(kThreads), append_places, to, first,
         count);
}

}  // namespace holdfast::map

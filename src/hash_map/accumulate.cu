// Batches that add to values.
#include "hash_map/host.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::detail {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWidth = 8;  // threads for an operation

// The deltas of one key become one, the last operation's, in no order.
template <class T>
__global__ void combine(MapBatch batch, kv::Claims claims, const std::uint32_t* entry_of,
                        std::byte* deltas, std::uint32_t value_bytes) {
  const MapGroup<kWidth> group;
  const std::uint64_t op = map_thread() / kWidth;
  if (op >= batch.count || batch.status[op] != MapStatus::superseded) return;
  const std::uint64_t last =
      static_cast<std::uint32_t>(kv::claim_at(claims, entry_of[op])) - std::uint64_t{1};
  const T* const from = reinterpret_cast<const T*>(deltas + op * value_bytes);
  T* const to = reinterpret_cast<T*>(deltas + last * value_bytes);
  for (std::uint32_t i = group.rank; i < value_bytes / sizeof(T); i += kWidth) {
    atomicAdd(&to[i], from[i]);
  }
}

// Deltas of keys that are there become sums. Those that cannot be stored are counted.
__global__ void add_found(MapView view, MapBatch batch, MapElement element, std::byte* deltas,
                          map::Report* report) {
  const std::uint32_t value_bytes = view.value_bytes;
  const MapGroup<kWidth> group;
  const std::uint64_t op = map_thread() / kWidth;
  if (op >= batch.count || batch.found[op] == 0) return;
  if (batch.status[op] == MapStatus::superseded) return;
  std::byte* const delta = deltas + op * value_bytes;
  map_add(group, element, delta, batch.out + op * value_bytes, delta, value_bytes);
  if (view.values != nullptr) return;
  group.sync();
  if (group.rank == 0 && !map_is_value(map_small_value(view, delta))) {
    atomicAdd(&report->counts[map::kRefusedValues], 1u);
  }
}

template <class T>
void launch_combine(Stream& stream, const MapBatch& batch, const kv::Claims& claims,
                    const std::uint32_t* entry_of, std::byte* deltas, std::uint32_t value_bytes) {
  launch(stream, dim3(blocks_for(std::uint64_t{batch.count} * kWidth, kThreads)), dim3(kThreads),
         combine<T>, batch, claims, entry_of, deltas, value_bytes);
}

std::size_t bytes_of(MapElement element) {
  return element == MapElement::u32 || element == MapElement::f32 ? 4 : 8;
}

}  // namespace

MapResult MapHost::accumulate(const void* keys, const void* deltas, MapElement element,
                              std::size_t count, MapStatus* status) {
  if (shape().value_bytes % bytes_of(element) != 0) {
    throw Error(Errc::invalid_argument,
                concat(where, ": accumulate() of elements of ", bytes_of(element),
                       " bytes, and a value has ", shape().value_bytes,
                       ": give elements of a size that divides it"));
  }
  return run_batch(MapOperation::assign, keys, deltas, nullptr, count, [&] {
    const auto ops = static_cast<std::uint32_t>(count);
    std::byte* const sums = gather_deltas(keys, deltas, element, ops);
    return apply(MapOperation::assign, keys, sums, nullptr, ops, status, &element);
  });
}

// In memory_.values_in; if the batch is alone, with what is there. It is claimed then, as it is,
// and what cannot be is counted: of values that is a sum alone, since a delta need not be a value.
std::byte* MapHost::gather_deltas(const void* keys, const void* deltas, MapElement element,
                                  std::uint32_t count) {
  const std::uint32_t value_bytes = shape().value_bytes;
  const std::size_t bytes = std::size_t{count} * value_bytes;
  std::byte* const sums = room_for_values(bytes);
  copy_async(stream, sums, deltas, bytes);
  fill_async(stream, memory_.report.data(), 0, sizeof(map::Report));
  MapBatch batch{};
  batch.count = count;
  take_keys(batch, keys);
  batch.status = memory_.status.data();
  const kv::Claims claims = claim(view(!refs_out_), batch);
  const auto combined = element == MapElement::u32   ? launch_combine<unsigned>
                        : element == MapElement::u64 ? launch_combine<unsigned long long>
                        : element == MapElement::f32 ? launch_combine<float>
                                                     : launch_combine<double>;
  combined(stream, batch, claims, memory_.entry_of.data(), sums, value_bytes);
  if (refs_out_) return sums;
  MapBatch old = lookups(keys, sums, count);
  old.keys = batch.keys;
  old.labels = batch.labels;
  old.out = room_for_found(bytes);
  old.status = batch.status;
  look_up(old, true);
  launch(stream, dim3(blocks_for(std::uint64_t{count} * kWidth, kThreads)), dim3(kThreads),
         add_found, view(true), old, element, sums, memory_.report.data());
  return sums;
}

}  // namespace holdfast::detail

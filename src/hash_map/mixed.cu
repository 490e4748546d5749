// Batches whose operations have a kind each.
#include <bit>
#include <vector>

#include "hash_map/host.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::detail {
namespace {

constexpr unsigned kThreads = 256;

__device__ std::uint32_t thread_in_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Counts what is no operation, and what cannot be stored.
__global__ void check_kinds(MapView view, MapBatch batch, const MapOp* kinds, map::Report* report) {
  const std::uint32_t op = thread_in_row();
  if (op >= batch.count) return;
  const MapOp kind = kinds[op];
  const bool known = kind >= MapOp::insert && kind <= MapOp::find;
  const bool sets = known && kind != MapOp::erase && kind != MapOp::find;
  if (!known) atomicAdd(&report->counts[map::kRefusedKinds], 1u);
  if (sets && batch.values == nullptr) atomicAdd(&report->counts[map::kWithoutValues], 1u);
  const bool bad =
      sets && batch.values != nullptr && view.values == nullptr &&
      !map_is_value(map_small_value(view, batch.values + std::size_t{op} * view.value_bytes));
  if (!known || bad || (sets && batch.values == nullptr)) {
    atomicAdd(&report->counts[map::kRefusedValues], 1u);
  }
}

__global__ void take_buckets(const std::uint32_t* bucket, const std::uint32_t* ops,
                             std::uint32_t* to, std::uint32_t count) {
  const std::uint32_t i = thread_in_row();
  if (i < count) to[i] = bucket[ops[i]];
}

// Further operations of a key than these in front of it are not looked at.
constexpr std::uint32_t kReadsBehind = 32;

// Of the places that keys of operations have, by position, keeps those of the first lookups of
// their key that are certain to get what it had before the batch. `reads`: by operation.
__global__ void choose_reads(MapBatch batch, MapMixed mixed, std::uint32_t none,
                             std::uint32_t* place, std::uint8_t* reads) {
  const std::uint32_t position = thread_in_row();
  if (position >= batch.count) return;
  const std::uint32_t op = mixed.ops[position];
  const MapOp kind = mixed.kinds[op];
  bool chosen = place[position] != none && (kind == MapOp::find || kind == MapOp::find_or_insert) &&
                batch.refuse[0] == 0 && batch.refuse[1] == 0;
  for (std::uint32_t i = 1; chosen && i <= position; ++i) {
    const std::uint32_t before = mixed.ops[position - i];
    if (mixed.entry[before] != mixed.entry[op]) break;
    // What insert() finds it leaves; others read before this one, or set what it gets.
    chosen = mixed.kinds[before] == MapOp::insert && i < kReadsBehind;
  }
  reads[op] = chosen ? 1 : 0;
  if (!chosen) place[position] = none;
}

// As many threads for a value as it has pieces of 16 bytes, up to a warp.
template <unsigned Width>
__global__ void hand_out(MapBatch batch, const std::uint32_t* source, std::uint32_t value_bytes) {
  const MapGroup<Width> group;
  const std::uint64_t op = map_thread() / Width;
  if (op >= batch.count || batch.refuse[0] != 0 || batch.refuse[1] != 0) return;
  const std::uint32_t from = source[op];
  if (from == kMapNoSource) return;
  const std::byte* const rows = (from & kMapOfOut) != 0 ? batch.out : batch.values;
  map_copy(group, batch.out + op * value_bytes,
           rows + std::uint64_t{from & ~kMapOfOut} * value_bytes, value_bytes);
}

void launch_hand_out(Stream& stream, const MapBatch& batch, const std::uint32_t* source,
                     std::uint32_t value_bytes) {
  const unsigned width = value_bytes <= 64 ? 4 : value_bytes <= 128 ? 8 : 32;
  const auto kernel = width == 4 ? hand_out<4> : width == 8 ? hand_out<8> : hand_out<32>;
  launch(stream, dim3(blocks_for(std::uint64_t{batch.count} * width, kThreads)), dim3(kThreads),
         kernel, batch, source, value_bytes);
}

}  // namespace

MapResult MapHost::apply_mixed(const MapOp* operations, const void* keys, const void* values,
                               void* out, std::size_t count, MapStatus* status) {
  region.check_writable("a batch");
  check_count(count);
  if (count == 0) return {};
  const auto refuse = [&](const std::string& what) {
    throw Error(Errc::invalid_argument, where + ": " + what);
  };
  if (operations == nullptr || keys == nullptr) {
    refuse("apply() without operations or keys: give one of each for each operation");
  }
  if (overlap(out, values, count * shape().value_bytes)) {
    refuse("apply() was given an `out` that meets `values`: give it a place of its own");
  }
  const MapResult result = whole([&] {
    return make_mixed(operations, keys, values, out, static_cast<std::uint32_t>(count), status);
  });
  const map::Report& report = memory_.report_host[0];
  if (const std::uint32_t unknown = report.counts[map::kRefusedKinds]; unknown != 0) {
    refuse(concat(unknown,
                  " operation(s) of apply() are of no kind that there is: give each a "
                  "MapOp; nothing of this batch was done"));
  }
  if (const std::uint32_t without = report.counts[map::kWithoutValues]; without != 0) {
    refuse(concat(without,
                  " operation(s) of apply() set a value, and it was given no values: "
                  "give a row for each operation; nothing of this batch was done"));
  }
  check_refused();
  return result;
}

MapResult MapHost::make_mixed(const MapOp* operations, const void* keys, const void* values,
                              void* out, std::uint32_t count, MapStatus* status) {
  if (memory_.kinds.size() == 0) memory_.kinds = DeviceBuffer<MapOp>(max_batch_);
  if (out != nullptr && memory_.sources.size() == 0) {
    memory_.sources = DeviceBuffer<std::uint32_t>(max_batch_);
  }
  MapBatch batch = begin_batch(values, out, count);
  std::vector<MapOp> kinds(out != nullptr && batch.out != out ? count : 0);
  core::StreamEnd end(stream);
  const MapView seen = view(batch.alone);
  take_keys(batch, keys);
  copy_async(stream, memory_.kinds.data(), operations, count * sizeof(MapOp));
  fill_async(stream, memory_.report.data(), 0, sizeof(map::Report));
  launch(stream, dim3(blocks_for(count, kThreads)), dim3(kThreads), check_kinds, seen, batch,
         memory_.kinds.data(), memory_.report.data());
  MapBatch keys_alone = batch;
  keys_alone.values = nullptr;  // are checked: not all of them are set
  claim(seen, keys_alone);
  if (changes) changes->record(stream, batch);
  MapMixed mixed{memory_.kinds.data(),
                 memory_.entry_of.data(),
                 order_by_key(seen, batch),
                 out != nullptr ? memory_.sources.data() : nullptr,
                 nullptr,
                 false};
  marks[1].record(stream);
  if (out != nullptr && batch.alone && !memory_.cache && sorts_places(count)) {
    read_by_place(seen, batch, mixed);
  }
  const auto apply_all = [&] {
    types_.kernels->apply_mixed(stream, seen, batch, mixed);
    if (out != nullptr) launch_hand_out(stream, batch, mixed.source, shape().value_bytes);
  };
  apply_all();
  copy_async(stream, kinds.data(), memory_.kinds.data(), kinds.size() * sizeof(MapOp));
  const auto gets = [&](std::size_t i, MapStatus of) {
    return (of == MapStatus::kept && kinds[i] == MapOp::find) ||
           ((of == MapStatus::kept || of == MapStatus::inserted) &&
            kinds[i] == MapOp::find_or_insert);
  };
  const MapResult result = end_batch(seen, batch, out, status, gets, [&] {
    mixed.again = true;
    types_.kernels->make_mixed_room(stream, seen, batch, mixed, memory_.locks.data());
    apply_all();
  });
  end.has_come();
  return result;
}

// Values over the link in the order of their addresses, in front of all changes, behind which the
// table names other places.
void MapHost::read_by_place(const MapView& view, const MapBatch& batch, MapMixed& mixed) {
  if (memory_.found.size() == 0) memory_.found = DeviceBuffer<std::uint8_t>(max_batch_);
  std::uint32_t* const place = memory_.bucket.data();
  std::uint32_t* const op =
      mixed.ops == memory_.op.data() ? memory_.sorted_op.data() : memory_.op.data();
  MapBatch lookup = batch;
  lookup.order = mixed.ops;
  lookup.status = nullptr;
  lookup.found = memory_.found.data();
  types_.kernels->locate(stream, view, lookup, place, op);
  launch(stream, dim3(blocks_for(batch.count, kThreads)), dim3(kThreads), choose_reads, batch,
         mixed, view.capacity, place, memory_.found.data());
  sort_by_place(place, mixed.ops, op, batch.count);
  map::launch_gather(stream, view, memory_.sorted_bucket.data(), op, batch.out, batch.count);
  mixed.read = memory_.found.data();
}

// By the entries that their keys have claimed; where order pays, then by their buckets: both sorts
// are stable.
const std::uint32_t* MapHost::order_by_key(const MapView& view, const MapBatch& batch) {
  std::uint32_t* const bucket = memory_.bucket.data();
  std::uint32_t* const op = memory_.op.data();
  std::uint32_t* const sorted_bucket = memory_.sorted_bucket.data();
  std::uint32_t* const sorted_op = memory_.sorted_op.data();
  types_.kernels->place(stream, view, batch, bucket, op);
  memory_.sorter.sort(stream, memory_.entry_of.data(), sorted_bucket, op, sorted_op, batch.count,
                      static_cast<unsigned>(std::bit_width(memory_.claims.size() - 1)));
  if (!orders(view, batch, true)) return sorted_op;
  launch(stream, dim3(blocks_for(batch.count, kThreads)), dim3(kThreads), take_buckets, bucket,
         sorted_op, sorted_bucket, batch.count);
  memory_.sorter.sort(stream, sorted_bucket, bucket, sorted_op, op, batch.count,
                      static_cast<unsigned>(std::bit_width(view.buckets)));
  return op;
}

}  // namespace holdfast::detail

// Groups of eight threads move 16 bytes each: 128 side by side, which is what the link and the
// memory behind it move at once.
#include "bytes_map/kernels.hpp"

#include "holdfast/bytes_map_ref.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::bytes_map {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWidth = 8;
using Group = MapGroup<kWidth>;

__device__ std::uint64_t thread_number() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

// Grain `i` of a byte string, which may begin anywhere; with zeros behind its end.
__device__ Grain grain_of(const DeviceStrings& strings, std::uint32_t op, std::uint64_t i) {
  const std::uint64_t at = strings.offsets[op] + i * kGrain;
  const std::uint64_t left = strings.offsets[op + 1] - at;
  const auto* const words = reinterpret_cast<const std::uint64_t*>(strings.bytes) + at / 8;
  const unsigned shift = static_cast<unsigned>(at % 8) * 8;
  Grain grain{words[0] >> shift, words[1] >> shift};
  if (shift != 0) {
    grain.low |= words[1] << (64 - shift);
    grain.high |= words[2] << (64 - shift);
  }
  const auto keep = [](std::uint64_t word, std::uint64_t bytes) {
    return bytes >= 8 ? word : word & ((std::uint64_t{1} << bytes * 8) - 1);
  };
  grain.low = keep(grain.low, left);
  grain.high = left > 8 ? keep(grain.high, left - 8) : 0;
  return grain;
}

__global__ void digest_kernel(DeviceStrings keys, std::uint32_t count, unsigned digest_bits,
                              Bytes<16>* digests) {
  const Group group;
  const std::uint64_t op = thread_number() / kWidth;
  if (op >= count) return;
  const auto of = static_cast<std::uint32_t>(op);
  const std::uint64_t bytes = keys.offsets[of + 1] - keys.offsets[of];
  const Bytes<16> digest =
      digest_by(group, bytes, digest_bits, [&](std::uint64_t i) { return grain_of(keys, of, i); });
  if (group.rank == 0) digests[op] = digest;
}

__global__ void look_kernel(Lookup lookup) {
  const Group group;
  const std::uint64_t number = thread_number() / kWidth;
  if (number >= lookup.count) return;
  const auto op = static_cast<std::uint32_t>(number);
  RecordHead head{};
  Seen seen = Seen::absent;
  if (lookup.found[op] != 0) {
    const Named named = named_by(lookup.records, lookup.words[op]);
    head = named.head;
    seen = Seen::damaged;
    if (named.record != nullptr && lookup.keys.bytes == nullptr) {
      seen = Seen::same;
    } else if (named.record != nullptr) {
      const std::uint64_t bytes = lookup.keys.offsets[op + 1] - lookup.keys.offsets[op];
      seen = compare(
          group, named, bytes, [&](std::uint64_t i) { return grain_of(lookup.keys, op, i); },
          lookup.digest_bits, lookup.digests[op]);
    }
  }
  if (group.rank != 0) return;
  lookup.heads[op] = head;
  lookup.seen[op] = seen;
}

__global__ void read_kernel(Reading reading, const Piece* pieces, std::uint64_t count) {
  const Group group;
  const std::uint64_t number = thread_number() / kWidth;
  if (number >= count) return;
  const Piece piece = pieces[number];
  const std::uint32_t op = piece.op;
  const Extent at = extent_of(reading.words[op]);
  const std::byte* const record = reading.records.at(at);
  const RecordHead head = reading.heads[op];
  const bool wanted = reading.seen[op] == Seen::same;
  const std::uint64_t of_key = grains_for(head.key_bytes);
  const std::uint64_t first = piece.number * kPieceGrains;
  const std::uint64_t behind = first + kPieceGrains;
  const std::uint64_t end = behind < at.grains - 1 ? behind : at.grains - 1;
  std::uint64_t terms = 0;
  for (std::uint64_t i = first + group.rank; i < end; i += kWidth) {
    const Grain grain = grain_at(record, 1 + i);
    terms += sum_term(i, grain.low, grain.high);
    if (!wanted) continue;
    if (i >= of_key) {
      if (reading.values_out != nullptr) {
        write_out(reading.values_out + reading.value_at[op], i - of_key, head.value_bytes, grain);
      }
    } else if (reading.keys_out != nullptr) {
      write_out(reading.keys_out + reading.key_at[op], i, head.key_bytes, grain);
    }
  }
  terms = sum_over(group, terms);
  if (group.rank == 0) atomicAdd(&reading.sums[op], static_cast<unsigned long long>(terms));
}

__global__ void judge_kernel(Reading reading) {
  const std::uint64_t op = thread_number();
  if (op >= reading.count) return;
  if (reading.seen[op] != Seen::same) return;
  const RecordHead head = reading.heads[op];
  const std::uint64_t first = extent_of(reading.words[op]).first;
  if (sum_of(reading.sums[op], head.key_bytes, head.value_bytes, first) != head.sum) {
    reading.seen[op] = Seen::damaged;
  }
}

__global__ void write_kernel(Writing writing, const Piece* pieces, std::uint64_t count) {
  const Group group;
  const std::uint64_t number = thread_number() / kWidth;
  if (number >= count) return;
  const Piece piece = pieces[number];
  const std::uint32_t op = piece.op;
  const Extent at = extent_of(writing.words[op]);
  std::byte* const record = writing.records.at(at);
  const std::uint64_t of_key = grains_for(writing.keys.offsets[op + 1] - writing.keys.offsets[op]);
  const std::uint64_t first = piece.number * kPieceGrains;
  const std::uint64_t behind = first + kPieceGrains;
  const std::uint64_t end = behind < at.grains - 1 ? behind : at.grains - 1;
  std::uint64_t terms = 0;
  for (std::uint64_t i = first + group.rank; i < end; i += kWidth) {
    const Grain grain =
        i < of_key ? grain_of(writing.keys, op, i) : grain_of(writing.values, op, i - of_key);
    store_grain(record, 1 + i, grain);
    terms += sum_term(i, grain.low, grain.high);
  }
  if (group.rank == 0 && first < end) {
    writing.marks.mark(record + (1 + first) * kGrain, (end - first) * kGrain);
  }
  terms = sum_over(group, terms);
  if (group.rank == 0) atomicAdd(&writing.sums[op], static_cast<unsigned long long>(terms));
}

// No fence here or above: what a record is made of becomes durable in any order, before the host
// has waited, and only then the index gets its name.
__global__ void head_kernel(Writing writing) {
  const std::uint64_t number = thread_number();
  if (number >= writing.count || writing.words[number] == 0) return;
  const auto op = static_cast<std::uint32_t>(number);
  const Extent at = extent_of(writing.words[op]);
  const auto length = [op](const DeviceStrings& strings) {
    return static_cast<std::uint32_t>(strings.offsets[op + 1] - strings.offsets[op]);
  };
  const std::uint32_t key_bytes = length(writing.keys), value_bytes = length(writing.values);
  std::byte* const record = writing.records.at(at);
  store_grain(record, 0,
              grain_of(RecordHead{key_bytes, value_bytes,
                                  sum_of(writing.sums[op], key_bytes, value_bytes, at.first)}));
  writing.marks.mark(record, kGrain);
}

}  // namespace

void digest_keys(Stream& stream, const DeviceStrings& keys, std::uint32_t count,
                 unsigned digest_bits, Bytes<16>* digests) {
  launch(stream, dim3(blocks_for(count, kThreads / kWidth)), dim3(kThreads), digest_kernel, keys,
         count, digest_bits, digests);
}

void look(Stream& stream, const Lookup& lookup) {
  launch(stream, dim3(blocks_for(lookup.count, kThreads / kWidth)), dim3(kThreads), look_kernel,
         lookup);
}

void read_records(Stream& stream, const Reading& reading, const Piece* pieces,
                  std::uint64_t count) {
  launch(stream, dim3(blocks_for(count, kThreads / kWidth)), dim3(kThreads), read_kernel, reading,
         pieces, count);
  launch(stream, dim3(blocks_for(reading.count, kThreads)), dim3(kThreads), judge_kernel, reading);
}

void write_records(Stream& stream, const Writing& writing, const Piece* pieces,
                   std::uint64_t count) {
  launch(stream, dim3(blocks_for(count, kThreads / kWidth)), dim3(kThreads), write_kernel, writing,
         pieces, count);
  launch(stream, dim3(blocks_for(writing.count, kThreads)), dim3(kThreads), head_kernel, writing);
}

}  // namespace holdfast::bytes_map

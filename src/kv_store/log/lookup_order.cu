#include "kv_store/log/lookup_order.hpp"

#include <bit>

#include "kv_store/log/look.hpp"

namespace holdfast::kv::log {
namespace {

__device__ std::uint32_t thread_in_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

// The first slot that may be a key's, and its record.
struct Candidate {
  std::uint32_t slot;           // where there is none: the first that is free; kNone: none is
  std::uint32_t where = kNone;  // kNone: there is none
};

__device__ Candidate candidate_for(const FingerprintIndex& index, std::uint64_t inverted,
                                   bool tombstones) {
  Candidate first{kNone};
  const auto take = [&](std::uint32_t slot, std::uint64_t word) {
    if (!tombstones && (word & kErasedBit) != 0) return false;
    first = {slot, static_cast<std::uint32_t>(word)};
    return true;
  };
  const std::uint32_t free = index.search(index.hash_of(inverted), take);
  return first.where != kNone ? first : Candidate{free};
}

// What lookups by the order have, in device memory.
struct Order {
  std::uint32_t* records;
  std::uint32_t* numbers;
};

__global__ void find_candidates(FingerprintIndex index, Batch batch, Order order) {
  const std::uint32_t op = thread_in_row();
  if (op >= batch.count) return;
  Candidate candidate{kNone};
  if (is_last_of_key(batch, op)) candidate = candidate_for(index, ~batch.keys[op], true);
  batch.slots[op] = candidate.slot;
  order.records[op] = candidate.where;
  order.numbers[op] = op;
}

// A record of another key is read in vain; then all of the search is made.
__device__ Tally look_at(const FingerprintIndex& index, const Batch& batch, std::uint32_t op,
                         std::uint32_t where) {
  const std::uint32_t slot = batch.slots[op];
  if (slot == kNone && !is_last_of_key(batch, op)) return {};
  if (where == kNone) return note_place(index, batch, op, Place{slot});
  const std::uint64_t key = ~batch.keys[op];
  const Record record = index.record_at(where);
  if (record.key != key) return note_place(index, batch, op, find_place(index, key));
  const bool erased = (where & kErasedBit) != 0;
  return note_place(index, batch, op, {slot, !erased, erased, record.value});
}

__global__ void look_in_order(FingerprintIndex index, Batch batch, Order order, Outcome* outcome) {
  if (outcome->reserved_keys != 0) return;
  const std::uint32_t i = thread_in_row();
  Tally tally;
  if (i < batch.count) tally = look_at(index, batch, order.numbers[i], order.records[i]);
  add_up(tally, batch, outcome);
}

__global__ void find_candidates_of_keys(FingerprintIndex index, const std::uint64_t* keys,
                                        std::uint32_t count, Order order) {
  const std::uint32_t i = thread_in_row();
  if (i >= count) return;
  order.records[i] = candidate_for(index, ~keys[i], false).where;
  order.numbers[i] = i;
}

__global__ void get_in_order(FingerprintIndex index, const std::uint64_t* keys,
                             std::uint64_t* values, std::uint8_t* found, std::uint32_t count,
                             Order order) {
  const std::uint32_t i = thread_in_row();
  if (i >= count) return;
  const std::uint32_t number = order.numbers[i];
  const std::uint32_t where = order.records[i];
  std::uint64_t value = 0;
  bool there = false;
  if (where != kNone) {
    const std::uint64_t key = keys[number];
    const Record record = index.record_at(where);
    there = record.key == ~key;
    if (there) {
      value = record.value;
    } else {
      there = find_value(index, key, &value);
    }
  }
  values[number] = value;
  found[number] = there;
}

}  // namespace

LookupOrder::LookupOrder(std::uint32_t max_count)
    : records_(max_count),
      numbers_(max_count),
      sorted_records_(max_count),
      sorted_numbers_(max_count),
      sorter_(max_count) {}

// Lookups that read no record come last.
void LookupOrder::sort(Stream& stream, const FingerprintIndex& index, std::uint32_t count) {
  const auto bits = static_cast<unsigned>(std::bit_width(index.positions));
  sorter_.sort(stream, records_.data(), sorted_records_.data(), numbers_.data(),
               sorted_numbers_.data(), count, bits);
}

void LookupOrder::look(Stream& stream, const FingerprintIndex& index, const Batch& batch,
                       Outcome* outcome) {
  const unsigned blocks = blocks_for(batch.count, kBlock);
  launch(stream, blocks, kBlock, find_candidates, index, batch,
         Order{records_.data(), numbers_.data()});
  sort(stream, index, batch.count);
  launch(stream, blocks, kBlock, look_in_order, index, batch,
         Order{sorted_records_.data(), sorted_numbers_.data()}, outcome);
}

void LookupOrder::get(Stream& stream, const FingerprintIndex& index, const std::uint64_t* keys,
                      std::uint64_t* values, std::uint8_t* found, std::uint32_t count) {
  const unsigned blocks = blocks_for(count, kBlock);
  launch(stream, blocks, kBlock, find_candidates_of_keys, index, keys, count,
         Order{records_.data(), numbers_.data()});
  sort(stream, index, count);
  launch(stream, blocks, kBlock, get_in_order, index, keys, values, found, count,
         Order{sorted_records_.data(), sorted_numbers_.data()});
}

}  // namespace holdfast::kv::log

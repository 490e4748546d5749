#include "kv_store/log/memory.hpp"

#include <algorithm>
#include <bit>

#include "kv_store/log/rules.hpp"

namespace holdfast::kv::log {
namespace {

using Form = KvStore::Index;

// A power of two, of which pairs take half at most. Of three quarters, which pairs and tombstones
// may take, the pairs leave room for the tombstones of a segment: those of the one that is written
// to are not dropped before it is full.
std::uint64_t slots_for(const LogParameters& shape, Form form) {
  const std::uint64_t least = form == Form::whole ? 16 : FingerprintIndex::kLeastSlots;
  const std::uint64_t beside_tombstones = (shape.capacity + shape.segment_records) / 3 * 4 + 4;
  return std::bit_ceil(std::max({least, shape.capacity * 2, beside_tombstones}));
}

// Slots by operation of a batch, or by record of a piece of cleaning.
std::uint32_t kept_for(const LogParameters& shape) {
  return std::max(shape.max_batch, shape.segment_records);
}

// What an index of that form takes, for its largest batch, too. While it is loaded it takes a word
// more for each slot, and room for the records on their way.
std::uint64_t device_bytes(const LogParameters& shape, Form form) {
  const bool whole = form == Form::whole;
  const std::uint64_t slot = whole ? sizeof(KvPair) + sizeof(std::uint32_t) : sizeof(std::uint64_t);
  const std::uint64_t order = whole ? 0 : LookupOrder::bytes(shape.max_batch);
  return (slots_for(shape, form) + 1) * (slot + sizeof(std::uint32_t)) +
         shape.records() * sizeof(std::uint32_t) + std::uint64_t{shape.max_batch} * 20 + order +
         std::uint64_t{kept_for(shape)} * 4 + claims_for(shape.max_batch) * 8 +
         (std::uint64_t{32} << 20);
}

}  // namespace

Memory Memory::make(const LogParameters& shape, Form asked) {
  const std::uint64_t free =
      std::min<std::uint64_t>(backend::free_device_memory(), g_most_device_memory);
  const IndexNeeds needs{shape.capacity, shape.records(), device_bytes(shape, Form::whole),
                         device_bytes(shape, Form::fingerprints)};
  const Form form = choose_index(asked, needs, free);
  try {
    return Memory(shape, form);
  } catch (const Error& error) {
    // What is free may be in pieces, or another process's by now.
    if (asked != Form::automatic || form != Form::whole || error.code() != Errc::no_memory) throw;
  }
  return Memory(shape, Form::fingerprints);
}

Memory::Memory(const LogParameters& shape, Form form)
    : slot_of(shape.records()),
      counts(2 * std::size_t{shape.segments}),
      keys(shape.max_batch),
      values(shape.max_batch),
      claims(claims_for(shape.max_batch)),
      claim_of(shape.max_batch),
      slots(kept_for(shape)),
      segments(shape.segments),
      victims(shape.segments),
      work(sizeof(Outcome) + shape.segments * sizeof(unsigned long long)),
      segments_in(shape.segments),
      victims_in(shape.segments),
      counts_out(2 * std::size_t{shape.segments}),
      mask_(slots_for(shape, form) - 1),
      shift_(static_cast<std::uint32_t>(std::bit_width(shape.segment_records) - 1)),
      positions_(static_cast<std::uint32_t>(shape.records())) {
  if (form == Form::whole) {
    pairs = DeviceBuffer<KvPair>(mask_ + 2);
    where = DeviceBuffer<std::uint32_t>(mask_ + 2);
  } else {
    words = DeviceBuffer<std::uint64_t>(mask_ + 1);
    lives = DeviceBuffer<std::uint32_t>(shape.segments);
    order.emplace(shape.max_batch);
  }
}

AnyIndex Memory::index(const Record* records) const {
  std::uint32_t* const live = counts.data();
  const IndexBase base{slot_of.data(), live, live + counts.size() / 2, mask_, shift_, positions_};
  if (form() == Form::whole) return Index{base, pairs.data(), where.data()};
  return FingerprintIndex{base, words.data(), lives.data(), records};
}

void Memory::clear_index(Stream& stream) {
  fill_async(stream, counts.data(), 0, counts.bytes());
  if (form() == KvStore::Index::fingerprints) {
    fill_async(stream, words.data(), 0, words.bytes());
    return;
  }
  fill_async(stream, pairs.data(), 0, pairs.bytes());
  fill_async(stream, where.data(), 0, where.bytes());
}

}  // namespace holdfast::kv::log

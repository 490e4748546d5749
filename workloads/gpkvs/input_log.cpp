#include "gpkvs/input_log.hpp"

#include "holdfast/error.hpp"

namespace gpkvs {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;
using Piece = workload::Backing::Piece;

constexpr std::uint64_t kLine = 64;
constexpr const char* kRemedy = ": remove the region and begin anew";

std::uint64_t whole_lines(std::uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::uint64_t array_bytes(std::uint32_t max_sets) {
  return whole_lines(max_sets * sizeof(std::uint64_t));
}

}  // namespace

InputLog::InputLog(workload::Backing& backing, std::uint64_t batches, std::uint32_t max_sets)
    : backing_(backing),
      batches_(batches),
      max_sets_(max_sets),
      id_(backing.target("input log", medium_bytes(batches, max_sets))) {}

std::uint64_t InputLog::medium_bytes(std::uint64_t batches, std::uint32_t max_sets) {
  return sizeof(Head) + batches * (sizeof(BatchHead) + 2 * array_bytes(max_sets));
}

std::uint64_t InputLog::slot_bytes() const {
  return sizeof(BatchHead) + 2 * array_bytes(max_sets_);
}

std::uint64_t InputLog::slot_of(std::uint64_t step) const {
  return sizeof(Head) + (step - first()) * slot_bytes();
}

std::uint64_t InputLog::first() const {
  return reinterpret_cast<const Head*>(backing_.on_medium(id_))->first;
}

void InputLog::append(std::uint64_t step, const std::uint64_t* keys, const std::uint64_t* values,
                      std::uint64_t count, bool on_device) {
  const std::uint64_t slot = slot_of(step);
  const std::uint64_t keys_at = slot + sizeof(BatchHead);
  const std::uint64_t values_at = keys_at + array_bytes(max_sets_);
  const std::uint64_t bytes = count * sizeof(*keys);
  const BatchHead head{count};
  backing_.timed([&] {
    if (on_device) {
      backing_.store(id_, std::initializer_list<Piece>{{slot, &head, sizeof(head)}});
      backing_.copy_to_target(id_, keys_at, keys, bytes);
      backing_.copy_to_target(id_, values_at, values, bytes);
    } else {
      backing_.store(id_, std::initializer_list<Piece>{{slot, &head, sizeof(head)},
                                                       {keys_at, keys, bytes},
                                                       {values_at, values, bytes}});
    }
  });
}

void InputLog::begin_at(std::uint64_t step) {
  const Head head{step};
  backing_.timed([&] {
    backing_.store(id_, std::initializer_list<Piece>{{0, &head, sizeof(head)}});
  });
}

void InputLog::check(std::uint64_t steps) const {
  if (first() <= steps && steps - first() <= batches_) return;
  throw Error(Errc::damaged,
              concat("the input log of gpKVS begins at step ", first(), " and holds ", batches_,
                     " batches, and ", steps, " are in", kRemedy));
}

InputLog::Batch InputLog::batch(std::uint64_t step) const {
  const unsigned char* const slot = backing_.on_medium(id_) + slot_of(step);
  const std::uint64_t count = reinterpret_cast<const BatchHead*>(slot)->count;
  if (count > max_sets_) {
    throw Error(Errc::damaged, concat("the input log of gpKVS holds ", count, " SETs for step ",
                                      step, ", and has room for ", max_sets_, kRemedy));
  }
  const unsigned char* const keys = slot + sizeof(BatchHead);
  return {reinterpret_cast<const std::uint64_t*>(keys),
          reinterpret_cast<const std::uint64_t*>(keys + array_bytes(max_sets_)), count};
}

}  // namespace gpkvs

// Which record at a position is live, as the index knows it.
#pragma once

#include "kv_store/log/index.hpp"

namespace holdfast::kv::log {

struct Held {
  std::uint32_t slot = kNone;  // kNone: what is there is dead
  bool tombstone = false;
};

__device__ inline Held held_at(const Index& index, std::uint32_t position) {
  if (position == 0) return {};
  const std::uint32_t slot = index.slot_of[position];
  const std::uint32_t where = index.where[slot];
  if ((where & ~kErasedBit) != position) return {};
  return {slot, (where & kErasedBit) != 0};
}

}  // namespace holdfast::kv::log

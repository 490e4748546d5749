#include "adjoint/snapshot_store.hpp"

#include <algorithm>

#include "adjoint/revolve_schedule.hpp"
#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::Error;
using holdfast::Stream;
using holdfast::detail::concat;

void Snapshot::save(const std::map<std::string, Protected>& arrays, std::uint64_t step,
                    Stream& stream) {
  for (const auto& [name, array] : arrays) {
    Copy& copy = copies_[name];
    if (copy.memory.size() < array.bytes) {
      try {
        if (copy.memory.size() != 0) stream.synchronize();  // it may be in use
        copy.memory = DeviceBuffer<unsigned char>();
        copy.memory = DeviceBuffer<unsigned char>(array.bytes);
      } catch (const Error& error) {
        if (error.code() != Errc::no_memory) throw;
        throw Error(
            Errc::no_memory,
            concat("adjoint: no device memory for step ", step,
                   ": keep fewer (--store revolve), or smaller ones (--compress): ", error.what()));
      }
    }
    copy.bytes = array.bytes;
    if (array.bytes != 0) copy_async(stream, copy.memory.data(), array.device, array.bytes);
  }
}

void Snapshot::restore(const std::map<std::string, Protected>& arrays, std::uint64_t step,
                       Stream& stream) const {
  for (const auto& [name, array] : arrays) {
    if (size(name, step) == array.bytes) continue;
    throw Error(Errc::invalid_argument,
                concat("adjoint: '", name, "' of step ", step, " has ", size(name, step),
                       " bytes, and is protected with ", array.bytes, ": protect it with size()"));
  }
  for (const auto& [name, array] : arrays) {
    if (array.bytes == 0) continue;
    copy_async(stream, array.device, copies_.at(name).memory.data(), array.bytes);
  }
}

std::uint64_t Snapshot::size(const std::string& name, std::uint64_t step) const {
  const auto copy = copies_.find(name);
  if (copy != copies_.end()) return copy->second.bytes;
  throw Error(Errc::not_found,
              concat("adjoint: step ", step, " was saved without '", name, "': protect it before"));
}

std::uint64_t Snapshot::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [name, copy] : copies_) sum += copy.bytes;
  return sum;
}

void MemoryStore::plan(std::span<const std::uint64_t>) {
  for (auto& [step, kept] : kept_) kept.saved = false;
  bytes_ = 0;
}

void MemoryStore::protect(const std::string& name, void* device, std::uint64_t bytes) {
  arrays_[name] = {device, bytes};
}

void MemoryStore::save(std::uint64_t step, Stream& stream) {
  Kept& kept = kept_[step];
  if (kept.saved) bytes_ -= kept.snapshot.bytes();
  kept.saved = false;
  kept.snapshot.save(arrays_, step, stream);
  kept.saved = true;
  bytes_ += kept.snapshot.bytes();
  most_bytes_ = std::max(most_bytes_, bytes_);
}

const Snapshot& MemoryStore::at(std::uint64_t step) const {
  const auto kept = kept_.find(step);
  if (kept != kept_.end() && kept->second.saved) return kept->second.snapshot;
  throw Error(Errc::not_found, concat("adjoint: step ", step, " was not saved: save it first"));
}

void MemoryStore::restore(std::uint64_t step, Stream& stream) {
  at(step).restore(arrays_, step, stream);
}

std::uint64_t MemoryStore::size(std::uint64_t step, const std::string& name) const {
  return at(step).size(name, step);
}

RevolveStore::RevolveStore(std::uint64_t snapshots, Advance advance)
    : snapshots_(snapshots), advance_(std::move(advance)) {
  if (snapshots != 0) return;
  throw Error(Errc::invalid_argument, "adjoint: revolve without a snapshot: give it one or more");
}

void RevolveStore::plan(std::span<const std::uint64_t> restore_order) {
  for (std::uint64_t i = 0; i < restore_order.size(); ++i) {
    if (restore_order[i] == restore_order.size() - 1 - i) continue;
    throw Error(Errc::invalid_argument,
                concat("adjoint: revolve restores from the last step down to 0, and the plan has ",
                       restore_order[i], " as number ", i, ": keep the steps in memory for that"));
  }
  steps_ = restore_order.size();
  saved_ = live_ = next_ = 0;
  left_ = steps_;
  held_.clear();
}

void RevolveStore::protect(const std::string& name, void* device, std::uint64_t bytes) {
  arrays_[name] = {device, bytes};
}

void RevolveStore::keep(std::uint64_t step, Stream& stream) {
  const std::uint64_t slot = held_.size();
  if (slot == slots_.size()) slots_.emplace_back();
  slots_[slot].save(arrays_, step, stream);
  held_.push_back(step);
  most_held_ = std::max<std::uint64_t>(most_held_, held_.size());
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < held_.size(); ++i) bytes += slots_[i].bytes();
  most_bytes_ = std::max(most_bytes_, bytes);
}

// Which step to keep next, on the way from the last one that is held to `last`; `last` if none.
void RevolveStore::choose_next(std::uint64_t last) {
  const std::uint64_t from = held_.back(), steps = last + 1 - from;
  const std::uint64_t free = snapshots_ - held_.size();
  next_ = steps > 1 && free > 0 ? from + best_advance(steps, free + 1) : last;
}

void RevolveStore::save(std::uint64_t step, Stream& stream) {
  if (step != saved_ || step >= steps_) {
    throw Error(Errc::invalid_argument,
                concat("adjoint: revolve was given step ", step, " of ", steps_,
                       ", and it is the turn of ", saved_, ": plan() first, then save each step"));
  }
  ++saved_;
  live_ = step;
  const bool last = step + 1 == steps_;
  if (step == 0 || (step == next_ && !last)) {
    keep(step, stream);
    choose_next(steps_ - 1);
  }
}

void RevolveStore::restore(std::uint64_t step, Stream& stream) {
  if (saved_ != steps_ || left_ == 0 || step != left_ - 1) {
    throw Error(Errc::invalid_argument,
                concat("adjoint: revolve was asked for step ", step, " of ", steps_, ", when ",
                       saved_, " were saved and ", steps_ - left_,
                       " restored: save all of them, then restore from the last one down"));
  }
  if (live_ != step) {
    slots_[held_.size() - 1].restore(arrays_, held_.back(), stream);
    live_ = held_.back();
    choose_next(step);
    while (live_ != step) {
      advance_(live_, stream);
      ++recomputed_;
      ++live_;
      if (live_ == next_ && live_ != step) {
        keep(live_, stream);
        choose_next(step);
      }
    }
  }
  --left_;
  if (held_.back() == step) held_.pop_back();
}

std::uint64_t RevolveStore::size(std::uint64_t step, const std::string& name) const {
  const auto array = arrays_.find(name);
  if (step < saved_ && array != arrays_.end()) return array->second.bytes;
  throw Error(Errc::not_found, concat("adjoint: step ", step, " was not saved with '", name, "'"));
}

}  // namespace adjoint

// Storage that lacks what slower storage has, and storage that is about to have room.
#include <algorithm>

#include "history/catalog.hpp"

namespace holdfast::history {

// REQUIRES: the checkpoint is not to go. Called when its copies have changed.
void Catalog::note_refills(Step step, const Checkpoint& checkpoint) {
  for (int tier = 0; tier + 1 < tiers(); ++tier) {
    if (!is_storage(tier)) continue;
    Tier& at = tier_at(tier);
    const bool lacks = checkpoint.copies[tier].state == State::absent &&
                       checkpoint.failed_refills < options_.flush_attempts &&
                       has_whole_below(checkpoint, tier);
    if (!lacks) {
      at.refills.erase(step);
      continue;
    }
    if (at.refills.empty()) at.least_refill = checkpoint.bytes;
    at.refills.insert(step);
    at.least_refill = std::min(at.least_refill, checkpoint.bytes);
  }
}

void Catalog::forget_refills(Step step) {
  for (Tier& tier : tiers_) tier.refills.erase(step);
}

bool Catalog::may_refill(int tier) const {
  const Tier& at = tier_at(tier);
  return at.fetch_alive && !at.refills.empty() && storage_takes(tier, at.least_refill);
}

bool Catalog::refill_given_up(Step step) const {
  const auto found = checkpoints_.find(step);
  return found != checkpoints_.end() && found->second.failed_refills >= options_.flush_attempts;
}

bool Catalog::refill_pending() const {
  for (const Transfer& transfer : transfers_) {
    if (transfer.kind == Transfer::Kind::refill) return true;
  }
  for (int tier = 0; tier < tiers(); ++tier) {
    if (!is_storage(tier) || !may_refill(tier)) continue;
    for (const Step step : tier_at(tier).refills) {
      if (storage_takes(tier, bytes_of(step))) return true;
    }
  }
  return false;
}

// The newest first: a program that begins anew goes on from it.
std::optional<Transfer> Catalog::next_refill(int tier) {
  if (!may_refill(tier)) return std::nullopt;
  Tier& at = tier_at(tier);
  std::uint64_t least = ~std::uint64_t{0};
  for (auto next = at.refills.rbegin(); next != at.refills.rend(); ++next) {
    const Step step = *next;
    const Checkpoint& checkpoint = checkpoints_.at(step);
    least = std::min(least, checkpoint.bytes);
    if (!storage_takes(tier, checkpoint.bytes)) continue;
    int from = tier + 1;
    while (!is_whole(checkpoint.copies[from].state)) ++from;
    at.refills.erase(step);
    return begin_into(Transfer::Kind::refill, step, from, tier, 0);
  }
  at.least_refill = least;  // not asked again until so much is free
  return std::nullopt;
}

// Something is on its way to storage, or will be without the program's help.
bool Catalog::storage_gets() const {
  for (const Transfer& transfer : transfers_) {
    if (transfer.to != kProgram && is_storage(transfer.to)) return true;
  }
  for (int tier = 0; tier + 1 < tiers(); ++tier) {
    if (!tier_at(tier).flush_alive) continue;
    for (const auto& [step, bytes, mark, note] : tier_at(tier).flush_queue) {
      const auto found = checkpoints_.find(step);
      if (found == checkpoints_.end() || found->second.doomed) continue;
      if (!is_alone(found->second.copies[tier].state)) continue;
      for (int below = tier + 1; below < tiers(); ++below) {
        if (is_storage(below) && storage_takes(below, bytes)) return true;
      }
    }
  }
  return false;
}

// It has room, or will have if the rule of retention lets others go for what is on its way; when
// that has come the answer may be another.
bool Catalog::storage_may_take(int tier, std::uint64_t bytes) const {
  if (storage_takes(tier, bytes)) return true;
  return options_.retains && bytes <= tier_at(tier).spec.capacity && storage_gets();
}

}  // namespace holdfast::history

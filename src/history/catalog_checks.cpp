// What a catalog can say of itself: for assertions, tests and the search.
#include <string>
#include <vector>

#include "history/catalog.hpp"

namespace holdfast::history {

bool Catalog::valid(std::string* why) const {
  const auto wrong = [&](Step step, int tier, const char* what) {
    if (why) {
      *why = "checkpoint " + std::to_string(step) + ", tier " + std::to_string(tier) + ": " + what;
    }
    return false;
  };
  std::vector<std::size_t> copies(tiers_.size());
  std::vector<std::uint64_t> stored(tiers_.size());
  for (const auto& [step, checkpoint] : checkpoints_) {
    for (int tier = 0; tier < tiers(); ++tier) {
      const Copy& copy = checkpoint.copies[tier];
      const bool there = copy.state != State::absent;
      const Fragment* room = is_storage(tier) ? nullptr : tier_at(tier).space.find(step);
      if (!is_storage(tier) && there != (room != nullptr)) {
        return wrong(step, tier, "its room and its state differ");
      }
      if (room && room->note != note_of(step, checkpoint, tier)) {
        return wrong(step, tier, "its fragment's note is out of date");
      }
      if (room && room->offset != copy.offset) return wrong(step, tier, "is not where it was put");
      const bool lacks = !there && !checkpoint.doomed && has_whole_below(checkpoint, tier) &&
                         checkpoint.failed_refills < options_.flush_attempts;
      if (is_storage(tier) && lacks != tier_at(tier).refills.contains(step)) {
        return wrong(step, tier, "is to be written again, or not, against what slower storage has");
      }
      if (there && is_storage(tier)) stored[static_cast<std::size_t>(tier)] += checkpoint.bytes;
      if (there && !is_storage(tier)) ++copies[static_cast<std::size_t>(tier)];
      if (is_whole(copy.state) && !checkpoint.doomed &&
          is_alone(copy.state) == has_whole_below(checkpoint, tier)) {
        return wrong(step, tier, "alone, or not, against what slower tiers have");
      }
      int readers = 0;
      bool written = false;
      for (const Transfer& transfer : transfers_) {
        if (transfer.step != step) continue;
        if (transfer.from == tier) {
          ++readers;
          if (!is_whole(copy.state)) return wrong(step, tier, "is read, and is not whole");
          if (room && room->offset != transfer.from_offset) return wrong(step, tier, "has moved");
        }
        if (transfer.to == tier) {
          if (written) return wrong(step, tier, "is written twice");
          written = true;
          if (room && room->offset != transfer.to_offset) return wrong(step, tier, "has moved");
        }
      }
      if (readers != copy.readers) return wrong(step, tier, "its readers are not counted right");
      if (written != (there && !is_whole(copy.state))) {
        return wrong(step, tier, "is being written, or not, against its state");
      }
    }
  }
  if (const char* const what = wrong_front()) return wrong(0, 0, what);
  for (int tier = 0; tier < tiers(); ++tier) {
    const Tier& at = tier_at(tier);
    if (at.spec.storage) {
      if (at.used != stored[static_cast<std::size_t>(tier)]) return wrong(0, tier, "bytes in use");
      continue;
    }
    if (!at.space.valid()) return wrong(0, tier, "the allocation table");
    for (const auto& [step, places] : places_) {
      const std::uint64_t place = places.front();
      if (place >= at.unlooked_from || at.unlooked.contains(place)) continue;
      const auto found = checkpoints_.find(step);
      if (found == checkpoints_.end() || !needs_no_fetch(found->second, tier)) {
        return wrong(step, tier, "is to be fetched, and would not be looked at");
      }
    }
    std::size_t held = 0;
    for (const Fragment& fragment : at.space.fragments()) held += fragment.step != kGap;
    if (held != copies[static_cast<std::size_t>(tier)]) {
      return wrong(0, tier, "room of a checkpoint that is not there");
    }
  }
  return true;
}

// What the front is not, counted anew; null if it is right.
const char* Catalog::wrong_front() const {
  if (front_.limit == 0) return nullptr;
  double bytes = 0;
  for (const auto& [step, checkpoint] : checkpoints_)
    bytes += static_cast<double>(checkpoint.bytes);
  const double mean = checkpoints_.empty() ? static_cast<double>(front_.limit)
                                           : bytes / static_cast<double>(checkpoints_.size());
  double front = 0;
  std::uint64_t count = 0, saved_bytes = 0, unsaved = 0;
  for (const auto& [place, step] : hints_) {
    const auto found = checkpoints_.find(step);
    found == checkpoints_.end() ? ++unsaved : saved_bytes += found->second.bytes;
    front = static_cast<double>(saved_bytes) + static_cast<double>(unsaved) * mean;
    const bool fits = front <= static_cast<double>(front_.limit) && ++count <= Front::kMost;
    if (fits != (place < front_.end)) return "the front of the restore order ends elsewhere";
    if (!fits) break;
  }
  return nullptr;
}

std::vector<Step> Catalog::known_steps() const {
  std::vector<Step> steps;
  for (const auto& [step, checkpoint] : checkpoints_) steps.push_back(step);
  return steps;
}

std::string Catalog::fingerprint() const {
  std::string out;
  const auto add = [&](std::uint64_t number) {  // variable length: seven bits a byte
    for (; number > 127; number >>= 7) out += static_cast<char>(number | 128);
    out += static_cast<char>(number);
  };
  for (const auto& [step, checkpoint] : checkpoints_) {
    add(step + 1);
    add(checkpoint.bytes);
    add(checkpoint.keep | checkpoint.arrived << 1 | checkpoint.doomed << 2);
    add(static_cast<std::uint64_t>(checkpoint.failed_refills));
    for (int tier = 0; tier < tiers(); ++tier) {
      const Copy& copy = checkpoint.copies[tier];
      add(static_cast<std::uint64_t>(copy.state));
      add(static_cast<std::uint64_t>(copy.readers));
      add(static_cast<std::uint64_t>(copy.failed_flushes));
      if (is_alone(copy.state)) add(copy.flush_mark - tier_at(tier).flushed);
      if (!tier_at(tier).spec.keeps_newest || copy.state == State::absent) continue;
      const auto came_before = [&](const auto& entry) {
        const Copy& other = entry.second.copies[tier];
        return other.state != State::absent && other.arrival < copy.arrival;
      };
      add(static_cast<std::uint64_t>(
          std::count_if(checkpoints_.begin(), checkpoints_.end(), came_before)));
    }
  }
  for (const Tier& tier : tiers_) {
    add(0);
    add(tier.flush_alive | tier.fetch_alive << 1 | tier.takes << 2);
    add(tier.queued - tier.flushed);
    for (const Unflushed& entry : tier.flush_queue) add(entry.step + 1);
    add(static_cast<std::uint64_t>(tier.flushes_to_oldest));
    add(0);
    for (const Fragment& fragment : tier.space.fragments()) {
      add(fragment.offset);
      add(fragment.step + 1);  // 0: a gap
    }
  }
  add(transfers_.size());
  for (const Transfer& transfer : transfers_) {
    add(static_cast<std::uint64_t>(transfer.kind) << 1 | transfer.keep);
    add(transfer.step);
    add(static_cast<std::uint8_t>(transfer.from + 1));
    add(static_cast<std::uint8_t>(transfer.to + 1));
  }
  for (const auto& [place, step] : hints_) {
    add(place - hints_.begin()->first + 1);
    add(step);
  }
  add(0);
  add(static_cast<std::uint64_t>(waiting_callers_) << 1 | prefetching_);
  add(static_cast<std::uint64_t>(drains_));
  return out;
}

}  // namespace holdfast::history

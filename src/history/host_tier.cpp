#include "history/host_tier.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/checksum.hpp"

namespace holdfast::history {

using holdfast::detail::concat;

namespace {

constexpr const char* kName = "history";

std::uint64_t checksum_of(const HostSlot& slot) {
  HostSlot copy = slot;
  copy.counts = 0;
  copy.checksum = 0;
  return core::hash_bytes(&copy, sizeof(copy));
}

void set_counts(HostSlot& slot, std::uint64_t value) {
  // Of this process; a killed one's stores are all in the memory that the next one finds.
  std::atomic_ref(slot.counts).store(value);
}

// Nothing if the slot does not hold.
std::optional<HostTier::Found> decode(const HostSlot& slot, std::uint64_t capacity) {
  if (slot.counts != kCounts || slot.checksum != checksum_of(slot)) return std::nullopt;
  if (slot.step == kGap || slot.bytes == 0 || slot.bytes > capacity) return std::nullopt;
  if (slot.offset % core::kPage != 0 || slot.offset > capacity - slot.bytes) return std::nullopt;
  if (slot.parts == 0 || slot.parts > HostSlot::kMostParts) return std::nullopt;
  HostTier::Found found;
  found.offset = slot.offset;
  found.info.step = slot.step;
  found.info.bytes = slot.bytes;
  found.info.saved_at_ns = slot.saved_at_ns;
  found.info.stamp = {slot.stamp_run, slot.stamp_save};
  for (std::uint64_t i = 0; i < slot.parts; ++i) {
    const PartEntry& entry = slot.part[i];
    if (std::memchr(entry.name, 0, sizeof(entry.name)) == nullptr) return std::nullopt;
    found.info.parts.push_back({entry.name, entry.offset, entry.bytes});
  }
  try {
    check_info(found.info);
  } catch (const Error&) {
    return std::nullopt;
  }
  return found;
}

}  // namespace

std::vector<holdfast::Part> HostParameters::parts() const {
  if (bytes == 0 || slots == 0) {
    throw Error(Errc::invalid_argument, "a host tier has bytes and slots");
  }
  return {holdfast::Part::array<HostSlot>("slots", slots, Tracking::none),
          holdfast::Part::array<std::uint8_t>("bytes", bytes, Tracking::none)};
}

HostTier::HostTier(std::uint64_t bytes, const std::string& region) {
  if (region.empty()) {
    pinned_ = PinnedBuffer<std::byte>(bytes);
    data_ = pinned_.data();
    return;
  }
  open_region(bytes, region);
  data_ = reinterpret_cast<std::byte*>(object_->part<std::uint8_t>("bytes").data());
  slots_ = object_->part<HostSlot>("slots");
  read_slots();
}

void HostTier::open_region(std::uint64_t bytes, const std::string& path) {
  const HostParameters parameters{
      bytes, std::clamp<std::uint64_t>(bytes >> 16, 64, std::uint64_t{1} << 14)};
  RegionOptions options;
  options.size = Durable<HostParameters>::region_bytes(parameters);
  region_ = Region::open_or_create(path, options);
  if (!region_->contains(concat(kName, ".", holdfast::Part::kHeader))) {
    object_ = Durable<HostParameters>::create(*region_, kName, parameters);
    region_->commit();
  } else {
    object_ = Durable<HostParameters>::open(*region_, kName);
  }
  const HostParameters& there = object_->parameters();
  if (there.bytes == parameters.bytes && there.slots == parameters.slots) return;
  throw Error(Errc::invalid_argument, concat("region '", path, "' has a host tier of ", there.bytes,
                                             " bytes: give it as "
                                             "host_bytes, or remove the region"));
}

void HostTier::read_slots() {
  const std::uint64_t capacity = object_->parameters().bytes;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    std::optional<Found> found = decode(slots_[i], capacity);
    if (found && !used_.contains(found->info.step)) {
      used_[found->info.step] = i;
      found_.push_back(std::move(*found));
    } else {
      set_counts(slots_[i], 0);
      free_.push_back(i);
    }
  }
  std::reverse(free_.begin(), free_.end());
  std::sort(found_.begin(), found_.end(),
            [](const Found& a, const Found& b) { return a.offset < b.offset; });
}

void HostTier::keep(const StepInfo& info, std::uint64_t offset) {
  forget(info.step);
  if (free_.empty() || info.parts.size() > HostSlot::kMostParts) return;
  const std::size_t index = free_.back();
  HostSlot& slot = slots_[index];
  std::memset(static_cast<void*>(&slot), 0, sizeof(slot));
  slot.step = info.step;
  slot.offset = offset;
  slot.bytes = info.bytes;
  slot.saved_at_ns = info.saved_at_ns;
  slot.stamp_run = info.stamp.run;
  slot.stamp_save = info.stamp.save;
  slot.parts = info.parts.size();
  for (std::size_t i = 0; i < info.parts.size(); ++i) {
    const Part& part = info.parts[i];
    std::memcpy(slot.part[i].name, part.name.data(), part.name.size());
    slot.part[i].offset = part.offset;
    slot.part[i].bytes = part.bytes;
  }
  slot.checksum = checksum_of(slot);
  used_[info.step] = index;
  free_.pop_back();
  set_counts(slot, kCounts);
}

void HostTier::forget(Step step) {
  const auto found = used_.find(step);
  if (found == used_.end()) return;
  set_counts(slots_[found->second], 0);
  free_.push_back(found->second);
  used_.erase(found);
}

void HostTier::close(bool leave) {
  data_ = nullptr;
  slots_ = {};
  pinned_ = {};
  object_.reset();
  if (!region_) return;
  if (leave) {
    region_->abandon();
  } else {
    region_->close();
  }
  region_.reset();
}

}  // namespace holdfast::history

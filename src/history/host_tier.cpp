#include "history/host_tier.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <type_traits>
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

// Where the table stands, from the blob's beginning.
std::uint64_t table_offset(std::uint64_t bytes) {
  return (bytes + sizeof(PartEntry) - 1) / sizeof(PartEntry) * sizeof(PartEntry);
}
std::uint64_t room(std::uint64_t bytes, std::uint64_t parts) {
  return parts <= HostSlot::kMostParts ? bytes : table_offset(bytes) + parts * sizeof(PartEntry);
}

std::uint64_t slots_for(std::uint64_t bytes) {
  return std::clamp<std::uint64_t>(bytes >> 16, 64, std::uint64_t{1} << 14);
}

std::vector<holdfast::Part> parts_of(std::uint64_t bytes, std::uint64_t slots) {
  if (bytes == 0 || slots == 0) {
    throw Error(Errc::invalid_argument, "a tier in a region has bytes and slots");
  }
  return {holdfast::Part::array<HostSlot>("slots", slots, Tracking::none),
          holdfast::Part::array<std::uint8_t>("bytes", bytes, Tracking::none)};
}

template <class Parameters>
constexpr bool kIsLent = std::is_same_v<Parameters, LentParameters>;

// What differs from what is wanted, in words; empty if nothing does. Of sizes open_region() tells.
std::string difference_of(const HostParameters&, const HostParameters&) { return {}; }
std::string difference_of(const OwnedParameters& there, const OwnedParameters& wanted) {
  const std::string_view owner(there.owner, ::strnlen(there.owner, sizeof(there.owner)));
  if (owner == wanted.owner) return {};
  return concat("copies of '", owner, "', and partner_owner is '", wanted.owner,
                "': give each rank a region of its own");
}

template <class Parameters>
Parameters partner_parameters(std::uint64_t bytes, const std::string& owner) {
  Parameters parameters;
  parameters.bytes = bytes;
  parameters.slots = slots_for(bytes);
  if (owner.size() >= sizeof(parameters.owner) || owner.find('\0') != owner.npos) {
    throw Error(Errc::invalid_argument,
                concat("History::open: partner_owner has at most ", sizeof(parameters.owner) - 1,
                       " bytes, none of them zero"));
  }
  std::memcpy(parameters.owner, owner.data(), owner.size());
  return parameters;
}

bool is_free(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) != 0 && errno == ENOENT;
}

// Opens the region, or makes one where nothing is, and notes that.
Region region_at(const std::string& path, std::uint64_t bytes, MadeRegion& made) {
  RegionOptions options;
  options.size = bytes;
  if (is_free(path)) {
    try {
      Region region = Region::create(path, options);
      made.note(path);
      return region;
    } catch (const Error& error) {
      if (error.code() != Errc::already_exists) throw;  // else another was faster
    }
  }
  try {
    return Region::open_or_create(path, options);
  } catch (const Error& error) {
    if (error.code() != Errc::conflict) throw;
    throw Error(Errc::conflict, concat(error.what(), ". Or remove '", path,
                                       "': the history then goes on without what it had there"));
  }
}

}  // namespace

MadeRegion::~MadeRegion() {
  if (path_.empty() || is_used) return;
  try {
    Region::destroy(path_);
  } catch (const std::exception&) {  // another process has it by now, or it is gone
  }
}

std::vector<holdfast::Part> HostParameters::parts() const { return parts_of(bytes, slots); }
std::vector<holdfast::Part> PartnerParameters::parts() const { return parts_of(bytes, slots); }
std::vector<holdfast::Part> LentParameters::parts() const {
  std::vector<holdfast::Part> parts = parts_of(bytes, slots);
  parts.pop_back();
  return parts;
}

std::uint64_t HostTier::alignment(std::uint64_t bytes) {
  std::uint64_t alignment = core::kPage;
  while (bytes / alignment > slots_for(bytes)) alignment *= 2;
  return alignment;
}

std::uint64_t HostTier::room_of(const StepInfo& info) {
  return room(info.bytes, info.parts.size());
}

HostTier::HostTier(std::uint64_t bytes, const std::string& region) {
  if (region.empty()) {
    pinned_ = PinnedBuffer<std::byte>(bytes);
    data_ = pinned_.data();
    return;
  }
  open_region(HostParameters{bytes, slots_for(bytes)}, region, "host_bytes");
}

// Nothing changes before the lender is known to be right. The region is first then: it waits for
// the end of a process that was killed, whose copies may still come into the memory.
HostTier::HostTier(std::uint64_t bytes, const std::string& region, const std::string& owner,
                   const std::string& lender) {
  if (lender.empty()) {
    open_region(partner_parameters<PartnerParameters>(bytes, owner), region, "partner_bytes");
    return;
  }
  const auto parameters = partner_parameters<LentParameters>(bytes, owner);
  lent_ = std::make_unique<LentMemory>(lender, bytes, owner);
  data_ = lent_->data();
  open_region(parameters, region, "partner_bytes");
}

template <class Parameters>
void HostTier::open_region(const Parameters& parameters, const std::string& path,
                           const char* option) {
  using Object = Durable<Parameters>;
  Region region = region_at(path, Object::region_bytes(parameters), made_);
  const auto is_ours = [](const ObjectInfo& info) {  // whole, or of a creation that was cut off
    return info.name.starts_with(concat(kName, "."));
  };
  const std::vector<ObjectInfo> objects = region.objects();
  const auto other = std::find_if_not(objects.begin(), objects.end(), is_ours);
  if (other != objects.end()) {
    throw Error(Errc::foreign, concat("region '", path, "' has an object '", other->name,
                                      "' of a program's: give the history a region of its own"));
  }
  Object object = [&] {
    try {
      return Object::open(region, kName);
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;  // nothing, or a creation that was cut off
    }
    Object made = Object::create(region, kName, parameters);
    region.commit();
    return made;
  }();
  const Parameters& there = object.parameters();
  if (there.bytes != parameters.bytes || there.slots != parameters.slots) {
    throw Error(Errc::invalid_argument,
                concat("region '", path, "' has room for ", there.bytes, " bytes: give it as ",
                       option, ", or remove the region"));
  }
  if (const std::string words = difference_of(there, parameters); !words.empty()) {
    throw Error(Errc::invalid_argument, concat("region '", path, "' has ", words));
  }
  if constexpr (!kIsLent<Parameters>) {
    data_ = reinterpret_cast<std::byte*>(object.template part<std::uint8_t>("bytes").data());
  }
  slots_ = object.template part<HostSlot>("slots");
  region_ = std::move(region);
  object_ = std::move(object);
  if (lent_) take_lease();
  read_slots(parameters.bytes);
}

// That of the slots, where the lender has it still; else a new one, under which none of them
// counts. The lender's file has that only once something is written: until then the copies of
// another region count.
void HostTier::take_lease() {
  lease_ = lent_->lock();
  const bool is_own = std::any_of(slots_.begin(), slots_.end(), [&](const HostSlot& slot) {
    return slot.counts == kCounts && slot.lease == lease_;
  });
  if (lease_ == kNoLease || !is_own) lease_ = lent_->next_lease();
}

// The entries of a slot's parts; none if they are not whole. REQUIRES: they are within the buffer.
std::vector<PartEntry> HostTier::entries_of(const HostSlot& slot) {
  if (slot.parts <= HostSlot::kMostParts) return {slot.part, slot.part + slot.parts};
  std::vector<PartEntry> table(slot.parts);
  const std::uint64_t at = slot.offset + table_offset(slot.bytes);
  const std::uint64_t bytes = slot.parts * sizeof(PartEntry);
  if (lent_) {
    lent_->get(at, table.data(), bytes);
  } else {
    std::memcpy(static_cast<void*>(table.data()), data_ + at, bytes);
  }
  if (core::hash_bytes(table.data(), bytes) != slot.table_checksum) table.clear();
  return table;
}

// Nothing if the slot does not hold.
std::optional<HostTier::Found> HostTier::decode(const HostSlot& slot, std::uint64_t capacity) {
  if (slot.counts != kCounts || slot.checksum != checksum_of(slot)) return std::nullopt;
  if (slot.lease != lease_) return std::nullopt;
  if (slot.step == kGap || slot.bytes == 0 || slot.bytes > capacity) return std::nullopt;
  if (slot.parts == 0 || slot.parts > kMaxParts) return std::nullopt;
  const std::uint64_t taken = room(slot.bytes, slot.parts);
  if (taken > capacity || slot.offset % core::kPage != 0 || slot.offset > capacity - taken) {
    return std::nullopt;
  }
  Found found;
  found.offset = slot.offset;
  found.info.step = slot.step;
  found.info.bytes = slot.bytes;
  found.info.saved_at_ns = slot.saved_at_ns;
  found.info.stamp = {slot.stamp_run, slot.stamp_save};
  for (const PartEntry& entry : entries_of(slot)) {
    if (std::memchr(entry.name, 0, sizeof(entry.name)) == nullptr) return std::nullopt;
    found.info.parts.push_back({entry.name, entry.offset, entry.bytes});
  }
  if (found.info.parts.size() != slot.parts) return std::nullopt;
  try {
    check_info(found.info);
  } catch (const Error&) {
    return std::nullopt;
  }
  return found;
}

void HostTier::read_slots(std::uint64_t capacity) {
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
            [](const Found& a, const Found& b) { return a.info.saved_at_ns < b.info.saved_at_ns; });
}

void HostTier::keep(const StepInfo& info, std::uint64_t offset) {
  if (!region_) return;
  forget(info.step);
  if (free_.empty()) throw std::logic_error("holdfast: history: no slot for what has room");
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
  slot.lease = lease_;
  const bool has_table = info.parts.size() > HostSlot::kMostParts;
  std::vector<PartEntry> table(has_table ? info.parts.size() : 0);
  PartEntry* entry = has_table ? table.data() : slot.part;
  for (const Part& part : info.parts) {
    std::memcpy(entry->name, part.name.data(), part.name.size());
    entry->offset = part.offset;
    entry->bytes = part.bytes;
    ++entry;
  }
  if (has_table) {
    const std::uint64_t at = offset + table_offset(info.bytes);
    const std::uint64_t bytes = table.size() * sizeof(PartEntry);
    slot.table_checksum = core::hash_bytes(table.data(), bytes);
    lent_ ? lent_->put(at, table.data(), bytes)
          : static_cast<void>(std::memcpy(data_ + at, table.data(), bytes));
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
  object_ = std::monostate{};
  lent_.reset();
  if (!region_) return;
  if (leave) {
    region_->abandon();
  } else {
    region_->close();
  }
  region_.reset();
}

}  // namespace holdfast::history

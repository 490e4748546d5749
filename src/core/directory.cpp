#include "core/directory.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <set>

#include "core/checksum.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

DirectorySlot* slot_at(std::byte* metadata, unsigned slot) {
  return reinterpret_cast<DirectorySlot*>(metadata + (1 + slot * kDirectoryPages) * kPage);
}

constexpr std::size_t kSlotChecked = offsetof(DirectorySlot, checksum);

// 0 means "being written", so a hash that happens to be 0 is stored as 1.
std::uint64_t slot_checksum(const DirectorySlot& slot) {
  const std::uint64_t hash = hash_bytes(&slot, kSlotChecked);
  return hash == 0 ? 1 : hash;
}

[[noreturn]] void damaged(const std::string& where, const std::string& what) {
  throw Error(Errc::damaged, concat(where, ": ", what));
}

bool terminated(const char* field, std::size_t bytes) {
  return std::memchr(field, 0, bytes) != nullptr;
}

ObjectInfo checked_object(const DirectoryEntry& entry, std::uint64_t region_bytes,
                          Tracking last_tracking, const std::string& where) {
  if (!terminated(entry.name, kNameBytes) || !terminated(entry.type, kTypeBytes) ||
      entry.name[0] == 0) {
    damaged(where, "an object's name or type in the directory is not a proper string");
  }
  ObjectInfo info;
  info.name = entry.name;
  info.type = entry.type;
  info.offset = entry.offset;
  info.count = entry.count;
  info.element_bytes = entry.element_bytes;
  const auto bad = [&](const char* what) {
    damaged(where, concat("object '", info.name, "' in the directory has ", what));
  };
  if (entry.tracking > static_cast<std::uint32_t>(last_tracking)) bad("an unknown tracking");
  info.tracking = static_cast<Tracking>(entry.tracking);
  if (entry.element_bytes == 0 || entry.count == 0) bad("no bytes");
  if (entry.count > kMaxRegionBytes / entry.element_bytes) bad("an impossible count");
  if (entry.offset % kPage != 0 || entry.offset < kMetadataBytes) bad("an impossible offset");
  if (entry.offset > region_bytes || info.bytes() > region_bytes - entry.offset) {
    bad("a place outside the region");
  }
  return info;
}

// REQUIRES: the slot's checksum holds. A slot that was damaged before its checksum was computed,
// or one made on purpose, still must not lead anywhere.
std::vector<ObjectInfo> checked_objects(const DirectorySlot& slot, std::uint64_t bytes_there,
                                        Tracking last_tracking, const std::string& where) {
  if (std::memcmp(slot.magic, kDirectoryMagic, 8) != 0)
    damaged(where, "the directory has no magic");
  if (slot.count > kMaxObjects) damaged(where, "the directory has an impossible count");
  if (slot.generation > kMaxGeneration) {
    damaged(where, "the directory has an impossible generation");
  }
  if (slot.region_bytes % kPage != 0 || slot.region_bytes < kMetadataBytes ||
      slot.region_bytes > kMaxRegionBytes) {
    damaged(where, "the directory has an impossible region size");
  }
  if (slot.region_bytes > bytes_there) {
    damaged(where, concat("the region has ", slot.region_bytes, " bytes, but only ", bytes_there,
                          " are there"));
  }
  std::vector<ObjectInfo> objects;
  std::set<std::string> names;
  std::uint64_t end = kMetadataBytes;
  for (std::uint32_t i = 0; i < slot.count; ++i) {
    ObjectInfo info = checked_object(slot.entries[i], slot.region_bytes, last_tracking, where);
    if (info.offset < end) {
      damaged(where, concat("object '", info.name, "' in the directory overlaps another"));
    }
    if (!names.insert(info.name).second) {
      damaged(where, concat("object '", info.name, "' is twice in the directory"));
    }
    end = info.offset + pages_of(info.bytes()) * kPage;
    objects.push_back(std::move(info));
  }
  return objects;
}

std::uint64_t header_checksum(const RegionHeader& header) {
  return hash_bytes(&header, offsetof(RegionHeader, checksum));
}

// A kill within raise_version() leaves the new version with the checksum of the old one.
bool is_sound(const RegionHeader& header) {
  if (header.checksum == header_checksum(header)) return true;
  if (header.version != kRegionVersion) return false;
  RegionHeader before = header;
  before.version = kRegionVersionAllTracked;
  return header.checksum == header_checksum(before);
}

void check_region_header(const RegionHeader& header, const std::string& where) {
  if (std::memcmp(header.magic, kRegionMagic, 8) != 0) {
    throw Error(Errc::foreign, concat(where, ": these are not the bytes of a region"));
  }
  if (!is_sound(header)) {
    damaged(where, "the region's header (page 0) does not match its checksum");
  }
  if (header.version > kRegionVersion) {
    throw Error(Errc::newer_version,
                concat(where, ": written in format version ", header.version,
                       ", and this build reads up to ", kRegionVersion, "; use a newer build"));
  }
  if (header.version < kRegionVersionAllTracked || header.page_bytes != kPage ||
      header.max_objects != kMaxObjects || header.directory_pages != kDirectoryPages) {
    damaged(where, "the region's header (page 0) has impossible values");
  }
}

}  // namespace

void check_name(std::string_view name, std::size_t field_bytes, const char* what) {
  if (name.empty() || name.size() >= field_bytes || name.find('\0') != std::string_view::npos) {
    throw Error(Errc::invalid_argument,
                concat(what, " '", name.substr(0, field_bytes), "' must have 1 to ",
                       field_bytes - 1, " bytes, none of them zero"));
  }
}

void Directory::format(std::byte* metadata, const Uuid& uuid, std::uint64_t region_bytes,
                       const Flush& flush) {
  RegionHeader header{};
  std::memcpy(header.magic, kRegionMagic, 8);
  header.version = kRegionVersionAllTracked;
  header.page_bytes = kPageBytes;
  header.uuid = uuid;
  header.max_objects = kMaxObjects;
  header.directory_pages = kDirectoryPages;
  header.checksum = header_checksum(header);

  Directory directory;
  directory.metadata_ = metadata;
  directory.flush_ = flush;
  directory.uuid_ = uuid;
  directory.region_bytes_ = region_bytes;
  directory.slot_ = 1;  // so that the first store goes to slot 0
  directory.store();
  // Last: on a dax device the header is what makes the bytes a region.
  std::memcpy(metadata, &header, sizeof header);
  flush(metadata, sizeof header);
}

void Directory::set_uuid(std::byte* metadata, const Uuid& uuid) {
  RegionHeader header;
  std::memcpy(&header, metadata, sizeof header);
  header.uuid = uuid;
  header.checksum = header_checksum(header);
  std::memcpy(metadata, &header, sizeof header);
}

Directory Directory::load(std::byte* metadata, std::uint64_t bytes_there, const std::string& where,
                          Flush flush) {
  if (bytes_there < kMetadataBytes) damaged(where, "too short to be a region");
  RegionHeader header;
  std::memcpy(&header, metadata, sizeof header);
  check_region_header(header, where);

  const DirectorySlot* newest = nullptr;
  Directory result;
  for (unsigned slot = 0; slot < 2; ++slot) {
    const DirectorySlot* candidate = slot_at(metadata, slot);
    if (candidate->checksum == 0) continue;  // a store that a kill cut off
    if (candidate->checksum != slot_checksum(*candidate)) {
      damaged(where, concat("slot ", slot, " of the object directory does not match its checksum"));
    }
    if (newest == nullptr || candidate->generation > newest->generation) {
      newest = candidate;
      result.slot_ = slot;
    }
  }
  if (newest == nullptr) damaged(where, "the object directory is empty in both slots");
  const Tracking last_tracking =
      header.version == kRegionVersionAllTracked ? Tracking::marked : Tracking::none;
  result.objects_ = checked_objects(*newest, bytes_there, last_tracking, where);
  result.metadata_ = metadata;
  result.flush_ = std::move(flush);
  result.uuid_ = header.uuid;
  result.generation_ = newest->generation;
  result.region_bytes_ = newest->region_bytes;
  return result;
}

const ObjectInfo* Directory::find(std::string_view name) const {
  for (const ObjectInfo& object : objects_) {
    if (object.name == name) return &object;
  }
  return nullptr;
}

const ObjectInfo* Directory::at_page(std::uint64_t page) const {
  const std::uint64_t offset = page * kPage;
  auto after = std::upper_bound(
      objects_.begin(), objects_.end(), offset,
      [](std::uint64_t value, const ObjectInfo& object) { return value < object.offset; });
  if (after == objects_.begin()) return nullptr;
  --after;
  return offset < after->offset + after->bytes() ? &*after : nullptr;
}

std::string Directory::describe_page(std::uint64_t page) const {
  if (page == 0) return "page 0 (the region's header)";
  if (page < kMetadataPages) return concat("page ", page, " (the object directory)");
  const ObjectInfo* object = at_page(page);
  if (object == nullptr) return concat("page ", page, " (free space)");
  return concat("page ", page, " (object '", object->name, "')");
}

std::uint64_t Directory::used_bytes() const {
  std::uint64_t bytes = kMetadataBytes;
  for (const ObjectInfo& object : objects_) bytes += pages_of(object.bytes()) * kPage;
  return bytes;
}

std::uint64_t Directory::first_fit(std::uint64_t bytes, std::string_view name) const {
  const std::uint64_t wanted = pages_of(bytes) * kPage;
  std::uint64_t at = kMetadataBytes;
  std::uint64_t largest = 0;
  const auto gap_until = [&](std::uint64_t end) {
    largest = std::max(largest, end - at);
    return end - at >= wanted;
  };
  for (const ObjectInfo& object : objects_) {
    if (gap_until(object.offset)) return at;
    at = object.offset + pages_of(object.bytes()) * kPage;
  }
  if (gap_until(region_bytes_)) return at;
  throw Error(
      Errc::no_space,
      concat("no room for object '", name, "': it needs ", wanted, " bytes, the largest gap has ",
             largest, "; grow() the region by ", wanted - largest, " bytes or more"));
}

void Directory::check_room(std::string_view name) const {
  if (objects_.size() < kMaxObjects) return;
  throw Error(Errc::no_space, concat("no room for object '", name, "': a region holds ",
                                     kMaxObjects, " objects; remove one or use a second region"));
}

// All that can fail comes before the first change.
void Directory::insert(ObjectInfo object) {
  check_countable();
  objects_.reserve(objects_.size() + 1);
  if (object.tracking == Tracking::none) raise_version();
  const auto place = std::upper_bound(
      objects_.begin(), objects_.end(), object.offset,
      [](std::uint64_t value, const ObjectInfo& other) { return value < other.offset; });
  objects_.insert(place, std::move(object));
  store();
}

void Directory::check_countable() const {
  if (generation_ < kMaxGeneration) return;
  throw Error(Errc::unsupported,
              "the object directory has had all the changes that it can have; "
              "make a region of this one: holdfast backup");
}

// Before the entry is there. Two stores, the version's first: load() takes what a kill leaves of
// them.
void Directory::raise_version() {
  auto* const stored = reinterpret_cast<RegionHeader*>(metadata_);
  RegionHeader header = *stored;
  header.version = kRegionVersion;
  header.checksum = header_checksum(header);
  if (stored->checksum == header.checksum) return;
  std::atomic_ref<std::uint32_t>(stored->version).store(header.version);
  flush_(&stored->version, sizeof stored->version);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref<std::uint64_t>(stored->checksum).store(header.checksum);
  flush_(&stored->checksum, sizeof stored->checksum);
}

void Directory::remove(std::string_view name) {
  check_countable();
  std::erase_if(objects_, [&](const ObjectInfo& object) { return object.name == name; });
  store();
}

void Directory::rename(const std::vector<Renaming>& names) {
  check_countable();
  std::vector<ObjectInfo> renamed;
  for (const ObjectInfo& object : objects_) {
    const auto its_own = std::find_if(
        names.begin(), names.end(), [&](const Renaming& name) { return object.name == name.from; });
    const bool gives_way = its_own == names.end() &&
                           std::any_of(names.begin(), names.end(), [&](const Renaming& name) {
                             return object.name == name.to;
                           });
    if (gives_way) continue;
    renamed.push_back(object);
    if (its_own != names.end()) renamed.back().name = its_own->to;
  }
  objects_ = std::move(renamed);
  store();
}

void Directory::set_region_bytes(std::uint64_t bytes) {
  check_countable();
  region_bytes_ = bytes;
  store();
}

// The slot not in force is first marked as being written, then written, and becomes the one in
// force by the single store of its checksum. A kill keeps the program's order of stores.
void Directory::store() {
  DirectorySlot* const next = next_.get();
  std::memset(static_cast<void*>(next), 0, sizeof *next);
  std::memcpy(next->magic, kDirectoryMagic, 8);
  next->generation = ++generation_;
  next->region_bytes = region_bytes_;
  next->count = static_cast<std::uint32_t>(objects_.size());
  for (std::size_t i = 0; i < objects_.size(); ++i) {
    DirectoryEntry& entry = next->entries[i];
    const ObjectInfo& object = objects_[i];
    std::memcpy(entry.name, object.name.data(), object.name.size());
    std::memcpy(entry.type, object.type.data(), object.type.size());
    entry.element_bytes = object.element_bytes;
    entry.tracking = static_cast<std::uint32_t>(object.tracking);
    entry.offset = object.offset;
    entry.count = object.count;
  }

  DirectorySlot* target = slot_at(metadata_, 1 - slot_);
  std::atomic_ref<std::uint64_t> checksum(target->checksum);
  checksum.store(0, std::memory_order_seq_cst);
  flush_(&target->checksum, sizeof target->checksum);
  // A kill leaves what was executed, so only the compiler must not move stores across.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(static_cast<void*>(target), next, kSlotChecked);
  flush_(target, kSlotChecked);
  checksum.store(slot_checksum(*next), std::memory_order_release);
  flush_(&target->checksum, sizeof target->checksum);
  slot_ = 1 - slot_;
}

}  // namespace holdfast::core

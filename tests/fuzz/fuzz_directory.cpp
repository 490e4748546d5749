// Fuzz target: directories whose checksums hold, made of fields that are likely to be wrong.
#include <algorithm>
#include <optional>
#include <vector>

#include "core/checksum.hpp"
#include "core/directory.hpp"
#include "fuzz/fuzz.hpp"

namespace holdfast::fuzz {

namespace {

using core::Directory;
using core::DirectoryEntry;
using core::DirectorySlot;
using core::kPage;

void no_flush(const void*, std::size_t) {}

constexpr std::uint64_t kRegionBytes = 256 * kPage;

// A number that is likely to be at an edge.
std::uint64_t edge(Input& input) {
  constexpr std::uint64_t kTop = ~std::uint64_t{0};
  constexpr std::uint64_t kEdges[] = {0,
                                      1,
                                      2,
                                      kPage - 1,
                                      kPage,
                                      kPage + 1,
                                      core::kMetadataBytes - kPage,
                                      core::kMetadataBytes,
                                      core::kMetadataBytes + 1,
                                      kRegionBytes - kPage,
                                      kRegionBytes - 1,
                                      kRegionBytes,
                                      kRegionBytes + kPage,
                                      core::kMaxRegionBytes,
                                      core::kMaxRegionBytes + kPage,
                                      core::kMaxRegionBytes - kPage,
                                      1u << 31,
                                      std::uint64_t{1} << 32,
                                      std::uint64_t{1} << 52,
                                      kTop / kPage,
                                      kTop - kPage + 1,
                                      kTop - 1,
                                      kTop,
                                      kTop / 2,
                                      kTop / 2 + 1};
  const std::uint8_t which = input.take();
  if (which < std::size(kEdges)) return kEdges[which];
  if (which < 64) return input.take<std::uint64_t>();
  return (which - 64u) * kPage;
}

// A string with or without an end.
void name_into(char* field, std::size_t bytes, std::uint8_t which) {
  if (which == 255) {
    std::memset(field, 'x', bytes);
  } else if (which == 254) {
    std::memset(field, 0, bytes);
  } else {
    std::memset(field, 0, bytes);
    std::memset(field, 'a' + which % 20, 1 + which % (bytes - 1));
  }
}

void slot_from(Input& input, std::byte* at) {
  DirectorySlot slot{};
  const std::uint8_t what = input.take();
  if ((what & 3) == 0) return;  // never written
  std::memcpy(slot.magic, core::kDirectoryMagic, 8);
  slot.generation = edge(input);
  slot.region_bytes = (what & 4) != 0 ? edge(input) : kRegionBytes;
  const std::uint8_t entries = input.take();
  slot.count = (what & 8) != 0 ? static_cast<std::uint32_t>(edge(input)) : entries;
  std::uint64_t end = core::kMetadataBytes;
  for (unsigned i = 0; i < entries; ++i) {
    DirectoryEntry& entry = slot.entries[i];
    const std::uint8_t odd = input.take();
    const std::uint8_t name = input.take();
    name_into(entry.name, sizeof entry.name, (odd & 1) != 0 ? name : static_cast<std::uint8_t>(i));
    name_into(entry.type, sizeof entry.type, (odd & 2) != 0 ? name : 3);
    entry.element_bytes = (odd & 4) != 0 ? static_cast<std::uint32_t>(edge(input)) : 4;
    entry.tracking = (odd & 8) != 0 ? input.take() : 0;
    entry.offset = (odd & 16) != 0 ? edge(input) : end;
    entry.count = (odd & 32) != 0 ? edge(input) : 1 + name * 16u;
    end = entry.offset + core::pages_of(entry.count * entry.element_bytes) * kPage;
  }
  if ((what & 16) != 0) {  // anything anywhere
    const std::size_t where = input.take<std::uint16_t>() % (sizeof slot - 8);
    const std::uint64_t value = edge(input);
    std::memcpy(reinterpret_cast<char*>(&slot) + where, &value, sizeof value);
  }
  slot.checksum = core::hash_bytes(&slot, offsetof(DirectorySlot, checksum));
  if ((what & 3) == 3) slot.checksum ^= edge(input);
  std::memcpy(at, &slot, sizeof slot);
}

void check_objects(const Directory& directory) {
  std::uint64_t end = core::kMetadataBytes;
  for (const ObjectInfo& object : directory.objects()) {
    expect(object.offset % kPage == 0 && object.offset >= end, "objects do not overlap");
    expect(object.bytes() > 0 && object.bytes() <= directory.region_bytes() - object.offset,
           "objects lie within the region");
    end = object.offset + core::pages_of(object.bytes()) * kPage;
    expect(directory.find(object.name) == &object, "an object is found by its name");
    expect(directory.at_page(object.offset / kPage) == &object, "and by its pages");
    directory.describe_page(object.offset / kPage);
  }
  expect(directory.used_bytes() <= directory.region_bytes(), "no more is used than there is");
}

bool same(const Directory& a, const Directory& b) {
  return a.region_bytes() == b.region_bytes() &&
         std::equal(a.objects().begin(), a.objects().end(), b.objects().begin(), b.objects().end(),
                    [](const ObjectInfo& x, const ObjectInfo& y) {
                      return x.name == y.name && x.type == y.type && x.offset == y.offset &&
                             x.count == y.count && x.element_bytes == y.element_bytes &&
                             x.tracking == y.tracking;
                    });
}

void change(Directory& directory, Input& input, std::uint64_t bytes_there) {
  switch (input.take() % 3) {
    case 0:
      if (!directory.objects().empty()) {
        directory.remove(std::string(directory.objects().back().name));
      }
      break;
    case 1: {
      ObjectInfo info{"inserted", "t", 0, 1 + input.take() * 100u, 4, Tracking::marked};
      if (directory.find(info.name) != nullptr) break;
      info.offset = directory.first_fit(info.bytes(), info.name);
      directory.check_room(info.name);
      directory.insert(info);
      break;
    }
    default:
      if (directory.region_bytes() + kPage <= bytes_there) {
        directory.set_region_bytes(directory.region_bytes() + kPage);
      }
  }
}

}  // namespace

void directory(std::span<const std::uint8_t> bytes) {
  Input input(bytes);
  const std::uint64_t there = (input.take() & 1) != 0 ? edge(input) : kRegionBytes;
  std::vector<std::byte> metadata(core::kMetadataBytes);
  const core::Uuid uuid{7};
  Directory::format(metadata.data(), uuid, kRegionBytes, no_flush);
  std::memset(&metadata[kPage], 0, metadata.size() - kPage);
  for (unsigned slot = 0; slot < 2; ++slot) {
    slot_from(input, &metadata[(1 + slot * core::kDirectoryPages) * kPage]);
  }
  if ((input.take() & 1) != 0) {  // the region's header
    const std::uint64_t value = edge(input);
    std::memcpy(&metadata[input.take() % sizeof(core::RegionHeader)], &value, sizeof value);
    repair_metadata(metadata.data(), uuid);
  }
  const auto before = metadata;
  std::optional<Directory> found;
  const auto load = [&] { return Directory::load(metadata.data(), there, "here", no_flush); };
  succeeds([&] { found.emplace(load()); });
  expect(metadata == before, "loading changes nothing");
  if (!found) return;
  expect(found->region_bytes() <= there, "the region is there");
  check_objects(*found);
  while (!input.empty()) {
    succeeds([&] { change(*found, input, there); });
    check_objects(*found);
    expect(same(*found, load()), "a change is found again");
  }
}

}  // namespace holdfast::fuzz

#ifdef HOLDFAST_FUZZ_TARGET
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::directory({data, size});
  return 0;
}
#endif

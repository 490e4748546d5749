// The directory of a region's objects, as on a domain whose bytes are the medium (dax).
//
// It is host code, whose stores reach the medium when it flushes. Here its source is compiled once
// more, under another namespace, and one thread of a kernel runs it with persist() for a flush: so
// its stores can be lost like a kernel's. persist() waits for all stores of the thread; that a
// flush names too few bytes is not found.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checking/sized_offer.hpp"
#include "holdfast/kernel.hpp"
#include "layers.hpp"

#define core core_of_the_checked_region
#include "core/checksum.cpp"
#include "core/directory.cpp"
#undef core

namespace holdfast::check {
namespace {

namespace checked = core_of_the_checked_region;
using checked::Directory;
using checked::kPage;

constexpr std::uint64_t kRegionBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kGrownBytes = std::uint64_t{2} << 20;

struct Change {
  enum Kind { insert, remove, grow } kind;
  const char* name = "";
  std::uint64_t pages = 0;
};
constexpr Change kChanges[] = {{Change::insert, "first", 2},
                               {Change::insert, "second", 1},
                               {Change::remove, "first"},
                               {Change::insert, "third", 1},
                               {Change::grow},
                               {Change::insert, "fourth", 3}};

struct Objects {
  std::uint64_t region_bytes = kRegionBytes;
  std::vector<std::pair<std::string, std::uint64_t>> names;  // with their pages, sorted by name
  bool operator==(const Objects&) const = default;
};

Objects after(std::size_t changes) {
  Objects objects;
  for (std::size_t i = 0; i < changes; ++i) {
    const Change& change = kChanges[i];
    if (change.kind == Change::insert) objects.names.emplace_back(change.name, change.pages);
    if (change.kind == Change::grow) objects.region_bytes = kGrownBytes;
    if (change.kind == Change::remove) {
      std::erase_if(objects.names, [&](const auto& object) { return object.first == change.name; });
    }
  }
  std::sort(objects.names.begin(), objects.names.end());
  return objects;
}

void flush_by_persist(const void*, std::size_t) { persist(); }

__device__ void insert(Directory& directory, const char* name, std::uint64_t pages) {
  ObjectInfo object;
  object.name = name;
  object.type = "u8";
  object.element_bytes = 1;
  object.count = pages * kPage;
  directory.check_room(name);
  object.offset = directory.first_fit(object.count, name);
  directory.insert(object);
}

__global__ void load(std::optional<Directory>* directory, std::byte* metadata) {
  *directory = Directory::load(metadata, kGrownBytes, "the checked region", flush_by_persist);
}

__global__ void make_change(std::optional<Directory>* directory, Change change) {
  if (change.kind == Change::insert) insert(**directory, change.name, change.pages);
  if (change.kind == Change::remove) (*directory)->remove(change.name);
  if (change.kind == Change::grow) (*directory)->set_region_bytes(kGrownBytes);
}

std::byte* metadata_of(Region& region) {
  return reinterpret_cast<std::byte*>(region.find<std::uint8_t>("metadata").data());
}

void run(Region& region, Session& session) {
  std::optional<Directory> directory;
  Stream stream;
  launch(stream, dim3(1), dim3(1), load, &directory, metadata_of(region));
  stream.synchronize();
  for (const Change& change : kChanges) {
    session.start();
    launch(stream, dim3(1), dim3(1), make_change, &directory, change);
    stream.synchronize();
    session.acknowledge();
  }
}

std::string describe(const Objects& objects) {
  std::string text = detail::concat(objects.region_bytes, " bytes with");
  for (const auto& [name, pages] : objects.names) text += detail::concat(" ", name, ":", pages);
  return text;
}

Objects objects_of(const Directory& directory) {
  Objects objects{directory.region_bytes(), {}};
  for (const ObjectInfo& object : directory.objects()) {
    objects.names.emplace_back(object.name, object.count / kPage);
  }
  std::sort(objects.names.begin(), objects.names.end());
  return objects;
}

Objects reopen(Region& region) {
  return objects_of(
      Directory::load(metadata_of(region), kGrownBytes, "the checked region", flush_by_persist));
}

// Exactly the objects of before or after the change that was under way; and a directory that was
// found so takes one more.
std::string verify(Region& region, const History& history) {
  Objects found = reopen(region);
  if (found != after(history.acknowledged) && found != after(history.started)) {
    return detail::concat("the region has ", describe(found), "; before the change it had ",
                          describe(after(history.acknowledged)));
  }
  std::optional<Directory> directory;
  Stream stream;
  launch(stream, dim3(1), dim3(1), load, &directory, metadata_of(region));
  launch(stream, dim3(1), dim3(1), make_change, &directory, Change{Change::insert, "after", 1});
  stream.synchronize();
  found.names.emplace_back("after", 1);
  std::sort(found.names.begin(), found.names.end());
  const Objects now = reopen(region);
  if (now == found) return {};
  return detail::concat("after one more object the region has ", describe(now), " and should have ",
                        describe(found));
}

Program make(const Sizes&) {
  Program program;
  program.set_up = [](Region& region) {
    region.allocate<std::uint8_t>("metadata", checked::kMetadataBytes);
    Directory::format(metadata_of(region), checked::Uuid{1}, kRegionBytes,
                      [](const void*, std::size_t) {});
  };
  program.run = [](Region& region, Session& session) { run(region, session); };
  // Opening reads the directory and changes nothing.
  program.recover = [](Region& region) { reopen(region); };
  program.verify = [](Region& region, const History& history, std::uint64_t) {
    return verify(region, history);
  };
  return program;
}

}  // namespace

std::vector<Offer> region_metadata_programs() {
  return {sized_offer("region_metadata",
                      "the directory of a region's objects: allocate, remove, grow", {}, make)};
}

}  // namespace holdfast::check

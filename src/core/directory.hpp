// The object directory: two slots in the region, of which one always is whole.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/format.hpp"
#include "holdfast/region.hpp"

namespace holdfast::core {

// Checks that a type or object name fits its field and has no zero byte. Throws
// invalid_argument; `what` is "object name" or "type name".
void check_name(std::string_view name, std::size_t field_bytes, const char* what);

struct Renaming {
  std::string from;
  std::string to;
};

// Thread safety: none; Region's mutex stands around it.
//
// Invariants: entries are sorted by offset, lie within the region, do not overlap, start at page
// boundaries behind the metadata, and have distinct names.
class Directory {
 public:
  // Makes host stores durable on the domain's rung.
  using Flush = std::function<void(const void*, std::size_t)>;

  // Writes region header and an empty directory into zeroed metadata.
  static void format(std::byte* metadata, const Uuid& uuid, std::uint64_t region_bytes,
                     const Flush& flush);

  // Gives a whole region in private memory another uuid.
  static void set_uuid(std::byte* metadata, const Uuid& uuid);

  // Reads and checks everything. Throws foreign, newer_version, damaged; messages begin with
  // `where`. `bytes_there` bounds the region size.
  static Directory load(std::byte* metadata, std::uint64_t bytes_there, const std::string& where,
                        Flush flush);

  const std::vector<ObjectInfo>& objects() const { return objects_; }
  const ObjectInfo* find(std::string_view name) const;
  // The object that holds a page, or null.
  const ObjectInfo* at_page(std::uint64_t page) const;
  // "page 31 (object 'weights')"
  std::string describe_page(std::uint64_t page) const;
  std::uint64_t region_bytes() const { return region_bytes_; }
  std::uint64_t used_bytes() const;
  const Uuid& uuid() const { return uuid_; }

  // Offset of the first gap of that many bytes, rounded up to pages. Throws no_space.
  std::uint64_t first_fit(std::uint64_t bytes, std::string_view name) const;

  // Throws no_space if the directory is full.
  void check_room(std::string_view name) const;

  // Each of these is atomic: a kill, or an exception, leaves the directory before or after it.
  void insert(ObjectInfo object);      // REQUIRES: first_fit() and check_room() passed
  void remove(std::string_view name);  // REQUIRES: it exists
  // All at once: each has its second name from now on, and who had that one and gets no other is
  // gone. REQUIRES: the first exist; no name is twice among the first, or among the second.
  void rename(const std::vector<Renaming>& names);
  void set_region_bytes(std::uint64_t bytes);

 private:
  Directory() : next_(std::make_unique<DirectorySlot>()) {}
  void check_countable() const;
  void raise_version();
  void store();

  std::byte* metadata_ = nullptr;
  Flush flush_;
  Uuid uuid_{};
  std::uint64_t generation_ = 0;
  unsigned slot_ = 0;  // the slot in force
  std::uint64_t region_bytes_ = 0;
  std::vector<ObjectInfo> objects_;
  std::unique_ptr<DirectorySlot> next_;  // what store() is about to write
};

}  // namespace holdfast::core

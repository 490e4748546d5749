#define XXH_INLINE_ALL
#include "durable/header.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "core/format.hpp"
#include "undo_log/undo_log_impl.hpp"

namespace holdfast {

Part Part::transaction() {
  return {Kind::transaction,
          kTransaction,
          TransactionHeader::kTypeName,
          sizeof(TransactionHeader),
          1,
          Tracking::marked,
          {}};
}

Part Part::undo_log(std::string name, const LogShape& shape) {
  const LogShape whole = whole_shape(shape);
  return {Kind::undo_log,
          std::move(name),
          LogHeader::kTypeName,
          1,
          UndoLog::object_bytes(whole),
          Tracking::marked,
          whole};
}

}  // namespace holdfast

namespace holdfast::durable {

using detail::concat;
using Identity = detail::DurableObject::Identity;

namespace {

template <std::size_t N>
void copy_text(char (&field)[N], std::string_view text) {
  std::memcpy(field, text.data(), text.size());
}

[[noreturn]] void refuse(std::string_view name, const std::string& what) {
  throw Error(Errc::invalid_argument, concat("durable object '", name, "': ", what));
}

void check_text(std::string_view name, const char* what, std::string_view text, std::size_t field) {
  if (!text.empty() && text.size() < field && text.find('\0') == std::string_view::npos) return;
  refuse(name,
         concat(what, " '", text, "' must have 1 to ", field - 1, " bytes, none of them zero"));
}

// Whether a part is all that the library makes of one that is called so; names may differ.
bool is_as(const Part& part, const Part& made) {
  return part.type == made.type && part.element_bytes == made.element_bytes &&
         part.count == made.count && part.tracking == made.tracking &&
         part.shape.layout == made.shape.layout && part.shape.slots == made.shape.slots &&
         part.shape.bytes_per_slot == made.shape.bytes_per_slot;
}

void check_array(std::string_view name, const Part& part) {
  if (detail::is_reserved(part.type)) {
    refuse(name, concat("part '", part.name, "' is an array of the type '", part.type,
                        "', which the library calls its own objects: choose another"));
  }
  if (part.type == detail::kUnnamedType) {
    refuse(name, concat("part '", part.name, "' is of the type '", part.type,
                        "', which every struct was called once: choose another"));
  }
  if (part.name == Part::kTransaction) {
    refuse(name, concat("an array is called '", part.name,
                        "', as transactions are: choose another "
                        "name"));
  }
  if (part.shape.slots != 0 || part.shape.bytes_per_slot != 0) {
    refuse(name, concat("part '", part.name,
                        "' is an array, and has the shape of a log: make it by "
                        "Part::array()"));
  }
  if (part.tracking > Tracking::none) {
    refuse(name, concat("part '", part.name, "' has tracking ",
                        static_cast<std::uint32_t>(part.tracking), ", which is none"));
  }
}

void check_log(std::string_view name, const Part& part) {
  try {
    if (is_as(part, Part::undo_log(part.name, part.shape))) return;
  } catch (const Error& error) {
    refuse(name, concat("log '", part.name, "': ", error.what()));
  }
  refuse(name, concat("log '", part.name, "' is not as Part::undo_log() makes it"));
}

// Members are public, so that a part need not be what its maker made.
void check_part(std::string_view name, const Part& part) {
  check_text(name, "the name of a part", part.name, Part::kNameBytes);
  check_text(name, "the type of a part", part.type, core::kTypeBytes);
  if (part.name.find('.') != std::string::npos) {
    refuse(name, concat("the name of part '", part.name,
                        "' must have no '.': it would be one of durable object '", name, ".",
                        part.name.substr(0, part.name.find('.')), "'"));
  }
  if (const std::string wrong = wrong_size(part); !wrong.empty()) refuse(name, wrong);
  switch (part.kind) {
    case Part::Kind::array:
      return check_array(name, part);
    case Part::Kind::transaction:
      if (part.name == Part::kTransaction && is_as(part, Part::transaction())) return;
      refuse(name, concat("its transaction is called '", part.name, "', and must be '",
                          Part::kTransaction, "', as Part::transaction() makes it"));
    case Part::Kind::undo_log:
      return check_log(name, part);
  }
  refuse(name, concat("part '", part.name, "' is of kind ", static_cast<std::uint32_t>(part.kind),
                      ", which is none"));
}

std::uint64_t whole_pages(std::uint64_t bytes) { return core::pages_of(bytes) * core::kPage; }

// Where the region puts objects one after another: into the first gap that is large enough.
class Gaps {
 public:
  Gaps(const Region& region, const std::vector<std::string>& gone) {
    std::uint64_t at = core::kMetadataBytes;
    for (const ObjectInfo& object : region.objects()) {
      if (std::find(gone.begin(), gone.end(), object.name) != gone.end()) continue;
      gaps_.push_back({at, object.offset});
      at = object.offset + whole_pages(object.bytes());
      ++objects_;
    }
    gaps_.push_back({at, region.size()});
  }
  bool take(std::uint64_t bytes) {
    const std::uint64_t wanted = whole_pages(bytes);
    for (Gap& gap : gaps_) {
      if (gap.end - gap.first < wanted) continue;
      gap.first += wanted;
      return ++objects_ <= core::kMaxObjects;
    }
    return false;
  }
  std::uint64_t free() const {
    std::uint64_t bytes = 0;
    for (const Gap& gap : gaps_) bytes += gap.end - gap.first;
    return bytes;
  }
  std::uint32_t objects() const { return objects_; }

 private:
  struct Gap {
    std::uint64_t first, end;
  };
  std::vector<Gap> gaps_;
  std::uint32_t objects_ = 0;
};

}  // namespace

std::string object_name(std::string_view object, std::string_view part) {
  return concat(object, ".", part);
}

std::string wrong_size(const Part& part) {
  if (part.element_bytes != 0 && part.count != 0 &&
      part.count <= core::kMaxRegionBytes / part.element_bytes) {
    return {};
  }
  return concat("part '", part.name, "' has ", part.count, " elements of ", part.element_bytes,
                " bytes: give one at least, and no more than ", core::kMaxRegionBytes,
                " bytes, the most that a region can have");
}

void check(std::string_view name, const Identity& identity, const std::vector<Part>& parts) {
  check_text(name, "its name", name, core::kNameBytes);
  check_text(name, "its type", identity.type, core::kTypeBytes);
  if (parts.size() > Part::kMost) {
    refuse(name, concat(parts.size(), " parts; it can have ", Part::kMost));
  }
  std::set<std::string_view> names{Part::kHeader};
  bool has_transaction = false;
  const auto check_length = [&](const std::string& object) {
    if (object.size() < core::kNameBytes) return;
    refuse(name, concat("its object '", object, "' would have a name of ", object.size(),
                        " bytes, and a region's have ", core::kNameBytes - 1,
                        " at most: give it a shorter one"));
  };
  check_length(object_name(name, Part::kHeader));
  for (const Part& part : parts) {
    check_part(name, part);
    check_length(object_name(name, part.name));
    if (!names.insert(part.name).second) {
      refuse(name, concat("part '", part.name, "' is there twice (the header is called '",
                          Part::kHeader, "')"));
    }
    if (part.kind == Part::Kind::undo_log && !has_transaction) {
      refuse(name, concat("log '", part.name, "' has no transaction in front of it"));
    }
    has_transaction |= part.kind == Part::Kind::transaction;
  }
}

std::uint64_t checksum_of(const Header& header) {
  const std::size_t first = offsetof(Header, format);
  return XXH3_64bits(reinterpret_cast<const std::byte*>(&header) + first, sizeof(header) - first);
}

Header encode(const Identity& identity, const void* parameters, const std::vector<Part>& parts) {
  Header header{};
  header.magic = Header::kMaking;
  header.format = Header::kFormat;
  header.version = identity.version;
  copy_text(header.type, identity.type);
  header.parts = static_cast<std::uint32_t>(parts.size());
  header.parameter_bytes = static_cast<std::uint32_t>(identity.parameter_bytes);
  std::memcpy(header.parameters, parameters, identity.parameter_bytes);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    PartEntry& entry = header.table[i];
    copy_text(entry.name, part.name);
    copy_text(entry.type, part.type);
    entry.kind = static_cast<std::uint32_t>(part.kind);
    entry.element_bytes = part.element_bytes;
    entry.count = part.count;
    entry.tracking = static_cast<std::uint32_t>(part.tracking);
    if (part.kind != Part::Kind::undo_log) continue;
    entry.layout = static_cast<std::uint32_t>(part.shape.layout);
    entry.slots = part.shape.slots;
    entry.bytes_per_slot = part.shape.bytes_per_slot;
  }
  header.checksum = checksum_of(header);
  return header;
}

void check_room(const Region& region, const std::string& where, const std::vector<Part>& parts,
                const std::vector<std::string>& gone) {
  Gaps gaps(region, gone);
  const std::uint64_t free = gaps.free();
  const std::uint64_t needed = detail::DurableObject::bytes(parts);
  bool fits = gaps.take(sizeof(Header));
  for (const Part& part : parts) fits = gaps.take(part.element_bytes * part.count) && fits;
  if (fits) return;
  if (gaps.objects() > core::kMaxObjects) {
    throw Error(Errc::no_space, concat(where, " is made of ", parts.size() + 1,
                                       " objects, and the region has no room for so many beside "
                                       "its own: a region holds ",
                                       core::kMaxObjects));
  }
  throw Error(Errc::no_space,
              concat(where, " takes ", needed, " bytes; the region has ", free, " free",
                     needed > free ? "" : ", but not in one piece", ": grow() it"));
}

}  // namespace holdfast::durable

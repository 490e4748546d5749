#include "holdfast/durable.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/format.hpp"
#include "core/guard.hpp"
#include "durable/creation.hpp"
#include "durable/header.hpp"
#include "undo_log/medium_store.hpp"
#include "undo_log/undo_log_impl.hpp"

namespace holdfast::detail {

using durable::Header;
using durable::object_name;
using durable::PartEntry;

namespace {

// What stands where an object's header should be.
enum class Found {
  nothing,
  stranger,    // an object that is no header
  headless,    // no header, but a transaction: structures had these before they had a header
  unlabelled,  // a header without its magic number: no part is there yet
  making,      // some parts may be there
  whole,
  damaged,
};

struct Look {
  Found found = Found::nothing;
  Header header{};
  std::string other;  // stranger: its type
  std::string how;    // damaged: what shows it, if that is not the header itself
};

std::string place_of(std::string_view name, const Region& region) {
  return concat("'", name, "' in region '", region.path(), "'");
}

Look look(Region& region, Stream& stream, std::string_view name) {
  Look result;
  const std::string object = object_name(name, Part::kHeader);
  if (!region.contains(object)) {
    const std::string transaction = object_name(name, Part::kTransaction);
    if (region.contains(transaction) &&
        region.object(transaction).type == TransactionHeader::kTypeName) {
      result.found = Found::headless;
    }
    return result;
  }
  const ObjectInfo info = region.object(object);
  result.found = Found::damaged;
  if (info.type != Header::kTypeName) {
    result.found = Found::stranger;
    result.other = info.type;
    return result;
  }
  if (info.bytes() != sizeof(Header)) return result;
  read_back(stream, &result.header, region.address(info), sizeof(Header));
  const Header& header = result.header;
  if (header.magic == 0) {
    result.found = Found::unlabelled;
  } else if (header.checksum == durable::checksum_of(header)) {
    if (header.magic == Header::kWhole) result.found = Found::whole;
    if (header.magic == Header::kMaking) result.found = Found::making;
  }
  return result;
}

// For what stands in the way of creating, opening and removing alike.
void refuse_stranger(const Look& seen, const std::string& place) {
  if (seen.found == Found::stranger) {
    throw Error(Errc::unsupported,
                concat(place, ": its object '", Part::kHeader, "' is a '", seen.other,
                       "', and not the header of a durable object: an earlier version of Holdfast "
                       "made it, or another program. Open it with the version that made it, or "
                       "remove its objects (Region::remove()) and make it again"));
  }
  if (seen.found == Found::damaged) {
    throw Error(Errc::damaged, concat(place, " has a damaged header", seen.how,
                                      "; reopen the region from its last commit"));
  }
}

template <std::size_t N>
std::string_view text_in(const char (&field)[N]) {
  return {field, ::strnlen(field, N)};
}

// Whether an object is what the header of `name` lists: a name alone would make remains of what
// others have put there since.
bool is_listed(Region& region, std::string_view name, const ObjectInfo& info,
               const PartEntry& entry) {
  if (info.type != text_in(entry.type) || info.element_bytes != entry.element_bytes ||
      info.count != entry.count || static_cast<std::uint32_t>(info.tracking) != entry.tracking) {
    return false;
  }
  if (entry.kind != static_cast<std::uint32_t>(Part::Kind::undo_log)) return true;
  try {
    const std::string owner = UndoLog::Impl::transaction_of(region, info);
    return owner.empty() || owner == object_name(name, Part::kTransaction);
  } catch (const Error& error) {
    if (error.code() != Errc::damaged) throw;
    return true;
  }
}

std::vector<std::string> objects_in(const Header& header, std::string_view name, Region& region) {
  std::vector<std::string> objects;
  const std::uint32_t parts = std::min<std::uint32_t>(header.parts, Part::kMost);
  for (std::uint32_t i = 0; i < parts; ++i) {
    const PartEntry& entry = header.table[i];
    const std::string object = object_name(name, text_in(entry.name));
    if (region.contains(object) && is_listed(region, name, region.object(object), entry)) {
      objects.push_back(object);
    }
  }
  return objects;
}

// What Python keeps beside a map: that of one called "a.b" is called "a.b_types", which the header
// of an object "a" has nothing to do with.
bool stands_beside(std::string_view part) {
  constexpr std::string_view kEnds[] = {"_types", "_shard", "_whole", "_loads"};
  return std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](std::string_view end) { return part.ends_with(end); });
}

// An object of a name that is a part's; none: there is no such one. Which names those are that it
// was made with its header alone says, and so all count that are the object's own (durable.hpp).
std::string any_part(const Region& region, std::string_view name) {
  const std::string front = object_name(name, "");
  for (const ObjectInfo& info : region.objects()) {
    const std::string_view object = info.name;
    if (!object.starts_with(front)) continue;
    const std::string_view part = object.substr(front.size());
    const bool is_name = part != Part::kHeader && part.find('.') == std::string_view::npos;
    if (is_name && !stands_beside(part)) return info.name;
  }
  return {};
}

// As look(). No part is made before its header has its magic number, and that outlives them: where
// one is there without it, the number was lost, with the rest of the page or alone.
Look look_at_all(Region& region, Stream& stream, std::string_view name) {
  Look seen = look(region, stream, name);
  if (seen.found != Found::unlabelled) return seen;
  const std::string part = any_part(region, name);
  if (part.empty()) return seen;
  seen.found = Found::damaged;
  seen.how = concat(": '", object_name(name, Part::kHeader), "' begins with zeros, as before '",
                    part, "' was made, which is there");
  return seen;
}

// What there is of it, or was left by a creation that was cut off, in the order in which it has to
// go.
std::vector<std::string> objects_of(const Look& seen, std::string_view name, Region& region) {
  std::vector<std::string> objects;
  const bool has_parts = seen.found == Found::making || seen.found == Found::whole;
  if (has_parts) objects = objects_in(seen.header, name, region);
  if (has_parts || seen.found == Found::unlabelled) {
    objects.push_back(object_name(name, Part::kHeader));
  }
  return objects;
}

bool is_in(const std::vector<std::string>& objects, const std::string& object) {
  return std::find(objects.begin(), objects.end(), object) != objects.end();
}

// Objects that stand where a part would, and are none of what is to go.
void refuse_in_the_way(Region& region, std::string_view name, const std::vector<Part>& parts,
                       const std::vector<std::string>& gone) {
  for (const Part& part : parts) {
    const std::string object = object_name(name, part.name);
    if (!region.contains(object) || is_in(gone, object)) continue;
    throw Error(Errc::already_exists,
                concat("object '", object, "' of region '", region.path(),
                       "' belongs to no durable object, and stands where a part of this one would: "
                       "remove it, or take another region"));
  }
}

// Logs that name its transaction, and are none of what is to go. Throws damaged, too: a damaged log
// keeps any transaction from being made.
std::string strange_log(Region& region, std::string_view name, const std::vector<std::string>& gone,
                        bool ignore_damaged) {
  const std::string transaction = object_name(name, Part::kTransaction);
  for (const ObjectInfo& info : region.objects()) {
    if (info.type != LogHeader::kTypeName || is_in(gone, info.name)) continue;
    try {
      if (UndoLog::Impl::transaction_of(region, info) == transaction) return info.name;
    } catch (const Error& error) {
      if (!ignore_damaged || error.code() != Errc::damaged) throw;
    }
  }
  return {};
}

void refuse_logs_of_the_last(Region& region, std::string_view name, const std::vector<Part>& parts,
                             const std::vector<std::string>& gone) {
  const bool has_transaction = std::any_of(parts.begin(), parts.end(), [](const Part& part) {
    return part.kind == Part::Kind::transaction;
  });
  if (!has_transaction) return;
  const std::string log = strange_log(region, name, gone, false);
  if (log.empty()) return;
  throw Error(Errc::already_exists,
              concat("log '", log, "' of region '", region.path(),
                     "' is of an earlier transaction '", object_name(name, Part::kTransaction),
                     "', which is gone, and would be taken for one of this one: remove it by "
                     "Region::remove() first"));
}

void remove_objects(Region& region, const std::vector<std::string>& objects) {
  for (const std::string& object : objects) region.remove(object);
}

void set_magic(Region& region, Stream& stream, std::string_view name, std::uint64_t magic) {
  void* const header = region.address(region.object(object_name(name, Part::kHeader)));
  store_durably(region, stream, header, &magic, sizeof(magic));
}

// Throws what is wrong with a header that is not one of this identity.
void check_identity(const Header& header, const DurableObject::Identity& identity,
                    const std::string& place) {
  const std::string type(text_in(header.type));
  if (header.format > Header::kFormat) {
    throw Error(Errc::newer_version,
                concat(place, " has a header of format ", header.format,
                       ", and this build reads up to ", Header::kFormat, "; use a newer build"));
  }
  if (type != identity.type) {
    throw Error(Errc::invalid_argument, concat(place, " is a ", type, ", not a ", identity.type));
  }
  if (header.version > identity.version) {
    throw Error(Errc::newer_version,
                concat(type, " ", place, " is of version ", header.version,
                       ", and this build reads up to ", identity.version, "; use a newer build"));
  }
  if (header.version < identity.version) {
    throw Error(Errc::unsupported,
                concat(type, " ", place, " is of version ", header.version,
                       ", and this build reads version ", identity.version,
                       ": open it with the build that made it, or remove() it and make it again"));
  }
}

}  // namespace

DurableObject::DurableObject(std::string_view name, std::string where)
    : state_(std::make_shared<State>(State{std::string(name), std::move(where), {}, {}}),
             "durable object") {}

Transaction& DurableObject::transaction_of(State& state) {
  if (state.transaction) return *state.transaction;
  throw Error(Errc::not_found, concat(state.where, " has no transaction"));
}

// REQUIRES: nothing of it is there.
void DurableObject::make(Region& region, Stream& stream, std::string_view name,
                         const Identity& identity, const void* parameters,
                         const std::vector<Part>& parts) {
  const Header header = durable::encode(identity, parameters, parts);
  Header* const to =
      region.allocate<Header>(object_name(name, Part::kHeader), 1, Tracking::marked).data();
  store_header(region, stream, to, header);
  std::optional<Transaction>& transaction = state_->transaction;
  for (const Part& part : parts) {
    const std::string object = object_name(name, part.name);
    switch (part.kind) {
      case Part::Kind::array:
        region.allocate_raw(object, part.type, part.element_bytes, part.count, part.tracking);
        break;
      case Part::Kind::transaction:
        transaction = Transaction::create(region, object);
        break;
      case Part::Kind::undo_log:
        transaction->create_log(region, object, part.shape);
        break;
    }
  }
  find_parts(region, parts);
  set_magic(region, stream, name, Header::kWhole);
}

// Of a creation that failed; the header last, as what says what there is.
void DurableObject::take_back(Region& region, std::string_view name,
                              const std::vector<Part>& parts) {
  state_->transaction.reset();
  const auto remove = [&](std::string_view part) {
    const std::string object = object_name(name, part);
    if (region.contains(object)) region.remove(object);
  };
  for (const Part& part : parts) remove(part.name);
  remove(Part::kHeader);
}

DurableObject DurableObject::create(Region& region, std::string_view name, const Identity& identity,
                                    const void* parameters, const PartsOf& parts_of) try {
  region.check_writable("creating a durable object");
  const std::vector<Part> parts = parts_of(parameters);
  durable::check(name, identity, parts);
  const std::string place = place_of(name, region);
  Stream stream;
  const Look seen = look_at_all(region, stream, name);
  refuse_stranger(seen, place);
  if (seen.found == Found::whole) {
    throw Error(Errc::already_exists,
                concat(place, " is there already, a ", text_in(seen.header.type), " of version ",
                       seen.header.version, ": open it, or remove() it first"));
  }
  const std::vector<std::string> remains = objects_of(seen, name, region);
  refuse_in_the_way(region, name, parts, remains);
  refuse_logs_of_the_last(region, name, parts, remains);
  DurableObject result(name, concat(identity.type, " ", place));
  durable::check_room(region, result.state_->where, parts, remains);
  remove_objects(region, remains);

  finish_creation([&] { result.make(region, stream, name, identity, parameters, parts); },
                  [&] { result.take_back(region, name, parts); });
  return result;
} catch (const std::exception&) {
  core::fail("creating a durable object");
}

DurableObject DurableObject::open(Region& region, std::string_view name, const Identity& identity,
                                  void* parameters, const PartsOf& parts_of) try {
  const std::string place = place_of(name, region);
  DurableObject result(name, concat(identity.type, " ", place));
  const std::string& where = result.state_->where;
  Stream stream;
  const Look seen = look_at_all(region, stream, name);
  refuse_stranger(seen, place);
  if (seen.found == Found::nothing) {
    throw Error(Errc::not_found, concat("region '", region.path(), "' holds no ", identity.type,
                                        " '", name, "': create it"));
  }
  if (seen.found == Found::headless) {
    throw Error(Errc::unsupported,
                concat(place, " has no header, but there is a transaction '",
                       object_name(name, Part::kTransaction),
                       "': an earlier version of Holdfast made it, or another program. Open it "
                       "with what made it, or remove its objects (Region::remove()) and make it "
                       "again"));
  }
  if (seen.found != Found::whole) {
    throw Error(Errc::not_found, concat(where, ": its creation was cut off: create it again"));
  }
  const Header& header = seen.header;
  check_identity(header, identity, place);
  const auto damaged = [&](const std::string& what) {
    return Error(Errc::damaged,
                 concat(where, ": ", what, "; reopen the region from its last commit"));
  };
  if (header.parameter_bytes != identity.parameter_bytes) {
    throw damaged("its parameters have another size");
  }
  std::vector<Part> parts;
  try {
    parts = parts_of(header.parameters);
    durable::check(name, identity, parts);
  } catch (const Error& error) {
    if (error.code() != Errc::invalid_argument) throw;
    throw damaged(concat("its parameters cannot be (", error.what(), ")"));
  }
  const Header expected = durable::encode(identity, header.parameters, parts);
  constexpr std::size_t kFirst = offsetof(Header, format);
  if (std::memcmp(&expected.format, &header.format, sizeof(Header) - kFirst) != 0) {
    throw damaged("its parts are not those that its parameters make");
  }
  std::memcpy(parameters, header.parameters, identity.parameter_bytes);
  result.find_parts(region, parts);
  return result;
} catch (const std::exception&) {
  core::fail("opening a durable object");
}

// Throws damaged where a part is not as the header's table says.
void DurableObject::find_parts(Region& region, const std::vector<Part>& parts) {
  State& state = *state_;
  const auto damaged = [&](const std::string& object, const std::string& what) {
    return Error(Errc::damaged, concat(state.where, ": its object '", object, "' ", what,
                                       "; reopen the region from its last commit"));
  };
  for (const Part& part : parts) {
    const std::string object = object_name(state.name, part.name);
    if (!region.contains(object)) throw damaged(object, "is gone");
    const ObjectInfo info = region.object(object);
    if (info.type != part.type || info.element_bytes != part.element_bytes ||
        info.count != part.count || info.tracking != part.tracking) {
      throw damaged(object,
                    concat("holds ", info.count, " ", info.type, " of ", info.element_bytes,
                           " bytes, not ", part.count, " ", part.type, " of ", part.element_bytes));
    }
    state.parts.push_back({part, region.address(info)});
    try {
      if (part.kind == Part::Kind::transaction && !state.transaction) {
        state.transaction = Transaction::open(region, object);
      }
      if (part.kind != Part::Kind::undo_log) continue;
      const LogShape shape = state.transaction->log(object).shape();
      if (shape.layout != part.shape.layout || shape.slots != part.shape.slots) {
        throw damaged(object, "is a log of another shape");
      }
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
      throw damaged(object, concat("is none of it (", error.what(), ")"));
    }
  }
}

void DurableObject::remove(Region& region, std::string_view name) try {
  region.check_writable("removing a durable object");
  const std::string place = place_of(name, region);
  Stream stream;
  const Look seen = look_at_all(region, stream, name);
  refuse_stranger(seen, place);
  if (seen.found == Found::nothing || seen.found == Found::headless) {
    throw Error(Errc::not_found,
                concat("region '", region.path(), "' holds no durable object '", name, "'"));
  }
  const std::vector<std::string> objects = objects_of(seen, name, region);
  if (const std::string log = strange_log(region, name, objects, true); !log.empty()) {
    throw Error(Errc::invalid_argument,
                concat(place, ": log '", log,
                       "' is no part of it, and belongs to its transaction: "
                       "remove it first, by Transaction::remove_log() or Region::remove()"));
  }
  if (seen.found == Found::whole) set_magic(region, stream, name, Header::kMaking);
  remove_objects(region, objects);
} catch (const std::exception&) {
  core::fail("removing a durable object");
}

std::uint64_t DurableObject::bytes(const std::vector<Part>& parts) {
  std::uint64_t pages = core::pages_of(sizeof(Header));
  for (const Part& part : parts) {
    if (const std::string wrong = durable::wrong_size(part); !wrong.empty()) {
      throw Error(Errc::invalid_argument, wrong);
    }
    pages += core::pages_of(part.element_bytes * part.count);
  }
  return pages * core::kPage;
}

std::uint64_t DurableObject::region_bytes(const std::vector<Part>& parts) {
  return core::kMetadataBytes + bytes(parts);
}

void* DurableObject::array(std::string_view part, const char* type, std::uint32_t element_bytes,
                           std::uint64_t* count) const {
  for (const Placed& placed : state_->parts) {
    if (placed.part.name != part) continue;
    if (placed.part.type != type || placed.part.element_bytes != element_bytes) {
      throw Error(Errc::invalid_argument,
                  concat(state_->where, ": part '", part, "' holds ", placed.part.type, " of ",
                         placed.part.element_bytes, " bytes, not ", type, " of ", element_bytes));
    }
    *count = placed.part.count;
    return placed.address;
  }
  throw Error(Errc::not_found, concat(state_->where, " has no part '", part, "'"));
}

Transaction& DurableObject::transaction() { return transaction_of(*state_); }

UndoLog DurableObject::log(std::string_view part) const {
  State& state = *state_;
  return transaction_of(state).log(object_name(state.name, part));
}

}  // namespace holdfast::detail

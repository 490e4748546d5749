// Durable objects: a structure in a region, as one thing. It has a name, a type, a version, fixed
// parameters, and parts, each an object "<name>.<part>" of the region. The layer makes it so that a
// kill at any point leaves it whole or absent, and opens it only if all of it is as it was made.
//
// docs/architecture.md, "Durable objects", says how to write a structure on it; docs/format.md has
// the bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "holdfast/config.hpp"
#include "holdfast/region.hpp"
#include "holdfast/transaction.hpp"
#include "holdfast/undo_log.hpp"

namespace holdfast {

// What a durable object is made of.
struct Part {
  static constexpr std::size_t kMost = 16;       // of an object
  static constexpr std::size_t kNameBytes = 24;  // with the zero that ends it; no '.' in it
  static constexpr const char* kHeader = "header";
  static constexpr const char* kTransaction = "tx";

  enum class Kind : std::uint32_t { array = 1, transaction = 2, undo_log = 3 };

  // Zeroed elements. `tracking`: hashed where kernels do not mark what they store.
  template <class T>
  static Part array(std::string name, std::uint64_t count, Tracking tracking = Tracking::marked) {
    return {Kind::array, std::move(name), type_name<T>(), sizeof(T), count, tracking, {}};
  }
  // One at most, called "tx", in front of the logs.
  static Part transaction();
  // Throws invalid_argument (shape, layout).
  static Part undo_log(std::string name, const LogShape& shape);

  Kind kind = Kind::array;
  std::string name;
  std::string type;
  std::uint32_t element_bytes = 0;
  std::uint64_t count = 0;
  Tracking tracking = Tracking::marked;
  LogShape shape{};  // undo_log
};

namespace detail {

// A durable object of any type; Durable is what to use.
class DurableObject {
 public:
  struct Identity {
    std::string_view type;
    std::uint32_t version;
    std::size_t parameter_bytes;
  };
  using PartsOf = std::function<std::vector<Part>(const void* parameters)>;

  static DurableObject create(Region& region, std::string_view name, const Identity& identity,
                              const void* parameters, const PartsOf& parts_of);
  // Fills `parameters`, and asks `parts_of` for the parts that these must have.
  static DurableObject open(Region& region, std::string_view name, const Identity& identity,
                            void* parameters, const PartsOf& parts_of);
  static void remove(Region& region, std::string_view name);
  static std::uint64_t bytes(const std::vector<Part>& parts);
  static std::uint64_t region_bytes(const std::vector<Part>& parts);

  void* array(std::string_view part, const char* type, std::uint32_t element_bytes,
              std::uint64_t* count) const;
  Transaction& transaction();
  UndoLog log(std::string_view part) const;

 private:
  struct Placed {
    Part part;
    void* address;
  };
  void find_parts(Region& region, const std::vector<Part>& parts);
  void make(Region& region, Stream& stream, std::string_view name, const Identity& identity,
            const void* parameters, const std::vector<Part>& parts);
  void take_back(Region& region, std::string_view name, const std::vector<Part>& parts);

  struct State {
    std::string name;
    std::string where;  // for messages: "key-value store 'kvs' in region 'x'"
    std::vector<Placed> parts;
    std::optional<Transaction> transaction;
  };
  DurableObject(std::string_view name, std::string where);
  static Transaction& transaction_of(State& state);
  Shared<State> state_;
};

}  // namespace detail

// A durable object with these Parameters, a trivially copyable struct of at most 512 bytes:
//   static constexpr const char* kTypeName = "...";  // of the structure, at most 23 characters
//   static constexpr std::uint32_t kVersion = 1;     // of what it keeps in its parts
//   std::vector<Part> parts() const;  // throws invalid_argument: there is none of these parameters
// Parameters never change, and say all parts there are; what changes is kept in parts.
//
// Names of the region that begin with "<name>." belong to the object: call nothing else so but
// other durable objects, which do not meet it.
//
// The region outlives it, and may be moved. As with a Transaction, streams that use it are waited
// for before it ends. Use of one that was moved from throws Errc::closed. Thread safety: one thread
// at a time.
template <class Parameters>
class Durable {
 public:
  static constexpr std::size_t kMostParameterBytes = 512;
  static_assert(std::is_trivially_copyable_v<Parameters>);
  static_assert(sizeof(Parameters) <= kMostParameterBytes);

  // Removes what a creation of this name that was cut off has left, if anything: what its header
  // lists, and is of the type, size and tracking listed. Throws, with nothing changed,
  // already_exists (also for an object that is called as a part, and for a log that names its
  // transaction), invalid_argument (parameters, names, parts), no_space, damaged (its header, or
  // any transaction's log), unsupported (a region that is open for reading; an object of an earlier
  // version stands there); and no_memory.
  static Durable create(Region& region, std::string_view name, const Parameters& parameters) {
    return Durable(DurableObject::create(region, name, identity(), &parameters, parts_of),
                   parameters);
  }

  // Throws not_found (nothing there, or its creation was cut off), invalid_argument (another type),
  // newer_version, unsupported (an older version: it has to be removed and made again), damaged
  // (anything of it is not as it was made; its header reads as zeros, and a part is there).
  static Durable open(Region& region, std::string_view name) {
    Parameters parameters;
    DurableObject object =
        DurableObject::open(region, name, identity(), static_cast<void*>(&parameters), parts_of);
    return Durable(std::move(object), parameters);
  }

  // Removes the object of this name, whatever its type. What has taken the place of a part and is
  // of another type, size or tracking stays. A kill leaves it whole, or absent with something for
  // the next creation to remove. REQUIRES: it is not open. Throws not_found, invalid_argument (a
  // log that is no part of it belongs to its transaction: Transaction::remove_log() first), damaged
  // (its parts are not known: remove them by Region::remove()), unsupported as create().
  static void remove(Region& region, std::string_view name) { DurableObject::remove(region, name); }

  // Bytes that it takes in a region, its header included. Throws invalid_argument (parameters; a
  // part that no region can hold).
  static std::uint64_t bytes(const Parameters& parameters) {
    return DurableObject::bytes(parameters.parts());
  }
  // Bytes that a region must have to hold it and nothing else. Throws as bytes().
  static std::uint64_t region_bytes(const Parameters& parameters) {
    return DurableObject::region_bytes(parameters.parts());
  }

  const Parameters& parameters() const { return parameters_; }
  // Throws not_found, or invalid_argument if it has another type.
  template <class T>
  std::span<T> part(std::string_view name) const {
    std::uint64_t count = 0;
    void* const first = object_.array(name, type_name<T>(), sizeof(T), &count);
    return {static_cast<T*>(first), static_cast<std::size_t>(count)};
  }
  // Throws not_found if it has none.
  Transaction& transaction() { return object_.transaction(); }
  UndoLog log(std::string_view name) const { return object_.log(name); }

 private:
  using DurableObject = detail::DurableObject;
  Durable(DurableObject object, const Parameters& parameters)
      : object_(std::move(object)), parameters_(parameters) {}
  static DurableObject::Identity identity() {
    return {Parameters::kTypeName, Parameters::kVersion, sizeof(Parameters)};
  }
  static std::vector<Part> parts_of(const void* stored) {
    Parameters parameters;
    std::memcpy(static_cast<void*>(&parameters), stored, sizeof(parameters));
    return parameters.parts();
  }

  DurableObject object_;
  Parameters parameters_;
};

}  // namespace holdfast

// A map's record of changes: which keys its batches have changed, in their order. docs/map.md,
// "Changes"; docs/format.md has the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/durable.hpp"
#include "holdfast/hash_map.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::detail {
struct MapBatch;  // known where kernels are compiled
}

namespace holdfast::map {

// The durable object "<name>.changes".
struct ChangesParameters {
  static constexpr const char* kTypeName = "map changes";
  static constexpr std::uint32_t kVersion = 1;
  std::uint64_t entries;  // of the ring of keys
  std::uint64_t window;   // of these, the latest, which a reader may ask for
  std::uint32_t key_bytes;
  std::uint32_t reserved;

  std::vector<Part> parts() const;  // throws invalid_argument
};
using ChangesObject = Durable<ChangesParameters>;

// For a map that is made. Throws invalid_argument.
ChangesParameters changes_parameters(std::uint64_t changes, std::uint32_t key_bytes,
                                     std::uint32_t max_batch);
std::string changes_name(std::string_view map);
// Of a map that is not there, or was removed; if there is one. Throws, with nothing changed,
// already_exists (what is called so is another's), and as Durable::remove().
void remove_changes(Region& region, std::string_view map);
// The operations that a map's record keeps; 0: it has none. Throws damaged, as Durable::open().
std::uint64_t recorded(Region& region, std::string_view map, const std::string& where);

// Invariants: an operation is recorded, durably, before the batch changes anything: its key in the
// ring, and then the number of all. Between calls the numbers here are as the medium has them. What
// a batch stores in the ring is outside of the window, until the number says that it is there.
class Changes {
 public:
  // Reads what is there. Null: the map has none, whatever else is called so. Throws damaged, as
  // Durable::open(), and invalid_argument: there is no room for batches of so many operations.
  static std::unique_ptr<Changes> load(Region& region, Stream& stream, std::string_view map,
                                       const std::string& where, std::uint32_t key_bytes,
                                       std::uint32_t max_batch);
  // Begins an opening; before anything else.
  void begin(Stream& stream);

  // Queues the recording of a batch, whose keys are in device memory, unless it is refused.
  void record(Stream& stream, const detail::MapBatch& batch);
  // It was waited for, and was not refused.
  void recorded(std::uint64_t operations) { number_ += operations; }
  // Readers of all versions until now have to begin anew: what comes is not recorded.
  void forget(Stream& stream);

  std::uint64_t number() const { return number_; }
  // The version behind so many operations, of a page that is exported now.
  MapVersion version_at(std::uint64_t number) const;
  // How many operations were recorded at that version. Throws not_found: it is none of this map's,
  // or not any more.
  std::uint64_t number_of(const MapVersion& version) const;
  // Queues the copying of the keys of operations [first, first + count) to device memory.
  void bring(Stream& stream, std::uint64_t first, std::uint64_t count, std::byte* keys) const;

  // What the map has taken over of another one's changes.
  bool follows() const { return followed_count_ != 0; }
  const MapVersion& followed() const { return followed_; }
  void follow(Stream& stream, const MapVersion& version);

 private:
  // Each but the numbers is of three words, and what is followed of four: the last one is a sum.
  static constexpr std::uint64_t kOpenings = 64;
  enum Head { kNumber, kFloor, kOpeningCount, kFollowedCount, kFirstOpening };
  static constexpr std::uint64_t kFirstFollowed = kFirstOpening + 3 * kOpenings;
  static constexpr std::uint64_t kHeadWords = kFirstFollowed + 4 * 2;
  friend struct ChangesParameters;

  struct Opening {
    std::uint64_t id;
    std::uint64_t first;  // operations recorded before it
  };

  Changes(Region& region, std::string where, ChangesObject object);
  void read(const std::vector<std::uint64_t>& head);
  std::uint64_t number_in(const std::vector<std::uint64_t>& head, Head which) const;
  Opening opening_in(const std::vector<std::uint64_t>& head, std::uint64_t number) const;
  MapVersion followed_in(const std::vector<std::uint64_t>& head) const;
  [[noreturn]] void damaged(const char* what) const;
  void store_number(Stream& stream, Head which, std::uint64_t number);
  void store_opening(Stream& stream, const Opening& opening);
  std::uint64_t oldest() const;

  Region& region_;
  std::string where_;
  ChangesObject object_;
  std::byte* ring_;
  std::uint64_t* head_;
  std::uint64_t number_ = 0;
  std::uint64_t floor_ = 0;  // versions before it are not known
  std::uint64_t opening_count_ = 0;
  std::vector<Opening> openings_;  // the latest ones
  std::uint64_t followed_count_ = 0;
  MapVersion followed_;
};

}  // namespace holdfast::map

#include "hash_map/changes.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/checksum.hpp"
#include "hash_map/format.hpp"
#include "holdfast/kernel.hpp"
#include "undo_log/medium_store.hpp"

namespace holdfast::map {

using detail::concat;
using detail::MapBatch;

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kNumberBits = 48;
constexpr std::uint64_t kMostChanges = std::uint64_t{1} << 40;
constexpr const char* kKeys = "keys";
constexpr const char* kHead = "head";

std::uint64_t hash_of(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t low = MapHash::hash(a ^ 0x9e3779b97f4a7c15ull, 0);
  return std::uint64_t{MapHash::hash(b + low, 1)} << 32 | MapHash::hash(~b ^ low << 32, 0);
}

std::uint64_t hash_of(const MapVersion& version) {
  return hash_of(hash_of(version.opening, version.number), version.seen);
}

// A number as the medium has it at word `place`, with a sum of both in its high bits: what another
// word has is damage.
std::uint64_t encode(std::uint64_t place, std::uint64_t number) {
  return number | hash_of(number, place) << kNumberBits;
}

__device__ bool is_refused(const MapBatch& batch) {
  return batch.refuse[0] != 0 || batch.refuse[1] != 0;
}

// A thread for each 4 bytes.
__global__ void store_keys(MapBatch batch, std::uint32_t* ring, std::uint64_t first,
                           std::uint64_t ring_words, std::uint64_t words, PageMarks marks) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= words || is_refused(batch)) return;
  std::uint32_t* const to = &ring[(first + i) % ring_words];
  *to = static_cast<const std::uint32_t*>(batch.keys)[i];
  marks.mark(to, sizeof(*to));
  persist();
}

__global__ void store_number_of(MapBatch batch, std::uint64_t* to, std::uint64_t word,
                                PageMarks marks) {
  if (is_refused(batch)) return;
  *to = word;
  marks.mark(to, sizeof(*to));
  persist();
}

}  // namespace

// ---- The object --------------------------------------------------------------------------------

std::vector<Part> ChangesParameters::parts() const {
  if (window == 0 || window > kMostChanges || entries <= window || entries - window > kMostBatch ||
      key_bytes < 4 || key_bytes > 128 || key_bytes % 4 != 0) {
    throw Error(Errc::invalid_argument, concat("hash map: changes ", window,
                                               "; give the operations that its record of "
                                               "changes keeps, at most ",
                                               kMostChanges, ", or 0 for none"));
  }
  return {Part::array<std::uint8_t>(kKeys, entries * key_bytes),
          Part::array<std::uint64_t>(kHead, Changes::kHeadWords)};
}

ChangesParameters changes_parameters(std::uint64_t changes, std::uint32_t key_bytes,
                                     std::uint32_t max_batch) {
  const ChangesParameters result{std::min(changes, kMostChanges + 1) + max_batch, changes,
                                 key_bytes, 0};
  (void)result.parts();
  return result;
}

std::string changes_name(std::string_view map) { return concat(map, ".changes"); }

namespace {

// Throws as Durable::open(), and already_exists: what is called so is no record.
ChangesObject open_record(Region& region, std::string_view map) {
  const std::string name = changes_name(map);
  try {
    return ChangesObject::open(region, name);
  } catch (const Error& error) {
    if (error.code() != Errc::invalid_argument && error.code() != Errc::unsupported) throw;
    throw Error(Errc::already_exists, concat("hash map '", map, "' of region '", region.path(),
                                             "' would have its record of changes in '", name,
                                             "', and what is called so is none (", error.what(),
                                             "): give the map another name, or remove that first"));
  }
}

bool has_header(const Region& region, std::string_view map) {
  return region.contains(concat(changes_name(map), ".", Part::kHeader));
}

// The record of a map that is there; none: it was made without.
std::optional<ChangesObject> find_record(Region& region, std::string_view map,
                                         const std::string& where) {
  if (!has_header(region, map)) return std::nullopt;
  try {
    return open_record(region, map);
  } catch (const Error& error) {
    // A map's record was whole before the map was. What is called so and is none, or was never
    // whole, is of another map, made behind one that has no record.
    const bool is_none = error.code() == Errc::already_exists || error.code() == Errc::not_found;
    if (!is_none) throw;
    if (error.code() == Errc::not_found && region.contains(concat(changes_name(map), ".", kHead))) {
      throw Error(Errc::damaged, concat(where,
                                        ": the header of its record of changes is lost; "
                                        "reopen the region from its last commit"));
    }
    return std::nullopt;
  }
}

}  // namespace

void remove_changes(Region& region, std::string_view map) {
  if (!has_header(region, map)) return;
  try {
    (void)open_record(region, map);
  } catch (const Error& error) {
    // A record that is not whole is removed as well, or says itself why it cannot be.
    if (error.code() == Errc::already_exists) throw;
  }
  ChangesObject::remove(region, changes_name(map));
}

std::uint64_t recorded(Region& region, std::string_view map, const std::string& where) {
  const std::optional<ChangesObject> object = find_record(region, map, where);
  return object ? object->parameters().window : 0;
}

// ---- What is there -----------------------------------------------------------------------------

Changes::Changes(Region& region, std::string where, ChangesObject object)
    : region_(region),
      where_(std::move(where)),
      object_(std::move(object)),
      ring_(reinterpret_cast<std::byte*>(object_.part<std::uint8_t>(kKeys).data())),
      head_(object_.part<std::uint64_t>(kHead).data()) {}

std::unique_ptr<Changes> Changes::load(Region& region, Stream& stream, std::string_view map,
                                       const std::string& where, std::uint32_t key_bytes,
                                       std::uint32_t max_batch) {
  std::optional<ChangesObject> object = find_record(region, map, where);
  if (!object) return nullptr;
  std::unique_ptr<Changes> changes(new Changes(region, where, std::move(*object)));
  const ChangesParameters& of = changes->object_.parameters();
  if (of.key_bytes != key_bytes) changes->damaged("it is of keys of another size");
  if (max_batch > of.entries - of.window) {
    throw Error(Errc::invalid_argument,
                concat(where, ": its record of changes was made for batches of ",
                       of.entries - of.window, " operations, and max_batch is ", max_batch,
                       ": give what it was made with, or less"));
  }
  std::vector<std::uint64_t> head(kHeadWords);
  read_back(stream, head.data(), changes->head_, kHeadWords * sizeof(head[0]));
  changes->read(head);
  return changes;
}

void Changes::damaged(const char* what) const {
  throw Error(Errc::damaged, concat(where_, ": its record of changes is damaged (", what,
                                    "); reopen the region from its last commit"));
}

std::uint64_t Changes::number_in(const std::vector<std::uint64_t>& head, Head which) const {
  const std::uint64_t number = head[which] & ((std::uint64_t{1} << kNumberBits) - 1);
  if (head[which] != encode(which, number)) damaged("a number");
  return number;
}

Changes::Opening Changes::opening_in(const std::vector<std::uint64_t>& head,
                                     std::uint64_t number) const {
  const std::uint64_t* const words = &head[kFirstOpening + number % kOpenings * 3];
  if (words[2] != hash_of(words[0], words[1])) damaged("an opening");
  return {words[0], words[1]};
}

MapVersion Changes::followed_in(const std::vector<std::uint64_t>& head) const {
  const std::uint64_t* const words = &head[kFirstFollowed + (followed_count_ - 1) % 2 * 4];
  const MapVersion version{words[0], words[1], words[2]};
  if (words[3] != hash_of(version)) damaged("a version");
  return version;
}

// Until the first opening is there all of it is nothing.
void Changes::read(const std::vector<std::uint64_t>& head) {
  if (head[kOpeningCount] == 0) {
    for (const Head which : {kNumber, kFloor, kFollowedCount}) {
      if (head[which] != 0 && head[which] != encode(which, 0)) damaged("no opening");
    }
    return;
  }
  number_ = number_in(head, kNumber);
  floor_ = number_in(head, kFloor);
  opening_count_ = number_in(head, kOpeningCount);
  followed_count_ = number_in(head, kFollowedCount);
  if (opening_count_ == 0) damaged("no opening");
  if (floor_ > number_ + 1) damaged("a number");
  // The slot in front of the oldest may be half of a new one.
  const std::uint64_t kept = std::min(opening_count_, kOpenings - 1);
  std::uint64_t last = 0;
  for (std::uint64_t i = opening_count_ - kept; i < opening_count_; ++i) {
    openings_.push_back(opening_in(head, i));
    if (openings_.back().first < last || openings_.back().first > number_) damaged("an opening");
    last = openings_.back().first;
  }
  if (followed_count_ == 0) return;
  followed_ = followed_in(head);
}

void Changes::store_number(Stream& stream, Head which, std::uint64_t number) {
  const std::uint64_t word = encode(which, number);
  store_durably(region_, stream, head_ + which, &word, sizeof(word));
}

void Changes::store_opening(Stream& stream, const Opening& opening) {
  const std::uint64_t words[3] = {opening.id, opening.first, hash_of(opening.id, opening.first)};
  store_durably(region_, stream, head_ + kFirstOpening + opening_count_ % kOpenings * 3, words,
                sizeof(words));
}

void Changes::begin(Stream& stream) {
  if (opening_count_ == 0) {
    for (const Head which : {kNumber, kFloor, kFollowedCount}) store_number(stream, which, 0);
  }
  if (floor_ > number_) {  // forget() was cut off
    store_number(stream, kNumber, floor_);
    number_ = floor_;
  }
  Opening opening{0, number_};
  core::random_bytes(&opening.id, sizeof(opening.id));
  store_opening(stream, opening);
  store_number(stream, kOpeningCount, opening_count_ + 1);
  ++opening_count_;
  openings_.push_back(opening);
  if (openings_.size() == kOpenings) openings_.erase(openings_.begin());
}

// ---- Recording ---------------------------------------------------------------------------------

// In two kernels, so that the number never counts keys that are not there. The batch is behind
// both.
void Changes::record(Stream& stream, const MapBatch& batch) {
  const ChangesParameters& of = object_.parameters();
  const std::uint64_t each = of.key_bytes / 4;
  const std::uint64_t words = batch.count * each;
  launch(stream, dim3(blocks_for(words, kThreads)), dim3(kThreads), store_keys, batch,
         reinterpret_cast<std::uint32_t*>(ring_), number_ % of.entries * each, of.entries * each,
         words, region_.marks());
  launch(stream, dim3(1), dim3(1), store_number_of, batch, head_ + kNumber,
         encode(kNumber, number_ + batch.count), region_.marks());
}

void Changes::forget(Stream& stream) {
  store_number(stream, kFloor, number_ + 1);
  floor_ = number_ + 1;
  store_number(stream, kNumber, floor_);
  number_ = floor_;
}

void Changes::bring(Stream& stream, std::uint64_t first, std::uint64_t count,
                    std::byte* keys) const {
  const ChangesParameters& of = object_.parameters();
  const std::uint64_t at = first % of.entries;
  const std::uint64_t piece = std::min(count, of.entries - at);
  copy_async(stream, keys, ring_ + at * of.key_bytes, piece * of.key_bytes);
  copy_async(stream, keys + piece * of.key_bytes, ring_, (count - piece) * of.key_bytes);
}

// ---- Versions ----------------------------------------------------------------------------------

std::uint64_t Changes::oldest() const {
  const std::uint64_t window = object_.parameters().window;
  return std::max(floor_, number_ - std::min(number_, window));
}

// Of this opening, though it may have begun behind it: what it has seen is of this one.
MapVersion Changes::version_at(std::uint64_t number) const {
  return {openings_.back().id, number, number_};
}

std::uint64_t Changes::number_of(const MapVersion& version) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::not_found,
                concat(where_, ": version ", version.number, " of opening ", version.opening, " ",
                       why, ": take a whole export, from version() on"));
  };
  const auto of = std::find_if(openings_.begin(), openings_.end(), [&](const Opening& opening) {
    return opening.id == version.opening;
  });
  if (of == openings_.end()) {
    refuse(concat("is none of this map's latest ", openings_.size(), " openings"));
  }
  const std::uint64_t end = std::next(of) == openings_.end() ? number_ : std::next(of)->first;
  if (std::max(version.number, version.seen) > end) {
    refuse(concat(version.number > end ? "is" : "has seen what is",
                  " not in the map, which was set back to an earlier commit, or to a copy, behind ",
                  end));
  }
  if (version.number < oldest()) {
    refuse(concat("is too old: what changed before ", oldest(), " is not recorded any more"));
  }
  return version.number;
}

void Changes::follow(Stream& stream, const MapVersion& version) {
  if (follows() && version == followed_) return;
  const std::uint64_t words[4] = {version.opening, version.number, version.seen, hash_of(version)};
  store_durably(region_, stream, head_ + kFirstFollowed + followed_count_ % 2 * 4, words,
                sizeof(words));
  store_number(stream, kFollowedCount, followed_count_ + 1);
  ++followed_count_;
  followed_ = version;
}

}  // namespace holdfast::map

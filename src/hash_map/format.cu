#include "hash_map/format.hpp"

#include <algorithm>

namespace holdfast::map {

using detail::concat;

namespace {

Error wrong(const std::string& what) { return Error(Errc::invalid_argument, "hash map: " + what); }

bool in_slots(std::uint32_t value_bytes) { return value_bytes <= 8; }

// Labels, words, and the keys that are no labels.
std::uint32_t bucket_bytes_of(std::uint32_t ways, std::uint32_t key_bytes) {
  const std::uint32_t label_bytes = std::min(key_bytes, 8u);
  return (ways * label_bytes + 7) / 8 * 8 + ways * 8 + (key_bytes > 8 ? ways * key_bytes : 0);
}

}  // namespace

std::uint32_t MapParameters::stride() const {
  constexpr std::uint32_t kAlignment = detail::kMapValueAlignment;
  return (value_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::uint32_t MapParameters::words_at() const {
  return bucket_bytes - ways * 8 - key_words() * ways * 8;
}

std::uint64_t MapParameters::bucket_count() const {
  std::uint64_t count = 0;
  for (unsigned level = 0; level < levels; ++level) count += buckets >> level;
  return count;
}

std::vector<Part> MapParameters::parts() const {
  if (key_bytes != 4 && key_bytes != 8 && !detail::map_is_long_key(key_bytes)) {
    throw wrong(concat("keys of ", key_bytes, " bytes; give 4, 8, or a multiple of 8 from ",
                       detail::kMapLeastLongKey, " to ", detail::kMapMostLongKey, ": pad them"));
  }
  if (value_bytes < 4 || value_bytes > kMostValueBytes || value_bytes % 4 != 0) {
    throw wrong(
        concat("value_bytes ", value_bytes, "; give a multiple of 4, from 4 to ", kMostValueBytes));
  }
  if (max_batch == 0 || max_batch > kMostBatch) {
    throw wrong(concat("max_batch ", max_batch, "; give 1 to ", kMostBatch, " operations"));
  }
  if (levels == 0 || levels > 16 || hashes == 0 || hashes > 32 || ways == 0 || ways > 32 ||
      levels * hashes * ways > 32 || bucket_bytes != bucket_bytes_of(ways, key_bytes)) {
    throw wrong(concat(levels, " levels, ", hashes, " hashes and ", ways,
                       " ways; their product is "
                       "4, 8, 16 or 32"));
  }
  if (buckets == 0 || buckets > kMostBucketsOfTop || buckets % (hashes << (levels - 1)) != 0) {
    throw wrong(concat(buckets, " buckets of the top level; a multiple of ", hashes << (levels - 1),
                       ", at most ", kMostBucketsOfTop));
  }
  if (in_slots(value_bytes) != (places == 0) || places >= ~0u) {
    throw wrong(concat("value_places ", places, " for values of ", value_bytes,
                       " bytes; give 0 for values of up to 8 bytes, and below 2^32 - 1"));
  }
  std::vector<Part> parts{Part::array<std::uint8_t>(kTable, table_bytes())};
  if (places != 0) parts.push_back(Part::array<std::uint8_t>(kValues, places * stride()));
  parts.push_back(Part::array<std::uint64_t>(kGrowth, 1));
  return parts;
}

std::vector<Part> MapParametersOfVersion1::parts() const {
  std::vector<Part> of_all = all.parts();
  of_all.pop_back();
  return of_all;
}

MapParameters parameters_of(const detail::MapTypes& types, const MapOptions& options,
                            std::uint64_t empty_key, std::uint64_t empty_value) {
  // A table is made of units, as small as one can be.
  const std::uint32_t top_of_unit = types.hashes << (types.levels - 1);
  const std::uint64_t of_unit =
      std::uint64_t{types.ways} * types.hashes * ((1u << types.levels) - 1);
  const std::uint64_t most = kMostBucketsOfTop / top_of_unit * of_unit;
  if (options.capacity == 0 || options.capacity > most) {
    throw wrong(concat("capacity ", options.capacity, "; give 1 to ", most, " slots"));
  }
  if (options.value_places != 0 && in_slots(options.value_bytes)) {
    throw wrong(concat("value_places ", options.value_places, " for values of ",
                       options.value_bytes, " bytes, which stand in slots: leave it 0"));
  }
  MapParameters result{};
  result.hash_id = types.hash_id;
  result.empty_key = empty_key;
  result.empty_value = empty_value;
  result.buckets =
      static_cast<std::uint32_t>((options.capacity + of_unit - 1) / of_unit) * top_of_unit;
  result.bucket_bytes = bucket_bytes_of(types.ways, types.key_bytes);
  result.value_bytes = options.value_bytes;
  result.max_batch = options.max_batch;
  result.key_bytes = types.key_bytes;
  result.levels = types.levels;
  result.hashes = types.hashes;
  result.ways = types.ways;
  if (!in_slots(options.value_bytes)) {
    result.places =
        options.value_places != 0 ? options.value_places : result.slots() + options.max_batch;
  }
  (void)result.parts();
  return result;
}

void check_types(const MapParameters& found, const detail::MapTypes& types,
                 const std::string& where) {
  const auto refuse = [&](const std::string& has, const std::string& wants) {
    throw Error(Errc::invalid_argument,
                concat(where, " has ", has, ", and is opened as one with ", wants,
                       ": open it by the HashMap type that made it"));
  };
  if (found.key_bytes != types.key_bytes) {
    refuse(concat("keys of ", found.key_bytes, " bytes"), concat("keys of ", types.key_bytes));
  }
  if (found.levels != types.levels || found.hashes != types.hashes || found.ways != types.ways) {
    const auto shape = [](unsigned levels, unsigned hashes, unsigned ways) {
      return concat(levels, " levels, ", hashes, " hashes and ", ways, " ways");
    };
    refuse(shape(found.levels, found.hashes, found.ways),
           shape(types.levels, types.hashes, types.ways));
  }
  if (found.hash_id != types.hash_id) {
    refuse(concat("hash functions number ", found.hash_id), concat("number ", types.hash_id));
  }
}

}  // namespace holdfast::map

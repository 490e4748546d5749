// The interface of a bytes map, and its objects.
#include <utility>

#include "bytes_map/host.hpp"
#include "core/guard.hpp"
#include "durable/creation.hpp"
#include "durable/is_whole.hpp"
#include "durable/removal.hpp"
#include "hash_map/format.hpp"
#include "hash_map/table.hpp"

namespace holdfast {

using detail::BytesMapHost;
using detail::concat;

namespace bytes_map {
namespace {

Error wrong(const std::string& what) { return Error(Errc::invalid_argument, "bytes map: " + what); }

constexpr std::uint64_t kMostRecordBytes = kGrain << kFirstBits;

Error wrong_record_bytes(std::uint64_t bytes) {
  return wrong(concat("record_bytes ", bytes, "; give 1 to ", kMostRecordBytes,
                      ": what records take (record_bytes_of())"));
}

std::string place_of(std::string_view name, const Region& region) {
  return concat("bytes map '", name, "' of region '", region.path(), "'");
}

void check_name(std::string_view name) {
  if (name.size() <= kMostNameBytes) return;
  throw wrong(concat("its name '", name, "' has ", name.size(), " bytes, and ", kMostNameBytes,
                     " are the most: give it a shorter one"));
}

Records records_of(Region& region, std::string_view name, const std::string& where,
                   const BytesMapObject& object) {
  auto* const first = reinterpret_cast<std::byte*>(object.part<std::uint8_t>(kRecords).data());
  return {region, name, where, first, object.parameters().grains};
}

}  // namespace

std::vector<Part> BytesMapParameters::parts() const {
  if (grains == 0 || grains > kMostRecordBytes / kGrain) throw wrong_record_bytes(grains * kGrain);
  if (max_batch == 0 || max_batch > 1u << 24) {
    throw wrong(concat("max_batch ", max_batch, "; give 1 to ", 1u << 24, " operations"));
  }
  if (digest_bits == 0 || digest_bits > 128) {
    throw wrong(concat("digest_bits ", digest_bits, "; leave them at 128"));
  }
  return {Part::array<std::uint8_t>(kRecords, grains * kGrain)};
}

BytesMapParameters parameters_of(const BytesMapOptions& options) {
  const std::uint64_t bytes = options.record_bytes;
  if (bytes == 0 || bytes > kMostRecordBytes) throw wrong_record_bytes(bytes);
  const BytesMapParameters result{grains_for(bytes), options.max_batch, options.digest_bits};
  (void)result.parts();
  return result;
}

std::string index_name(std::string_view name) { return concat(name, ".index"); }

MapOptions index_options(const BytesMapOptions& options) {
  MapOptions of_index;
  of_index.capacity = options.capacity;
  of_index.value_bytes = sizeof(std::uint64_t);
  of_index.max_batch = options.max_batch;
  return of_index;
}

}  // namespace bytes_map

BytesMap::BytesMap(std::shared_ptr<BytesMapHost> host) : host_(std::move(host), "bytes map") {}

BytesMap BytesMap::create(Region& region, std::string_view name, const Options& options) try {
  bytes_map::check_name(name);
  const bytes_map::BytesMapParameters parameters = bytes_map::parameters_of(options);
  const std::string index = bytes_map::index_name(name);
  const std::string where = bytes_map::place_of(name, region);
  const bool has_records = is_whole<bytes_map::BytesMapObject>(region, name);
  if (is_taken<map::MapObject>(region, index)) {
    throw Error(Errc::already_exists,
                where +
                    ": there is one, or a map of the name of its index: open it, or give "
                    "another name");
  }
  // Of a creation that was cut off: the index comes last, and without it there is no map.
  if (has_records) bytes_map::BytesMapObject::remove(region, name);
  bytes_map::Records::remove_all(region, name);  // of one that was removed
  auto object = bytes_map::BytesMapObject::create(region, name, parameters);
  return finish_creation(
      [&] {
        auto made = bytes_map::Index::create(region, index, bytes_map::index_options(options));
        auto records = bytes_map::records_of(region, name, where, object);
        auto host =
            std::make_shared<BytesMapHost>(region, where, std::move(object), std::move(records),
                                           std::move(made), options.max_batch);
        host->survey();
        return BytesMap(std::move(host));
      },
      [&] { remove(region, name); });
} catch (const std::exception&) {
  core::fail("creating a bytes map");
}

// The index first: without it there is no map.
void BytesMap::remove(Region& region, std::string_view name) {
  region.check_writable("removing a bytes map");
  check_removable<bytes_map::BytesMapObject>(region, name);
  const std::string index = bytes_map::index_name(name);
  remove_if_there([&] { map::remove_table(region, index, bytes_map::place_of(name, region)); });
  bytes_map::BytesMapObject::remove(region, name);
  bytes_map::Records::remove_all(region, name);
}

BytesMap BytesMap::open(Region& region, std::string_view name, std::uint32_t max_batch) try {
  region.check_writable("opening a bytes map");
  const std::string where = bytes_map::place_of(name, region);
  const std::string index = bytes_map::index_name(name);
  auto object = bytes_map::BytesMapObject::open(region, name);
  if (!is_taken<map::MapObject>(region, index)) {
    throw Error(Errc::not_found, where + ": its creation was cut off: create it again");
  }
  map::check_no_refs(region, index, where);
  bytes_map::BytesMapParameters parameters = object.parameters();
  if (max_batch != 0) parameters.max_batch = max_batch;
  (void)parameters.parts();  // refuses max_batch
  MapOpenOptions how;
  how.value_bytes = sizeof(std::uint64_t);
  how.max_batch = parameters.max_batch;
  auto records = bytes_map::records_of(region, name, where, object);
  auto host = std::make_shared<BytesMapHost>(region, where, std::move(object), std::move(records),
                                             bytes_map::Index::open(region, index, how),
                                             parameters.max_batch);
  host->survey();
  return BytesMap(std::move(host));
} catch (const std::exception&) {
  core::fail("opening a bytes map");
}

std::uint64_t BytesMap::region_bytes(const Options& options) {
  return bytes_map::Index::region_bytes(bytes_map::index_options(options)) +
         bytes_map::BytesMapObject::bytes(bytes_map::parameters_of(options));
}

std::uint64_t BytesMap::record_bytes_of(std::uint64_t key_bytes, std::uint64_t value_bytes) {
  return bytes_map::grains_of(key_bytes, value_bytes) * bytes_map::kGrain;
}

BytesMapResult BytesMap::insert(const ByteStrings& keys, const ByteStrings& values,
                                MapStatus* status) {
  return host_->usable().update(detail::MapOperation::insert, keys, &values, status);
}

BytesMapResult BytesMap::insert_or_assign(const ByteStrings& keys, const ByteStrings& values,
                                          MapStatus* status) {
  return host_->usable().update(detail::MapOperation::insert_or_assign, keys, &values, status);
}

BytesMapResult BytesMap::erase(const ByteStrings& keys, MapStatus* status) {
  return host_->usable().update(detail::MapOperation::erase, keys, nullptr, status);
}

void BytesMap::reserve(const BytesMapReserve& wanted) { host_->usable().reserve(wanted); }

BytesMapRef BytesMap::ref(std::uint64_t record_bytes) { return host_->usable().ref(record_bytes); }

void BytesMap::quiesce() { host_->usable().quiesce(); }

void BytesMap::find(const ByteStrings& keys, std::uint64_t* offsets, BytesFound* found,
                    const Room& room) const {
  host_->usable().find(keys, offsets, found, room);
}

ByteStringVector BytesMap::find(const ByteStrings& keys, std::vector<BytesFound>& found) const {
  ByteStringVector values;
  found.assign(keys.count, BytesFound::absent);
  values.offsets.assign(keys.count + 1, 0);
  find(keys, values.offsets.data(), found.data(), [&](std::uint64_t bytes) {
    values.bytes.resize(bytes);
    return values.bytes.data();
  });
  return values;
}

void BytesMap::contains(const ByteStrings& keys, BytesFound* found) const {
  host_->usable().contains(keys, found);
}

std::uint64_t BytesMap::export_batch(std::uint64_t first, std::uint64_t slots,
                                     ByteStringVector& keys, ByteStringVector& values) const {
  return host_->usable().export_batch(first, slots, keys, values);
}

BytesMapStats BytesMap::stats() const { return host_->usable().stats(); }

const MapRecovery& BytesMap::recovery() const { return host_->usable().recovery(); }

std::string BytesMap::verify() const { return host_->usable().verify(); }

Stream& BytesMap::stream() const { return host_->stream(); }

}  // namespace holdfast

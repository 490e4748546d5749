// The interface of a map of any types.
#include <utility>

#include "core/guard.hpp"
#include "durable/creation.hpp"
#include "hash_map/host.hpp"

namespace holdfast::detail {
namespace {

std::string place_of(std::string_view name, const Region& region) {
  return concat("hash map '", name, "' of region '", region.path(), "'");
}

// A cache turns the directory on.
map::Memory memory_for(const Region& region, const map::MapParameters& now, bool growing,
                       std::uint32_t max_batch, MapOptions::Directory& directory,
                       const MapCache& cache_options, MapScores scores) {
  std::unique_ptr<map::Cache> cache = map::make_cache(cache_options, now, directory);
  if (cache) directory = MapOptions::Directory::on;
  map::Memory memory(now, max_batch,
                     map::make_directory(directory, map::level_bytes(now, growing),
                                         region.domain() == Domain::device));
  memory.cache = std::move(cache);
  const std::uint64_t leaving = growing ? std::uint64_t{now.buckets >> now.levels} * now.ways : 0;
  memory.scores = map::make_scores(scores, now.slots() + leaving);
  return memory;
}

core::Use take_over(const Region& region, std::string_view name) {
  return core::RegionAccess::take_over(region, concat(name, ".", map::kTable));
}

// The record of changes first, so that a map that is there has it, if it was made with one.
map::Table make_table(Region& region, std::string_view name, const std::string& where,
                      const map::MapParameters& shape, std::uint64_t changes) {
  const bool makes = !map::is_there(region, name);  // else create_table() refuses
  if (makes) map::remove_changes(region, name);
  if (makes && changes != 0) {
    map::ChangesObject::create(region, map::changes_name(name),
                               map::changes_parameters(changes, shape.key_bytes, shape.max_batch));
  }
  return finish_creation([&] { return map::create_table(region, name, where, shape); },
                         [&] {
                           if (makes) map::remove_changes(region, name);
                         });
}

}  // namespace

MapBase::MapBase(std::shared_ptr<MapHost> host) : host_(std::move(host), "hash map") {}

std::shared_ptr<MapHost> MapBase::create(Region& region, std::string_view name,
                                         const MapTypes& types, const MapOptions& options,
                                         std::uint64_t empty_key, std::uint64_t empty_value) try {
  map::check_name(name);
  const map::MapParameters shape = map::parameters_of(types, options, empty_key, empty_value);
  MapOptions::Directory directory = options.directory;
  map::Memory memory =
      memory_for(region, shape, false, shape.max_batch, directory, options.cache, options.scores);
  const std::string where = place_of(name, region);
  map::Table table = make_table(region, name, where, shape, options.changes);
  return finish_creation(
      [&] {
        core::Use use = take_over(region, name);
        const auto host =
            std::make_shared<MapHost>(region, where, std::move(table), std::move(use), types,
                                      shape.max_batch, directory, std::move(memory));
        host->changes =
            map::Changes::load(region, host->stream, name, where, shape.key_bytes, shape.max_batch);
        host->survey();
        if (host->changes) host->changes->begin(host->stream);
        return host;
      },
      [&] { remove(region, name); });
} catch (const std::exception&) {
  core::fail("creating a hash map");
}

void MapBase::remove(Region& region, std::string_view name) {
  region.check_writable("removing a hash map");
  map::remove_table(region, name, place_of(name, region));
  map::remove_changes(region, name);
}

std::shared_ptr<MapHost> MapBase::open(Region& region, std::string_view name, const MapTypes& types,
                                       const MapOpenOptions& options) try {
  region.check_writable("opening a hash map");
  const std::string where = place_of(name, region);
  map::Table table = map::open_table(region, name, where);
  map::check_types(table.made, types, where);
  if (options.value_bytes != 0 && options.value_bytes != table.made.value_bytes) {
    throw Error(Errc::invalid_argument, concat(where, " has values of ", table.made.value_bytes,
                                               " bytes, and is opened for ", options.value_bytes,
                                               ": give the size that it was made with, or 0"));
  }
  map::MapParameters shape = table.made;
  if (options.max_batch != 0) shape.max_batch = options.max_batch;
  (void)shape.parts();  // refuses max_batch
  map::check_no_refs(region, name, where);
  core::Use use = take_over(region, name);
  MapOptions::Directory directory = options.directory;
  map::Memory memory = memory_for(region, table.now, table.growing, shape.max_batch, directory,
                                  options.cache, options.scores);
  const auto host = std::make_shared<MapHost>(region, where, std::move(table), std::move(use),
                                              types, shape.max_batch, directory, std::move(memory));
  host->changes =
      map::Changes::load(region, host->stream, name, where, shape.key_bytes, shape.max_batch);
  host->recovery = host->survey();
  if (host->changes) host->changes->begin(host->stream);
  return host;
} catch (const std::exception&) {
  core::fail("opening a hash map");
}

std::uint64_t MapBase::region_bytes(const MapTypes& types, const MapOptions& options) {
  const std::uint64_t table =
      map::MapObject::region_bytes(map::parameters_of(types, options, 0, EmptyValue{}.bits));
  if (options.changes == 0) return table;
  return table + map::ChangesObject::bytes(
                     map::changes_parameters(options.changes, types.key_bytes, options.max_batch));
}

bool MapBase::is_there(Region& region, std::string_view name) {
  return map::is_there(region, name);
}

std::uint64_t MapBase::recorded(Region& region, std::string_view name) {
  return map::recorded(region, name, place_of(name, region));
}

MapStats MapBase::stats() const { return host_->usable().stats(); }

double MapBase::load_factor() const {
  const MapStats now = stats();
  return static_cast<double>(now.size) / static_cast<double>(now.capacity);
}

std::uint64_t MapBase::capacity() const { return host_->usable().slots(); }

std::uint32_t MapBase::value_bytes() const { return host_->usable().shape().value_bytes; }

const MapRecovery& MapBase::recovery() const { return host_->usable().recovery; }

MapTiming MapBase::timing() const {
  MapHost& self = host_->usable();
  const auto between = [&](int i) {
    return static_cast<double>(Event::elapsed_ms(self.marks[i], self.marks[i + 1]));
  };
  return {between(0), between(1), between(2)};
}

void MapBase::set_order(MapOptions::Order order) {
  MapHost& self = host_->usable();
  using Order = MapOptions::Order;
  if (order != Order::automatic && order != Order::unordered && order != Order::ordered) {
    throw Error(Errc::invalid_argument,
                concat(self.where, ": order ", static_cast<int>(order),
                       " is none that there is; give Order::automatic, Order::unordered or "
                       "Order::ordered"));
  }
  self.order = order;
}

void MapBase::quiesce() { host_->usable().quiesce(); }

void MapBase::reserve(std::uint64_t capacity) try {
  host_->usable().reserve(capacity);
} catch (const std::exception&) {
  core::fail("reserve() of a hash map");
}

void MapBase::grow() try { host_->usable().grow(); } catch (const std::exception&) {
  core::fail("grow() of a hash map");
}

bool MapBase::migrate(std::uint64_t buckets) { return host_->usable().migrate(buckets); }

void MapBase::load_cache() { host_->usable().load_cache(false); }

void MapBase::await_cache() { host_->usable().load_cache(true); }

std::string MapBase::verify() const { return host_->usable().verify(); }

Stream& MapBase::stream() const { return host_->stream; }

MapResult MapBase::update(MapOperation operation, const void* keys, const void* values, void* out,
                          std::size_t count, MapStatus* status) {
  return host_->usable().update(operation, keys, values, out, count, status);
}

MapResult MapBase::apply(const MapOp* operations, const void* keys, const void* values, void* out,
                         std::size_t count, MapStatus* status) {
  return host_->usable().apply_mixed(operations, keys, values, out, count, status);
}

void MapBase::find(const void* keys, void* values, std::uint8_t* found, std::size_t count) const {
  host_->usable().find(keys, values, found, count);
}

std::uint64_t MapBase::export_batch(std::uint64_t first, std::uint64_t slots, void* keys,
                                    void* values, const MapCollect& collect) const {
  return host_->usable().export_batch(first, slots, keys, values, collect);
}

MapResult MapBase::accumulate(const void* keys, const void* deltas, MapElement element,
                              std::size_t count, MapStatus* status) {
  return host_->usable().accumulate(keys, deltas, element, count, status);
}

void MapBase::find_async(Stream& by, const void* keys, void* values, std::uint8_t* found,
                         std::size_t count) const {
  host_->usable().find_async(by, keys, values, found, count);
}

MapEviction MapBase::insert_and_evict(const void* keys, const void* values,
                                      const std::uint64_t* scores, std::size_t count,
                                      const MapWent& went, MapStatus* status) {
  return host_->usable().insert_and_evict(keys, values, scores, count, went, status);
}

void MapBase::scores(const void* keys, std::uint64_t* scores, std::uint8_t* found,
                     std::size_t count) const {
  host_->usable().scores(keys, scores, found, count);
}

MapInit MapBase::stage(const void* keys, std::size_t count) {
  return host_->usable().stage(keys, count);
}

MapVersion MapBase::version() const { return host_->usable().version(); }

void MapBase::follow(const MapVersion& version) { host_->usable().follow(version); }

MapVersion MapBase::followed() const { return host_->usable().followed(); }

MapChanges MapBase::export_changes(const MapVersion& since, std::uint64_t most, void* keys,
                                   void* values, void* erased) const {
  return host_->usable().export_changes(since, most, keys, values, erased);
}

MapResult MapBase::apply_changes(const MapChanges& of, const void* keys, const void* values,
                                 const void* erased) {
  return host_->usable().apply_changes(of, keys, values, erased);
}

MapView MapBase::give_ref() { return host_->usable().give_ref(); }

}  // namespace holdfast::detail

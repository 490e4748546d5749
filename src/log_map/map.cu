// The interface of a log map, and its objects.
#include <utility>

#include "core/format.hpp"
#include "durable/creation.hpp"
#include "durable/is_whole.hpp"
#include "durable/removal.hpp"
#include "log_map/host.hpp"

namespace holdfast {

using detail::concat;
using detail::LogMapHost;

namespace log_map {
namespace {

// "<name>.index.snapshots" is the longest name of a part.
constexpr std::size_t kMostNameBytes =
    core::kNameBytes - 1 - std::string_view(".index.snapshots").size();
constexpr std::uint32_t kAlignment = 16;  // of a place
using Index = kv::log::LogObject;

Error wrong(const std::string& what) { return Error(Errc::invalid_argument, "log map: " + what); }

std::string place_of(std::string_view name, const Region& region) {
  return concat("log map '", name, "' of region '", region.path(), "'");
}

std::string index_name(std::string_view name) { return concat(name, ".index"); }
// As messages call it.
std::string index_place(const std::string& where) { return "the index of " + where; }

// What is thrown by parts of a map that know nothing of it says whose it is.
template <class Body>
decltype(auto) told(const std::string& where, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find(where) != std::string::npos) throw;
    throw Error(error.code(), concat(where, ": ", what));
  }
}

void check_form(KvStore::Index form) {
  using Form = KvStore::Index;
  kv::check_option("index", form, {Form::automatic, Form::whole, Form::fingerprints},
                   "Index::automatic, Index::whole or Index::fingerprints");
}

// Whether values of a creation that was cut off are there.
bool has_values(Region& region, std::string_view name, const std::string& where) {
  try {
    return is_whole<LogMapObject>(region, name);
  } catch (const Error& error) {
    if (error.code() != Errc::invalid_argument) throw;
    throw Error(Errc::already_exists,
                where + ": an object of another kind has this name: give another one");
  }
}

// What can be wrong with more than one of them is refused here, in the map's own words.
void check_options(const LogMap::Options& options) {
  const auto check = [](const char* option, std::uint64_t given, std::uint64_t most,
                        const char* what) {
    if (given != 0 && given <= most) return;
    throw wrong(concat(option, " ", given, "; give 1 to ", most, " ", what));
  };
  check("capacity", options.capacity, kv::log::kMostPairs, "pairs");
  check("max_batch", options.max_batch, LogMap::kMostBatch, "operations");
  check_form(options.index);
}

KvStore::Options index_options(const LogMap::Options& options) {
  KvStore::Options result;
  result.capacity = options.capacity;
  result.max_batch = options.max_batch;
  result.layout = KvStore::Layout::log;
  result.log_records = options.log_records;
  result.index = options.index;
  return result;
}

// A batch takes a place for each of its operations before those of older values come free.
LogMapParameters parameters_of(const LogMap::Options& options) {
  told("log map", [&] {
    check_options(options);
    (void)kv::log::shape_of(index_options(options)).parts();
  });
  const LogMapParameters result{options.capacity + options.max_batch, options.value_bytes, 0};
  (void)result.parts();
  return result;
}

}  // namespace

std::uint32_t LogMapParameters::stride() const {
  return (value_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::vector<Part> LogMapParameters::parts() const {
  if (value_bytes == 0 || value_bytes > LogMap::kMostValueBytes || value_bytes % 4 != 0) {
    throw wrong(concat("value_bytes ", value_bytes, "; give a multiple of 4, 4 to ",
                       LogMap::kMostValueBytes));
  }
  if (places == 0 || places > kv::log::kMostPairs + LogMap::kMostBatch || reserved != 0) {
    throw wrong(concat(places, " places for values; there are none of such a shape"));
  }
  if (places > core::kMaxRegionBytes / stride()) {
    throw wrong(concat(places, " places for values (the capacity and max_batch) of value_bytes ",
                       value_bytes, "; a region has at most ", core::kMaxRegionBytes,
                       " bytes: give fewer pairs, or smaller values"));
  }
  return {Part::array<std::uint8_t>(kValues, places * stride())};
}

}  // namespace log_map

LogMap::LogMap(std::shared_ptr<LogMapHost> host) : host_(std::move(host), "log map") {}
LogMap::LogMap(LogMap&&) noexcept = default;
LogMap& LogMap::operator=(LogMap&&) noexcept = default;
LogMap::~LogMap() = default;

// The index comes last, and without it there is no map: values without one are of a creation that
// was cut off.
LogMap LogMap::create(Region& region, std::string_view name, const Options& options) {
  if (name.size() > log_map::kMostNameBytes) {
    throw log_map::wrong(concat("its name '", name, "' has ", name.size(), " bytes, and ",
                                log_map::kMostNameBytes, " are the most: give it a shorter one"));
  }
  if (name.find(log_map::kGrown) != std::string_view::npos) {
    throw log_map::wrong(concat("its name '", name, "' has '", log_map::kGrown,
                                "' in it, which is what a growing map's index is called: give it "
                                "another one"));
  }
  const log_map::LogMapParameters parameters = log_map::parameters_of(options);
  const std::string where = log_map::place_of(name, region);
  const std::string index = log_map::index_name(name);
  const bool has_values = log_map::has_values(region, name, where);
  if (is_taken<log_map::Index>(region, index)) {
    throw Error(Errc::already_exists,
                where +
                    ": there is one, or an object of the name of its index: open it, or give "
                    "another name");
  }
  if (has_values) log_map::LogMapObject::remove(region, name);
  log_map::drop_growth(region, name);
  try {
    return log_map::told(where, [&] {
      auto object = log_map::LogMapObject::create(region, name, parameters);
      return finish_creation(
          [&] {
            auto store = kv::log::create_store(region, index, log_map::index_place(where),
                                               log_map::index_options(options));
            auto host = std::make_shared<LogMapHost>(region, name, where, std::move(object),
                                                     std::move(store));
            host->survey();
            return LogMap(std::move(host));
          },
          [&] { remove(region, name); });
    });
  } catch (const Error& error) {
    if (error.code() != Errc::no_space) throw;
    throw Error(Errc::no_space, concat(error.what(), ". All of the map takes about ",
                                       region_bytes(options), " bytes"));
  }
}

LogMap LogMap::open(Region& region, std::string_view name, KvStore::Index form) {
  const std::string where = log_map::place_of(name, region);
  return log_map::told(where, [&] {
    region.check_writable("opening a log map");
    log_map::check_form(form);
    const std::string index = log_map::index_name(name);
    auto object = log_map::LogMapObject::open(region, name);
    if (!is_taken<log_map::Index>(region, index)) {
      throw Error(Errc::not_found, where + ": its creation was cut off: create it again");
    }
    auto store = kv::log::open_store(region, index, log_map::index_place(where), form);
    auto host =
        std::make_shared<LogMapHost>(region, name, where, std::move(object), std::move(store));
    host->survey();
    log_map::drop_growth(region, name);
    return LogMap(std::move(host));
  });
}

void LogMap::remove(Region& region, std::string_view name) {
  region.check_writable("removing a log map");
  check_removable<log_map::LogMapObject>(region, name);
  remove_if_there([&] { kv::log::remove_store(region, log_map::index_name(name)); });
  log_map::drop_growth(region, name);
  log_map::LogMapObject::remove(region, name);
}

std::uint64_t LogMap::region_bytes(const Options& options) {
  constexpr std::uint64_t kRoom = std::uint64_t{1} << 20;  // for some other objects
  const log_map::LogMapParameters parameters = log_map::parameters_of(options);
  return log_map::told("log map", [&] {
    return kv::log_region_bytes(log_map::index_options(options)) +
           log_map::LogMapObject::bytes(parameters) + kRoom;
  });
}

LogMap::Result LogMap::insert_or_assign(const std::uint64_t* keys, const void* values,
                                        std::size_t count, MapStatus* status) {
  return host_->usable().assign(nullptr, keys, values, count, status);
}

LogMap::Result LogMap::insert(const std::uint64_t* keys, const void* values, std::size_t count,
                              MapStatus* status) {
  return host_->usable().assign_some(log_map::Which::absent, keys, values, count, status);
}

LogMap::Result LogMap::assign(const std::uint64_t* keys, const void* values, std::size_t count,
                              MapStatus* status) {
  return host_->usable().assign_some(log_map::Which::present, keys, values, count, status);
}

LogMap::Result LogMap::apply(const Op* operations, const std::uint64_t* keys, const void* values,
                             std::size_t count, MapStatus* status) {
  if (operations != nullptr || count == 0) {
    return host_->usable().assign(operations, keys, values, count, status);
  }
  throw log_map::wrong(
      "a batch without operations: give one for each key, or use "
      "insert_or_assign() or erase()");
}

LogMap::Result LogMap::erase(const std::uint64_t* keys, std::size_t count, MapStatus* status) {
  return host_->usable().erase(keys, count, status);
}

void LogMap::find(const std::uint64_t* keys, void* values, std::uint8_t* found, std::size_t count) {
  host_->usable().find(keys, values, found, count);
}

LogMapRef LogMap::ref() { return host_->usable().ref(); }

std::uint64_t LogMap::scan(std::uint64_t* keys, void* values, std::uint64_t limit) {
  return host_->usable().scan(keys, values, limit);
}

void LogMap::reserve(std::uint64_t capacity, std::uint64_t log_records) {
  LogMapHost& host = host_->usable();
  auto grown = log_map::told(host.where(), [&] { return host.grown(capacity, log_records); });
  if (grown) *this = LogMap(std::move(grown));
}

std::string LogMap::verify() { return host_->usable().verify(); }
std::uint64_t LogMap::size() const { return host_->usable().stats().size; }
LogMap::Stats LogMap::stats() const { return host_->usable().stats(); }
Recovery LogMap::recovery() const { return host_->usable().recovery(); }
Stream& LogMap::stream() { return host_->stream(); }

}  // namespace holdfast

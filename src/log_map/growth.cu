// A log map with more room: places for more values, and a log for more pairs, beside those that it
// has, whose names they take once they have all that is there.
#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "core/format.hpp"
#include "core/growth.hpp"
#include "core/region_access.hpp"
#include "core/stream_end.hpp"
#include "durable/creation.hpp"
#include "durable/removal.hpp"
#include "log_map/host.hpp"

namespace holdfast {

namespace log_map {
namespace {

using detail::concat;

constexpr const char* kParts[] = {Part::kHeader, kValues};
constexpr std::string_view kEnd = ".map";
// "<name>.index.grown.map.values" is the longest name of a part.
constexpr std::size_t kMostNameBytes =
    core::kNameBytes - 1 - kGrown.size() - kEnd.size() - std::string_view(".values").size();

std::string grown_name(std::string_view name) { return concat(name, kGrown, kEnd); }

}  // namespace

void drop_growth(Region& region, std::string_view name) {
  if (name.size() <= kMostNameBytes) drop_remains<LogMapObject>(region, grown_name(name));
}

}  // namespace log_map

namespace detail {

void LogMapHost::copy_places(const LogMapHost& other) {
  const std::uint32_t most = std::min<std::uint32_t>(other.places_, 1u << 20);
  const DeviceBuffer<std::uint32_t> numbers(most);
  const DeviceBuffer<std::uint64_t> to(most);
  const core::StreamEnd end(writer_);
  log_map::launch_count_up(writer_, numbers.data(), most);
  log_map::launch_take(writer_, numbers.data(), most, to.data());
  log_map::Rows rows = rows_;
  rows.value_bytes = rows.stride;
  for (std::uint32_t first = 0; first < other.places_; first += most) {
    const std::uint64_t at = std::uint64_t{first} * rows.stride;
    rows.values = rows_.values + at;
    log_map::launch_store(writer_, rows, other.rows_.values + at, to.data(),
                          std::min(most, other.places_ - first));
  }
  writer_.synchronize();
}

std::shared_ptr<LogMapHost> LogMapHost::grown(std::uint64_t capacity, std::uint64_t log_records) {
  region_.check_writable("reserve()");
  const LogMap::Stats now = stats();
  const bool more_places = capacity > now.capacity;
  if (!more_places && log_records <= now.index.log_records) return nullptr;
  if (name_.size() > log_map::kMostNameBytes) {
    throw Error(Errc::invalid_argument,
                concat(where_, ": its name has ", name_.size(), " bytes, and of a map that grows ",
                       log_map::kMostNameBytes,
                       " are the most: make a larger one of a shorter "
                       "name, and insert what this one has"));
  }
  behind_.synchronize();
  const std::string values = log_map::grown_name(name_);
  log_map::drop_growth(region_, name_);
  for (const char* const part : log_map::kParts) {
    core::refuse_foreign(region_, where_, name_, concat(values, ".", part));
  }
  std::shared_ptr<kv::log::LogStore> index = index_->copy_beside(capacity, log_records);
  return finish_creation(
      [&] {
        std::vector<core::Renaming> names;
        log_map::LogMapParameters parameters = object_.parameters();
        if (more_places) parameters.places = capacity + now.max_batch;
        log_map::LogMapObject object =
            more_places
                ? core::make_enlarging(
                      region_, where_, values, log_map::LogMapObject::bytes(parameters),
                      [&] { return log_map::LogMapObject::create(region_, values, parameters); })
                : log_map::LogMapObject::open(region_, name_);
        auto next = std::make_shared<LogMapHost>(region_, name_, where_, std::move(object), index);
        if (more_places) {
          next->copy_places(*this);
          for (const char* const part : log_map::kParts) {
            names.push_back({concat(values, ".", part), concat(name_, ".", part)});
          }
        }
        next->survey();
        index_->hand_over(*index, std::move(names));
        return next;
      },
      [&] {
        index_->drop_copy(index);
        log_map::drop_growth(region_, name_);
      });
}

}  // namespace detail
}  // namespace holdfast

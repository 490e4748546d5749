#include "bytes_map/records.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/growth.hpp"

namespace holdfast::bytes_map {

using detail::concat;

namespace {

// By their type they are known from a program's own objects, whatever those are called.
constexpr const char* kType = "bytes_map_records";
constexpr std::uint64_t kGrainsOfPage = kPageBytes / kGrain;
constexpr std::uint64_t kMostGrains = std::uint64_t{1} << kFirstBits;  // gaps among them

bool is_own(const ObjectInfo& info) {
  return info.type == kType && info.element_bytes == kGrain && info.tracking == Tracking::marked;
}

std::string prefix_of(std::string_view name) { return concat(name, ".records"); }

// "<name>.records" and a number, of this type.
bool is_of_growth(const ObjectInfo& info, const std::string& prefix) {
  const auto digit = [](char each) { return each >= '0' && each <= '9'; };
  return is_own(info) && info.name.size() > prefix.size() && info.name.rfind(prefix, 0) == 0 &&
         std::all_of(info.name.begin() + static_cast<std::ptrdiff_t>(prefix.size()),
                     info.name.end(), digit);
}

std::uint64_t in_pages(std::uint64_t grains) {
  return (grains + kGrainsOfPage - 1) / kGrainsOfPage * kGrainsOfPage;
}

}  // namespace

Records::Records(Region& region, std::string_view name, std::string where, std::byte* first,
                 std::uint64_t grains)
    : region_(&region), name_(name), where_(std::move(where)), chunks_{{first, 0, grains}} {
  const auto damaged = [&](const std::string& what) {
    throw Error(Errc::damaged, concat(where_, " has grown, and ", what,
                                      "; reopen the region from its last commit"));
  };
  const auto is_there = [&](const std::string& object) {
    return region.contains(object) && is_own(region.object(object));
  };
  for (std::string object; is_there(object = object_name(chunks_.size()));) {
    const ObjectInfo info = region.object(object);
    const std::uint64_t begin = end() + 1;
    if (begin >= kMostGrains || info.count > kMostGrains - begin) {
      damaged(concat("its object '", object, "' has ", info.bytes(), " bytes, more than can be"));
    }
    chunks_.push_back({static_cast<std::byte*>(region.address(info)), begin, info.count});
  }
  const std::string prefix = prefix_of(name_);
  std::size_t there = 0;
  for (const ObjectInfo& each : region.objects()) there += is_of_growth(each, prefix) ? 1 : 0;
  if (there != chunks_.size() - 1) {
    damaged(concat("its object '", object_name(chunks_.size()),
                   "' is gone or another, and there are some behind it"));
  }
  list(DeviceBuffer<Chunk>(there));
}

std::string Records::object_name(std::size_t growth) const {
  return concat(prefix_of(name_), growth);
}

// Where kernels find all chunks but the first one.
void Records::list(DeviceBuffer<Chunk> room) {
  if (chunks_.size() > 1) {
    Stream stream;
    copy_async(stream, room.data(), chunks_.data() + 1, (chunks_.size() - 1) * sizeof(Chunk));
    stream.synchronize();
  }
  more_ = std::move(room);
}

std::uint64_t Records::grains() const {
  return std::accumulate(chunks_.begin(), chunks_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Chunk& each) { return sum + each.grains; });
}

const Chunk* Records::chunk_of(const Extent& extent) const {
  const Chunk* const found = chunk_at(chunks_.data(), chunks_.size(), extent.first);
  return found != nullptr && found->holds(extent) ? found : nullptr;
}

std::vector<Extent> Records::gaps() const {
  std::vector<Extent> gaps;
  for (std::size_t i = 1; i < chunks_.size(); ++i) gaps.push_back({chunks_[i - 1].end(), 1});
  return gaps;
}

Chunks Records::view() const { return {chunks_[0], more_.data(), chunks_.size() - 1}; }

std::uint64_t Records::missing(std::uint64_t bytes) const {
  const std::uint64_t has = grains();
  // Above what grains_for() can round up there is nothing that fits.
  const std::uint64_t wanted = grains_for(std::min(bytes, std::uint64_t{1} << 60));
  if (wanted <= has) return 0;
  const std::uint64_t begin = end() + 1;
  const std::uint64_t most =
      begin < kMostGrains ? (kMostGrains - begin) / kGrainsOfPage * kGrainsOfPage : 0;
  const std::uint64_t needed = in_pages(wanted - has);
  if (needed > most) {
    throw Error(Errc::invalid_argument,
                concat(where_, ": ", bytes, " record_bytes are more than it can have, which are ",
                       (has + most) * kGrain, ": ask for fewer"));
  }
  const std::uint64_t used = region_->used();
  const std::uint64_t left = (region_->max_size() - std::min(used, region_->max_size())) / kGrain;
  if (needed > left) {
    throw Error(Errc::no_space,
                concat(where_, ": for ", bytes, " record_bytes the region would have ",
                       used + needed * kGrain, " bytes at least, and can have ",
                       region_->max_size(), " (max_size): open it with more, or ask for fewer"));
  }
  const std::uint64_t usual = in_pages(std::max(wanted - has, has / 8));
  return usual <= std::min(most, left) ? usual : needed;
}

const Chunk& Records::add(std::uint64_t grains) {
  const std::string object = object_name(chunks_.size());
  // What a call that failed could not take back.
  if (region_->contains(object) && is_own(region_->object(object))) region_->remove(object);
  core::refuse_foreign(*region_, where_, name_, object);
  // Where there is no memory nothing has changed.
  chunks_.reserve(chunks_.size() + 1);
  DeviceBuffer<Chunk> room(chunks_.size());
  std::byte* const bytes =
      core::allocate_enlarging(*region_, where_, object, kType, kGrain, grains);
  chunks_.push_back({bytes, end() + 1, grains});
  try {
    list(std::move(room));
  } catch (...) {
    remove_last();
    throw;
  }
  return chunks_.back();
}

void Records::remove_last() {
  chunks_.pop_back();
  region_->remove(object_name(chunks_.size()));
}

void Records::remove_all(Region& region, std::string_view name) {
  const std::string prefix = prefix_of(name);
  for (const ObjectInfo& each : region.objects()) {
    if (is_of_growth(each, prefix)) region.remove(each.name);
  }
}

}  // namespace holdfast::bytes_map

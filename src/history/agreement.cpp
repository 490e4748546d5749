#include "history/agreement.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "holdfast/error.hpp"

namespace holdfast::history {

using holdfast::detail::concat;

namespace {

constexpr std::uint64_t kMostVersions = std::uint64_t{1} << 22;

// Versions of one stamp whose numbers lie `stride` apart.
struct Run {
  Step first = 0;
  std::uint64_t stride = 0;  // modulo 2^64
  std::uint64_t count = 0;
  Stamp stamp{};
};
static_assert(sizeof(Run) == 40);

std::vector<Run> runs_of(const std::vector<Version>& versions) {
  std::vector<Run> runs;
  for (const Version& version : versions) {
    if (!runs.empty() && runs.back().stamp == version.stamp) {
      Run& run = runs.back();
      const std::uint64_t stride = version.step - (run.first + (run.count - 1) * run.stride);
      if (run.count == 1) run.stride = stride;
      if (run.stride == stride) {
        ++run.count;
        continue;
      }
    }
    runs.push_back({version.step, 0, 1, version.stamp});
  }
  return runs;
}

void append(std::vector<std::byte>& to, const void* from, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(from);
  to.insert(to.end(), begin, begin + bytes);
}

void append(std::vector<std::byte>& to, const std::vector<Version>& versions) {
  const std::vector<Run> runs = runs_of(versions);
  const std::uint64_t count = runs.size();
  append(to, &count, sizeof count);
  for (const Run& run : runs) append(to, &run, sizeof run);
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T take() {
    T value;
    if (bytes_.size() < sizeof value) refuse();
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  std::vector<Version> versions() {
    std::vector<Version> result;
    for (auto left = take<std::uint64_t>(); left > 0; --left) {
      const auto run = take<Run>();
      if (run.count > kMostVersions - result.size()) refuse();
      for (std::uint64_t i = 0; i < run.count; ++i) {
        result.push_back({run.first + i * run.stride, run.stamp});
      }
    }
    return result;
  }
  void end() const {
    if (!bytes_.empty()) refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    throw Error(
        Errc::invalid_argument,
        "a rank's list of its checkpoints cannot be read: do all ranks run the same build?");
  }
  std::span<const std::byte> bytes_;
};

std::vector<Version> sorted(std::vector<Version> versions) {
  std::sort(versions.begin(), versions.end());
  versions.erase(std::unique(versions.begin(), versions.end()), versions.end());
  return versions;
}

// What every one of the sorted lists has.
std::vector<Version> common_of(const std::vector<std::vector<Version>>& lists) {
  std::vector<Version> common = lists.front();
  for (const auto& list : lists) {
    std::vector<Version> both;
    std::set_intersection(common.begin(), common.end(), list.begin(), list.end(),
                          std::back_inserter(both));
    common = std::move(both);
  }
  return common;
}

std::string who_lacks(const std::vector<std::vector<Version>>& lists, Step step) {
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    const auto at = std::lower_bound(lists[rank].begin(), lists[rank].end(), Version{step, {}});
    if (at == lists[rank].end() || at->step != step)
      return concat("rank ", rank, " does not have it");
  }
  return "the ranks have it of different saves";
}

}  // namespace

std::vector<std::byte> encode(const Offer& offer) {
  std::vector<std::byte> bytes;
  append(bytes, offer.versions);
  append(bytes, offer.stored);
  std::vector<Version> dropped;
  if (offer.dropped) dropped.push_back(*offer.dropped);
  append(bytes, dropped);
  return bytes;
}

Offer decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Offer offer;
  offer.versions = reader.versions();
  offer.stored = reader.versions();
  const std::vector<Version> dropped = reader.versions();
  if (!dropped.empty()) offer.dropped = dropped.front();
  reader.end();
  return offer;
}

Agreed agree(std::span<const Offer> offers, int rank) {
  Agreed agreed;
  std::vector<std::vector<Version>> versions, stored;
  for (const Offer& offer : offers) {
    versions.push_back(sorted(offer.versions));
    stored.push_back(sorted(offer.stored));
    for (const Version& version : versions.back()) {
      agreed.last_run = std::max(agreed.last_run, version.stamp.run);
    }
  }
  // What a process saved alone has nothing that tells whose part it is.
  const bool alone = offers.size() == 1;
  for (const Version& version : common_of(versions)) {
    if (alone || version.stamp.run != 0)
      agreed.complete[version.step] = version.stamp;  // ascending
  }
  const auto is_complete = [&](const Version& version) {
    const auto found = agreed.complete.find(version.step);
    return found != agreed.complete.end() && found->second == version.stamp;
  };
  for (const Version& version : common_of(stored)) {
    if (is_complete(version)) agreed.stored.insert({version.step, version.stamp});
  }
  std::set<Step> seen;
  for (const Version& version : offers.front().versions) {
    if (is_complete(version) && seen.insert(version.step).second) {
      agreed.order.push_back(version.step);
    }
  }
  for (const Version& version : versions[static_cast<std::size_t>(rank)]) {
    if (agreed.complete.contains(version.step)) continue;
    agreed.lacks[version.step] = who_lacks(versions, version.step);
  }
  agreed.dropped = offers.front().dropped;
  for (const Offer& offer : offers) {
    if (offer.dropped != agreed.dropped) agreed.dropped.reset();
  }
  return agreed;
}

// --- SaveCounts ----------------------------------------------------------------------------------

std::uint64_t SaveCounts::of(Step step) const {
  const auto next = ranges_.upper_bound(step);
  if (next == ranges_.begin()) return 0;
  const Range& range = std::prev(next)->second;
  return step <= range.last ? range.count : 0;
}

void SaveCounts::add(Step step) {
  const std::uint64_t count = of(step) + 1;
  if (count > 1) {  // out of its range
    const auto at = std::prev(ranges_.upper_bound(step));
    const Step first = at->first;
    const Range range = at->second;
    ranges_.erase(at);
    if (first < step) ranges_[first] = {step - 1, range.count};
    if (step < range.last) ranges_[step + 1] = {range.last, range.count};
  }
  auto at = ranges_.insert({step, {step, count}}).first;
  if (at != ranges_.begin()) {
    const auto before = std::prev(at);
    if (before->second.last + 1 == step && before->second.count == count) {
      before->second.last = step;
      ranges_.erase(at);
      at = before;
    }
  }
  const auto behind = std::next(at);
  if (behind != ranges_.end() && behind->first == step + 1 && behind->second.count == count) {
    at->second.last = behind->second.last;
    ranges_.erase(behind);
  }
}

}  // namespace holdfast::history

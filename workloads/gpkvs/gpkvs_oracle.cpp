#include "gpkvs/gpkvs_oracle.hpp"

#include <bit>
#include <vector>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace gpkvs::oracle {
namespace {

using holdfast::detail::concat;

// Open addressing, linear probing. Never removes.
class Map {
 public:
  struct Entry {
    std::uint64_t key = 0;
    std::uint64_t value = 0;
    bool used = false;
    bool seen = false;
  };

  explicit Map(std::uint64_t most) : entries_(std::bit_ceil(2 * most + 1)) {}

  Entry& at(std::uint64_t key) {
    std::uint64_t i = key * 0x9e3779b97f4a7c15ull >> 20 & (entries_.size() - 1);
    while (entries_[i].used && entries_[i].key != key) i = (i + 1) & (entries_.size() - 1);
    return entries_[i];
  }
  void set(std::uint64_t key, std::uint64_t value) {
    Entry& entry = at(key);
    size_ += !entry.used;
    entry = {key, value, true, false};
  }
  std::uint64_t size() const { return size_; }

 private:
  std::vector<Entry> entries_;
  std::uint64_t size_ = 0;
};

// Does one step; compares what its GETs answered.
bool do_step(const Operations& operations, std::uint64_t step, Map& map,
             const std::map<std::uint64_t, std::uint64_t>& answers) {
  const auto answered = answers.find(step);
  if (answered != answers.end()) {
    std::vector<std::uint64_t> values(operations.shape.gets);
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      values[i] = map.at(operations.gets_of(step)[i]).value;  // 0 where it is absent
    }
    if (workload::checksum(values) != answered->second) return false;
  }
  for (std::uint64_t i = 0; i < operations.shape.sets; ++i) {
    map.set(operations.sets_of(step)[i], operations.values_of(step)[i]);
  }
  return true;
}

}  // namespace

std::string compare(const Operations& operations, const Pairs& pairs,
                    const std::map<std::uint64_t, std::uint64_t>& answers) {
  Map map(operations.keys.size());
  for (std::uint64_t i = 0; i < operations.loaded.size(); ++i) {
    map.set(operations.keys[i], operations.loaded[i]);
  }
  for (std::uint64_t step = 0; step < operations.shape.steps; ++step) {
    if (!do_step(operations, step, map, answers)) {
      return concat("the GETs of step ", step, " answered other values than they should");
    }
  }
  for (std::uint64_t i = 0; i < pairs.keys.size(); ++i) {
    Map::Entry& entry = map.at(pairs.keys[i]);
    if (!entry.used) return concat("key ", pairs.keys[i], " is there, and no operation set it");
    if (entry.seen) return concat("key ", pairs.keys[i], " is there twice");
    if (entry.value != pairs.values[i]) {
      return concat("key ", pairs.keys[i], " has value ", pairs.values[i], ", not ", entry.value);
    }
    entry.seen = true;
  }
  if (pairs.keys.size() == map.size()) return {};
  return concat("the table has ", pairs.keys.size(), " keys, and should have ", map.size());
}

}  // namespace gpkvs::oracle

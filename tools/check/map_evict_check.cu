// A batch of the hash map that evicts, at its smallest: all slots of the table are taken.
#include <algorithm>
#include <cstring>
#include <memory>

#include "checking/sized_offer.hpp"
#include "holdfast/hash_map.hpp"
#include "layers.hpp"

namespace holdfast::check {
namespace {

// Opening notes the places of all pairs, in any order: the fewer there are, the fewer schedules.
using OneBucket = HashMap<std::uint64_t, MapConfig<4, 1, 1>>;
using Short = HashMap<std::uint64_t, MapConfig<4>>;
using Long = HashMap<Bytes<16>, MapConfig<4>>;

template <class Map>
struct KeyOf;
template <class K, class C>
struct KeyOf<HashMap<K, C>> {
  using type = K;
};

constexpr std::uint64_t kBefore = 100;   // key number n has kBefore + n ...
constexpr std::uint64_t kAfter = 200;    // ... and what operation i inserts kAfter + i
constexpr std::uint64_t kNew = 1000;     // its key's number, and i
constexpr std::uint64_t kNewScore = 1;   // more than those that are there have
constexpr const char* kThere = "there";  // the numbers of the keys that are there before

template <class Map>
auto key_number(std::uint64_t n) {
  using Key = typename KeyOf<Map>::type;
  if constexpr (sizeof(Key) == 8) {
    return Key{n};
  } else {
    const std::uint64_t words[2] = {7, n};
    Key key;
    std::memcpy(&key, words, sizeof(key));
    return key;
  }
}

struct Plan {
  std::uint32_t operations;
  std::uint32_t value_bytes;
  std::uint64_t slots;

  MapOptions options() const {
    MapOptions options;
    options.capacity = slots;
    options.value_bytes = value_bytes;
    options.max_batch = static_cast<std::uint32_t>(slots) + 2;
    options.directory = MapOptions::Directory::off;
    return options;
  }
  // In all of its words, so that half of it is noticed; one of 8 bytes stands in its slot.
  std::vector<std::uint32_t> value(std::uint64_t number) const {
    std::vector<std::uint32_t> words(value_bytes / 4, static_cast<std::uint32_t>(number));
    if (value_bytes == 8) words[1] = 0;
    return words;
  }
};

template <class Map>
void set_up(const Plan& plan, Region& region) {
  Map map = Map::create(region, "map", plan.options());
  const auto there = region.allocate<std::uint64_t>(kThere, plan.slots);
  std::uint64_t count = 0;
  for (std::uint64_t n = 1; count < plan.slots; ++n) {
    const auto key = key_number<Map>(n);
    if (map.insert(&key, plan.value(kBefore + n).data(), 1).inserted != 0) there[count++] = n;
  }
}

template <class Map>
void run(const Plan& plan, Region& region, Session& session) {
  MapOpenOptions how;
  how.scores = MapScores::custom;
  Map map = Map::open(region, "map", how);
  using Key = typename KeyOf<Map>::type;
  std::vector<Key> keys, gone(plan.operations);
  std::vector<std::uint32_t> values, out(plan.operations * plan.value_bytes / 4);
  for (std::uint32_t i = 0; i < plan.operations; ++i) {
    const auto value = plan.value(kAfter + i);
    keys.push_back(key_number<Map>(kNew + i));
    values.insert(values.end(), value.begin(), value.end());
  }
  const std::vector<std::uint64_t> scores(plan.operations, kNewScore);
  session.start();
  const MapEviction said = map.insert_and_evict(keys.data(), values.data(), scores.data(),
                                                plan.operations, gone.data(), out.data(), nullptr);
  session.acknowledge();
  if (said.evicted != plan.operations) {
    throw Error(Errc::invalid_argument, "not all of them have evicted: choose other keys");
  }
}

// A pair that is there has its own value; one of those from before is gone for each new one, and
// for each operation that was cut off one at most.
template <class Map>
std::string verify(const Plan& plan, Region& region, const Map& map, const History& history) {
  if (const std::string wrong = map.verify(); !wrong.empty()) return wrong;
  const auto there = region.find<std::uint64_t>(kThere);
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < plan.slots; ++i) numbers.push_back(read(&there[i]));
  for (std::uint32_t i = 0; i < plan.operations; ++i) numbers.push_back(kNew + i);
  std::vector<typename KeyOf<Map>::type> keys;
  for (const std::uint64_t n : numbers) keys.push_back(key_number<Map>(n));
  const std::size_t words = plan.value_bytes / 4;
  std::vector<std::uint32_t> values(keys.size() * words);
  std::vector<std::uint8_t> found(keys.size());
  map.find(keys.data(), values.data(), found.data(), keys.size());
  std::uint64_t gone = 0, come = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool is_new = i >= plan.slots;
    if (found[i] == 0) {
      gone += is_new ? 0 : 1;
      continue;
    }
    come += is_new ? 1 : 0;
    const auto value = plan.value(is_new ? kAfter + i - plan.slots : kBefore + numbers[i]);
    if (!std::equal(value.begin(), value.end(), &values[i * words])) {
      return detail::concat("key ", numbers[i], " has the value ", values[i * words]);
    }
  }
  if (map.size() != plan.slots - gone + come) return "there are other keys";
  const std::uint64_t most = history.started != 0 ? plan.operations : 0;
  const std::uint64_t least = history.acknowledged != 0 ? plan.operations : 0;
  if (gone > most || gone < least || come > gone || come < least) {
    return detail::concat(gone, " pairs are gone, and ", come, " have come");
  }
  return {};
}

template <class Map>
Offer offer(const std::string& name, const std::string& summary, std::uint32_t value_bytes,
            std::uint64_t slots, std::uint32_t most_operations) {
  const auto program = [=](const Sizes& sizes) {
    if (sizes.blocks != 0 || sizes.persists != 0 || sizes.threads > most_operations) {
      throw Error(
          Errc::invalid_argument,
          detail::concat(name, " has one size, --threads: operations, up to ", most_operations));
    }
    const Plan plan{sizes.threads != 0 ? sizes.threads : 1, value_bytes, slots};
    const auto recovered = std::make_shared<std::unique_ptr<Map>>();
    Program made;
    made.name = name;
    made.region_bytes = Map::region_bytes(plan.options()) + 4 * kPageBytes;
    made.set_up = [plan](Region& region) { set_up<Map>(plan, region); };
    made.run = [plan](Region& region, Session& session) { run<Map>(plan, region, session); };
    made.recover = [recovered](Region& region) {
      *recovered = std::make_unique<Map>(Map::open(region, "map"));
    };
    made.items = 1;
    made.verify = [plan, recovered](Region& region, const History& history, std::uint64_t) {
      return verify<Map>(plan, region, **recovered, history);
    };
    return made;
  };
  return {name, summary, true, program, {{1, 0, 0}}};
}

}  // namespace

std::vector<Offer> map_evict_programs() {
  return {offer<OneBucket>("map_evict", "the hash map: a batch that evicts a pair for a new one",
                           12, 4, 1),
          offer<Short>("map_evict_small", "the same, of values in their slots", 8, 6, 2),
          offer<Long>("map_long_evict", "the same, of keys of 16 bytes", 8, 6, 1)};
}

}  // namespace holdfast::check

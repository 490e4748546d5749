// The hash map at its smallest: batches that have it to themselves, and kernels' operations of one
// key beside each other; and a table that grows. With keys of 8 bytes, and with longer ones.
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "checking/sized_offer.hpp"
#include "holdfast/hash_map.hpp"
#include "holdfast/kernel.hpp"
#include "layers.hpp"

namespace holdfast::check {
namespace {

using Short = std::uint64_t;
using Long = Bytes<16>;
template <class Key>
using Map = HashMap<Key, MapConfig<4>>;
template <class Key>
using Ref = HashMapRef<Key, MapConfig<4>>;
enum class Call : std::uint32_t {
  insert,
  insert_or_assign,
  assign,
  erase,
  put_and_erase,
  migrate,
  mixed_put,  // of each key several operations, which leave a value
  mixed_erase
};

// A value names itself; one of more than 8 bytes in all of its words, so that half of it is
// noticed.
constexpr std::uint64_t kBefore = 100;
constexpr std::uint64_t kAfter = 200;    // what operation i sets is kAfter + i
constexpr std::uint64_t kBetween = 300;  // what another operation of the batch replaces
constexpr unsigned kMostWords = 3;
constexpr std::uint32_t kOfKey = 3;  // operations of a mixed batch
// Of keys inserted one after the other into six slots, those from this one on are on the lower
// level.
template <class Key>
constexpr std::uint64_t kFirstBelow = sizeof(Key) == 8 ? 5 : 3;
constexpr std::uint64_t kAllBuckets = ~std::uint64_t{0};
// Keys that fill five slots of six so that the next one has no slot free, until one of them moves.
constexpr std::uint64_t kFirstInTheWay = 3;
constexpr std::uint64_t kLastInTheWay = 7;

// Key number n. Of long ones that are `alike` the last word undoes what the digest has made of the
// one before.
template <class Key>
Key key_number(std::uint64_t n, bool alike) {
  if constexpr (sizeof(Key) == 8) {
    return n;
  } else {
    std::uint64_t words[2] = {7, n};
    if (alike) {
      words[0] = n << 20;
      while ((words[1] = MapHash::digest(0, words[0])) >> 63 != 0) ++words[0];
    }
    Key key;
    std::memcpy(&key, words, sizeof(key));
    return key;
  }
}

struct Plan {
  Call calls[2];  // of the groups of a kernel, all on one key; a batch makes the first one,
  bool beside;    // on one key for each operation
  bool there;     // the keys are there before
  std::uint32_t operations;
  std::uint32_t value_bytes;
  std::set<std::uint64_t> ends;  // values that a key may have when all is done, 0 for none
  bool growing = false;  // the keys are on the level that is emptied, before and if it is not after
  bool apart = false;    // each group of a kernel has a key of its own
  bool recorded = false;    // the map has a record of changes
  bool in_the_way = false;  // others' keys are, and one has to move
  bool refs_out = false;    // so that the batch is made as beside others

  MapOptions options() const {
    MapOptions options;
    options.capacity = 6;
    options.value_bytes = value_bytes;
    options.max_batch = in_the_way ? 8 : operations * (mixed() ? kOfKey : 1);
    options.directory = MapOptions::Directory::off;
    options.changes = recorded ? 2 * operations : 0;
    return options;
  }
  // Keys of one label are looked at beside each other: without fences where a batch is alone, which
  // nothing depends on, but the checker does not know that.
  template <class Key>
  Key key(std::uint64_t n) const {
    return key_number<Key>(n, beside || growing);
  }
  bool mixed() const { return calls[0] == Call::mixed_put || calls[0] == Call::mixed_erase; }
  std::uint64_t keys() const { return beside && !apart ? 1 : operations; }
  std::vector<std::uint32_t> values(std::uint64_t first) const {
    std::vector<std::uint32_t> all;
    for (std::uint32_t i = 0; i < operations; ++i) {
      for (std::uint32_t word = 0; word < value_bytes / 4; ++word) {
        all.push_back(static_cast<std::uint32_t>(word == 1 && value_bytes == 8 ? 0 : first + i));
      }
    }
    return all;
  }
};

Plan while_refs_are_out(Plan plan) {
  plan.refs_out = true;
  return plan;
}

// A block, of one group, for each call.
// What an operation has changed is durable before anything that follows its return. Of what it has
// only seen that is not promised.
template <class Key>
__global__ void call_beside(Ref<Key> ref, Key first_key, Key second_key, Call first, Call second,
                            std::uint64_t* returned) {
  const typename Ref<Key>::Group group;
  const unsigned number = blockIdx.x;
  const Key key = number == 0 ? first_key : second_key;
  std::uint32_t value[kMostWords] = {};
  for (unsigned word = 0; word < ref.value_bytes() / 4; ++word) {
    if (word != 1 || ref.value_bytes() != 8)
      value[word] = static_cast<std::uint32_t>(kAfter) + number;
  }
  MapStatus status{};
  switch (number == 0 ? first : second) {
    case Call::insert:
      status = ref.insert(group, key, value);
      break;
    case Call::insert_or_assign:
      status = ref.insert_or_assign(group, key, value);
      break;
    case Call::assign:
      status = ref.assign(group, key, value);
      break;
    case Call::erase:
      status = ref.erase(group, key);
      break;
    case Call::put_and_erase:
      ref.insert_or_assign(group, key, value);
      status = ref.erase(group, key);
      break;
    case Call::migrate:  // the host's
    case Call::mixed_put:
    case Call::mixed_erase:
      break;
  }
  const bool changed = status != MapStatus::kept && status != MapStatus::absent;
  if (group.rank == 0 && changed) returned[number] = 1;
}

template <class Key>
std::vector<Key> keys_of(const Plan& plan) {
  const std::uint64_t first = plan.growing      ? kFirstBelow<Key>
                              : plan.in_the_way ? kLastInTheWay + 1
                                                : 1;
  std::vector<Key> keys;
  for (std::uint64_t i = 0; i < plan.keys(); ++i) keys.push_back(plan.key<Key>(first + i));
  return keys;
}

// Of each key: a value that is seen, and then replaced or erased.
template <class Key>
void call_mixed(Map<Key>& map, const Plan& plan, const std::vector<Key>& of) {
  using enum MapOp;
  using Status = MapStatus;
  const bool puts = plan.calls[0] == Call::mixed_put;
  const MapOp each[kOfKey] = {puts ? erase : insert_or_assign, find_or_insert,
                              puts ? assign : erase};
  const auto between = plan.values(kBetween), after = plan.values(kAfter);
  std::vector<MapOp> kinds;
  std::vector<Key> keys;
  std::vector<std::uint32_t> values;
  const std::size_t words = plan.value_bytes / 4;
  for (std::uint32_t i = 0; i < kOfKey; ++i) {
    kinds.insert(kinds.end(), of.size(), each[i]);
    keys.insert(keys.end(), of.begin(), of.end());
    const auto& from = i == kOfKey - 1 ? after : between;
    values.insert(values.end(), from.begin(), from.end());
  }
  std::vector<std::uint32_t> out(values.size());
  std::vector<Status> status(kinds.size());
  map.apply(kinds.data(), keys.data(), values.data(), out.data(), kinds.size(), status.data());
  for (std::size_t i = 0; i < of.size(); ++i) {
    const std::size_t look = of.size() + i;
    if (status[look] != (puts ? Status::inserted : Status::kept) ||
        out[look * words] != kBetween + i) {
      throw Error(Errc::invalid_argument, "an operation has not seen what came before it");
    }
  }
}

template <class Key>
void call_alone(Map<Key>& map, const Plan& plan) {
  if (plan.refs_out) (void)map.ref();
  const auto keys = keys_of<Key>(plan);
  const auto values = plan.values(kAfter);
  switch (plan.calls[0]) {
    case Call::insert:
      map.insert(keys.data(), values.data(), keys.size());
      return;
    case Call::insert_or_assign:
      map.insert_or_assign(keys.data(), values.data(), keys.size());
      return;
    case Call::assign:
      map.assign(keys.data(), values.data(), keys.size());
      return;
    case Call::erase:
      if (plan.growing) map.migrate(1);  // the first of them
      map.erase(keys.data(), keys.size());
      return;
    case Call::put_and_erase:  // kernels'
      return;
    case Call::mixed_put:
    case Call::mixed_erase:
      call_mixed(map, plan, keys);
      return;
    case Call::migrate:
      map.migrate(kAllBuckets);
  }
}

// A table that grows, with the plan's keys on the level that is emptied.
template <class Key>
void set_up_growth(Map<Key>& map, const Plan& plan) {
  const auto values = plan.values(kBefore);
  const std::size_t words = plan.value_bytes / 4;
  for (std::uint64_t n = 1; n < kFirstBelow<Key> + plan.keys(); ++n) {
    const std::uint64_t number = n < kFirstBelow<Key> ? 0 : n - kFirstBelow<Key>;
    const Key key = plan.key<Key>(n);
    map.insert(&key, values.data() + number * words, 1);
  }
  for (std::uint64_t n = 1; n < kFirstBelow<Key>; ++n) {
    const Key key = plan.key<Key>(n);
    map.erase(&key, 1);
  }
  map.grow();
  Key below[2];
  if (map.export_batch(map.capacity() - 2, 2, below, nullptr) != plan.keys()) {
    throw Error(Errc::invalid_argument, "the keys are not on the lower level: choose others");
  }
}

// Those in the way, of which each has its number plus kBefore as its value.
template <class Key>
void set_up_in_the_way(Map<Key>& map, const Plan& plan) {
  for (std::uint64_t n = kFirstInTheWay; n <= kLastInTheWay; ++n) {
    const Key key = plan.key<Key>(n);
    map.insert(&key, plan.values(kBefore + n).data(), 1);
  }
}

constexpr std::uint64_t kInTheWay = kLastInTheWay - kFirstInTheWay + 1;

// What was found of them, looked up with the plan's keys: of several lookups in turn the memory may
// be the same, and the checker then explores others.
std::string verify_in_the_way(const Plan& plan, const std::uint32_t* values,
                              const std::uint8_t* found) {
  const std::uint32_t words = plan.value_bytes / 4;
  for (std::uint64_t i = 0; i < kInTheWay; ++i) {
    const auto value = plan.values(kBefore + kFirstInTheWay + i);
    if (found[i] == 0) return detail::concat("key ", i, " of those in the way is gone");
    if (!std::equal(value.begin(), value.end(), values + i * words)) {
      return detail::concat("key ", i, " of those in the way has another value");
    }
  }
  return {};
}

template <class Key>
void run(const Plan& plan, Region& region, Session& session) {
  Map<Key> map = Map<Key>::open(region, "map");
  session.start();
  if (plan.beside) {
    const auto keys = keys_of<Key>(plan);
    launch(map.stream(), dim3(plan.operations), dim3(Ref<Key>::kWidth), call_beside<Key>, map.ref(),
           keys.front(), keys.back(), plan.calls[0], plan.calls[1],
           region.find<std::uint64_t>("returned").data());
    map.stream().synchronize();
  } else {
    call_alone<Key>(map, plan);
  }
  session.acknowledge();
  if (!plan.growing || plan.beside || plan.calls[0] == Call::migrate) return;
  session.start();
  map.migrate(kAllBuckets);
  session.acknowledge();
}

// What recovery opened, and what it has exported of the plan's changes.
template <class Key>
struct Recovered {
  std::unique_ptr<Map<Key>> map;
  MapChanges changes;
  MapVersion version;
  std::vector<Key> keys, erased;
  std::vector<std::uint32_t> values;

  void export_changes(const Plan& plan, Region& region) {
    const auto since = region.find<std::uint64_t>("since");
    keys.resize(plan.operations);
    erased.resize(plan.operations);
    values.resize(plan.operations * plan.value_bytes / 4);
    changes = map->export_changes({read(&since[0]), read(&since[1])}, plan.operations, keys.data(),
                                  values.data(), erased.data());
    version = map->version();
  }
};

// A key that is not as it was is in what changed since, and says what became of it.
template <class Key>
std::string verify_changes(const Plan& plan, const Recovered<Key>& of,
                           const std::vector<std::uint64_t>& values) {
  if (of.changes.to != of.version) return "more is recorded than the batch";
  std::set<std::uint64_t> seen;
  const auto keys = keys_of<Key>(plan);
  const auto number_of = [&](const Key& key) -> std::uint64_t {
    return std::find(keys.begin(), keys.end(), key) - keys.begin();
  };
  for (std::uint64_t i = 0; i < of.changes.upserts; ++i) {
    const std::uint64_t number = number_of(of.keys[i]);
    seen.insert(number);
    if (number >= values.size() || values[number] != of.values[i * plan.value_bytes / 4]) {
      return detail::concat("key ", number, " is exported with another value");
    }
  }
  for (std::uint64_t i = 0; i < of.changes.tombstones; ++i) {
    const std::uint64_t number = number_of(of.erased[i]);
    seen.insert(number);
    if (number >= values.size() || values[number] != 0) {
      return detail::concat("key ", number, " has a tombstone, and is there");
    }
  }
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    const bool changed = values[i] != (plan.there ? kBefore + i : 0);
    if (changed && seen.count(i) == 0) return detail::concat("the change of key ", i, " is lost");
  }
  return {};
}

template <class Key>
std::string verify(const Plan& plan, Region& region, const Recovered<Key>& recovered,
                   const History& history) {
  const Map<Key>& map = *recovered.map;
  const auto returned = region.find<std::uint64_t>("returned");
  const bool any = history.acknowledged != 0 || read(&returned[0]) + read(&returned[1]) != 0;
  if (const std::string wrong = map.verify(); !wrong.empty()) return wrong;
  auto keys = keys_of<Key>(plan);
  const std::size_t of_plan = keys.size();
  for (std::uint64_t i = 0; plan.in_the_way && i < kInTheWay; ++i) {
    keys.push_back(plan.key<Key>(kFirstInTheWay + i));
  }
  const std::uint32_t words = plan.value_bytes / 4;
  std::vector<std::uint32_t> values(keys.size() * words);
  std::vector<std::uint8_t> found(keys.size());
  std::vector<std::uint64_t> now;
  map.find(keys.data(), values.data(), found.data(), keys.size());
  if (plan.in_the_way) {
    if (history.acknowledged != 0 && map.size() != keys.size()) return "none moved: choose others";
    const std::string wrong = verify_in_the_way(plan, &values[of_plan * words], &found[of_plan]);
    if (!wrong.empty()) return wrong;
  }
  for (std::size_t i = 0; i < of_plan; ++i) {
    const std::uint64_t value = found[i] != 0 ? values[i * words] : 0;
    now.push_back(value);
    for (std::uint32_t word = 0; found[i] != 0 && plan.value_bytes > 8 && word < words; ++word) {
      if (values[i * words + word] != value) return detail::concat("the value ", value, " is torn");
    }
    const bool changed = plan.apart ? history.acknowledged != 0 || read(&returned[i]) != 0 : any;
    const bool before = value == (plan.there ? kBefore + i : 0) && !changed;
    const bool after = history.started != 0 &&
                       (plan.ends.count(value) != 0 ||
                        ((!plan.beside || plan.apart) && value == kAfter + i &&
                         plan.calls[0] != Call::erase && plan.calls[0] != Call::mixed_erase) ||
                        (plan.calls[0] == Call::migrate && value == kBefore + i));
    if (!before && !after) {
      return detail::concat("key ", i, found[i] != 0 ? " has the value " : " is not there (", value,
                            found[i] != 0 ? "" : ")");
    }
  }
  return plan.recorded ? verify_changes(plan, recovered, now) : std::string();
}

template <class Key>
Program make(std::shared_ptr<const Plan> plan) {
  using Of = Map<Key>;
  const auto recovered = std::make_shared<Recovered<Key>>();
  Program program;
  program.region_bytes = Of::region_bytes(plan->options()) + 4 * kPageBytes;
  program.set_up = [plan](Region& region) {
    region.allocate<std::uint64_t>("returned", 2);
    Of map = Of::create(region, "map", plan->options());
    if (plan->growing) return set_up_growth<Key>(map, *plan);
    if (plan->in_the_way) return set_up_in_the_way<Key>(map, *plan);
    if (plan->there) {
      const auto keys = keys_of<Key>(*plan);
      map.insert(keys.data(), plan->values(kBefore).data(), keys.size());
    }
    if (!plan->recorded) return;
    const auto since = region.allocate<std::uint64_t>("since", 2);
    since[0] = map.version().opening;
    since[1] = map.version().number;
  };
  program.run = [plan](Region& region, Session& session) { run<Key>(*plan, region, session); };
  const bool goes_on = plan->calls[0] == Call::migrate;
  program.recover = [plan, recovered, goes_on](Region& region) {
    recovered->map = std::make_unique<Of>(Of::open(region, "map"));
    if (goes_on) recovered->map->migrate(kAllBuckets);
    if (plan->recorded) recovered->export_changes(*plan, region);
  };
  program.items = 1;
  program.verify = [plan, recovered](Region& region, const History& history, std::uint64_t) {
    return verify<Key>(*plan, region, *recovered, history);
  };
  return program;
}

template <class Key = Short>
Offer offer(const std::string& name, const std::string& summary, const Plan& plan) {
  const auto program = [=](const Sizes& sizes) {
    if (sizes.blocks != 0 || sizes.persists != 0 || sizes.threads > 4 ||
        ((plan.beside || plan.growing || plan.mixed()) && sizes.threads > 2) ||
        ((plan.recorded || plan.in_the_way) && sizes.threads > 1)) {
      throw Error(Errc::invalid_argument,
                  plan.recorded     ? "a map that records its changes has one size, --threads 1"
                  : plan.in_the_way ? "a batch for which keys move has one size, --threads 1"
                  : plan.beside     ? "the map's kernels have one size, --threads: groups, 1 or 2"
                  : plan.growing || plan.mixed()
                      ? "a growing map, and a mixed batch, have one size, --threads: keys, 1 or 2"
                      : "the map's batches have one size, --threads: operations, 1 to 4");
    }
    auto sized = std::make_shared<Plan>(plan);
    if (sizes.threads != 0) sized->operations = sizes.threads;
    Program made = make<Key>(sized);
    made.name = name;
    return made;
  };
  if (plan.recorded || plan.mixed() || plan.in_the_way) {
    return {name, summary, true, program, {{1, 0, 0}}};
  }
  return {name, summary, true, program, {{1, 0, 0}, {2, 0, 0}}};
}

}  // namespace

std::vector<Offer> map_programs() {
  constexpr std::uint64_t kSecond = kAfter + 1;
  constexpr Call kInsert = Call::insert, kPut = Call::insert_or_assign, kErase = Call::erase;
  return {
      offer("map_insert", "the hash map: a batch that inserts",
            {{kInsert, kInsert}, false, false, 1, 12, {}}),
      offer("map_insert_small", "the same, of values in their slots",
            {{kInsert, kInsert}, false, false, 1, 8, {}}),
      offer("map_update", "the same: a batch that assigns",
            {{Call::assign, Call::assign}, false, true, 1, 12, {}}),
      offer("map_erase", "the same: a batch that erases",
            {{kErase, kErase}, false, true, 1, 12, {0}}),
      offer("map_make_room", "the same: a batch that inserts where another key has to move",
            {{kInsert, kInsert}, false, false, 1, 8, {}, false, false, false, true}),
      offer("map_ref_insert", "the same: kernels' inserts of one key",
            {{kInsert, kInsert}, true, false, 2, 12, {kAfter, kSecond}}),
      offer("map_ref_update", "the same: kernels assign to one key",
            {{kPut, Call::assign}, true, true, 2, 12, {kAfter, kSecond}}),
      offer("map_ref_erase", "the same: a kernel erases a key, beside one that sets it",
            {{kErase, kPut}, true, true, 2, 12, {0, kSecond}}),
      offer("map_grow", "the same: a growth moves keys",
            {{Call::migrate, kInsert}, false, true, 1, 12, {}, true}),
      offer("map_grow_update", "the same: a batch assigns to keys, and a growth moves them",
            {{Call::assign, kInsert}, false, true, 1, 12, {}, true}),
      offer("map_grow_erase", "the same: a batch erases a key that has moved, and one that has not",
            {{kErase, kErase}, false, true, 1, 12, {0}, true}),
      offer("map_grow_ref_erase",
            "a kernel erases a key that has not moved yet, beside one that sets and erases it",
            {{kErase, Call::put_and_erase}, true, true, 2, 12, {0, kSecond}, true}),
      offer("map_changes", "the same: a batch that assigns, and its record of changes",
            {{kPut, kInsert}, false, true, 1, 12, {}, false, false, true}),
      offer("map_mixed", "the same: a batch of several operations of a key, which leave a value",
            {{Call::mixed_put, kInsert}, false, true, 1, 12, {}}),
      offer("map_mixed_insert", "the same, of a key that is not there",
            {{Call::mixed_put, kInsert}, false, false, 1, 12, {}}),
      offer("map_mixed_make_room", "the same, where another key has to move",
            {{Call::mixed_put, kInsert}, false, false, 1, 8, {}, false, false, false, true}),
      offer("map_mixed_erase", "the same: several operations of a key, which erase it",
            {{Call::mixed_erase, kInsert}, false, true, 1, 12, {0}}),
      offer("map_mixed_refs_out", "a mixed batch while refs are out, which leaves a value",
            while_refs_are_out({{Call::mixed_put, kInsert}, false, true, 1, 12, {}})),
      offer("map_mixed_refs_out_erase", "the same, which erases the key",
            while_refs_are_out({{Call::mixed_erase, kInsert}, false, true, 1, 12, {0}})),
      offer<Long>("map_long_insert", "the same, of keys of 16 bytes: a batch that inserts",
                  {{kInsert, kInsert}, false, false, 1, 12, {}}),
      offer<Long>("map_long_erase", "the same: a batch that erases",
                  {{kErase, kErase}, false, true, 1, 12, {0}}),
      offer<Long>("map_long_ref_insert", "the same: kernels' inserts of one key",
                  {{kInsert, kInsert}, true, false, 2, 12, {kAfter, kSecond}}),
      offer<Long>("map_long_ref_alike", "the same: kernels' inserts of two keys with one label",
                  {{kInsert, kInsert}, true, false, 2, 8, {}, false, true}),
      offer<Long>("map_long_ref_erase", "the same: a kernel erases a key, beside one that sets it",
                  {{kErase, kPut}, true, true, 2, 12, {0, kSecond}}),
      offer<Long>("map_long_make_room", "the same: another key has to move",
                  {{kInsert, kInsert}, false, false, 1, 8, {}, false, false, false, true}),
      offer<Long>("map_long_grow", "the same: a growth moves keys",
                  {{Call::migrate, kInsert}, false, true, 1, 12, {}, true}),
      offer<Long>(
          "map_long_grow_ref_erase",
          "a kernel erases a key that has not moved yet, beside one that sets and erases it",
          {{kErase, Call::put_and_erase}, true, true, 2, 12, {0, kSecond}, true})};
}

}  // namespace holdfast::check

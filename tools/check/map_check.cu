// The hash map at its smallest: batches that have it to themselves, and kernels' operations of one
// key beside each other; and a table that grows.
#include <memory>
#include <set>

#include "checking/sized_offer.hpp"
#include "holdfast/hash_map.hpp"
#include "holdfast/kernel.hpp"
#include "layers.hpp"

namespace holdfast::check {
namespace {

using Map = HashMap<std::uint64_t, MapConfig<4>>;
using Ref = HashMapRef<std::uint64_t, MapConfig<4>>;
enum class Call : std::uint32_t { insert, insert_or_assign, assign, erase, put_and_erase, migrate };

// A value names itself; one of more than 8 bytes in all of its words, so that half of it is
// noticed.
constexpr std::uint64_t kBefore = 100;
constexpr std::uint64_t kAfter = 200;  // what operation i sets is kAfter + i
constexpr unsigned kMostWords = 3;
// Of keys inserted one after the other into six slots, those from this one on are on the lower
// level.
constexpr std::uint64_t kFirstBelow = 5;
constexpr std::uint64_t kAllBuckets = ~std::uint64_t{0};

struct Plan {
  Call calls[2];  // of the groups of a kernel, all on one key; a batch makes the first one,
  bool beside;    // on one key for each operation
  bool there;     // the keys are there before
  std::uint32_t operations;
  std::uint32_t value_bytes;
  std::set<std::uint64_t> ends;  // values that a key may have when all is done, 0 for none
  bool growing = false;  // the keys are on the level that is emptied, before and if it is not after

  MapOptions options() const {
    MapOptions options;
    options.capacity = 6;
    options.value_bytes = value_bytes;
    options.max_batch = operations;
    options.directory = MapOptions::Directory::off;
    return options;
  }
  std::uint64_t keys() const { return beside ? 1 : operations; }
  std::uint64_t first_key() const { return growing ? kFirstBelow : 1; }
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

// A block, of one group, for each call.
// What an operation has changed is durable before anything that follows its return. Of what it has
// only seen that is not promised.
__global__ void call_beside(Ref ref, std::uint64_t key, Call first, Call second,
                            std::uint64_t* returned) {
  const Ref::Group group;
  const unsigned number = blockIdx.x;
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
      break;
  }
  const bool changed = status != MapStatus::kept && status != MapStatus::absent;
  if (group.rank == 0 && changed) returned[number] = 1;
}

std::vector<std::uint64_t> keys_of(const Plan& plan) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < plan.keys(); ++i) keys.push_back(plan.first_key() + i);
  return keys;
}

void call_alone(Map& map, const Plan& plan) {
  const auto keys = keys_of(plan);
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
    case Call::migrate:
      map.migrate(kAllBuckets);
  }
}

// A table that grows, with the plan's keys on the level that is emptied.
void set_up_growth(Map& map, const Plan& plan) {
  const auto values = plan.values(kBefore);
  const std::size_t words = plan.value_bytes / 4;
  for (std::uint64_t key = 1; key < kFirstBelow + plan.keys(); ++key) {
    const std::uint64_t number = key < kFirstBelow ? 0 : key - kFirstBelow;
    map.insert(&key, values.data() + number * words, 1);
  }
  for (std::uint64_t key = 1; key < kFirstBelow; ++key) map.erase(&key, 1);
  map.grow();
  std::uint64_t below[2];
  if (map.export_batch(map.capacity() - 2, 2, below, nullptr) != plan.keys()) {
    throw Error(Errc::invalid_argument, "the keys are not on the lower level: choose others");
  }
}

void run(const Plan& plan, Region& region, Session& session) {
  Map map = Map::open(region, "map");
  session.start();
  if (plan.beside) {
    launch(map.stream(), dim3(plan.operations), dim3(Ref::kWidth), call_beside, map.ref(),
           plan.first_key(), plan.calls[0], plan.calls[1],
           region.find<std::uint64_t>("returned").data());
    map.stream().synchronize();
  } else {
    call_alone(map, plan);
  }
  session.acknowledge();
  if (!plan.growing || plan.beside || plan.calls[0] == Call::migrate) return;
  session.start();
  map.migrate(kAllBuckets);
  session.acknowledge();
}

std::string verify(const Plan& plan, Region& region, Map& map, const History& history) {
  const auto returned = region.find<std::uint64_t>("returned");
  const bool changed = history.acknowledged != 0 || read(&returned[0]) + read(&returned[1]) != 0;
  if (const std::string wrong = map.verify(); !wrong.empty()) return wrong;
  const auto keys = keys_of(plan);
  const std::uint32_t words = plan.value_bytes / 4;
  std::vector<std::uint32_t> values(keys.size() * words);
  std::vector<std::uint8_t> found(keys.size());
  map.find(keys.data(), values.data(), found.data(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint64_t value = found[i] != 0 ? values[i * words] : 0;
    for (std::uint32_t word = 0; found[i] != 0 && plan.value_bytes > 8 && word < words; ++word) {
      if (values[i * words + word] != value) return detail::concat("the value ", value, " is torn");
    }
    const bool before = value == (plan.there ? kBefore + i : 0) && !changed;
    const bool after = history.started != 0 &&
                       (plan.ends.count(value) != 0 ||
                        (!plan.beside && value == kAfter + i && plan.calls[0] != Call::erase) ||
                        (plan.calls[0] == Call::migrate && value == kBefore + i));
    if (!before && !after) {
      return detail::concat("key ", keys[i], found[i] != 0 ? " has the value " : " is not there (",
                            value, found[i] != 0 ? "" : ")");
    }
  }
  return {};
}

Program make(std::shared_ptr<const Plan> plan) {
  const auto recovered = std::make_shared<std::unique_ptr<Map>>();
  Program program;
  program.region_bytes = Map::region_bytes(plan->options()) + 3 * kPageBytes;
  program.set_up = [plan](Region& region) {
    region.allocate<std::uint64_t>("returned", 2);
    Map map = Map::create(region, "map", plan->options());
    if (plan->growing) return set_up_growth(map, *plan);
    if (!plan->there) return;
    const auto keys = keys_of(*plan);
    map.insert(keys.data(), plan->values(kBefore).data(), keys.size());
  };
  program.run = [plan](Region& region, Session& session) { run(*plan, region, session); };
  const bool goes_on = plan->calls[0] == Call::migrate;
  program.recover = [recovered, goes_on](Region& region) {
    *recovered = std::make_unique<Map>(Map::open(region, "map"));
    if (goes_on) (*recovered)->migrate(kAllBuckets);
  };
  program.items = 1;
  program.verify = [plan, recovered](Region& region, const History& history, std::uint64_t) {
    return verify(*plan, region, **recovered, history);
  };
  return program;
}

Offer offer(const std::string& name, const std::string& summary, const Plan& plan) {
  const auto program = [=](const Sizes& sizes) {
    if (sizes.blocks != 0 || sizes.persists != 0 || sizes.threads > 4 ||
        ((plan.beside || plan.growing) && sizes.threads > 2)) {
      throw Error(Errc::invalid_argument,
                  plan.beside ? "the map's kernels have one size, --threads: groups, 1 or 2"
                  : plan.growing
                      ? "a growing map has one size, --threads: keys, 1 or 2"
                      : "the map's batches have one size, --threads: operations, 1 to 4");
    }
    auto sized = std::make_shared<Plan>(plan);
    if (sizes.threads != 0) sized->operations = sizes.threads;
    Program made = make(sized);
    made.name = name;
    return made;
  };
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
            {{kErase, Call::put_and_erase}, true, true, 2, 12, {0, kSecond}, true})};
}

}  // namespace holdfast::check

// Lookups by a kernel of another stream beside a batch of the key-value store that replaces the
// value of a key and inserts one.
#include <memory>

#include "checking/sized_offer.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/kv_store.hpp"
#include "layers.hpp"

namespace holdfast::check {
namespace {

// Keys, and what is in their values. Of a lookup of the one that is inserted nothing is promised
// but that it is no race.
constexpr std::uint64_t kStays = 11;
constexpr std::uint64_t kReplaced = 12;
constexpr std::uint64_t kInserted = 13;
constexpr std::uint64_t kAbsent = 14;
constexpr std::uint64_t kBefore = 100;
constexpr std::uint64_t kAfter = 200;
constexpr std::uint64_t kNothing = 1;  // was found
constexpr unsigned kLookups = 4;

// A thread for each lookup. It stores what it was answered if that is wrong, and so nothing that
// would have to be explored if not.
__global__ void look_up(KvStoreRef store, std::uint64_t* wrong) {
  constexpr std::uint64_t kKeys[kLookups] = {kStays, kReplaced, kAbsent, kInserted};
  constexpr std::uint64_t kRight[kLookups][2] = {{kBefore + kStays, kBefore + kStays},
                                                 {kBefore + kReplaced, kAfter + kReplaced},
                                                 {kNothing, kNothing}};
  std::uint64_t value = kNothing;
  (void)store.find(kKeys[threadIdx.x], &value);
  const std::uint64_t* const right = kRight[threadIdx.x];
  if (threadIdx.x == kLookups - 1 || value == right[0] || value == right[1]) return;
  wrong[threadIdx.x] = value;
  persist();
}

void set(KvStore& store, std::initializer_list<std::uint64_t> keys, std::uint64_t value) {
  std::vector<std::uint64_t> values;
  for (const std::uint64_t key : keys) values.push_back(value + key);
  store.set(keys.begin(), values.data(), values.size());
}

std::string verify_lookups(Region& region) {
  const auto wrong = region.find<std::uint64_t>("wrong");
  for (unsigned i = 0; i < kLookups; ++i) {
    if (wrong[i] != 0) return detail::concat("lookup ", i, " answered ", std::uint64_t{wrong[i]});
  }
  return {};
}

std::string verify_pair(KvStore& store, const History& history) {
  const std::uint64_t key = kReplaced;
  std::uint64_t value = 0;
  std::uint8_t found = 0;
  store.get(&key, &value, &found, 1);
  const bool before = value == kBefore + kReplaced && history.acknowledged == 0;
  const bool after = value == kAfter + kReplaced && history.started == 1;
  return before || after ? std::string() : detail::concat("the store holds ", value);
}

Program make(KvStore::Cache cache) {
  const KvStore::Options options{8, 2, cache};  // one bucket
  const auto recovered = std::make_shared<std::unique_ptr<KvStore>>();
  Program program;
  program.region_bytes = KvStore::region_bytes(options);
  program.set_up = [options](Region& region) {
    KvStore store = KvStore::create(region, options);
    set(store, {kStays, kReplaced}, kBefore);
    region.allocate<std::uint64_t>("wrong", kLookups);
  };
  program.run = [cache](Region& region, Session& session) {
    KvStore store = KvStore::open(region, cache);
    Stream beside;
    launch(beside, dim3(1), dim3(kLookups), look_up, store.ref(),
           region.find<std::uint64_t>("wrong").data());
    session.start();
    set(store, {kReplaced, kInserted}, kAfter);
    session.acknowledge();
    beside.synchronize();
  };
  program.recover = [cache, recovered](Region& region) {
    *recovered = std::make_unique<KvStore>(KvStore::open(region, cache));
    (*recovered)->await_cache();  // recovery ends before verification begins
  };
  program.items = 2;
  program.verify = [recovered](Region& region, const History& history, std::uint64_t item) {
    return item == 0 ? verify_pair(**recovered, history) : verify_lookups(region);
  };
  return program;
}

}  // namespace

std::vector<Offer> kv_lookups_programs() {
  const auto with = [](KvStore::Cache cache) {
    return [cache](const Sizes&) { return make(cache); };
  };
  return {sized_offer("kv_lookups",
                      "the key-value store: a kernel looks keys up beside a SET of some of them",
                      {}, with(KvStore::Cache::off)),
          sized_offer("kv_lookups_cached", "the same, reading a copy of the table in device memory",
                      {}, with(KvStore::Cache::on))};
}

}  // namespace holdfast::check

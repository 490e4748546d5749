// The key-value store as it is: batches of operations, each a transaction.
#include <map>
#include <memory>
#include <utility>

#include "checking/kv_batch.hpp"
#include "checking/sized_offer.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/kv_store.hpp"
#include "kv_store/table.hpp"

namespace holdfast::check {
namespace {

using Pairs = std::map<std::uint64_t, std::uint64_t>;

using Op = KvStore::Op;

// What the program does, and what the store holds after each of its batches.
struct Plan {
  KvStore::Options options;
  std::uint64_t mask = 0;           // buckets - 1
  std::vector<std::uint64_t> keys;  // of the operations: an item is one of them
  std::vector<KvBatch> batches;     // those before `first` are part of set_up()
  std::size_t first = 0;
  // [n]: once n batches are in, by bucket.
  std::vector<std::map<std::uint64_t, Pairs>> after{{}};
  std::vector<std::uint64_t> records{0};

  std::uint64_t bucket_of(std::uint64_t key) const { return kv::Table::hash(key) & mask; }
  const Pairs& in_bucket(std::uint64_t batches_in, std::uint64_t bucket) const {
    static const Pairs none;
    const auto found = after[batches_in].find(bucket);
    return found == after[batches_in].end() ? none : found->second;
  }
  void add(KvBatch batch) {
    auto buckets = after.back();
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      Pairs& bucket = buckets[bucket_of(batch.keys[i])];
      if (batch.operation(i) == Op::erase) {
        bucket.erase(batch.keys[i]);
      } else {
        bucket[batch.keys[i]] = batch.values[i];
      }
    }
    std::uint64_t count = 0;
    for (const auto& bucket : buckets) count += bucket.second.size();
    batches.push_back(std::move(batch));
    after.push_back(std::move(buckets));
    records.push_back(count);
  }
};

// How a store is made: with the copy of its table for reading, or with the conventional log.
struct Kind {
  KvStore::Cache cache = KvStore::Cache::off;
  LogLayout log = LogLayout::coalesced;
};
constexpr Kind kCached{KvStore::Cache::on};
constexpr Kind kConventional{KvStore::Cache::off, LogLayout::conventional};

void shape(Plan& plan, std::uint32_t operations, const Kind& kind) {
  std::uint64_t buckets = 1;
  while (buckets < operations) buckets *= 2;
  plan.options = {buckets * kv::kWays, operations, kind.cache, kind.log};
  plan.mask = buckets - 1;
}

// A key for each of the buckets that are asked for, all of them different.
std::vector<std::uint64_t> keys_in(const Plan& plan, const std::vector<std::uint64_t>& buckets) {
  std::map<std::uint64_t, std::vector<std::size_t>> wanted;
  for (std::size_t i = buckets.size(); i-- > 0;) wanted[buckets[i]].push_back(i);
  std::vector<std::uint64_t> keys(buckets.size());
  for (std::uint64_t key = 1; !wanted.empty(); ++key) {
    const auto found = wanted.find(plan.bucket_of(key));
    if (found == wanted.end()) continue;
    keys[found->second.back()] = key;
    found->second.pop_back();
    if (found->second.empty()) wanted.erase(found);
  }
  return keys;
}

std::vector<std::uint64_t> values_for(const std::vector<std::uint64_t>& keys, std::uint64_t batch) {
  std::vector<std::uint64_t> values;
  for (const std::uint64_t key : keys) values.push_back(batch << 32 | key);
  return values;
}

// Half of the operations have a bucket to themselves, three of the others share one. Every other
// key is there before, and so is one that no operation names.
std::shared_ptr<Plan> shared_plan(std::uint32_t operations, const Kind& kind) {
  auto plan = std::make_shared<Plan>();
  shape(*plan, operations, kind);
  std::vector<std::uint64_t> buckets;
  for (std::uint32_t i = 0; i < operations; ++i) {
    const std::uint32_t half = operations / 2;
    buckets.push_back(i < half ? i : half + (i - half) / 3);
  }
  buckets.push_back(0);  // the bystander
  plan->keys = keys_in(*plan, buckets);
  const std::uint64_t bystander = plan->keys.back();

  std::vector<std::uint64_t> before;
  for (std::size_t i = 0; i + 1 < plan->keys.size(); i += 2) before.push_back(plan->keys[i]);
  if (before.size() < operations) before.push_back(bystander);
  plan->keys.pop_back();
  plan->add({{Op::set}, before, values_for(before, 1)});
  plan->first = 1;
  return plan;
}

std::shared_ptr<const Plan> mixed_plan(std::uint32_t operations, const Kind& kind) {
  const std::shared_ptr<Plan> plan = shared_plan(operations, kind);
  plan->add({{Op::set}, plan->keys, values_for(plan->keys, 2)});
  std::vector<std::uint64_t> gone;
  for (std::size_t i = 0; i < plan->keys.size(); ++i) {
    // Every third key, and others that are not there.
    gone.push_back(i % 3 == 0 ? plan->keys[i] : plan->keys[i] + (std::uint64_t{1} << 40));
  }
  plan->add({{Op::erase}, gone, {}});
  plan->add({{Op::set}, plan->keys, values_for(plan->keys, 4)});
  return plan;
}

// One batch of both: of three keys one is erased, whether it is there or not.
std::shared_ptr<const Plan> apply_plan(std::uint32_t operations, const Kind& kind) {
  const std::shared_ptr<Plan> plan = shared_plan(operations, kind);
  std::vector<Op> kinds;
  for (std::uint32_t i = 0; i < operations; ++i) kinds.push_back(i % 3 == 0 ? Op::erase : Op::set);
  plan->add({kinds, plan->keys, values_for(plan->keys, 2)});
  return plan;
}

// One SET of new keys, each in a bucket of its own: operations have nothing in common.
std::shared_ptr<const Plan> set_plan(std::uint32_t operations, const Kind& kind) {
  auto plan = std::make_shared<Plan>();
  shape(*plan, operations, kind);
  std::vector<std::uint64_t> buckets;
  for (std::uint32_t i = 0; i < operations; ++i) buckets.push_back(i);
  plan->keys = keys_in(*plan, buckets);
  plan->add({{Op::set}, plan->keys, values_for(plan->keys, 1)});
  return plan;
}

// The store that recovery opened, and how many batches it says are in. Every item depends on that
// one number; the other counters are an item of their own.
struct Recovered {
  std::unique_ptr<KvStore> store;
  std::uint64_t batches = 0;
};

std::uint64_t read_batches(Region& region) {
  return region.find<kv::Counters>("kvs.counters")[0].batches;
}

std::string verify_batches(const Plan& plan, const Recovered& recovered, const History& history) {
  const std::uint64_t acknowledged = plan.first + history.acknowledged;
  const std::uint64_t started = plan.first + history.started;
  if (recovered.batches >= acknowledged && recovered.batches <= started) return {};
  return detail::concat("the store says that it holds ", recovered.batches, " batches; ",
                        acknowledged, " were acknowledged and ", started, " begun");
}

std::string verify_counters(const Plan& plan, const Recovered& recovered) {
  const KvStore::Stats stats = recovered.store->stats();
  const std::uint64_t records = plan.records[recovered.batches];
  if (stats.records == records && stats.batches == recovered.batches) return {};
  return detail::concat("the store says that it holds ", stats.records, " pairs after ",
                        stats.batches, " batches; these make ", records);
}

std::string describe(std::uint64_t number, const kv::Bucket& bucket, const Pairs& expected) {
  std::string text = detail::concat("bucket ", number, " holds");
  for (const kv::Pair& pair : bucket.ways) {
    if (pair.key != 0 || pair.value != 0) text += detail::concat(" ", ~pair.key, "=", pair.value);
  }
  text += ", and should hold";
  for (const auto& [key, value] : expected) text += detail::concat(" ", key, "=", value);
  return text;
}

// The bucket of operation `item` holds what the batches that are in make of it, and nothing else.
std::string verify_bucket(Region& region, const Plan& plan, const Recovered& recovered,
                          std::uint64_t item) {
  const std::uint64_t number = plan.bucket_of(plan.keys[item]);
  const kv::Bucket& bucket = region.find<kv::Bucket>("kvs.table")[number];
  const Pairs& expected = plan.in_bucket(recovered.batches, number);
  std::size_t known = 0;
  std::size_t there = 0;
  for (const kv::Pair& pair : bucket.ways) {
    const std::uint64_t key = pair.key;
    const std::uint64_t value = pair.value;
    if (key == 0 && value == 0) continue;
    ++there;
    const auto found = expected.find(~key);
    known += found != expected.end() && found->second == value;
  }
  // Keys are distinct where as many are known as there should be.
  if (there == known && known == expected.size()) return {};
  return describe(number, bucket, expected);
}

Program make(std::shared_ptr<const Plan> plan) {
  const auto recovered = std::make_shared<Recovered>();
  Program program;
  program.region_bytes = KvStore::region_bytes(plan->options);
  program.set_up = [plan](Region& region) {
    KvStore store = KvStore::create(region, plan->options);
    for (std::size_t i = 0; i < plan->first; ++i) plan->batches[i].give_to(store);
  };
  program.run = [plan](Region& region, Session& session) {
    KvStore store = KvStore::open(region, plan->options.cache);
    for (std::size_t i = plan->first; i < plan->batches.size(); ++i) {
      session.start();
      plan->batches[i].give_to(store);
      session.acknowledge();
    }
  };
  program.recover = [plan, recovered](Region& region) {
    recovered->store = std::make_unique<KvStore>(KvStore::open(region, plan->options.cache));
    recovered->store->await_cache();  // recovery ends before verification begins
    recovered->batches = read_batches(region);
  };
  // One for each operation, and one for the counters.
  program.items = plan->keys.size() + 1;
  program.verify = [plan, recovered](Region& region, const History& history, std::uint64_t item) {
    const std::string wrong = verify_batches(*plan, *recovered, history);
    if (!wrong.empty()) return wrong;
    if (item == plan->keys.size()) return verify_counters(*plan, *recovered);
    return verify_bucket(region, *plan, *recovered, item);
  };
  return program;
}

std::function<Program(const Sizes&)> mixed(const Kind& kind) {
  return [kind](const Sizes& sizes) { return make(mixed_plan(sizes.threads, kind)); };
}

std::function<Program(const Sizes&)> both(const Kind& kind) {
  return [kind](const Sizes& sizes) { return make(apply_plan(sizes.threads, kind)); };
}

std::function<Program(const Sizes&)> set(const Kind& kind) {
  return [kind](const Sizes& sizes) { return make(set_plan(sizes.threads, kind)); };
}

}  // namespace
}  // namespace holdfast::check

namespace gpkvs {

std::vector<holdfast::check::Offer> check_programs() {
  using holdfast::check::sized_offer;
  const std::vector<holdfast::check::Sizes> few = {{2, 0, 0}, {5, 0, 0}};
  const std::vector<holdfast::check::Sizes> few_set = {{2, 0, 0}, {6, 0, 0}};
  return {
      sized_offer(
          "gpkvs",
          "the key-value store: SET, ERASE and SET again, in buckets that operations share and not",
          {8, 0, 0}, holdfast::check::mixed({}), few),
      sized_offer("gpkvs_cached", "the same, reading a copy of the table in device memory",
                  {8, 0, 0}, holdfast::check::mixed(holdfast::check::kCached), few),
      sized_offer("gpkvs_conventional", "the same with the conventional log", {8, 0, 0},
                  holdfast::check::mixed(holdfast::check::kConventional), few),
      sized_offer("gpkvs_set", "the key-value store: one SET of new keys", {8, 0, 0},
                  holdfast::check::set({}), few_set),
      sized_offer("gpkvs_set_cached", "the same, reading a copy of the table in device memory",
                  {8, 0, 0}, holdfast::check::set(holdfast::check::kCached), few_set),
      sized_offer("gpkvs_apply", "the key-value store: a batch of SETs and ERASEs together",
                  {8, 0, 0}, holdfast::check::both({}), few),
      sized_offer("gpkvs_apply_cached", "the same, reading a copy of the table in device memory",
                  {8, 0, 0}, holdfast::check::both(holdfast::check::kCached), few),
  };
}

}  // namespace gpkvs

// The key-value store as a log: batches, opening, and cleaning.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "checking/kv_batch.hpp"
#include "holdfast/error.hpp"
#include "holdfast/kv_store.hpp"
#include "layers.hpp"

namespace holdfast::check {
namespace {

using Pairs = std::map<std::uint64_t, std::uint64_t>;

using Op = KvStore::Op;

// What the program does, and what the store holds after each of its batches.
struct LogPlan {
  KvStore::Options options;
  std::vector<KvBatch> batches;  // those before `first` are part of set_up()
  std::size_t first = 0;
  bool reopens = false;          // for each batch; and set_up() leaves no snapshots
  bool cleans = false;           // run() has to copy a record, and set_up() none
  std::vector<Pairs> after{{}};  // [n]: once n batches are in

  void add(KvBatch batch) {
    Pairs pairs = after.back();
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      if (batch.operation(i) == Op::erase) {
        pairs.erase(batch.keys[i]);
      } else {
        pairs[batch.keys[i]] = batch.values[i];
      }
    }
    batches.push_back(std::move(batch));
    after.push_back(std::move(pairs));
  }
  void set(const std::vector<std::uint64_t>& keys) {
    std::vector<std::uint64_t> values;
    for (const std::uint64_t key : keys) values.push_back((batches.size() + 1) << 32 | key);
    add({{Op::set}, keys, values});
  }
  void erase_absent(std::uint32_t count) {
    std::vector<std::uint64_t> keys;
    for (std::uint64_t i = 0; i < count; ++i) keys.push_back(5000 + i);
    add({{Op::erase}, keys, {}});
  }
};

KvStore::Options options_of(std::uint64_t capacity, std::uint32_t max_batch) {
  KvStore::Options options;
  options.capacity = capacity;
  options.max_batch = max_batch;
  options.layout = KvStore::Layout::log;
  return options;
}

std::vector<std::uint64_t> numbers(std::uint64_t count) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < count; ++i) keys.push_back(i + 1);
  return keys;
}

// A SET, an ERASE of half of its keys and of one that is not there, and a SET again.
std::shared_ptr<LogPlan> batches_plan(std::uint32_t operations) {
  auto plan = std::make_shared<LogPlan>();
  plan->options = options_of(2 * operations, operations);
  const std::vector<std::uint64_t> keys = numbers(operations);
  plan->set(keys);
  std::vector<std::uint64_t> gone(keys.begin(), keys.begin() + (operations + 1) / 2);
  gone.back() = 1000;
  plan->add({{Op::erase}, gone, {}});
  plan->set(keys);
  return plan;
}

std::shared_ptr<LogPlan> set_plan(std::uint32_t operations) {
  auto plan = std::make_shared<LogPlan>();
  plan->options = options_of(2 * operations, operations);
  plan->set(numbers(operations));
  return plan;
}

// Behind a SET of one key, operations of all kinds together: the key is erased, one that is not
// there is erased, a new one is set, and one is set and erased.
std::shared_ptr<LogPlan> mixed_plan(std::uint32_t operations) {
  auto plan = std::make_shared<LogPlan>();
  plan->options = options_of(64, 64);
  plan->set({1});
  plan->first = plan->batches.size();
  const KvBatch all{
      {Op::set, Op::erase, Op::erase, Op::set, Op::erase}, {3, 1, 2, 4, 4}, {33, 0, 0, 44, 0}};
  if (operations < 2 || operations > all.keys.size()) {
    throw Error(Errc::invalid_argument, "a mixed batch has 2 to 5 operations");
  }
  plan->add({{all.operations.begin(), all.operations.begin() + operations},
             {all.keys.begin(), all.keys.begin() + operations},
             {all.values.begin(), all.values.begin() + operations}});
  return plan;
}

// Five segments with a record that is live and 240 that say nothing, as they erased what was not
// there: in opening, threads that read such records have nothing to tell each other. The sixth
// segment is filled until the next batch leaves room for none of its size, and cleaning behind it
// copies one of the live ones. Both runs end within that segment: so closing the store finds none
// that has no snapshot, whose words, in no order, would be too many states.
std::shared_ptr<LogPlan> cleaning_plan(std::uint32_t operations) {
  constexpr std::uint32_t kSegment = 256;
  constexpr std::uint32_t kHeader = 5;  // records that it takes the place of
  constexpr std::uint32_t kSlack = 16;  // for copies: a 128th of the log
  if (operations > 3) {
    throw Error(Errc::invalid_argument, "the log that is cleaned has room for 1 to 3 operations");
  }
  auto plan = std::make_shared<LogPlan>();
  const std::uint32_t half = (kSegment - 3 * kHeader - 1) / 2;
  plan->options = options_of(64, half);  // of the index 128 slots, in which no two of the keys meet
  plan->options.log_records = 8 * kSegment;
  for (const std::uint64_t key : {1000u, 1002u, 1003u, 1005u, 1006u}) {
    plan->set({key});
    plan->erase_absent(half);
    plan->erase_absent(half);
  }
  // Of each batch as many again have to fit, with half of the slack, or cleaning begins.
  constexpr std::uint32_t kTaken = 2 * kHeader + kSlack / 2;
  for (std::uint32_t left = kSegment, count; left > kTaken + 1; left -= kHeader + count) {
    count = std::min((left - kTaken) / 2, half);
    plan->erase_absent(count);
  }
  plan->first = plan->batches.size();
  plan->cleans = true;
  plan->set(numbers(operations));
  return plan;
}

// A segment that no run reaches into any more, with two records that are live. A batch makes one of
// them dead, and closing the store takes the snapshot; the next opening goes by it, and its batch
// makes the other dead. One more closing takes the snapshot again.
std::shared_ptr<LogPlan> snapshot_plan(std::uint32_t operations) {
  constexpr std::uint32_t kSegment = 256;
  constexpr std::uint32_t kHeader = 5;
  if (operations != 1) {
    throw Error(Errc::invalid_argument, "the log that has a snapshot takes one operation");
  }
  auto plan = std::make_shared<LogPlan>();
  const std::uint32_t rest = kSegment - 3 * kHeader - 2;
  plan->options = options_of(64, rest);
  plan->options.log_records = 8 * kSegment;
  plan->set({1000});
  plan->erase_absent(rest);
  plan->set({1002});  // its bit is not of the thread that stores the snapshot's header
  plan->set({1003});
  plan->first = plan->batches.size();
  plan->reopens = true;
  plan->set({1000});
  plan->set({1002});
  plan->erase_absent(8 * kSegment / 64);  // so much that all snapshots are taken again
  return plan;
}

KvStore open(const LogPlan& plan, Region& region) {
  return KvStore::open(region, KvStore::Cache::automatic, plan.options.index);
}

std::string verify_store(const LogPlan& plan, KvStore& store, const History& history) {
  if (store.stats().snapshots_refused) return "a crash left a snapshot that is not as its log";
  const std::uint64_t batches = store.stats().batches;
  const std::uint64_t acknowledged = plan.first + history.acknowledged;
  const std::uint64_t started = plan.first + history.started;
  if (batches < acknowledged || batches > started) {
    return detail::concat("the store says that it holds ", batches, " batches; ", acknowledged,
                          " were acknowledged and ", started, " begun");
  }
  const std::uint64_t records = store.scan(nullptr, nullptr, 0);
  std::vector<std::uint64_t> keys(records), values(records);
  store.scan(keys.data(), values.data(), records);
  Pairs pairs;
  for (std::size_t i = 0; i < records; ++i) pairs[keys[i]] = values[i];
  if (pairs == plan.after[batches] && pairs.size() == records) return {};
  std::string text = detail::concat("after ", batches, " batches the store holds");
  for (const auto& [key, value] : pairs) text += detail::concat(" ", key, "=", value);
  return text;
}

// A program that is to clean and does not would check nothing of it.
void expect_copied(const KvStore& store, std::uint64_t records) {
  if (store.stats().copied_records == records) return;
  throw Error(Errc::invalid_argument,
              detail::concat("cleaning copied ", store.stats().copied_records, " records, and ",
                             records, " were to be copied"));
}

using Plan = std::shared_ptr<LogPlan> (*)(std::uint32_t operations);

Program make(std::shared_ptr<const LogPlan> plan) {
  const auto recovered = std::make_shared<std::unique_ptr<KvStore>>();
  Program program;
  program.region_bytes = KvStore::region_bytes(plan->options);
  program.set_up = [plan](Region& region) {
    KvStore store = KvStore::create(region, plan->options);
    for (std::size_t i = 0; i < plan->first; ++i) plan->batches[i].give_to(store);
    if (plan->cleans) expect_copied(store, 0);
    // One that is opened behind it ends it without closing it.
    if (plan->reopens) (void)open(*plan, region);
  };
  program.run = [plan](Region& region, Session& session) {
    std::optional<KvStore> store(open(*plan, region));
    for (std::size_t i = plan->first; i < plan->batches.size(); ++i) {
      session.start();
      plan->batches[i].give_to(*store);
      session.acknowledge();
      if (plan->cleans) expect_copied(*store, 1);
      if (!plan->reopens) continue;
      store.reset();
      store.emplace(open(*plan, region));
    }
  };
  program.recover = [plan, recovered](Region& region) {
    *recovered = std::make_unique<KvStore>(open(*plan, region));
  };
  program.items = 1;
  program.verify = [plan, recovered](Region&, const History& history, std::uint64_t) {
    return verify_store(*plan, **recovered, history);
  };
  return program;
}

unsigned operations_of(const Sizes& sizes, unsigned usual) {
  if (sizes.blocks != 0 || sizes.persists != 0 || sizes.threads > 64) {
    throw Error(Errc::invalid_argument, "the log has one size, --threads: operations, 1 to 64");
  }
  return sizes.threads == 0 ? usual : sizes.threads;
}

// Of an index of that form.
Offer offer(const std::string& name, const std::string& summary, Plan plan, KvStore::Index form,
            unsigned operations) {
  const auto program = [=](const Sizes& sizes) {
    const std::shared_ptr<LogPlan> made_plan = plan(operations_of(sizes, operations));
    made_plan->options.index = form;
    Program made = make(made_plan);
    made.name = name;
    return made;
  };
  return {name, summary, true, program, {{operations, 0, 0}}};
}

}  // namespace

std::vector<Offer> kv_log_programs() {
  using Index = KvStore::Index;
  const std::string of_fingerprints = ", with an index of fingerprints";
  std::vector<Offer> offers;
  const auto add = [&](const std::string& name, const std::string& summary, Plan plan,
                       unsigned operations = 1) {
    offers.push_back(offer(name, summary, plan, Index::whole, operations));
    offers.push_back(offer(name + "_fingerprints", summary + of_fingerprints, plan,
                           Index::fingerprints, operations));
  };
  add("kv_log", "the key-value store as a log: SET, ERASE and SET again", batches_plan);
  add("kv_log_set", "the same: one SET of new keys", set_plan);
  add("kv_log_apply", "the same: a batch of SETs and ERASEs together", mixed_plan, 2);
  add("kv_log_cleaning", "the same: a SET, behind which a segment is cleaned", cleaning_plan);
  add("kv_log_snapshot", "the same: SETs, each in a store that is opened and closed",
      snapshot_plan);
  return offers;
}

}  // namespace holdfast::check

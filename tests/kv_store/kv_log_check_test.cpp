// The log under the checker: batches, opening, and cleaning, each with a crash anywhere. There are
// more states than can be explored to the end, since opening reads ten words of each header:
// samples of them. (So they are no programs of `holdfast check`, whose verdict would be no more
// than that.)
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "holdfast/check.hpp"
#include "holdfast/kv_store.hpp"

namespace holdfast::check {
namespace {

using Pairs = std::map<std::uint64_t, std::uint64_t>;

struct LogBatch {
  bool erases = false;
  std::vector<std::uint64_t> keys;
  std::vector<std::uint64_t> values;  // SET
};

// What the program does, and what the store holds after each of its batches.
struct LogPlan {
  KvStore::Options options;
  std::vector<LogBatch> batches;  // those before `first` are part of set_up()
  std::size_t first = 0;
  std::vector<Pairs> after{{}};  // [n]: once n batches are in

  void add(LogBatch batch) {
    Pairs pairs = after.back();
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      if (batch.erases) {
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
    add({false, keys, values});
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
std::shared_ptr<const LogPlan> batches_plan(std::uint32_t operations) {
  auto plan = std::make_shared<LogPlan>();
  plan->options = options_of(2 * operations, operations);
  const std::vector<std::uint64_t> keys = numbers(operations);
  plan->set(keys);
  std::vector<std::uint64_t> gone(keys.begin(), keys.begin() + (operations + 1) / 2);
  gone.back() = 1000;
  plan->add({true, gone, {}});
  plan->set(keys);
  return plan;
}

std::shared_ptr<const LogPlan> one_batch_plan() {
  auto plan = std::make_shared<LogPlan>();
  plan->options = options_of(4, 2);
  plan->set(numbers(1));
  return plan;
}

// All segments but three have a record that is live, and 250 that are dead; then there is room for
// one batch, and cleaning behind it copies one of the live ones.
std::shared_ptr<const LogPlan> cleaning_plan(std::uint32_t operations) {
  constexpr std::uint64_t kOverwritten = 99;
  constexpr std::uint64_t kInSegment = 251;
  auto plan = std::make_shared<LogPlan>();
  plan->options = options_of(100, kInSegment);
  plan->options.log_records = 2048;  // eight segments
  for (std::uint64_t segment = 0; segment < 5; ++segment) {
    std::vector<std::uint64_t> keys(kInSegment, kOverwritten);
    keys[0] = 1000 + segment;
    plan->set(keys);
  }
  // Headers are the place of five records.
  std::uint64_t room = 3 * kInSegment;
  const std::uint64_t least = operations + 2 * kInSegment;
  for (const std::uint64_t count : {20u, 1u}) {
    for (; room >= least + count + 5; room -= count + 5) {
      plan->set(std::vector<std::uint64_t>(count, kOverwritten));
    }
  }
  plan->first = plan->batches.size();
  plan->set(numbers(operations));
  return plan;
}

void apply(KvStore& store, const LogBatch& batch) {
  if (batch.erases) {
    store.erase(batch.keys.data(), batch.keys.size());
  } else {
    store.set(batch.keys.data(), batch.values.data(), batch.keys.size());
  }
}

std::string verify_store(const LogPlan& plan, KvStore& store, const History& history) {
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

Program make(std::shared_ptr<const LogPlan> plan) {
  const auto recovered = std::make_shared<std::unique_ptr<KvStore>>();
  Program program;
  program.name = "kv_log";
  program.region_bytes = KvStore::region_bytes(plan->options);
  program.set_up = [plan](Region& region) {
    KvStore store = KvStore::create(region, plan->options);
    for (std::size_t i = 0; i < plan->first; ++i) apply(store, plan->batches[i]);
  };
  program.run = [plan](Region& region, Session& session) {
    KvStore store = KvStore::open(region);
    for (std::size_t i = plan->first; i < plan->batches.size(); ++i) {
      session.start();
      apply(store, plan->batches[i]);
      session.acknowledge();
    }
  };
  program.recover = [recovered](Region& region) {
    *recovered = std::make_unique<KvStore>(KvStore::open(region));
  };
  program.items = 1;
  program.verify = [plan, recovered](Region&, const History& history, std::uint64_t) {
    return verify_store(*plan, **recovered, history);
  };
  return program;
}

// The counters of segments are relaxed: threads add to them, and none looks before the kernel ends.
Options budget() {
  Options options;
  options.max_states = 1500;
  options.schedules = 0;
  options.recovery_schedules = 0;
  options.races = false;
  return options;
}

void expect_no_failure(const Program& program) {
  const Report report = check(program, budget());
  EXPECT_GT(report.states, 1000u);
  EXPECT_GT(report.nested_states, 100u);
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
}

TEST(KvLogCheck, NoStateOfBatchesFails) { expect_no_failure(make(batches_plan(3))); }
TEST(KvLogCheck, NoStateOfCleaningFails) { expect_no_failure(make(cleaning_plan(2))); }

// Without the fence in front of the commit word, and the like.
TEST(KvLogCheck, ChangesOfTheProgramAreNoticed) {
  Options options = budget();
  options.max_states = 600;
  options.nested = false;
  const std::vector<Mutant> mutants =
      check_mutants({SizedProgram{"a batch", [] { return make(one_batch_plan()); }}}, options, 1);
  int killed = 0;
  for (const Mutant& mutant : mutants) {
    killed += mutant.fate == Mutant::Fate::killed && mutant.killer == Mutant::Killer::state;
  }
  EXPECT_GT(killed, 0);
}

}  // namespace
}  // namespace holdfast::check

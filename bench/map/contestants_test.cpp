// Every contestant does what the contract of its interface says, and survives what it claims to:
// each batch against a map of the host, which shares no code with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <unordered_map>

#include "batches.hpp"
#include "contestant.hpp"
#include "holdfast/launch.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace maps {
namespace {

struct Case {
  std::string contestant;
  std::uint32_t key_bytes;
  bool ordered;
};
void PrintTo(const Case& kind, std::ostream* out) {
  *out << kind.contestant << ' ' << kind.key_bytes << (kind.ordered ? " ordered" : "");
}

enum class Which { all, durable, growing };
std::vector<Case> cases(Which which) {
  std::vector<Case> all;
  for (const Offer& offer : offers()) {
    const std::string name = offer.name;
    if (which == Which::durable && name == "volatile") continue;
    if (which == Which::growing && name != "clevel-gpm" && name.find("holdfast") != 0) continue;
    // Of more than two sizes the others are as the largest.
    for (const std::uint32_t key_bytes :
         std::set{offer.key_bytes.front(), offer.key_bytes.back()}) {
      for (const bool ordered : {false, true}) all.push_back({offer.name, key_bytes, ordered});
    }
  }
  return all;
}

std::unique_ptr<Contestant> make(const std::string& name, const Setting& setting) {
  for (const Offer& offer : offers()) {
    if (name == offer.name) return offer.make(setting);
  }
  throw std::invalid_argument(name);
}

// The number of the operation whose value each key has.
using Oracle = std::unordered_map<std::uint64_t, std::uint64_t>;

struct Answer {
  Outcome outcome;
  ValueWords value;
};

// A contestant and what has been done to it.
class Driven {
 public:
  Driven(const Case& kind, const std::string& path, std::uint64_t keys, std::uint32_t batch,
         std::uint64_t first_keys = 0)
      : setting_{kind.key_bytes, keys, batch, kind.ordered, path, 3, first_keys},
        contestant_(make(kind.contestant, setting_)),
        room_(kind.key_bytes, batch) {}

  std::vector<Answer> run(const std::vector<Request>& requests) {
    const Batch batch = room_.make(requests, done_);
    contestant_->run(batch);
    done_ += requests.size();
    const std::size_t count = requests.size();
    std::vector<Outcome> outcomes(count);
    std::vector<ValueWords> found(count);
    copy_async(stream_, outcomes.data(), batch.outcomes, count * sizeof(Outcome));
    copy_async(stream_, found.data(), batch.found, count * sizeof(ValueWords));
    stream_.synchronize();
    std::vector<Answer> answers(count);
    for (std::size_t i = 0; i < count; ++i) answers[i] = {outcomes[i], found[i]};
    return answers;
  }
  Contestant& contestant() { return *contestant_; }
  BatchRoom& room() { return room_; }
  std::uint64_t done() const { return done_; }
  void skip_to(std::uint64_t operation) { done_ = operation; }
  std::uint32_t most() const { return setting_.batch; }

  // The operation that stored it; fails the test if the value is not whole, or another key's.
  static std::uint64_t stored_by(std::uint64_t key, const ValueWords& value) {
    const ValueWords right = value_of(key, value.word[1]);
    EXPECT_EQ(std::memcmp(&right, &value, sizeof(right)), 0) << "the value of key " << key;
    return value.word[1];
  }

  // What all keys below `keys` have now.
  Oracle contents(std::uint64_t keys) {
    Oracle there;
    for (std::uint64_t first = 0; first < keys; first += most()) {
      std::vector<Request> requests;
      for (std::uint64_t key = first; key < std::min<std::uint64_t>(keys, first + most()); ++key) {
        requests.push_back({key, Op::find});
      }
      const auto answers = run(requests);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_NE(answers[i].outcome, Outcome::failed);
        if (answers[i].outcome == Outcome::present) {
          there[requests[i].key] = stored_by(requests[i].key, answers[i].value);
        }
      }
    }
    return there;
  }

 private:
  Setting setting_;
  std::unique_ptr<Contestant> contestant_;
  BatchRoom room_;
  holdfast::Stream stream_;
  std::uint64_t done_ = 0;
};

constexpr std::uint64_t kKeys = 1500;
constexpr std::uint32_t kBatch = 300;  // no whole number of warps

class Contestants : public ::testing::TestWithParam<Case>,
                    protected holdfast::test::ScratchFolders {
 protected:
  bool durable(Driven& run) { return run.contestant().promise().rung == "process"; }
};

class DurableContestants : public Contestants {};
class GrowingContestants : public Contestants {};

Op random_op(std::mt19937_64& random) { return static_cast<Op>(random() % 5); }

// Carries out requests on keys of their own, in the oracle.
void expect_exact(Oracle& oracle, const std::vector<Request>& requests, std::uint64_t first,
                  const std::vector<Answer>& answers) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& [key, op] = requests[i];
    const auto before = oracle.find(key);
    const bool there = before != oracle.end();
    ASSERT_EQ(answers[i].outcome, there ? Outcome::present : Outcome::absent)
        << "key " << key << ", operation " << static_cast<int>(op);
    if (there && returns_value(op)) {
      ASSERT_EQ(Driven::stored_by(key, answers[i].value), before->second);
    }
    if (op == Op::erase) {
      oracle.erase(key);
    } else if (op != Op::find && there != (op == Op::insert)) {
      oracle[key] = first + i;
    }
  }
}

std::vector<Request> distinct_requests(std::mt19937_64& random, std::uint64_t keys,
                                       std::size_t count, bool mixed) {
  std::set<std::uint64_t> taken;
  std::vector<Request> requests;
  const Op only = random_op(random);
  while (requests.size() < count) {
    const std::uint64_t key = random() % keys;
    if (taken.insert(key).second) requests.push_back({key, mixed ? random_op(random) : only});
  }
  return requests;
}

TEST_P(Contestants, BatchesOfDistinctKeysAreExact) {
  std::mt19937_64 random(holdfast::test::test_seed());
  Driven run(GetParam(), path(), kKeys, kBatch);
  Oracle oracle;
  for (int batch = 0; batch < 50; ++batch) {
    const std::size_t count = 1 + random() % kBatch;
    const auto requests = distinct_requests(random, kKeys, count, batch % 2 != 0);
    const std::uint64_t first = run.done();
    expect_exact(oracle, requests, first, run.run(requests));
    if (HasFatalFailure()) return;
    if (batch % 10 == 9) {
      ASSERT_EQ(run.contents(kKeys), oracle) << "batch " << batch;
      run.contestant().crash_and_reopen();
      if (!durable(run)) oracle.clear();
      ASSERT_EQ(run.contents(kKeys), oracle) << "reopened behind batch " << batch;
    }
  }
}

// Threads of the CPU backend's kernels take turns at random.
class RandomTurns {
 public:
#if defined(HOLDFAST_BACKEND_CPU)
  ~RandomTurns() { holdfast::cpu::set_schedule(before_); }
  void draw(std::mt19937_64& random) const {
    holdfast::cpu::Schedule schedule = before_;
    schedule.seed = random() | 1;
    holdfast::cpu::set_schedule(schedule);
  }

 private:
  holdfast::cpu::Schedule before_ = holdfast::cpu::schedule();
#else
  void draw(std::mt19937_64&) const {}
#endif
};

// What operations of one batch on one key may have left.
struct Done {
  std::set<std::uint64_t> may_store;  // operations
  int inserted = 0, erased = 0;       // that said so
  bool updated = false;
};

TEST_P(Contestants, BatchesThatMeetInKeysLoseNone) {
  constexpr std::uint64_t kFew = 40;
  std::mt19937_64 random(holdfast::test::test_seed());
  const RandomTurns turns;
  // Slots that a batch has emptied it does not take.
  Driven run(GetParam(), path(), kBatch, kBatch);
  Oracle before;
  for (std::uint64_t batch = 0; batch < holdfast::test::some_of(16, 4); ++batch) {
    turns.draw(random);
    std::vector<Request> requests;
    // Every other one with inserts and erases alone.
    for (std::size_t i = 0; i < kBatch; ++i) {
      const Op op =
          batch % 2 == 0 ? (random() % 2 != 0 ? Op::insert : Op::erase) : random_op(random);
      requests.push_back({random() % kFew, op});
    }
    const std::uint64_t first = run.done();
    const auto answers = run.run(requests);
    std::map<std::uint64_t, Done> done;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto& [key, op] = requests[i];
      const Outcome outcome = answers[i].outcome;
      ASSERT_NE(outcome, Outcome::failed);
      Done& mine = done[key];
      if (op == Op::insert ? outcome == Outcome::absent
                           : takes_value(op) && outcome == Outcome::present) {
        mine.may_store.insert(first + i);
      }
      mine.updated |= op != Op::insert && takes_value(op) && outcome == Outcome::present;
      mine.inserted += op == Op::insert && outcome == Outcome::absent;
      mine.erased += op == Op::erase && outcome == Outcome::present;
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto& [key, op] = requests[i];
      if (!returns_value(op) || answers[i].outcome != Outcome::present) continue;
      const std::uint64_t by = Driven::stored_by(key, answers[i].value);
      const bool old = before.contains(key) && before[key] == by;
      ASSERT_TRUE(old || (by >= first && requests[by - first].key == key));
    }
    const Oracle after = run.contents(kFew);
    for (const auto& [key, mine] : done) {
      const bool there = after.contains(key);
      const int change = static_cast<int>(there) - static_cast<int>(before.contains(key));
      // Clevel hashing may find that two inserts of one key have both put it in, and take one out.
      if (GetParam().contestant == "clevel-gpm") {
        ASSERT_GE(mine.inserted - mine.erased, change) << "key " << key;
      } else {
        ASSERT_EQ(mine.inserted - mine.erased, change) << "key " << key;
      }
      if (!there) continue;
      const bool as_before = before.contains(key) && before.at(key) == after.at(key);
      ASSERT_TRUE(mine.may_store.contains(after.at(key)) || as_before) << "key " << key;
      if (mine.erased == 0 && mine.inserted == 0 && mine.updated) {
        ASSERT_FALSE(as_before) << "an update of key " << key << " is lost";
      }
    }
    before = after;
  }
  // A key that is there twice would be there once more than it is erased.
  std::vector<Request> erases;
  for (std::uint64_t key = 0; key < kFew; ++key) erases.push_back({key, Op::erase});
  run.run(erases);
  EXPECT_TRUE(run.contents(kFew).empty());
}

// Levels: a new one each time that a key finds no place, and everything is still there.
TEST_P(GrowingContestants, GrowByALevel) {
  constexpr std::uint64_t kMany = 4000;
  Driven run(GetParam(), path(), kMany, kBatch, 50);
  const std::uint64_t first_places = run.contestant().places();
  EXPECT_LT(first_places, 200u);
  Oracle oracle;
  double most = 0;
  for (std::uint64_t first = 0; first < kMany; first += kBatch) {
    std::vector<Request> requests;
    for (std::uint64_t key = first; key < std::min<std::uint64_t>(kMany, first + kBatch); ++key) {
      requests.push_back({key, Op::insert});
    }
    const std::uint64_t operation = run.done();
    expect_exact(oracle, requests, operation, run.run(requests));
    if (HasFatalFailure()) return;
    most = std::max(
        most, static_cast<double>(oracle.size()) / static_cast<double>(run.contestant().places()));
    if (first % 1200 == 0) run.contestant().crash_and_reopen();
  }
  EXPECT_GT(run.contestant().places(), kMany);
  EXPECT_GT(most, 0.5);
  EXPECT_LE(most, 1);
  ASSERT_EQ(run.contents(kMany), oracle);
}

// As many as it was made for, over and over: what is erased and overwritten is used again.
TEST_P(Contestants, RoomComesBack) {
  Driven run(GetParam(), path(), kBatch, kBatch);
  std::vector<Request> all(kBatch);
  for (int round = 0; round < 12; ++round) {
    for (const Op op : {Op::insert, Op::update, Op::read_modify_write, Op::erase}) {
      for (std::uint64_t i = 0; i < all.size(); ++i) {
        all[i] = {(round % 3) * 10'000 + i, op};
      }
      for (const Answer& answer : run.run(all)) {
        ASSERT_EQ(answer.outcome, op == Op::insert ? Outcome::absent : Outcome::present)
            << "round " << round << ", operation " << static_cast<int>(op);
      }
      EXPECT_GE(run.contestant().places(), all.size());
    }
  }
}

TEST_P(Contestants, ABatchThatIsTooLargeIsRefused) {
  Driven run(GetParam(), path(), 100, 10);
  Batch batch;
  batch.count = 11;
  EXPECT_THROW(run.contestant().run(batch), std::invalid_argument);
  batch.count = 0;
  EXPECT_THROW(run.contestant().run(batch), std::invalid_argument);
}

// Batch number `batch` of those that a child carries out until it is killed.
std::vector<Request> requests_of_child(std::uint64_t seed, std::uint64_t batch) {
  std::mt19937_64 random(seed + batch);
  return distinct_requests(random, kKeys, kBatch, true);
}

TEST(MapChild, DISABLED_RunsUntilKilled) {
  using holdfast::test::from_environment;
  const Case kind{from_environment("HOLDFAST_TEST_CONTESTANT"),
                  static_cast<std::uint32_t>(std::stoul(from_environment("HOLDFAST_TEST_KEY"))),
                  from_environment("HOLDFAST_TEST_ORDERED") == "1"};
  const std::uint64_t seed = std::stoull(from_environment("HOLDFAST_TEST_CHILD_SEED"));
  std::uint64_t batch = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));
  Driven run(kind, from_environment("HOLDFAST_TEST_PATH"), kKeys, kBatch);
  for (holdfast::test::report(batch);;) {
    run.skip_to(batch * kBatch);
    run.run(requests_of_child(seed, batch));
    holdfast::test::report(++batch);
  }
}

void apply_to(Oracle& oracle, const std::vector<Request>& requests, std::uint64_t first) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& [key, op] = requests[i];
    if (op == Op::erase) {
      oracle.erase(key);
    } else if (takes_value(op) && oracle.contains(key) != (op == Op::insert)) {
      oracle[key] = first + i;
    }
  }
}

// Killed between batches and in them, over and over: what was acknowledged is there, and of the
// batch that was not, all or nothing, or for each key the one or the other, as the promise has it.
TEST_P(DurableContestants, AKilledProcessLosesNothingThatItPromised) {
  const Case& kind = GetParam();
  const std::uint64_t seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  std::string atomic;
  {
    Driven made(kind, path(), kKeys, kBatch);
    ASSERT_TRUE(durable(made));
    atomic = made.contestant().promise().atomic;
  }
  ASSERT_TRUE(atomic == "batches" || atomic == "operations");
  Oracle oracle;
  std::uint64_t done = 0, cut = 0;  // batches
  for (std::uint64_t round = 0; round < holdfast::test::some_of(8, 2); ++round) {
    {
      holdfast::test::Child child("MapChild.DISABLED_RunsUntilKilled",
                                  {{"HOLDFAST_TEST_CONTESTANT", kind.contestant},
                                   {"HOLDFAST_TEST_KEY", std::to_string(kind.key_bytes)},
                                   {"HOLDFAST_TEST_ORDERED", kind.ordered ? "1" : "0"},
                                   {"HOLDFAST_TEST_PATH", path()},
                                   {"HOLDFAST_TEST_CHILD_SEED", std::to_string(seed)},
                                   {"HOLDFAST_TEST_BATCH", std::to_string(done)}});
      std::uint64_t acknowledged = 0;
      ASSERT_TRUE(child.read(acknowledged));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
      child.kill();
      while (child.read(acknowledged)) continue;
      for (; done < acknowledged; ++done) {
        apply_to(oracle, requests_of_child(seed, done), done * kBatch);
      }
    }
    Oracle next = oracle;
    apply_to(next, requests_of_child(seed, done), done * kBatch);
    Driven opened(kind, path(), kKeys, kBatch);
    opened.skip_to((done + 1) * kBatch);
    Oracle found = opened.contents(kKeys);
    if (atomic == "operations") {
      for (std::uint64_t key = 0; key < kKeys; ++key) {
        const auto value = [key](const Oracle& of) {
          const auto at = of.find(key);
          return at == of.end() ? ~std::uint64_t{0} : at->second;
        };
        ASSERT_TRUE(value(found) == value(oracle) || value(found) == value(next))
            << "key " << key << " behind batch " << done;
      }
    } else {
      ASSERT_TRUE(found == oracle || found == next) << "behind batch " << done;
    }
    cut += found != oracle;
    // It goes on from what is there, with the next batch.
    oracle = std::move(found);
    ++done;
  }
  std::printf("%llu batches, of %llu cut off something is there\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(cut));
}

class MapMany : public holdfast::test::Scratch {};

// So many that its index has runs of entries, which close up when one goes.
TEST_F(MapMany, TheCpusIndexStaysWhole) {
  constexpr std::uint64_t kMany = 60'000;
  std::mt19937_64 random(holdfast::test::test_seed());
  for (const bool ordered : {false, true}) {
    Driven run({"cpu-assisted", 8, ordered}, path(ordered ? "ordered" : "given"), kMany, 20'000);
    Oracle oracle;
    for (int batch = 0; batch < 12; ++batch) {
      std::vector<Request> requests = distinct_requests(random, kMany, run.most(), true);
      for (Request& request : requests) {  // most are there
        if (request.op == Op::find) request.op = Op::insert;
      }
      const std::uint64_t first = run.done();
      expect_exact(oracle, requests, first, run.run(requests));
      if (HasFatalFailure()) return;
    }
    run.contestant().crash_and_reopen();
    ASSERT_EQ(run.contents(kMany), oracle);
  }
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.contestant + "_" + std::to_string(info.param.key_bytes) +
                     (info.param.ordered ? "_ordered" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Map, Contestants, ::testing::ValuesIn(cases(Which::all)), name_of);
INSTANTIATE_TEST_SUITE_P(Map, DurableContestants, ::testing::ValuesIn(cases(Which::durable)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Map, GrowingContestants, ::testing::ValuesIn(cases(Which::growing)),
                         name_of);

TEST(MapSettings, WhatCannotBeIsRefused) {
  const auto refused = [](std::uint32_t key_bytes, std::uint64_t keys, std::uint32_t batch) {
    Setting setting;
    setting.key_bytes = key_bytes;
    setting.keys = keys;
    setting.batch = batch;
    for (const Offer& offer : offers()) {
      EXPECT_THROW(offer.make(setting), std::invalid_argument) << offer.name;
    }
  };
  refused(24, 100, 10);
  refused(8, 0, 10);
  refused(8, 100, 0);
  refused(8, std::uint64_t{1} << 32, 10);
}

TEST(MapBatches, TheCheckFindsWhatIsWrong) {
  BatchRoom room(8, 4);
  const Batch batch =
      room.make({{1, Op::find}, {2, Op::find}, {3, Op::insert}, {4, Op::read_modify_write}}, 10);
  holdfast::Stream stream;
  const auto answer = [&](std::uint32_t i, Outcome outcome, ValueWords value) {
    copy_async(stream, batch.outcomes + i, &outcome, sizeof(outcome));
    copy_async(stream, batch.found + i * kValueBytes, &value, sizeof(value));
    stream.synchronize();
  };
  answer(0, Outcome::present, value_of(1, 3));
  answer(1, Outcome::absent, value_of(0, 0));
  answer(2, Outcome::failed, value_of(0, 0));
  answer(3, Outcome::present, value_of(4, 13));
  Answers answers = room.check();
  EXPECT_EQ(answers.present, 2u);
  EXPECT_EQ(answers.absent, 1u);
  EXPECT_EQ(answers.failed, 1u);
  EXPECT_EQ(answers.wrong, 0u);
  answer(0, Outcome::present, value_of(2, 3));  // another key's
  EXPECT_EQ(room.check().wrong, 1u);
  answer(3, Outcome::present, value_of(4, 14));  // of no operation yet
  EXPECT_EQ(room.check().wrong, 2u);
  ValueWords torn = value_of(1, 3);
  torn.word[15] = value_of(1, 4).word[15];
  answer(0, Outcome::present, torn);
  answer(3, Outcome::present, value_of(4, 10));
  EXPECT_EQ(room.check().wrong, 1u);
}

}  // namespace
}  // namespace maps

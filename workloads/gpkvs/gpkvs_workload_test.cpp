// gpKVS as workloads: in every mode, resumed, killed, and given bad options.
#include "gpkvs/gpkvs_workload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "gpkvs/engine.hpp"
#include "gpkvs/gpkvs_oracle.hpp"
#include "gpkvs/operations.hpp"
#include "holdfast/stream.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "workload_checks.hpp"

namespace {

using gpkvs::Operations;
using gpkvs::OperationsShape;
using holdfast::Errc;
using holdfast::test::error_of;
using workload::Info;
using workload::Mode;
using workload::Settings;

Settings settings_of(Mode mode) {
  Settings settings;
  settings.mode = mode;
  return settings;
}

class KvsWorkloads : public ::testing::TestWithParam<std::string> {
 protected:
  Info info() const { return GetParam() == "set" ? gpkvs::set_info() : gpkvs::mixed_info(); }
};

TEST_P(KvsWorkloads, EndAlikeInEveryMode) {
  const auto expected = workload_checks::run_whole(info(), settings_of(Mode::gpm));
  for (const Mode mode : workload::all_modes()) {
    const auto run = workload_checks::run_whole(info(), settings_of(mode));
    EXPECT_EQ(run.wrong, "") << to_string(mode);
    EXPECT_EQ(run.digest, expected.digest) << to_string(mode);
  }
}

TEST_P(KvsWorkloads, GoOnStepByStep) {
  const auto expected = workload_checks::run_whole(info(), settings_of(Mode::gpm));
  for (const Mode mode : workload::all_modes()) {
    const auto run = workload_checks::run_step_by_step(info(), settings_of(mode));
    EXPECT_EQ(run.wrong, "") << to_string(mode);
    EXPECT_EQ(run.digest, expected.digest) << to_string(mode);
  }
}

TEST_P(KvsWorkloads, SurviveKills) {
  if (std::string_view(holdfast::backend::name()) != "cpu") {
    GTEST_SKIP() << "a process with a GPU does not fork";
  }
  for (const Mode mode : {Mode::gpm, Mode::cpu, Mode::cap_mm, Mode::ndp, Mode::cap_fs,
                          Mode::cap_delta, Mode::cap_delta_raw, Mode::cap_log}) {
    SCOPED_TRACE(to_string(mode));
    workload_checks::expect_kills_survived(info(), settings_of(mode), 10, 11);
  }
}

// As many keys as there are ways, and every one of them set: no way is left empty, and none is
// taken from a key.
TEST_P(KvsWorkloads, TakeFullBuckets) {
  OperationsShape shape;
  shape.buckets = 16;
  shape.keys = shape.buckets * gpkvs::kWays;
  shape.steps = 4;
  shape.sets = GetParam() == "set" ? 600 : 30;
  shape.gets = 600 - shape.sets;
  shape.zipf = shape.load = GetParam() == "mixed";
  const Operations operations(shape);
  std::set<std::uint64_t> there(operations.sets.data(),
                                operations.sets.data() + operations.sets.size());
  if (shape.load) there.insert(operations.keys.begin(), operations.keys.end());
  ASSERT_EQ(there.size(), shape.keys) << "the operations leave ways empty: give more of them";

  Settings settings = settings_of(Mode::gpm);
  settings.options = {{"capacity", "128"}, {"keys", "128"}, {"operations", "600"}};
  EXPECT_NE(info().make(settings)->input().find("on 128 keys"), std::string::npos);
  const auto expected = workload_checks::run_whole(info(), settings);
  EXPECT_EQ(expected.wrong, "");
  for (const Mode mode : workload::all_modes()) {
    settings.mode = mode;
    const auto run = workload_checks::run_whole(info(), settings);
    EXPECT_EQ(run.wrong, "") << to_string(mode);
    EXPECT_EQ(run.digest, expected.digest) << to_string(mode);
  }
}

TEST_P(KvsWorkloads, RefuseBadOptions) {
  const auto refusal = [&](const std::string& name, const std::string& value,
                           const std::string& remedy) {
    Settings settings;
    settings.options[name] = value;
    return error_of([&] { info().make(settings); }, {name, remedy});
  };
  EXPECT_EQ(refusal("keys", "0", "give a whole number"), Errc::invalid_argument);
  EXPECT_EQ(refusal("keys", "few", "give a whole number"), Errc::invalid_argument);
  EXPECT_EQ(refusal("keys", "8193", "give a larger capacity"), Errc::invalid_argument);
  EXPECT_EQ(refusal("capacity", "7", "from 8 to"), Errc::invalid_argument);
  EXPECT_EQ(refusal("operations", "0", "give a whole number"), Errc::invalid_argument);
  EXPECT_EQ(refusal("cache", "maybe", "give automatic or on or off"), Errc::invalid_argument);
  EXPECT_EQ(refusal("changes", "random", "give gathered or sorted"), Errc::invalid_argument);
  EXPECT_EQ(refusal("input", "disk", "give host or device"), Errc::invalid_argument);
  EXPECT_EQ(refusal("log_batches", "0", "give a whole number"), Errc::invalid_argument);
  EXPECT_EQ(refusal("log", "none", "give coalesced or conventional"), Errc::invalid_argument);
  EXPECT_EQ(refusal("layout", "heap", "give in_place or log"), Errc::invalid_argument);
  EXPECT_EQ(refusal("log_records", "-1", "give a whole number"), Errc::invalid_argument);
  Settings settings;
  settings.options = {{"layout", "log"}, {"log", "conventional"}};
  EXPECT_EQ(error_of([&] { info().make(settings); }, {"log=conventional", "leave one"}),
            Errc::invalid_argument);
  settings.options = {{"layout", "log"}, {"log_records", "300"}};
  EXPECT_EQ(error_of([&] { info().make(settings)->medium_bytes(); }, {"give more log_records"}),
            Errc::invalid_argument);
  settings.options.clear();
  settings.steps = std::uint64_t{1} << 40;
  EXPECT_EQ(error_of([&] { info().make(settings); }, {"give fewer"}), Errc::invalid_argument);
}

// These options change how it is done, and not what comes of it.
TEST_P(KvsWorkloads, EndAlikeWithACopyAndEitherLog) {
  Settings usual = settings_of(Mode::gpm);
  usual.options = {{"operations", "1500"}};
  usual.steps = 3;
  const auto expected = workload_checks::run_whole(info(), usual);
  ASSERT_EQ(expected.wrong, "");
  const auto tried = holdfast::test::every(1, 5);
  std::uint64_t number = 0;
  for (const char* const log : {"coalesced", "conventional"}) {
    for (const char* const cache : {"on", "off", "automatic"}) {
      SCOPED_TRACE(std::string(log) + ", cache " + cache);
      for (const Mode mode : {Mode::gpm, Mode::eadr, Mode::ndp}) {
        if (number++ % tried.step != tried.first) continue;
        Settings settings = usual;
        settings.mode = mode;
        settings.options["cache"] = cache;
        settings.options["log"] = log;
        const auto whole = workload_checks::run_whole(info(), settings);
        EXPECT_EQ(whole.wrong, "") << to_string(mode);
        EXPECT_EQ(whole.digest, expected.digest) << to_string(mode);
        const auto resumed = workload_checks::run_step_by_step(info(), settings);
        EXPECT_EQ(resumed.wrong, "") << to_string(mode);
        EXPECT_EQ(resumed.digest, expected.digest) << to_string(mode);
      }
    }
  }
}

TEST_P(KvsWorkloads, EndAlikeWithSortedChanges) {
  const auto expected = workload_checks::run_whole(info(), settings_of(Mode::gpm));
  for (const Mode mode : {Mode::cap_delta, Mode::cap_delta_raw}) {
    Settings settings = settings_of(mode);
    settings.options["changes"] = "sorted";
    const auto run = workload_checks::run_step_by_step(info(), settings);
    EXPECT_EQ(run.wrong, "") << to_string(mode);
    EXPECT_EQ(run.digest, expected.digest) << to_string(mode);
  }
}

// With a table that is written before every batch, before some, and never.
TEST_P(KvsWorkloads, AreDoneAgainFromTheirInput) {
  const auto expected = workload_checks::run_whole(info(), settings_of(Mode::gpm));
  for (const char* const batches : {"1", "2", "3", "100"}) {
    SCOPED_TRACE(batches);
    Settings settings = settings_of(Mode::cap_log);
    settings.options["log_batches"] = batches;
    const auto whole = workload_checks::run_whole(info(), settings);
    EXPECT_EQ(whole.wrong, "");
    EXPECT_EQ(whole.digest, expected.digest);
    const auto resumed = workload_checks::run_step_by_step(info(), settings);
    EXPECT_EQ(resumed.wrong, "");
    EXPECT_EQ(resumed.digest, expected.digest);
  }
}

TEST_P(KvsWorkloads, SurviveKillsWhileTheTableIsWritten) {
  if (std::string_view(holdfast::backend::name()) != "cpu") {
    GTEST_SKIP() << "a process with a GPU does not fork";
  }
  Settings settings = settings_of(Mode::cap_log);
  settings.steps = 12;
  for (const char* const batches : {"1", "3"}) {
    SCOPED_TRACE(batches);
    settings.options = {{"log_batches", batches}, {"capacity", "65536"}, {"keys", "16000"}};
    workload_checks::expect_kills_survived(info(), settings, 15, holdfast::test::test_seed());
  }
}

TEST_P(KvsWorkloads, EndAlikeWithInputInDeviceMemory) {
  const auto expected = workload_checks::run_whole(info(), settings_of(Mode::gpm));
  for (const Mode mode : workload::all_modes()) {
    Settings settings = settings_of(mode);
    settings.options["input"] = "device";
    if (mode == Mode::cpu) {
      EXPECT_EQ(error_of([&] { info().make(settings); }, {"input=device", "leave it out"}),
                Errc::invalid_argument);
      continue;
    }
    const auto run = workload_checks::run_step_by_step(info(), settings);
    EXPECT_EQ(run.wrong, "") << to_string(mode);
    EXPECT_EQ(run.digest, expected.digest) << to_string(mode);
  }
}

TEST_P(KvsWorkloads, SurviveKillsWithACopyAndAConventionalLog) {
  if (std::string_view(holdfast::backend::name()) != "cpu") {
    GTEST_SKIP() << "a process with a GPU does not fork";
  }
  for (const Mode mode : {Mode::gpm, Mode::ndp}) {
    SCOPED_TRACE(to_string(mode));
    Settings settings = settings_of(mode);
    settings.options = {{"cache", "on"}, {"log", "conventional"}};
    workload_checks::expect_kills_survived(info(), settings, 10, 12);
  }
}

// A log that is cleaned in nearly every step.
Settings log_settings(Mode mode) {
  Settings settings = settings_of(mode);
  settings.options = {{"layout", "log"}, {"log_records", "3072"}};
  settings.steps = 12;
  return settings;
}

TEST_P(KvsWorkloads, EndAlikeAsALog) {
  Settings usual = settings_of(Mode::gpm);
  usual.steps = 12;
  const auto expected = workload_checks::run_whole(info(), usual);
  ASSERT_EQ(expected.wrong, "");
  for (const Mode mode : {Mode::gpm, Mode::eadr}) {
    SCOPED_TRACE(to_string(mode));
    const auto whole = workload_checks::run_whole(info(), log_settings(mode));
    EXPECT_EQ(whole.wrong, "");
    EXPECT_EQ(whole.digest, expected.digest);
    const auto resumed = workload_checks::run_step_by_step(info(), log_settings(mode));
    EXPECT_EQ(resumed.wrong, "");
    EXPECT_EQ(resumed.digest, expected.digest);
  }
}

TEST_P(KvsWorkloads, SurviveKillsAsALog) {
  if (std::string_view(holdfast::backend::name()) != "cpu") {
    GTEST_SKIP() << "a process with a GPU does not fork";
  }
  workload_checks::expect_kills_survived(info(), log_settings(Mode::gpm), 15,
                                         holdfast::test::test_seed());
}

class KvsRegions : public holdfast::test::Scratch {};

TEST_F(KvsRegions, GoOnWithTheirOwnLogAndLayoutAlone) {
  const Info info = gpkvs::set_info();
  const auto run = [&](const char* name, const char* value) {
    Settings settings = settings_of(Mode::gpm);
    settings.options[name] = value;
    const auto work = info.make(settings);
    workload::BackingOptions options;
    options.path = path(name);
    options.capacity = work->medium_bytes();
    workload::Backing backing(options);
    work->prepare(backing);
    work->step(work->resume());
  };
  run("log", "conventional");
  EXPECT_EQ(error_of([&] { run("log", "coalesced"); }, {"give option log=conventional"}),
            Errc::invalid_argument);
  run("log", "conventional");
  run("layout", "log");
  EXPECT_EQ(error_of([&] { run("layout", "in_place"); }, {"give option layout=log"}),
            Errc::invalid_argument);
  run("layout", "log");
}

// A log of the input that cannot be of these steps: nothing is done from it.
TEST_F(KvsRegions, RefuseADamagedInputLog) {
  const Info info = gpkvs::set_info();
  const Settings settings = settings_of(Mode::cap_log);
  workload::BackingOptions options;
  options.mode = Mode::cap_log;
  options.path = path();
  const auto word_of_log = [](workload::Backing& backing, std::size_t word) -> std::uint64_t& {
    holdfast::Region& region = backing.region();
    return static_cast<std::uint64_t*>(region.address(region.object("input log")))[word];
  };
  const auto open = [&](auto&& body) {
    const auto work = info.make(settings);
    options.capacity = work->medium_bytes();
    workload::Backing backing(options);
    work->prepare(backing);
    body(*work, backing);
  };
  open([](auto& work, auto&) {
    work.step(work.resume());
    work.step(1);
  });
  // The step that it begins with; the number of the first batch's SETs; a key.
  const std::pair<std::size_t, std::uint64_t> damages[] = {
      {0, 3}, {0, ~std::uint64_t{0}}, {8, 401}, {16, holdfast::KvStore::kReservedKey}};
  for (const auto& [word, value] : damages) {
    SCOPED_TRACE(word);
    open([&, word = word, value = value](auto& work, auto& backing) {
      const std::uint64_t before = word_of_log(backing, word);
      word_of_log(backing, word) = value;
      EXPECT_EQ(error_of([&] { work.resume(); }, {"input log", "remove the region"}),
                Errc::damaged);
      word_of_log(backing, word) = before;
    });
  }
  open([](auto& work, auto&) {
    EXPECT_EQ(work.resume(), 2u);
    work.step(2);
    work.step(3);
    EXPECT_EQ(work.verify(), "");
  });
}

INSTANTIATE_TEST_SUITE_P(Gpkvs, KvsWorkloads, ::testing::Values("set", "mixed"),
                         [](const auto& test) { return test.param; });

OperationsShape shape_of(std::uint64_t keys) {
  OperationsShape shape;
  shape.buckets = 128;
  shape.keys = keys;
  shape.steps = 2;
  shape.gets = 50'000;
  shape.sets = 1000;
  shape.zipf = true;
  return shape;
}

TEST(KvsOperations, AreTheSameForTheSameSeed) {
  const Operations one(shape_of(200));
  const Operations same(shape_of(200));
  OperationsShape shape = shape_of(200);
  shape.seed = 2;
  const Operations other(shape);
  EXPECT_EQ(one.keys, same.keys);
  EXPECT_NE(one.keys, other.keys);
  EXPECT_TRUE(std::equal(one.gets.data(), one.gets.data() + one.gets.size(), same.gets.data()));
  EXPECT_EQ(std::set<std::uint64_t>(one.keys.begin(), one.keys.end()).size(), 200u);
}

// The probabilities of Zipf's law, within a few standard deviations.
TEST(KvsOperations, FollowZipf) {
  const Operations operations(shape_of(200));
  std::map<std::uint64_t, double> counts;
  for (std::uint64_t i = 0; i < operations.gets.size(); ++i) counts[operations.gets[i]] += 1;
  double sum = 0;
  for (int k = 1; k <= 200; ++k) sum += std::pow(k, -0.99);
  for (const int k : {1, 2, 3, 10, 100, 200}) {
    const double expected = static_cast<double>(operations.gets.size()) * std::pow(k, -0.99) / sum;
    EXPECT_NEAR(counts[operations.keys[k - 1]], expected, 5 * std::sqrt(expected)) << "rank " << k;
  }
}

TEST(KvsOracle, SeesWhatIsWrong) {
  const Operations operations(shape_of(64));
  std::map<std::uint64_t, std::uint64_t> last;
  for (std::uint64_t i = 0; i < operations.sets.size(); ++i) {
    last[operations.sets[i]] = operations.values[i];
  }
  gpkvs::Pairs pairs;
  for (const auto& [key, value] : last) {
    pairs.keys.push_back(key);
    pairs.values.push_back(value);
  }
  EXPECT_EQ(gpkvs::oracle::compare(operations, pairs, {}), "");
  gpkvs::Pairs wrong = pairs;
  wrong.values[3] += 1;
  EXPECT_NE(gpkvs::oracle::compare(operations, wrong, {}).find("has value"), std::string::npos);
  wrong = pairs;
  wrong.keys[3] = wrong.keys[4];
  wrong.values[3] = wrong.values[4];
  EXPECT_NE(gpkvs::oracle::compare(operations, wrong, {}).find("twice"), std::string::npos);
  wrong = pairs;
  wrong.keys.pop_back();
  wrong.values.pop_back();
  EXPECT_NE(gpkvs::oracle::compare(operations, wrong, {}).find("should have"), std::string::npos);
  EXPECT_NE(gpkvs::oracle::compare(operations, pairs, {{1, 77}}).find("GETs of step 1"),
            std::string::npos);
}

}  // namespace

// Which form of an index a store gets, and keys that fingerprints do not tell apart.
#include "kv_store/kv_log_medium.hpp"
#include "kv_store/kv_log_test.hpp"
#include "kv_store/log/rules.hpp"
#include "support/sanitized.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

using kv::log::choose_index;

TEST(KvLogIndexRule, ItIsWholeWhereThatLeavesAnEighth) {
  constexpr std::uint64_t kGiB = 1 << 30;
  const auto choose = [](Form asked, std::uint64_t free) {
    return choose_index(asked, {12345, 20000, 7 * kGiB, 3 * kGiB}, free);
  };
  EXPECT_EQ(choose(Form::automatic, 8 * kGiB), Form::whole);
  EXPECT_EQ(choose(Form::automatic, 8 * kGiB - 8), Form::fingerprints);
  EXPECT_EQ(choose(Form::automatic, 3 * kGiB), Form::fingerprints);
  EXPECT_EQ(choose(Form::whole, 7 * kGiB), Form::whole);
  EXPECT_EQ(choose(Form::fingerprints, 80 * kGiB), Form::fingerprints);
  const std::vector<std::string> neither{"12345 pairs", "20000 records", "3221225472", "3221225471",
                                         "in_place"};
  for (const Form asked : {Form::automatic, Form::fingerprints}) {
    EXPECT_EQ(error_of([&] { choose(asked, 3 * kGiB - 1); }, neither), Errc::no_memory);
  }
  EXPECT_EQ(
      error_of([&] { choose(Form::whole, 7 * kGiB - 1); },
               {"7516192768", "7516192767", "fingerprints, which takes 3221225472", "in_place"}),
      Errc::no_memory);
}

class KvLogIndex : public Scratch {
 protected:
  void TearDown() override { have(~std::uint64_t{0}); }
  static void have(std::uint64_t bytes) { kv::log::g_most_device_memory = bytes; }
};

// Of 2^17 pairs: 41 MB whole, 38 MB as fingerprints, of which 34 MB are for loading. Of 2^14, a
// share of them: 34.7 and 34.4 MB.
TEST_F(KvLogIndex, AStoreGetsWhatADeviceHasRoomFor) {
  const bool all = share() == 1;
  const std::uint64_t pairs = all ? 1 << 17 : 1 << 14;
  const std::uint64_t for_none = all ? 36'000'000 : 34'000'000;
  const std::uint64_t for_fingerprints = all ? 40'000'000 : 34'500'000;
  const std::uint64_t for_either = all ? 44'000'000 : 38'000'000;
  const std::uint64_t for_all = 60'000'000;
  const KvStore::Options shape = log_options(pairs, 4096);
  have(for_none);
  {
    Region region = Region::create(path("small"), options(1 << 20));
    EXPECT_EQ(error_of([&] { KvStore::create(region, shape); },
                       {std::to_string(pairs) + " pairs", "in_place"}),
              Errc::no_memory);
    EXPECT_TRUE(region.objects().empty());
  }
  have(for_fingerprints);
  LogOpened opened = LogOpened::create(path(), shape);
  EXPECT_EQ(opened.store->stats().index, Form::fingerprints);
  EXPECT_FALSE(opened.store->stats().cached);
  LogProgram program(test_seed(), pairs / 2, 4096);
  for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(program.step(opened));
  const auto reopened_as = [&](Form asked) {
    opened.form = asked;
    opened.reopen(path());
    opened.form = Form::automatic;
    EXPECT_EQ(opened.contents(), program.oracle);
    EXPECT_NO_FATAL_FAILURE(program.step(opened));
    return opened.store->stats().index;
  };
  EXPECT_EQ(reopened_as(Form::automatic), Form::fingerprints);
  opened.form = Form::whole;
  EXPECT_EQ(error_of([&] { opened.reopen(path()); }, {"fingerprints", "in_place"}),
            Errc::no_memory);
  opened.form = Form::automatic;
  have(for_either);
  EXPECT_EQ(reopened_as(Form::automatic), Form::fingerprints);
  EXPECT_EQ(reopened_as(Form::whole), Form::whole);
  have(for_all);
  EXPECT_EQ(reopened_as(Form::automatic), Form::whole);
  EXPECT_TRUE(opened.store->stats().cached);
  EXPECT_EQ(reopened_as(Form::fingerprints), Form::fingerprints);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  // Refused with its region open, it is found as it was.
  have(for_none);
  EXPECT_EQ(error_of([&] { opened.reopen(path()); }, {"in_place"}), Errc::no_memory);
  have(for_all);
  opened = LogOpened::open(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
}

TEST_F(KvLogIndex, NoOtherFormIsTaken) {
  KvStore::Options wrong = log_options(1024, 100);
  wrong.index = static_cast<Form>(7);
  const std::vector<std::string> words{"index 7", "automatic", "whole", "fingerprints"};
  EXPECT_EQ(error_of([&] { LogOpened::create(path("other"), wrong); }, words),
            Errc::invalid_argument);
  LogOpened opened = LogOpened::create(path(), log_options(1024, 100));
  opened.form = wrong.index;
  EXPECT_EQ(error_of([&] { opened.reopen(path()); }, words), Errc::invalid_argument);
}

// ---- Keys of one fingerprint --------------------------------------------------------------------

// The finalizer of MurmurHash3, backwards.
std::uint64_t key_of_hash(std::uint64_t hash) {
  const auto inverse = [](std::uint64_t odd) {
    std::uint64_t x = odd;
    for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
    return x;
  };
  hash ^= hash >> 33;
  hash *= inverse(0xc4ceb9fe1a85ec53ull);
  hash ^= hash >> 33;
  hash *= inverse(0xff51afd7ed558ccdull);
  return hash ^ hash >> 33;
}

// Keys whose hashes have the same highest 24 and lowest eight bits; what differs are bits that two
// homes of a small index are made of, and others.
std::uint64_t colliding_key(std::uint64_t number) {
  return key_of_hash(0xabcdefull << 40 | number / 2 << 20 | number % 2 << 9 | 0x5a);
}

TEST_F(KvLogIndex, TheKeysOfTheseTestsHaveOneFingerprint) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < 600; ++i) {
    const std::uint64_t key = colliding_key(i);
    keys.insert(key);
    const std::uint64_t hash = LogMedium::mixed(key);
    EXPECT_EQ(hash >> 40, 0xabcdefu);
    EXPECT_EQ(hash & 0xff, 0x5au);
  }
  EXPECT_EQ(keys.size(), 600u);
}

// Hundreds from two homes: searches pass by more slots than a fingerprint tells how far they came.
TEST_F(KvLogIndex, KeysOfOneFingerprintAreToldApart) {
  LogOpened opened = LogOpened::create(path(), log_options(1024, 1200, 0, Form::fingerprints));
  LogProgram program(test_seed(), 600, 1200, colliding_key);
  Keys all;
  for (std::uint64_t i = 0; i < 620; ++i) all.push_back(colliding_key(i));
  for (std::uint64_t round = 0; round < some_of(40, 10); ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(program.step(opened, 40));
    ASSERT_NO_FATAL_FAILURE(opened.expect_found(all, program.oracle));
    if (round % 5 != 4) continue;
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
    opened.reopen(path());
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  }
}

// Opening reads a log in parts of 2^20 records. A record may meet keys whose own are in an earlier
// part, of which it has but what it noted. No fewer would do: where a share is tried, one run in so
// many has them.
TEST_F(KvLogIndex, KeysOfOneFingerprintAreToldApartWhereOpeningReadsALogInParts) {
  const std::uint64_t seed = test_seed();
  if (kSanitized || seed % share() != 0) GTEST_SKIP() << "a million records";
  constexpr std::uint64_t kBatch = 1 << 16;
  LogOpened opened =
      LogOpened::create(path(), log_options(256, kBatch, 20 * kBatch, Form::fingerprints));
  std::mt19937_64 random(seed);
  Map oracle;
  for (std::uint64_t batch = 0; batch < 18; ++batch) {
    Keys keys(kBatch), values(kBatch);
    for (std::uint64_t i = 0; i < kBatch; ++i) {
      const std::uint64_t first = batch == 0 ? 0 : 20;
      keys[i] = colliding_key(first + random() % (60 - first));
      values[i] = batch << 32 | i;
      oracle[keys[i]] = values[i];
    }
    opened.set(keys, values);
  }
  EXPECT_EQ(opened.store->stats().copied_records, 0u) << "what is old is to stay where it is";
  opened.reopen(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// All from one home, they come and go among others that stay behind the slots that they leave.
std::uint64_t key_of_one_home(std::uint64_t number) {
  return key_of_hash(0xabcdefull << 40 | number << 12 | 0x5a);
}

TEST_F(KvLogIndex, KeysOfOneFingerprintThatComeAndGoLeaveRoom) {
  LogOpened opened = LogOpened::create(path(), log_options(512, 300, 0, Form::fingerprints));
  Map oracle;
  std::uint64_t next = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    Keys keys;
    for (int i = 0; i < 150; ++i) keys.push_back(key_of_one_home(next++));
    ASSERT_NO_THROW(opened.set(keys, keys));
    for (const auto key : keys) oracle[key] = key;
    // All of the round before but a few.
    Keys gone;
    for (const auto& [key, value] : oracle) {
      if (gone.size() + 300 < oracle.size() + 150 && gone.size() < 290) gone.push_back(key);
    }
    if (oracle.size() > 300) {
      opened.erase(gone);
      for (const auto key : gone) oracle.erase(key);
    }
    ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
    if (round % 10 == 9) {
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
  }
}

}  // namespace
}  // namespace holdfast::test

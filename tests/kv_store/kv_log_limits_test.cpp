// Batches of all kinds at their limits, in logs of random shapes: large and small ones in turn,
// keys that come again in other pages, keys that are not there, batches that are refused; closed,
// killed and opened with either form of the index in between. Against a map, and a reader of the
// format.
#include "kv_store/kv_log_medium.hpp"
#include "kv_store/kv_log_test.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

class KvLogLimits : public Scratch {
 protected:
  std::uint64_t below(std::uint64_t end) { return random() % end; }
  bool one_of(std::uint64_t turns) { return below(turns) == 0; }

  // Of one life of a store.
  void choose_shape() {
    const std::uint32_t batches[] = {1024, 1025, 1281, 2048, 3000, 5000};
    max_batch = batches[below(6)];
    capacity = 300 + below(6000);
    const std::uint64_t live = capacity + max_batch;
    options = log_options(capacity, max_batch,
                          one_of(4) ? 0 : live * 5 / 4 + 2048 + below(2 * live), form());
    universe = one_of(2) ? 2 * capacity : 1 + below(capacity);
  }
  Form form() { return one_of(2) ? Form::whole : Form::fingerprints; }

  // Around what makes a batch large, and around pages and segments.
  std::size_t size() {
    const std::uint32_t near[] = {1024, 1025, 256, 512, 1280, 2048, max_batch};
    std::uint64_t count = one_of(3) ? 1 + below(max_batch) : near[below(7)] + below(13) - 6;
    if (one_of(8)) count = 1 + below(3);
    return std::clamp<std::uint64_t>(count, 1, max_batch);
  }
  std::uint64_t key() {
    const std::uint64_t special[] = {0, ~std::uint64_t{1}, ~0xa5e7d1b3c94f6820ull,
                                     0xa5e7d1b3c94f6820ull, std::uint64_t{1} << 63};
    return one_of(200) ? special[below(5)] : spread_key(below(universe));
  }
  Keys make_keys(std::size_t count) {
    Keys keys(count);
    switch (below(6)) {
      case 0:  // one alone
        std::fill(keys.begin(), keys.end(), key());
        break;
      case 1:  // each twice, far from each other
        for (std::size_t i = 0; i < count; ++i)
          keys[i] = i < (count + 1) / 2 ? key() : keys[count - 1 - i];
        break;
      case 2: {  // a few that are everywhere
        Keys few(1 + below(5));
        for (auto& one : few) one = key();
        for (auto& one : keys) one = one_of(2) ? few[below(few.size())] : key();
        break;
      }
      case 3: {  // in a row
        const std::uint64_t first = below(universe);
        for (std::size_t i = 0; i < count; ++i) keys[i] = spread_key((first + i) % universe);
        break;
      }
      default:
        for (auto& one : keys) one = key();
    }
    return keys;
  }
  Place place() { return static_cast<Place>(below(3)); }

  // What is in the store is in the log, by its format, too.
  void expect_same() {
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    ASSERT_EQ(LogMedium(*opened.region).contents(), oracle);
    ASSERT_EQ(opened.store->stats().batches, batches);
  }
  void reopen() {
    if (one_of(2)) {
      opened.kill();
    } else {
      opened.abandon();
    }
    opened = LogOpened::open(path(), {}, form());
    ASSERT_FALSE(opened.store->stats().snapshots_refused);
    ASSERT_FALSE(opened.store->recovery().needed);
  }

  void refuse() {
    Keys keys = make_keys(size());
    const bool erases = one_of(3);
    const bool too_many = one_of(4);
    if (too_many) {
      keys.resize(max_batch + 1, 3);
    } else {
      const std::size_t places[] = {0, keys.size() - 1, below(keys.size())};
      keys[places[below(3)]] = KvStore::kReservedKey;
    }
    const Input from(keys, place(), below(20));
    const Input with(Keys(keys.size(), 7), place(), below(20));
    const auto give = [&] {
      if (erases) {
        opened.store->erase(from.data(), keys.size());
      } else {
        opened.store->set(from.data(), with.data(), keys.size());
      }
    };
    const Errc error = error_of(give, {});
    // In a log that is full there may be no room to look at it.
    ASSERT_TRUE(error == Errc::invalid_argument || (!too_many && error == Errc::no_space));
  }

  // Of the last batch; nothing, where that was refused.
  void expect_timing() {
    const KvStore::Timing timing = opened.store->timing();
    for (const double part : {timing.copy, timing.order, timing.update, timing.commit}) {
      ASSERT_GE(part, 0);
    }
  }
  void batch() {
    const Keys keys = make_keys(size());
    const bool erases = one_of(4);
    Keys values(keys.size());
    for (auto& value : values) value = one_of(16) ? 0xa5e7d1b3c94f6820ull : random();
    // Sometimes keys are their own values, and come from the same place.
    const bool own = !erases && one_of(6);
    if (own) values = keys;
    const Input from(keys, place(), below(20));
    const Input with(values, place(), below(20));
    Map after = oracle;
    std::uint64_t known = 0;
    const std::set<std::uint64_t> distinct(keys.begin(), keys.end());
    for (const auto one : distinct) known += oracle.count(one);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (erases) {
        after.erase(keys[i]);
      } else {
        after[keys[i]] = values[i];
      }
    }
    KvStore::BatchResult result;
    try {
      result = erases
                   ? opened.store->erase(from.data(), keys.size())
                   : opened.store->set(from.data(), own ? from.data() : with.data(), keys.size());
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::no_space) << error.what();
      const bool of_capacity =
          std::string(error.what()).find("its capacity is") != std::string::npos;
      ASSERT_TRUE(!of_capacity || (!erases && after.size() > capacity)) << error.what();
      ++refused;
      ASSERT_NO_FATAL_FAILURE(expect_timing());
      return;
    }
    ASSERT_LE(after.size(), capacity);
    ASSERT_EQ(result.inserted, erases ? 0 : distinct.size() - known);
    ASSERT_EQ(result.updated, erases ? 0 : known);
    ASSERT_EQ(result.removed, erases ? known : 0);
    oracle = std::move(after);
    ++batches;
    ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
  }

  // `fills`: until a batch is refused for want of room.
  void live(bool fills) {
    choose_shape();
    if (fills) universe = 2 * capacity;
    SCOPED_TRACE(::testing::Message() << "capacity " << capacity << ", max_batch " << max_batch
                                      << ", log_records " << options.log_records);
    opened = LogOpened::create(path(), options);
    oracle.clear();
    batches = 0;
    for (int turn = 0; turn < (fills && refused == 0 ? 500 : 12); ++turn) {
      SCOPED_TRACE(turn);
      if (one_of(4)) {
        ASSERT_NO_FATAL_FAILURE(refuse());
      } else {
        ASSERT_NO_FATAL_FAILURE(batch());
      }
      if (one_of(4)) {
        ASSERT_NO_FATAL_FAILURE(reopen());
      }
      if (one_of(3)) {
        ASSERT_NO_FATAL_FAILURE(expect_same());
      }
    }
    ASSERT_NO_FATAL_FAILURE(reopen());
    ASSERT_NO_FATAL_FAILURE(expect_same());
    opened.abandon();
    Region::destroy(path());
  }

  std::uint64_t seed = test_seed();
  std::mt19937_64 random{seed};
  KvStore::Options options;
  std::uint64_t capacity = 0, universe = 0;
  std::uint32_t max_batch = 0;
  LogOpened opened;
  Map oracle;
  std::uint64_t batches = 0;
  std::uint64_t refused = 0;  // for want of room
};

TEST_F(KvLogLimits, BatchesOfAllKindsAreInWholeOrRefused) {
  SCOPED_TRACE(seed);
  const char* const lives = std::getenv("HOLDFAST_TEST_LIVES");
  const std::uint64_t most =
      lives != nullptr ? std::strtoull(lives, nullptr, 0) : some_of(kFewRounds ? 4 : 10, 2);
  for (std::uint64_t life = 0; life < most; ++life) {
    SCOPED_TRACE(::testing::Message() << "life " << life);
    ASSERT_NO_FATAL_FAILURE(live(life == 0));
  }
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace holdfast::test

// A map that is killed at any moment, and at stores of its kernels; and one that is damaged.
#include <algorithm>

#include "bytes_map/bytes_map_kills.hpp"
#include "support/killed_child.hpp"

namespace holdfast::test {
namespace {

TEST(BytesMapChild, DISABLED_RunsUntilKilled) {
  BytesOpened opened = BytesOpened::open(from_environment("HOLDFAST_TEST_PATH"));
  for (std::uint64_t n = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));; ++n) {
    report_batch(n, [&] { Numbered(n).apply(opened); });
  }
}

class BytesMapCrash : public Scratch {
 protected:
  static BytesMapOptions shape() { return BytesOpened::shape(200, 1 << 20); }
};

TEST_F(BytesMapCrash, KilledAtAnyMomentEachOperationIsThereWholeOrNot) {
  std::mt19937_64 random(test_seed());
  expect_survives_kills("BytesMapChild.DISABLED_RunsUntilKilled", path(), arenas(), random);
}

#ifdef HOLDFAST_INTERCEPT

TEST(BytesMapChild, DISABLED_DiesAtAStore) {
  BytesOpened opened = BytesOpened::open(from_environment("HOLDFAST_TEST_PATH"));
  // There are few fences.
  Reaper reaper(std::stoull(from_environment("HOLDFAST_TEST_STORES")), cpu::EventKind::store);
  cpu::set_listener(&reaper);
  Numbered(std::stoull(from_environment("HOLDFAST_TEST_BATCH"))).apply(opened);
  cpu::set_listener(nullptr);
  opened.abandon();
}

TEST_F(BytesMapCrash, KilledAtStoresEachOperationIsThereWholeOrNot) {
  std::mt19937_64 random(test_seed());
  BytesOpened opened = BytesOpened::create(path(), shape());
  for (std::uint64_t n = 0; n < 6; ++n) Numbered(n).apply(opened);
  const Oracle held = opened.contents();
  opened.close();
  const std::vector<char> image = read_file(path());
  for (const std::uint64_t batch : {100, 101, 103}) {
    bool finished = false;
    for (std::uint64_t store = 0; !finished; store += 1 + store / 4 + random() % 8) {
      SCOPED_TRACE(detail::concat("batch ", batch, " store ", store));
      ASSERT_LT(store, 10'000'000u);
      Region::destroy(path());
      write_file(path(), image);
      finished = came_to_its_end("BytesMapChild.DISABLED_DiesAtAStore", arenas(),
                                 {{"HOLDFAST_TEST_PATH", path()},
                                  {"HOLDFAST_TEST_BATCH", std::to_string(batch)},
                                  {"HOLDFAST_TEST_STORES", std::to_string(store)}});
      ASSERT_FALSE(HasFailure());
      BytesOpened after = BytesOpened::open(path());
      const std::uint64_t done = finished ? batch + 1 : batch;
      ASSERT_NO_FATAL_FAILURE(expect_follows(after, held, batch, done, batch + 1));
      after.abandon();
    }
  }
}

#endif

// ---- Damage ------------------------------------------------------------------------------------

// Of a record any bit that flips is noticed: its key is `damaged`, its bytes are given nowhere, all
// others are as they were, and it can be replaced or erased.
TEST_F(BytesMapCrash, ADamagedRecordIsToldByItsKeyAndNothingElseChanges) {
  std::mt19937_64 random(test_seed());
  BytesOpened opened = BytesOpened::create(path(), shape());
  const Oracle all{{"first", string_of(1, 50)}, {"second", string_of(2, 5000)}, {"third", ""}};
  for (const auto& [key, value] : all) opened.put({key}, {value});
  const auto records = opened.region->find<std::uint8_t>("map.records");
  const std::string key = "second";
  const auto at = std::search(records.begin(), records.end(), key.begin(), key.end());
  ASSERT_NE(at, records.end());
  const auto head = static_cast<std::size_t>(at - records.begin()) - 16;
  std::vector<std::size_t> bits;
  for (std::size_t bit = 0; bit < 32 * 8; ++bit) bits.push_back(bit);  // head and key
  for (int i = 0; i < 40; ++i) bits.push_back(random() % ((32 + 5008) * 8));
  Oracle others = all;
  others.erase(key);
  for (const std::size_t bit : bits) {
    SCOPED_TRACE(bit);
    const auto flip = [&] { records[head + bit / 8] ^= 1 << bit % 8; };
    flip();
    std::vector<BytesFound> found, contained(3);
    const ByteStringVector asked({"first", key, "third"});
    const ByteStringVector values = opened.map->find(asked, found);
    ASSERT_EQ(found[1], BytesFound::damaged);
    for (const char byte : values[1]) ASSERT_EQ(byte, 0);
    ASSERT_EQ(found[0], BytesFound::present);
    ASSERT_EQ(values[0], all.at("first"));
    ASSERT_EQ(found[2], BytesFound::present);
    ASSERT_EQ(opened.contents(1), others);
    ASSERT_NE(opened.map->verify(), "");
    ASSERT_EQ(opened.map->insert(ByteStringVector({key}), ByteStringVector({"x"})).kept, 1u);
    flip();
    ASSERT_EQ(opened.map->verify(), "");
  }
  records[head + 20] ^= 1;
  EXPECT_EQ(opened.put({key}, {"new"}).assigned, 1u);
  others[key] = "new";
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(others));
}

// A word of the index that names no record, or that of another: opening says so.
TEST_F(BytesMapCrash, ADamagedIndexIsRefusedByName) {
  BytesOpened opened = BytesOpened::create(path(), shape());
  opened.put({"a", "b"}, {string_of(1, 40), string_of(2, 40)});
  opened.map.reset();
  const auto table = opened.region->find<std::uint8_t>("map.index.table");
  const std::vector<std::uint8_t> whole(table.begin(), table.end());
  std::mt19937_64 random(test_seed());
  std::size_t refused = 0;
  for (std::size_t byte = 0; byte < table.size(); ++byte) {
    if (whole[byte] == 0) continue;
    table[byte] ^= static_cast<std::uint8_t>(1u << random() % 8);
    try {
      BytesMap map = BytesMap::open(*opened.region, "map");
      std::vector<BytesFound> found;
      const ByteStringVector values = map.find(ByteStringVector({"a", "b"}), found);
      for (std::size_t i = 0; i < 2; ++i) {
        if (found[i] == BytesFound::present) {
          ASSERT_EQ(values[i], string_of(i + 1, 40));
        }
      }
      // The bit that says that a word of a key is stored: opening does not look at it, and the key
      // is missed.
      ASSERT_NE(map.verify(), "");
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::damaged) << error.what();
      ++refused;
    }
    std::copy(whole.begin(), whole.end(), table.begin());
  }
  EXPECT_GT(refused, 10u);
  EXPECT_EQ(BytesMap::open(*opened.region, "map").verify(), "");
}

}  // namespace
}  // namespace holdfast::test

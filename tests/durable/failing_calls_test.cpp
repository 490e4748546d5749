// Memory that runs out at each allocation of a call in turn, with the caller's arrays gone as soon
// as it has thrown: nothing that was queued uses them, or buffers of the call, any more (the
// sanitizer tells), and what was there is there when the object is opened again.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "holdfast/bytes_map.hpp"
#include "holdfast/hash_map.hpp"
#include "holdfast/kv_store.hpp"
#include "support/failing_memory.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

using Map = HashMap<std::uint64_t>;
constexpr std::size_t kCount = 300;
constexpr std::uint32_t kValueBytes = 64;

// What a call is given, in memory of its own.
struct Arrays {
  std::vector<std::uint64_t> keys = std::vector<std::uint64_t>(kCount);
  std::vector<std::byte> values = std::vector<std::byte>(kCount * kValueBytes, std::byte{7});
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(kCount, 7);
  std::vector<std::byte> out = std::vector<std::byte>(kCount * kValueBytes);
  std::vector<std::uint8_t> found = std::vector<std::uint8_t>(kCount);
  std::vector<MapStatus> status = std::vector<MapStatus>(kCount);
  std::vector<MapOp> operations = std::vector<MapOp>(kCount, MapOp::find);
  std::vector<std::uint64_t> offsets = std::vector<std::uint64_t>(kCount + 1);

  Arrays() {
    std::iota(keys.begin(), keys.end(), std::uint64_t{1});
    for (std::size_t i = 0; i < kCount; i += 3) operations[i] = MapOp::find_or_insert;
    for (std::size_t i = 0; i <= kCount; ++i) offsets[i] = 8 * i;
  }
  ByteStrings strings(const std::vector<std::uint64_t>& of) const {
    return {reinterpret_cast<const std::byte*>(of.data()), offsets.data(), kCount};
  }
};

class FailingCalls : public Scratch {
 protected:
  // `open()` makes the object ready, `call` is made with its allocations failing in turn, and
  // `check` looks at what is there then.
  template <class Object>
  void in_turn(const char* name, const std::function<std::unique_ptr<Object>()>& open,
               const std::function<void(Object&, Arrays&)>& call,
               const std::function<void(Object&)>& check) {
    int failures = 0;
    // The first one in any case: some calls have but a few.
    for (std::uint64_t which = 0; which < 10'000; which = tried.behind(which)) {
      SCOPED_TRACE(name + (", allocation " + std::to_string(which)));
      std::unique_ptr<Object> object = open();
      auto arrays = std::make_unique<Arrays>();
      FailingMemory memory(which, Fails::once);
      try {
        call(*object, *arrays);
      } catch (const std::exception&) {
        ++failures;
        arrays.reset();
      }
      const bool failed = memory.end();
      // Beside the one that failed, as its errors ask for.
      std::unique_ptr<Object> again = open();
      ASSERT_NO_FATAL_FAILURE(check(*again));
      if (!failed) break;
    }
    EXPECT_GT(failures, tried.step == 1 ? 2 : 0) << name;
  }

  const Every tried = every();
};

TEST_F(FailingCalls, OfAKeyValueStore) {
  for (const auto layout : {KvStore::Layout::in_place, KvStore::Layout::log}) {
    const std::string place = path(std::to_string(static_cast<int>(layout)));
    KvStore::Options shape;
    shape.capacity = 4096;
    shape.max_batch = 512;
    shape.layout = layout;
    Region region = Region::create(place, options(KvStore::region_bytes(shape)));
    {
      const Arrays first;
      KvStore::create(region, shape).set(first.keys.data(), first.words.data(), kCount);
    }
    const auto open = [&] { return std::make_unique<KvStore>(KvStore::open(region)); };
    const auto check = [](KvStore& store) {
      ASSERT_EQ(store.verify(), "");
      Arrays now;
      store.get(now.keys.data(), now.words.data(), now.found.data(), kCount);
      EXPECT_EQ(now.words, std::vector<std::uint64_t>(kCount, 7));
      EXPECT_EQ(now.found, std::vector<std::uint8_t>(kCount, 1));
    };
    in_turn<KvStore>(
        "set", open,
        [](KvStore& store, Arrays& arrays) {
          store.set(arrays.keys.data(), arrays.words.data(), kCount);
        },
        check);
    in_turn<KvStore>(
        "get", open,
        [](KvStore& store, Arrays& arrays) {
          store.get(arrays.keys.data(), arrays.words.data(), arrays.found.data(), kCount);
        },
        check);
    // One that failed with its buffers half made has them all the next time.
    std::unique_ptr<KvStore> store = open();
    for (std::uint64_t which = 0; which < 8; ++which) {
      Arrays arrays;
      FailingMemory memory(which, Fails::once);
      try {
        store->get(arrays.keys.data(), arrays.words.data(), arrays.found.data(), kCount);
      } catch (const std::exception&) {
      }
      memory.end();
      ASSERT_NO_FATAL_FAILURE(check(*store));
    }
  }
}

TEST_F(FailingCalls, OfAHashMap) {
  MapOptions shape;
  shape.capacity = 2048;
  shape.value_bytes = kValueBytes;
  shape.max_batch = 512;
  Region region = Region::create(path(), options(Map::region_bytes(shape)));
  {
    const Arrays first;
    Map::create(region, "map", shape)
        .insert_or_assign(first.keys.data(), first.values.data(), kCount);
  }
  const auto open = [&] { return std::make_unique<Map>(Map::open(region, "map")); };
  const auto check = [](Map& map) {
    ASSERT_EQ(map.verify(), "");
    Arrays now;
    map.find(now.keys.data(), now.out.data(), now.found.data(), kCount);
    EXPECT_EQ(now.out, now.values);
    EXPECT_EQ(now.found, std::vector<std::uint8_t>(kCount, 1));
  };
  using Call = std::function<void(Map&, Arrays&)>;
  const std::pair<const char*, Call> calls[] = {
      {"insert_or_assign",
       [](Map& map, Arrays& of) {
         map.insert_or_assign(of.keys.data(), of.values.data(), kCount, of.status.data());
       }},
      {"find_or_insert",
       [](Map& map, Arrays& of) {
         map.find_or_insert(of.keys.data(), of.values.data(), of.out.data(), kCount,
                            of.status.data());
       }},
      {"apply",
       [](Map& map, Arrays& of) {
         map.apply(of.operations.data(), of.keys.data(), of.values.data(), of.out.data(), kCount,
                   of.status.data());
       }},
      {"find",
       [](Map& map, Arrays& of) {
         map.find(of.keys.data(), of.out.data(), of.found.data(), kCount);
       }},
      {"export_batch",
       [](Map& map, Arrays& of) { map.export_batch(0, kCount, of.keys.data(), of.out.data()); }},
      {"quiesce",
       [](Map& map, Arrays&) {
         (void)map.ref();
         map.quiesce();
       }},
      {"verify", [](Map& map, Arrays&) { (void)map.verify(); }},
  };
  for (const auto& [name, call] : calls) in_turn<Map>(name, open, call, check);
}

TEST_F(FailingCalls, OfAMapOfStrings) {
  BytesMap::Options shape;
  shape.capacity = 1024;
  shape.record_bytes = 1 << 17;
  shape.max_batch = 512;
  Region region = Region::create(path(), options(BytesMap::region_bytes(shape)));
  {
    const Arrays first;
    BytesMap::create(region, "map", shape)
        .insert_or_assign(first.strings(first.keys), first.strings(first.words));
  }
  const auto open = [&] { return std::make_unique<BytesMap>(BytesMap::open(region, "map")); };
  const auto check = [](BytesMap& map) {
    ASSERT_EQ(map.verify(), "");
    const Arrays now;
    std::vector<BytesFound> found(kCount);
    const ByteStringVector values = map.find(now.strings(now.keys), found);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(found[i], BytesFound::present) << i;
      ASSERT_EQ(std::memcmp(values[i].data(), &now.words[i], 8), 0) << i;
    }
  };
  in_turn<BytesMap>(
      "insert_or_assign", open,
      [](BytesMap& map, Arrays& of) {
        map.insert_or_assign(of.strings(of.keys), of.strings(of.words), of.status.data());
      },
      check);
  in_turn<BytesMap>(
      "find", open,
      [](BytesMap& map, Arrays& of) {
        std::vector<BytesFound> found(kCount);
        (void)map.find(of.strings(of.keys), found);
      },
      check);
  in_turn<BytesMap>(
      "export_batch", open,
      [](BytesMap& map, Arrays&) {
        ByteStringVector keys, values;
        map.export_batch(0, 512, keys, values);
      },
      check);
}

}  // namespace
}  // namespace holdfast::test

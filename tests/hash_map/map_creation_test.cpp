// Maps whose creation is cut off: each is absent or whole, and the next creation makes it. And maps
// with data whose header reads as zeros, as that of a creation that was cut off does: those are
// damaged, and neither opening nor creating them changes anything.
#include <gtest/gtest.h>

#include "bytes_map/bytes_map_test.hpp"
#include "durable/header.hpp"
#include "hash_map/map_test.hpp"
#include "support/failing_memory.hpp"
#include "support/in_child.hpp"

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;

// A hash map that records its changes, of values in places.
struct OfNumbers {
  using Map = HashMap<U64, MapConfig<4>>;
  static MapOptions options() {
    MapOptions options = map_options(12, 24, 8);
    options.changes = 16;
    return options;
  }
  static void fill(Map& map) {
    const std::vector<U64> keys = numbers(1, 5);
    const std::vector<std::uint32_t> values(5 * 6, 7);
    map.insert(keys.data(), values.data(), keys.size());
  }
  static const std::vector<std::string>& headers() {
    static const std::vector<std::string> all{"map.header", "map.changes.header"};
    return all;
  }
};

struct OfBytes {
  using Map = BytesMap;
  static BytesMapOptions options() {
    BytesMapOptions options = BytesOpened::shape(50, 1 << 12);
    options.max_batch = 8;
    return options;
  }
  static void fill(Map& map) {
    map.insert(ByteStringVector({"a", "b"}), ByteStringVector({"1", ""}));
  }
  static const std::vector<std::string>& headers() {
    static const std::vector<std::string> all{"map.header", "map.index.header"};
    return all;
  }
};

template <class Of>
class MapCreation : public Scratch {
 protected:
  using Map = typename Of::Map;

  // Whether it is there: whole, or not at all and to be created.
  static bool is_there(Region& region) {
    try {
      Map map = Map::open(region, "map");
      EXPECT_EQ(map.verify(), "");
      EXPECT_EQ(map.size(), 0u);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::not_found) << error.what();
      return false;
    }
  }
  // All objects by their names, with their bytes.
  static std::map<std::string, std::string> bytes_of(const Region& region) {
    std::map<std::string, std::string> all;
    for (const ObjectInfo& info : region.objects()) {
      all[info.name].assign(static_cast<const char*>(region.address(info)), info.bytes());
    }
    return all;
  }

  Region region = Region::create(path(), options(std::uint64_t{1} << 20));
};
using Kinds = ::testing::Types<OfNumbers, OfBytes>;
TYPED_TEST_SUITE(MapCreation, Kinds);

// Processes that are killed at an allocation of theirs, of which there is one at least between any
// two changes of the region.
TYPED_TEST(MapCreation, KilledAnywhereItIsAbsentOrWholeAndIsMadeAgain) {
  using Map = typename TypeParam::Map;
  unsigned absent = 0, with_objects = 0;
  bool killed = true;
  this->region.close();
  for (U64 which = 0; killed; which += 1 + which / 40) {
    SCOPED_TRACE(which);
    const int status = in_child([&] {
      Region region = Region::open(this->path());
      FailingMemory memory(which, Fails::to_death);
      Map::create(region, "map", TypeParam::options());
      memory.end();
      region.abandon();
    });
    killed = status != 0;
    ASSERT_TRUE(!killed || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
    this->region = Region::open(this->path());
    const bool there = this->is_there(this->region);
    EXPECT_TRUE(there || killed);
    absent += !there;
    with_objects += !there && !this->region.objects().empty();
    if (!there) Map::create(this->region, "map", TypeParam::options());
    {
      Map map = Map::open(this->region, "map");
      TypeParam::fill(map);
      EXPECT_EQ(map.verify(), "");
    }
    if (this->HasFailure()) return;
    for (const ObjectInfo& info : this->region.objects()) this->region.remove(info.name);
    this->region.close();
  }
  EXPECT_GT(absent, 20u);
  EXPECT_GT(with_objects, 10u) << "no creation was cut off between two objects";
}

TYPED_TEST(MapCreation, AHeaderOfZerosIsDamagedAndNothingChanges) {
  using Map = typename TypeParam::Map;
  for (const bool filled : {true, false}) {
    {
      Map map = Map::create(this->region, "map", TypeParam::options());
      if (filled) TypeParam::fill(map);
      // A level and places of values that a growth has added.
      if constexpr (std::is_same_v<TypeParam, OfNumbers>) map.reserve(20);
    }
    for (const std::string& object : TypeParam::headers()) {
      SCOPED_TRACE(object);
      auto& header = this->region.template find<durable::Header>(object)[0];
      const durable::Header before = header;
      header = {};
      const auto all = this->bytes_of(this->region);
      const std::vector<std::string> words = {"'map", "'" + object + "'", "last commit"};
      EXPECT_EQ(error_of([&] { Map::open(this->region, "map"); }, words), Errc::damaged);
      EXPECT_TRUE(this->bytes_of(this->region) == all);
      auto other = TypeParam::options();
      other.capacity *= 3;
      for (const auto& options : {TypeParam::options(), other}) {
        const Errc code = error_of([&] { Map::create(this->region, "map", options); });
        // What is there has a header of its own, and is told from none by that.
        EXPECT_EQ(code, object == "map.changes.header" ? Errc::already_exists : Errc::damaged);
        EXPECT_TRUE(this->bytes_of(this->region) == all);
      }
      header = before;
    }
    Map map = Map::open(this->region, "map");
    EXPECT_EQ(map.verify(), "");
    EXPECT_EQ(map.size() != 0, filled);
    for (const ObjectInfo& info : this->region.objects()) this->region.remove(info.name);
  }
}

// As the message says: what was committed is there again.
TYPED_TEST(MapCreation, ALostHeaderComesBackWithTheLastCommit) {
  using Map = typename TypeParam::Map;
  {
    Map map = Map::create(this->region, "map", TypeParam::options());
    TypeParam::fill(map);
  }
  this->region.commit();
  this->region.template find<durable::Header>("map.header")[0] = {};
  EXPECT_EQ(error_of([&] { Map::open(this->region, "map"); }), Errc::damaged);
  this->region.abandon();
  this->region = Region::open(this->path(), this->last_commit());
  Map map = Map::open(this->region, "map");
  EXPECT_EQ(map.verify(), "");
  EXPECT_NE(map.size(), 0u);
}

}  // namespace
}  // namespace holdfast::test

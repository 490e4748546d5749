// Stores and maps of all kinds: a creation that fails leaves none, and a removal nothing at all,
// whether they are open or damaged, and wherever it is cut off.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "holdfast/bytes_map.hpp"
#include "holdfast/hash_map.hpp"
#include "holdfast/kv_store.hpp"
#include "holdfast/log_map.hpp"
#include "support/failing_memory.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

using Words = std::vector<std::uint64_t>;
constexpr std::size_t kCount = 300;
// Too long for a std::string without memory of its own: whoever looks for an object allocates.
constexpr const char* kName = "all the users of all years";

Words keys() {
  Words result(kCount);
  std::iota(result.begin(), result.end(), std::uint64_t{1});
  return result;
}

// A kind: what is made, opened and removed, and whether it holds what make() has put there.

template <KvStore::Layout layout>
struct Store {
  static constexpr bool kOneStep = true;
  using Object = KvStore;
  static constexpr const char* kPart = layout == KvStore::Layout::log ? "kvs.records" : "kvs.table";
  static Object create(Region& region) {
    KvStore::Options shape;
    shape.capacity = 4096;
    shape.max_batch = 512;
    shape.layout = layout;
    return KvStore::create(region, shape);
  }
  static Object open(Region& region) { return KvStore::open(region); }
  static void remove(Region& region) { KvStore::remove(region); }
  static void fill(Object& store) { store.set(keys().data(), keys().data(), kCount); }
  static bool holds(Object& store) {
    Words values(kCount);
    std::vector<std::uint8_t> found(kCount);
    store.get(keys().data(), values.data(), found.data(), kCount);
    return values == keys() && found == std::vector<std::uint8_t>(kCount, 1);
  }
  static std::uint64_t size(Object& store) { return store.stats().records; }
};

struct Hashed {
  static constexpr bool kOneStep = false;
  using Object = HashMap<std::uint64_t>;
  static constexpr const char* kPart = "all the users of all years.level1";
  static Object create(Region& region) {
    MapOptions shape;
    shape.capacity = 512;
    shape.value_bytes = 16;
    shape.max_batch = 512;
    shape.changes = 600;
    return Object::create(region, kName, shape);
  }
  static Object open(Region& region) { return Object::open(region, kName); }
  static void remove(Region& region) { Object::remove(region, kName); }
  static void fill(Object& map) {
    Words values(2 * kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[2 * i] = keys()[i];
    map.reserve(1024);
    map.insert_or_assign(keys().data(), values.data(), kCount);
  }
  static bool holds(Object& map) {
    Words values(2 * kCount);
    std::vector<std::uint8_t> found(kCount);
    map.find(keys().data(), values.data(), found.data(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      if (found[i] != 1 || values[2 * i] != keys()[i] || values[2 * i + 1] != 0) return false;
    }
    return map.verify().empty();
  }
  static std::uint64_t size(Object& map) { return map.stats().size; }
};

struct OfStrings {
  static constexpr bool kOneStep = false;
  using Object = BytesMap;
  static constexpr const char* kPart = "all the users of all years.records";
  static Object create(Region& region) {
    BytesMap::Options shape;
    shape.capacity = 512;
    shape.record_bytes = 1 << 14;
    shape.max_batch = 512;
    return BytesMap::create(region, kName, shape);
  }
  static Object open(Region& region) { return BytesMap::open(region, kName); }
  static void remove(Region& region) { BytesMap::remove(region, kName); }
  static ByteStrings strings(const Words& of, const Words& offsets) {
    return {reinterpret_cast<const std::byte*>(of.data()), offsets.data(), kCount};
  }
  static Words offsets() {
    Words result(kCount + 1);
    for (std::size_t i = 0; i <= kCount; ++i) result[i] = 8 * i;
    return result;
  }
  static void fill(Object& map) {
    map.reserve({.capacity = 1024, .record_bytes = 1 << 16});
    const Words of = keys(), at = offsets();
    map.insert_or_assign(strings(of, at), strings(of, at));
  }
  static bool holds(Object& map) {
    const Words of = keys(), at = offsets();
    std::vector<BytesFound> found(kCount);
    const ByteStringVector values = map.find(strings(of, at), found);
    for (std::size_t i = 0; i < kCount; ++i) {
      if (found[i] != BytesFound::present || std::memcmp(values[i].data(), &of[i], 8) != 0) {
        return false;
      }
    }
    return map.verify().empty();
  }
  static std::uint64_t size(Object& map) { return map.stats().size; }
};

struct Logged {
  static constexpr bool kOneStep = false;
  using Object = LogMap;
  static constexpr const char* kPart = "all the users of all years.values";
  static Object create(Region& region) {
    LogMap::Options shape;
    shape.capacity = 512;
    shape.value_bytes = 16;
    shape.max_batch = 512;
    return LogMap::create(region, kName, shape);
  }
  static Object open(Region& region) { return LogMap::open(region, kName); }
  static void remove(Region& region) { LogMap::remove(region, kName); }
  static void fill(Object& map) {
    Words values(2 * kCount, 5);
    map.insert_or_assign(keys().data(), values.data(), kCount);
  }
  static bool holds(Object& map) {
    Words values(2 * kCount);
    std::vector<std::uint8_t> found(kCount);
    map.find(keys().data(), values.data(), found.data(), kCount);
    return values == Words(2 * kCount, 5) && found == std::vector<std::uint8_t>(kCount, 1);
  }
  static std::uint64_t size(Object& map) { return map.size(); }
};

template <class Kind>
class Removal : public Scratch {
 protected:
  using Object = typename Kind::Object;

  Object made() {
    Object object = Kind::create(region);
    Kind::fill(object);
    return object;
  }
  // Whole, with all that it had, or absent, and then it can be made. Whether it is there.
  bool expect_whole_or_absent() {
    std::optional<Object> object;
    try {
      object.emplace(Kind::open(region));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::not_found) << error.what();
      expect_makes_it();
      return false;
    }
    EXPECT_TRUE(Kind::holds(*object));
    return true;
  }
  void expect_makes_it() {
    Object object = Kind::create(region);
    EXPECT_EQ(Kind::size(object), 0u);
    Kind::fill(object);
    EXPECT_TRUE(Kind::holds(object));
  }
  void remove_all() {
    Kind::remove(region);
    EXPECT_EQ(region.objects().size(), 1u) << region.objects().back().name;
  }

  Region region = [this] {
    Region made = Region::create(path(), options(std::uint64_t{8} << 20));
    made.allocate<std::uint64_t>("another's", 7, Tracking::marked);
    return made;
  }();
};

using Kinds = ::testing::Types<Store<KvStore::Layout::in_place>, Store<KvStore::Layout::log>,
                               Hashed, OfStrings, Logged>;
TYPED_TEST_SUITE(Removal, Kinds);

TYPED_TEST(Removal, LeavesNothing) {
  EXPECT_EQ(error_of([&] { TypeParam::remove(this->region); }), Errc::not_found);
  for (int life = 0; life < 3; ++life) {
    (void)this->made();
    if (life == 1) {
      this->region.abandon();
      this->region = Region::open(this->path());
    }
    ASSERT_NO_FATAL_FAILURE(this->remove_all());
    EXPECT_EQ(error_of([&] { TypeParam::open(this->region); }), Errc::not_found);
    EXPECT_EQ(error_of([&] { TypeParam::remove(this->region); }), Errc::not_found);
  }
}

TYPED_TEST(Removal, EndsWhoHasItOpen) {
  auto open = this->made();
  this->remove_all();
  EXPECT_EQ(error_of([&] { TypeParam::fill(open); }), Errc::closed);
  auto next = this->made();
  EXPECT_EQ(error_of([&] { TypeParam::fill(open); }), Errc::closed);
  { auto ended = std::move(open); }
  EXPECT_TRUE(TypeParam::holds(next));
}

TYPED_TEST(Removal, OfARegionThatIsOpenForReadingIsRefused) {
  (void)this->made();
  this->region.commit();
  this->region.close();
  this->region = Region::open(this->path(), this->for_reading());
  EXPECT_EQ(error_of([&] { TypeParam::remove(this->region); }), Errc::unsupported);
  this->region.close();
  this->region = Region::open(this->path());
  EXPECT_TRUE(this->expect_whole_or_absent());
}

// One of its objects, which has to be there, is gone.
TYPED_TEST(Removal, OfADamagedOne) {
  (void)this->made();
  ASSERT_TRUE(this->region.contains(TypeParam::kPart));
  this->region.remove(TypeParam::kPart);
  EXPECT_EQ(error_of([&] { TypeParam::open(this->region); }), Errc::damaged);
  ASSERT_NO_FATAL_FAILURE(this->remove_all());
  ASSERT_NO_FATAL_FAILURE(this->expect_makes_it());
}

TYPED_TEST(Removal, ThatIsCutOffLeavesItWholeOrAbsent) {
  int there = 0, absent = 0;
  bool failed = true;
  const Every tried = every(1, 32);
  for (std::uint64_t which = tried.first; failed && !this->HasFailure(); which += tried.step) {
    SCOPED_TRACE(which);
    (void)this->made();
    FailingMemory memory(which, Fails::from_there);
    try {
      TypeParam::remove(this->region);
    } catch (const std::exception&) {
    }
    failed = memory.end();
    ++(this->expect_whole_or_absent() ? there : absent);
    this->remove_all();
  }
  EXPECT_GT(there, 0);
  // Names of a store's objects are short: there is no allocation between its steps.
  EXPECT_GT(absent, TypeParam::kOneStep ? 0 : 1);
}

TYPED_TEST(Removal, ACreationThatRunsOutOfMemoryLeavesNone) {
  int failures = 0, tries = 0;
  bool failed = true;
  const Every tried = every(1, 32);
  for (std::uint64_t which = tried.first; failed && !this->HasFailure(); which += tried.step) {
    SCOPED_TRACE(which);
    FailingMemory memory(which, Fails::once);
    bool made = true;
    try {
      (void)TypeParam::create(this->region);
    } catch (const std::exception&) {
      made = false;
    }
    failed = memory.end();
    const bool makes_it = tries++ % 5 == 0;
    if (!made) {
      ++failures;
      EXPECT_EQ(error_of([&] { TypeParam::open(this->region); }), Errc::not_found);
      // Where nothing of it is there, nothing has to be removed either.
      ASSERT_EQ(this->region.objects().size(), 1u) << this->region.objects().back().name;
      if (!makes_it) continue;
      ASSERT_NO_FATAL_FAILURE(this->expect_makes_it());
    }
    this->remove_all();
  }
  EXPECT_GT(failures, static_cast<int>(50 / tried.step));
}

// A creation that was cut off, or a removal, leaves a header of zeros. What Python keeps beside a
// map "users.old" is no part of "users".
TEST(RemovalOfAMap, BesideOneWhoseNameBeginsSoTheNextCreationMakesIt) {
  ScratchFolders folders;
  RegionOptions options;
  options.size = std::uint64_t{8} << 20;
  Region region = Region::create(folders.path(), options);
  MapOptions shape;
  shape.capacity = 100;
  shape.max_batch = 64;
  using Map = HashMap<std::uint64_t>;
  (void)Map::create(region, "users.old", shape);
  const ObjectInfo header = region.object("users.old.header");
  for (const char* const kept : {"_types", "_shard", "_whole", "_loads"}) {
    region.allocate_raw(std::string("users.old") + kept, "i64:f32x4", 8, 1, Tracking::hashed);
  }
  const std::size_t beside = region.objects().size();
  region.allocate_raw("users.header", header.type, header.element_bytes, header.count,
                      header.tracking);
  EXPECT_EQ(error_of([&] { Map::open(region, "users"); }), Errc::not_found);
  (void)Map::create(region, "users", shape);
  Map::remove(region, "users");
  (void)Map::open(region, "users.old");
  EXPECT_EQ(region.objects().size(), beside);
}

TEST(RemovalOfAMap, WhoseRefsAreOutIsRefused) {
  ScratchFolders folders;
  RegionOptions options;
  options.size = std::uint64_t{8} << 20;
  Region region = Region::create(folders.path(), options);
  auto map = Hashed::create(region);
  Hashed::fill(map);
  (void)map.ref();
  EXPECT_EQ(error_of([&] { Hashed::remove(region); }, {"refs", "quiesce()"}),
            Errc::invalid_argument);
  map.quiesce();
  EXPECT_TRUE(Hashed::holds(map));
  Hashed::remove(region);
  EXPECT_TRUE(region.objects().empty());
}

}  // namespace
}  // namespace holdfast::test

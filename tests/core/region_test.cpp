// Regions as their users see them: objects, sizes, lifetimes, domains.
#include "holdfast/region.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <stdexcept>

#include "core/directory.hpp"
#include "core/format.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {
enum class Colour : std::uint16_t { red, green };
}

template <>
struct TypeName<Colour> {
  static constexpr const char* value = "colour";
};

namespace {

using test::error_of;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class RegionTest : public test::Scratch {};

struct Point {
  static constexpr const char* kTypeName = "point";
  float x, y;
};
struct Span {
  static constexpr const char* kTypeName = "span";
  std::uint32_t first, count;
};
static_assert(sizeof(Point) == sizeof(Span));

TEST_F(RegionTest, KeepsObjectsAcrossCloseAndOpen) {
  {
    Region region = Region::create(path(), options(8 * kMiB));
    auto numbers = region.allocate<std::uint32_t>("numbers", 100'000);
    auto marked = region.allocate<double>("marked", 1000, Tracking::marked);
    std::iota(numbers.begin(), numbers.end(), 7u);
    std::iota(marked.begin(), marked.end(), 0.5);
    region.mark(marked.data(), marked.size_bytes());
    region.close();
  }
  EXPECT_TRUE(is_empty(arenas())) << "a clean close removes the arena";
  Region region = Region::open(path());
  EXPECT_FALSE(region.open_report().arena_found);
  const auto numbers = region.find<std::uint32_t>("numbers");
  ASSERT_EQ(numbers.size(), 100'000u);
  for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i + 7);
  const auto marked = region.find<double>("marked");
  for (std::size_t i = 0; i < marked.size(); ++i) ASSERT_EQ(marked[i], 0.5 + double(i));
}

TEST_F(RegionTest, ListsFindsAndRemoves) {
  Region region = Region::create(path(), options(4 * kMiB));
  EXPECT_TRUE(region.objects().empty());
  region.allocate<float>("a", 10);
  region.allocate<std::uint64_t>("b", 2000, Tracking::marked);
  region.allocate<std::int8_t>("c", 1);
  ASSERT_EQ(region.objects().size(), 3u);
  const ObjectInfo b = region.object("b");
  EXPECT_EQ(b.type, "u64");
  EXPECT_EQ(b.count, 2000u);
  EXPECT_EQ(b.element_bytes, 8u);
  EXPECT_EQ(b.bytes(), 16000u);
  EXPECT_EQ(b.tracking, Tracking::marked);
  EXPECT_EQ(b.offset % kPageBytes, 0u);
  EXPECT_EQ(region.address(b), region.find<std::uint64_t>("b").data());
  EXPECT_EQ(region.used(), core::kMetadataBytes + 6 * kPageBytes);

  region.remove("b");
  EXPECT_FALSE(region.contains("b"));
  EXPECT_TRUE(region.contains("a"));
  EXPECT_EQ(error_of([&] { region.find<std::uint64_t>("b"); }, {"'b'", path()}), Errc::not_found);
  EXPECT_EQ(error_of([&] { region.remove("b"); }), Errc::not_found);
}

TEST_F(RegionTest, ReusesFreedSpaceZeroed) {
  Region region = Region::create(path(), options(kMiB));
  auto first = region.allocate<std::uint8_t>("first", 5000);
  region.allocate<std::uint8_t>("second", 1);
  std::memset(first.data(), 0xff, 8192);
  const void* const place = first.data();
  region.remove("first");
  auto third = region.allocate<std::uint8_t>("third", 8000);
  EXPECT_EQ(third.data(), place) << "first fit";
  for (int i = 0; i < 8192; ++i) ASSERT_EQ(third.data()[i], 0);
}

// The image of a marked object must not show what the space held before.
TEST_F(RegionTest, ReusedSpaceOfMarkedObjectsIsZeroInTheImage) {
  {
    Region region = Region::create(path(), options(kMiB));
    auto first = region.allocate<std::uint8_t>("first", 9000);
    std::memset(first.data(), 0xee, 9000);
    region.commit();
    region.remove("first");
    region.allocate<std::uint8_t>("second", 9000, Tracking::marked);
    region.close();
  }
  Region region = Region::open(path());
  for (const std::uint8_t byte : region.find<std::uint8_t>("second")) ASSERT_EQ(byte, 0);
}

TEST_F(RegionTest, RefusesWrongTypes) {
  Region region = Region::create(path(), options(kMiB));
  region.allocate<float>("weights", 10);
  EXPECT_EQ(error_of([&] { region.find<double>("weights"); }, {"weights", "f32", "f64"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { region.find<std::uint32_t>("weights"); }), Errc::invalid_argument);
}

TEST_F(RegionTest, TellsStructsOfOneSizeApart) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<Point>("a", 3)[1] = {1, 2};
    region.allocate<Span>("b", 3)[1] = {3, 4};
  }
  Region region = Region::open(path());
  EXPECT_EQ(region.object("a").type, "point");
  EXPECT_EQ(region.find<Point>("a")[1].y, 2);
  EXPECT_EQ(region.find<const Span>("b")[1].count, 4u) << "whether it is const is no other type";
  EXPECT_EQ(error_of([&] { region.find<Span>("a"); }, {"'a'", path(), "point", "span"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { region.find<Point>("b"); }, {"'b'", "span", "point"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { region.find<double>("a"); }, {"point", "f64"}), Errc::invalid_argument);
}

TEST_F(RegionTest, NamesTypesOfOneLayoutAlike) {
  EXPECT_STREQ(type_name<long>(), "i64");
  EXPECT_STREQ(type_name<long long>(), "i64");
  EXPECT_STREQ(type_name<unsigned long long>(), "u64");
  EXPECT_STREQ(type_name<const std::uint16_t>(), "u16");
  EXPECT_STREQ(type_name<char>(), "char");
  EXPECT_STREQ(type_name<signed char>(), "i8");
  EXPECT_STREQ(type_name<bool>(), "bool");
  EXPECT_STREQ(type_name<Colour>(), "colour") << "by a specialisation";
}

// As builds left it in which all structs had one name.
TEST_F(RegionTest, RefusesStructsWithoutANameOfTheirOwn) {
  Region region = Region::create(path(), options(kMiB));
  EXPECT_EQ(error_of([&] { region.allocate_raw("a", "struct", 8, 2, Tracking::hashed); },
                     {"'a'", "struct", "name of its own"}),
            Errc::invalid_argument);
  {
    core::Directory directory =
        core::Directory::load(static_cast<std::byte*>(region.base()), region.size(), path(),
                              [](const void*, std::size_t) {});
    const std::uint64_t offset = directory.first_fit(2 * sizeof(Point), "old");
    directory.insert({"old", "struct", offset, 2, sizeof(Point), Tracking::hashed});
  }
  region.abandon();
  region = Region::open(path());
  const std::vector<std::string> words = {"'old'", path(), "struct of 8 bytes",
                                          "address(object(\"old\"))", "remove()"};
  EXPECT_EQ(error_of([&] { region.find<Point>("old"); }, words), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { region.find<Span>("old"); }, words), Errc::invalid_argument);
  // What the message advises.
  auto* const old = static_cast<Point*>(region.address(region.object("old")));
  old[1] = {5, 6};
  const auto points = region.allocate<Point>("new", region.object("old").count);
  std::memcpy(points.data(), old, points.size_bytes());
  region.remove("old");
  EXPECT_EQ(region.find<Point>("new")[1].x, 5);
}

TEST_F(RegionTest, RefusesBadArguments) {
  Region region = Region::create(path(), options(kMiB));
  const auto code = [&](std::string_view name, std::uint64_t count) {
    return error_of([&] { region.allocate<std::uint64_t>(name, count); });
  };
  EXPECT_EQ(code("", 1), Errc::invalid_argument);
  EXPECT_EQ(code(std::string(56, 'x'), 1), Errc::invalid_argument);
  EXPECT_EQ(code(std::string_view("a\0b", 3), 1), Errc::invalid_argument);
  EXPECT_EQ(code("a", 0), Errc::invalid_argument);
  EXPECT_EQ(code("a", kMiB), Errc::no_space);
  EXPECT_EQ(code("a", ~std::uint64_t{0} / 8 + 2), Errc::no_space) << "no overflow";
  EXPECT_EQ(error_of([&] { region.allocate_raw("a", "", 1, 1, Tracking::hashed); }),
            Errc::invalid_argument);
  EXPECT_EQ(
      error_of([&] { region.allocate_raw("a", std::string(24, 't'), 1, 1, Tracking::hashed); }),
      Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { region.allocate<int>("a", 1, static_cast<Tracking>(7)); },
                     {"'a'", "enum Tracking"}),
            Errc::invalid_argument);
  EXPECT_TRUE(region.objects().empty());
  const std::vector<std::string> missing = {"'a'", path(), "make it", "objects()"};
  EXPECT_EQ(error_of([&] { region.find<int>("a"); }, missing), Errc::not_found);
  EXPECT_EQ(error_of([&] { region.object("a"); }, missing), Errc::not_found);
  EXPECT_EQ(error_of([&] { region.remove("a"); }, missing), Errc::not_found);
  region.allocate<std::uint64_t>(std::string(55, 'x'), 1);
  EXPECT_EQ(code(std::string(55, 'x'), 1), Errc::already_exists);
  std::uint64_t outside = 0;
  EXPECT_EQ(error_of([&] { region.mark(&outside, 8); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { region.mark(region.base(), kMiB + 1); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { region.grow(0); }, {path(), "to 0", std::to_string(kMiB) + " or more"}),
            Errc::invalid_argument);
  RegionOptions nowhere = options(kMiB);
  nowhere.domain = static_cast<Domain>(9);
  EXPECT_EQ(error_of([&] { Region::create(path("b"), nowhere); }, {path("b"), "enum Domain"}),
            Errc::invalid_argument);
  region.close();
  OpenOptions opening;
  opening.mode = static_cast<OpenMode>(9);
  EXPECT_EQ(error_of([&] { Region::open(path(), opening); }, {path(), "enum OpenMode"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Region::open_or_create(path("b"), options(kMiB), opening); }),
            Errc::invalid_argument);
}

TEST_F(RegionTest, RefusesImpossibleSizes) {
  EXPECT_EQ(error_of([&] { Region::create(path(), options(0)); }, {"size"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Region::create(path(), options((std::uint64_t{1} << 40) + 1)); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Region::create(path(), options(std::uint64_t{1} << 40)); },
                     {arenas(), "HOLDFAST_ARENA_DIR", "1.0 TiB"}),
            Errc::no_shared_memory);
  RegionOptions small_max = options(8 * kMiB);
  small_max.max_size = kMiB;
  EXPECT_EQ(error_of([&] { Region::create(path(), small_max); }), Errc::invalid_argument);
  EXPECT_TRUE(is_empty(folder())) << "nothing is left of a creation that failed";
  EXPECT_TRUE(is_empty(arenas()));
}

TEST_F(RegionTest, HoldsExactly512Objects) {
  Region region = Region::create(path(), options(4 * kMiB));
  for (int i = 0; i < 512; ++i) region.allocate<std::uint8_t>("object " + std::to_string(i), 1);
  EXPECT_EQ(error_of([&] { region.allocate<std::uint8_t>("one more", 1); }, {"512"}),
            Errc::no_space);
  region.close();
  region = Region::open(path());
  EXPECT_EQ(region.objects().size(), 512u);
  region.remove("object 17");
  region.allocate<std::uint8_t>("one more", 1);
}

TEST_F(RegionTest, FillsToTheLastPage) {
  Region region = Region::create(path(), options(kMiB));
  const std::uint64_t room = kMiB - core::kMetadataBytes;
  EXPECT_EQ(error_of([&] { region.allocate<std::uint8_t>("all", room + 1); }, {"grow"}),
            Errc::no_space);
  auto all = region.allocate<std::uint8_t>("all", room);
  std::memset(all.data(), 1, all.size());
  EXPECT_EQ(region.used(), region.size());
  region.close();
  region = Region::open(path());
  EXPECT_EQ(region.find<std::uint8_t>("all")[room - 1], 1);
}

TEST_F(RegionTest, GrowsInPlace) {
  Region region = Region::create(path(), options(kMiB));
  EXPECT_EQ(region.max_size(), 4 * kMiB);
  auto first = region.allocate<std::uint32_t>("first", 1000);
  std::iota(first.begin(), first.end(), 1u);
  void* const base = region.base();
  region.grow(4 * kMiB);
  EXPECT_EQ(region.base(), base);
  EXPECT_EQ(region.size(), 4 * kMiB);
  auto large = region.allocate<std::uint8_t>("large", 3 * kMiB);
  for (const std::uint8_t byte : large) ASSERT_EQ(byte, 0);
  std::memset(large.data(), 3, large.size());
  EXPECT_EQ(error_of([&] { region.grow(4 * kMiB + 1); }, {"max_size"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { region.grow(kMiB); }), Errc::invalid_argument);
  region.close();

  OpenOptions open_options;
  open_options.max_size = 64 * kMiB;
  region = Region::open(path(), open_options);
  EXPECT_EQ(region.size(), 4 * kMiB);
  EXPECT_EQ(region.max_size(), 64 * kMiB);
  EXPECT_EQ(region.find<std::uint32_t>("first")[999], 1000u);
  EXPECT_EQ(region.find<std::uint8_t>("large")[3 * kMiB - 1], 3);
}

TEST_F(RegionTest, CreatingOverSomethingFails) {
  Region::create(path(), options(kMiB)).close();
  EXPECT_EQ(error_of([&] { Region::create(path(), options(kMiB)); }, {path()}),
            Errc::already_exists);
  EXPECT_EQ(error_of([&] { Region::create(folder() + "/no/such", options(kMiB)); }),
            Errc::not_found);
  EXPECT_EQ(error_of([&] { Region::open(path("other")); }, {path("other")}), Errc::not_found);
}

TEST_F(RegionTest, UseAfterCloseThrowsClosed) {
  Region region = Region::create(path(), options(kMiB));
  region.close();
  Stream stream;
  EXPECT_EQ(error_of([&] { region.allocate<int>("a", 1); }), Errc::closed);
  EXPECT_EQ(error_of([&] { region.objects(); }), Errc::closed);
  EXPECT_EQ(error_of([&] { region.commit(); }), Errc::closed);
  EXPECT_EQ(error_of([&] { region.commit(stream); }), Errc::closed);
  EXPECT_EQ(error_of([&] { region.base(); }), Errc::closed);
  EXPECT_EQ(error_of([&] { region.marks(); }), Errc::closed);
  EXPECT_EQ(error_of([&] { region.grow(2 * kMiB); }), Errc::closed);
  EXPECT_EQ(error_of([&] { region.close(); }), Errc::closed);
  region.abandon();
}

TEST_F(RegionTest, MovesKeepTheRegionOpen) {
  Region first = Region::create(path(), options(kMiB));
  auto data = first.allocate<int>("data", 4);
  Region second = std::move(first);
  EXPECT_EQ(error_of([&] { first.size(); }), Errc::closed);
  EXPECT_EQ(second.find<int>("data").data(), data.data());
  Region third = Region::create(path("third"), options(kMiB));
  third = std::move(second);  // closes what it was
  EXPECT_EQ(third.path(), path());
  Region::open(path("third"));
}

TEST_F(RegionTest, AbandonLeavesWhatWasStored) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 4)[2] = 42;
    region.abandon();
  }
  EXPECT_FALSE(is_empty(arenas()));
  Region region = Region::open(path());
  EXPECT_TRUE(region.open_report().arena_found);
  EXPECT_EQ(region.generation(), 0u) << "nothing was committed";
  EXPECT_EQ(region.find<int>("data")[2], 42);
}

TEST_F(RegionTest, UnwindingLeavesTheRegionAsACrashWould) {
  try {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("data", 4)[2] = 42;
    throw std::runtime_error("a bug");
  } catch (const std::runtime_error&) {
  }
  Region region = Region::open(path());
  EXPECT_TRUE(region.open_report().arena_found);
  EXPECT_EQ(region.find<int>("data")[2], 42);
}

TEST_F(RegionTest, DestroyRemovesEverything) {
  {
    Region region = Region::create(path(), options(kMiB));
    EXPECT_EQ(error_of([&] { Region::destroy(path()); }, {path()}), Errc::in_use);
    region.abandon();
  }
  Region::destroy(path());
  EXPECT_TRUE(is_empty(folder()));
  EXPECT_TRUE(is_empty(arenas()));
  EXPECT_EQ(error_of([&] { Region::destroy(path()); }), Errc::not_found);
  test::write_file(path("notes"), {'h', 'e', 'l', 'l', 'o', ' ', 'y', 'o', 'u'});
  EXPECT_EQ(error_of([&] { Region::destroy(path("notes")); }), Errc::foreign);
  EXPECT_EQ(test::read_file(path("notes")).size(), 9u);
}

TEST_F(RegionTest, SaysWhatItGuarantees) {
  Region region = Region::create(path(), options(kMiB));
  EXPECT_EQ(region.domain(), Domain::file);
  EXPECT_EQ(region.guarantee().persist, Rung::process);
  EXPECT_EQ(region.guarantee().commit, Rung::power);
  EXPECT_FALSE(region.guarantee().reason.empty());
  EXPECT_EQ(region.uuid().size(), 36u);
  EXPECT_NE(region.marks().map, nullptr);
}

class VolatileRegionTest : public RegionTest, public ::testing::WithParamInterface<Domain> {};

TEST_P(VolatileRegionTest, HoldsObjectsAndPromisesNothing) {
  RegionOptions wanted = options(kMiB);
  wanted.domain = GetParam();
  Region region = Region::create("a name", wanted);
  EXPECT_EQ(region.domain(), GetParam());
  EXPECT_EQ(region.guarantee().persist, Rung::none);
  EXPECT_EQ(region.guarantee().commit, Rung::none);
  EXPECT_FALSE(region.guarantee().reason.empty());
  EXPECT_EQ(region.marks().map, nullptr);
  auto data = region.allocate<std::uint32_t>("data", 1000);
  Stream stream;
  std::vector<std::uint32_t> host(1000, 5);
  copy_async(stream, data.data(), host.data(), 4000);
  stream.synchronize();
  region.remove("data");
  data = region.allocate<std::uint32_t>("again", 1000);
  copy_async(stream, host.data(), data.data(), 4000);
  stream.synchronize();
  for (const std::uint32_t value : host) ASSERT_EQ(value, 0u) << "zeroed when handed out again";
  EXPECT_EQ(error_of([&] { region.commit(); }, {to_string(GetParam())}), Errc::unsupported);
  EXPECT_EQ(error_of([&] { region.commit(stream); }), Errc::unsupported);
  EXPECT_EQ(region.objects().size(), 1u);
  region.close();
  EXPECT_TRUE(is_empty(folder()));
}

INSTANTIATE_TEST_SUITE_P(Domains, VolatileRegionTest,
                         ::testing::Values(Domain::device, Domain::emulated),
                         [](const auto& info) { return to_string(info.param); });

TEST_F(RegionTest, ErrorCodesHaveNames) {
  EXPECT_STREQ(to_string(Errc::damaged), "damaged");
  EXPECT_STREQ(to_string(Errc::no_shared_memory), "no_shared_memory");
  EXPECT_STREQ(to_string(Errc::io), "io");
}

}  // namespace
}  // namespace holdfast

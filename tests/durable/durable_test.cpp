// Durable objects: made, opened, refused and removed.
#include "holdfast/durable.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "durable/ledger.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::Ledger;
using test::LedgerInfo;
using test::LedgerParameters;
using test::names_in;

class DurableTest : public test::Scratch {
 protected:
  Region region = Region::create(path(), options(std::uint64_t{4} << 20));
};

// Any parts at all.
struct Anything {
  static constexpr const char* kTypeName = "anything";
  static constexpr std::uint32_t kVersion = 1;
  static inline std::function<std::vector<Part>()> make;
  std::uint64_t nothing = 0;
  std::vector<Part> parts() const { return make(); }
};

TEST_F(DurableTest, IsFoundAsItWasMade) {
  {
    Ledger made = Ledger::create(region, "books", {1000, 4});
    ASSERT_EQ(made.part<std::uint64_t>("balances").size(), 1000u);
    EXPECT_EQ(made.part<std::uint64_t>("balances")[999], 0u);
    made.part<std::uint64_t>("balances")[7] = 77;
    region.mark(&made.part<std::uint64_t>("balances")[7], 8);
    made.part<LedgerInfo>("info")[0].words[2] = 5;
  }
  region.close();
  region = Region::open(path());
  Ledger found = Ledger::open(region, "books");
  EXPECT_EQ(found.parameters().accounts, 1000u);
  EXPECT_EQ(found.parameters().partitions, 4u);
  EXPECT_EQ(found.part<std::uint64_t>("balances")[7], 77u);
  EXPECT_EQ(found.part<LedgerInfo>("info")[0].words[2], 5u);
  EXPECT_EQ(found.transaction().name(), "books.tx");
  EXPECT_EQ(found.log("log").name(), "books.log");
  EXPECT_EQ(found.log("log").shape().slots, 1024u);
  EXPECT_EQ(found.log("meta").shape().layout, LogLayout::conventional);
  Stream stream;
  found.transaction().begin(stream);
  found.transaction().commit(stream);
  stream.synchronize();

  EXPECT_EQ(error_of([&] { found.part<std::uint32_t>("balances"); }, {"'books'", "u64"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { found.part<std::uint64_t>("accounts"); }, {"'accounts'"}),
            Errc::not_found);
  EXPECT_EQ(error_of([&] { found.log("balances"); }), Errc::not_found);
}

TEST_F(DurableTest, TakesTheBytesThatItSays) {
  const std::uint64_t before = region.used();
  Ledger::create(region, "books", {5000, 4});
  EXPECT_EQ(region.used() - before, Ledger::bytes({5000, 4}));
  Region exact = Region::create(path("exact"), options(Ledger::region_bytes({5000, 4})));
  Ledger::create(exact, "books", {5000, 4});
  EXPECT_EQ(exact.used(), exact.size());
}

TEST_F(DurableTest, TwoOfARegionDoNotMeet) {
  Ledger::create(region, "books", {100, 4});
  Ledger::create(region, "books.old", {200, 4});
  EXPECT_EQ(Ledger::open(region, "books").parameters().accounts, 100u);
  EXPECT_EQ(Ledger::open(region, "books.old").parameters().accounts, 200u);
  Ledger::remove(region, "books");
  EXPECT_EQ(Ledger::open(region, "books.old").part<std::uint64_t>("balances").size(), 200u);
}

TEST_F(DurableTest, MayHaveArraysAlone) {
  Anything::make = [] { return std::vector<Part>{Part::array<float>("values", 10)}; };
  Durable<Anything> made = Durable<Anything>::create(region, "plain", {});
  EXPECT_EQ(made.part<float>("values").size(), 10u);
  EXPECT_EQ(error_of([&] { made.transaction(); }, {"'plain'", "no transaction"}), Errc::not_found);
  EXPECT_EQ(error_of([&] { made.log("log"); }, {"no transaction"}), Errc::not_found);
  Anything::make = [] { return std::vector<Part>{}; };
  Durable<Anything>::create(region, "empty", {});
  Durable<Anything>::open(region, "empty");
}

TEST_F(DurableTest, WhatIsThereIsNotMadeAgain) {
  EXPECT_EQ(error_of([&] { Ledger::open(region, "books"); }, {path(), "no ledger 'books'"}),
            Errc::not_found);
  Ledger::create(region, "books", {100, 4}).part<std::uint64_t>("balances")[0] = 9;
  EXPECT_EQ(error_of(
                [&] {
                  Ledger::create(region, "books", {100, 4});
                },
                {"'books'", "open it"}),
            Errc::already_exists);
  EXPECT_EQ(Ledger::open(region, "books").part<std::uint64_t>("balances")[0], 9u);
}

TEST_F(DurableTest, WhatCannotBeIsRefusedBeforeAnythingChanges) {
  const auto refused = [&](const std::string& name, std::vector<Part> parts,
                           const std::vector<std::string>& words) {
    Anything::make = [&] { return parts; };
    EXPECT_EQ(error_of([&] { Durable<Anything>::create(region, name, {}); }, words),
              Errc::invalid_argument);
    EXPECT_TRUE(region.objects().empty());
  };
  const Part array = Part::array<float>("a", 1);
  const Part log = Part::undo_log("log", LogShape::coalesced(32, 8));
  refused("", {array}, {"its name"});
  refused(std::string(49, 'n'), {array}, {".header", "56 bytes", "55 at most", "shorter"});
  refused(std::string(45, 'n'), {Part::array<float>("ten_letter", 1)}, {"ten_letter", "56 bytes"});
  refused("x", {Part::array<float>("", 1)}, {"name of a part"});
  refused("x", {Part::array<float>(std::string("p\0q", 3), 1)}, {"'p\\0q'", "none of them zero"});
  refused("x", {Part::array<float>(std::string(24, 'p'), 1)}, {"1 to 23 bytes"});
  refused("x", {Part::array<float>("header", 1)}, {"'header' is there twice"});
  refused("x", {array, array}, {"'a' is there twice"});
  refused("x", {Part::array<float>("a", 0)}, {"0 elements"});
  refused("x", {Part::array<float>("a", ~std::uint64_t{0})}, {"'a'"});
  refused("x", {log}, {"'log' has no transaction"});
  refused("x", {log, Part::transaction()}, {"'log' has no transaction"});
  refused("x", {Part::transaction(), Part::transaction()}, {"'tx' is there twice"});
  std::vector<Part> many;
  for (int i = 0; i < 17; ++i) many.push_back(Part::array<float>(detail::concat("p", i), 1));
  refused("x", many, {"17 parts", "16"});
  EXPECT_EQ(error_of([&] { Part::undo_log("log", LogShape::coalesced(0, 8)); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of(
                [&] {
                  Ledger::create(region, "books", {0, 4});
                },
                {"0 accounts"}),
            Errc::invalid_argument);
  EXPECT_TRUE(region.objects().empty());
  many.pop_back();
  Anything::make = [&] { return many; };
  Durable<Anything>::create(region, std::string(48, 'n'), {});
  Durable<Anything>::open(region, std::string(48, 'n'));
}

TEST_F(DurableTest, RoomIsAskedForBeforeAnythingChanges) {
  const LedgerParameters large{1 << 20, 4};
  EXPECT_EQ(error_of([&] { Ledger::create(region, "books", large); },
                     {"ledger 'books'", std::to_string(Ledger::bytes(large)),
                      std::to_string(region.size() - region.used()), "grow()"}),
            Errc::no_space);
  EXPECT_TRUE(region.objects().empty());

  // Room enough, in pieces that are too small for the balances.
  for (int i = 0; i < 400; ++i) region.allocate<std::uint8_t>(detail::concat("page", i), 1);
  region.allocate<std::uint8_t>("rest", region.size() - region.used());
  for (int i = 0; i < 400; i += 2) region.remove(detail::concat("page", i));
  const std::vector<std::string> before = names_in(region);
  EXPECT_EQ(error_of(
                [&] {
                  Ledger::create(region, "books", {10000, 4});
                },
                {"not in one piece", "grow()"}),
            Errc::no_space);
  EXPECT_EQ(names_in(region), before);
}

TEST_F(DurableTest, ARegionHoldsOnlySoManyObjects) {
  for (int i = 0; i < 507; ++i) region.allocate<std::uint8_t>(detail::concat("page", i), 1);
  EXPECT_EQ(error_of(
                [&] {
                  Ledger::create(region, "books", {10, 4});
                },
                {"6 objects", "512"}),
            Errc::no_space);
  EXPECT_EQ(region.objects().size(), 507u);
  region.remove("page0");
  Ledger::create(region, "books", {10, 4});
  EXPECT_EQ(region.objects().size(), 512u);
}

TEST_F(DurableTest, ObjectsOfOthersAreLeftAlone) {
  region.allocate<std::uint8_t>("books.meta", 5);
  EXPECT_EQ(error_of(
                [&] {
                  Ledger::create(region, "books", {10, 4});
                },
                {"'books.meta'", "remove it"}),
            Errc::already_exists);
  EXPECT_EQ(error_of([&] { Ledger::open(region, "books"); }, {"'books'", "create it"}),
            Errc::not_found);
  EXPECT_EQ(error_of([&] { Ledger::remove(region, "books"); }), Errc::not_found);
  region.allocate<std::uint64_t>("books.header", 5);
  for (const auto& call : std::initializer_list<std::function<void()>>{
           [&] {
             Ledger::create(region, "books", {10, 4});
           },
           [&] { Ledger::open(region, "books"); }, [&] { Ledger::remove(region, "books"); }}) {
    EXPECT_EQ(error_of(call, {"'books'", "u64", "earlier version", "make it again"}),
              Errc::unsupported);
  }
  EXPECT_EQ(names_in(region), (std::vector<std::string>{"books.header", "books.meta"}));
}

TEST_F(DurableTest, IsRemovedWhole) {
  region.allocate<std::uint8_t>("books", 5);
  Ledger::create(region, "books", {100, 4}).part<std::uint64_t>("balances")[3] = 1;
  Ledger::remove(region, "books");
  EXPECT_EQ(names_in(region), std::vector<std::string>{"books"});
  EXPECT_EQ(error_of([&] { Ledger::remove(region, "books"); }, {"'books'"}), Errc::not_found);
  EXPECT_EQ(Ledger::create(region, "books", {50, 4}).part<std::uint64_t>("balances")[3], 0u);
}

TEST_F(DurableTest, OfARegionThatIsOpenForReadingIsOpenedAlone) {
  Ledger::create(region, "books", {100, 4});
  {
    Ledger made = Ledger::open(region, "books");
    Stream stream;
    made.transaction().begin(stream);  // cut off
    stream.synchronize();
  }
  region.abandon();
  region = Region::open(path(), for_reading());
  EXPECT_TRUE(Ledger::open(region, "books").transaction().interrupted());
  EXPECT_EQ(error_of(
                [&] {
                  Ledger::create(region, "more", {100, 4});
                },
                {"open for reading"}),
            Errc::unsupported);
  EXPECT_EQ(error_of([&] { Ledger::remove(region, "books"); }, {"open for reading"}),
            Errc::unsupported);
}

TEST_F(DurableTest, GoesWithItsRegion) {
  Ledger made = Ledger::create(region, "books", {100, 4});
  Region moved = std::move(region);
  Stream stream;
  made.transaction().begin(stream);
  made.transaction().commit(stream);
  stream.synchronize();
  EXPECT_FALSE(Ledger::open(moved, "books").transaction().interrupted());
}

}  // namespace
}  // namespace holdfast

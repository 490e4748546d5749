// What stands in the way of a durable object: refused by name, before anything changes.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "durable/header.hpp"
#include "durable/ledger.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using durable::Header;
using test::error_of;
using test::Ledger;
using test::names_in;

// Any parts at all.
struct Parted {
  static constexpr const char* kTypeName = "parted";
  static constexpr std::uint32_t kVersion = 1;
  static inline std::vector<Part> all;
  std::uint64_t nothing = 0;
  std::vector<Part> parts() const { return all; }
};
struct PartedLater : Parted {
  static constexpr std::uint32_t kVersion = 2;
};

class DurableRefusal : public test::Scratch {
 protected:
  // As a kill before the last part would leave it.
  void cut_off() {
    Ledger::create(region, "books", {100, 4});
    region.find<Header>("books.header")[0].magic = Header::kMaking;
    region.remove("books.meta");
  }
  Errc created(const std::vector<std::string>& words = {}) {
    const std::vector<std::string> before = names_in(region);
    const Errc code = error_of([&] { Ledger::create(region, "books", {100, 4}); }, words);
    EXPECT_EQ(names_in(region), before);
    return code;
  }
  Errc refused(const std::vector<Part>& parts, const std::vector<std::string>& words) {
    const std::vector<std::string> before = names_in(region);
    Parted::all = parts;
    const Errc code = error_of([&] { Durable<Parted>::create(region, "x", {}); }, words);
    EXPECT_EQ(names_in(region), before);
    return code;
  }

  Region region = Region::create(path(), options(std::uint64_t{4} << 20));
};

TEST_F(DurableRefusal, OnlyWhatTheHeaderListsIsLeftOfACutOffCreation) {
  struct Other {
    const char* type;
    std::uint32_t element_bytes;
    std::uint64_t count;
    Tracking tracking;
  };
  for (const Other& other :
       {Other{"f64", 8, 100, Tracking::marked}, Other{"u64", 4, 100, Tracking::marked},
        Other{"u64", 8, 101, Tracking::marked}, Other{"u64", 8, 100, Tracking::hashed}}) {
    cut_off();
    region.remove("books.balances");
    auto* const theirs = static_cast<unsigned char*>(region.allocate_raw(
        "books.balances", other.type, other.element_bytes, other.count, other.tracking));
    theirs[5] = 55;
    EXPECT_EQ(created({"'books.balances'", path(), "remove it"}), Errc::already_exists);
    EXPECT_EQ(theirs[5], 55u);
    region.remove("books.balances");
    Ledger::create(region, "books", {100, 4});
    Ledger::remove(region, "books");
    EXPECT_TRUE(region.objects().empty());
  }
}

TEST_F(DurableRefusal, ALogOfAnotherTransactionIsNotLeftOfACutOffCreation) {
  cut_off();
  Transaction::create(region, "other")
      .create_log(region, "books.meta", LogShape::conventional(4, sizeof(test::LedgerInfo)));
  EXPECT_EQ(created({"'books.meta'", "remove it"}), Errc::already_exists);
  EXPECT_NO_THROW(Transaction::open(region, "other").log("books.meta"));
}

// Stores of its header that came before the magic number say nothing yet.
TEST_F(DurableRefusal, ALogThatWasBeingMadeIsLeftOfACutOffCreation) {
  Ledger::create(region, "books", {100, 4});
  region.find<Header>("books.header")[0].magic = Header::kMaking;
  auto* const log = static_cast<char*>(region.address(region.object("books.meta")));
  std::memset(log, 0, 8);
  ASSERT_EQ(std::string(log + 24), "books.tx");
  log[24 + 7] = '\0';
  Ledger::create(region, "books", {50, 4});
  EXPECT_EQ(Ledger::open(region, "books").parameters().accounts, 50u);
}

TEST_F(DurableRefusal, ARemovalLeavesWhatTookThePlaceOfAPart) {
  Ledger::create(region, "books", {100, 4});
  region.remove("books.info");
  region.allocate<float>("books.info", 7)[6] = 1.5f;
  Ledger::remove(region, "books");
  EXPECT_EQ(names_in(region), std::vector<std::string>{"books.info"});
  EXPECT_EQ(region.find<float>("books.info")[6], 1.5f);
}

TEST_F(DurableRefusal, NoPartIsCalledAsOneOfAnotherObject) {
  Parted::all = {Part::array<std::uint64_t>("x", 10)};
  Durable<Parted>::create(region, "x.b", {}).part<std::uint64_t>("x")[0] = 99;
  EXPECT_EQ(refused({Part::array<std::uint64_t>("b.x", 10)}, {"'b.x'", "'.'"}),
            Errc::invalid_argument);
  EXPECT_EQ(region.find<std::uint64_t>("x.b.x")[0], 99u);
}

TEST_F(DurableRefusal, AnArrayIsNoMoreThanAnArray) {
  Part part = Part::array<std::uint64_t>("x", 10);
  part.type = "struct";
  EXPECT_EQ(refused({part}, {"'x'", "'struct'"}), Errc::invalid_argument);
  EXPECT_EQ(refused({Part::array<std::uint64_t>("tx", 10)}, {"'tx'", "another name"}),
            Errc::invalid_argument);
  part = Part::array<std::uint64_t>("x", 10);
  part.shape = LogShape::coalesced(32, 8);
  EXPECT_EQ(refused({part}, {"'x'", "Part::array()"}), Errc::invalid_argument);
}

TEST_F(DurableRefusal, ALogOfATransactionThatIsGoneIsFoundFirst) {
  Transaction::create(region, "books.tx").create_log(region, "foo", LogShape::coalesced(32, 8));
  region.remove("books.tx");
  EXPECT_EQ(created({"'foo'", "'books.tx'", path(), "Region::remove()"}), Errc::already_exists);
  region.remove("foo");
  Ledger::create(region, "books", {100, 4});
}

TEST_F(DurableRefusal, ALogThatIsNoPartKeepsItsObjectFromBeingRemoved) {
  Ledger made = Ledger::create(region, "books", {100, 4});
  made.transaction().create_log(region, "foo", LogShape::coalesced(32, 8));
  const std::vector<std::string> before = names_in(region);
  EXPECT_EQ(error_of([&] { Ledger::remove(region, "books"); }, {"'foo'", "remove_log()"}),
            Errc::invalid_argument);
  EXPECT_EQ(names_in(region), before);
  Ledger::open(region, "books").transaction().remove_log(region, "foo");
  Ledger::remove(region, "books");
  EXPECT_TRUE(region.objects().empty());
}

TEST_F(DurableRefusal, ADamagedLogIsFoundFirst) {
  Transaction::create(region, "other").create_log(region, "theirs", LogShape::coalesced(32, 8));
  auto* const header = static_cast<unsigned char*>(region.address(region.object("theirs")));
  header[8] ^= 1;
  EXPECT_EQ(created({"'theirs'", path(), "damaged"}), Errc::damaged);
  Parted::all = {Part::array<float>("values", 10)};
  Durable<Parted>::create(region, "without a transaction", {});
  header[8] ^= 1;
  Ledger::create(region, "books", {100, 4});
  header[8] ^= 1;
  Ledger::remove(region, "books");  // whose the damaged one is cannot be told
  header[8] ^= 1;
  EXPECT_NO_THROW(Transaction::open(region, "other").log("theirs"));
}

TEST_F(DurableRefusal, PartsThatAreMadeByHandAreChecked) {
  const auto with = [](Part part, const std::function<void(Part&)>& change) {
    change(part);
    return part;
  };
  const Part array = Part::array<float>("a", 10);
  const Part tx = Part::transaction();
  const Part log = Part::undo_log("l", LogShape::coalesced(32, 8));
  const auto expect = [&](const std::vector<Part>& parts, const std::vector<std::string>& words) {
    EXPECT_EQ(refused(parts, words), Errc::invalid_argument);
  };
  expect({with(array, [](Part& it) { it.kind = static_cast<Part::Kind>(9); })}, {"'a'", "kind 9"});
  expect({with(array, [](Part& it) { it.tracking = static_cast<Tracking>(9); })},
         {"'a'", "tracking 9"});
  for (const char* type : {"undo_log", "transaction", "durable", "checkpoint"}) {
    expect({with(array, [&](Part& it) { it.type = type; })}, {"'a'", type});
  }
  expect({with(tx, [](Part& it) { it.name = "other"; })}, {"'other'", "'tx'"});
  expect({with(tx, [](Part& it) { it.count = 2; })}, {"'tx'", "Part::transaction()"});
  expect({with(tx, [](Part& it) { it.tracking = Tracking::none; })}, {"Part::transaction()"});
  expect({tx, with(log, [](Part& it) { it.shape.slots = 0; })}, {"'l'", "0 slots"});
  expect({tx, with(log, [](Part& it) { it.shape.slots *= 2; })}, {"'l'", "Part::undo_log()"});
  expect({tx, with(log, [](Part& it) { it.shape.layout = static_cast<LogLayout>(7); })},
         {"'l'", "layout 7"});
  expect({tx, with(log, [](Part& it) { it.type = "u8"; })}, {"'l'", "Part::undo_log()"});
  EXPECT_EQ(error_of(
                [&] {
                  Part::undo_log("l", {static_cast<LogLayout>(7), 32, 8});
                },
                {"layout"}),
            Errc::invalid_argument);
}

TEST_F(DurableRefusal, BytesThatOverflowAreNoBytes) {
  for (const std::uint64_t count : {(std::uint64_t{1} << 61) + 1, ~std::uint64_t{0}}) {
    Parted::all = {Part::array<std::uint64_t>("a", count)};
    EXPECT_EQ(error_of([&] { Durable<Parted>::bytes({}); }, {"'a'", std::to_string(count)}),
              Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { Durable<Parted>::region_bytes({}); }), Errc::invalid_argument);
  }
}

TEST_F(DurableRefusal, WhatOnlyBeginsWithItsNameIsNotIt) {
  region.allocate<float>("x.unrelated", 5);
  Parted::all = {Part::array<float>("a", 10)};
  Durable<Parted>::create(region, "x.y", {});
  EXPECT_EQ(error_of([&] { Durable<Parted>::open(region, "x"); }, {"'x'", "create it"}),
            Errc::not_found);
  Durable<Parted>::create(region, "x", {});
  EXPECT_NO_THROW(Durable<Parted>::open(region, "x"));
  // A transaction of that name is what every structure had before there were headers.
  Transaction::create(region, "z.tx");
  EXPECT_EQ(error_of([&] { Durable<Parted>::open(region, "z"); }, {"'z.tx'", "Region::remove()"}),
            Errc::unsupported);
}

TEST_F(DurableRefusal, AnOlderVersionIsToldWhatRemovesIt) {
  Parted::all = {Part::array<float>("a", 10)};
  Durable<Parted>::create(region, "x", {});
  EXPECT_EQ(error_of([&] { Durable<PartedLater>::open(region, "x"); }, {"version 1", "remove()"}),
            Errc::unsupported);
  EXPECT_EQ(error_of([&] { Durable<PartedLater>::create(region, "x", {}); },
                     {"a parted of version 1", "remove()"}),
            Errc::already_exists);
  Durable<PartedLater>::remove(region, "x");
  Durable<PartedLater>::create(region, "x", {});
}

TEST_F(DurableRefusal, OneThatWasMovedFromIsClosed) {
  Ledger from = Ledger::create(region, "books", {100, 4});
  const Ledger to = std::move(from);
  EXPECT_EQ(error_of([&] { from.transaction(); }, {"moved"}), Errc::closed);
  EXPECT_EQ(error_of([&] { from.log("log"); }, {"moved"}), Errc::closed);
  EXPECT_EQ(error_of([&] { from.part<std::uint64_t>("balances"); }, {"moved"}), Errc::closed);
  EXPECT_EQ(to.part<std::uint64_t>("balances").size(), 100u);
}

}  // namespace
}  // namespace holdfast

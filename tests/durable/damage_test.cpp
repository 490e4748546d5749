// Durable objects that are not as they were made: every one is refused, by what is wrong with it.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "durable/header.hpp"
#include "durable/ledger.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using durable::Header;
using test::error_of;
using test::Ledger;

class DurableDamage : public test::Scratch {
 protected:
  DurableDamage() { Ledger::create(region, "books", {1000, 4}); }
  Header& header() { return region.find<Header>("books.header")[0]; }
  Errc opened(const std::vector<std::string>& words = {}) {
    return error_of([&] { Ledger::open(region, "books"); }, words);
  }
  // Opens it with a header that says something else, and whose checksum holds.
  Errc opened_as(const std::function<void(Header&)>& change,
                 const std::vector<std::string>& words = {}) {
    const Header before = header();
    change(header());
    header().checksum = durable::checksum_of(header());
    const Errc code = opened(words);
    header() = before;
    return code;
  }

  Region region = Region::create(path(), options(std::uint64_t{4} << 20));
};

TEST_F(DurableDamage, EveryByteOfTheHeaderIsChecked) {
  auto* const bytes = reinterpret_cast<unsigned char*>(&header());
  const test::Every tried = test::every();
  for (std::uint64_t i = tried.first; i < sizeof(Header); i += tried.step) {
    const unsigned char before = bytes[i];
    for (const unsigned flip : {1u << i % 8, 0xffu, 0x1au}) {
      bytes[i] = static_cast<unsigned char>(before ^ flip);
      ASSERT_EQ(opened({"'books'", path(), "damaged header"}), Errc::damaged) << i;
    }
    bytes[i] = 0;
    if (before != 0) {
      ASSERT_EQ(opened(), Errc::damaged) << i;
      ASSERT_EQ(error_of([&] { Ledger::create(region, "books", {1000, 4}); }), Errc::damaged) << i;
      ASSERT_EQ(error_of([&] { Ledger::remove(region, "books"); }), Errc::damaged) << i;
    }
    bytes[i] = before;
  }
  Ledger::open(region, "books");
}

// The first bytes alone are zero as those of a creation that was cut off are; parts, which such a
// one has not, say that this was whole.
TEST_F(DurableDamage, AHeaderThatBeginsWithZeroesIsDamaged) {
  const Header before = header();
  const std::vector<std::string> objects = test::names_in(region);
  for (const std::size_t bytes : {8, 16}) {
    std::memset(&header(), 0, bytes);
    EXPECT_EQ(opened({"'books'", "damaged header"}), Errc::damaged) << bytes;
    const auto create = [&] { Ledger::create(region, "books", {1000, 4}); };
    EXPECT_EQ(error_of(create), Errc::damaged) << bytes;
    EXPECT_EQ(error_of([&] { Ledger::remove(region, "books"); }), Errc::damaged) << bytes;
    EXPECT_EQ(test::names_in(region), objects);
    header() = before;
    Ledger::open(region, "books");
  }
  // Of a creation that was cut off there is the header alone.
  header().magic = 0;
  for (const std::string& object : objects) {
    if (object != "books.header") region.remove(object);
  }
  EXPECT_EQ(opened({"cut off"}), Errc::not_found);
  Ledger::create(region, "books", {1000, 4});
  EXPECT_EQ(test::names_in(region).size(), objects.size());
}

// A page that was lost reads as zeroes, as after a creation that was cut off: any part that is left
// says that it was none, whatever the parameters of the next creation are. Nothing is touched.
TEST_F(DurableDamage, AHeaderOfZeroesIsDamagedWhereAPartIsLeft) {
  const Header before = header();
  for (const std::string& left : test::ledger_objects()) {
    if (left == "books.header") continue;
    SCOPED_TRACE(left);
    for (const std::string& object : test::ledger_objects()) {
      if (object != "books.header" && object != left) region.remove(object);
    }
    header() = {};
    const std::vector<std::string> objects = test::names_in(region);
    const std::vector<std::string> words = {"'books.header'", "'" + left + "'", "last commit"};
    EXPECT_EQ(opened(words), Errc::damaged);
    for (const std::uint64_t accounts : {1000, 7}) {
      EXPECT_EQ(error_of(
                    [&] {
                      Ledger::create(region, "books", {accounts, 4});
                    },
                    words),
                Errc::damaged);
    }
    EXPECT_EQ(error_of([&] { Ledger::remove(region, "books"); }, words), Errc::damaged);
    EXPECT_EQ(test::names_in(region), objects);
    header() = before;
    Ledger::remove(region, "books");
    Ledger::create(region, "books", {1000, 4});
  }
}

// Objects of another durable object whose name begins alike are no parts.
TEST_F(DurableDamage, AHeaderOfZeroesAloneIsOfACreationThatWasCutOff) {
  Ledger::remove(region, "books");
  Ledger::create(region, "books.old", {10, 4});
  Ledger::create(region, "bookshelf", {10, 4});
  region.allocate<Header>("books.header", 1, Tracking::marked);
  EXPECT_EQ(opened({"cut off"}), Errc::not_found);
  Ledger::create(region, "books", {1000, 4});
  Ledger::open(region, "books");
  EXPECT_EQ(Ledger::open(region, "books.old").parameters().accounts, 10u);
}

TEST_F(DurableDamage, AHeaderThatSaysSomethingElseIsRefused) {
  EXPECT_EQ(opened_as([](Header& it) { it.format += 1; }, {"format 2", "newer build"}),
            Errc::newer_version);
  EXPECT_EQ(opened_as([](Header& it) { it.version += 1; }, {"version 3", "newer build"}),
            Errc::newer_version);
  EXPECT_EQ(opened_as([](Header& it) { it.version -= 1; }, {"version 1", "make it again"}),
            Errc::unsupported);
  EXPECT_EQ(opened_as([](Header& it) { it.type[0] = 'h'; }, {"is a hedger, not a ledger"}),
            Errc::invalid_argument);
  EXPECT_EQ(opened_as([](Header& it) { std::memset(it.type, 'h', sizeof(it.type)); }),
            Errc::invalid_argument);
  EXPECT_EQ(opened_as([](Header& it) { it.parameter_bytes -= 8; }, {"another size"}),
            Errc::damaged);
  EXPECT_EQ(opened_as([](Header& it) { it.parts = 200; }), Errc::damaged);
  EXPECT_EQ(opened_as([](Header& it) { it.parts -= 1; }), Errc::damaged);
  const auto with_accounts = [](std::uint64_t accounts) {
    return [=](Header& it) { std::memcpy(it.parameters, &accounts, sizeof(accounts)); };
  };
  EXPECT_EQ(opened_as(with_accounts(1001), {"parameters make"}), Errc::damaged);
  EXPECT_EQ(opened_as(with_accounts(0), {"cannot be", "0 accounts"}), Errc::damaged);
  EXPECT_EQ(opened_as(with_accounts(~std::uint64_t{0})), Errc::damaged);
  for (unsigned part = 0; part < 5; ++part) {
    EXPECT_EQ(opened_as([=](Header& it) { it.table[part].count += 1; }), Errc::damaged);
    EXPECT_EQ(opened_as([=](Header& it) { it.table[part].name[0] = 'x'; }), Errc::damaged);
  }
  EXPECT_EQ(opened_as([](Header& it) { it.table[3].slots += 32; }), Errc::damaged);
  Ledger::open(region, "books");
}

TEST_F(DurableDamage, APartThatIsGoneIsMissed) {
  for (const std::string& object : test::ledger_objects()) {
    if (object == "books.header") continue;
    region.remove(object);
    EXPECT_EQ(opened({"'" + object + "'", path(), "is gone"}), Errc::damaged) << object;
    Ledger::remove(region, "books");
    Ledger::create(region, "books", {1000, 4});
  }
}

TEST_F(DurableDamage, APartThatIsAnotherIsSeen) {
  for (const std::string& object : test::ledger_objects()) {
    if (object == "books.header") continue;
    const ObjectInfo info = region.object(object);
    const Tracking other = info.tracking == Tracking::marked ? Tracking::hashed : Tracking::marked;
    const auto replaced = [&](const std::string& type, std::uint32_t bytes, std::uint64_t count,
                              Tracking tracking) {
      region.remove(object);
      region.allocate_raw(object, type, bytes, count, tracking);
      EXPECT_EQ(opened({"'" + object + "'"}), Errc::damaged) << object;
    };
    replaced(info.type, info.element_bytes, info.count + 1, info.tracking);
    replaced(info.type, info.element_bytes + 1, info.count, info.tracking);
    replaced("another", info.element_bytes, info.count, info.tracking);
    replaced(info.type, info.element_bytes, info.count, other);
    // As it was, but empty: arrays may be so, transactions and logs may not.
    region.remove(object);
    region.allocate_raw(object, info.type, info.element_bytes, info.count, info.tracking);
    if (info.type == "transaction" || info.type == "undo_log") {
      EXPECT_EQ(opened({"'" + object + "'"}), Errc::damaged) << object;
    }
    Ledger::remove(region, "books");
    Ledger::create(region, "books", {1000, 4});
  }
}

TEST_F(DurableDamage, ALogOfAnotherShapeOrTransactionIsSeen) {
  const std::uint64_t bytes = region.object("books.meta").bytes();
  Transaction tx = Transaction::open(region, "books.tx");
  tx.remove_log(region, "books.meta");
  // As many bytes: 24 of 4 partitions, or of 3 of 32.
  tx.create_log(region, "books.meta", LogShape::conventional(3, 32));
  ASSERT_EQ(region.object("books.meta").bytes(), bytes);
  EXPECT_EQ(opened({"'books.meta'", "another shape"}), Errc::damaged);

  Transaction::open(region, "books.tx").remove_log(region, "books.meta");
  Transaction::create(region, "other")
      .create_log(region, "books.meta", LogShape::conventional(4, 24));
  EXPECT_EQ(opened({"'books.meta'", "no undo log"}), Errc::damaged);
}

}  // namespace
}  // namespace holdfast

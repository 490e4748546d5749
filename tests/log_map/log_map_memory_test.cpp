// Memory that runs out at each allocation of a creation in turn.
#include <optional>

#include "log_map/log_map_test.hpp"
#include "support/failing_memory.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

class LogMapMemory : public Scratch {};

TEST_F(LogMapMemory, ACreationThatFailsIsNoneAndCanBeMadeAgain) {
  const LogMap::Options shape = log_map_options(100, 16, 100);
  RegionOptions options;
  options.size = LogMap::region_bytes(shape) + (1 << 20);
  Region region = Region::create(path(), options);
  int failures = 0;
  const Every tried = every(1, 32);
  for (std::uint64_t which = tried.first;; which += tried.step) {
    SCOPED_TRACE(which);
    ASSERT_LT(which, 100'000u);
    bool made = true;
    FailingMemory memory(which, Fails::once);
    try {
      (void)LogMap::create(region, "map", shape);
    } catch (const Error& error) {
      made = false;
      EXPECT_NE(error.code(), Errc::already_exists) << error.what();
    } catch (const std::exception&) {
      made = false;
    }
    const bool failed = memory.end();
    failures += made ? 0 : 1;
    if (!made) {
      ASSERT_EQ(error_of([&] { (void)LogMap::open(region, "map"); }), Errc::not_found);
      LogMap again = LogMap::create(region, "map", shape);
      ASSERT_EQ(again.verify(), "");
    }
    LogMap::remove(region, "map");
    if (!failed) break;
  }
  EXPECT_GT(failures, static_cast<int>(10 / tried.step));
}

// What the map holds, or nothing where it says that it has to be opened again.
std::optional<Oracle> contents_of(const LogMapOpened& opened) {
  try {
    if (const std::string wrong = opened.map->verify(); !wrong.empty()) ADD_FAILURE() << wrong;
    return opened.contents();
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == Errc::device || error.code() == Errc::no_memory) << error.what();
    return std::nullopt;
  }
}

TEST_F(LogMapMemory, ABatchThatFailsIsThereWholeOrNotAndNoPlaceIsLost) {
  LogMapOpened opened = LogMapOpened::create(path(), log_map_options(200, 32, 100, 2048));
  Oracle oracle;
  int failures = 0;
  for (std::uint64_t which = 0, n = 0;; ++which, ++n) {
    SCOPED_TRACE(which);
    ASSERT_LT(which, 100'000u);
    const NumberedBatch batch(n, 80, 200, 32);
    Oracle after = oracle;
    batch.apply(after);
    bool done = true;
    std::vector<MapStatus> status(batch.keys.size());
    FailingMemory memory(which, Fails::once);
    try {
      batch.apply(opened, n % 3 == 0 ? status.data() : nullptr);
    } catch (const std::exception&) {
      done = false;
    }
    const bool failed = memory.end();
    failures += done ? 0 : 1;
    std::optional<Oracle> now = contents_of(opened);
    if (!now) {
      opened.kill();
      opened = LogMapOpened::open(path());
      now = contents_of(opened);
    }
    ASSERT_TRUE(now.has_value());
    ASSERT_TRUE(*now == after || (!done && *now == oracle));
    oracle = *now;
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    if (!failed && n > 8) break;  // batches of both kinds, and cleaning
  }
  EXPECT_GT(failures, 5);
}

// Calls body() with each of its allocations failing in turn, and between() between two of them.
template <class Body, class Between>
int with_failures(const Every& tried, Body&& body, Between&& between) {
  int failures = 0;
  // The first one in any case: some calls have but a few.
  for (std::uint64_t which = 0; which < 100'000; which = tried.behind(which)) {
    SCOPED_TRACE(which);
    between();
    FailingMemory memory(which, Fails::once);
    try {
      body();
    } catch (const std::exception&) {
      ++failures;
    }
    if (!memory.end()) return failures;
  }
  ADD_FAILURE() << "there is no end to its allocations";
  return failures;
}

class LogMapMemoryOf : public Scratch, public ::testing::WithParamInterface<Form> {};
INSTANTIATE_TEST_SUITE_P(Forms, LogMapMemoryOf, ::testing::Values(Form::whole, Form::fingerprints),
                         [](const auto& info) {
                           return info.param == Form::whole ? "whole" : "fingerprints";
                         });

// What was queued for a call that failed uses its buffers no more (a sanitizer tells, or malloc()).
TEST_P(LogMapMemoryOf, OpeningsAndLooksThatFailLeaveNothingUnderWay) {
  LogMapOpened opened =
      LogMapOpened::create(path(), log_map_options(200, 32, 100, 2048, GetParam()));
  Oracle oracle;
  Keys keys;
  for (std::uint64_t n = 0; n < 40; ++n) {
    const NumberedBatch batch(n, 80, 200, 32);
    batch.apply(oracle);
    batch.apply(opened);
    keys = batch.keys;
  }
  const auto again = [&] {
    opened.kill();
    opened = LogMapOpened::open(path(), GetParam());
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  };
  std::vector<std::uint8_t> found(keys.size());
  Rows rows(keys.size() * 32);
  const Every tried = every();
  const int failures = with_failures(
      tried,
      [&] {
        opened.map.reset();
        opened.map = std::make_unique<LogMap>(LogMap::open(*opened.region, "map", GetParam()));
      },
      again);
  const int few = static_cast<int>(5 / tried.step);
  EXPECT_GT(failures, 2 * few);
  EXPECT_GT(with_failures(
                tried, [&] { (void)opened.map->verify(); }, again),
            few);
  EXPECT_GT(
      with_failures(
          tried, [&] { opened.map->find(keys.data(), rows.data(), found.data(), keys.size()); },
          again),
      few / 2);
  EXPECT_GT(with_failures(
                tried, [&] { (void)opened.contents(); }, again),
            few);
}

}  // namespace
}  // namespace holdfast::test

// Changes that CPU threads bring to the medium: where they land, and what a crash leaves of them.
#include "workload/delta.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/still_fork.hpp"
#include "workload/workload.hpp"

namespace {

using holdfast::Errc;
using holdfast::test::error_of;
using workload::Backing;
using workload::BackingOptions;
using workload::Cell;
using workload::Delta;
using workload::DeltaOrder;
using workload::DeltaTile;
using workload::Mode;

constexpr std::uint64_t kCells = 100'000;
constexpr std::uint64_t kMost = 30'000;

struct Change {
  std::uint32_t cell;
  std::uint64_t value;
};

// An array of cells, and its changes.
struct Instance {
  Instance(const std::string& path, Mode mode, DeltaOrder order = DeltaOrder::gathered)
      : backing(options(path, mode)) {
    array = backing.array<Cell>("cells", kCells);
    delta.emplace(backing, array, kMost, order);
    if (backing.progress() == 0) backing.set_progress(1);
  }
  static BackingOptions options(const std::string& path, Mode mode) {
    BackingOptions result;
    result.mode = mode;
    result.path = path;
    result.capacity = kCells * sizeof(Cell) + Delta::medium_bytes(mode, kMost);
    result.cpu_threads = 3;
    return result;
  }
  // As a kernel would: in the array's copy, too.
  void change(const std::vector<Change>& changes, std::uint64_t progress) {
    std::vector<DeltaTile> tiles(changes.size() / DeltaTile::kChanges + 1);
    for (std::size_t i = 0; i < changes.size(); ++i) {
      DeltaTile& tile = tiles[i / DeltaTile::kChanges];
      tile.cell[i % DeltaTile::kChanges] = changes[i].cell;
      tile.value[i % DeltaTile::kChanges] = value_of(changes[i].value);
    }
    const std::uint64_t used = (changes.size() + DeltaTile::kChanges - 1) / DeltaTile::kChanges;
    holdfast::copy_async(backing.stream(), delta->ref().tiles, tiles.data(),
                         used * sizeof(DeltaTile));
    delta->publish(changes.size(), progress);
  }
  static Cell value_of(std::uint64_t value) { return {{value, ~value}}; }
  std::uint64_t on_medium(std::uint64_t cell) const {
    return reinterpret_cast<const Cell*>(backing.on_medium(array.id))[cell].halves[0];
  }
  void store_on_medium(std::uint64_t cell, std::uint64_t value) {
    reinterpret_cast<Cell*>(backing.on_medium(array.id))[cell] = value_of(value);
  }

  Backing backing;
  workload::Array<Cell> array;
  std::optional<Delta> delta;
};

std::vector<Change> every_third(std::uint64_t value) {
  std::vector<Change> changes;
  for (std::uint32_t i = 0; i < kMost; ++i) changes.push_back({3 * i, value});
  return changes;
}

using Kind = std::tuple<Mode, DeltaOrder>;
class EachDelta : public holdfast::test::Scratch, public ::testing::WithParamInterface<Kind> {
 protected:
  Mode mode() const { return std::get<Mode>(GetParam()); }
  DeltaOrder order() const { return std::get<DeltaOrder>(GetParam()); }
};
std::string name_of(const ::testing::TestParamInfo<Kind>& info) {
  const bool logged = std::get<Mode>(info.param) == Mode::cap_delta;
  const bool sorted = std::get<DeltaOrder>(info.param) == DeltaOrder::sorted;
  return std::string(logged ? "logged" : "raw") + (sorted ? "_sorted" : "");
}
INSTANTIATE_TEST_SUITE_P(Modes, EachDelta,
                         ::testing::Combine(::testing::Values(Mode::cap_delta, Mode::cap_delta_raw),
                                            ::testing::Values(DeltaOrder::gathered,
                                                              DeltaOrder::sorted)),
                         name_of);

TEST_P(EachDelta, ChangesLandWhereTheyBelong) {
  std::mt19937_64 random(holdfast::test::test_seed());
  std::vector<std::uint64_t> expected(kCells);
  {
    Instance first(path(), mode(), order());
    std::uint64_t progress = 1;
    for (const std::uint64_t count : {0ull, 1ull, 31ull, 32ull, 33ull, 5000ull, 30'000ull}) {
      std::vector<std::uint32_t> cells(kCells);
      for (std::uint32_t i = 0; i < kCells; ++i) cells[i] = i;
      std::shuffle(cells.begin(), cells.end(), random);
      std::vector<Change> changes;
      for (std::uint64_t i = 0; i < count; ++i) {
        changes.push_back({cells[i], random()});
        expected[cells[i]] = changes.back().value;
      }
      const std::uint64_t before = first.backing.bytes_written();
      first.change(changes, ++progress);
      EXPECT_EQ(first.backing.progress(), progress);
      EXPECT_GE(first.backing.bytes_written() - before, count * sizeof(Cell));
      for (std::uint64_t i = 0; i < kCells; ++i) ASSERT_EQ(first.on_medium(i), expected[i]) << i;
    }
  }
  Instance second(path(), mode(), order());
  const std::vector<Cell> loaded = second.backing.read(second.array);
  for (std::uint64_t i = 0; i < kCells; ++i) ASSERT_EQ(loaded[i].halves[0], expected[i]) << i;
}

TEST_P(EachDelta, MoreThanWasAnnouncedIsRefused) {
  Instance instance(path(), mode(), order());
  EXPECT_EQ(error_of([&] { instance.delta->publish(kMost + 1, 2); }, {"30000 were announced"}),
            Errc::invalid_argument);
  EXPECT_EQ(instance.backing.progress(), 1u);
}

class LoggedDelta : public holdfast::test::Scratch {};

// What is stored in place comes from the log: in its order.
TEST_F(LoggedDelta, IsInTheOrderOfAddressesWhereThatIsAskedFor) {
  std::mt19937_64 random(holdfast::test::test_seed());
  Instance instance(path(), Mode::cap_delta, DeltaOrder::sorted);
  std::vector<Change> changes = every_third(7);
  std::shuffle(changes.begin(), changes.end(), random);
  instance.change(changes, 2);
  holdfast::Region& region = instance.backing.region();
  const auto* const log =
      static_cast<const unsigned char*>(region.address(region.object("delta log")));
  const auto* const tiles = reinterpret_cast<const DeltaTile*>(log + 64);
  for (std::uint32_t i = 0; i < kMost; ++i) {
    ASSERT_EQ(tiles[i / DeltaTile::kChanges].cell[i % DeltaTile::kChanges], 3 * i);
  }
}

// As if the process had been killed while it stored: behind the commit, before the progress.
TEST_F(LoggedDelta, IsDoneAgainFromTheLog) {
  {
    Instance first(path(), Mode::cap_delta);
    first.change(every_third(7), 2);
    first.change(every_third(8), 3);
    for (std::uint64_t i = 0; i < kMost; i += 2) first.store_on_medium(3 * i, 7);
    first.backing.set_progress(2);
  }
  Instance second(path(), Mode::cap_delta);
  second.delta->recover();
  EXPECT_EQ(second.backing.progress(), 3u);
  const std::vector<Cell> loaded = second.backing.read(second.array);
  for (std::uint64_t i = 0; i < kCells; ++i) {
    const std::uint64_t expected = i % 3 == 0 && i < 3 * kMost ? 8 : 0;
    ASSERT_EQ(second.on_medium(i), expected) << i;
    ASSERT_EQ(loaded[i].halves[0], expected) << i;
  }
}

// What was logged before is not stored again over what came later.
TEST_F(LoggedDelta, IsLeftAloneOnceItIsDone) {
  {
    Instance first(path(), Mode::cap_delta);
    first.change(every_third(7), 2);
    first.store_on_medium(0, 99);
  }
  Instance second(path(), Mode::cap_delta);
  second.delta->recover();
  EXPECT_EQ(second.on_medium(0), 99u);
  EXPECT_EQ(second.backing.progress(), 2u);
}

TEST_F(LoggedDelta, ThatPointsOutsideItsArrayIsDamaged) {
  {
    Instance first(path(), Mode::cap_delta);
    auto changes = every_third(7);
    first.change(changes, 2);
    holdfast::Region& region = first.backing.region();
    auto* const log = static_cast<unsigned char*>(region.address(region.object("delta log")));
    const std::uint32_t outside = kCells;
    std::copy_n(reinterpret_cast<const unsigned char*>(&outside), 4, log + 64 + 640 * 10);
    first.store_on_medium(0, 1);
    first.backing.set_progress(1);
  }
  Instance second(path(), Mode::cap_delta);
  EXPECT_EQ(error_of([&] { second.delta->recover(); }, {"remove the region"}), Errc::damaged);
  EXPECT_EQ(second.on_medium(0), 1u);
  EXPECT_EQ(second.backing.progress(), 1u);
}

// Every step sets the same cells to its number: after a kill they are all alike.
TEST_F(LoggedDelta, IsThereWholeOrNotAtAllAfterKills) {
  if (std::string_view(holdfast::backend::name()) != "cpu") {
    GTEST_SKIP() << "a process with a GPU does not fork";
  }
  std::mt19937_64 random(holdfast::test::test_seed());
  unsigned midway = 0;
  std::uint64_t most_us = 5000;
  for (unsigned kill = 0; kill < holdfast::test::some_of(30, 6) || (midway < 2 && kill < 2000);
       ++kill) {
    // On a busy machine a step takes longer to come to where it stores.
    if (kill % 50 == 49 && midway == 0) most_us = std::min<std::uint64_t>(2 * most_us, 500'000);
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = holdfast::test::fork_when_still();
    if (child == 0) {
      Instance instance(path(), Mode::cap_delta, kill % 2 ? DeltaOrder::sorted : DeltaOrder());
      instance.delta->recover();
      if (::write(ready[1], "", 1) != 1) std::_Exit(3);
      for (std::uint64_t next = instance.backing.progress() + 1;; ++next) {
        instance.change(every_third(next), next);
      }
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most_us));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
    // In a child, too: streams start threads, which the next fork would lack.
    const pid_t checker = holdfast::test::fork_when_still();
    if (checker == 0) {
      Instance instance(path(), Mode::cap_delta);
      bool alike = true;
      for (std::uint64_t i = 0; i < kMost; ++i) {
        alike = alike && instance.on_medium(3 * i) == instance.on_medium(0);
      }
      instance.delta->recover();
      const std::uint64_t progress = instance.backing.progress();
      for (std::uint64_t i = 0; progress > 1 && i < kMost; ++i) {
        if (instance.on_medium(3 * i) != progress) std::_Exit(1);
      }
      std::_Exit(alike ? 0 : 2);
    }
    int status = 0;
    ::waitpid(checker, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_NE(WEXITSTATUS(status), 1) << "a step is there in part, after kill " << kill;
    midway += WEXITSTATUS(status) == 2;
  }
  EXPECT_GT(midway, 0u) << "no kill met a step while it was stored";
}

}  // namespace

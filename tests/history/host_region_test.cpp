// A host's cache in a region: what was complete there is found again behind a killed process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "history/host_tier.hpp"
#include "holdfast/history.hpp"
#include "killed_history.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace {

using holdfast::BufferMemory;
using holdfast::Errc;
using holdfast::History;
using holdfast::HistoryOptions;
using holdfast::Stream;
using holdfast::Ticket;
using holdfast::Tier;
using holdfast::test::error_of;
using holdfast::test::killed;
using holdfast::test::kUnit;
using holdfast::test::restores;
using holdfast::test::save;
using holdfast::test::wait_to_be_killed;

class HostRegionTest : public ::testing::Test {
 protected:
  HistoryOptions options() const {
    HistoryOptions options;
    options.gpu_bytes = 4 * kUnit;
    options.host_bytes = 12 * kUnit;
    options.host_region = scratch_.path("host.hf");
    return options;
  }

  holdfast::test::ScratchFolders scratch_;
};

// No disk at all: the process saves, and says so once the host has it. Killed at random moments, in
// life after life, and each looks at what the one before has left.
TEST_F(HostRegionTest, WhatTheHostHasSurvivesKills) {
  const std::uint64_t seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  std::size_t found = 0;
  for (int round = 0; round < 12; ++round) {
    HistoryOptions with = options();
    with.host_region = scratch_.path("host" + std::to_string(round));
    with.gpu_bytes = random() % 2 * 4 * kUnit;
    const auto told = killed(random() % 6, static_cast<unsigned>(random() % 3000), [&](auto tell) {
      History history = History::open(with);
      Stream stream;
      std::vector<std::uint8_t> field;
      for (std::uint64_t step = 0; step < 9; ++step) {  // they all fit
        save(history, stream, field, step).wait(Tier::host);
        tell(step);
      }
      wait_to_be_killed();
    });
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    History history = History::open(with);
    for (const std::uint64_t step : told) {
      EXPECT_TRUE(history.is_in(step, Tier::host)) << step;
      EXPECT_TRUE(restores(history, step)) << step;
      ++found;
    }
    for (const std::uint64_t step : history.steps()) EXPECT_TRUE(restores(history, step)) << step;
  }
  EXPECT_GT(found, 10u);
}

TEST_F(HostRegionTest, WhatWasDiscardedOrEvictedIsNotFoundAgain) {
  const auto told = killed(2, 0, [&](auto tell) {
    History history = History::open(options());
    Stream stream;
    std::vector<std::uint8_t> field;
    Ticket ticket(nullptr);
    for (std::uint64_t step = 0; step < 6; ++step) ticket = save(history, stream, field, step);
    ticket.wait(Tier::host);
    history.discard(3);
    history.discard(0);
    tell(0);
    save(history, stream, field, 20).wait(Tier::host);  // perhaps where 3 was
    tell(20);
    wait_to_be_killed();
  });
  ASSERT_EQ(told.size(), 2u);
  History history = History::open(options());
  EXPECT_EQ(history.steps(), (std::vector<std::uint64_t>{1, 2, 4, 5, 20}));
  for (const std::uint64_t step : history.steps()) EXPECT_TRUE(restores(history, step));
}

// Found again, it goes on to the disk; a clean end leaves nothing in memory.
TEST_F(HostRegionTest, WhatIsFoundIsFlushed) {
  killed(1, 0, [&](auto tell) {
    History history = History::open(options());
    Stream stream;
    std::vector<std::uint8_t> field;
    for (std::uint64_t step = 0; step < 5; ++step) {
      save(history, stream, field, step).wait(Tier::host);
    }
    tell(4);
    wait_to_be_killed();
  });
  HistoryOptions with_disk = options();
  with_disk.disk = scratch_.path("disk");
  {
    History history = History::open(with_disk);
    EXPECT_EQ(history.steps().size(), 5u);
    history.flush();
    EXPECT_EQ(history.latest(Tier::disk), 4u);
    history.close();
  }
  History host = History::open(options());
  EXPECT_TRUE(host.steps().empty());
  HistoryOptions disk_alone;
  disk_alone.disk = scratch_.path("disk");
  History disk = History::open(disk_alone);
  for (std::uint64_t step = 0; step < 5; ++step) EXPECT_TRUE(restores(disk, step));
}

// The number was used again by a process that did not know of the region.
TEST_F(HostRegionTest, TheLaterOfTwoUnderOneNumberCounts) {
  killed(1, 0, [&](auto tell) {
    History history = History::open(options());
    Stream stream;
    std::vector<std::uint8_t> field;
    save(history, stream, field, 5).wait(Tier::host);
    tell(5);
    wait_to_be_killed();
  });
  HistoryOptions disk_alone;
  disk_alone.disk = scratch_.path("disk");
  std::vector<std::uint8_t> later(1234, 77);
  Stream stream;
  {
    History history = History::open(disk_alone);
    history.protect("field", later.data(), later.size(), BufferMemory::host);
    history.save(5, stream);
  }
  HistoryOptions both = options();
  both.disk = disk_alone.disk;
  History history = History::open(both);
  ASSERT_EQ(history.size(5, "field"), later.size());
  std::fill(later.begin(), later.end(), 0);
  history.protect("field", later.data(), later.size(), BufferMemory::host);
  history.restore(5, stream);
  EXPECT_EQ(later, std::vector<std::uint8_t>(1234, 77));
}

TEST_F(HostRegionTest, AnotherSizeOrAnotherUserIsRefused) {
  {
    History history = History::open(options());
    EXPECT_EQ(error_of([&] { History::open(options()); }), Errc::in_use);
  }
  HistoryOptions other = options();
  other.host_bytes *= 2;
  EXPECT_EQ(error_of([&] { History::open(other); }, {"host_bytes"}), Errc::invalid_argument);
  other.host_bytes = 0;
  EXPECT_EQ(error_of([&] { History::open(other); }, {"host_bytes"}), Errc::invalid_argument);
}

// Every byte of a slot flipped, in the memory that a killed process has left: what it said is gone
// or is right, and nothing else is touched.
TEST_F(HostRegionTest, ASlotThatIsDamagedIsNotBelieved) {
  killed(1, 0, [&](auto tell) {
    History history = History::open(options());
    Stream stream;
    std::vector<std::uint8_t> field;
    save(history, stream, field, 1).wait(Tier::host);
    save(history, stream, field, 2).wait(Tier::host);
    tell(2);
    wait_to_be_killed();
  });
  const std::mt19937_64::result_type seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  holdfast::history::HostSlot slot{};
  for (std::size_t i = 0; i < 60; ++i) {
    // The header's bytes in turn, and some of the parts'.
    const std::size_t at = i < 48 ? i : random() % sizeof(slot);
    {
      auto region = holdfast::Region::open(options().host_region);
      auto slots = region.find<holdfast::history::HostSlot>("history.slots");
      const auto victim = std::find_if(slots.begin(), slots.end(), [](const auto& each) {
        return each.counts == holdfast::history::kCounts && each.step == 1;
      });
      ASSERT_NE(victim, slots.end());
      slot = *victim;
      reinterpret_cast<std::uint8_t*>(&*victim)[at] ^=
          static_cast<std::uint8_t>(1 + random() % 255);
      region.abandon();
    }
    {
      History history = History::open(options());
      EXPECT_TRUE(restores(history, 2));
      EXPECT_FALSE(history.is_in(1, Tier::host)) << "byte " << at << ", seed " << seed;
      history.close();
    }
    auto region = holdfast::Region::open(options().host_region);
    auto slots = region.find<holdfast::history::HostSlot>("history.slots");
    const auto free =
        std::find_if(slots.begin(), slots.end(), [](const auto& each) { return each.counts == 0; });
    *free = slot;  // for the next byte
    region.abandon();
  }
}

}  // namespace

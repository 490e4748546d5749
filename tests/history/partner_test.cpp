// A cache in a partner's memory: whoever has lost the process, its host's cache and its disk finds
// there what was whole. A node is lost here as far as one host can lose it: its process is killed,
// and all that was in its own folder is removed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "history/host_tier.hpp"
#include "holdfast/history.hpp"
#include "killed_history.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace {

using holdfast::BufferMemory;
using holdfast::Errc;
using holdfast::History;
using holdfast::HistoryOptions;
using holdfast::Region;
using holdfast::RegionOptions;
using holdfast::Stream;
using holdfast::Ticket;
using holdfast::Tier;
using holdfast::test::bytes_of;
using holdfast::test::error_of;
using holdfast::test::killed;
using holdfast::test::killed_saving;
using holdfast::test::kUnit;
using holdfast::test::restores;
using holdfast::test::save;
using holdfast::test::wait_to_be_killed;

constexpr auto kPartner = static_cast<std::size_t>(Tier::partner);

class PartnerTest : public ::testing::Test {
 protected:
  PartnerTest() {
    std::filesystem::create_directory(node());
    std::filesystem::create_directory(partner());
  }

  std::string node() const { return scratch_.path("node"); }
  std::string partner() const { return scratch_.path("partner"); }

  HistoryOptions options() const {
    HistoryOptions options;
    options.gpu_bytes = 4 * kUnit;
    options.host_bytes = 6 * kUnit;
    options.host_region = node() + "/host.hf";
    options.partner_bytes = 20 * kUnit;
    options.partner_region = partner() + "/rank0.hf";
    options.partner_owner = "rank 0 of 2";
    options.disk = node() + "/disk";
    return options;
  }
  // What the partner has, and nothing else.
  HistoryOptions partner_alone() const {
    HistoryOptions alone;
    alone.partner_bytes = options().partner_bytes;
    alone.partner_region = options().partner_region;
    alone.partner_owner = options().partner_owner;
    return alone;
  }

  void lose(const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".hf") Region::destroy(entry.path());
    }
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
  }

  holdfast::test::ScratchFolders scratch_;
};

// Node after node is lost at random moments; each life goes on with what the partner has kept of
// all the ones before.
TEST_F(PartnerTest, WhatThePartnerHasSurvivesTheLossOfTheNode) {
  const std::uint64_t seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  std::size_t found = 0;
  const std::uint64_t rounds = holdfast::test::some_of(8, 2);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    HistoryOptions with = options();
    with.partner_region = partner() + "/round" + std::to_string(round) + ".hf";
    with.gpu_bytes *= random() % 2;
    if (random() % 3 == 0) with.host_bytes = 0, with.host_region = "";
    if (random() % 3 == 0) with.disk = "";
    std::vector<std::uint64_t> told;
    for (std::uint64_t life = 0; life < 3; ++life) {
      const auto more = killed_saving(with, Tier::partner, 6 * life, 6 * life + 6, random() % 7,
                                      static_cast<unsigned>(random() % 3000));
      told.insert(told.end(), more.begin(), more.end());
      lose(node());
      SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round) + ", life " +
                   std::to_string(life));
      HistoryOptions alone = partner_alone();
      alone.partner_region = with.partner_region;
      History history = History::open(alone);
      const auto steps = history.steps();
      for (const std::uint64_t step : told) {
        EXPECT_TRUE(history.is_in(step, Tier::partner)) << step;
        EXPECT_EQ(std::count(steps.begin(), steps.end(), step), 1) << step;
        ++found;
      }
      for (const std::uint64_t step : steps) EXPECT_TRUE(restores(history, step)) << step;
    }
  }
  EXPECT_GT(found, rounds == 8 ? 20 : rounds);
}

// Whatever the disk has may go; it goes in the order of the saves, however large each is.
TEST_F(PartnerTest, ThePartnerHasTheNewest) {
  const std::uint64_t seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    HistoryOptions with = options();
    with.partner_bytes = 6 * kUnit;
    with.partner_region = partner() + "/round" + std::to_string(round) + ".hf";
    const auto told = killed_saving(with, Tier::partner, 0, 30, 1 + random() % 30,
                                    static_cast<unsigned>(random() % 1000));
    ASSERT_FALSE(told.empty());
    lose(node());
    HistoryOptions alone = partner_alone();
    alone.partner_bytes = with.partner_bytes;
    alone.partner_region = with.partner_region;
    History history = History::open(alone);
    for (const std::uint64_t step : history.steps()) EXPECT_TRUE(restores(history, step)) << step;
    // Six fit for certain. One may be on its way, for which up to three make room: as many as it
    // overlaps.
    const std::size_t newest = std::min<std::size_t>(told.size(), 3);
    for (std::size_t i = told.size() - newest; i < told.size(); ++i) {
      EXPECT_TRUE(history.is_in(told[i], Tier::partner)) << told[i] << " of " << told.size();
    }
  }
}

TEST_F(PartnerTest, WhatIsFoundGoesToTheNewDiskAndTheMemoryIsGivenBack) {
  killed_saving(options(), Tier::partner, 0, 5, 5, 0);
  lose(node());
  {
    History history = History::open(options());
    EXPECT_EQ(history.steps().size(), 5u);
    EXPECT_EQ(history.latest(Tier::partner), 4u);
    history.flush();
    for (std::uint64_t step = 0; step < 5; ++step) {
      EXPECT_TRUE(history.is_in(step, Tier::disk));
      EXPECT_TRUE(history.is_in(step, Tier::partner));  // until room is needed
    }
    history.close();
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.arenas()));
  HistoryOptions disk_alone;
  disk_alone.disk = options().disk;
  History disk = History::open(disk_alone);
  for (std::uint64_t step = 0; step < 5; ++step) EXPECT_TRUE(restores(disk, step));
}

TEST_F(PartnerTest, TheWayIsGpuHostPartnerDisk) {
  for (const bool has_host : {true, false}) {
    HistoryOptions with = options();
    with.gpu_bytes = 2 * kUnit;
    with.host_bytes = has_host ? 2 * kUnit : 0;
    with.host_region = "";
    with.disk += has_host ? "1" : "2";
    History history = History::open(with);
    Stream stream;
    std::vector<std::uint8_t> field;
    std::uint64_t bytes = 0;
    for (std::uint64_t step = 0; step < 9; ++step) {
      const Ticket ticket = save(history, stream, field, step);
      ticket.wait(Tier::disk);
      EXPECT_TRUE(ticket.is_in(Tier::partner));
      bytes += bytes_of(step);
    }
    const auto stats = history.stats();
    EXPECT_EQ(stats.flushed_to[kPartner].bytes, bytes);
    EXPECT_EQ(stats.flushed_to[1].checkpoints, has_host ? 9u : 0u);
    EXPECT_EQ(stats.held_in[kPartner].checkpoints, 9u);
    const auto steps = history.steps();
    const auto below = std::find_if(steps.begin(), steps.end(), [&](std::uint64_t step) {
      return !history.is_in(step, Tier::gpu) && !history.is_in(step, Tier::host);
    });
    ASSERT_NE(below, steps.end());
    EXPECT_TRUE(restores(history, *below));
    EXPECT_EQ(history.stats().restored_from[kPartner].checkpoints, 1u);
    const auto seen = history.snapshot().tiers;
    const auto tier = std::find_if(seen.begin(), seen.end(),
                                   [](const auto& each) { return each.tier == Tier::partner; });
    ASSERT_NE(tier, seen.end());
    EXPECT_EQ(tier->path, with.partner_region);
    EXPECT_TRUE(history.discard(*below));
    EXPECT_FALSE(history.is_in(*below, Tier::partner));
  }
}

// What is fetched ahead comes out of the partner's memory, and stays there: a node can still be
// lost.
TEST_F(PartnerTest, APrefetchLeavesThePartnerItsCopy) {
  HistoryOptions with = options();
  with.host_region = "";
  History history = History::open(with);
  Stream stream;
  std::vector<std::uint8_t> field;
  std::vector<std::uint64_t> order(12);
  std::iota(order.begin(), order.end(), 0);
  for (const std::uint64_t step : order) save(history, stream, field, step);
  history.flush();
  history.hint(order);
  history.prefetch_start();
  for (const std::uint64_t step : order) EXPECT_TRUE(restores(history, step));
  for (const std::uint64_t step : order) EXPECT_TRUE(history.is_in(step, Tier::partner));
  const auto stats = history.stats();
  EXPECT_EQ(stats.fetched_to[kPartner].checkpoints, 0u);
  EXPECT_EQ(stats.failed_transfers, 0u);
}

TEST_F(PartnerTest, WhatDoesNotFitGoesPastThePartner) {
  HistoryOptions with = options();
  with.partner_bytes = kUnit / 4;
  History history = History::open(with);
  Stream stream;
  std::vector<std::uint8_t> field;
  const Ticket ticket = save(history, stream, field, 3);
  ticket.wait(Tier::disk);
  EXPECT_EQ(error_of([&] { ticket.wait(Tier::partner); }, {"partner"}), Errc::no_space);
  EXPECT_FALSE(ticket.is_in(Tier::partner));
  history.close();
}

// No disk to make room: saves are refused, and what was saved is there.
TEST_F(PartnerTest, AFullPartnerRefusesRatherThanLoses) {
  HistoryOptions with = options();
  with.gpu_bytes = with.host_bytes = 0;
  with.host_region = with.disk = "";
  with.partner_bytes = 5 * kUnit;
  History history = History::open(with);
  Stream stream;
  std::vector<std::uint8_t> field;
  std::uint64_t step = 0;
  const Errc code = error_of([&] {
    for (; step < 30; ++step) save(history, stream, field, step);
  });
  EXPECT_EQ(code, Errc::no_space);
  EXPECT_GE(step, 5u);
  EXPECT_EQ(history.steps().size(), step);
  for (std::uint64_t saved = 0; saved < step; ++saved) EXPECT_TRUE(restores(history, saved));
}

// The partner is lost instead: the node has all of it still, and the next partner's memory is
// filled from then on.
TEST_F(PartnerTest, ALostPartnerIsReplaced) {
  killed_saving(options(), Tier::partner, 0, 5, 5, 0);
  lose(partner());
  {
    History history = History::open(options());
    EXPECT_EQ(history.steps().size(), 5u);
    for (std::uint64_t step = 0; step < 5; ++step) EXPECT_TRUE(restores(history, step));
    Stream stream;
    std::vector<std::uint8_t> field;
    save(history, stream, field, 5).wait(Tier::partner);
    history.close();
  }
  lose(node());
  lose(partner());  // both
  EXPECT_TRUE(History::open(options()).steps().empty());
}

// Its memory alone, as when somebody cleans /dev/shm: that is said, with what can be done.
TEST_F(PartnerTest, MemoryThatIsGoneIsSaid) {
  HistoryOptions with = options();
  with.host_region = "";
  killed_saving(with, Tier::partner, 0, 3, 3, 0);
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.arenas())) {
    std::filesystem::remove(entry.path());
  }
  EXPECT_EQ(error_of([&] { History::open(with); }, {with.partner_region, "gone", "remove"}),
            Errc::conflict);
  std::filesystem::remove(with.partner_region);
  History history = History::open(with);
  for (const std::uint64_t step : history.steps()) EXPECT_TRUE(restores(history, step));
}

TEST_F(PartnerTest, WrongOptionsAreRefused) {
  const auto refused = [&](const HistoryOptions& with, const std::vector<std::string>& words) {
    EXPECT_EQ(error_of([&] { History::open(with); }, words), Errc::invalid_argument);
  };
  HistoryOptions with = options();
  with.partner_bytes = 0;
  refused(with, {"partner_region", "partner_bytes"});
  with.partner_region = "";
  refused(with, {"partner_owner"});
  with = options();
  with.partner_region = "";
  refused(with, {"partner_region", "partner_bytes"});
  with = options();
  with.partner_region = with.host_region;
  refused(with, {"host_region", "partner_region"});
  with = options();
  with.partner_owner = std::string(128, 'x');
  refused(with, {"partner_owner", "127"});
  with.partner_owner = std::string("a\0b", 3);
  refused(with, {"partner_owner"});
  with = options();
  with.partner_bytes = 100;
  refused(with, {"4096"});
  with = options();
  with.partner_bytes = std::uint64_t{1} << 60;
  EXPECT_NO_THROW(error_of([&] { History::open(with); }));  // some Error
}

TEST_F(PartnerTest, AnothersMemoryIsRefusedAndNotTouched) {
  const auto refused = [&](const HistoryOptions& with, const std::vector<std::string>& words,
                           Errc code = Errc::invalid_argument) {
    EXPECT_EQ(error_of([&] { History::open(with); }, words), code);
  };
  killed_saving(options(), Tier::partner, 0, 3, 3, 0);
  HistoryOptions with = options();
  with.partner_owner = "rank 1 of 2";
  refused(with, {with.partner_region, "rank 0 of 2", "rank 1 of 2"});
  with.partner_owner = "";
  refused(with, {with.partner_region, "rank 0 of 2"});
  with = options();
  with.partner_bytes *= 2;
  refused(with, {with.partner_region, "partner_bytes"});
  with = options();
  std::swap(with.partner_region, with.host_region);
  refused(with, {"history_"});
  {
    History history = History::open(options());
    refused(options(), {}, Errc::in_use);
    EXPECT_EQ(history.steps().size(), 3u);
    for (const std::uint64_t step : history.steps()) EXPECT_TRUE(restores(history, step));
  }
  with = options();
  with.partner_region = partner() + "/program.hf";
  {
    RegionOptions size;
    size.size = 1 << 22;
    Region region = Region::create(with.partner_region, size);
    region.allocate<std::uint64_t>("mine", 1)[0] = 42;
    region.commit();
    region.close();
  }
  refused(with, {with.partner_region, "mine"}, Errc::foreign);
  EXPECT_EQ(Region::open(with.partner_region).find<std::uint64_t>("mine")[0], 42u);
  with.partner_region = partner() + "/text.hf";
  std::ofstream(with.partner_region) << std::string(100'000, 'x');
  refused(with, {with.partner_region}, Errc::foreign);
  with.partner_region = partner() + "/there/is/none.hf";
  refused(with, {partner() + "/there/is"}, Errc::not_found);
}

// More arrays than a slot names, and more checkpoints than fit at a page each.
TEST_F(PartnerTest, AnyNumberOfArraysAndManySmallCheckpointsSurvive) {
  constexpr std::uint64_t kArrays = 40, kSmall = 90;
  const auto word = [](std::uint64_t step, std::uint64_t array) { return step * 1000 + array; };
  for (const bool in_host : {false, true}) {
    HistoryOptions with = options();
    with.gpu_bytes = 0;
    with.disk = "";
    if (in_host) {
      with.partner_bytes = 0;
      with.partner_region = with.partner_owner = "";
      with.host_bytes = 20 * kUnit;
    } else {
      with.host_bytes = 0;
      with.host_region = "";
    }
    const auto protect = [](History& history, std::vector<std::uint64_t>& words) {
      for (std::uint64_t i = 0; i < words.size(); ++i) {
        history.protect("a" + std::to_string(i), &words[i], 1, BufferMemory::host);
      }
    };
    const auto told = killed(1, 0, [&](auto tell) {
      History history = History::open(with);
      Stream stream;
      std::vector<std::uint64_t> words(kArrays);
      protect(history, words);
      for (std::uint64_t i = 0; i < kArrays; ++i) words[i] = word(1000, i);
      history.save(1000, stream).wait(in_host ? Tier::host : Tier::partner);
      for (std::uint64_t i = 1; i < kArrays; ++i) history.unprotect("a" + std::to_string(i));
      std::uint64_t step = 0;
      try {
        for (; step < kSmall; ++step) {
          words[0] = word(step, 0);
          history.save(step, stream).wait(in_host ? Tier::host : Tier::partner);
        }
      } catch (const holdfast::Error& error) {
        if (error.code() != Errc::no_space) throw;
      }
      tell(step);
      wait_to_be_killed();
    });
    ASSERT_EQ(told.size(), 1u);
    EXPECT_GE(told[0], 30u);
    History history = History::open(with);
    EXPECT_EQ(history.steps().size(), told[0] + 1);
    Stream stream;
    std::vector<std::uint64_t> words(1);
    protect(history, words);
    for (std::uint64_t step = 0; step < told[0]; ++step) {
      history.restore(step, stream);
      EXPECT_EQ(words[0], word(step, 0));
    }
    words.resize(kArrays);
    protect(history, words);
    history.restore(1000, stream);
    for (std::uint64_t i = 0; i < kArrays; ++i) EXPECT_EQ(words[i], word(1000, i));
  }
}

// A table of parts, as of many arrays, that is damaged.
TEST_F(PartnerTest, ATableOfPartsThatIsDamagedIsNotBelieved) {
  constexpr std::uint64_t kArrays = 33;
  const std::uint64_t seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  HistoryOptions with = options();
  with.disk = "";
  for (int round = 0; round < 12; ++round) {
    with.partner_region = partner() + "/table" + std::to_string(round) + ".hf";
    killed(1, 0, [&](auto tell) {
      History history = History::open(with);
      Stream stream;
      std::vector<std::uint8_t> words(kArrays);
      for (std::uint64_t i = 0; i < kArrays; ++i) {
        history.protect("a" + std::to_string(i), &words[i], 1, BufferMemory::host);
      }
      history.save(1, stream).wait(Tier::partner);
      std::vector<std::uint8_t> field;
      for (std::uint64_t i = 0; i < kArrays; ++i) history.unprotect("a" + std::to_string(i));
      save(history, stream, field, 2).wait(Tier::partner);
      tell(2);
      wait_to_be_killed();
    });
    lose(node());
    {
      auto region = Region::open(with.partner_region);
      auto slots = region.find<holdfast::history::HostSlot>("history.slots");
      const auto slot =
          std::find_if(slots.begin(), slots.end(), [](const auto& each) { return each.step == 1; });
      ASSERT_NE(slot, slots.end());
      ASSERT_EQ(slot->parts, kArrays);
      const std::uint64_t table = slot->offset + (slot->bytes + 127) / 128 * 128;
      const std::uint64_t at = round == 0 ? 0 : random() % (kArrays * 128);
      region.find<std::uint8_t>("history.bytes")[table + at] ^= 1u << random() % 8;
      region.abandon();
    }
    HistoryOptions alone = partner_alone();
    alone.partner_region = with.partner_region;
    History history = History::open(alone);
    EXPECT_EQ(history.steps(), std::vector<std::uint64_t>{2}) << "seed " << seed;
    EXPECT_TRUE(restores(history, 2));
  }
}

// Every byte of a slot's head flipped, and some of the rest: what it said is gone, and nothing else
// is touched.
TEST_F(PartnerTest, ASlotThatIsDamagedIsNotBelieved) {
  using holdfast::history::HostSlot;
  killed_saving(options(), Tier::partner, 1, 3, 2, 0);
  lose(node());
  const auto seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  HostSlot slot{};
  const auto tried = holdfast::test::every(1, 16, seed);
  for (std::size_t i = tried.first; i < 160; i += tried.step) {
    const std::size_t at = i < 128 ? i : random() % sizeof(slot);
    {
      auto region = Region::open(options().partner_region);
      auto slots = region.find<HostSlot>("history.slots");
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
      History history = History::open(partner_alone());
      EXPECT_TRUE(restores(history, 2));
      EXPECT_FALSE(history.is_in(1, Tier::partner)) << "byte " << at << ", seed " << seed;
      history.close();
    }
    auto region = Region::open(options().partner_region);
    auto slots = region.find<HostSlot>("history.slots");
    const auto free =
        std::find_if(slots.begin(), slots.end(), [](const auto& each) { return each.counts == 0; });
    *free = slot;  // for the next byte
    region.abandon();
  }
}

}  // namespace

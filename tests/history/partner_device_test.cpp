// Copies in memory of another process's device: whoever takes the place of a process that was
// killed finds there what was whole, and nothing that another has lent, or written, in its place.
// Lenders and killed writers are processes that are started anew, so that each has a GPU's context
// of its own; all may be on one GPU.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "history/host_tier.hpp"
#include "history/lender_file.hpp"
#include "holdfast/history.hpp"
#include "holdfast/partner_memory.hpp"
#include "killed_history.hpp"
#include "support/error_of.hpp"
#include "support/process.hpp"
#include "support/sanitized.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace {

using holdfast::BufferMemory;
using holdfast::Errc;
using holdfast::History;
using holdfast::HistoryOptions;
using holdfast::OnError;
using holdfast::PartnerMemory;
using holdfast::Region;
using holdfast::Stream;
using holdfast::Ticket;
using holdfast::Tier;
using holdfast::test::bytes_of;
using holdfast::test::Child;
using holdfast::test::error_of;
using holdfast::test::from_environment;
using holdfast::test::kSanitized;
using holdfast::test::kUnit;
using holdfast::test::restores;
using holdfast::test::save;
using holdfast::test::wait_to_be_killed;

bool on_gpu() { return std::string(holdfast::backend::name()) == "cuda"; }

std::uint64_t number(const char* name) {
  return std::strtoull(from_environment(name).c_str(), nullptr, 10);
}

// What children and their parent have alike.
HistoryOptions options_in(const std::string& folder, std::uint64_t gpu_units, bool has_disk) {
  HistoryOptions options;
  options.gpu_bytes = gpu_units * kUnit;
  options.partner_bytes = 20 * kUnit;
  options.partner_region = folder + "/partner/rank0.hf";
  options.partner_owner = "rank 0 of 2";
  options.partner_lender = folder + "/partner/rank0.gpu";
  if (has_disk) options.disk = folder + "/node/disk";
  return options;
}

void end_with_the_parent() { ::prctl(PR_SET_PDEATHSIG, SIGKILL); }

// --- Children

TEST(PartnerDeviceChild, DISABLED_Lends) {
  end_with_the_parent();
  const PartnerMemory memory(from_environment("LENT_PATH"), number("LENT_BYTES"));
  holdfast::test::report(std::uint64_t{1});
  wait_to_be_killed();
}

// Saves the steps [FIRST, LAST), and tells of each once the partner has it.
TEST(PartnerDeviceChild, DISABLED_Saves) {
  end_with_the_parent();
  HistoryOptions options =
      options_in(from_environment("FOLDER"), number("GPU_UNITS"), number("HAS_DISK") != 0);
  options.host_bytes = number("HOST_UNITS") * kUnit;
  if (const auto region = from_environment("REGION"); !region.empty()) {
    options.partner_region = region;
  }
  const std::uint64_t arrays = std::max<std::uint64_t>(number("ARRAYS"), 1);
  History history = History::open(options);
  Stream stream;
  std::vector<std::uint8_t> field;
  std::vector<std::uint64_t> words(arrays);
  for (std::uint64_t i = 1; i < arrays; ++i) {
    words[i] = i * i;
    history.protect("a" + std::to_string(i), &words[i], 1, BufferMemory::host);
  }
  for (std::uint64_t step = number("FIRST"); step < number("LAST"); ++step) {
    save(history, stream, field, step).wait(Tier::partner);
    holdfast::test::report(step);
  }
  wait_to_be_killed();
}

// --- The parent

class PartnerDeviceTest : public ::testing::Test {
 protected:
  struct Writer {
    std::uint64_t first = 0, last = 0, gpu_units = 0, host_units = 0, arrays = 1;
    bool has_disk = true;
    std::string region = {};
  };

  PartnerDeviceTest() {
    std::filesystem::create_directory(scratch_.path("node"));
    std::filesystem::create_directory(scratch_.path("partner"));
  }

  HistoryOptions options(std::uint64_t gpu_units = 4, bool has_disk = true) const {
    return options_in(scratch_.folder(), gpu_units, has_disk);
  }
  std::string path() const { return options().partner_lender; }

  void lend() {
    lender_ = std::make_unique<Child>(
        "PartnerDeviceChild.DISABLED_Lends",
        Child::Environment{{"LENT_PATH", path()},
                           {"LENT_BYTES", std::to_string(options().partner_bytes)}});
    std::uint64_t ready = 0;
    ASSERT_TRUE(lender_->read(ready)) << "the lender did not start";
  }

  std::unique_ptr<Child> writer(const Writer& with) const {
    return std::make_unique<Child>(
        "PartnerDeviceChild.DISABLED_Saves",
        Child::Environment{{"FOLDER", scratch_.folder()},
                           {"GPU_UNITS", std::to_string(with.gpu_units)},
                           {"HOST_UNITS", std::to_string(with.host_units)},
                           {"HAS_DISK", with.has_disk ? "1" : "0"},
                           {"REGION", with.region},
                           {"ARRAYS", std::to_string(with.arrays)},
                           {"FIRST", std::to_string(with.first)},
                           {"LAST", std::to_string(with.last)}});
  }
  // One that is killed when it has told of so many steps, or a moment later. Returns the steps.
  std::vector<std::uint64_t> killed(const Writer& with, std::size_t reports,
                                    unsigned more_microseconds = 0) const {
    const auto child = writer(with);
    std::vector<std::uint64_t> told;
    std::uint64_t step = 0;
    while (told.size() < reports && child->read(step)) told.push_back(step);
    std::this_thread::sleep_for(std::chrono::microseconds(more_microseconds));
    child->kill();
    while (child->read(step)) told.push_back(step);
    EXPECT_GE(told.size(), reports) << "the writer ended before";
    return told;
  }
  void lose_node() const {
    std::filesystem::remove_all(scratch_.path("node"));
    std::filesystem::create_directory(scratch_.path("node"));
  }
  // That every step told of is there, and of every one that is its bytes are right.
  void expect_found(const std::vector<std::uint64_t>& told) const {
    History history = History::open(options(0, false));
    const auto steps = history.steps();
    for (const std::uint64_t step : told) {
      EXPECT_TRUE(history.is_in(step, Tier::partner)) << step;
      EXPECT_EQ(std::count(steps.begin(), steps.end(), step), 1) << step;
    }
    for (const std::uint64_t step : steps) EXPECT_TRUE(restores(history, step)) << step;
  }

  holdfast::test::ScratchFolders scratch_;
  std::unique_ptr<Child> lender_;
};

TEST_F(PartnerDeviceTest, WhatThePartnerHasSurvivesTheLossOfTheNode) {
  const std::uint64_t seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  std::size_t found = 0;
  const std::uint64_t rounds = on_gpu() ? 3 : holdfast::test::some_of(8, 2);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    ASSERT_NO_FATAL_FAILURE(lend());
    std::vector<std::uint64_t> told;
    Writer with;
    with.gpu_units = random() % 2 * 4;
    with.host_units = random() % 3 == 0 ? 6 : 0;
    with.has_disk = random() % 3 != 0;
    for (std::uint64_t life = 0; life < 3; ++life) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round) + ", life " +
                   std::to_string(life));
      with.first = 6 * life;
      with.last = 6 * life + 6;
      const auto more = killed(with, random() % 7, static_cast<unsigned>(random() % 3000));
      told.insert(told.end(), more.begin(), more.end());
      lose_node();
      if (told.empty()) continue;  // it may have been killed before it has begun
      expect_found(told);
      found += told.size();
    }
    lender_.reset();
  }
  EXPECT_GT(found, rounds > 2 ? 10u : 2u);
}

TEST_F(PartnerDeviceTest, WhatIsFoundGoesToTheNewDisk) {
  ASSERT_NO_FATAL_FAILURE(lend());
  killed({.last = 5, .gpu_units = 4}, 5);
  lose_node();
  {
    History history = History::open(options());
    EXPECT_EQ(history.steps().size(), 5u);
    EXPECT_EQ(history.latest(Tier::partner), 4u);
    history.flush();
    for (std::uint64_t step = 0; step < 5; ++step) {
      EXPECT_TRUE(history.is_in(step, Tier::disk));
      EXPECT_TRUE(history.is_in(step, Tier::partner));
    }
    history.close();
  }
  HistoryOptions disk_alone;
  disk_alone.disk = options().disk;
  History disk = History::open(disk_alone);
  for (std::uint64_t step = 0; step < 5; ++step) EXPECT_TRUE(restores(disk, step));
}

// The memory of another GPU is nearer than the host's.
TEST_F(PartnerDeviceTest, TheWayIsGpuPartnerHostDisk) {
  constexpr auto kHost = static_cast<std::size_t>(Tier::host);
  constexpr auto kPartner = static_cast<std::size_t>(Tier::partner);
  for (const bool has_host : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(lend());
    lose_node();
    HistoryOptions with = options(2);
    if (has_host) with.host_bytes = 2 * kUnit;
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
    EXPECT_EQ(stats.flushed_to[kHost].checkpoints, has_host ? 9u : 0u);
    EXPECT_EQ(stats.held_in[kPartner].checkpoints, 9u);
    const auto tiers = history.snapshot().tiers;
    const auto place = [&](Tier tier) {
      return std::find_if(tiers.begin(), tiers.end(),
                          [&](const auto& each) { return each.tier == tier; });
    };
    ASSERT_NE(place(Tier::partner), tiers.end());
    EXPECT_EQ(place(Tier::partner)->path, path());
    if (has_host) {
      EXPECT_LT(place(Tier::partner), place(Tier::host));
    }
    // What is fetched ahead leaves the partner its copy.
    std::vector<std::uint64_t> order(9);
    std::iota(order.begin(), order.end(), 0);
    history.hint(order);
    history.prefetch_start();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (history.stats().fetched_to[0].checkpoints == 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "nothing is fetched ahead";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const std::uint64_t step : order) EXPECT_TRUE(restores(history, step)) << step;
    for (const std::uint64_t step : order) EXPECT_TRUE(history.is_in(step, Tier::partner)) << step;
    EXPECT_EQ(history.stats().failed_transfers, 0u);
  }
}

// A table of parts stands behind the bytes, in the lender's memory.
TEST_F(PartnerDeviceTest, AnyNumberOfArraysSurvives) {
  ASSERT_NO_FATAL_FAILURE(lend());
  constexpr std::uint64_t kArrays = 40;
  killed({.last = 2, .gpu_units = 4, .arrays = kArrays}, 2);
  History history = History::open(options(0, false));
  ASSERT_EQ(history.steps().size(), 2u);
  std::vector<std::uint64_t> words(kArrays);
  for (std::uint64_t i = 1; i < kArrays; ++i) {
    history.protect("a" + std::to_string(i), &words[i], 1, BufferMemory::host);
  }
  EXPECT_TRUE(restores(history, 1));
  for (std::uint64_t i = 1; i < kArrays; ++i) EXPECT_EQ(words[i], i * i);
}

// The other one is lost: what stood in its memory is gone, whatever the region says.
TEST_F(PartnerDeviceTest, AnotherLenderHasNothing) {
  ASSERT_NO_FATAL_FAILURE(lend());
  killed({.last = 5, .has_disk = false}, 5);
  lender_->kill();
  EXPECT_EQ(error_of([&] { History::open(options()); }, {path(), "process", "partner_lender"}),
            Errc::not_found);
  ASSERT_NO_FATAL_FAILURE(lend());  // in place of the file of the one before
  {
    History history = History::open(options());
    EXPECT_TRUE(history.steps().empty());
    EXPECT_EQ(history.latest(Tier::partner), std::nullopt);
  }
  expect_found(killed({.first = 7, .last = 9}, 2));
  lender_->kill();
  std::filesystem::remove(path());
  EXPECT_EQ(error_of([&] { History::open(options()); }, {path(), "nobody"}), Errc::not_found);
}

// Another region's history has written where the first one's slots point.
TEST_F(PartnerDeviceTest, WhatAnotherHistoryHasOverwrittenIsNotOffered) {
  ASSERT_NO_FATAL_FAILURE(lend());
  const std::string other = scratch_.path("partner/other.hf");
  killed({.last = 5, .has_disk = false}, 5);
  killed({.first = 10, .last = 13, .has_disk = false, .region = other}, 3);
  {
    History history = History::open(options(0, false));
    EXPECT_TRUE(history.steps().empty());
  }
  HistoryOptions with = options(0, false);
  // The first one's turn was in between, and it has written nothing.
  with.partner_region = other;
  History history = History::open(with);
  EXPECT_EQ(history.steps(), (std::vector<std::uint64_t>{10, 11, 12}));
  for (const std::uint64_t step : history.steps()) EXPECT_TRUE(restores(history, step)) << step;
}

// Only what is written there takes the place of another region's copies.
TEST_F(PartnerDeviceTest, WhoWritesNothingLeavesTheCopiesOfAnother) {
  ASSERT_NO_FATAL_FAILURE(lend());
  killed({.last = 5, .has_disk = false}, 5);
  const auto lease = holdfast::test::read_file(path());
  HistoryOptions other = options(0, false);
  other.partner_region += ".other";
  for (const bool closes : {true, false}) {
    std::optional<History> history = History::open(other);
    EXPECT_TRUE(history->steps().empty());
    if (closes) history->close();
    history.reset();
    EXPECT_EQ(holdfast::test::read_file(path()), lease);
    expect_found({0, 1, 2, 3, 4});
  }
  other.disk = scratch_.path("node/file");
  std::ofstream(other.disk) << "x";
  EXPECT_EQ(error_of([&] { History::open(other); }, {other.disk}), Errc::invalid_argument);
  EXPECT_EQ(holdfast::test::read_file(path()), lease);
  expect_found({0, 1, 2, 3, 4});
  other.disk.clear();
  const auto told =
      killed({.first = 20, .last = 21, .has_disk = false, .region = other.partner_region}, 1);
  EXPECT_NE(holdfast::test::read_file(path()), lease);
  EXPECT_TRUE(History::open(options(0, false)).steps().empty());
  History history = History::open(other);
  EXPECT_EQ(history.steps(), told);
  EXPECT_TRUE(restores(history, 20));
}

// Neither the file nor its arena.
TEST_F(PartnerDeviceTest, ARefusedOpenLeavesNoRegionThatItHasMade) {
  ASSERT_NO_FATAL_FAILURE(lend());
  const auto child = writer({.last = 3, .has_disk = false});
  std::uint64_t step = 0;
  while (step < 2) ASSERT_TRUE(child->read(step));
  const auto files = [&] {
    std::size_t count = 0;
    for (const std::string& folder : {scratch_.folder(), scratch_.arenas()}) {
      const std::filesystem::recursive_directory_iterator all(folder);
      count += static_cast<std::size_t>(std::distance(begin(all), end(all)));
    }
    return count;
  };
  HistoryOptions with = options(0, false);
  with.partner_region += ".other";
  const auto refused = [&](Errc code) {
    const std::size_t before = files();
    EXPECT_EQ(error_of([&] { History::open(with); }), code);
    EXPECT_EQ(files(), before);
  };
  refused(Errc::in_use);
  child->kill();
  with.disk = scratch_.path("node/file");
  std::ofstream(with.disk) << "x";
  with.host_bytes = 4 * kUnit;
  with.host_region = scratch_.path("node/host.hf");
  refused(Errc::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(with.partner_region));
  EXPECT_FALSE(std::filesystem::exists(with.host_region));
  // One that was there stays, with what it has.
  with.partner_region = options().partner_region;
  refused(Errc::invalid_argument);
  expect_found({0, 1, 2});
}

// As many as there may be are open.
TEST_F(PartnerDeviceTest, TooFewDescriptorsAreNoEndOfTheLender) {
  if (on_gpu()) GTEST_SKIP() << "the driver wants descriptors, too";
  if (kSanitized) GTEST_SKIP() << "the sanitizer asks by a pipe whether an object may be read";
  ASSERT_NO_FATAL_FAILURE(lend());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);  // the lowest number that is free
  ASSERT_GE(next, 0);
  ::close(next);
  bool opened = false;
  for (rlim_t more = 0; more < 40 && !opened; ++more) {
    const rlimit few{static_cast<rlim_t>(next) + more, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::string words;
    Errc code{};
    try {
      History::open(options(0, false));
      opened = true;
    } catch (const holdfast::Error& error) {
      code = error.code();
      words = error.what();
    }
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    if (opened) break;
    EXPECT_EQ(code, Errc::io) << more << " more: " << words;
    EXPECT_NE(words.find("Too many open files"), std::string::npos) << more << " more: " << words;
  }
  EXPECT_TRUE(opened);
}

TEST_F(PartnerDeviceTest, TheHistoryGoesOnWithoutALenderThatEnds) {
  for (const OnError on_error : {OnError::raise, OnError::warn}) {
    ASSERT_NO_FATAL_FAILURE(lend());
    lose_node();
    HistoryOptions with = options(2);
    with.on_error = on_error;
    History history = History::open(with);
    Stream stream;
    std::vector<std::uint8_t> field;
    std::vector<Ticket> tickets;
    for (std::uint64_t step = 0; step < 9; ++step) {
      tickets.push_back(save(history, stream, field, step));
    }
    tickets[3].wait(Tier::partner);
    EXPECT_TRUE(tickets[3].is_in(Tier::partner));
    lender_->kill();
    EXPECT_FALSE(tickets[3].is_in(Tier::partner));
    for (const Ticket& ticket : tickets) {
      EXPECT_EQ(error_of([&] { ticket.wait(Tier::partner); }, {path(), "process"}), Errc::io);
    }
    EXPECT_EQ(history.latest(Tier::partner), std::nullopt);
    EXPECT_FALSE(history.is_in(3, Tier::partner));
    if (on_error == OnError::raise) {  // once
      EXPECT_EQ(error_of([&] { save(history, stream, field, 9); }, {path(), "partner_lender"}),
                Errc::io);
    }
    const auto brought = history.stats()
                             .flushed_to[static_cast<int>(Tier::partner)]
                             .checkpoints;  // two may be on their way
    for (std::uint64_t step = 9; step < 40; ++step) save(history, stream, field, step);
    for (std::uint64_t step = 0; step < 40; ++step) EXPECT_TRUE(restores(history, step)) << step;
    history.flush();
    for (std::uint64_t step = 0; step < 40; ++step) EXPECT_TRUE(history.is_in(step, Tier::disk));
    EXPECT_LE(history.stats().flushed_to[static_cast<int>(Tier::partner)].checkpoints, brought + 2);
    EXPECT_EQ(history.agree(Tier::partner).size(), 40u);  // on the disk
    history.close();
    HistoryOptions disk_alone;
    disk_alone.disk = with.disk;
    History disk = History::open(disk_alone);
    for (std::uint64_t step = 0; step < 40; ++step) EXPECT_TRUE(restores(disk, step)) << step;
  }
}

// What has no other copy is read from what this process has mapped.
TEST_F(PartnerDeviceTest, WhatOnlyALostPartnerHadIsReadStill) {
  ASSERT_NO_FATAL_FAILURE(lend());
  History history = History::open(options(2, false));
  Stream stream;
  std::vector<std::uint8_t> field;
  for (std::uint64_t step = 0; step < 9; ++step) {
    save(history, stream, field, step).wait(Tier::partner);
  }
  lender_->kill();
  EXPECT_TRUE(history.agree(Tier::partner).empty());
  for (std::uint64_t step = 0; step < 9; ++step) EXPECT_TRUE(restores(history, step)) << step;
  EXPECT_EQ(error_of([&] { history.flush(); }, {path()}), Errc::io);
  history.close();
}

TEST_F(PartnerDeviceTest, WrongOptionsAreRefused) {
  ASSERT_NO_FATAL_FAILURE(lend());
  const auto refused = [&](const HistoryOptions& with, const std::vector<std::string>& words,
                           Errc code = Errc::invalid_argument) {
    EXPECT_EQ(error_of([&] { History::open(with); }, words), code);
  };
  killed({.last = 3, .has_disk = false}, 3);
  HistoryOptions with = options();
  with.partner_bytes *= 2;
  refused(with, {path(), std::to_string(options().partner_bytes), "partner_bytes"});
  with = options();
  with.partner_owner = "rank 1 of 2";
  refused(with, {path(), "rank 0 of 2", "rank 1 of 2"});
  with.partner_region += ".other";
  refused(with, {path(), "rank 0 of 2", "rank 1 of 2"});
  EXPECT_FALSE(std::filesystem::exists(with.partner_region));
  with = options();
  with.partner_lender = "";
  refused(with, {"history_lent"});
  with.partner_region = "";
  with.partner_bytes = 0;
  with.partner_owner = "";
  with.partner_lender = path();
  refused(with, {"partner_lender", "partner_region"});
  with = options();
  with.partner_lender = with.partner_region;
  refused(with, {"partner_lender", "partner_region"});
  with = options();
  with.partner_lender += std::string("\0x", 2);
  refused(with, {"zero byte"});
  with.partner_lender = scratch_.path("partner/text");
  std::ofstream(with.partner_lender) << std::string(5'000, 'x');
  std::filesystem::permissions(with.partner_lender, std::filesystem::perms(0600));
  refused(with, {with.partner_lender, "PartnerMemory"}, Errc::foreign);
  {
    with.partner_lender = scratch_.path("partner/own");
    const PartnerMemory own(with.partner_lender, with.partner_bytes);
    refused(with, {with.partner_lender, "itself"});
  }
  refused(with, {"nobody"}, Errc::not_found);
  expect_found({0, 1, 2});
}

TEST_F(PartnerDeviceTest, OneHistoryAtATimeHasIt) {
  ASSERT_NO_FATAL_FAILURE(lend());
  const auto child = writer({.last = 3, .has_disk = false});
  std::uint64_t step = 0;
  while (step < 2) ASSERT_TRUE(child->read(step));
  EXPECT_EQ(error_of([&] { History::open(options(0, false)); }), Errc::in_use);
  HistoryOptions with = options(0, false);
  with.partner_region += ".other";
  EXPECT_EQ(error_of([&] { History::open(with); }, {path()}), Errc::in_use);
  child->kill();
  expect_found({0, 1, 2});
}

TEST_F(PartnerDeviceTest, EachRankHasALenderOfItsOwn) {
  HistoryOptions with = options(0, false);
  with.ranks = holdfast::local_ranks({});
  with.partner_owner = "";
  EXPECT_EQ(error_of([&] { History::open(with); }, {path() + ".rank-00000-of-00001"}),
            Errc::not_found);
}

TEST_F(PartnerDeviceTest, OneLendsAtAPath) {
  ASSERT_NO_FATAL_FAILURE(lend());
  const auto refused = [](const std::string& at, std::uint64_t bytes,
                          const std::vector<std::string>& words) {
    return error_of([&] { PartnerMemory(at, bytes); }, words);
  };
  EXPECT_EQ(refused(path(), 4096, {path(), std::to_string(lender_->pid())}), Errc::in_use);
  EXPECT_EQ(refused("", 4096, {"path"}), Errc::invalid_argument);
  EXPECT_EQ(refused(scratch_.path("partner/x"), 0, {}), Errc::invalid_argument);
  constexpr std::uint64_t kTooMany = std::uint64_t{1} << 50;
  EXPECT_EQ(refused(scratch_.path("partner/x"), kTooMany, {std::to_string(kTooMany)}),
            Errc::no_memory);
  EXPECT_EQ(refused(scratch_.path("none/x"), 4096, {scratch_.path("none")}), Errc::not_found);
  const std::string text = scratch_.path("partner/text");
  std::ofstream(text) << std::string(5'000, 'x');
  std::filesystem::permissions(text, std::filesystem::perms(0600));
  EXPECT_EQ(refused(text, 4096, {text}), Errc::foreign);
  EXPECT_EQ(std::filesystem::file_size(text), 5'000u);
  lender_->kill();
  const PartnerMemory next(path(), 8192);  // the file of one that was killed makes way
  EXPECT_EQ(next.path(), path());
  EXPECT_EQ(next.bytes(), 8192u);
  PartnerMemory moved = PartnerMemory(scratch_.path("partner/moved"), 4096);
  EXPECT_TRUE(std::filesystem::exists(moved.path()));
  moved = PartnerMemory(scratch_.path("partner/again"), 4096);
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("partner/moved")));
}

// Every byte of the lender's file.
TEST_F(PartnerDeviceTest, ALendersFileThatIsDamagedIsNotBelieved) {
  ASSERT_NO_FATAL_FAILURE(lend());
  killed({.last = 3, .has_disk = false}, 3);
  const std::uint64_t seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  const std::vector<char> whole = holdfast::test::read_file(path());
  ASSERT_EQ(whole.size(),
            sizeof(holdfast::history::LenderRecord) + sizeof(holdfast::history::LeaseRecord));
  const auto put = [&](std::size_t at, char value) {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(value);
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    put(at, static_cast<char>(whole[at] ^ static_cast<char>(1 + random() % 255)));
    const Errc code = error_of([&] { History::open(options(0, false)); }, {path()});
    EXPECT_TRUE(code == Errc::damaged || code == Errc::foreign || code == Errc::newer_version)
        << "byte " << at << ", seed " << seed << ": " << to_string(code);
    put(at, whole[at]);
  }
  for (const std::uintmax_t bytes : {std::uintmax_t{0}, std::uintmax_t{200}, std::uintmax_t{300}}) {
    std::filesystem::resize_file(path(), bytes);
    EXPECT_NO_THROW(error_of([&] { History::open(options(0, false)); }, {path()}));  // some Error
    for (std::size_t at = bytes; at < whole.size(); ++at) put(at, whole[at]);
  }
  expect_found({0, 1, 2});
}

// A slot of the region that is damaged, or of another lease.
TEST_F(PartnerDeviceTest, ASlotThatIsDamagedIsNotBelieved) {
  using holdfast::history::HostSlot;
  ASSERT_NO_FATAL_FAILURE(lend());
  killed({.first = 1, .last = 3, .has_disk = false}, 2);
  const std::uint64_t seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < 60; ++i) {
    const std::size_t at = i < 40 ? 60 + i : random() % sizeof(HostSlot);
    HostSlot slot{};
    {
      Region region = Region::open(options().partner_region);
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
      History history = History::open(options(0, false));
      EXPECT_TRUE(restores(history, 2));
      EXPECT_FALSE(history.is_in(1, Tier::partner)) << "byte " << at << ", seed " << seed;
    }
    Region region = Region::open(options().partner_region);
    auto slots = region.find<HostSlot>("history.slots");
    *std::find_if(slots.begin(), slots.end(), [](const auto& each) { return each.counts == 0; }) =
        slot;  // for the next byte
    region.abandon();
  }
  expect_found({1, 2});
}

// Though it has the lender's lock.
TEST_F(PartnerDeviceTest, AForkedChildOfTheLenderDoesNotLend) {
  if (on_gpu()) GTEST_SKIP() << "a GPU's context does not survive fork()";
  const std::string at = scratch_.path("partner/forked");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t lender = holdfast::test::fork_when_still();
  if (lender == 0) {
    end_with_the_parent();
    const PartnerMemory memory(at, 20 * kUnit);
    const pid_t child = ::fork();
    if (child == 0) ::alarm(60), wait_to_be_killed();  // not with its parent
    (void)!::write(ends[1], &child, sizeof(child));
    wait_to_be_killed();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof(child)), ssize_t{sizeof(child)});
  HistoryOptions with = options(0, false);
  with.partner_lender = at;
  History running = History::open(with);
  Stream stream;
  std::vector<std::uint8_t> field;
  const Ticket ticket = save(running, stream, field, 0);
  ticket.wait(Tier::partner);
  ::kill(lender, SIGKILL);
  ::waitpid(lender, nullptr, 0);
  EXPECT_FALSE(ticket.is_in(Tier::partner));
  EXPECT_EQ(error_of([&] { running.close(); }, {at}), Errc::io);
  EXPECT_EQ(error_of([&] { History::open(with); }, {at, "process"}), Errc::not_found);
  EXPECT_EQ(error_of([&] { PartnerMemory(at, 4096); }, {at, "forked"}), Errc::in_use);
  ::kill(child, SIGKILL);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace

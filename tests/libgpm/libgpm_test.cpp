// Code written for libGPM: the paper's Figure 6, killed and recovered.
#include "holdfast/compat/libgpm.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "libgpm/figure6.hpp"
#include "support/killed_child.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace {

using figure6::Data;
using figure6::Set;
using holdfast::Errc;
using holdfast::test::error_of;

constexpr std::uint32_t kSets = 4096;
constexpr std::uint32_t kBatch = 256;
constexpr std::size_t kEntryBytes = 24;
using Contents = std::map<std::uint64_t, std::uint64_t>;

// Keys of one batch lie in different sets: Figure 6 does not handle two of a set.
std::vector<Data> batch_of(std::uint64_t n) {
  std::mt19937_64 random(n);
  std::vector<Data> batch;
  std::vector<bool> taken(kSets);
  while (batch.size() < kBatch) {
    const std::uint64_t key = 1 + random() % 5000;
    const std::uint32_t set = figure6::hash_of(key, kSets);
    if (!taken[set]) batch.push_back({key, n << 32 | batch.size()});
    taken[set] = true;
  }
  return batch;
}

// The store of the application: a table, a flag, and a log.
struct Application {
  std::string path;
  std::uint64_t* memory;  // the flag, then batches committed, then (a page on) the table
  gpmlog* log;
  holdfast::Stream stream;
  holdfast::DeviceBuffer<Data> data{kBatch};
  holdfast::PinnedBuffer<std::uint32_t> failures{1};

  static constexpr std::size_t kBytes = 4096 + kSets * sizeof(Set);
  explicit Application(const std::string& folder, bool create) : path(folder + "/kvs") {
    memory = static_cast<std::uint64_t*>(gpm_map(path.c_str(), kBytes, create));
    const std::string log_path = folder + "/log";
    log = create
              ? gpmlog_create_hcl(log_path.c_str(), kBatch * 8 * kEntryBytes, kBatch * 8 / 128, 128)
              : gpmlog_open(log_path.c_str());
  }
  Set* table() { return reinterpret_cast<Set*>(memory + 512); }

  void apply(std::uint64_t n) {
    const auto batch = batch_of(n);
    gpm_persist_begin();
    figure6::set_flag(stream, memory, 1);
    holdfast::copy_async(stream, data.data(), batch.data(), kBatch * sizeof(Data));
    figure6::insert(stream, table(), kSets, log, data.data(), kBatch, failures.data());
    figure6::set_flag(stream, memory + 1, n + 1);
    figure6::set_flag(stream, memory, 0);
    figure6::clear(stream, log, kBatch * 8);
    stream.synchronize();
    gpm_persist_end();
  }
  bool recover() {
    const bool active = memory[0] == 1;
    if (active) {
      figure6::recover(stream, table(), log, kBatch);
    } else {
      figure6::clear(stream, log, kBatch * 8);
    }
    figure6::set_flag(stream, memory, 0);
    stream.synchronize();
    return active;
  }
  Contents contents() {
    Contents result;
    for (std::uint32_t set = 0; set < kSets; ++set) {
      for (int way = 0; way < figure6::kWays; ++way) {
        if (table()[set].key[way]) result[table()[set].key[way]] = table()[set].value[way];
      }
    }
    return result;
  }
  void close() {
    gpm_unmap(path.c_str(), memory, kBytes);
    gpmlog_close(log);
  }
};

class LibGpm : public holdfast::test::Scratch {};

TEST_F(LibGpm, BatchesOfFigure6SurviveACleanClose) {
  Contents expected;
  Application first(folder(), true);
  for (std::uint64_t n = 0; n < 5; ++n) {
    first.apply(n);
    for (const Data& pair : batch_of(n)) expected[pair.key] = pair.value;
  }
  EXPECT_EQ(first.failures[0], 0u);
  EXPECT_EQ(first.contents(), expected);
  first.close();
  Application second(folder(), false);
  EXPECT_EQ(second.contents(), expected);
  second.close();
}

TEST(LibGpmChild, DISABLED_AppliesUntilKilled) {
  Application application(holdfast::test::from_environment("HOLDFAST_TEST_PATH"), false);
  application.recover();
  for (std::uint64_t n = application.memory[1];; ++n) {
    holdfast::test::report(n);
    application.apply(n);
  }
}

TEST_F(LibGpm, Figure6RecoversFromKills) {
  std::mt19937_64 random(holdfast::test::test_seed());
  Application(folder(), true).close();
  Contents oracle;
  std::uint64_t applied = 0;
  int interrupted = 0;
  for (holdfast::test::KillRounds rounds(holdfast::test::some_of(12, 4));
       rounds.another(interrupted > 0);) {
    const auto told = holdfast::test::told_until_killed<std::uint64_t>(
        "LibGpmChild.DISABLED_AppliesUntilKilled", arenas(), {{"HOLDFAST_TEST_PATH", folder()}},
        random, rounds.most_microseconds(10'000));
    ASSERT_FALSE(told.empty());
    const std::uint64_t in_flight = told.back();
    Application application(folder(), false);
    interrupted += application.recover();
    for (; applied < in_flight; ++applied) {
      for (const Data& pair : batch_of(applied)) oracle[pair.key] = pair.value;
    }
    Contents contents = application.contents();
    if (contents != oracle) {
      for (const Data& pair : batch_of(applied)) oracle[pair.key] = pair.value;
      ++applied;
      EXPECT_EQ(contents, oracle) << "neither without nor with batch " << in_flight;
    }
    // What the flag says decides where the child goes on.
    application.memory[1] = applied;
    application.close();
  }
}

TEST_F(LibGpm, PartitionsOfTheConventionalLogAreAddressedByNumber) {
  const std::string path = folder() + "/log";
  gpmlog* log = gpmlog_create_conv(path.c_str(), 64 * 1024, 4);
  holdfast::Stream stream;
  figure6::fill_partition(stream, log, 500);
  stream.synchronize();
  gpmlog_close(log);
  log = gpmlog_open(path.c_str());
  holdfast::PinnedBuffer<std::uint64_t> sum(1);
  figure6::sum_partition(stream, log, sum.data());
  stream.synchronize();
  EXPECT_EQ(sum[0], 500u * 499 / 2);
  gpmlog_close(log);
}

TEST_F(LibGpm, MisuseIsRefused) {
  const std::string path = folder() + "/memory";
  EXPECT_EQ(error_of([&] { gpm_map(path.c_str(), 0, true); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { gpm_map(path.c_str(), 100, false); }), Errc::not_found);
  void* memory = gpm_map(path.c_str(), 100, true);
  EXPECT_EQ(error_of([&] { gpm_map(path.c_str(), 100, true); }), Errc::already_exists);
  EXPECT_EQ(error_of([&] { gpm_unmap(path.c_str(), &memory, 100); }), Errc::invalid_argument);
  gpm_unmap(path.c_str(), memory, 100);
  EXPECT_EQ(error_of([&] { gpm_map(path.c_str(), 8192, false); }, {"8192"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { gpmlog_create_hcl(path.c_str(), 64, 0, 32); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { gpmlog_create_conv(path.c_str(), 0, 2); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { gpmlog_close(nullptr); }), Errc::invalid_argument);
}

}  // namespace

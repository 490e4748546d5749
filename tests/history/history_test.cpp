// A history against an oracle that knows what every checkpoint held.
#include "holdfast/history.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace {

using holdfast::BufferMemory;
using holdfast::copy_async;
using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::History;
using holdfast::HistoryOptions;
using holdfast::HistoryStats;
using holdfast::PinnedBuffer;
using holdfast::Stream;
using holdfast::Ticket;
using holdfast::Tier;
using holdfast::test::error_of;
using holdfast::test::ScratchFolders;

constexpr std::uint64_t kUnit = 64 << 10;  // bytes of an array, at most

// An array in device memory whose contents are told from a number.
class Field {
 public:
  explicit Field(std::uint64_t bytes = kUnit) : device_(bytes), pinned_(bytes) {}

  std::byte* data() const { return device_.data(); }
  void fill(Stream& stream, std::uint64_t number, std::uint64_t bytes) {
    stream.synchronize();  // the staging memory is free
    for (std::uint64_t i = 0; i < bytes; ++i) pinned_[i] = value(number, i);
    copy_async(stream, device_.data(), pinned_.data(), bytes);
  }
  // Of the first wrong byte, or none.
  ::testing::AssertionResult holds(Stream& stream, std::uint64_t number, std::uint64_t bytes) {
    copy_async(stream, pinned_.data(), device_.data(), bytes);
    stream.synchronize();
    for (std::uint64_t i = 0; i < bytes; ++i) {
      if (pinned_[i] == value(number, i)) continue;
      return ::testing::AssertionFailure() << "byte " << i << " of what is of " << number;
    }
    return ::testing::AssertionSuccess();
  }
  static std::byte value(std::uint64_t number, std::uint64_t i) {
    return static_cast<std::byte>((number * 2654435761u + i * 40503u + (i >> 8)) >> 5);
  }

 private:
  DeviceBuffer<std::byte> device_;
  PinnedBuffer<std::byte> pinned_;
};

struct Setting {
  std::string name;
  std::uint64_t gpu = 0, host = 0;  // in units
  bool disk = true, remote = false;
  std::uint64_t partner = 0;  // in units
};

class Tiers : public ::testing::TestWithParam<Setting> {
 protected:
  HistoryOptions options() const {
    HistoryOptions options;
    options.gpu_bytes = GetParam().gpu * kUnit;
    options.host_bytes = GetParam().host * kUnit;
    return options;
  }
  // In shared memory: there are many syncs, and a slow disk shows nothing more.
  std::string folder(const std::string& name) const { return scratch_.arenas() + "/" + name; }
  ScratchFolders scratch_;
  Stream stream_;
  Field field_;
};

std::vector<std::uint64_t> order_of(const std::string& name, std::uint64_t steps) {
  std::vector<std::uint64_t> order(steps);
  std::iota(order.begin(), order.end(), 0);
  if (name == "reverse") std::reverse(order.begin(), order.end());
  if (name == "irregular") std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  return order;
}

// The paper's shot: a forward pass that saves, a backward pass that restores in a known order.
TEST_P(Tiers, AShotComesBackInAnyOrderAndWithAnyHints) {
  constexpr std::uint64_t kSteps = 24;
  const holdfast::test::Every tried = holdfast::test::every(1, 5);
  std::uint64_t number = 0;
  for (const char* order_name : {"sequential", "reverse", "irregular"}) {
    for (const char* hints : {"none", "single", "all"}) {
      if (number++ % tried.step != tried.first) continue;
      SCOPED_TRACE(std::string(order_name) + ", " + hints);
      HistoryOptions with = options();
      with.disk = folder(std::string(order_name) + hints);
      if (!GetParam().disk) with.disk = "";
      if (GetParam().partner > 0) {
        with.partner_bytes = GetParam().partner * kUnit;
        with.partner_region = folder(std::string("partner") + order_name + hints);
      }
      if (GetParam().remote) with.remote = folder(std::string("far") + order_name + hints);
      History history = History::open(with);
      const auto order = order_of(order_name, kSteps);
      if (hints == std::string("all")) history.hint(order);
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        const std::uint64_t bytes = kUnit / 4 + step * 1111;
        history.protect("field", field_.data(), bytes);
        field_.fill(stream_, step, bytes);
        history.save(step, stream_);
      }
      history.prefetch_start();
      for (std::uint64_t i = 0; i < kSteps; ++i) {
        if (hints == std::string("single") && i + 1 < kSteps) history.hint(order[i + 1]);
        const std::uint64_t bytes = history.size(order[i], "field");
        ASSERT_EQ(bytes, kUnit / 4 + order[i] * 1111);
        history.protect("field", field_.data(), bytes);
        history.restore(order[i], stream_);
        ASSERT_TRUE(field_.holds(stream_, order[i], bytes));
      }
      const HistoryStats stats = history.stats();
      EXPECT_EQ(stats.saves.checkpoints, kSteps);
      EXPECT_EQ(stats.restores.checkpoints, kSteps);
      EXPECT_EQ(stats.failed_transfers, 0u);
      history.close();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Tiers,
                         ::testing::Values(Setting{"GpuHostDisk", 4, 8}, Setting{"GpuDisk", 4, 0},
                                           Setting{"HostDisk", 0, 6}, Setting{"Disk", 0, 0},
                                           Setting{"AllFour", 4, 6, true, true},
                                           Setting{"AllFive", 4, 6, true, true, 8},
                                           Setting{"GpuPartnerDisk", 4, 0, true, false, 8},
                                           Setting{"Partner", 0, 0, false, false, 26},
                                           Setting{"GpuHost", 4, 20, false},
                                           Setting{"Gpu", 24, 0, false}),
                         [](const auto& info) { return info.param.name; });

class HistoryTest : public ::testing::Test {
 protected:
  HistoryOptions small() const {
    return {.gpu_bytes = 3 * kUnit, .host_bytes = 4 * kUnit, .disk = scratch_.path("history")};
  }
  void save(History& history, std::uint64_t step, std::uint64_t bytes = kUnit) {
    history.protect("field", field_.data(), bytes);
    field_.fill(stream_, step, bytes);
    history.save(step, stream_);
  }
  ::testing::AssertionResult restores(History& history, std::uint64_t step,
                                      std::uint64_t bytes = kUnit) {
    history.protect("field", field_.data(), bytes);
    history.restore(step, stream_);
    return field_.holds(stream_, step, bytes);
  }
  ScratchFolders scratch_;
  Stream stream_;
  Field field_;
};

TEST_F(HistoryTest, IsThereAgainInAnotherLife) {
  {
    History history = History::open(small());
    for (std::uint64_t step = 0; step < 10; ++step) save(history, step * 3);
    history.close();
  }
  History history = History::open(small());
  EXPECT_EQ(history.steps().size(), 10u);
  EXPECT_EQ(history.latest(), 27u);
  EXPECT_EQ(history.latest(Tier::gpu), std::nullopt);
  for (std::uint64_t step = 0; step < 10; ++step) EXPECT_TRUE(restores(history, step * 3));
  history.verify(27);
}

TEST_F(HistoryTest, ATicketSaysWhatIsDurable) {
  History history = History::open(small());
  history.protect("field", field_.data(), kUnit);
  field_.fill(stream_, 1, kUnit);
  const Ticket ticket = history.save(1, stream_);
  ticket.wait_staged();
  EXPECT_TRUE(ticket.staged());
  ticket.wait();
  EXPECT_TRUE(ticket.is_in(Tier::gpu));
  EXPECT_TRUE(ticket.is_in(Tier::disk));
  EXPECT_EQ(history.latest(Tier::disk), 1u);
  history.verify(1);
  history.close();
  ticket.wait();  // it is durable still
}

TEST_F(HistoryTest, WhatIsDiscardedIsGoneInEveryLife) {
  {
    History history = History::open(small());
    for (std::uint64_t step = 0; step < 6; ++step) save(history, step);
    EXPECT_TRUE(history.discard(2));
    EXPECT_FALSE(history.discard(2));
    history.flush();
    EXPECT_TRUE(history.discard(3));
    EXPECT_EQ(error_of([&] { history.restore(2, stream_); }), Errc::not_found);
    EXPECT_EQ(error_of([&] { history.size(3, "field"); }), Errc::not_found);
    save(history, 3, kUnit / 2);  // the number can be used again
    EXPECT_TRUE(restores(history, 3, kUnit / 2));
  }
  History history = History::open(small());
  EXPECT_EQ(history.steps(), (std::vector<std::uint64_t>{0, 1, 3, 4, 5}));
  EXPECT_TRUE(restores(history, 3, kUnit / 2));
}

TEST_F(HistoryTest, WrongHintsCostTimeAndNothingElse) {
  History history = History::open(small());
  history.prefetch_start();
  history.hint(std::vector<std::uint64_t>{5, 5, 99, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1});
  for (std::uint64_t step = 0; step < 12; ++step) {
    save(history, step);
    history.hint(step);  // and it is restored much later, if at all
  }
  for (std::uint64_t step = 12; step-- > 6;) EXPECT_TRUE(restores(history, step));
  for (std::uint64_t step = 12; step < 24; ++step) save(history, step);
  for (const std::uint64_t step : {3, 17, 0, 23, 9}) EXPECT_TRUE(restores(history, step));
}

// A quadratic walk over them would take minutes.
TEST_F(HistoryTest, ManyHintsForWhatNeverComesAreWalkedOnce) {
  History history = History::open(small());
  save(history, 7);
  std::vector<std::uint64_t> hints;
  const std::uint64_t in_vain = holdfast::test::some_of(std::uint64_t{3} << 19, 500'000);
  for (std::uint64_t i = 0; i < in_vain; ++i) hints.push_back(1000 + i % 5000);
  hints.insert(hints.begin() + 400'000, 7);
  history.hint(hints);
  history.prefetch_start();
  EXPECT_TRUE(restores(history, 7));
  save(history, 8);
  EXPECT_TRUE(restores(history, 8));
}

TEST_F(HistoryTest, ConsumedCheckpointsGoWhereThatIsAsked) {
  HistoryOptions options = small();
  options.discard_consumed = true;
  History history = History::open(options);
  for (std::uint64_t step = 0; step < 8; ++step) save(history, step);
  EXPECT_TRUE(restores(history, 7));
  EXPECT_EQ(error_of([&] { history.restore(7, stream_); }), Errc::not_found);
  history.protect("field", field_.data(), kUnit);
  history.restore(6, stream_, true);  // kept
  EXPECT_TRUE(field_.holds(stream_, 6, kUnit));
  EXPECT_TRUE(restores(history, 6));
  EXPECT_EQ(history.steps(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(HistoryTest, TheRuleOfRetentionHoldsOnDisk) {
  HistoryOptions options = small();
  options.keep_last = 2;
  options.keep_every = 4;
  {
    History history = History::open(options);
    for (std::uint64_t step = 1; step < 11; ++step) {
      save(history, step);
      history.flush();
    }
  }
  History history = History::open(small());
  EXPECT_EQ(history.steps(), (std::vector<std::uint64_t>{4, 8, 9, 10}));
}

TEST_F(HistoryTest, OtherArraysAreRefusedByNameAndNothingChanges) {
  History history = History::open(small());
  save(history, 1);
  field_.fill(stream_, 77, kUnit);
  const auto message = [&] {
    try {
      history.restore(1, stream_);
    } catch (const holdfast::Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  history.protect("field", field_.data(), kUnit / 2);
  EXPECT_NE(message().find("field"), std::string::npos);
  history.unprotect("field");
  history.protect("other", field_.data(), kUnit);
  EXPECT_NE(message().find("other"), std::string::npos) << message();
  EXPECT_TRUE(field_.holds(stream_, 77, kUnit));
  EXPECT_EQ(error_of([&] { history.protect("", field_.data(), 1); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { history.protect("x", field_.data(), 0); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { history.save(1, stream_); }), Errc::already_exists);
}

TEST_F(HistoryTest, AHistoryWithoutRoomSaysSo) {
  History history = History::open({.gpu_bytes = 2 * kUnit});
  save(history, 0);
  save(history, 1);
  EXPECT_EQ(error_of([&] { save(history, 2); }), Errc::no_space);
  EXPECT_TRUE(restores(history, 0));
  EXPECT_EQ(error_of([&] { save(history, 2); }), Errc::no_space);  // nothing slower has it
  history.discard(0);
  save(history, 2);
  EXPECT_TRUE(restores(history, 2));
  EXPECT_TRUE(restores(history, 1));
  EXPECT_EQ(error_of([] { History::open({}); }), Errc::invalid_argument);
}

TEST_F(HistoryTest, ASecondOneInTheFolderIsRefused) {
  History history = History::open(small());
  EXPECT_EQ(error_of([&] { History::open(small()); }), Errc::in_use);
  History moved = std::move(history);
  EXPECT_EQ(error_of([&] { history.steps(); }), Errc::closed);
  moved.close();
  EXPECT_EQ(error_of([&] { moved.steps(); }), Errc::closed);
  moved.close();
  History::open(small());
}

TEST_F(HistoryTest, PageableMemoryComesBackToo) {
  std::vector<std::byte> host(kUnit);
  History history = History::open(small());
  history.protect("host", host.data(), host.size(), BufferMemory::host);
  history.protect("field", field_.data(), 1000);
  for (std::uint64_t step = 0; step < 10; ++step) {
    for (std::uint64_t i = 0; i < kUnit; ++i) host[i] = Field::value(step + 100, i);
    field_.fill(stream_, step, 1000);
    history.save(step, stream_);
    std::fill(host.begin(), host.end(), std::byte{0});  // save() has its copy
  }
  for (std::uint64_t step = 0; step < 10; ++step) {
    history.restore(step, stream_);
    for (std::uint64_t i = 0; i < kUnit; ++i) ASSERT_EQ(host[i], Field::value(step + 100, i));
    EXPECT_TRUE(field_.holds(stream_, step, 1000));
  }
}

class RemoteTest : public HistoryTest {
 protected:
  HistoryOptions both() const {
    HistoryOptions options = small();
    options.remote = scratch_.path("remote");
    return options;
  }
  void flip_a_bit(const std::string& folder, std::uint64_t step) const {
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path(folder))) {
      const std::string name = entry.path().filename();
      if (name.find(std::to_string(step)) == name.npos) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(-5000, std::ios::end);
      const char byte = static_cast<char>(file.get());
      file.seekp(-5000, std::ios::end);
      file.put(static_cast<char>(byte ^ 1));
      return;
    }
    FAIL() << "no file of step " << step;
  }
};

TEST_F(RemoteTest, ALostDiskIsMadeUpFor) {
  {
    History history = History::open(both());
    for (std::uint64_t step = 10; step < 20; ++step) save(history, step);
    history.flush();
    EXPECT_EQ(history.latest(Tier::remote), 19u);
    history.verify(15);
  }
  std::filesystem::remove_all(scratch_.path("history"));  // another machine
  History history = History::open(both());
  EXPECT_EQ(history.steps().size(), 10u);
  EXPECT_EQ(history.latest(Tier::disk), std::nullopt);
  EXPECT_EQ(history.latest(Tier::remote), 19u);
  history.hint(std::vector<std::uint64_t>{12, 11, 10});
  history.prefetch_start();
  for (std::uint64_t step = 20; step-- > 10;) EXPECT_TRUE(restores(history, step));
  save(history, 20);
  history.flush();
  EXPECT_EQ(history.latest(Tier::disk), 20u);
}

TEST_F(RemoteTest, WhatIsDamagedOnDiskComesFromThere) {
  {
    History history = History::open(both());
    for (std::uint64_t step = 10; step < 20; ++step) save(history, step);
  }
  flip_a_bit("history", 12);
  flip_a_bit("remote", 13);
  flip_a_bit("history", 14);
  flip_a_bit("remote", 14);
  History history = History::open(both());
  EXPECT_TRUE(restores(history, 12));
  EXPECT_TRUE(restores(history, 13));
  EXPECT_EQ(error_of([&] { history.verify(13); }), Errc::damaged);
  EXPECT_EQ(error_of([&] { restores(history, 14); }), Errc::damaged);
  history.flush();  // 13 went to the remote tier again
  history.verify(13);
}

TEST_F(RemoteTest, ADiscardReachesAllTiers) {
  {
    History history = History::open(both());
    for (std::uint64_t step = 10; step < 20; ++step) save(history, step);
    history.flush();
    for (std::uint64_t step = 11; step < 20; ++step) history.discard(step);
    history.flush();
  }
  for (const char* left : {"history", "remote"}) {
    HistoryOptions options;
    options.disk = scratch_.path(left);
    EXPECT_EQ(History::open(options).steps(), std::vector<std::uint64_t>{10}) << left;
  }
}

// A disk that was written anew under the same numbers.
TEST_F(RemoteTest, TheLaterOfTwoUnderOneNumberCounts) {
  {
    History history = History::open(both());
    save(history, 10);
    save(history, 11);
  }
  std::filesystem::remove_all(scratch_.path("history"));
  {
    History history = History::open(small());
    history.protect("field", field_.data(), kUnit / 2);
    field_.fill(stream_, 77, kUnit / 2);
    history.save(10, stream_);
  }
  {
    History history = History::open(both());
    EXPECT_EQ(history.size(10, "field"), kUnit / 2);
    EXPECT_TRUE(restores(history, 11));
    history.flush();
  }
  std::filesystem::remove_all(scratch_.path("history"));
  History history = History::open(both());
  history.protect("field", field_.data(), kUnit / 2);
  history.restore(10, stream_);
  EXPECT_TRUE(field_.holds(stream_, 77, kUnit / 2));
}

TEST_F(RemoteTest, ARemoteTierNeedsNoDisk) {
  HistoryOptions options;
  options.gpu_bytes = 2 * kUnit;
  options.remote = scratch_.path("remote");
  {
    History history = History::open(options);
    for (std::uint64_t step = 10; step < 20; ++step) save(history, step);
    for (std::uint64_t step = 10; step < 20; ++step) EXPECT_TRUE(restores(history, step));
  }
  History history = History::open(options);
  EXPECT_EQ(history.steps().size(), 10u);
  EXPECT_TRUE(restores(history, 13));
}

// Calls in any order, from a seed.
TEST_F(HistoryTest, RandomCallsAgreeWithAMap) {
  const std::uint64_t seed = holdfast::test::test_seed();
  for (std::uint64_t run = 0; run < holdfast::test::some_of(12); ++run) {
    std::mt19937_64 random(seed + run);
    const auto below = [&](std::uint64_t bound) { return random() % bound; };
    HistoryOptions options;
    options.gpu_bytes = below(3) * 2 * kUnit;
    options.host_bytes = below(3) * 2 * kUnit;
    options.disk = scratch_.arenas() + "/random" + std::to_string(run);
    if (below(2) == 0) options.remote = scratch_.arenas() + "/far" + std::to_string(run);
    if (below(2) == 0) {
      options.partner_bytes = (1 + below(4)) * 2 * kUnit;
      options.partner_region = scratch_.arenas() + "/partner" + std::to_string(run);
    }
    options.discard_consumed = below(3) == 0;
    std::map<std::uint64_t, std::uint64_t> oracle;  // bytes by step
    std::map<std::uint64_t, bool> kept;
    std::uint64_t next = 0;
    for (int life = 0; life < 3; ++life) {
      History history = History::open(options);
      std::vector<std::uint64_t> listed;
      for (const auto& [step, bytes] : oracle) listed.push_back(step);
      ASSERT_EQ(history.steps(), listed) << "seed " << seed << ", run " << run;
      Stream streams[2];
      for (int call = 0; call < 80; ++call) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", run " + std::to_string(run) + ", life " +
                     std::to_string(life) + ", call " + std::to_string(call));
        Stream& stream = streams[below(2)];
        const std::uint64_t some = next == 0 ? 0 : below(next);
        switch (below(8)) {
          case 0:
          case 1:
          case 2: {
            const std::uint64_t bytes = 1 + below(kUnit);
            const bool keep = below(4) == 0;
            for (Stream& each : streams) each.synchronize();  // they share the field
            history.protect("field", field_.data(), bytes);
            field_.fill(stream, next, bytes);
            history.save(next, stream, keep);
            oracle[next] = bytes;
            kept[next] = keep;
            ++next;
            break;
          }
          case 3:
          case 4:
          case 5: {
            const auto found = oracle.find(some);
            for (Stream& each : streams) each.synchronize();
            if (found == oracle.end()) {
              ASSERT_EQ(error_of([&] { history.restore(some, stream); }), Errc::not_found);
              break;
            }
            ASSERT_EQ(history.size(some, "field"), found->second);
            history.protect("field", field_.data(), found->second);
            const bool keep = below(2) == 0;
            history.restore(some, stream, keep);
            ASSERT_TRUE(field_.holds(stream, some, found->second));
            break;
          }
          case 6:
            history.hint(below(next + 3));
            if (below(4) == 0) history.prefetch_start();
            break;
          case 7:
            if (below(3) == 0) {
              ASSERT_EQ(history.discard(some), oracle.erase(some) == 1);
            }
            break;
        }
        if (options.discard_consumed) {  // what goes depends on hints; the history says
          const auto steps = history.steps();
          std::erase_if(oracle, [&](const auto& entry) {
            return !std::binary_search(steps.begin(), steps.end(), entry.first);
          });
        }
      }
      ASSERT_EQ(history.stats().failed_transfers, 0u);
      history.close();
    }
  }
}

// Several threads, each with steps, a stream and an array of its own; one set of arrays is
// protected at a time, so they take turns over that.
TEST_F(HistoryTest, ThreadsMaySaveDiscardAndAskBesideOneAnother) {
  History history = History::open(small());
  history.prefetch_start();
  std::mutex arrays;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&history, &arrays, thread] {
      Field field;
      Stream stream;
      const auto with_field = [&](auto&& body) {
        const std::lock_guard lock(arrays);
        history.protect("field", field.data(), kUnit);
        return body();
      };
      for (std::uint64_t i = 0; i < 30; ++i) {
        const std::uint64_t step = thread * 1000 + i;
        field.fill(stream, step, kUnit);
        const Ticket ticket = with_field([&] { return history.save(step, stream); });
        history.hint(step);
        if (i % 3 == 0) ticket.wait();
        with_field([&] { history.restore(step, stream); });
        EXPECT_TRUE(field.holds(stream, step, kUnit));
        if (i % 2 == 0) history.discard(step);
        (void)history.stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(history.steps().size(), 60u);
  history.close();
}

}  // namespace

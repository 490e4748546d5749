// Histories whose remote tier is memory of another node: what survives the loss of either side.
// A node is lost here as far as one host can lose it: its process is killed or stopped, and all
// that was in its own folder is removed; the partner is a process of its own, or a server of the
// test's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/history.hpp"
#include "holdfast/history_folder.hpp"
#include "holdfast/memory_server.hpp"
#include "holdfast/ranks.hpp"
#include "killed_history.hpp"
#include "support/error_of.hpp"
#include "support/memory_server_process.hpp"
#include "support/message_proxy.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/still_fork.hpp"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using test::error_of;
using test::killed_saving;
using test::kUnit;
using test::MemoryServerProcess;
using test::MessageProxy;
using test::restores;
using test::save;

constexpr MemoryStoreOptions kImpatient{milliseconds(300), milliseconds(300)};

class MemoryHistoryTest : public test::Scratch {
 protected:
  MemoryHistoryTest() { ::alarm(240); }  // what waits for ever fails
  ~MemoryHistoryTest() override { ::alarm(0); }

  static MemoryServerOptions server_options(std::uint64_t bytes = 64 << 20) {
    MemoryServerOptions options;
    options.bytes = bytes;
    return options;
  }
  HistoryOptions options(const std::string& remote, const std::string& disk = "disk") const {
    HistoryOptions options;
    options.gpu_bytes = 4 * kUnit;
    options.host_bytes = 6 * kUnit;
    if (!disk.empty()) options.disk = path(disk);
    options.remote = remote;
    return options;
  }
  // What a newcomer finds who has nothing of his own.
  static void check(const HistoryOptions& with, const std::vector<std::uint64_t>& told) {
    History history = History::open(with);
    for (const std::uint64_t step : told) EXPECT_TRUE(history.is_in(step, Tier::remote)) << step;
    for (const std::uint64_t step : history.steps()) EXPECT_TRUE(restores(history, step)) << step;
  }
};

// Node after node is lost at random moments; each life goes on with what the partner has kept of
// all the ones before.
TEST_F(MemoryHistoryTest, WhatThePartnerHasSurvivesTheLossOfTheNode) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  const MemoryServerProcess server(server_options());
  std::size_t found = 0;
  const std::uint64_t rounds = test::some_of(8, 2);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const bool has_disk = random() % 3 != 0, has_host = random() % 3 != 0;
    std::vector<std::uint64_t> told;
    for (std::uint64_t life = 0; life < 3; ++life) {
      HistoryOptions with = options(server.address() + "/round" + std::to_string(round));
      with.gpu_bytes *= random() % 2;
      if (!has_host) with.host_bytes = 0;
      if (!has_disk) with.disk = "";
      SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round) + ", life " +
                   std::to_string(life));
      const auto more = killed_saving(with, Tier::remote, 6 * life, 6 * life + 6, random() % 7,
                                      static_cast<unsigned>(random() % 3000));
      told.insert(told.end(), more.begin(), more.end());
      std::filesystem::remove_all(path("disk"));
      with.disk = "";
      check(with, told);
      found += told.size();
    }
  }
  EXPECT_GT(found, rounds == 8 ? 20 : rounds);
}

// In every phase: it is killed as each of the messages comes by.
TEST_F(MemoryHistoryTest, AClientThatIsKilledAtAnyMessageLeavesWhatItReported) {
  const MemoryServerProcess server(server_options());
  std::size_t found = 0;
  const test::Every tried = test::every(1, 8);
  for (std::uint64_t at = tried.first; at < 40; at += tried.step) {
    SCOPED_TRACE("at message " + std::to_string(at));
    int ends[2], orders[2];
    ASSERT_EQ(::pipe(ends), 0);
    ASSERT_EQ(::pipe(orders), 0);
    const std::string name = "/at" + std::to_string(at);
    const pid_t child = test::fork_when_still();  // before the proxy's threads
    if (child == 0) {
      ::alarm(60);
      char address[128] = {};
      if (::read(orders[0], address, sizeof address - 1) <= 0) ::_exit(1);
      try {
        History history = History::open(options(address + name));
        Stream stream;
        std::vector<std::uint8_t> field;
        for (std::uint64_t step = 0; step < 5; ++step) {
          save(history, stream, field, step).wait(Tier::remote);
          (void)!::write(ends[1], &step, sizeof step);
          if (step == 2) history.discard(0);
        }
        history.flush();
      } catch (...) {
      }
      ::pause();
    }
    MessageProxy proxy(server.address(), MessageProxy::Mishap::none, at);
    proxy.on_message = [&] { ::kill(child, SIGKILL); };
    const std::string address = proxy.address();
    ASSERT_GT(::write(orders[1], address.data(), address.size()), 0);
    ::close(ends[1]);
    std::vector<std::uint64_t> told;
    std::uint64_t step = 0;
    while (told.size() < 5 && ::read(ends[0], &step, sizeof step) == sizeof step) {
      told.push_back(step);
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const int fd : {ends[0], orders[0], orders[1]}) ::close(fd);
    std::filesystem::remove_all(path("disk"));
    if (told.size() > 2) told.erase(told.begin());
    found += told.size();
    check(options(server.address() + name, ""), told);
  }
  EXPECT_GT(found, 20 / tried.step);
}

// What the partner had comes to a new disk, too, and is read from there.
TEST_F(MemoryHistoryTest, ANewNodeGoesOnWhereTheLostOneWas) {
  const MemoryServerProcess server(server_options());
  const std::string place = server.address() + "/rank3";
  killed_saving(options(place), Tier::remote, 0, 5, 5, 0);
  std::filesystem::remove_all(path("disk"));
  {
    History history = History::open(options(place, "another"));
    EXPECT_EQ(history.steps().size(), 5u);
    EXPECT_EQ(history.latest(Tier::remote), 4u);
    history.flush();
    for (std::uint64_t step = 0; step < 5; ++step) EXPECT_TRUE(history.is_in(step, Tier::disk));
    history.close();
  }
  EXPECT_EQ(HistoryFolder(place).steps().size(), 5u);
  const std::vector<std::uint64_t> one{1};
  HistoryFolder::discard(place, one);
  EXPECT_EQ(HistoryFolder(place).steps().size(), 4u);
  EXPECT_EQ(error_of([&] { HistoryFolder(server.address() + "/none"); }), Errc::not_found);
}

// The newest stay: so that a partner's memory is bounded, and not the disk's.
TEST_F(MemoryHistoryTest, RetentionBoundsThePartnersMemory) {
  MemoryServer server(server_options(8 * kUnit));
  HistoryOptions with = options(server.address() + "/rank3", "");
  with.keep_last = 3;
  {
    History history = History::open(with);
    Stream stream;
    std::vector<std::uint8_t> field;
    for (std::uint64_t step = 0; step < 40; ++step) {
      save(history, stream, field, step).wait(Tier::remote);
    }
    history.close();
  }
  EXPECT_LE(server.used_bytes(), 8 * kUnit);
  History history = History::open(with);
  EXPECT_EQ(history.steps(), (std::vector<std::uint64_t>{37, 38, 39}));
}

TEST_F(MemoryHistoryTest, AFullPartnerIsSaidAndTheDiskHasAll) {
  MemoryServer server(server_options(4 * kUnit));
  HistoryOptions with = options(server.address() + "/rank3");
  with.on_error = OnError::warn;
  ::testing::internal::CaptureStderr();
  {
    History history = History::open(with);
    Stream stream;
    std::vector<std::uint8_t> field;
    std::vector<Ticket> tickets;
    for (std::uint64_t step = 0; step < 12; ++step) {
      tickets.push_back(save(history, stream, field, step));
    }
    EXPECT_EQ(error_of([&] { history.flush(); }, {"memory server", "no room"}), Errc::no_space);
    std::size_t there = 0;
    for (const Ticket& ticket : tickets) {
      EXPECT_TRUE(ticket.is_in(Tier::disk));
      if (ticket.is_in(Tier::remote)) {
        ++there;
      } else {
        EXPECT_EQ(error_of([&] { ticket.wait(Tier::remote); }), Errc::no_space);
      }
    }
    EXPECT_GT(there, 1u);
    EXPECT_EQ(error_of([&] { history.close(); }), Errc::no_space);
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("no room"), std::string::npos);
}

// The partner is lost instead, by a kill at a random moment, or it stands still. The history goes
// on, says so, and its disk has everything.
TEST_F(MemoryHistoryTest, ALostPartnerIsSaidAndTheHistoryGoesOn) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  const test::Every tried = test::every(1, 4, seed);
  for (std::uint64_t round = tried.first; round < 8; round += tried.step) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    const int signal = round % 4 == 3 ? SIGSTOP : SIGKILL;
    MemoryServerProcess partner(server_options());
    const std::string disk = "disk" + std::to_string(round);
    HistoryOptions with = options("", disk);
    with.remote_store = memory_store(partner.address() + "/rank3", kImpatient);
    with.on_error = round % 2 == 0 ? OnError::raise : OnError::warn;
    const std::uint64_t at = random() % 20;
    std::size_t said = 0;
    ::testing::internal::CaptureStderr();
    {
      History history = History::open(with);
      Stream stream;
      std::vector<std::uint8_t> field;
      for (std::uint64_t step = 0; step < 20; ++step) {
        if (step == at) partner.signal(signal);
        for (;;) {  // raised once for each, and then it is saved
          try {
            save(history, stream, field, step);
            break;
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), Errc::io) << error.what();
            ++said;
          }
        }
      }
      EXPECT_EQ(error_of([&] { history.flush(); }), Errc::io);
      for (std::uint64_t step = 0; step < 20; ++step) {
        EXPECT_TRUE(history.is_in(step, Tier::disk)) << step;
        EXPECT_TRUE(restores(history, step)) << step;
      }
      EXPECT_EQ(error_of([&] { history.close(); }), Errc::io);
    }
    const std::string printed = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(with.on_error == OnError::warn, printed.find("holdfast") != printed.npos);
    partner.kill();
    // The next partner gets all of it.
    MemoryServer next(server_options());
    with = options(next.address() + "/rank3", disk);
    {
      History history = History::open(with);
      history.close();
    }
    EXPECT_EQ(HistoryFolder(with.remote).steps().size(), 20u);
  }
}

// The partner's memory is gone, and a new one is there, at the same address.
class StartedAgain : public MemoryHistoryTest {
 protected:
  void start() {
    MemoryServerOptions options = server_options();
    options.silence = milliseconds(2000);
    if (!listen_.empty()) options.listen = listen_;
    server_.reset();
    server_ = std::make_unique<MemoryServer>(options);
    listen_ = server_->address().substr(6);
  }
  HistoryOptions with(const std::string& disk) const {
    HistoryOptions with = options("", disk);
    with.remote_store = memory_store(server_->address() + "/rank3", kImpatient);
    with.on_error = OnError::warn;
    return with;
  }
  static void save_all(History& history, std::uint64_t first, std::uint64_t last,
                       std::vector<Ticket>& tickets) {
    Stream stream;
    std::vector<std::uint8_t> field;
    for (std::uint64_t step = first; step < last; ++step) {
      tickets.push_back(save(history, stream, field, step));
      tickets.back().wait(Tier::remote);
    }
  }
  // Until it is said that the copy is gone, by the call that finds out: it may be there again soon.
  template <class IsThere>
  static bool hears_of_it(const IsThere& is_there) {
    for (int i = 0; i < 3000; ++i) {
      if (!is_there()) return true;
      ::usleep(10'000);
    }
    return false;
  }
  static bool hears_of_it(const History& history, std::uint64_t step) {
    return hears_of_it([&] { return history.is_in(step, Tier::remote); });
  }
  // flush() until it succeeds: for a while behind the loss everything fails at once.
  static void flush(History& history) {
    for (int i = 0;; ++i) {
      try {
        return history.flush();
      } catch (const Error&) {
        if (i == 600) throw;
        ::usleep(50'000);
      }
    }
  }

  std::unique_ptr<MemoryServer> server_;
  std::string listen_;
};

TEST_F(StartedAgain, AndItGetsEverythingAnew) {
  start();
  std::vector<Ticket> tickets;
  ::testing::internal::CaptureStderr();
  {
    History history = History::open(with("disk"));
    save_all(history, 0, 6, tickets);
    for (int times = 0; times < 2; ++times) {
      start();
      ASSERT_TRUE(hears_of_it(history, 5));
      flush(history);
      for (std::uint64_t step = 0; step < 6; ++step) {
        EXPECT_TRUE(history.is_in(step, Tier::remote));
        EXPECT_TRUE(tickets[step].is_in(Tier::remote));
      }
      EXPECT_EQ(history.latest(Tier::remote), 5u);
    }
    history.close();
  }
  ::testing::internal::GetCapturedStderr();
  check(options(server_->address() + "/rank3", ""), {0, 1, 2, 3, 4, 5});
}

// What the caches have is all that is left.
TEST_F(StartedAgain, AndNothingIsEvictedOnItsAccount) {
  start();
  std::vector<Ticket> tickets;
  ::testing::internal::CaptureStderr();
  {
    History history = History::open(with(""));
    save_all(history, 0, 5, tickets);
    start();
    ASSERT_TRUE(hears_of_it([&] { return tickets[0].is_in(Tier::remote); }));
    Stream stream;
    std::vector<std::uint8_t> field;
    for (std::uint64_t step = 5; step < 20; ++step) {
      for (;;) {  // there is room once something has come there
        try {
          save(history, stream, field, step);
          break;
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), Errc::no_space) << error.what();
          flush(history);
        }
      }
    }
    for (std::uint64_t step = 0; step < 20; ++step) EXPECT_TRUE(restores(history, step)) << step;
    flush(history);
    history.close();
  }
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(HistoryFolder(server_->address() + "/rank3").steps().size(), 20u);
}

TEST_F(StartedAgain, AndAnotherHasTakenTheName) {
  start();
  std::vector<Ticket> tickets;
  ::testing::internal::CaptureStderr();
  History history = History::open(with("disk"));
  save_all(history, 0, 6, tickets);
  server_.reset();
  ::usleep(100'000);
  start();
  try {
    History other = History::open(options(server_->address() + "/rank3", "other"));
    std::vector<Ticket> of_other;
    save_all(other, 100, 102, of_other);
    ASSERT_TRUE(hears_of_it(history, 5));
    ::usleep(1'000'000);
    EXPECT_EQ(error_of([&] { history.flush(); }, {"open for writing"}), Errc::in_use);
    other.close();
  } catch (const Error& error) {
    FAIL() << error.what();
  }
  ::usleep(2'100'000);  // it fails at once for a while
  EXPECT_EQ(error_of([&] { history.flush(); }, {"another history"}), Errc::in_use);
  EXPECT_FALSE(history.is_in(5, Tier::remote));
  for (std::uint64_t step = 0; step < 6; ++step) EXPECT_TRUE(restores(history, step));
  EXPECT_EQ(error_of([&] { history.close(); }), Errc::in_use);
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(HistoryFolder(server_->address() + "/rank3").steps().size(), 2u);
}

// Nothing has gone there since, and the history has heard of nothing.
TEST_F(StartedAgain, AndAFlushOrTheCloseAsksAtOnce) {
  for (const char* const disk : {"disk", ""}) {
    for (const bool flushes : {true, false}) {
      SCOPED_TRACE(std::string(disk) + (flushes ? ", flush()" : ", close()"));
      std::filesystem::remove_all(path("disk"));
      listen_.clear();
      start();
      std::vector<Ticket> tickets;
      History history = History::open(with(disk));
      save_all(history, 0, 5, tickets);
      start();
      ::testing::internal::CaptureStderr();
      if (flushes) {
        flush(history);
        EXPECT_EQ(HistoryFolder(server_->address() + "/rank3").steps().size(), 5u);
      }
      history.close();
      ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(HistoryFolder(server_->address() + "/rank3").steps().size(), 5u);
    }
  }
}

// It stands still, and another has the name meanwhile.
TEST_F(MemoryHistoryTest, WhoWasTakenOverFromCountsOnNothingThere) {
  MemoryServerOptions server_with = server_options();
  server_with.silence = milliseconds(400);
  const MemoryServerProcess server(server_with);
  const HistoryOptions with = options(server.address() + "/rank3", "");
  int ends[2], back[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::pipe(back), 0);
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    ::alarm(100);
    char word = 'c';
    try {
      HistoryOptions own = with;
      own.on_error = OnError::warn;
      History history = History::open(own);
      Stream stream;
      std::vector<std::uint8_t> field;
      std::vector<Ticket> tickets;
      for (std::uint64_t step = 0; step < 4; ++step) {
        tickets.push_back(save(history, stream, field, step));
        tickets.back().wait(Tier::remote);
      }
      (void)!::write(ends[1], &word, 1);
      (void)!::read(back[0], &word, 1);
      for (int i = 0; i < 2000 && tickets[3].is_in(Tier::remote); ++i) ::usleep(10'000);
      for (std::uint64_t step = 0; step < 4; ++step) {
        EXPECT_FALSE(tickets[step].is_in(Tier::remote));
        EXPECT_FALSE(history.is_in(step, Tier::remote));
      }
      EXPECT_EQ(error_of([&] { history.flush(); }, {"taken over"}), Errc::in_use);
      for (std::uint64_t step = 4; step < 20; ++step) {
        try {
          save(history, stream, field, step);
        } catch (const Error& error) {  // once what is there alone fills the caches
          EXPECT_TRUE(error.code() == Errc::no_space || error.code() == Errc::in_use)
              << error.what();
        }
      }
      for (std::uint64_t step = 0; step < 4; ++step) EXPECT_TRUE(restores(history, step)) << step;
      EXPECT_EQ(error_of([&] { history.close(); }), Errc::in_use);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    ::_exit(HasFailure() ? 1 : 0);
  }
  ::close(ends[1]);  // so that the child's end is seen
  char word = 0;
  ASSERT_EQ(::read(ends[0], &word, 1), 1);
  ::kill(child, SIGSTOP);
  ::usleep(600'000);
  {
    History other = History::open(with);
    for (std::uint64_t step = 0; step < 4; ++step) other.discard(step);
    other.close();
  }
  ::kill(child, SIGCONT);
  ASSERT_EQ(::write(back[1], &word, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(HistoryFolder(with.remote).steps().empty());
  for (const int fd : {ends[0], back[0], back[1]}) ::close(fd);
}

// A child has copies of all sockets.
TEST_F(MemoryHistoryTest, AForkedChildDoesNotKeepTheName) {
  const MemoryServerProcess server(server_options());
  pid_t child = 0;
  {
    History history = History::open(options(server.address() + "/rank3"));
    child = test::fork_when_still();
    if (child == 0) {
      for (;;) ::pause();
    }
    history.close();
  }
  History::open(options(server.address() + "/rank3"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// Bits flip, and connections end, at random, all the time.
TEST_F(MemoryHistoryTest, AConnectionThatFailsNowAndThenHoldsUpNothing) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  MemoryServer server(server_options());
  for (std::uint64_t round = 0; round < test::some_of(30, 4); ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    const std::string name = "/round" + std::to_string(round), disk = "disk" + name.substr(6);
    const auto mishap = static_cast<MessageProxy::Mishap>(1 + random() % 4);
    MessageProxy proxy(server.address(), mishap, 8 + random() % 40, random());
    HistoryOptions with = options("", random() % 2 == 0 ? disk : "");
    with.remote_store = memory_store(proxy.address() + name, kImpatient);
    with.on_error = OnError::warn;
    std::vector<std::uint64_t> told;
    ::testing::internal::CaptureStderr();
    try {
      History history = History::open(with);
      Stream stream;
      std::vector<std::uint8_t> field;
      std::vector<Ticket> tickets;
      for (std::uint64_t step = 0; step < 10; ++step) {
        tickets.push_back(save(history, stream, field, step));
      }
      history.flush();
      for (std::uint64_t step = 0; step < 10; ++step) EXPECT_TRUE(restores(history, step)) << step;
      for (const Ticket& ticket : tickets) {
        if (ticket.is_in(Tier::remote)) told.push_back(ticket.step());
      }
      EXPECT_EQ(told.size(), 10u);  // what had failed was tried again
      history.close();
    } catch (const Error& error) {  // while it was opened, or where no disk was
      EXPECT_EQ(error.code(), Errc::io) << error.what();
    }
    ::testing::internal::GetCapturedStderr();
    check(options(server.address() + name, ""), told);
  }
}

TEST_F(MemoryHistoryTest, OneProcessHasANameAndEachRankItsOwn) {
  MemoryServer server(server_options());
  History history = History::open(options(server.address() + "/rank3"));
  EXPECT_EQ(error_of([&] { History::open(options(server.address() + "/rank3", "other")); },
                     {"open for writing"}),
            Errc::in_use);
  HistoryOptions both = options(server.address() + "/another", "other");
  both.remote_store = memory_store(both.remote);
  EXPECT_EQ(error_of([&] { History::open(both); }, {"remote_store"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { History::open(options("tcp://nonsense", "other")); }, {"HOST:PORT"}),
            Errc::invalid_argument);
  HistoryOptions ranks = options(server.address() + "/run", "ranks");
  ranks.ranks = local_ranks({});
  History of_rank = History::open(ranks);
  Stream stream;
  std::vector<std::uint8_t> field;
  save(of_rank, stream, field, 1).wait(Tier::remote);
  EXPECT_EQ(of_rank.agree(Tier::remote), std::vector<std::uint64_t>{1});
  of_rank.close();
  EXPECT_EQ(HistoryFolder(server.address() + "/run/rank-00000-of-00001").steps().size(), 1u);
}

TEST_F(MemoryHistoryTest, HistoriesOfOtherNamesDoNotMeet) {
  MemoryServer server(server_options());
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int name = 0; name < 4; ++name) {
    threads.emplace_back([&, name] {
      const std::string text = std::to_string(name);
      History history = History::open(options(server.address() + "/" + text, "disk" + text));
      Stream stream;
      std::vector<std::uint8_t> field;
      for (std::uint64_t step = 0; step < 15; ++step) {
        save(history, stream, field, step * 4 + static_cast<std::uint64_t>(name));
      }
      history.close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t name = 0; name < 4; ++name) {
    History history = History::open(options(server.address() + "/" + std::to_string(name), ""));
    EXPECT_EQ(history.steps().size(), 15u);
    for (const std::uint64_t step : history.steps()) {
      EXPECT_EQ(step % 4, name);
      EXPECT_TRUE(restores(history, step));
    }
  }
}

}  // namespace
}  // namespace holdfast

// The promises of history.hpp, one by one, against whoever does not keep to the middle of the road:
// threads that race close(), hints by the million, forks, memory that runs out.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "history_oracle.hpp"
#include "holdfast/history.hpp"
#include "support/failing_memory.hpp"
#include "support/in_child.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/stream_gate.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::Field;

constexpr std::uint64_t kUnit = Field::kMost;

class HistoryAttackTest : public test::Scratch {
 protected:
  HistoryAttackTest() { ::alarm(120); }  // what waits for ever fails
  ~HistoryAttackTest() override { ::alarm(0); }

  HistoryOptions options(std::uint64_t gpu = 2, std::uint64_t host = 2) const {
    return {.gpu_bytes = gpu * kUnit, .host_bytes = host * kUnit, .disk = arenas() + "/history"};
  }
  static Ticket save(History& history, std::uint64_t step, Field& field, Stream& stream) {
    stream.synchronize();
    history.protect("field", field.data(), field.fill(step + 1));
    return history.save(step, stream);
  }
  static ::testing::AssertionResult restores(History& history, std::uint64_t step, Stream& stream) {
    Field field;
    const std::uint64_t bytes = history.size(step, "field");
    history.protect("field", field.data(), bytes);
    history.restore(step, stream);
    stream.synchronize();
    if (field.holds(step + 1, bytes)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "checkpoint " << step << " came back wrong";
  }
  Stream stream_;
  Field field_;
};

// Each call ends, as it should or with `closed`; what was told durable is there afterwards.
TEST_F(HistoryAttackTest, ThreadsRaceClose) {
  for (std::uint64_t round = 0; round < test::some_of(20, 3); ++round) {
    std::filesystem::remove_all(options().disk);
    std::optional<History> history(History::open(options()));
    history->protect("field", field_.data(), field_.fill(1));
    history->prefetch_start();
    std::atomic<std::uint64_t> begun{0};
    std::vector<std::vector<std::uint64_t>> returned(3);
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, thread] {
        Stream stream;
        for (std::uint64_t i = 0;; ++i) {
          const std::uint64_t step = thread * 1'000'000 + i;
          try {
            const Ticket ticket = history->save(step, stream);
            returned[thread].push_back(step);
            ++begun;
            history->hint(step);
            if (i % 3 == 0) ticket.wait();
            if (i % 4 == 0) history->verify(step);
            if (i % 5 == 0) history->flush();
            (void)history->stats();
          } catch (const Error& error) {
            if (error.code() == Errc::closed) return;
            if (error.code() != Errc::not_found) ADD_FAILURE() << error.what();
          }
        }
      });
    }
    while (begun < 10) std::this_thread::yield();
    std::thread other([&] { history->close(); });
    history->close();
    other.join();
    for (std::thread& thread : threads) thread.join();
    history.reset();
    History again = History::open(options());
    const auto steps = again.steps();
    std::size_t saved = 0;
    for (const auto& list : returned) saved += list.size();
    EXPECT_EQ(steps.size(), saved);  // close() waits as flush() does
  }
}

TEST_F(HistoryAttackTest, TicketsOutliveTheirHistory) {
  std::optional<Ticket> durable, gone;
  {
    History history = History::open(options());
    durable = save(history, 1, field_, stream_);
    gone = save(history, 2, field_, stream_);
    history.discard(2);
  }
  durable->wait();
  durable->wait_staged();
  EXPECT_TRUE(durable->is_in(Tier::disk));
  EXPECT_EQ(error_of([&] { gone->wait(); }), Errc::not_found);
  const Ticket copy = *durable, moved = std::move(*durable);
  EXPECT_EQ(copy.step(), 1u);
  EXPECT_EQ(error_of([&] { durable->wait(); }), Errc::closed);
}

TEST_F(HistoryAttackTest, ATicketOfATierThatWasPassedDoesNotWait) {
  HistoryOptions with = options(0, 0);
  with.gpu_bytes = 4096;  // smaller than a checkpoint
  History history = History::open(with);
  field_.fill(1);
  history.protect("field", field_.data(), kUnit);
  const Ticket ticket = history.save(1, stream_);
  EXPECT_EQ(error_of([&] { ticket.wait(Tier::gpu); }), Errc::no_space);
  EXPECT_EQ(error_of([&] { ticket.wait(Tier::host); }), Errc::not_found);
  ticket.wait();
  Field other;
  history.protect("field", other.data(), kUnit);
  history.restore(1, stream_);
  stream_.synchronize();
  EXPECT_EQ(other.id(), 1u);
}

TEST_F(HistoryAttackTest, HintsByTheMillionAreForgottenWithTheirCheckpoint) {
  History history = History::open(options());
  save(history, 7, field_, stream_);
  history.hint(std::vector<std::uint64_t>(test::some_of(1'000'000, 100'000), 7));
  history.prefetch_start();
  EXPECT_TRUE(restores(history, 7, stream_));
  EXPECT_TRUE(history.discard(7));
  history.hint(std::vector<std::uint64_t>(100'000, std::numeric_limits<std::uint64_t>::max()));
  for (std::uint64_t step = 0; step < 12; ++step) save(history, step, field_, stream_);
  for (std::uint64_t step = 12; step-- > 0;) EXPECT_TRUE(restores(history, step, stream_));
}

TEST_F(HistoryAttackTest, SizesThatNothingCanHoldAreRefused) {
  History history = History::open(options());
  std::byte* const nowhere = field_.data();
  EXPECT_EQ(error_of([&] { history.protect_raw("x", nowhere, 0); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { history.protect_raw("x", nowhere, ~std::uint64_t{0}); }),
            Errc::invalid_argument);
  double number = 0;
  EXPECT_EQ(error_of([&] { history.protect("x", &number, (std::uint64_t{1} << 61) + 1); }),
            Errc::invalid_argument);  // and not its 8 bytes
  for (int i = 0; i < 20; ++i) {
    history.protect_raw("part " + std::to_string(i), nowhere, std::uint64_t{1} << 44);
  }
  EXPECT_EQ(error_of([&] { history.save(1, stream_); }), Errc::invalid_argument);
  EXPECT_TRUE(history.steps().empty());
  for (int i = 0; i < 20; ++i) history.unprotect("part " + std::to_string(i));
  EXPECT_EQ(error_of([&] { history.save(1, stream_); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { history.save(~std::uint64_t{0}, stream_); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { history.restore(~std::uint64_t{0}, stream_); }), Errc::not_found);
  EXPECT_FALSE(history.discard(~std::uint64_t{0}));
  history.close();
}

TEST_F(HistoryAttackTest, ANumberThatIsBeingDiscardedCanBeSaved) {
  History history = History::open(options());
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Ticket first = save(history, 1, field_, stream_);
    if (i % 3 == 0) first.wait();
    if (i % 3 == 1) {
      EXPECT_TRUE(restores(history, 1, stream_));
    }
    EXPECT_TRUE(history.discard(1));
  }
  history.flush();
  EXPECT_TRUE(history.steps().empty());
  EXPECT_FALSE(history.latest().has_value());
  save(history, 1, field_, stream_);
  history.close();
  History again = History::open(options());
  EXPECT_TRUE(restores(again, 1, stream_));
}

// flush() ends the removals, too: what it has seen discarded is not back after a kill.
TEST_F(HistoryAttackTest, WhatIsDiscardedIsGoneBehindAFlush) {
  History history = History::open(options());
  for (std::uint64_t step = 0; step < 20; ++step) save(history, step, field_, stream_);
  history.flush();
  for (std::uint64_t step = 0; step < 19; ++step) history.discard(step);
  history.flush();
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options().disk)) {
    files += entry.path().filename().string().starts_with("step-");
  }
  EXPECT_EQ(files, 1u);
}

TEST_F(HistoryAttackTest, AHistoryEndsWithWorkQueuedAndStreamsGoFirst) {
  test::StreamGate gate;
  Field other;
  Stream held;
  {
    History history = History::open(options());
    {
      Stream short_lived;
      save(history, 1, field_, short_lived);
      EXPECT_TRUE(restores(history, 1, short_lived));
    }
    history.flush();
    history.protect("field", other.data(), history.size(1, "field"));
    gate.hold(held);
    history.restore(1, held);  // reads the cache later
    std::thread opener([&] {
      gate.wait_until_reached();
      gate.open();
    });
    history.close();
    opener.join();
  }
  held.synchronize();
  EXPECT_TRUE(other.holds(2, Field::bytes_of(2)));
}

TEST_F(HistoryAttackTest, ADiscardBesideQueuedRestoresChangesNothing) {
  History history = History::open(options());
  test::StreamGate gate;
  Stream held, other;
  Field into;
  save(history, 1, field_, stream_).wait();
  history.protect("field", into.data(), history.size(1, "field"));
  gate.hold(held);
  history.restore(1, held);
  EXPECT_TRUE(history.discard(1));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  std::vector<std::unique_ptr<Field>> fields;
  for (std::uint64_t step = 2; step < 8; ++step) {
    fields.push_back(std::make_unique<Field>());
    history.protect("field", fields.back()->data(), fields.back()->fill(step + 1));
    history.save(step, other);
  }
  opener.join();
  held.synchronize();
  EXPECT_TRUE(into.holds(2, Field::bytes_of(2)));
  for (std::uint64_t step = 2; step < 8; ++step) EXPECT_TRUE(restores(history, step, other));
}

TEST_F(HistoryAttackTest, TheLatestIsTheOneBeforeIfTheLastIsDiscardedInAnotherLife) {
  const std::uint64_t order[] = {5, 9, 2, 7, 1};
  {
    History history = History::open(options());
    for (const std::uint64_t step : order) {
      save(history, step, field_, stream_);
      history.flush();
    }
  }
  History history = History::open(options());
  for (std::size_t i = 5; i-- > 0;) {
    EXPECT_EQ(history.latest(), order[i]);
    history.discard(order[i]);
  }
}

TEST_F(HistoryAttackTest, AForkedChildIsRefusedAndEndsWithoutWaiting) {
  std::optional<History> history(History::open(options()));
  std::optional<Ticket> ticket = save(*history, 1, field_, stream_);
  history->flush();
  const int status = test::in_child([&] {
    const auto refused = [](auto&& body) { EXPECT_EQ(error_of(body), Errc::in_use); };
    refused([&] { history->steps(); });
    refused([&] { history->discard(1); });
    refused([&] { history->close(); });
    refused([&] { ticket->wait(); });
    refused([&] { ticket->is_in(Tier::disk); });
    ticket.reset();
    history.reset();
    HistoryOptions with = options();
    EXPECT_EQ(error_of([&] { History::open(with); }), Errc::in_use);
    with.disk += " of the child";
    History own = History::open(with);
    own.close();
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(restores(*history, 1, stream_));
  history->close();
}

TEST_F(HistoryAttackTest, OneThatWasMovedFromIsClosed) {
  History history = History::open(options());
  History other = std::move(history);
  EXPECT_EQ(error_of([&] { history.stats(); }), Errc::closed);
  EXPECT_EQ(error_of([&] { history.hint(1); }), Errc::closed);
  EXPECT_EQ(error_of([&] { history.save(1, stream_); }), Errc::closed);
  history.close();
  HistoryOptions elsewhere = options();
  elsewhere.disk += "2";
  other = History::open(elsewhere);  // the first is closed
  History again = History::open(options());
  Stream moved = std::move(stream_);
  field_.fill(1);
  other.protect("field", field_.data(), 8);
  EXPECT_EQ(error_of([&] { other.save(1, stream_); }), Errc::closed);
  EXPECT_EQ(error_of([&] { other.restore(1, stream_); }), Errc::not_found);
  other.save(1, moved).wait();
  EXPECT_EQ(error_of([&] { other.restore(1, stream_); }), Errc::closed);
  other.restore(1, moved);
  stream_ = std::move(moved);
}

// Wherever an allocation fails, on whichever thread: calls throw or do their work, nothing waits,
// and what was told durable is there in the next life.
TEST_F(HistoryAttackTest, MemoryRunsOutAnywhere) {
  const test::Every tried = test::every(1, 10);
  std::uint64_t which = tried.first, refused = 0, broken = 0;
  ::testing::internal::CaptureStderr();
  for (bool more = true; more; which += tried.step * (1 + which / 40)) {
    std::filesystem::remove_all(options().disk);
    SCOPED_TRACE("allocation " + std::to_string(which));
    std::vector<Ticket> tickets;
    Field into;
    field_.fill(1);
    {
      std::optional<History> history(History::open(options()));
      const auto tries = [&](auto&& body) {
        try {
          body();
        } catch (const std::bad_alloc&) {
          ++refused;
        } catch (const Error& error) {
          const bool expected = error.code() == Errc::no_memory || error.code() == Errc::not_found;
          if (!expected) ADD_FAILURE() << error.what();
          broken += std::string(error.what()).find("cannot go on") != std::string::npos;
          ++refused;
        }
      };
      tries([&] { history->protect("field", field_.data(), Field::bytes_of(1)); });
      tickets.reserve(10);
      Stream stream;
      {
        test::FailingMemory memory(which, test::Fails::once);
        for (std::uint64_t step = 0; step < 5; ++step) {
          tries([&] { tickets.push_back(history->save(step, stream)); });
        }
        tries([&] { history->hint(0); });
        tries([&] { history->prefetch_start(); });
        tries([&] { history->discard(1); });
        tries([&] { history->flush(); });
        tries([&] { history->protect("field", into.data(), Field::bytes_of(1)); });
        tries([&] { history->restore(0, stream); });
        tries([&] { (void)history->steps(); });
        tries([&] { stream.synchronize(); });
        more = memory.end();
      }
      tries([&] { history->close(); });
    }
    History history = History::open(options());
    const auto steps = history.steps();
    history.protect("field", into.data(), Field::bytes_of(1));
    for (const Ticket& ticket : tickets) {
      const bool there = std::find(steps.begin(), steps.end(), ticket.step()) != steps.end();
      EXPECT_TRUE(there || ticket.step() == 1 || !ticket.is_in(Tier::disk)) << ticket.step();
    }
    for (const std::uint64_t step : steps) {
      history.restore(step, stream_);
      stream_.synchronize();
      EXPECT_TRUE(into.holds(1, Field::bytes_of(1)));
    }
    if (HasFailure()) break;
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  std::printf("%llu allocations, %llu calls refused, %llu of histories that were broken\n",
              static_cast<unsigned long long>(which), static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(broken));
  EXPECT_GT(refused, 20 / tried.step);
}

}  // namespace
}  // namespace holdfast

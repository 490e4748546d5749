// Random programs on a history beside an oracle: what was saved comes back as it was or not at all,
// what was told durable is there in the next life, and nothing waits for ever. Every program
// follows from its seed, the disk's faults and the failing streams, too; how its threads interleave
// does not.
//
// HOLDFAST_TEST_SEED=N repeats the programs from N on, HOLDFAST_HISTORY_RUNS=N runs so many:
//   HOLDFAST_HISTORY_RUNS=10000 build/cpu/tests/history/history_random_test
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "faulty_folder.hpp"
#include "history/engine.hpp"
#include "history_oracle.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "trap.hpp"

namespace holdfast {
namespace {

using history::Engine;
using history::Step;
using test::Fault;
using test::Field;

constexpr std::uint64_t kUnit = Field::kMost;

// A program: what it opens, and how it goes on.
struct Program {
  explicit Program(std::uint64_t seed) : random(seed) {
    const auto units = [&] { return below(3) == 0 ? 0 : 1 + below(4); };
    options.gpu_bytes = units() * kUnit;
    options.host_bytes = units() * kUnit;
    options.discard_consumed = below(4) == 0;
    options.on_error = below(2) == 0 ? OnError::raise : OnError::warn;
    far = below(4) == 0;
    faulty = below(3) == 0;
    threads = 1 + below(3);
    lives = 1 + below(3);
    calls = 10 + below(40);
  }
  std::uint64_t below(std::uint64_t bound) { return random() % bound; }
  std::mt19937_64 random;
  HistoryOptions options;
  bool far = false, faulty = false;
  std::uint64_t threads = 1, lives = 1, calls = 0;
};

// What the program knows of one checkpoint. Of several under one number only the last counts.
struct Known {
  std::uint64_t id = 0;  // of its contents
  bool durable = false;
  bool may_be_gone = false;  // restored where that discards, or its discard has begun
  bool may_fail = false;     // saved on a stream that fails
};
using Ledger = std::map<Step, Known>;

// One thread of a program: its stream, its checkpoints, its part of the ledger.
class Actor {
 public:
  Actor(Engine& engine, const Program& program, std::mutex& arrays, Ledger& ledger,
        std::uint64_t number, std::uint64_t seed)
      : engine_(engine),
        program_(program),
        arrays_(arrays),
        ledger_(ledger),
        number_(number),
        random_(seed) {}

  void run() {
    for (std::uint64_t call = 0; call < program_.calls; ++call) {
      SCOPED_TRACE("thread " + std::to_string(number_) + ", call " + std::to_string(call));
      step();
      if (::testing::Test::HasFailure()) return;
    }
    renew();
    for (const auto& [step, ticket] : tickets_) {
      const auto known = ledger_.find(step);
      if (known != ledger_.end() && ticket.is_in(Tier::disk)) known->second.durable = true;
    }
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  Step some() { return number_ * 1000 + below(20); }

  // Whether it ended well. What is allowed otherwise: what the disk and bad streams bring about.
  template <class Body>
  bool tries(const char* what, Body&& body) {
    try {
      body();
      return true;
    } catch (const Error& error) {
      const Errc code = error.code();
      met_ = error.what();
      const bool disk = code == Errc::io || code == Errc::no_space || code == Errc::damaged;
      if (!(disk && program_.faulty) && code != Errc::not_found && code != Errc::kernel_fault) {
        ADD_FAILURE() << what << ": " << error.what();
      }
      return false;
    }
  }

  void step() {
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return save(some());
      case 4:
      case 5:
      case 6:
        return restore(some());
      case 7:
        return engine_.hint(std::vector<Step>(1 + below(3), some() + below(2) * 5));
      case 8:
        if (below(3) == 0) engine_.prefetch_start();
        return engine_.hint(std::vector<Step>{some(), some(), some()});
      case 9:
        return discard(some());
      case 10:
        return wait();
      default:
        return below(3) == 0 ? fail() : ask();
    }
  }

  void save(Step step) {
    if (ledger_.contains(step)) return;
    auto field = std::make_unique<Field>();
    const std::uint64_t id = number_ << 32 | ++saves_;
    const std::uint64_t bytes = field->fill(id);
    std::optional<Ticket> ticket;
    const bool keep = below(4) == 0;
    const auto attempt = [&] {
      const std::lock_guard lock(arrays_);
      engine_.protect("field", {field->data(), bytes, BufferMemory::device});
      ticket.emplace(engine_.save(step, stream_, keep));
    };
    // What an earlier transfer met is thrown once for each.
    for (int i = 0; i < 50 && !ticket; ++i) {
      if (!tries("save", attempt) && !program_.faulty && !may_raise()) break;
    }
    fields_.push_back(std::move(field));
    if (!ticket) return;
    ledger_[step] = {id, false, false, bad_};
    tickets_.insert_or_assign(step, *ticket);
  }
  // Whether a save may throw what another one's stream met.
  bool may_raise() const { return program_.options.on_error == OnError::raise; }

  void restore(Step step) {
    const auto known = ledger_.find(step);
    auto field = std::make_unique<Field>();
    const bool keep = below(2) == 0;
    std::uint64_t bytes = 0;
    const bool done = tries("restore", [&] {
      const std::lock_guard lock(arrays_);
      bytes = engine_.size(step, "field");
      engine_.protect("field", {field->data(), bytes, BufferMemory::device});
      engine_.restore(step, stream_, keep);
    });
    if (known == ledger_.end()) {
      EXPECT_FALSE(done) << step << " was never there";
      fields_.push_back(std::move(field));
      return;
    }
    if (program_.options.discard_consumed && done && !bad_) known->second.may_be_gone = true;
    Known& own = known->second;
    if (done && !bad_) {
      if (tries("synchronize", [&] { stream_.synchronize(); })) {
        EXPECT_TRUE(field->holds(own.id, bytes)) << step << " came back wrong";
      }
    } else if (!done && !bad_ && !own.may_be_gone && !own.may_fail && !program_.faulty) {
      ADD_FAILURE() << step << " is lost: " << met_;
    }
    fields_.push_back(std::move(field));
  }

  void discard(Step step) {
    const auto known = ledger_.find(step);
    tickets_.erase(step);
    if (known == ledger_.end()) return;
    const bool there = engine_.discard(step);
    if (!program_.faulty && !known->second.may_be_gone && !known->second.may_fail) {
      EXPECT_TRUE(there) << step;
    }
    if (program_.faulty) {  // its file may not go
      known->second.may_be_gone = true;
    }
    if (!program_.faulty) ledger_.erase(known);
  }

  void wait() {
    if (tickets_.empty()) return;
    auto ticket = tickets_.begin();
    std::advance(ticket, static_cast<std::ptrdiff_t>(below(tickets_.size())));
    const auto known = ledger_.find(ticket->first);
    if (known == ledger_.end()) return;
    const bool durable = tries("wait", [&] { ticket->second.wait(); });
    if (durable) known->second.durable = true;
    if (!durable && !program_.faulty && !known->second.may_fail && !known->second.may_be_gone) {
      ADD_FAILURE() << ticket->first << " is not durable: " << met_;
    }
  }

  void ask() {
    switch (below(4)) {
      case 0:
        return static_cast<void>(engine_.stats());
      case 1:
        return static_cast<void>(engine_.latest(Tier::disk));
      case 2:
        return static_cast<void>(tries("verify", [&] { engine_.verify(some()); }));
      default:
        return static_cast<void>(tries("flush", [&] { engine_.flush(); }));
    }
  }

  // The stream fails; after some calls there is another.
  void fail() {
    if (bad_) return renew();
    test::trap(stream_);
    bad_ = true;
  }
  void renew() {
    try {
      stream_.synchronize();
    } catch (const Error&) {
    }
    if (bad_) stream_ = Stream();
    bad_ = false;
    fields_.clear();
  }

  Engine& engine_;
  const Program& program_;
  std::mutex& arrays_;
  Ledger& ledger_;
  const std::uint64_t number_;
  std::mt19937_64 random_;
  Stream stream_;
  bool bad_ = false;
  std::uint64_t saves_ = 0;
  std::vector<std::unique_ptr<Field>> fields_;  // that the stream uses still
  std::map<Step, Ticket> tickets_;
  std::string met_;  // the last error
};

class HistoryRandomTest : public test::Scratch {
 protected:
  std::unique_ptr<Engine> open(const Program& program) {
    HistoryOptions options = program.options;
    options.disk = home_;
    if (program.far) options.remote = home_ + "-far";
    std::filesystem::create_directory(home_);
    return std::make_unique<Engine>(
        options, history::open_folder_store(
                     std::make_unique<test::FaultyFolder>(history::open_folder(home_), faults_), {},
                     {4096, 1}));
  }

  // What a new life offers against what the last one knew.
  void check(Engine& engine, const Program& program, std::vector<Ledger>& ledgers) {
    const auto steps = engine.steps();
    Stream stream;
    for (const Step step : steps) {
      Ledger& ledger = ledgers[step / 1000];
      const auto known = ledger.find(step);
      ASSERT_NE(known, ledger.end()) << step << " is back";
      Field field;
      const std::uint64_t bytes = engine.size(step, "field");
      engine.protect("field", {field.data(), bytes, BufferMemory::device});
      engine.restore(step, stream, true);
      stream.synchronize();
      ASSERT_TRUE(field.holds(known->second.id, bytes)) << step << " is another";
      known->second.durable = true;
    }
    for (Ledger& ledger : ledgers) {
      std::erase_if(ledger, [&](const auto& entry) {
        const auto& [step, known] = entry;
        if (std::binary_search(steps.begin(), steps.end(), step)) return false;
        const bool may_be_gone = known.may_be_gone || known.may_fail;
        EXPECT_TRUE(may_be_gone || (program.faulty && !known.durable)) << step << " is lost";
        return true;
      });
    }
  }

  void run(std::uint64_t seed) {
    Program program(seed);
    SCOPED_TRACE("HOLDFAST_TEST_SEED=" + std::to_string(seed));
    for (const char* behind : {"", "-far"}) std::filesystem::remove_all(home_ + behind);
    faults_->fault = Fault::none;
    std::vector<Ledger> ledgers(program.threads);
    for (std::uint64_t life = 0; life < program.lives; ++life) {
      SCOPED_TRACE("life " + std::to_string(life));
      const auto engine = open(program);
      check(*engine, program, ledgers);
      if (HasFailure()) return;
      if (program.faulty) set_faults(program);
      std::mutex arrays;
      std::vector<std::thread> threads;
      threads.reserve(program.threads);
      for (std::uint64_t i = 0; i < program.threads; ++i) {
        threads.emplace_back([&, i, own = program.random()] {
          Actor(*engine, program, arrays, ledgers[i], i, own).run();
        });
      }
      for (std::thread& thread : threads) thread.join();
      faults_->fault = Fault::none;
      close(*engine, program);
      if (HasFailure()) return;
    }
    const auto engine = open(program);
    check(*engine, program, ledgers);
    engine->close();
  }

  void set_faults(Program& program) {
    constexpr Fault kFaults[] = {Fault::error, Fault::short_transfer, Fault::torn};
    faults_->error = program.below(2) == 0 ? EIO : ENOSPC;
    faults_->operations = 0;
    faults_->first = program.below(200);
    faults_->times = 1 + program.below(3) * program.below(40);
    faults_->fault = kFaults[program.below(3)];
  }

  void close(Engine& engine, const Program& program) {
    try {
      engine.close();
    } catch (const Error& error) {
      const bool expected = program.faulty || error.code() == Errc::kernel_fault;
      EXPECT_TRUE(expected) << error.what();
    }
  }

  std::string home_ = arenas() + "/history";
  std::shared_ptr<test::Faults> faults_ = std::make_shared<test::Faults>();
};

TEST_F(HistoryRandomTest, ProgramsAgreeWithTheOracle) {
  const std::uint64_t seed = test::test_seed();
  const char* const asked = std::getenv("HOLDFAST_HISTORY_RUNS");
  const std::uint64_t runs = asked ? std::strtoull(asked, nullptr, 0) : test::some_of(100, 10);
  for (std::uint64_t i = 0; i < runs && !HasFailure(); ++i) {
    ::alarm(120);  // what waits for ever fails
    std::fflush(stderr);
    ::testing::internal::CaptureStderr();
    run(seed + i);
    const std::string said = ::testing::internal::GetCapturedStderr();
    if (HasFailure()) {
      std::printf("HOLDFAST_TEST_SEED=%s\n%s", std::to_string(seed + i).c_str(), said.c_str());
    }
    if (asked && i % 500 == 499) {
      std::printf("%s programs\n", std::to_string(i + 1).c_str());
      std::fflush(stdout);
    }
  }
  ::alarm(0);
}

}  // namespace
}  // namespace holdfast

// Processes that save, restore, hint and discard are killed: at random moments, at a chosen
// operation on the disk, while copies are queued, and while they open the history again. Whatever
// the next one finds is whole, and what was reported durable and not discarded is there. Where
// nodes are lost, the disk is gone as well, and what was reported as in the partner's memory is
// there.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

#include "history/engine.hpp"
#include "history_oracle.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/still_fork.hpp"

namespace holdfast {
namespace {

using test::Deadly;
using test::DeadlyFolder;
using test::die_here;
using test::Field;

constexpr std::uint64_t kSteps = 20;
constexpr std::uint64_t kThreads = 2;

// What may be on disk of a step. Each step is one thread's. Contents follow from ids.
enum Phase : std::uint64_t {
  kGone,       // nothing
  kUncertain,  // `id`, or nothing, or `old`
  kDurable,    // `id`, unless the rules of the history let it go
};
struct Slot {
  std::atomic<std::uint64_t> phase, id, old;
  std::atomic<std::uint64_t> begun, durable;  // by the clock: its save() began, was said durable
};
struct Shared {
  std::atomic<std::uint64_t> ids, clock, opened, checks, durables, let_go, discards;
  Slot slots[kSteps];
};

struct Rules {
  bool consumed_go = false;
  std::uint64_t keep_last = 0, keep_every = 0;
  bool nodes_are_lost = false;

  Tier safe() const { return nodes_are_lost ? Tier::partner : Tier::disk; }
};

[[noreturn]] void wrong(history::Step step, const std::string& what) {
  throw std::runtime_error("checkpoint " + std::to_string(step) + " " + what);
}

// Of a durable one, whether no rule can have let it go.
bool must_be_there(const Shared& shared, const Rules& rules, history::Step step) {
  if (rules.keep_last == 0) return true;
  std::uint64_t later = 0;
  for (history::Step other = step + 1; other < kSteps; ++other) {
    later += shared.slots[other].phase != kGone;
  }
  return later < rules.keep_last || step % rules.keep_every == 0;
}

class Life {
 public:
  Life(const HistoryOptions& options, std::unique_ptr<history::StepStore> store, Shared& shared,
       const Rules& rules)
      : engine_(options, std::move(store)), path_(options.disk), shared_(shared), rules_(rules) {}

  // What is wrong with what was found is thrown; and what is found is what there is.
  void check() {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename();
      if (rules_.nodes_are_lost) break;  // flushes of what the partner has are under way
      if (history::is_temporary_name(name)) throw std::runtime_error("remains: " + name);
    }
    const std::optional<history::Step> latest = engine_.latest(rules_.safe());
    const auto listed = engine_.steps();
    if (latest.has_value() == listed.empty()) throw std::runtime_error("which is the latest?");
    Stream stream;
    for (history::Step step = 0; step < kSteps; ++step) {
      Slot& slot = shared_.slots[step];
      const bool there = std::find(listed.begin(), listed.end(), step) != listed.end();
      if (!there) {
        if (slot.phase == kDurable && must_be_there(shared_, rules_, step)) wrong(step, "is lost");
        continue;
      }
      Field field;
      const std::uint64_t bytes = engine_.size(step, "field");
      engine_.protect("field", {field.data(), bytes, BufferMemory::device});
      engine_.restore(step, stream, true);
      stream.synchronize();
      const std::uint64_t id = field.id();
      if (slot.phase == kGone) wrong(step, "was gone, and is back");
      if (id != slot.id && (slot.phase == kDurable || id != slot.old || id == 0)) {
        wrong(step, "is another one");
      }
      if (!field.holds(id, bytes)) wrong(step, "has wrong bytes");
    }
    if (latest) check_latest(*latest);
    for (history::Step step = 0; step < kSteps; ++step) {
      const bool there = std::find(listed.begin(), listed.end(), step) != listed.end();
      settle(shared_.slots[step], there, step);
    }
    ++shared_.checks;
  }

  // Until it is killed.
  [[noreturn]] void work(std::uint64_t seed) {
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        try {
          work_as(i, seed + i);
        } catch (const std::exception& error) {
          std::cerr << error.what() << "\n";
          std::_Exit(1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::abort();
  }

 private:
  // None that is there was saved after the latest one was durable.
  void check_latest(history::Step latest) {
    if (shared_.slots[latest].phase != kDurable) return;
    for (history::Step step = 0; step < kSteps; ++step) {
      const Slot& slot = shared_.slots[step];
      if (slot.phase != kDurable || !must_be_there(shared_, rules_, step)) continue;
      if (slot.begun > shared_.slots[latest].durable) wrong(latest, "is not the latest");
    }
  }

  // Each store leaves something that holds, should the next kill come behind it.
  void settle(Slot& slot, bool there, history::Step step) {
    if (there) {
      Field field;
      Stream stream;
      const std::uint64_t bytes = engine_.size(step, "field");
      engine_.protect("field", {field.data(), bytes, BufferMemory::device});
      engine_.restore(step, stream, true);
      stream.synchronize();
      if (slot.id != field.id()) slot.begun = 0;  // that is the new one's
      slot.id = field.id();
      if (slot.phase != kDurable) slot.durable = ++shared_.clock;
    }
    const bool stays = there && engine_.is_in(step, rules_.safe());
    slot.phase = stays ? kDurable : there ? kUncertain : kGone;
    slot.old = 0;
  }

  void work_as(std::uint64_t thread, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Stream stream;
    std::vector<std::unique_ptr<Field>> fields;  // that queued copies may use
    for (;;) {
      const history::Step step = random() % (kSteps / kThreads) * kThreads + thread;
      if (fields.size() > 8) {
        stream.synchronize();
        fields.clear();
      }
      fields.push_back(std::make_unique<Field>());
      Field& field = *fields.back();
      const auto listed = engine_.steps();
      const bool there = std::find(listed.begin(), listed.end(), step) != listed.end();
      try {
        if (!there) {
          save(step, stream, field, random);
        } else {
          use(step, stream, field, random);
        }
        if (random() % 8 == 0) engine_.prefetch_start();
        if (random() % 10 == 0) flush(thread);
        (void)engine_.stats();
      } catch (const Error& error) {
        const bool rule = rules_.consumed_go || rules_.keep_last > 0;
        if (error.code() != Errc::not_found || !rule) throw;
      }
    }
  }

  void save(history::Step step, Stream& stream, Field& field, std::mt19937_64& random) {
    Slot& slot = shared_.slots[step];
    const std::uint64_t id = ++shared_.ids;
    if (slot.phase == kGone) slot.id = 0;
    slot.phase = kUncertain;
    slot.old = slot.id.load();  // its removal may be on its way
    slot.id = id;
    slot.begun = ++shared_.clock;
    const std::uint64_t bytes = field.fill(id);
    if (die_here == Deadly::staging && random() % 8 == 0) {
      stream.enqueue([] { ::raise(SIGKILL); });
    }
    std::shared_ptr<Ticket::State> state;
    {
      const std::lock_guard lock(arrays_);
      engine_.protect("field", {field.data(), bytes, BufferMemory::device});
      state = engine_.save(step, stream, random() % 3 == 0);
    }
    if (random() % 2 == 0) return;
    try {
      Ticket(state).wait(rules_.safe());
    } catch (const Error& error) {  // it came there, and the rule has let it go at once
      shared_.let_go += error.code() == Errc::not_found && rules_.keep_last > 0;
      throw;
    }
    say_durable(slot);
  }

  void say_durable(Slot& slot) {
    slot.durable = ++shared_.clock;
    slot.phase = kDurable;
    slot.old = 0;
    ++shared_.durables;
  }

  void use(history::Step step, Stream& stream, Field& field, std::mt19937_64& random) {
    Slot& slot = shared_.slots[step];
    switch (random() % 5) {
      case 0:
        if (rules_.keep_last > 0) break;  // or the rule would have let others go for this one
        slot.phase = kUncertain;
        engine_.discard(step);
        ++shared_.discards;
        break;
      case 1:
      case 2: {
        const std::uint64_t bytes = engine_.size(step, "field");
        const bool keep = random() % 2 == 0;
        if (rules_.consumed_go && !keep) slot.phase = kUncertain;
        {
          const std::lock_guard lock(arrays_);
          engine_.protect("field", {field.data(), bytes, BufferMemory::device});
          engine_.restore(step, stream, keep);
        }
        stream.synchronize();
        if (field.id() != slot.id) wrong(step, "was restored as another one");
        if (!field.holds(slot.id, bytes)) wrong(step, "was restored wrong");
        break;
      }
      case 3:
        engine_.hint(std::vector<history::Step>{step, random() % kSteps});
        break;
      case 4:
        if (rules_.nodes_are_lost && !engine_.is_in(step, Tier::disk)) break;
        if (rules_.keep_last == 0 && !rules_.consumed_go && slot.phase == kDurable) {
          engine_.verify(step);
        }
        break;
    }
  }

  // What this thread has saved is durable, and what it has discarded is gone.
  void flush(std::uint64_t thread) {
    std::vector<history::Step> gone;
    const auto listed = engine_.steps();
    for (history::Step step = thread; step < kSteps; step += kThreads) {
      if (std::find(listed.begin(), listed.end(), step) == listed.end()) gone.push_back(step);
    }
    engine_.flush();
    for (history::Step step = thread; step < kSteps; step += kThreads) {
      Slot& slot = shared_.slots[step];
      if (std::find(gone.begin(), gone.end(), step) != gone.end()) {
        slot.phase = kGone;
        slot.id = slot.old = 0;
      } else if (slot.phase == kUncertain && !rules_.consumed_go &&
                 engine_.is_in(step, rules_.safe())) {
        say_durable(slot);
      }
    }
  }

  history::Engine engine_;
  const std::string path_;
  Shared& shared_;
  const Rules& rules_;
  std::mutex arrays_;  // one set of arrays is protected at a time
};

class HistoryKillTest : public test::Scratch, public ::testing::WithParamInterface<int> {
 protected:
  static constexpr unsigned kMost = 67;
  const unsigned kills_ =  // in each of four histories
      static_cast<unsigned>(test::some_of(kMost, 16));
  static constexpr Rules kRules[] = {
      {}, {.consumed_go = true}, {.keep_last = 3, .keep_every = 4}, {.nodes_are_lost = true}};
};

TEST_P(HistoryKillTest, AKilledProcessLosesNothingThatItCalledDurable) {
  const Rules rules = kRules[GetParam()];
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  auto* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Shared& shared = *new (memory) Shared{};
  HistoryOptions options;
  options.gpu_bytes = GetParam() == 2 ? 0 : 3 * Field::kMost;
  options.host_bytes = 4 * Field::kMost;
  options.disk = arenas() + "/history";  // a kill, and no loss of power: memory will do
  options.discard_consumed = rules.consumed_go;
  options.keep_last = rules.keep_last;
  options.keep_every = rules.keep_every;
  if (rules.nodes_are_lost) {
    // Room for all: of so many gaps one is always large enough.
    options.partner_bytes = 4 * kSteps * Field::kMost;
    options.partner_region = path("partner");
  }
  unsigned opened = 0, by_operation[test::kDeadlies] = {};
  const auto was_enough_done = [&] {
    return shared.durables + shared.let_go > 50u * kills_ / kMost && shared.durables > 0 &&
           (rules.keep_last != 0 || shared.discards > 10u * kills_ / kMost) && opened > kills_ / 4;
  };
  for (unsigned kill = 0; kill < kills_ || (!was_enough_done() && kill < kMost); ++kill) {
    const std::uint64_t child_seed = random();
    if (rules.nodes_are_lost && random() % 2 == 0) std::filesystem::remove_all(options.disk);
    const auto where =
        static_cast<Deadly>(kill % 2 == 0 ? 0 : 1 + random() % (test::kDeadlies - 1));
    const std::uint64_t number = where == Deadly::list ? 0 : random() % 24;
    const auto patience = std::chrono::microseconds(random() % 30000);
    const bool from_opening = random() % 4 != 0;
    shared.opened = 0;
    const pid_t child = test::fork_when_still();
    if (child == 0) {
      ::alarm(60);
      try {
        history::open_folder_store(options.disk).reset();
        die_here = where;
        Life life(
            options,
            history::open_folder_store(
                std::make_unique<DeadlyFolder>(history::open_folder(options.disk), number), {}, {}),
            shared, rules);
        life.check();
        shared.opened = 1;
        life.work(child_seed);
      } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
      }
      std::_Exit(1);
    }
    int status = 0;
    const auto wait_until = [&](auto&& done, auto deadline) {
      while (!done() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    };
    bool ended = false;
    const auto has_ended = [&] { return ended = ended || ::waitpid(child, &status, WNOHANG) != 0; };
    const auto now = std::chrono::steady_clock::now();
    const auto long_enough = now + std::chrono::seconds(10);
    if (where != Deadly::nowhere) {
      wait_until(has_ended, now + std::chrono::milliseconds(400));
    } else {
      if (from_opening) {
        wait_until([&] { return shared.opened != 0 || has_ended(); }, long_enough);
      }
      wait_until(has_ended, std::chrono::steady_clock::now() + patience);
    }
    if (!ended) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
    } else {
      ++by_operation[static_cast<unsigned>(where)];
    }
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "seed " << seed << ", behind " << kill << " kills, status " << status;
    opened += shared.opened != 0;
  }
  std::cout << shared.ids << " saves, " << shared.durables << " said durable, " << shared.discards
            << " discards, " << shared.checks << " checks, " << opened << " lives that worked;";
  for (const unsigned count : by_operation) std::cout << " " << count;
  std::cout << " kills by operation\n";
  EXPECT_GT(shared.durables + shared.let_go, 50u * kills_ / kMost);
  EXPECT_GT(shared.durables, 0u);
  if (rules.keep_last == 0) {
    EXPECT_GT(shared.discards, 10u * kills_ / kMost);
  }
  EXPECT_GT(opened, kills_ / 4);
  ::munmap(memory, sizeof(Shared));
}

constexpr const char* kRuleNames[] = {"NoRule", "ConsumedGo", "TheLastStay", "NodesAreLost"};
INSTANTIATE_TEST_SUITE_P(Rules, HistoryKillTest, ::testing::Values(0, 1, 2, 3),
                         [](const auto& info) { return std::string(kRuleNames[info.param]); });

}  // namespace
}  // namespace holdfast

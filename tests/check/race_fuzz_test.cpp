// The race detector against an oracle of its own: random programs of kernels in two streams, events
// and the host. Two accesses race in some execution exactly if in some sequentially consistent
// interleaving they could be made next, both at once.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "check/race.hpp"
#include "check/race_streams_test.hpp"
#include "check/schedules.hpp"
#include "holdfast/cpu/host_observer.hpp"
#include "holdfast/stream.hpp"
#include "support/scratch.hpp"

namespace holdfast::test {
namespace {

using What = RacingAct::What;
constexpr unsigned kStreams = 2, kWords = 2, kFlags = 2, kEvents = 2;

struct HostAct {
  enum class Do : std::uint8_t { launch, record, wait, wait_on_host, synchronize, access } what;
  unsigned number = 0;  // of the kernel, or the event
  unsigned stream = 0;
  RacingAct access;
};

struct RacingProgram {
  std::vector<HostAct> host;
  std::vector<RacingActs> kernels;
};

std::string to_string(const RacingAct& act) {
  static constexpr const char* kNames[] = {"load", "store", "tell", "ask"};
  return std::string(act.if_told ? "if told: " : "") + kNames[static_cast<int>(act.what)] + " " +
         std::to_string(act.word);
}

std::string to_string(const RacingProgram& program) {
  static constexpr const char* kNames[] = {"launch",      "record",      "wait for event",
                                           "host awaits", "synchronize", ""};
  std::ostringstream text;
  for (const HostAct& act : program.host) {
    text << "host: " << kNames[static_cast<int>(act.what)];
    if (act.what == HostAct::Do::access) {
      text << to_string(act.access) << "\n";
    } else {
      text << " " << act.number << " stream " << act.stream << "\n";
    }
  }
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    text << "kernel " << i << ":";
    for (unsigned j = 0; j < program.kernels[i].count; ++j) {
      text << " " << to_string(program.kernels[i].acts[j]) << ";";
    }
    text << "\n";
  }
  return text.str();
}

// Looks for two conflicting accesses that can both be made next, in every interleaving.
class Oracle {
 public:
  explicit Oracle(const RacingProgram& program) : program_(program) {}
  bool races() { return visit(State{}); }

 private:
  struct Task {
    int kernel = -1;  // -1: only waits
    int waits_for = -1;
    auto operator<=>(const Task&) const = default;
  };
  struct Actor {
    unsigned at = 0;
    bool told = false;
    auto operator<=>(const Actor&) const = default;
  };
  struct State {
    Actor host;
    std::vector<Task> tasks;
    std::vector<unsigned> streams;  // by task
    std::vector<Actor> actors;      // by task
    std::array<bool, kFlags> flags{};
    std::array<int, kEvents> events{-1, -1};  // the task that each stands behind
    auto operator<=>(const State&) const = default;
  };

  unsigned length(const Task& task) const {
    return task.kernel < 0 ? 0 : program_.kernels[static_cast<unsigned>(task.kernel)].count;
  }
  bool is_done(const State& state, int task) const {
    if (task < 0) return true;
    const auto number = static_cast<unsigned>(task);
    return state.actors[number].at == length(state.tasks[number]) && may_run(state, number);
  }
  // What is before it in its stream is done, and what it waits for.
  bool may_run(const State& state, unsigned task) const {
    for (unsigned other = task; other-- > 0;) {
      if (state.streams[other] != state.streams[task]) continue;
      if (!is_done(state, static_cast<int>(other))) return false;
      break;
    }
    return is_done(state, state.tasks[task].waits_for);
  }
  static int last_of(const State& state, unsigned stream) {
    for (std::size_t i = state.tasks.size(); i-- > 0;) {
      if (state.streams[i] == stream) return static_cast<int>(i);
    }
    return -1;
  }
  static bool is_left_out(const RacingAct& act, const Actor& actor) {
    return act.if_told && !actor.told;
  }
  static void do_access(State& state, Actor& actor, const RacingAct& act) {
    if (act.what == What::tell) state.flags[act.word] = true;
    if (act.what == What::ask) actor.told = state.flags[act.word];
  }
  // What the host and the tasks would do next, plain accesses alone.
  std::vector<RacingAct> next(const State& state) const {
    std::vector<RacingAct> result;
    const auto offer = [&](const RacingAct& act, const Actor& actor) {
      if (is_left_out(act, actor)) return;
      if (act.what == What::load || act.what == What::store) result.push_back(act);
    };
    if (state.host.at < program_.host.size() &&
        program_.host[state.host.at].what == HostAct::Do::access) {
      offer(program_.host[state.host.at].access, state.host);
    }
    for (unsigned i = 0; i < state.tasks.size(); ++i) {
      const Actor& actor = state.actors[i];
      if (actor.at == length(state.tasks[i]) || !may_run(state, i)) continue;
      offer(program_.kernels[static_cast<unsigned>(state.tasks[i].kernel)].acts[actor.at], actor);
    }
    return result;
  }
  // False: it waits.
  bool step_host(State& state) const {
    const HostAct& act = program_.host[state.host.at];
    const auto give = [&](Task task) {
      state.tasks.push_back(task);
      state.streams.push_back(act.stream);
      state.actors.emplace_back();
    };
    switch (act.what) {
      case HostAct::Do::launch:
        give({static_cast<int>(act.number), -1});
        break;
      case HostAct::Do::record:
        state.events[act.number] = last_of(state, act.stream);
        break;
      case HostAct::Do::wait:
        give({-1, state.events[act.number]});
        break;
      case HostAct::Do::wait_on_host:
        if (!is_done(state, state.events[act.number])) return false;
        break;
      case HostAct::Do::synchronize:
        if (!is_done(state, last_of(state, act.stream))) return false;
        break;
      case HostAct::Do::access:
        if (!is_left_out(act.access, state.host)) do_access(state, state.host, act.access);
        break;
    }
    ++state.host.at;
    return true;
  }
  bool visit(const State& state) {
    if (!seen_.insert(state).second) return false;
    const std::vector<RacingAct> acts = next(state);
    for (std::size_t i = 0; i < acts.size(); ++i) {
      for (std::size_t j = i + 1; j < acts.size(); ++j) {
        const bool writes = acts[i].what == What::store || acts[j].what == What::store;
        if (writes && acts[i].word == acts[j].word) return true;
      }
    }
    if (state.host.at < program_.host.size()) {
      State after = state;
      if (step_host(after) && visit(after)) return true;
    }
    for (unsigned i = 0; i < state.tasks.size(); ++i) {
      if (state.actors[i].at == length(state.tasks[i]) || !may_run(state, i)) continue;
      State after = state;
      Actor& actor = after.actors[i];
      const RacingAct& act =
          program_.kernels[static_cast<unsigned>(state.tasks[i].kernel)].acts[actor.at];
      if (!is_left_out(act, actor)) do_access(after, actor, act);
      ++actor.at;
      if (visit(after)) return true;
    }
    return false;
  }

  const RacingProgram& program_;
  std::set<State> seen_;
};

class RaceFuzz : public ::testing::Test {
 protected:
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }

  RacingAct access() {
    RacingAct act;
    act.what = static_cast<What>(below(4));
    act.word = below(2);
    act.if_told = below(3) == 0;
    return act;
  }

  RacingProgram program() {
    RacingProgram result;
    const unsigned acts = 4 + below(5);
    for (unsigned i = 0; i < acts; ++i) {
      HostAct act{static_cast<HostAct::Do>(below(6)), below(kEvents), below(kStreams), {}};
      if (act.what == HostAct::Do::launch || below(2) == 0) {
        if (result.kernels.size() == 3) continue;
        act.what = HostAct::Do::launch;
        act.number = static_cast<unsigned>(result.kernels.size());
        RacingActs& kernel = result.kernels.emplace_back();
        kernel.count = 1 + below(3);
        for (unsigned j = 0; j < kernel.count; ++j) kernel.acts[j] = access();
      }
      if (act.what == HostAct::Do::access) act.access = access();
      result.host.push_back(act);
    }
    return result;
  }

  void run_host(const RacingProgram& program) {
    Stream streams[kStreams];
    Event events[kEvents];
    bool told = false;
    for (const HostAct& act : program.host) {
      Stream& stream = streams[act.stream];
      unsigned* const word = &words_[16 * act.access.word];
      unsigned* const flag = &flags_[16 * act.access.word];
      if (act.what == HostAct::Do::launch) {
        launch(stream, 1, 1, test::act, program.kernels[act.number], words_.data(), flags_.data());
      } else if (act.what == HostAct::Do::record) {
        events[act.number].record(stream);
      } else if (act.what == HostAct::Do::wait) {
        events[act.number].wait(stream);
      } else if (act.what == HostAct::Do::wait_on_host) {
        events[act.number].synchronize();
      } else if (act.what == HostAct::Do::synchronize) {
        stream.synchronize();
      } else if (act.access.if_told && !told) {
        continue;
      } else if (act.access.what == What::load) {
        load_on_host(word);
      } else if (act.access.what == What::store) {
        store_on_host(word, 1);
      } else if (act.access.what == What::tell) {
        tell_on_host(flag);
      } else {
        told = ask_on_host(flag) != 0;
      }
    }
  }

  // Under every schedule.
  bool detects(const RacingProgram& program) {
    check::Schedules schedules;
    bool found = false;
    text_.clear();
    for (bool more = true; more && !found;) {
      std::fill(words_.begin(), words_.end(), 0u);
      std::fill(flags_.begin(), flags_.end(), 0u);
      check::RaceDetector detector;
      cpu::set_listener(&detector);
      schedules.begin();
      {
        cpu::Exploration exploration(schedules);
        const cpu::HostObserver observer;
        exploration.run([&] { run_host(program); });
      }
      cpu::set_listener(nullptr);
      more = schedules.end();
      EXPECT_TRUE(detector.complete());
      for (const check::Race& race : detector.races()) {
        found = true;
        text_ += to_string(race) + "\n";
      }
    }
    return found;
  }

  std::mt19937_64 random_{test_seed()};
  std::vector<unsigned> words_ = std::vector<unsigned>(1024);
  std::vector<unsigned> flags_ = std::vector<unsigned>(64);
  std::string text_;
};

TEST_F(RaceFuzz, FindsARaceWhereverThereIsOne) {
  unsigned racy = 0, told = 0;
  constexpr unsigned kPrograms = 5'000;
  for (unsigned i = 0; i < kPrograms; ++i) {
    const RacingProgram one = program();
    const bool expected = Oracle(one).races();
    ASSERT_EQ(detects(one), expected) << "program " << i << "\n" << to_string(one) << text_;
    racy += expected;
    told += to_string(one).find("if told") != std::string::npos;
  }
  std::printf("%u of %u programs race\n", racy, kPrograms);
  EXPECT_GT(racy, kPrograms / 10);
  EXPECT_LT(racy, kPrograms * 9 / 10);
  EXPECT_GT(told, kPrograms / 4);
}

}  // namespace
}  // namespace holdfast::test

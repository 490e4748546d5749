// Exploring schedules: all of them, none twice, and with them all that a crash may leave.
#include "check/schedules.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "check/executions.hpp"
#include "check/happens.hpp"
#include "check/order.hpp"
#include "check/scheduled_programs.hpp"
#include "check/small_programs.hpp"
#include "check/verdicts.hpp"
#include "support/scratch.hpp"

namespace holdfast::check {
namespace {

// What a crash may leave: what was promised, and memory.
using State = std::vector<std::uint64_t>;
using States = std::set<State>;

void add_states(const SmallProgram& program, const Trace& trace, const OrderOptions& options,
                States& states) {
  const Order order(trace, options);
  for (const CrashPoint& point : order.points()) {
    order.for_each_state(point, [&](const Bitset& durable) {
      State state(program.persistent + 2);
      state[program.persistent] = point.started;
      state[program.persistent + 1] = point.acknowledged;
      for (std::uint32_t i = 0; i < order.cells().size(); ++i) {
        const std::uint32_t version = order.version(i, durable);
        if (version == 0) continue;
        const Write& write = order.writes()[order.cells()[i].writes[version - 1]];
        std::memcpy(&state[(write.address - SmallRun::kBase) / 8], trace.bytes.data() + write.value,
                    8);
      }
      states.insert(std::move(state));
      return true;
    });
  }
}

// What makes two executions equivalent: which write each access to a word comes behind.
using Class = std::vector<std::uint64_t>;
Class class_of(const Trace& trace) {
  std::map<std::uint64_t, std::uint64_t> last;  // by address: the write, as thread and turn
  std::map<std::uint32_t, std::uint32_t> turns;
  std::map<std::uint32_t, Class> by_thread;
  for (const Op& op : trace.ops) {
    if (!op.strong) continue;
    const std::uint64_t me = std::uint64_t{op.thread} << 32 | ++turns[op.thread];
    by_thread[op.thread].push_back(last[op.address]);
    if (op.kind == OpKind::write || op.kind == OpKind::update || op.kind == OpKind::release) {
      last[op.address] = me;
    }
  }
  Class result;
  for (const auto& [thread, reads] : by_thread) {
    result.push_back(~std::uint64_t{thread});
    result.insert(result.end(), reads.begin(), reads.end());
  }
  for (const auto& [address, write] : last) result.push_back(write);
  return result;
}

struct Explored {
  States states;
  std::set<Class> classes;
  std::uint64_t runs = 0;
  std::uint64_t redundant = 0;
};

// By reduced schedules, with all moments of each.
Explored reduced(const SmallProgram& program, Model model) {
  Explored result;
  Schedules schedules;
  OrderOptions options;
  options.model = model;
  options.moments = Moments::cuts;
  for (bool more = true; more;) {
    schedules.begin();
    const Trace trace = SmallRun(program, false).run(schedules);
    const bool redundant = schedules.redundant();
    more = schedules.end();
    if (redundant) continue;
    result.classes.insert(class_of(trace));
    add_states(program, late_host(trace), options, result.states);
  }
  result.runs = schedules.made();
  result.redundant = schedules.redundant_runs();
  return result;
}

// By every interleaving of all that is done, at every moment of each.
Explored brute(const SmallProgram& program, Model model) {
  Explored result;
  Schedules schedules(Schedules::Reduction::none);
  OrderOptions options;
  options.model = model;
  for (bool more = true; more;) {
    schedules.begin();
    const Trace trace = SmallRun(program, true).run(schedules);
    more = schedules.end();
    result.classes.insert(class_of(trace));
    add_states(program, trace, options, result.states);
  }
  result.runs = schedules.made();
  return result;
}

std::uint64_t count(const SmallProgram& program) {
  Schedules schedules;
  do {
    schedules.begin();
    SmallRun(program, false).run(schedules);
  } while (schedules.end());
  EXPECT_EQ(schedules.redundant_runs(), 0u);
  EXPECT_EQ(schedules.share(), 1);
  return schedules.made();
}

SmallProgram all_add(unsigned threads, unsigned each, bool to_one_word) {
  SmallProgram program;
  program.words = threads;
  program.host = {{Do::start}};
  for (unsigned i = 0; i < threads; ++i) {
    program.threads.emplace_back(each, Act{Do::add, to_one_word ? 0 : i});
  }
  return program;
}

TEST(SchedulesTest, CountsWhatClosedFormsSay) {
  EXPECT_EQ(count(all_add(2, 1, true)), 2u);
  EXPECT_EQ(count(all_add(3, 2, true)), 90u);      // 6! / 2!^3
  EXPECT_EQ(count(all_add(4, 2, true)), 2'520u);   // 8! / 2!^4
  EXPECT_EQ(count(all_add(3, 4, true)), 34'650u);  // 12! / 4!^3
  EXPECT_EQ(count(all_add(4, 4, false)), 1u);      // nobody meets anybody
}

TEST(SchedulesTest, ReadsCommute) {
  SmallProgram program;
  program.words = 1;
  program.host = {{Do::start}};
  program.threads = {{{Do::strong_store}}, {{Do::load}, {Do::load}}, {{Do::load}}};
  EXPECT_EQ(count(program), 6u);  // 3 x 2 places for the store
}

TEST(SchedulesTest, AShareIsTold) {
  Schedules schedules;
  const SmallProgram program = all_add(4, 4, true);
  for (int i = 0; i < 10'000; ++i) {
    schedules.begin();
    SmallRun(program, false).run(schedules);
    ASSERT_TRUE(schedules.end());
  }
  EXPECT_NEAR(schedules.share(), 10'000 / 63'063'000.0, 1e-6);
}

TEST(SchedulesTest, ANameMakesTheSameAgain) {
  const SmallProgram program = all_add(3, 2, true);
  Schedules schedules;
  for (bool more = true; more;) {
    schedules.begin();
    const Class one = class_of(SmallRun(program, false).run(schedules));
    const std::string name = schedules.name();
    more = schedules.end();
    Schedules again;
    again.begin_named(name);
    EXPECT_EQ(class_of(SmallRun(program, false).run(again)), one) << name;
  }
  Schedules other;
  EXPECT_THROW(other.begin_named("no name"), Error);
  EXPECT_THROW(other.begin_named(""), Error);
  other.begin_named("zz");
  EXPECT_THROW(SmallRun(program, false).run(other), Error);
}

TEST(SchedulesTest, ANameTellsManyThreadsApart) {
  for (const char* const name : {"_3", "_", "z1_2", "_0__3"}) {
    Schedules one;
    one.begin_named(name);
    SmallRun(all_add(80, 1, true), false).run(one);
    EXPECT_EQ(one.name(), name);
  }
}

class RandomPrograms : public ::testing::Test {
 protected:
  explicit RandomPrograms() : random(test::test_seed()) {}
  unsigned below(unsigned n) { return static_cast<unsigned>(random() % n); }

  // Words: one persistent one for each thread, one persistent and one volatile one for all.
  Act act(unsigned thread, unsigned threads) {
    Act act;
    static constexpr Do kActs[] = {Do::store,  Do::store,  Do::strong_store, Do::load,
                                   Do::add,    Do::cas,    Do::prel,         Do::pacq,
                                   Do::ofence, Do::dfence, Do::dfence,       Do::fence};
    act.what = kActs[below(std::size(kActs))];
    act.word = act.what == Do::store ? thread : threads + below(2);
    act.value = 1 + below(2);
    act.scope = static_cast<Scope>(below(3));
    if (below(3) == 0) act.only_if = static_cast<int>(below(2));
    return act;
  }

  SmallProgram program() {
    SmallProgram result;
    const unsigned threads = 2;
    result.one_kernel = below(2) == 0;
    result.persistent = threads + 1;
    result.words = threads + 2;
    for (unsigned thread = 0; thread < threads; ++thread) {
      auto& acts = result.threads.emplace_back();
      for (unsigned i = 0; i < 3 + below(2); ++i) acts.push_back(act(thread, threads));
    }
    result.host = {{Do::start}};
    if (below(2) == 0) result.host.push_back({Do::load, threads + below(2), 0, Scope::system});
    if (below(2) == 0) {
      result.host.push_back({Do::synchronize, below(2) == 0 ? kAll : below(threads)});
    }
    result.host.push_back({Do::acknowledge});
    if (below(2) == 0) result.host.back().only_if = static_cast<int>(below(2));
    return result;
  }

  std::mt19937_64 random;
};

// The claim on which everything rests: reduced schedules, each with all consistent cuts, leave what
// all interleavings leave at all moments: no state less, and no state more.
TEST_F(RandomPrograms, ReducedSchedulesLeaveWhatAllInterleavingsLeave) {
  std::uint64_t runs = 0, all_runs = 0, states = 0, redundant = 0;
  for (int i = 0; i < 300; ++i) {
    const SmallProgram small = program();
    for (const Model model : {Model::sbrp, Model::epoch}) {
      const Explored some = reduced(small, model);
      const Explored all = brute(small, model);
      ASSERT_EQ(some.classes, all.classes) << "program " << i << " " << to_string(model);
      ASSERT_EQ(some.runs, all.classes.size()) << "program " << i << ": a class was made twice";
      ASSERT_EQ(some.states, all.states) << "program " << i << " " << to_string(model);
      runs += some.runs;
      all_runs += all.runs;
      states += all.states.size();
      redundant += some.redundant;
    }
  }
  std::printf("%llu schedules and %llu redundant ones for %llu interleavings, %llu states\n",
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(redundant),
              static_cast<unsigned long long>(all_runs), static_cast<unsigned long long>(states));
}

struct ScheduleBug {
  const char* name;
  Program (*make)(bool fixed);
  bool sometimes = false;  // the one schedule in index order may show it, by the streams' luck
};
void PrintTo(const ScheduleBug& bug, std::ostream* out) { *out << bug.name; }

class ScheduleBugs : public ::testing::TestWithParam<ScheduleBug> {};
INSTANTIATE_TEST_SUITE_P(Bugs, ScheduleBugs,
                         ::testing::Values(ScheduleBug{"told_before_persist",
                                                       test::told_before_persist},
                                           ScheduleBug{"last_arriver", test::last_arriver},
                                           ScheduleBug{"winner", test::winner},
                                           ScheduleBug{"polling_host", test::polling_host},
                                           ScheduleBug{"two_streams", test::two_streams, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ScheduleBugs, IsFoundUnderBothModels) {
  for (const Model model : {Model::sbrp, Model::epoch}) {
    Options options;
    options.model = model;
    options.races = false;
    const Program program = GetParam().make(false);
    const Report report = check(program, options);
    ASSERT_EQ(report.verdict, Verdict::failed) << to_string(model);
    const bool explored = report.failures[0].state.starts_with('x');
    if (GetParam().sometimes && !explored) continue;
    EXPECT_TRUE(explored) << report.failures[0].state;
    // And again, by its name.
    options.replay = report.failures[0].state;
    const Report again = check(program, options);
    ASSERT_EQ(again.verdict, Verdict::failed) << options.replay;
    EXPECT_EQ(again.failures[0].message, report.failures[0].message);
    if (GetParam().sometimes) continue;
    // It is the schedule that it takes.
    options.replay = "";
    options.schedules = 0;
    EXPECT_EQ(check(program, options).verdict, Verdict::none_found);
  }
}

TEST_P(ScheduleBugs, TheFixedTwinPasses) {
  const Report report = check(GetParam().make(true));
  EXPECT_EQ(report.verdict, Verdict::passed) << all_of(report.limits);
  expect_nothing_fails(report);
  EXPECT_TRUE(report.schedules_complete);
  EXPECT_EQ(report.schedules_share, 1);
  EXPECT_GT(report.schedules, 0u);
}

// It is no step of a schedule, but it comes to an end.
TEST(ScheduledKernels, GoOnWhileTheHostAsks) {
  for (const test::Asks how :
       {test::Asks::by_read, test::Asks::by_plain_loads, test::Asks::by_event}) {
    Options options;
    options.races = false;
    const Report report = check(test::asking_host(how), options);
    EXPECT_EQ(report.verdict, Verdict::none_found) << static_cast<int>(how);
    for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
  }
}

TEST(ScheduledKernels, AreAsManyAsClosedFormsSay) {
  Options options;
  options.races = false;
  const Report report = check(test::counters(4, 2), options);
  EXPECT_EQ(report.verdict, Verdict::none_found);
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
  EXPECT_EQ(report.schedules, 2'520u);
  EXPECT_TRUE(report.schedules_complete);
}

TEST(ScheduledKernels, ABudgetIsKeptAndTheShareSaid) {
  Options options;
  options.races = false;
  options.schedules = 100;
  const Report report = check(test::counters(3, 4), options);
  EXPECT_EQ(report.verdict, Verdict::none_found);
  EXPECT_EQ(report.schedules, 100u);
  EXPECT_FALSE(report.schedules_complete);
  EXPECT_NEAR(report.schedules_share, 100 / 34'650.0, 1e-3);
}

struct RecoveryBug {
  const char* name;
  Program (*make)(bool fixed);
  bool nested = false;        // it takes a crash inside recovery
  const char* schedule = "";  // how the state's name goes on where the schedule is told
};
void PrintTo(const RecoveryBug& bug, std::ostream* out) { *out << bug.name; }

class RecoveryBugs : public ::testing::TestWithParam<RecoveryBug> {};
INSTANTIATE_TEST_SUITE_P(
    Bugs, RecoveryBugs,
    ::testing::Values(RecoveryBug{"recovered_by_the_winner", test::recovered_by_the_winner},
                      RecoveryBug{"read_by_the_second", test::read_by_the_second},
                      RecoveryBug{"published_in_recovery", test::published_in_recovery, true, "r"},
                      RecoveryBug{"mended_by_the_winner", test::mended_by_the_winner, true, "/r"}),
    [](const auto& info) { return std::string(info.param.name); });

Options one_model(Model model) {
  Options options;
  options.model = model;
  options.races = false;
  return options;
}

TEST_P(RecoveryBugs, IsFoundUnderBothModels) {
  for (const Model model : {Model::sbrp, Model::epoch}) {
    Options options = one_model(model);
    const Program program = GetParam().make(false);
    const Report report = check(program, options);
    ASSERT_EQ(report.verdict, Verdict::failed) << to_string(model);
    const Failure& failure = report.failures[0];
    EXPECT_EQ(failure.nested, GetParam().nested);
    EXPECT_NE(failure.state.find(GetParam().nested ? GetParam().schedule : "r"), std::string::npos)
        << failure.state;
    // And again, by its name.
    options.replay = failure.state;
    const Report again = check(program, options);
    ASSERT_EQ(again.verdict, Verdict::failed) << options.replay;
    EXPECT_EQ(again.failures[0].message, failure.message);
    EXPECT_EQ(again.failures[0].state, failure.state);
    // It is recovery's schedule that it takes.
    options.replay = "";
    options.recovery_schedules = 0;
    const Report one = check(program, options);
    EXPECT_EQ(one.verdict, Verdict::none_found);
    EXPECT_FALSE(one.recovery_complete);
    EXPECT_NE(all_of(one.limits).find("1 schedule of recovery for each state"), std::string::npos)
        << all_of(one.limits);
  }
}

TEST_P(RecoveryBugs, WithoutItsScheduleTheNameIsOfAStateThatDoesNotFail) {
  Options options = one_model(Model::sbrp);
  const Program program = GetParam().make(false);
  std::string state = check(program, options).failures.at(0).state;
  for (auto at = state.find('r'); at != std::string::npos; at = state.find('r')) {
    state.erase(at, state.find('@', at) - at + 1);
  }
  if (GetParam().nested) state.erase(state.find('/'));  // writes have other numbers
  options.replay = state;
  EXPECT_EQ(check(program, options).verdict, Verdict::none_found) << state;
}

TEST_P(RecoveryBugs, TheFixedTwinPassesUnderAllSchedules) {
  const Report report = check(GetParam().make(true));
  EXPECT_TRUE(report.recovery_complete);
  EXPECT_GT(report.recovery_schedules, 1u);
  EXPECT_TRUE(report.complete);
  EXPECT_TRUE(report.nested_complete);
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
}

TEST(ScheduledRecovery, StreamsBesideEachOtherAreExplored) {
  Options options = one_model(Model::sbrp);
  const Report report = check(test::recovered_by_two_streams(), options);
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
  EXPECT_TRUE(report.recovery_complete);
  EXPECT_EQ(report.recovery_schedules, 2u);
}

TEST(ScheduledRecovery, ABudgetIsKeptAndSaid) {
  Options options = one_model(Model::sbrp);
  options.nested = false;
  const Report all = check(test::counting_recovery(2, 2), options);
  EXPECT_TRUE(all.recovery_complete);
  EXPECT_EQ(all.recovery_schedules, 6u);  // 4! / 2!^2
  const Report some = check(test::counting_recovery(3, 4), options);
  EXPECT_FALSE(some.recovery_complete);
  EXPECT_EQ(some.recovery_schedules, 100u);
  EXPECT_NE(all_of(some.limits).find("up to 100 schedules of recovery"), std::string::npos)
      << all_of(some.limits);
}

TEST(ScheduledRecovery, ANameThatNamesNoneIsRefused) {
  Options options = one_model(Model::sbrp);
  for (const char* state : {"rzz@0:", "r111@0:", "r@0:", "r0:", "r!@0:"}) {
    options.replay = state;
    EXPECT_EQ(
        test::error_of([&] { check(test::recovered_by_the_winner(true), options); }, {"names no"}),
        Errc::invalid_argument)
        << state;
  }
}

}  // namespace
}  // namespace holdfast::check

// What the litmus tests say of the model: each axiom is needed, the executions that are left out
// are not missed, and where ordering and waiting come to the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "check/litmus.hpp"
#include "check/litmus_executions.hpp"
#include "check/litmus_reference.hpp"
#include "check/litmus_run.hpp"
#include "check/litmus_support.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast::check {
namespace {

using test::all_litmus;
using test::LitmusGenerator;

struct NamedAxiom {
  const char* name;
  bool Axioms::*member;
};
constexpr NamedAxiom kAxioms[] = {
    {"A1", &Axioms::fence_order},  {"A2", &Axioms::release_acquire}, {"A3", &Axioms::fence_sync},
    {"A4", &Axioms::barrier_sync}, {"A5", &Axioms::coherence},       {"A6", &Axioms::release_write},
    {"A7", &Axioms::durability},   {"A8", &Axioms::inclusion},       {"A9", &Axioms::streams},
    {"A10", &Axioms::events},      {"none", &Axioms::barrier_alone}};
static_assert(sizeof(Axioms) == std::size(kAxioms), "an axiom is missing in the list");

// The tests whose result changes when the axiom is turned around.
std::vector<std::string> tests_that_notice(const NamedAxiom& axiom) {
  LitmusOptions options;
  options.axioms.*axiom.member = !(options.axioms.*axiom.member);
  std::vector<std::string> names;
  for (const LitmusTest& test : all_litmus()) {
    const bool notices = run_brute(test, Model::sbrp, options).reached != test.sbrp ||
                         run_brute(test, Model::epoch, options).reached != test.epoch;
    if (notices) names.push_back(test.name);
  }
  return names;
}

// docs/model.md lists them; HOLDFAST_WRITE_DOCS=1 makes the list anew.
TEST(LitmusModel, EachAxiomIsNeeded) {
  std::string table = "| without | tests that fail |\n|---|---|\n";
  for (const NamedAxiom& axiom : kAxioms) {
    const std::vector<std::string> names = tests_that_notice(axiom);
    EXPECT_FALSE(names.empty()) << axiom.name << ": no test notices";
    const bool added = axiom.member == &Axioms::barrier_alone;
    table += added ? "| (with: a barrier alone orders)" : std::string("| ") + axiom.name;
    table += " | " + std::to_string(names.size()) + ": ";
    for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 8); ++i) {
      table += (i == 0 ? "`" : ", `") + names[i] + "`";
    }
    table += names.size() > 8 ? ", ... |\n" : " |\n";
  }
  const std::string path = test::repository() + "/docs/model.md";
  const std::vector<char> bytes = test::read_file(path);
  std::string page(bytes.begin(), bytes.end());
  const std::string begin = "<!-- axioms -->\n";
  const std::size_t from = page.find(begin);
  const std::size_t to = page.find("<!-- end -->", from);
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos);
  const std::size_t at = from + begin.size();
  if (std::getenv("HOLDFAST_WRITE_DOCS") != nullptr) {
    page.replace(at, to - at, table);
    test::write_file(path, {page.begin(), page.end()});
  } else {
    EXPECT_EQ(page.substr(at, to - at), table) << "make it anew: HOLDFAST_WRITE_DOCS=1";
  }
}

void expect_reference(const LitmusTest& test, const std::string& text) {
  for_each_execution(test, {}, [&](const Trace& trace) {
    const Order order(trace, {});
    const std::vector<Bitset> down = test::reference_down(order);
    for (std::uint32_t w = 0; w < down.size(); ++w) EXPECT_EQ(order.down(w), down[w]) << text;
    for (const CrashPoint& point : order.points()) {
      EXPECT_EQ(point.durable, test::reference_floor(order, point.op)) << text;
    }
    return !::testing::Test::HasFailure();
  });
}

// The order, computed in one pass with sets that threads carry along, is that of the formal lines.
TEST(LitmusModel, OrderIsThatOfTheAxioms) {
  for (const LitmusTest& test : all_litmus()) expect_reference(test, test.name);
  LitmusGenerator generator(test::test_seed());
  for (int i = 0; i < 1500 && !HasFailure(); ++i) {
    const std::string text = generator.program(i % 2 == 0);
    expect_reference(parse_litmus(text, "random").at(0), text);
  }
}

TEST(LitmusModel, LeftOutExecutionsAreNotMissed) {
  LitmusOptions all;
  all.reduce = false;
  std::uint64_t reduced = 0;
  std::uint64_t complete = 0;
  for (const LitmusTest& test : all_litmus()) {
    for (const Model model : {Model::sbrp, Model::epoch}) {
      const LitmusOutcomes some = run_lazy(test, model);
      const LitmusOutcomes every = run_lazy(test, model, all);
      EXPECT_EQ(some.all, every.all) << test.name << " (" << to_string(model) << ")";
      reduced += some.executions;
      complete += every.executions;
    }
  }
  EXPECT_GT(complete, 3 * reduced);
  std::printf("executions: %llu of %llu\n", static_cast<unsigned long long>(reduced),
              static_cast<unsigned long long>(complete));
}

TEST(LitmusModel, RandomProgramsBothEnginesAgree) {
  LitmusGenerator generator(test::test_seed());
  const int programs = static_cast<int>(test::some_of(3000));
  LitmusOptions every;
  every.reduce = false;
  every.max_executions = 3000;
  std::uint64_t brute_runs = 0;
  std::uint64_t lazy_runs = 0;
  int complete = 0;
  for (int i = 0; i < programs; ++i) {
    const std::string text = generator.program(false);
    const LitmusTest program = parse_litmus(text, "random").at(0);
    for (const Model model : {Model::sbrp, Model::epoch}) {
      const LitmusOutcomes brute = run_brute(program, model);
      const LitmusOutcomes lazy = run_lazy(program, model);
      ASSERT_EQ(brute.all, lazy.all) << to_string(model) << "\n" << text;
      ASSERT_EQ(brute.reached, lazy.reached) << to_string(model) << "\n" << text;
      brute_runs += brute.runs;
      lazy_runs += lazy.runs;
      if (i % 4 != 0) continue;
      try {
        const LitmusOutcomes unreduced = run_lazy(program, model, every);
        ASSERT_EQ(unreduced.all, brute.all) << to_string(model) << "\n" << text;
        ++complete;
      } catch (const Error&) {
        // Too many interleavings to try them all.
      }
    }
  }
  EXPECT_GT(complete, programs / 8);
  std::printf("%d programs, %llu states, %llu lazy runs, %d with all interleavings\n", programs,
              static_cast<unsigned long long>(brute_runs),
              static_cast<unsigned long long>(lazy_runs), complete);
}

// ---- Ordering and waiting (docs/model.md, "Ordering and waiting")

using Images = std::set<std::string>;

void add_images(const LitmusTest& test, const Order& order, Images& images) {
  for (const CrashPoint& point : order.points()) {
    order.for_each_state(point, [&](const Bitset& durable) {
      const std::vector<std::byte> image = image_of(test, order, durable);
      images.emplace(reinterpret_cast<const char*>(image.data()), image.size());
      return true;
    });
  }
}

// Whether the work of a stream at operation `earlier` is over at a later one: of the same stream
// and another kernel or copy, or the host has waited for it, or an event is in between.
bool stream_orders(const Trace& trace, std::uint32_t earlier, const Op& op) {
  const Op& before = trace.ops[earlier];
  if (before.thread == kHostThread) return false;
  if (op.kind == OpKind::synchronize) {
    if (op.group != 0) return before.kind == OpKind::record && before.group == op.group;
    return op.stream == 0 || op.stream == before.stream;
  }
  if (op.thread == kHostThread) return false;
  if (op.kind == OpKind::wait_event && before.kind == OpKind::record && before.group == op.group) {
    return true;
  }
  const bool of_copies = op.thread == kCopyThread || before.thread == kCopyThread;
  const std::uint32_t launch = trace.threads[op.thread].launch;
  return before.stream == op.stream && (of_copies || trace.threads[before.thread].launch < launch);
}

// What happened before what: program order, reads from other threads, barriers, streams, events,
// the host's waits. By operation: those before it.
std::vector<Bitset> happens_before(const Trace& trace) {
  std::vector<Bitset> before(trace.ops.size());
  std::map<std::uint32_t, std::uint32_t> last_of_thread;
  std::map<std::uint64_t, std::uint32_t> last_writer;  // by byte
  std::map<std::uint32_t, std::vector<std::uint32_t>> arrivals;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    const auto add = [&](std::uint32_t earlier) {
      before[i] |= before[earlier];
      before[i].set(earlier);
    };
    const auto last = last_of_thread.find(op.thread);
    if (last != last_of_thread.end() && op.thread != kCopyThread) {
      add(last->second);
      const Op& own = trace.ops[last->second];
      if (own.kind == OpKind::barrier) {
        for (const std::uint32_t arrival : arrivals[own.group]) add(arrival);
      }
    }
    const bool reads =
        op.kind == OpKind::read || op.kind == OpKind::acquire || op.kind == OpKind::update;
    const bool writes =
        op.kind == OpKind::write || op.kind == OpKind::release || op.kind == OpKind::update;
    for (std::uint64_t byte = op.address; byte < op.address + op.size; ++byte) {
      if (reads && last_writer.contains(byte)) add(last_writer[byte]);
      if (writes) last_writer[byte] = i;
    }
    for (std::uint32_t j = 0; j < i; ++j) {
      if (stream_orders(trace, j, op)) add(j);
    }
    if (op.kind == OpKind::barrier) arrivals[op.group].push_back(i);
    last_of_thread[op.thread] = i;
  }
  return before;
}

// What the host has waited for when a synchronize has ended, and what streams wait for: A9 and A10
// alone. That one who is waited for has read from another thread does not make the host wait for
// that.
std::vector<Bitset> waited_for(const Trace& trace) {
  std::vector<Bitset> before(trace.ops.size());
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (std::uint32_t j = 0; j < i; ++j) {
      if (!stream_orders(trace, j, trace.ops[i])) continue;
      before[i] |= before[j];
      before[i].set(j);
    }
  }
  return before;
}

// Whether another thread may learn that a durability fence has ended without learning of it in
// persist order: a persist before the fence, one that happens after the fence in another thread,
// and no order between them in `order`.
bool floor_is_observable(const Trace& trace, const Order& order) {
  const std::vector<Bitset> before = happens_before(trace);
  const std::vector<Bitset> waits = waited_for(trace);
  for (std::uint32_t fence = 0; fence < trace.ops.size(); ++fence) {
    if (trace.ops[fence].kind != OpKind::durability_fence) continue;
    for (std::uint32_t w = 0; w < order.writes().size(); ++w) {
      const Write& write = order.writes()[w];
      if (write.thread != trace.ops[fence].thread || write.op > fence) continue;
      for (std::uint32_t v = w + 1; v < order.writes().size(); ++v) {
        const Write& later = order.writes()[v];
        if (later.thread == write.thread || !before[later.op].test(fence)) continue;
        bool waited = false;
        for (std::uint32_t i = write.op; i < later.op; ++i) {
          waited = waited || (trace.ops[i].kind == OpKind::synchronize && waits[i].test(write.op));
        }
        if (!waited && !order.ordered(w, v)) return true;
      }
    }
  }
  return false;
}

// The execution, with each durability fence turned into `kind`.
Trace without_waiting(Trace trace, OpKind kind) {
  for (Op& op : trace.ops) {
    if (op.kind != OpKind::durability_fence) continue;
    op.kind = kind;
    op.scope = Scope::system;
  }
  return trace;
}

struct StateComparison {
  bool waits = false;       // there is a durability fence
  bool same_states = true;  // with ordering in place of waiting
  bool subset = true;       // waiting reaches no state that ordering does not
  bool observable = false;
  bool same_order = true;
};

// The program as it is, and with each durability fence turned into `kind`.
StateComparison compare(const LitmusTest& test, OpKind kind) {
  StateComparison result;
  Images waiting;
  Images ordering;
  for_each_execution(test, {}, [&](const Trace& trace) {
    for (const Op& op : trace.ops) {
      result.waits = result.waits || op.kind == OpKind::durability_fence;
    }
    const Trace other = without_waiting(trace, kind);
    const Order waits(trace, {});
    const Order orders(other, {});
    add_images(test, waits, waiting);
    add_images(test, orders, ordering);
    result.observable = result.observable || floor_is_observable(trace, orders);
    for (std::uint32_t w = 0; w < waits.writes().size(); ++w) {
      result.same_order = result.same_order && waits.down(w) == orders.down(w);
    }
    return true;
  });
  result.same_states = waiting == ordering;
  result.subset = std::includes(ordering.begin(), ordering.end(), waiting.begin(), waiting.end());
  return result;
}

// Every fence of the program that orders becomes one that waits.
LitmusTest all_waiting(LitmusTest test) {
  for (LitmusThread& thread : test.threads) {
    for (LitmusStep& step : thread.steps) {
      if (step.op == LitmusOp::ofence || step.op == LitmusOp::fence) step.op = LitmusOp::dfence;
    }
  }
  return test;
}

// Of programs with a durability fence, replaced in two ways.
struct Tally {
  int unobservable = 0;  // their states must be the same
  int same = 0;          // observable, and the same all the same
  int other = 0;

  void print() const {
    std::printf("not observable: %d; observable: %d with the same states, %d with others\n",
                unobservable, same, other);
  }
};

void expect_conjecture(const LitmusTest& test, const std::string& text, Tally& tally) {
  for (const OpKind kind : {OpKind::ordering_fence, OpKind::fence}) {
    const StateComparison found = compare(test, kind);
    if (!found.waits) continue;
    EXPECT_TRUE(found.subset) << text;
    if (kind == OpKind::fence) {
      EXPECT_TRUE(found.same_order) << text;
    }
    if (found.same_order && !found.observable) {
      EXPECT_TRUE(found.same_states) << text;
      ++tally.unobservable;
    } else {
      ++(found.same_states ? tally.same : tally.other);
    }
  }
}

TEST(LitmusModel, OrderingAndWaitingOnTheLitmusTests) {
  std::set<std::string> ofence_differs;
  std::set<std::string> fence_differs;
  Tally tally;
  for (const LitmusTest& test : all_litmus()) {
    if (run_brute(test, Model::sbrp).runs > 5000) continue;
    expect_conjecture(test, test.name, tally);
    expect_conjecture(all_waiting(test), test.name + ", all waiting", tally);
    if (!compare(test, OpKind::ordering_fence).same_states) ofence_differs.insert(test.name);
    if (!compare(test, OpKind::fence).same_states) fence_differs.insert(test.name);
  }
  // A floor that another thread, kernel, copy or stream learns of, each in its own way; and, for
  // ofence, the synchronisation that a dfence brings along.
  const std::set<std::string> expected = {"barrier.dfence.before", "copy.behind.dfence",
                                          "durable.message",       "durable.narrow",
                                          "event.dfence",          "kernel.boundary.dfence"};
  EXPECT_EQ(fence_differs, expected);
  std::set<std::string> with_order = expected;
  with_order.insert("strong.dfence");
  EXPECT_EQ(ofence_differs, with_order);
  tally.print();
}

// The host waits for a thread that has read from the fence's, and so not for what that one wrote.
TEST(LitmusModel, TheHostsWaitForAReaderIsNoWaitForTheWriter) {
  const std::string text =
      "test wait.reader {\n persistent u64 a, c\n volatile u32 f\n"
      " stream S1 {\n thread T0 block 0 {\n a = 1\n dfence\n strong.device f = 1\n }\n }\n"
      " stream S0 {\n thread T1 block 1 {\n r0 = strong.device f\n }\n }\n synchronize S0\n"
      " stream S1 {\n thread T2 block 1 {\n c = 1\n }\n }\n"
      " crash c == 1 && a == 0\n sbrp: forbidden\n epoch: forbidden\n}\n";
  for_each_execution(parse_litmus(text, "text").at(0), {}, [&](const Trace& trace) {
    EXPECT_TRUE(floor_is_observable(trace, Order(without_waiting(trace, OpKind::fence), {})));
    return true;
  });
}

TEST(LitmusModel, OrderingAndWaitingOnRandomPrograms) {
  LitmusGenerator generator(test::test_seed());
  Tally tally;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = generator.program(i % 2 == 0);
    expect_conjecture(parse_litmus(text, "random").at(0), text, tally);
    if (HasFailure()) return;
  }
  EXPECT_GT(tally.unobservable, 500);
  EXPECT_GT(tally.other, 0);
  tally.print();
}

}  // namespace
}  // namespace holdfast::check

// Shapes whose verdict under PTX is known (Lustig, Sahasrabuddhe, Giroux, ASPLOS '19), as programs:
// where a weak outcome is allowed there is a reason, and where fences rule it out there is none.
#include "check/robustness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "check/litmus.hpp"
#include "check/litmus_executions.hpp"
#include "check/litmus_ptx.hpp"
#include "check/litmus_run.hpp"
#include "check/litmus_support.hpp"
#include "support/scratch.hpp"

namespace holdfast::check {
namespace {

// Of all executions of the threads, which share x, y and z: reasons of the one with most.
std::vector<WeakReason> reasons_of(const std::string& threads, bool every = false) {
  const std::string text = "test t { persistent u64 a volatile u32 x, y, z, m[2]\n" + threads +
                           "\ncrash a == 0 sbrp: allowed }";
  std::vector<WeakReason> most;
  bool first = true;
  for_each_execution(parse_litmus(text, "t").at(0), {}, [&](const Trace& trace) {
    std::vector<WeakReason> found = find_weak(trace);
    for (const WeakReason& reason : found) {
      EXPECT_FALSE(reason.gave_up);
      EXPECT_EQ(trace.ops[reason.first].thread, trace.ops[reason.second].thread);
      EXPECT_FALSE(to_string(reason, trace).empty());
    }
    const bool better = every ? found.size() < most.size() : found.size() > most.size();
    if (first || better) most = std::move(found);
    first = false;
    return true;
  });
  return most;
}

// With `by` in each place that is marked: an operation, or nothing.
std::string replaced(std::string text, const std::string& by) {
  for (std::size_t at = text.find('~'); at != std::string::npos; at = text.find('~', at)) {
    const bool statement = text.compare(at, 2, "~;") == 0;
    text.replace(at, by.empty() && statement ? 2 : 1, by);
  }
  return text;
}

const char* const kSb =
    "thread T0 block 0 { strong.device x = 1; ~; r0 = strong.device y }\n"
    "thread T1 block 1 { strong.device y = 1; ~; r0 = strong.device x }";
const char* const kMp =
    "thread T0 block 0 { strong.device x = 1; ~; strong.device y = 1 }\n"
    "thread T1 block 1 { r0 = strong.device y; ~; r1 = strong.device x }";
const char* const kLb =
    "thread T0 block 0 { r0 = strong.device x; ~; strong.device y = 1 }\n"
    "thread T1 block 1 { r0 = strong.device y; ~; strong.device x = 1 }";
const char* const kIriw =
    "thread T0 block 0 { strong.device x = 1 } thread T1 block 1 { strong.device y = 1 }\n"
    "thread T2 block 2 { r0 = strong.device x; ~; r1 = strong.device y }\n"
    "thread T3 block 3 { r0 = strong.device y; ~; r1 = strong.device x }";
const char* const k22w =
    "thread T0 block 0 { strong.device x = 1; ~; strong.device y = 2 }\n"
    "thread T1 block 1 { strong.device y = 1; ~; strong.device x = 2 }";
const char* const kWrc =
    "thread T0 block 0 { strong.device x = 1 }\n"
    "thread T1 block 1 { r0 = strong.device x; ~; strong.device y = 1 }\n"
    "thread T2 block 2 { r0 = strong.device y; ~; r1 = strong.device x }";
const char* const kIsa2 =
    "thread T0 block 0 { strong.device x = 1; ~; strong.device y = 1 }\n"
    "thread T1 block 1 { r0 = strong.device y; ~; strong.device z = 1 }\n"
    "thread T2 block 2 { r0 = strong.device z; ~; r1 = strong.device x }";
const std::vector<std::string> kShapes = {kSb, kMp, kLb, kIriw, k22w, kWrc, kIsa2};

TEST(Robustness, RelaxedShapesMayBeWeak) {
  for (const std::string& shape : kShapes) {
    EXPECT_FALSE(reasons_of(replaced(shape, "")).empty()) << shape;
    EXPECT_FALSE(reasons_of(replaced(shape, ""), true).empty()) << "in each execution: " << shape;
  }
}

TEST(Robustness, FencesKeepThemInOrder) {
  for (const std::string& shape : kShapes) {
    for (const char* fence : {"fence.device", "fence.system", "dfence"}) {
      EXPECT_TRUE(reasons_of(replaced(shape, fence)).empty()) << fence << ": " << shape;
    }
    EXPECT_FALSE(reasons_of(replaced(shape, "fence.block")).empty()) << "too narrow: " << shape;
    EXPECT_FALSE(reasons_of(replaced(shape, "ofence")).empty()) << "of persists alone: " << shape;
  }
  // One thread without its fence is enough.
  EXPECT_FALSE(
      reasons_of("thread T0 block 0 { strong.device x = 1; fence.device; r0 = strong.device y }\n"
                 "thread T1 block 1 { strong.device y = 1; r0 = strong.device x }")
          .empty());
}

// Within a block, its fences and its barriers do.
TEST(Robustness, BlockScopeWithinABlock) {
  const std::string threads =
      "thread T0 block 0 { strong.block x = 1; ~; r0 = strong.block y }\n"
      "thread T1 block 0 { strong.block y = 1; ~; r0 = strong.block x }";
  EXPECT_FALSE(reasons_of(replaced(threads, "")).empty());
  EXPECT_TRUE(reasons_of(replaced(threads, "fence.block")).empty());
  EXPECT_TRUE(reasons_of(replaced(threads, "barrier")).empty());
}

// Release and acquire are enough for messages, not where two threads store first and read then.
TEST(Robustness, ReleaseAndAcquire) {
  EXPECT_TRUE(reasons_of("thread T0 block 0 { strong.device x = 1; prel.device y = 1 }\n"
                         "thread T1 block 1 { r0 = pacq.device y; r1 = strong.device x }")
                  .empty());
  EXPECT_FALSE(reasons_of("thread T0 block 0 { strong.device x = 1; prel.block y = 1 }\n"
                          "thread T1 block 1 { r0 = pacq.device y; r1 = strong.device x }")
                   .empty());
  EXPECT_FALSE(reasons_of("thread T0 block 0 { prel.device x = 1; r0 = pacq.device y }\n"
                          "thread T1 block 1 { prel.device y = 1; r0 = pacq.device x }")
                   .empty())
      << "SB";
  EXPECT_TRUE(reasons_of("thread T0 block 0 { r0 = pacq.device x; prel.device y = 1 }\n"
                         "thread T1 block 1 { r0 = pacq.device y; prel.device x = 1 }")
                  .empty())
      << "LB";
  EXPECT_TRUE(reasons_of("thread T0 block 0 { strong.device x = 1 }\n"
                         "thread T1 block 1 { r0 = strong.device x; prel.device y = 1 }\n"
                         "thread T2 block 2 { r0 = pacq.device y; r1 = strong.device x }")
                  .empty())
      << "WRC";
  EXPECT_FALSE(
      reasons_of("thread T0 block 0 { prel.device x = 1 } thread T1 block 1 { prel.device y = 1 }\n"
                 "thread T2 block 2 { r0 = pacq.device x; r1 = pacq.device y }\n"
                 "thread T3 block 3 { r0 = pacq.device y; r1 = pacq.device x }")
          .empty())
      << "IRIW";
  EXPECT_FALSE(reasons_of("thread T0 block 0 { strong.device x = 1; prel.device y = 1 }\n"
                          "thread T1 block 1 { r0 = pacq.device y; r1 = strong.device x }\n"
                          "thread T2 block 2 { strong.device y = 2 }")
                   .empty())
      << "another's store hides the release";
  EXPECT_TRUE(reasons_of("thread T0 block 0 { strong.device x = 1; prel.device y = 1 }\n"
                         "thread T1 block 1 { r0 = pacq.device y; r1 = strong.device x }\n"
                         "thread T2 block 2 { add.device y, 2 }")
                  .empty())
      << "a read-modify-write carries it on";
}

TEST(Robustness, WithoutACycleThereIsNoReason) {
  const char* const programs[] = {
      "thread T0 block 0 { add.device x, 1; add.device x, 1 } thread T1 block 1 { add.device x, 1 "
      "}",
      // Both take the variables in the same order.
      "thread T0 block 0 { strong.device x = 1; strong.device y = 1 }\n"
      "thread T1 block 1 { strong.device x = 2; strong.device y = 2 }",
      // Nobody writes.
      "thread T0 block 0 { r0 = strong.device x; r1 = strong.device y }\n"
      "thread T1 block 1 { r0 = strong.device y; r1 = strong.device x }",
      // One kernel after the other.
      "kernel { thread T0 block 0 { strong.device x = 1; r0 = strong.device y } }\n"
      "kernel { thread T1 block 0 { strong.device y = 1; r0 = strong.device x } }"};
  for (const char* program : programs) EXPECT_TRUE(reasons_of(program).empty()) << program;
  // Two streams' kernels run beside each other, unless the host waits.
  const std::string streams =
      "stream S1 { kernel { thread T0 block 0 { strong.device x = 1; r0 = strong.device y } } } ~\n"
      "stream S2 { kernel { thread T1 block 0 { strong.device y = 1; r0 = strong.device x } } }";
  EXPECT_FALSE(reasons_of(replaced(streams, "")).empty());
  EXPECT_TRUE(reasons_of(replaced(streams, "synchronize S1")).empty());
}

// A kernel of stream 1 and, behind one of stream 2 that the host waits for, one of stream 3.
// `joined`: stream 2 has waited for stream 1.
Trace three_streams(bool joined) {
  Trace trace;
  trace.tasks = {{}, {1, 0, 0}, {2, 0, joined ? 1u : 0u}, {2, 0, 0}, {3, 0, 0}};
  const std::uint32_t task_of[] = {1, 3, 4};
  for (std::uint32_t launch = 1; launch <= 3; ++launch) {
    trace.threads.push_back({launch, 0, 0, task_of[launch - 1]});
  }
  const auto access = [&](std::uint32_t launch, OpKind kind, std::uint64_t address) {
    Op op;
    op.kind = kind;
    op.scope = Scope::device;
    op.strong = true;
    op.thread = kCopyThread + launch;
    op.stream = launch;
    op.size = 8;
    op.address = address;
    const std::uint64_t value = launch;
    if (kind == OpKind::write) op.value = trace.keep(&value, sizeof(value));
    trace.ops.push_back(op);
  };
  const auto store_and_look = [&](std::uint32_t launch, std::uint64_t stored, std::uint64_t seen) {
    access(launch, OpKind::write, stored);
    access(launch, OpKind::read, seen);
  };
  store_and_look(1, 64, 128);
  store_and_look(2, 192, 256);
  Op wait;
  wait.kind = OpKind::synchronize;
  wait.stream = 2;
  trace.ops.push_back(wait);
  store_and_look(3, 128, 64);
  return trace;
}

TEST(Robustness, TheHostWaitsForWhatAStreamHasWaitedFor) {
  EXPECT_FALSE(find_weak(three_streams(false)).empty());
  EXPECT_TRUE(find_weak(three_streams(true)).empty());
}

TEST(Robustness, TheHostTakesPart) {
  const std::string program =
      "thread T0 block 0 { strong.system x = 1; ~; r0 = strong.system y }\n"
      "host { strong.system y = 1; ~; r0 = strong.system x }";
  EXPECT_FALSE(reasons_of(replaced(program, "")).empty());
  EXPECT_FALSE(reasons_of(replaced(program, "fence.device")).empty());
  EXPECT_TRUE(reasons_of(replaced(program, "fence.system")).empty());
}

TEST(Robustness, AReasonNamesTheCycle) {
  const std::vector<WeakReason> reasons = reasons_of(replaced(kMp, ""));
  ASSERT_FALSE(reasons.empty());
  EXPECT_EQ(reasons[0].others.size(), 2u);
}

bool has_reason(const LitmusTest& test) {
  bool found = false;
  for_each_execution(test, {}, [&](const Trace& trace) {
    found = !find_weak(trace).empty();
    return !found;
  });
  return found;
}

// Where PTX's axioms allow what sequential consistency forbids, there is a reason.
TEST(Robustness, LitmusTestsThatPtxAllowsHaveAReason) {
  std::size_t weak = 0;
  std::size_t spurious = 0;
  for (const LitmusTest& test : load_litmus({test::litmus_folder() + "/memory.litmus"})) {
    ASSERT_TRUE(test.is_final);
    EXPECT_EQ(run_memory(test, Memory::sc), test.sc) << test.name;
    EXPECT_EQ(run_memory(test, Memory::ptx), test.ptx) << test.name;
    // Of too narrow a scope for one variable: the race detector's.
    if (test.name == "memory.corr.narrow") continue;
    const bool reason = has_reason(test);
    if (*test.ptx && !*test.sc) {
      EXPECT_TRUE(reason) << test.name;
      ++weak;
    } else {
      spurious += reason;
    }
  }
  EXPECT_GE(weak, 15u);
  EXPECT_LE(spurious, 3u);
}

// The same for random programs, and all their outcomes.
TEST(Robustness, RandomProgramsThatMayBeWeakHaveAReason) {
  std::mt19937_64 random(test::test_seed());
  const auto below = [&](std::size_t bound) { return random() % bound; };
  const char* const places[] = {"x", "y", "z"};
  std::size_t weak = 0;
  std::size_t robust = 0;
  std::size_t spurious = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = "test t { volatile u32 x, y, z\n";
    const std::size_t threads = 2 + below(2);
    const std::size_t used = 2 + below(2);
    std::size_t adds = 0;
    for (std::size_t i = 0; i < threads; ++i) {
      text +=
          "thread T" + std::to_string(i) + " block " + std::to_string(below(3) == 0 ? 0 : i) + " {";
      for (std::size_t j = 0; j < (threads == 2 ? 3 : 2); ++j) {
        const std::string place = places[below(used)];
        std::size_t kind = below(9);
        // Of more than two, each a read and a write, all outcomes can be minutes of work.
        if (kind == 8 && ++adds > 2) kind = 0;
        if (j != 0 && below(3) != 0) text += below(4) == 0 ? " fence.block;" : " fence.device;";
        const std::string to = " r" + std::to_string(j) + " = ";
        if (kind < 3) text += " strong.device " + place + " = " + std::to_string(j + 1) + ";";
        if (kind == 3) text += " prel.device " + place + " = " + std::to_string(j + 1) + ";";
        if (kind > 3 && kind < 7) text += to + "strong.device " + place + ";";
        if (kind == 7) text += to + "pacq.device " + place + ";";
        if (kind == 8) text += to + "add.device " + place + ", 4;";
      }
      text += " }\n";
    }
    text += "final x == 0 sc: allowed ptx: allowed }";
    const LitmusTest test = parse_litmus(text, "random").at(0);
    const auto sc = memory_outcomes(test, Memory::sc);
    const auto ptx = memory_outcomes(test, Memory::ptx);
    ASSERT_TRUE(std::includes(ptx.begin(), ptx.end(), sc.begin(), sc.end())) << text;
    const bool reason = has_reason(test);
    if (sc != ptx) {
      ASSERT_TRUE(reason) << text;
      ++weak;
    } else {
      ++(reason ? spurious : robust);
    }
  }
  std::printf("%zu weak, %zu not, %zu more with a reason\n", weak, robust, spurious);
  EXPECT_GT(weak, 20u);
  EXPECT_GT(robust, 20u);
}

TEST(Robustness, GivesUpAloud) {
  Trace trace;
  for (std::uint32_t t = 0; t < 4; ++t) {
    trace.threads.push_back({1, t, 0});
    for (std::uint64_t i = 0; i < 3000; ++i) {
      Op op;
      op.kind = OpKind::write;
      op.strong = true;
      op.thread = t + 2;
      op.address = 0x1000 + 8 * ((i * 7 + t * 1001) % 3000);
      op.size = 8;
      trace.ops.push_back(op);
    }
  }
  const std::vector<WeakReason> reasons = find_weak(trace);
  ASSERT_FALSE(reasons.empty());
  EXPECT_TRUE(std::any_of(reasons.begin(), reasons.end(),
                          [](const WeakReason& reason) { return reason.gave_up; }));
}

}  // namespace
}  // namespace holdfast::check

// Programs that were once passed although legal crash states fail: each is decomposed, or
// remembered, by what recovery's threads look at and tell each other.
#include <gtest/gtest.h>

#include <ostream>

#include "check/checker.hpp"
#include "check/fuzz/fuzz_case.hpp"

namespace holdfast::test {
namespace {

using check::Options;
using check::Report;
using check::Verdict;

FuzzOp in(Space space, FuzzOp result) {
  result.space = space;
  return result;
}
FuzzOp plus_register(FuzzOp result) {
  result.adds = true;
  return result;
}
FuzzStep launch(std::uint32_t kernel) {
  FuzzStep result;
  result.kernel = kernel;
  return result;
}
FuzzKernel block_of(unsigned threads) {
  FuzzKernel result;
  result.threads = threads;
  result.code.resize(threads);
  return result;
}

using Oracle = std::function<std::string(const Observation&)>;

// The checker finds a failure from that rung on, and it fails again.
void expect_found(const FuzzCase& fuzz, const Oracle& oracle, Options options,
                  check::Rung rung = check::Rung::components) {
  options.races = false;
  // The states of one schedule are what groups take apart;
  // SchedulesTest.ReducedSchedulesLeaveWhatAllInterleavingsLeave is about schedules.
  options.schedules = 0;
  options.recovery_schedules = 0;
  const check::Program program = make_program(std::make_shared<const FuzzCase>(fuzz), oracle);
  Report report;
  {
    check::Checker checker(program, options);
    checker.start_at(rung);
    report = checker.check(false);
  }
  ASSERT_EQ(report.verdict, Verdict::failed)
      << to_string(report.rung) << ", " << report.states << " states, "
      << report.models.at(0).components << " components, "
      << (report.complete ? "called complete" : "not complete");
  options.replay = report.failures.at(0).state;
  EXPECT_EQ(check::check(program, options).verdict, Verdict::failed);
}

// Each thread marks its log as valid, changes two words and clears the mark, with no fence in
// between; where the mark still stands, recovery puts the words back. The marks are read by
// recovery alone, by threads that have the numbers of those that wrote them.
TEST(GroupsTest, AFlagThatOnlyRecoveryReadsIsVaried) {
  constexpr unsigned kThreads = 6;
  FuzzCase fuzz;
  fuzz.words = 3 * kThreads;
  fuzz.device_words = 1;
  fuzz.kernels = {block_of(kThreads), block_of(kThreads)};
  for (unsigned t = 0; t < kThreads; ++t) {
    fuzz.kernels[0].code[t] = {op(Code::store, 3 * t, 1), op(Code::persist, 0),
                               op(Code::store, 3 * t + 1, 7), op(Code::store, 3 * t + 2, 7),
                               op(Code::store, 3 * t, 0)};
    fuzz.kernels[1].code[t] = {op(Code::load, 3 * t),         unless(0, 1, 4),
                               op(Code::store, 3 * t + 1, 0), op(Code::store, 3 * t + 2, 0),
                               op(Code::persist, 0),          op(Code::store, 3 * t, 0)};
    fuzz.items.push_back({read(3 * t + 1), read(3 * t + 2)});
  }
  fuzz.run = {launch(0)};
  fuzz.recover = {launch(1)};
  expect_found(fuzz,
               [](const Observation& seen) {
                 return seen[3] == seen[4] ? std::string() : "half of a change is left";
               },
               {});
}

enum class Channel { device, shared, ballot };
void PrintTo(Channel channel, std::ostream* out) {
  *out << (channel == Channel::device   ? "device"
           : channel == Channel::shared ? "shared"
                                        : "ballot");
}
class TalkTest : public ::testing::TestWithParam<Channel> {};
INSTANTIATE_TEST_SUITE_P(Channels, TalkTest,
                         ::testing::Values(Channel::device, Channel::shared, Channel::ballot),
                         ::testing::PrintToStringParamName());

// Each thread of recovery looks at one word, and one of them is told what two others saw. Wrong is
// one state of three words, which nobody reads together.
TEST_P(TalkTest, WhatRecoverysThreadsTellEachOtherIsVariedTogether) {
  constexpr unsigned kThreads = 13;
  constexpr unsigned kListener = 5;
  FuzzCase fuzz;
  fuzz.words = 2 * kThreads + 1;
  fuzz.device_words = kThreads;
  fuzz.kernels = {block_of(kThreads), block_of(kThreads), block_of(1)};
  const Space space = GetParam() == Channel::device ? Space::device : Space::shared;
  fuzz.kernels[1].shares = GetParam() == Channel::shared;
  for (unsigned t = 0; t < kThreads; ++t) {
    fuzz.kernels[0].code[t] = {op(Code::store, t, 1)};
    fuzz.kernels[1].code[t] = {op(Code::load, t)};
    if (GetParam() == Channel::ballot) {
      fuzz.kernels[1].code[t].push_back(op(Code::ballot, 0, 0));
    } else {
      fuzz.kernels[1].code[t].push_back(plus_register(in(space, op(Code::store, t))));
      fuzz.kernels[1].code[t].push_back(op(Code::barrier, 0));
    }
    fuzz.items.push_back({read(kThreads + t)});
  }
  std::vector<FuzzOp> listen{op(Code::load, kListener, 0, 1), unless(1, 1, 4)};
  if (GetParam() == Channel::ballot) {
    listen.push_back(plus_register(op(Code::store, kThreads + kListener, 0, 0)));
  } else {
    listen.push_back(in(space, op(Code::load, kListener + 1, 0, 0)));
    listen.push_back(plus_register(op(Code::store, kThreads + kListener, 10, 0)));
    listen.push_back(in(space, op(Code::load, kListener + 2, 0, 0)));
    listen.push_back(plus_register(op(Code::store, 2 * kThreads, 10, 0)));
    fuzz.items[kListener].push_back(read(2 * kThreads));
  }
  const bool later = GetParam() == Channel::device;  // the next kernel's thread
  auto& code = later ? fuzz.kernels[2].code[0] : fuzz.kernels[1].code[kListener];
  code.insert(code.end(), listen.begin(), listen.end());
  fuzz.kernels.push_back(block_of(1));
  fuzz.run = {launch(3), launch(0)};  // so that numbers of threads differ from recovery's
  fuzz.recover = {launch(1)};
  if (later) fuzz.recover.push_back(launch(2));
  Options options;
  options.nested = false;
  const bool ballot = GetParam() == Channel::ballot;
  expect_found(
      fuzz,
      [ballot](const Observation& seen) {
        if (seen[0] != kListener) return std::string();
        const bool wrong =
            ballot ? (seen[3] >> kListener & 7) == 3 : seen[3] == 11 && seen.back() == 10;
        return wrong ? std::string("the next word was there, and not the one behind it")
                     : std::string();
      },
      options);
}

// The same by the copy engine: all words are copied into device memory, where one thread looks at
// three of them.
TEST(GroupsTest, CopiesCarryWhatWasRead) {
  constexpr unsigned kThreads = 13;
  constexpr unsigned kReader = 5;
  FuzzCase fuzz;
  fuzz.words = 2 * kThreads + 1;
  fuzz.device_words = kThreads;
  fuzz.kernels = {block_of(kThreads), block_of(kThreads)};
  for (unsigned t = 0; t < kThreads; ++t) {
    fuzz.kernels[0].code[t] = {op(Code::store, t, 1)};
    fuzz.kernels[1].code[t] = {in(Space::device, op(Code::load, t)),
                               plus_register(op(Code::store, kThreads + t))};
    fuzz.items.push_back({read(kThreads + t)});
  }
  fuzz.kernels[1].code[kReader] = {in(Space::device, op(Code::load, kReader, 0, 1)),
                                   unless(1, 1, 4),
                                   in(Space::device, op(Code::load, kReader + 1)),
                                   plus_register(op(Code::store, kThreads + kReader, 10)),
                                   in(Space::device, op(Code::load, kReader + 2)),
                                   plus_register(op(Code::store, 2 * kThreads, 10))};
  fuzz.items[kReader].push_back(read(2 * kThreads));
  fuzz.run = {launch(0)};
  FuzzStep copy;
  copy.kind = FuzzStep::Kind::copy_in;
  copy.count = kThreads;
  fuzz.recover = {copy, launch(1)};
  Options options;
  options.nested = false;
  expect_found(
      fuzz,
      [](const Observation& seen) {
        const bool wrong = seen[0] == kReader && seen[3] == 11 && seen.back() == 10;
        return wrong ? std::string("the next word was there, and not the one behind it")
                     : std::string();
      },
      options);
}

// Recovery stores half of a word and reads all of it: the other half is as the crash left it.
TEST(MemoryTest, WhatIsLeftOfAWordInPartIsVaried) {
  FuzzCase fuzz;
  fuzz.words = 3;
  fuzz.device_words = 1;
  fuzz.kernels = {block_of(2), block_of(1)};
  fuzz.kernels[0].code[0] = {op(Code::store, 0, std::uint64_t{7} << 32)};
  fuzz.kernels[0].code[1] = {op(Code::store, 1, 1)};
  FuzzOp half = op(Code::store, 0, 5);
  half.size = 4;
  fuzz.kernels[1].code[0] = {half, op(Code::load, 0), plus_register(op(Code::store, 2))};
  fuzz.items = {{read(2), read(1)}};
  fuzz.run = {launch(0)};
  fuzz.recover = {launch(1)};
  Options options;
  options.nested = false;
  expect_found(
      fuzz,
      [](const Observation& seen) {
        const bool wrong = seen[3] >> 32 == 7 && seen[4] == 0;
        return wrong ? std::string("the other half alone") : std::string();
      },
      options, check::Rung::exhaustive);
}

// Recovery's atomic leaves the same in both states, and reads what differs.
TEST(MemoryTest, WhatAnAtomicReadTellsStatesApart) {
  FuzzCase fuzz;
  fuzz.words = 2;
  fuzz.device_words = 1;
  fuzz.kernels = {block_of(1), block_of(1)};
  fuzz.kernels[0].code[0] = {op(Code::store, 0, 2)};
  fuzz.kernels[1].code[0] = {op(Code::atomic_or, 0, 2), plus_register(op(Code::store, 1, 0))};
  fuzz.items = {{read(1)}};
  fuzz.run = {launch(0)};
  fuzz.recover = {launch(1)};
  Options options;
  options.nested = false;
  expect_found(
      fuzz, [](const Observation& seen) { return seen[3] == 2 ? "there" : std::string(); }, options,
      check::Rung::exhaustive);
}

}  // namespace
}  // namespace holdfast::test

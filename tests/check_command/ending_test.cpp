// Recoveries that do not return: they crash, or run for ever. The state is named in each.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check/scheduled_programs.hpp"
#include "check_command/command_support.hpp"
#include "check_command/ending_test.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::check {
namespace {

using Ending = std::function<void(Region&)>;

int* volatile nowhere = nullptr;
volatile bool yes = true;  // which the compiler does not know

void end_by_address(Region&) { *nowhere = 1; }
void end_by_abort(Region&) { std::abort(); }
void end_by_raise(Region&) { ::raise(SIGSEGV); }
void end_by_division(Region&) {
  volatile int some = 7, zero = 0;
  some = some / zero;
}
int dig(volatile char* above) {
  volatile char here[4096];
  here[0] = above == nullptr ? 0 : above[0];
  return yes ? dig(here) + here[1] : 0;
}
void end_by_stack(Region&) { dig(nullptr); }
void never_end(Region&) {
  while (yes) {
  }
}
void sleep_for_ever(Region&) {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}
void wait_with_signals_blocked(Region& region) {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  never_end(region);
}

void spin_in_a_kernel(Region&) {
  Stream stream;
  const DeviceBuffer<std::uint32_t> words(1);
  launch(stream, dim3(1), dim3(1), test::spin, words.data());
  stream.synchronize();
}

using Make = std::function<Program(const Sizes&)>;

// `make`, but verify() ends so where it would fail.
Offer ending_in_verify(const Make& make, const Ending& end) {
  return {"ending", "", false, [=](const Sizes& sizes) {
            Program program = make(sizes);
            program.name = "ending";
            program.verify = [=, verify = program.verify](Region& region, const History& history,
                                                          std::uint64_t item) {
              const std::string wrong = verify(region, history, item);
              if (!wrong.empty()) end(region);
              return wrong;
            };
            return program;
          }};
}

// Recovery that ends so in one of the crash states: the head counts records that are not there.
Offer ending(const Ending& end) {
  return {"ending", "", false, [=](const Sizes& sizes) {
            Program program = example("append_naive", sizes);
            program.name = "ending";
            program.recover = [=, recover = program.recover,
                               verify = program.verify](Region& region) {
              recover(region);
              if (!verify(region, {}, 0).empty()) end(region);
            };
            program.verify = [](Region&, const History&, std::uint64_t) { return std::string(); };
            return program;
          }};
}

// A program that ends so in run(), or in set_up().
Offer ending_before(const Ending& end, bool in_set_up) {
  return {"ending", "", false, [=](const Sizes& sizes) {
            Program program = example("append_naive", sizes);
            program.name = "ending";
            if (in_set_up) {
              program.set_up = end;
            } else {
              program.run = [=](Region& region, Session&) { end(region); };
            }
            return program;
          }};
}

Make example_of(const std::string& name) {
  return [=](const Sizes& sizes) { return example(name, sizes); };
}

// The words behind --replay in what became of the first worker.
std::string replay_in(const std::string& text) {
  const std::string mark = "--replay ";
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + mark.size();
  return text.substr(begin, text.find_first_of(", \n", begin) - begin);
}

struct Ended {
  Said said;
  std::string err;
  std::string dead;
};

Ended end_of(std::vector<std::string> words, const Offer& offer) {
  words.insert(words.begin(), "ending");
  ::testing::internal::CaptureStderr();
  Ended ended{say(words, {offer}), "", ""};
  ended.err = ::testing::internal::GetCapturedStderr();
  if (!ended.said.json["dead_workers"].empty()) ended.dead = ended.said.json["dead_workers"][0];
  return ended;
}

// What is said names a state, and that state alone ends so, too.
void expect_named(const Offer& offer, const std::vector<std::string>& options,
                  const std::vector<std::string>& expected) {
  const Ended first = end_of(options, offer);
  EXPECT_EQ(first.said.status, 1);
  EXPECT_EQ(first.said.json["verdict"], "failed");
  for (const std::string& words : expected) {
    EXPECT_NE(first.dead.find(words), std::string::npos) << first.said.json["dead_workers"];
    EXPECT_NE(first.err.find(words), std::string::npos) << first.err;
  }
  const std::string state = replay_in(first.dead);
  ASSERT_FALSE(state.empty()) << first.said.json;
  std::vector<std::string> again = options;
  again.insert(again.end(), {"--replay", state});
  const Ended second = end_of(again, offer);
  EXPECT_EQ(second.said.status, 1);
  EXPECT_EQ(replay_in(second.dead), state) << second.said.json;
}

TEST(CheckEnding, ARecoveryThatCrashesIsNamed) {
  expect_named(ending(end_by_address), {}, {"recover() of program 'ending' crashed (SIGSEGV)"});
  expect_named(ending(end_by_abort), {}, {"recover() of program 'ending' crashed (SIGABRT)"});
  expect_named(ending(end_by_raise), {}, {"recover() of program 'ending' crashed (SIGSEGV)"});
  expect_named(ending(end_by_division), {}, {"recover() of program 'ending' crashed (SIGFPE)"});
  expect_named(ending(end_by_stack), {}, {"recover() of program 'ending' crashed (SIGSEGV)"});
  expect_named(ending_in_verify(example_of("append_naive"), end_by_address), {},
               {"verify() of program 'ending' crashed (SIGSEGV)"});
}

TEST(CheckEnding, SoIsOneBehindACrashInsideRecoveryOrUnderAScheduleOfItsOwn) {
  expect_named(ending_in_verify(example_of("append_sum_naive"), end_by_abort), {}, {"/"});
  expect_named(ending_in_verify([](const Sizes&) { return test::recovered_by_the_winner(false); },
                                end_by_abort),
               {}, {"@r"});
  expect_named(ending_in_verify([](const Sizes&) { return test::mended_by_the_winner(false); },
                                end_by_abort),
               {}, {"/r"});
  expect_named(
      ending_in_verify([](const Sizes&) { return test::last_arriver(false); }, end_by_abort), {},
      {"--replay x"});
}

TEST(CheckEnding, AChangedProgramIsNamedAsChanged) {
  const Said said = say({"append", "--mutation", "drop@x.cu:1"}, checked_append::offers());
  const std::string offered = said.json["error"]["message"];
  const std::size_t at = offered.find("there is drop@") + 9;
  const std::string mutation = offered.substr(at, offered.find(',', at) - at);
  expect_named(ending_in_verify(example_of("append"), end_by_abort), {"--mutation", mutation},
               {"repeat it with --mutation " + mutation + " --replay "});
}

TEST(CheckEnding, AmongWorkersAndUnderTheOtherModel) {
  expect_named(ending(end_by_abort), {"--jobs", "2"}, {"crashed (SIGABRT)"});
  expect_named(ending(end_by_abort), {"--model", "epoch"}, {"--replay epoch@"});
  expect_named(ending(end_by_abort), {"--schedule", "7"}, {"--replay s7@"});
}

TEST(CheckEnding, ARecoveryThatNeverEndsIsEnded) {
  const std::vector<std::string> soon{"--recovery-seconds", "0.5"};
  expect_named(ending(never_end), soon, {"recover() of program 'ending' has run for 0.5 s"});
  expect_named(ending(sleep_for_ever), soon, {"recover() of program 'ending' has run for 0.5 s"});
  expect_named(ending_in_verify(example_of("append_naive"), never_end), soon,
               {"verify() of program 'ending' has run for 0.5 s"});
  expect_named(ending(spin_in_a_kernel), soon, {"recover() of program 'ending' has run for 0.5 s"});
  expect_named(ending_in_verify([](const Sizes&) { return test::recovered_by_the_winner(false); },
                                never_end),
               soon, {"@r"});
  expect_named(ending(never_end), {"--recovery-seconds", "0.5", "--jobs", "2"}, {"has run for"});
}

TEST(CheckEnding, ARunThatCrashesOrNeverEndsIsNamed) {
  const std::vector<std::string> soon{"--recovery-seconds", "0.5"};
  const auto expect_dead = [&](const Ending& end, bool in_set_up, const std::string& words) {
    const Ended ended = end_of(soon, ending_before(end, in_set_up));
    EXPECT_EQ(ended.said.status, 1);
    EXPECT_NE(ended.dead.find(words), std::string::npos) << ended.said.json;
    EXPECT_EQ(ended.dead.find("--replay"), std::string::npos) << ended.dead;
  };
  expect_dead(end_by_address, false, "run() of program 'ending' crashed (SIGSEGV)");
  expect_dead(never_end, false, "run() of program 'ending' has run for 0.5 s");
  expect_dead(spin_in_a_kernel, false, "run() of program 'ending' has run for 0.5 s");
  expect_dead(end_by_abort, true, "set_up() of program 'ending' crashed (SIGABRT)");
  expect_dead(never_end, true, "set_up() of program 'ending' has run for 0.5 s");
}

TEST(CheckEnding, ARecoveryThatHearsNoSignalsIsEndedWithoutItsName) {
  const Ended ended = end_of({"--recovery-seconds", "0.2"}, ending(wait_with_signals_blocked));
  EXPECT_EQ(ended.said.status, 1);
  EXPECT_NE(ended.dead.find("recover() of program 'ending' has run for 0.2 s"), std::string::npos);
}

TEST(CheckEnding, SlowRecoveriesThatEndAreLeftAlone) {
  int left = 4;
  const Ended ended =
      end_of({"--recovery-seconds", "0.5", "--threads", "1"}, ending([left](Region&) mutable {
               if (left-- > 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
             }));
  EXPECT_TRUE(ended.dead.empty()) << ended.dead;
}

// The process dies as it would have.
TEST(CheckEndingDeathTest, TheSignalIsStillTheEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto check_it = [](const Ending& end) { check(ending(end).make({})); };
  EXPECT_EXIT(check_it(end_by_address), ::testing::KilledBySignal(SIGSEGV), "--replay ");
  EXPECT_EXIT(check_it(end_by_abort), ::testing::KilledBySignal(SIGABRT), "--replay ");
  EXPECT_EXIT(check_it(end_by_division), ::testing::KilledBySignal(SIGFPE), "--replay ");
  EXPECT_EXIT(
      {
        check(example("append"));  // handlers are there from before
        check_it(end_by_address);
      },
      ::testing::KilledBySignal(SIGSEGV), "--replay ");
}

}  // namespace
}  // namespace holdfast::check

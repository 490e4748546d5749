// What a kernel that goes wrong is told, and that the process goes on.
#include "cpu/diagnosis.hpp"

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/support.hpp"

namespace holdfast::test {
namespace {

#if defined(HOLDFAST_SANITIZE)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

cpu::Schedule quick_livelock() {
  cpu::Schedule schedule;
  schedule.livelock_rounds = 500;
  return schedule;
}

struct Case {
  Mistake mistake;
  Errc code;
  std::vector<std::string> parts;
  bool names_line = false;
};

class MistakeTest : public ::testing::TestWithParam<Case> {};

TEST_P(MistakeTest, IsNamedAndTheProcessLives) {
  const Case& test = GetParam();
  unsigned where = 0;
  int sink = 0;
  const Failure failure = failure_of([&](Stream& stream) {
    launch(stream, 2, 32, make_mistake, test.mistake, &where, static_cast<volatile int*>(&sink));
  });
  ASSERT_TRUE(failure.failed);
  EXPECT_EQ(failure.code, test.code) << failure.message;
  std::vector<std::string> parts = test.parts;
  if (test.names_line) parts.push_back("diagnosis.cu:" + std::to_string(where));
  for (const std::string& part : parts) {
    EXPECT_NE(failure.message.find(part), std::string::npos)
        << "\"" << part << "\" is not in: " << failure.message;
  }
  unsigned out = 0;
  Stream stream;
  launch(stream, 3, 64, all_is_well, &out);
  stream.synchronize();
  EXPECT_EQ(out, 3u * 64);
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      {Mistake::caller_not_in_mask,
       Errc::kernel_fault,
       {"block (0,0,0), thread (0,0,0)", "__ballot_sync", "0x0000fffe", "does not name it"},
       true},
      {Mistake::exited_lane,
       Errc::kernel_fault,
       {"__any_sync", "names lane 3, which has exited"},
       true},
      {Mistake::lane_exits_while_waited_for,
       Errc::kernel_fault,
       {"__all_sync", "names lane 31, which has exited"},
       true},
      {Mistake::different_operations,
       Errc::kernel_fault,
       {"different operations", "__any_sync", "__ballot_sync"},
       true},
      {Mistake::different_masks,
       Errc::kernel_fault,
       {"different operations", "0xffff0001", "0xffffffff"},
       true},
      {Mistake::inactive_source,
       Errc::kernel_fault,
       {"__shfl_sync", "reads lane 20, which does not take part"},
       true},
      {Mistake::bad_width, Errc::kernel_fault, {"width 12", "power of two"}, true},
      {Mistake::different_barriers,
       Errc::kernel_fault,
       {"different barriers", "__syncthreads_or"},
       true},
      {Mistake::barrier_against_collective,
       Errc::livelock,
       {"deadlock", "block (0,0,0), thread (0,0,0) waits at __syncthreads",
        "thread (1,0,0) waits at __syncwarp", "and 16 more"},
       true},
      {Mistake::trap, Errc::kernel_fault, {"thread (5,0,0)", "trapped"}, true},
      {Mistake::failed_assert, Errc::kernel_fault, {"thread (5,0,0)", "lane == 6"}, true},
      {Mistake::throws, Errc::kernel_fault, {"thread (5,0,0)", "a kernel's exception"}},
      {Mistake::misaligned_atomic, Errc::kernel_fault, {"atomicAdd", "not aligned to 4 bytes"}},
  };
  if (!kSanitized) {  // the sanitizers end the process themselves
    all.push_back({Mistake::null_store,
                   Errc::kernel_fault,
                   {"block (0,0,0), thread (5,0,0)", "address 0x10"}});
    all.push_back({Mistake::wild_load,
                   Errc::kernel_fault,
                   {"block (0,0,0), thread (5,0,0)", "address 0x123456789000"}});
    all.push_back({Mistake::divide_by_zero,
                   Errc::kernel_fault,
                   {"block (0,0,0), thread (5,0,0)", "division by zero"}});
    all.push_back({Mistake::stack_overflow, Errc::kernel_fault, {"stack", "HOLDFAST_CPU_STACK"}});
    all.push_back({Mistake::deep_recursion, Errc::kernel_fault, {"stack", "HOLDFAST_CPU_STACK"}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, MistakeTest, ::testing::ValuesIn(cases()));

TEST(Diagnosis, WaitsThatCanNotEndAreOneOrTheOther) {
  unsigned where = 0;
  int sink = 0;
  const Failure failure = failure_of([&](Stream& stream) {
    launch(stream, 1, 4, make_mistake, Mistake::two_subsets_wait, &where,
           static_cast<volatile int*>(&sink));
  });
  ASSERT_TRUE(failure.failed);
  EXPECT_TRUE(failure.code == Errc::livelock || failure.code == Errc::kernel_fault);
  EXPECT_NE(failure.message.find("__syncwarp"), std::string::npos) << failure.message;
}

TEST(Diagnosis, ALivelockSaysWhereThreadsStand) {
  const ScheduleScope scope(quick_livelock());
  unsigned flag = 0;
  expect_failure(Errc::livelock,
                 {"livelock", "block (1,0,0), thread (2,0,0) spins at atomicCAS", "diagnosis.cu:"},
                 [&](Stream& stream) { launch(stream, 2, 4, spin_for_ever, &flag); });
  expect_failure(Errc::livelock,
                 {"spins at pacq", "and 24 more", "and 2 blocks that have not started"},
                 [&](Stream& stream) { launch(stream, 10, 5, spin_by_acquire, &flag); });
}

TEST(Diagnosis, ALivelockIsFoundUnderASeed) {
  cpu::Schedule schedule = quick_livelock();
  schedule.seed = 9;
  const ScheduleScope scope(schedule);
  unsigned flag = 0;
  expect_failure(Errc::livelock, {"livelock", "spins at atomicCAS"},
                 [&](Stream& stream) { launch(stream, 2, 4, spin_for_ever, &flag); });
}

#if defined(HOLDFAST_INTERCEPT)
TEST(Diagnosis, ASpinOnAVolatileIsFoundWhereAccessesAreIntercepted) {
  const ScheduleScope scope(quick_livelock());
  unsigned flag = 0;
  expect_failure(Errc::livelock, {"spins at volatile load", "cpu_diagnosis_test+0x"},
                 [&](Stream& stream) {
                   launch(stream, 2, 4, spin_on_volatile, static_cast<volatile unsigned*>(&flag));
                 });
}
#endif

TEST(Diagnosis, ALargerStackIsEnough) {
  cpu::Schedule schedule;
  schedule.stack_bytes = 1 << 20;
  const ScheduleScope scope(schedule);
  unsigned where = 0;
  int sink = 0;
  for (const Mistake mistake : {Mistake::stack_overflow, Mistake::deep_recursion}) {
    const Failure failure = failure_of([&](Stream& stream) {
      launch(stream, 2, 32, make_mistake, mistake, &where, static_cast<volatile int*>(&sink));
    });
    EXPECT_FALSE(failure.failed) << failure.message;
  }
}

TEST(Diagnosis, TheErrorStaysWithItsStream) {
  unsigned where = 0, out = 0;
  int sink = 0;
  Stream broken, sound;
  launch(broken, 1, 32, make_mistake, Mistake::trap, &where, static_cast<volatile int*>(&sink));
  launch(broken, 1, 32, all_is_well, &out);
  launch(sound, 1, 32, all_is_well, &out);
  sound.synchronize();
  EXPECT_EQ(out, 32u);
  for (int i = 0; i < 2; ++i) {
    try {
      broken.synchronize();
      FAIL() << "the error is gone";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kernel_fault);
    }
  }
  EXPECT_EQ(out, 32u) << "work behind an error must not run";
}

TEST(Diagnosis, CollectivesOutsideAKernelAreRefused) {
  EXPECT_THROW(__syncthreads(), Error);
  EXPECT_THROW(__ballot_sync(1, 1), Error);
}

// A fault of the host's own goes where it went before.
TEST(DiagnosisDeathTest, HostFaultsAreNotTaken) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer reports faults";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        unsigned out = 0;
        Stream stream;
        launch(stream, 1, 1, all_is_well, &out);
        stream.synchronize();
        const volatile std::uintptr_t address = 16;
        *reinterpret_cast<volatile int*>(address) = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace holdfast::test

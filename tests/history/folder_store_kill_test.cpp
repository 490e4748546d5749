// Processes that write, replace and remove steps are killed at random moments. Whatever the next
// one finds is whole, and nothing that was reported durable is lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "history/folder_store.hpp"
#include "step_ledger.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/still_fork.hpp"

namespace holdfast {
namespace {

using history::Step;
using test::SavedStep;

constexpr Step kSteps = 5;
constexpr std::uint64_t kMost = 300'000;

// What a process says of each step before it begins, and when it is done. Blobs follow from ids.
struct Shared {
  std::uint64_t next_id;
  std::uint64_t sure[kSteps];       // the id that is durable; 0: none is there
  std::uint64_t attempted[kSteps];  // the id that is on its way
  std::uint64_t is_busy[kSteps];    // a call is on its way: to write `attempted`, or to remove
};

// Returns what is wrong with what it found.
std::string run(const std::string& path, volatile Shared* shared, std::uint64_t seed) {
  const auto store = history::open_folder_store(path);
  test::StepLedger ledger;
  for (Step step = 0; step < kSteps; ++step) {
    if (shared->sure[step] != 0) ledger.wrote(test::make_step(step, shared->sure[step], kMost));
    if (shared->is_busy[step] != 0) {
      ledger.begin_remove(step);
      const std::uint64_t id = shared->attempted[step];
      if (id != 0) ledger.begin_write(test::make_step(step, id, kMost));
    }
  }
  if (const std::string wrong = ledger.check(*store); !wrong.empty()) return wrong;
  for (Step step = 0; step < kSteps; ++step) {
    const auto found = store->find(step);
    shared->sure[step] = found ? found->saved_at_ns : 0;
    shared->is_busy[step] = 0;
  }
  std::mt19937_64 random(seed);
  for (;;) {
    const Step step = random() % kSteps;
    if (shared->sure[step] != 0) {
      shared->attempted[step] = 0;
      shared->is_busy[step] = 1;
      store->remove(step);
      shared->sure[step] = 0;
    } else {
      const std::uint64_t id = shared->next_id;
      shared->next_id = id + 1;
      const SavedStep saved = test::make_step(step, id, kMost);
      shared->attempted[step] = id;
      shared->is_busy[step] = 1;
      store->write(saved.info, saved.blob, {});
      shared->sure[step] = id;
    }
    shared->is_busy[step] = 0;
  }
}

class FolderStoreKillTest : public test::Scratch {};

TEST_F(FolderStoreKillTest, AKilledProcessLeavesStepsWholeOrAbsent) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  auto* const shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  *shared = {};
  shared->next_id = 1;
  unsigned busy = 0;
  const std::uint64_t kills = test::some_of(200, 20);
  for (std::uint64_t kill = 0; kill < kills || (busy <= kills / 10 && kill < 200); ++kill) {
    const std::uint64_t child_seed = random();
    const pid_t child = test::fork_when_still();
    if (child == 0) {
      try {
        std::cerr << run(path("history"), shared, child_seed) << "\n";
      } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
      }
      std::_Exit(1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 25000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "after " << kill << " kills";
    for (const std::uint64_t is_busy : shared->is_busy) busy += is_busy != 0 ? 1 : 0;
  }
  std::cout << shared->next_id << " steps, and " << busy << " kills within a call\n";
  EXPECT_GT(busy, kills / 10);
  ::munmap(shared, sizeof(Shared));
}

}  // namespace
}  // namespace holdfast

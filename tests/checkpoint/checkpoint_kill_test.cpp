// A process is killed again and again while it saves; what is restored is always one save, whole,
// and none that was acknowledged is lost.
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

#include "holdfast/checkpoint.hpp"
#include "support/scratch.hpp"
#include "support/still_fork.hpp"

namespace holdfast {
namespace {

constexpr std::size_t kWords = 40000;

struct Shared {
  std::uint64_t started;       // tag of the last save that was begun
  std::uint64_t acknowledged;  // of the last that is durable
};

class CheckpointKillTest : public test::Scratch, public ::testing::WithParamInterface<bool> {};

// Saves buffers that are full of their tag. Returns what is wrong with what it found.
std::string run(const std::string& path, volatile Shared* shared, bool asynchronous) {
  Region region = Region::open(path);
  Stream stream;
  DeviceBuffer<std::uint32_t> words(kWords);
  Checkpoint checkpoint(region, "c");
  checkpoint.add("g", "words", words.data(), kWords);
  const std::uint64_t found = checkpoint.restore(stream, "g").value_or(0);
  if (found < shared->acknowledged) return "an acknowledged save is lost";
  if (found > shared->started) return "a save that never was";
  if (found > 0) {
    std::vector<std::uint32_t> values(kWords);
    copy_async(stream, values.data(), words.data(), kWords * 4);
    stream.synchronize();
    for (const std::uint32_t value : values) {
      if (value != found * 0x01010101u) return "a save that is torn";
    }
  }
  for (std::uint64_t tag = found + 1; tag < 120; ++tag) {
    fill_async(stream, words.data(), static_cast<int>(tag), kWords * 4);
    shared->started = tag;
    if (asynchronous) {
      checkpoint.save_async(stream, "g", tag).wait();
    } else {
      checkpoint.save(stream, "g", tag);
      stream.synchronize();
    }
    shared->acknowledged = tag;
  }
  region.abandon();
  return {};
}

TEST_P(CheckpointKillTest, ASaveIsWholeOrAbsent) {
  const char* const given = std::getenv("HOLDFAST_TEST_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  std::cout << "HOLDFAST_TEST_SEED=" << seed << "\n";
  std::mt19937_64 random(seed);
  auto* const shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  unsigned landed = 0;
  for (unsigned attempt = 0; landed < 60; ++attempt) {
    ASSERT_LT(attempt, 2000u) << "no kill falls into a run";
    if (attempt == 0 || shared->acknowledged == 119) {
      if (attempt != 0) Region::destroy(path());
      Region::create(path(), options(4u << 20)).abandon();
      *shared = {};
    }
    const pid_t child = test::fork_when_still();
    if (child == 0) {
      try {
        const std::string wrong = run(path(), shared, GetParam());
        if (!wrong.empty()) std::cerr << wrong << "\n";
        std::_Exit(wrong.empty() ? 0 : 1);
      } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        std::_Exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "after " << landed << " kills";
    landed += WIFSIGNALED(status);
  }
  ::munmap(shared, sizeof(Shared));
}

INSTANTIATE_TEST_SUITE_P(Saves, CheckpointKillTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "aside" : "direct"; });

}  // namespace
}  // namespace holdfast

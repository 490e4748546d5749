#include "workload_checks.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "support/scratch.hpp"
#include "support/share.hpp"
#include "support/still_fork.hpp"

namespace workload_checks {
namespace {

using workload::Backing;
using workload::BackingOptions;
using workload::Info;
using workload::Settings;
using workload::Workload;

// A workload, and where it keeps its data.
struct Instance {
  Instance(const Info& info, const Settings& settings, const std::string& path) {
    workload = info.make(settings);
    BackingOptions options;
    options.mode = settings.mode;
    options.path = path;
    options.capacity = workload->medium_bytes();
    options.cpu_threads = 2;
    backing = std::make_unique<Backing>(options);
    workload->prepare(*backing);
  }
  ~Instance() { workload.reset(); }
  Run finish() { return {workload->digest(), workload->verify(), workload->steps()}; }
  std::unique_ptr<Backing> backing;
  std::unique_ptr<Workload> workload;
};

// Runs to the end in this process and tells the parent how it ended.
[[noreturn]] void be_killed(const Info& info, const Settings& settings, const std::string& path,
                            int ready, int result) {
  try {
    Instance instance(info, settings, path);
    char go = 1;
    if (::write(ready, &go, 1) != 1) std::_Exit(3);
    for (std::uint64_t step = instance.workload->resume(); step < instance.workload->steps();
         ++step) {
      instance.workload->step(step);
      instance.workload->note_step(step);
    }
    const Run run = instance.finish();
    if (!run.wrong.empty()) {
      std::cerr << "after a resume: " << run.wrong << "\n";
      std::_Exit(4);
    }
    if (::write(result, &run.digest, sizeof(run.digest)) != sizeof(run.digest)) std::_Exit(3);
  } catch (const std::exception& error) {
    std::cerr << "in a resumed run: " << error.what() << "\n";
    std::_Exit(5);
  }
  std::_Exit(0);
}

struct Child {
  pid_t pid = 0;
  int ready = -1;
  int result = -1;
};

Child start(const Info& info, const Settings& settings, const std::string& path) {
  int ready[2], result[2];
  if (::pipe(ready) != 0 || ::pipe(result) != 0) throw std::runtime_error("pipe failed");
  Child child{holdfast::test::fork_when_still(), ready[0], result[0]};
  if (child.pid == 0) be_killed(info, settings, path, ready[1], result[1]);
  ::close(ready[1]);
  ::close(result[1]);
  return child;
}

// Waits for a child that nobody kills; returns its digest.
workload::Digest finish(const Child& child) {
  workload::Digest digest;
  EXPECT_EQ(::read(child.result, &digest, sizeof(digest)), static_cast<ssize_t>(sizeof(digest)))
      << "a run failed by itself";
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  ::close(child.ready);
  ::close(child.result);
  return digest;
}

}  // namespace

Run run_whole(const Info& info, const Settings& settings) {
  const holdfast::test::ScratchFolders scratch;
  const std::string path = scratch.path("whole");
  Run run;
  {
    Instance instance(info, settings, path);
    EXPECT_EQ(instance.workload->resume(), 0u);
    for (std::uint64_t step = 0; step < instance.workload->steps(); ++step) {
      instance.workload->step(step);
      instance.workload->note_step(step);
    }
    run = instance.finish();
  }
  Backing::destroy(path);
  return run;
}

Run run_step_by_step(const Info& info, const Settings& settings) {
  const holdfast::test::ScratchFolders scratch;
  const std::string path = scratch.path("steps");
  Run run;
  for (std::uint64_t expected = 0;; ++expected) {
    Instance instance(info, settings, path);
    const std::uint64_t step = instance.workload->resume();
    EXPECT_EQ(step, expected) << "the step that is still to be done";
    if (step != expected) break;
    if (step < instance.workload->steps()) {
      instance.workload->step(step);
      instance.workload->note_step(step);
      continue;
    }
    run = instance.finish();
    break;
  }
  Backing::destroy(path);
  return run;
}

holdfast::Errc error_with(const Info& info, const std::map<std::string, std::string>& options,
                          const std::vector<std::string>& words) {
  Settings settings;
  settings.options = options;
  return holdfast::test::error_of([&] { info.make(settings); }, words);
}

void expect_refused(const Info& info, const std::map<std::string, std::string>& options,
                    const std::vector<std::string>& words) {
  EXPECT_EQ(error_with(info, options, words), holdfast::Errc::invalid_argument)
      << options.begin()->first << "=" << options.begin()->second;
}

std::string mode_name(const ::testing::TestParamInfo<workload::Mode>& mode) {
  std::string name = workload::to_string(mode.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

void expect_kills_survived(const Info& info, const Settings& settings, unsigned kills,
                           std::uint64_t seed) {
  std::cout << "kills: seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const holdfast::test::ScratchFolders scratch;
  const std::string path = scratch.path("kills");
  // In a child, too: threads that OpenMP starts here would be missing in every later child.
  const auto begun = std::chrono::steady_clock::now();
  const workload::Digest whole = finish(start(info, settings, path));
  double run_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
  Backing::destroy(path);
  const std::uint64_t enough = holdfast::test::some_of(kills, 2);
  unsigned landed = 0;
  for (unsigned attempt = 0; landed < enough; ++attempt) {
    ASSERT_LT(attempt, 200 * enough + 200) << "no kill lands in a running step";
    const Child child = start(info, settings, path);
    const auto after = std::chrono::microseconds(std::uniform_int_distribution<std::uint64_t>(
        0, static_cast<std::uint64_t>(run_us))(random));
    if (attempt % 8 == 7) {  // wherever it is: in the set-up, for most
      std::this_thread::sleep_for(after);
      ::kill(child.pid, SIGKILL);
    }
    char go = 0;
    const bool runs = ::read(child.ready, &go, 1) == 1;
    if (runs) {
      std::this_thread::sleep_for(after);
      ::kill(child.pid, SIGKILL);
    }
    workload::Digest digest;
    const bool ended = ::read(child.result, &digest, sizeof(digest)) == sizeof(digest);
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    ::close(child.ready);
    ::close(child.result);
    if (ended) {
      EXPECT_EQ(digest.text(), whole.text()) << "after " << landed << " kills, seed " << seed;
      Backing::destroy(path);
      run_us = std::max(50.0, run_us * 0.8);  // kills come too late: aim earlier
      continue;
    }
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "a resumed run failed by itself, seed " << seed;
    landed += runs;
  }
  EXPECT_EQ(finish(start(info, settings, path)).text(), whole.text())
      << "after " << landed << " kills, seed " << seed;
  Backing::destroy(path);
}

}  // namespace workload_checks

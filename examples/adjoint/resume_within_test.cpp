// Killed within a shot, in either pass: what is there of it is gone on from, and the image is that
// of a run that nobody killed. Also where the folder has lost some of it, or has it damaged.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <sstream>
#include <thread>

#include "adjoint/job.hpp"
#include "adjoint/running.hpp"
#include "holdfast/history.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace adjoint {
namespace {

using holdfast::Errc;
using holdfast::test::error_of;
using holdfast::test::read_file;
namespace fs = std::filesystem;

// What a run printed.
struct Told {
  std::vector<std::string> lines;
  int status = 0;
  std::uint64_t count(const std::string& words) const {
    return static_cast<std::uint64_t>(std::count_if(
        lines.begin(), lines.end(),
        [&](const std::string& line) { return line.find(words) != std::string::npos; }));
  }
};

class AdjointResumeWithin : public holdfast::test::Scratch {
 protected:
  static constexpr std::uint64_t kSteps = 200, kPoints = 20;

  std::mt19937_64 random_{holdfast::test::test_seed()};

  Words words(const std::string& image, const Words& more) const {
    Words result{"--nx",    "40", "--nz",    "24", "--steps", std::to_string(kSteps),
                 "--shots", "1",  "--image", image};
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  // Caches of so few MiB that the folder is not far behind them.
  Words resumable(const std::string& name, const Words& more, const Words& tiers = {}) const {
    const Words folder{"--host-cache", "1", "--folder", path(name + ".steps")};
    Words result{"--store",     "history",
                 "--gpu-cache", "1",
                 "--region",    path(name + ".region"),
                 "--points",    std::to_string(kPoints),
                 "--verbose"};
    const Words& given = tiers.empty() ? folder : tiers;
    result.insert(result.end(), given.begin(), given.end());
    result.insert(result.end(), more.begin(), more.end());
    return words(path(name + ".pgm"), result);
  }
  std::vector<char> undisturbed(const Words& more) {
    const Told told = run(words(path("whole.pgm"), more), kAll);
    EXPECT_EQ(told.status, 0);
    return read_file(path("whole.pgm"));
  }

  static constexpr std::uint64_t kAll = ~std::uint64_t{0};
  // Killed some time behind so many lines.
  Told run(const Words& with, std::uint64_t lines) {
    Running running(with);
    Told told;
    while (told.lines.size() < lines) {
      std::string line = running.line();
      if (line.empty()) break;
      told.lines.push_back(std::move(line));
    }
    if (told.lines.size() == lines) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 20000));
      told.status = running.kill();
    } else {
      told.status = running.wait();
    }
    return told;
  }
  // Kills a run at any of its points, so many times and until it went on in both passes, and then
  // lets it come to its end.
  void kill_and_end(const Words& with, unsigned kills, const std::string& image,
                    const std::vector<char>& whole) {
    std::uint64_t forward = 0, backward = 0, killed = 0;
    const auto note = [&](const Told& told) {
      forward += told.count("goes on from the forward");
      backward += told.count("goes on from the backward");
    };
    for (unsigned i = 0;
         i < holdfast::test::some_of(kills, 2) || ((forward == 0 || backward == 0) && i < 100);
         ++i) {
      const std::uint64_t a_pass = kSteps / kPoints;
      const Told told = run(with, random_() % a_pass + (i % 2 == 0 ? 0 : a_pass));
      ASSERT_TRUE(told.status == 0 || told.status == 128 + SIGKILL) << told.status;
      note(told);
      killed += told.status != 0;
      if (told.status != 0) continue;
      EXPECT_EQ(read_file(image), whole) << "after " << killed << " kills";
      forget(with);
    }
    const Told last = run(with, kAll);
    note(last);
    ASSERT_EQ(last.status, 0);
    EXPECT_EQ(read_file(image), whole) << "after " << killed << " kills";
    EXPECT_GT(forward, 0u);
    EXPECT_GT(backward, 0u);
    std::printf("%llu kills; %llu went on in the forward pass, %llu in the backward pass\n",
                static_cast<unsigned long long>(killed), static_cast<unsigned long long>(forward),
                static_cast<unsigned long long>(backward));
  }
  // The run is done: the next one is another, in the same folder.
  static void forget(const Words& with) {
    fs::remove(*(std::find(with.begin(), with.end(), "--region") + 1));
  }

  std::vector<fs::path> step_files(const std::string& name) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path(name + ".steps"))) {
      if (entry.path().filename().string().rfind("step-0922", 0) == 0) continue;  // whose they are
      if (entry.path().filename().string().rfind("step-", 0) == 0) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  // A run that is killed in the backward pass, with some of it in the folder.
  void kill_in_the_backward_pass(const Words& with, const std::string& name) {
    for (int attempt = 0; attempt < 50; ++attempt) {
      const Told told = run(with, kSteps / kPoints + 2 + random_() % 4);
      ASSERT_EQ(told.status, 128 + SIGKILL);
      if (step_files(name).size() > 20) return;
    }
    FAIL() << "nothing is in the folder";
  }
};

TEST_F(AdjointResumeWithin, KillsInBothPassesGiveTheSameImage) {
  kill_and_end(resumable("a", {}), 16, path("a.pgm"), undisturbed({}));
}

TEST_F(AdjointResumeWithin, SoWithCompressionAndAnInterval) {
  const Words form{"--compress", "--every", "2", "--steps", "400"};
  kill_and_end(resumable("a", form), 12, path("a.pgm"), undisturbed(form));
}

// No folder: the host's cache alone outlives the process, and in a region each step takes 64 KiB.
TEST_F(AdjointResumeWithin, SoFromAHostRegion) {
  kill_and_end(resumable("a", {}, {"--host-cache", "24", "--host-region", path("a.cache")}), 12,
               path("a.pgm"), undisturbed({}));
}

TEST_F(AdjointResumeWithin, StepsThatAreLostAreComputedAgain) {
  const std::vector<char> whole = undisturbed({});
  for (std::uint64_t round = 0; round < holdfast::test::some_of(4); ++round) {
    const std::string name = "lost" + std::to_string(round);
    const Words with = resumable(name, {});
    kill_in_the_backward_pass(with, name);
    for (const fs::path& file : step_files(name)) {
      if (random_() % 10 == 0) fs::remove(file);
    }
    ASSERT_EQ(run(with, kAll).status, 0);
    EXPECT_EQ(read_file(path(name + ".pgm")), whole) << name;
  }
}

// A damaged wavefield is found by the backward pass, which says so: the next run computes it again.
TEST_F(AdjointResumeWithin, DamagedStepsAreComputedAgain) {
  const std::vector<char> whole = undisturbed({});
  for (std::uint64_t round = 0; round < holdfast::test::some_of(3); ++round) {
    const std::string name = "damaged" + std::to_string(round);
    const Words with = resumable(name, {});
    kill_in_the_backward_pass(with, name);
    std::uint64_t damaged = 0;
    for (const fs::path& file : step_files(name)) {
      if (random_() % 30 != 0) continue;
      std::vector<char> bytes = read_file(file.string());
      bytes[4096 + random_() % (bytes.size() - 4096)] ^= 1;
      holdfast::test::write_file(file.string(), bytes);
      ++damaged;
    }
    int status = -1;
    for (std::uint64_t runs = 0; runs <= damaged && status != 0; ++runs) {
      status = run(with, kAll).status;
      ASSERT_TRUE(status == 0 || status == 2) << status;
    }
    ASSERT_EQ(status, 0) << damaged << " damaged files";
    EXPECT_EQ(read_file(path(name + ".pgm")), whole) << name;
  }
}

// The same folder, and another region: its steps are of a run that this one is not.
TEST_F(AdjointResumeWithin, StepsOfAnotherRunAreNotUsed) {
  const Words with = resumable("a", {"--shots", "2"});
  kill_in_the_backward_pass(with, "a");
  fs::remove(path("a.region"));
  const Told told = run(resumable("a", {}), kAll);
  EXPECT_EQ(told.status, 0);
  EXPECT_EQ(told.count("goes on"), 0u);
  EXPECT_EQ(read_file(path("a.pgm")), undisturbed({}));
}

TEST_F(AdjointResumeWithin, AFolderOfAnotherProgramIsRefusedAndStays) {
  std::vector<char> numbers(1000, 7);
  {
    auto history = holdfast::History::open({.disk = path("theirs")});
    holdfast::Stream stream;
    history.protect("numbers", numbers.data(), numbers.size(), holdfast::BufferMemory::host);
    history.save(3, stream).wait();
  }
  Options options;
  options.nx = options.nz = 20;
  options.steps = 10;
  options.store = "history";
  options.folder = path("theirs");
  std::ostringstream out;
  for (const bool resumable : {false, true}) {
    options.region = resumable ? path("region") : "";
    EXPECT_EQ(error_of([&] { adjoint::run(options, out); }, {"step 3", "--folder"}),
              Errc::conflict);
  }
  auto history = holdfast::History::open({.disk = path("theirs")});
  EXPECT_EQ(history.steps(), std::vector<std::uint64_t>{3});
}

}  // namespace
}  // namespace adjoint

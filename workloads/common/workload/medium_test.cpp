// Workloads on a slower medium: the same results, in the time that the medium takes.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "black_scholes/black_scholes.hpp"
#include "gpkvs/gpkvs_workload.hpp"
#include "prefix_sum/prefix_sum_workload.hpp"
#include "support/scratch.hpp"
#include "workload/step.hpp"

namespace {

using holdfast::testing::Access;
using holdfast::testing::MediumModel;
using workload::Backing;
using workload::BackingOptions;
using workload::Info;
using workload::Mode;
using workload::Settings;
using workload::StepCost;

struct Case {
  std::function<Info()> info;
  Mode mode;
};

class OnAMedium : public holdfast::test::Scratch, public ::testing::WithParamInterface<Case> {
 protected:
  struct Outcome {
    std::vector<StepCost> costs;
    workload::Digest digest;
  };

  Outcome run(const std::string& medium) const {
    const Info info = GetParam().info();
    Settings settings;
    settings.mode = GetParam().mode;
    settings.steps = 3;
    const auto work = info.make(settings);
    Outcome outcome;
    {
      Backing backing(options(medium, work->medium_bytes()));
      work->prepare(backing);
      for (std::uint64_t step = work->resume(); step < work->steps(); ++step) {
        outcome.costs.push_back(workload::run_step(*work, backing, info.kernel_access, step));
      }
      outcome.digest = work->digest();
      EXPECT_EQ(work->verify(), "");
    }
    Backing::destroy(path());
    return outcome;
  }

  BackingOptions options(const std::string& medium, std::uint64_t capacity) const {
    BackingOptions result;
    result.mode = GetParam().mode;
    result.path = path();
    result.capacity = capacity;
    result.cpu_threads = 2;
    result.medium = MediumModel::parse(medium);
    return result;
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Mode mode : workload::all_modes()) {
    all.push_back({gpkvs::set_info, mode});
    all.push_back({black_scholes::info, mode});
    all.push_back({prefix_sum::info, mode});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Each, OnAMedium, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.info().name + "_" + workload::to_string(info.param.mode);
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

TEST_P(OnAMedium, EveryStepTakesAsLongAsItsBytes) {
  const Outcome fast = run("dram");
  const Outcome slow = run("limit=2MB/s");
  EXPECT_EQ(slow.digest, fast.digest);
  ASSERT_EQ(slow.costs.size(), 3u);
  ASSERT_EQ(fast.costs.size(), 3u);
  for (std::size_t step = 0; step < 3; ++step) {
    const StepCost& cost = slow.costs[step];
    EXPECT_GT(cost.bytes, 1000u);
    EXPECT_EQ(cost.bytes, fast.costs[step].bytes);
    EXPECT_GE(cost.seconds, static_cast<double>(cost.bytes) / 2e6);
    EXPECT_LE(cost.medium_seconds, cost.seconds);
    EXPECT_EQ(fast.costs[step].medium_seconds, 0);
  }
}

TEST_P(OnAMedium, ARestoreTakesAsLongAsItsBytes) {
  const Info info = GetParam().info();
  if (info.kind != Info::Class::checkpointing) GTEST_SKIP() << "kernels read what they recover";
  Settings settings;
  settings.mode = GetParam().mode;
  std::uint64_t saved = 0;
  {
    const auto work = info.make(settings);
    Backing backing(options("dram", work->medium_bytes()));
    work->prepare(backing);
    saved =
        workload::run_step(*work, backing, info.kernel_access, 0).bytes - 100;  // but for a slot
  }
  const auto work = info.make(settings);
  Backing backing(options("limit=2MB/s", work->medium_bytes()));
  work->prepare(backing);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(work->resume(), 1u);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took.count(), static_cast<double>(saved) / 2e6);
}

// Computes for a while, and says that its kernels stored so many bytes.
class Computing : public workload::Workload {
 public:
  Computing(std::chrono::milliseconds time, std::uint64_t bytes, std::uint64_t streamed,
            std::uint64_t unchanged)
      : time_(time), bytes_(bytes), streamed_(streamed), unchanged_(unchanged) {}
  std::string input() const override { return "none"; }
  std::uint64_t steps() const override { return 1; }
  std::uint64_t medium_bytes() const override { return 1 << 20; }
  void prepare(Backing&) override {}
  std::uint64_t resume() override { return 0; }
  void step(std::uint64_t) override {
    std::this_thread::sleep_for(time_);
    ++done_;
  }
  workload::Digest digest() override { return {}; }
  std::string verify() override { return {}; }
  std::uint64_t kernel_bytes() const override { return done_ * bytes_; }
  std::uint64_t streamed_bytes() const override { return done_ * streamed_; }
  std::uint64_t unchanged_bytes() const override { return done_ * unchanged_; }

 private:
  std::chrono::milliseconds time_;
  std::uint64_t bytes_;
  std::uint64_t streamed_;
  std::uint64_t unchanged_;
  std::uint64_t done_ = 0;
};

class KernelStores : public holdfast::test::Scratch {
 protected:
  StepCost step(const char* medium, std::chrono::milliseconds time, std::uint64_t bytes,
                Access access, std::uint64_t streamed = 0, std::uint64_t unchanged = 0) const {
    BackingOptions options;
    options.path = path();
    options.capacity = 1 << 20;
    options.cpu_threads = 1;
    options.medium = MediumModel::parse(medium);
    Computing work(time, bytes, streamed, unchanged);
    StepCost cost;
    {
      Backing backing(options);
      cost = workload::run_step(work, backing, access, 0);
    }
    Backing::destroy(path());
    return cost;
  }
};

using std::chrono::milliseconds;

TEST_F(KernelStores, ReachTheMediumWhileTheStepComputes) {
  const StepCost hidden = step("limit=100MB/s", milliseconds(40), 2'000'000, Access::aligned);
  EXPECT_EQ(hidden.bytes, 2'000'000u);
  EXPECT_EQ(hidden.medium_seconds, 0);
  EXPECT_GE(hidden.seconds, 0.04);
  // 300 ms of the medium, of which 200 are hidden; a sum would wait for 300.
  const StepCost longer = step("limit=100MB/s", milliseconds(200), 30'000'000, Access::aligned);
  EXPECT_GE(longer.seconds, 0.3);
  EXPECT_LT(longer.medium_seconds, 0.25);
  EXPECT_GE(longer.persist_seconds, longer.medium_seconds);
}

TEST_F(KernelStores, AreSlowerWhereTheyAreScattered) {
  constexpr std::uint64_t kBytes = 7'200'000;
  EXPECT_GE(step("optane", milliseconds(0), kBytes, Access::random).seconds, 0.01);
  EXPECT_GE(step("optane", milliseconds(0), kBytes, Access::unaligned).seconds, kBytes / 3.13e9);
  EXPECT_GE(step("optane", milliseconds(0), kBytes, Access::aligned).seconds, kBytes / 12.5e9);
}

// 720 MB: a second if they are scattered, 58 ms as a stream.
TEST_F(KernelStores, AreStreamsWhereTheWorkloadSaysSo) {
  constexpr std::uint64_t kBytes = 720'000'000;
  const StepCost streamed = step("optane", milliseconds(0), kBytes, Access::random, kBytes);
  EXPECT_EQ(streamed.bytes, kBytes);
  EXPECT_EQ(streamed.streamed_bytes, kBytes);
  EXPECT_GE(streamed.seconds, kBytes / 12.5e9);
  EXPECT_LT(streamed.medium_seconds, 0.9);
  const StepCost half = step("optane", milliseconds(0), kBytes / 10, Access::random, kBytes / 20);
  EXPECT_GE(half.seconds, kBytes / 20 / 0.72e9 + kBytes / 20 / 12.5e9);
}

// The rest of the lines that are stored whole: a second of the medium, if they counted.
TEST_F(KernelStores, OfWhatIsThereAlreadyCostAMediumNothing) {
  constexpr std::uint64_t kBytes = 720'000'000;
  const StepCost whole = step("optane", milliseconds(0), kBytes, Access::random, 0, kBytes);
  EXPECT_EQ(whole.bytes, kBytes);
  EXPECT_EQ(whole.unchanged_bytes, kBytes);
  EXPECT_LT(whole.medium_seconds, 0.9);
}

TEST(FlushedBytes, AreThoseOfAllThreadsAlsoOfThoseThatEnded) {
  const std::vector<unsigned char> bytes(1000);
  const std::uint64_t before = Backing::flushed_bytes();
  Backing::flush(bytes.data(), 10);
  for (std::uint64_t thread = 0; thread < 100; ++thread) {
    std::thread([&] {
      for (int i = 0; i < 3; ++i) Backing::flush(bytes.data(), thread);
    }).join();
  }
  EXPECT_EQ(Backing::flushed_bytes() - before, 10u + 3 * 99 * 100 / 2);
}

TEST(KernelAccess, IsWhatTheWorkloadsStoresAre) {
  EXPECT_EQ(gpkvs::set_info().kernel_access, Access::random);
  EXPECT_EQ(prefix_sum::info().kernel_access, Access::aligned);
}

}  // namespace

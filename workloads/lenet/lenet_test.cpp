// The workload in every mode: whole, step by step, killed; its options and its input.
#include "lenet/lenet.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "support/scratch.hpp"
#include "support/share.hpp"
#include "workload/inputs.hpp"
#include "workload_checks.hpp"

namespace lenet {
namespace {

using holdfast::Errc;
using holdfast::test::error_of;
using workload::Mode;
using workload::Settings;
using workload::Size;

Settings small(Mode mode) {
  Settings settings;
  settings.mode = mode;
  return settings;
}

class EveryMode : public ::testing::TestWithParam<Mode> {};

INSTANTIATE_TEST_SUITE_P(Modes, EveryMode, ::testing::ValuesIn(workload::all_modes()),
                         [](const auto& info) {
                           std::string name = workload::to_string(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Kernels give the same bits in all modes; host threads round elsewhere.
TEST_P(EveryMode, VerifiesAndEndsWithTheSameBits) {
  const workload_checks::Run run = workload_checks::run_whole(info(), small(GetParam()));
  EXPECT_EQ(run.wrong, "");
  EXPECT_EQ(run.steps, 4u);
  if (GetParam() != Mode::cpu) {
    EXPECT_EQ(run.digest, workload_checks::run_whole(info(), small(Mode::gpm)).digest);
  }
}

TEST_P(EveryMode, ResumesStepByStep) {
  const workload_checks::Run whole = workload_checks::run_whole(info(), small(GetParam()));
  const workload_checks::Run steps = workload_checks::run_step_by_step(info(), small(GetParam()));
  EXPECT_EQ(steps.wrong, "");
  EXPECT_EQ(steps.digest, whole.digest);
}

TEST(LeNetCheckpoints, AreAlikeWhateverCopiesThem) {
  const auto expected = workload_checks::run_whole(info(), small(Mode::gpm));
  for (const Mode mode : {Mode::gpm, Mode::ndp}) {
    Settings settings = small(mode);
    for (const char* const by : {"kernels", "engine", "automatic"}) {
      settings.options["checkpoint"] = by;
      const auto run = workload_checks::run_step_by_step(info(), settings);
      EXPECT_EQ(run.wrong, "") << to_string(mode) << " by " << by;
      EXPECT_EQ(run.digest, expected.digest) << to_string(mode) << " by " << by;
      EXPECT_EQ(info().make(settings)->facts().at("checkpoint"),
                mode == Mode::ndp && by == std::string("automatic") ? "kernels" : by);
    }
  }
}

TEST_P(EveryMode, SurvivesKills) {
  if (std::string(holdfast::backend::name()) != "cpu") GTEST_SKIP() << "forks";
  Settings settings = small(GetParam());
  settings.options["batch"] = "4";
  settings.options["channels1"] = "2";
  settings.options["channels2"] = "4";
  settings.options["hidden"] = "32";
  settings.options["passes"] = "1";
  settings.steps = 20;
  workload_checks::expect_kills_survived(info(), settings, 5, holdfast::test::test_seed());
}

class LenetTest : public holdfast::test::Scratch {
 protected:
  // Runs all steps in mode gpm and hands the workload to `look`.
  template <class Look>
  void run(const Settings& settings, Look&& look) {
    LeNet lenet(settings);
    workload::BackingOptions options;
    options.mode = settings.mode;
    options.path = path();
    options.capacity = lenet.medium_bytes();
    options.cpu_threads = 1;  // barriers would wait for a thread that has no core
    {
      workload::Backing backing(options);
      lenet.prepare(backing);
      for (std::uint64_t step = lenet.resume(); step < lenet.steps(); ++step) lenet.step(step);
      look(lenet);
    }
    workload::Backing::destroy(options.path);
  }
};

// What an epoch takes, and that a pass's digits follow from its number alone.
TEST_F(LenetTest, AnEpochTakesEveryDigitOnceButThoseHeldBack) {
  Settings settings = small(Mode::gpm);
  settings.options["digits"] = "50";
  LeNet lenet(settings);  // batches of 8 from 40
  std::multiset<std::uint32_t> first, second;
  std::vector<std::vector<std::uint32_t>> batches;
  for (std::uint64_t pass = 0; pass < 10; ++pass) {
    batches.push_back(lenet.batch(pass));
    (pass < 5 ? first : second).insert(batches.back().begin(), batches.back().end());
  }
  std::multiset<std::uint32_t> expected;
  for (std::uint32_t i = 0; i < 50; ++i) {
    if (i % 5 != 4) expected.insert(i);
  }
  EXPECT_EQ(first, expected);
  EXPECT_EQ(second, expected);
  EXPECT_NE(batches[0], batches[5]);
  for (const std::uint64_t pass : {9, 0, 4, 5, 1}) EXPECT_EQ(lenet.batch(pass), batches[pass]);
}

// A wrong bit of the durable weights is seen.
TEST_F(LenetTest, VerifySeesWeightsThatAreNotTheTrainings) {
  Settings settings = small(Mode::gpm);
  settings.steps = 1;
  run(settings, [&](LeNet& lenet) {
    EXPECT_EQ(lenet.verify(), "");
    const workload::Digest digest = lenet.digest();
    lenet.step(0);  // once more, from the weights that it left
    EXPECT_NE(lenet.verify(), "");
    EXPECT_NE(lenet.digest(), digest);
  });
}

TEST_F(LenetTest, VerifyWantsTheLastStep) {
  Settings settings = small(Mode::gpm);
  LeNet lenet(settings);
  workload::BackingOptions options;
  options.path = path();
  options.capacity = lenet.medium_bytes();
  workload::Backing backing(options);
  lenet.prepare(backing);
  EXPECT_EQ(lenet.resume(), 0u);
  EXPECT_NE(lenet.verify().find("step 0, not 4"), std::string::npos);
  lenet.step(0);
  EXPECT_EQ(lenet.resume(), 1u);
  EXPECT_NE(lenet.verify().find("step 1, not 4"), std::string::npos);
}

TEST_F(LenetTest, LearnsDigitsThatAreDrawn) {
  Settings settings = small(Mode::cpu);
  settings.steps = 30;
  settings.options = {{"digits", "1000"}, {"batch", "16"}, {"passes", "5"}};
  run(settings, [&](LeNet& lenet) {
    EXPECT_GE(lenet.accuracy(), 0.95);
    EXPECT_EQ(lenet.input().substr(0, 9), "generated");
  });
}

TEST_F(LenetTest, BadOptionsAreRefused) {
  const auto refused = [](const std::string& name, const std::string& value,
                          const std::vector<std::string>& said) {
    Settings settings;
    settings.options[name] = value;
    EXPECT_EQ(error_of([&] { LeNet lenet(settings); }, said), Errc::invalid_argument);
  };
  refused("batch", "0", {"batch=0", "1 to 4096"});
  refused("batch", "161", {"161", "160", "smaller batch"});
  refused("batch", "many", {"batch=many"});
  refused("passes", "0", {"passes=0"});
  refused("rate", "-1", {"rate=-1"});
  refused("channels1", "65", {"channels1=65", "64"});
  refused("channels2", "129", {"128"});
  refused("hidden", "30", {"hidden=30", "multiple of 4"});
  refused("digits", "9", {"digits=9", "10"});
  refused("images", "/nowhere", {"images and labels", "belong together"});
  refused("labels", "/nowhere", {"images and labels", "belong together"});
  Settings settings;
  settings.steps = ~std::uint64_t{0};
  EXPECT_EQ(error_of([&] { LeNet lenet(settings); }, {"at most"}), Errc::invalid_argument);
}

TEST_F(LenetTest, ChoiceOfKernels) {
  const auto with = [](const char* kernels, Mode mode = Mode::gpm) {
    Settings settings = small(mode);
    settings.options["kernels"] = kernels;
    return settings;
  };
  EXPECT_EQ(error_of([&] { LeNet lenet(with("mine")); }, {"kernels=mine", "own", "cudnn"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { LeNet lenet(with("cudnn", Mode::cpu)); }, {"kernels=cudnn", "mode cpu"}),
            Errc::invalid_argument);
  run(with("own"), [](LeNet& lenet) { EXPECT_EQ(lenet.facts().at("kernels"), "own"); });
  run(with("own", Mode::cpu),
      [](LeNet& lenet) { EXPECT_EQ(lenet.facts().at("kernels"), "host threads"); });
  run(small(Mode::gpm), [](LeNet& lenet) { EXPECT_EQ(lenet.facts().at("kernels"), "own"); });
  std::string why;
  if (!cudnn_usable(&why)) {
    EXPECT_EQ(error_of([&] { LeNet lenet(with("cudnn")); }, {"kernels=cudnn", why}),
              Errc::unsupported);
  }
}

// In every mode: a training by other kernels than this run's is not gone on with.
TEST_P(EveryMode, GoesOnWithTheSameKernelsOnly) {
  holdfast::test::ScratchFolders folder;
  LeNet lenet(small(GetParam()));
  workload::BackingOptions options;
  options.mode = GetParam();
  options.path = folder.path();
  options.capacity = lenet.medium_bytes();
  options.cpu_threads = 1;
  const auto reopen = [&](std::uint32_t kept, const auto& look) {
    LeNet next(small(GetParam()));
    workload::Backing backing(options);
    backing.fill(backing.array<std::uint32_t>("kernels", 1), {kept});
    next.prepare(backing);
    look(next);
  };
  // Nothing is saved: what a killed set-up left does not count.
  reopen(1, [](LeNet& next) {
    EXPECT_EQ(next.resume(), 0u);
    next.step(0);
    EXPECT_EQ(next.resume(), 1u);
  });
  reopen(1, [](LeNet& next) {
    EXPECT_EQ(error_of([&] { next.resume(); }, {"kernels=cudnn", "kernels=own"}),
              Errc::invalid_argument);
  });
  reopen(0, [](LeNet& next) { EXPECT_EQ(next.resume(), 1u); });
  workload::Backing::destroy(options.path);
}

class ByCudnn : public EveryMode {
 protected:
  void SetUp() override {
    std::string why;
    if (!cudnn_usable(&why)) GTEST_SKIP() << why;
    settings_.mode = GetParam();
    settings_.options["kernels"] = "cudnn";
  }
  Settings settings_;
};

INSTANTIATE_TEST_SUITE_P(Modes, ByCudnn,
                         ::testing::Values(Mode::gpm, Mode::cap_fs, Mode::cap_mm, Mode::gpufs));

TEST_P(ByCudnn, VerifiesResumesAndEndsWithTheSameBits) {
  const workload_checks::Run whole = workload_checks::run_whole(info(), settings_);
  EXPECT_EQ(whole.wrong, "");
  const workload_checks::Run steps = workload_checks::run_step_by_step(info(), settings_);
  EXPECT_EQ(steps.wrong, "");
  EXPECT_EQ(steps.digest, whole.digest);
  settings_.mode = Mode::gpm;
  EXPECT_EQ(whole.digest, workload_checks::run_whole(info(), settings_).digest);
}

TEST_F(LenetTest, NamedFilesAreReadOrRefused) {
  Settings settings;
  settings.options = {{"images", path("images")}, {"labels", path("labels")}, {"batch", "2"}};
  const Digits drawn = draw_digits(20, 1);
  std::vector<char> images = {0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 28, 0, 0, 0, 28};
  images.insert(images.end(), drawn.pixels.begin(), drawn.pixels.end());
  std::vector<char> labels = {0, 0, 8, 1, 0, 0, 0, 20};
  labels.insert(labels.end(), drawn.labels.begin(), drawn.labels.end());
  holdfast::test::write_file(path("images"), images);
  holdfast::test::write_file(path("labels"), labels);
  {
    LeNet lenet(settings);
    EXPECT_EQ(lenet.digits().pixels, drawn.pixels);
    EXPECT_EQ(lenet.digits().labels, drawn.labels);
    EXPECT_NE(lenet.input().find(path("images")), std::string::npos);
  }
  images.resize(images.size() / 2);
  holdfast::test::write_file(path("images"), images);
  EXPECT_EQ(error_of([&] { LeNet lenet(settings); }, {path("images"), "again"}), Errc::damaged);
}

// Table 1: 3.2 MB of weights and biases on the medium, where a checkpoint is kept twice.
TEST_F(LenetTest, PaperSizeIsThatOfThePaper) {
  Settings settings;
  settings.size = Size::paper;
  settings.options["digits"] = "100";
  const LeNet lenet(settings);
  EXPECT_NEAR(static_cast<double>(lenet.medium_bytes()) / (1 << 20), 3.2, 0.15);
}

class HandwrittenDigits : public LenetTest {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("HOLDFAST_DATA");
    settings_.data_folder = folder ? folder : "";
    settings_.size = Size::real;
    if (!workload::read_input(settings_.data_folder, "mnist/t10k-labels-idx1-ubyte.gz")) {
      GTEST_SKIP() << "HOLDFAST_DATA does not name a folder with mnist/t10k-*.gz";
    }
  }
  // A share of the passes over the digits, at the end of which more are told right than by chance.
  void expect_learnt() {
    const bool all = holdfast::test::share() == 1;
    if (!all)
      settings_.steps =
          LeNet(settings_).steps() / std::min<std::uint64_t>(holdfast::test::share(), 10);
    run(settings_, [&](LeNet& lenet) {
      EXPECT_EQ(lenet.verify(), "");
      EXPECT_GE(lenet.accuracy(), all ? 0.95 : 0.8);
      std::cout << "held back and told right: " << lenet.accuracy() << "\n";
    });
  }
  Settings settings_;
};

// The published counts of each digit, and the first labels.
TEST_F(HandwrittenDigits, AreThoseOfTheDataSet) {
  LeNet lenet(settings_);
  const Digits& digits = lenet.digits();
  ASSERT_EQ(digits.count(), 10'000u);
  std::vector<unsigned> counts(kClasses);
  for (const std::uint8_t label : digits.labels) ++counts[label];
  EXPECT_EQ(counts, (std::vector<unsigned>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}));
  const std::vector<std::uint8_t> first(digits.labels.begin(), digits.labels.begin() + 10);
  EXPECT_EQ(first, (std::vector<std::uint8_t>{7, 2, 1, 0, 4, 1, 4, 9, 5, 9}));
}

TEST_F(HandwrittenDigits, AreLearntByHostThreads) {
  settings_.mode = Mode::cpu;
  expect_learnt();
}

TEST_F(HandwrittenDigits, AreLearntByKernels) {
#if defined(HOLDFAST_INTERCEPT) || defined(HOLDFAST_SANITIZE)
  GTEST_SKIP() << "takes minutes in this flavour";
#endif
  expect_learnt();
}

// A run of the real size that learns nothing is an error.
TEST_F(HandwrittenDigits, TooFewToldRightAreAnError) {
  settings_.mode = Mode::cpu;
  settings_.options = {{"digits", "100"}, {"rate", "1"}, {"batch", "1"}};
  run(settings_, [&](LeNet& lenet) {
    EXPECT_NE(lenet.verify().find("fewer than 95 %"), std::string::npos) << lenet.verify();
  });
}

}  // namespace
}  // namespace lenet

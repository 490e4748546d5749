// The diffusion in every mode, cut off at any place, and its inputs.
#include "srad/srad.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "srad/diffusion.hpp"
#include "support/scratch.hpp"
#include "workload/inputs.hpp"
#include "workload_checks.hpp"

namespace srad {
namespace {

using holdfast::Errc;
using holdfast::test::error_of;
using workload::Mode;
using workload::Settings;
using workload_checks::expect_refused;

Settings small(Mode mode) {
  Settings settings;
  settings.mode = mode;
  settings.steps = 5;
  return settings;
}

class SradModes : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(All, SradModes, ::testing::ValuesIn(workload::all_modes()),
                         workload_checks::mode_name);

TEST_P(SradModes, AgreesWithTheOracle) {
  Settings settings;
  settings.mode = GetParam();
  const auto run = workload_checks::run_whole(info(), settings);
  EXPECT_EQ(run.wrong, "");
  // The same bits wherever kernels compute.
  if (GetParam() == Mode::cpu) return;
  settings.mode = Mode::gpm;
  EXPECT_EQ(run.digest, workload_checks::run_whole(info(), settings).digest);
}

TEST_P(SradModes, ResumesAfterEachStep) {
  const Settings settings = small(GetParam());
  const auto whole = workload_checks::run_whole(info(), settings);
  const auto steps = workload_checks::run_step_by_step(info(), settings);
  EXPECT_EQ(steps.wrong, "");
  EXPECT_EQ(steps.digest, whole.digest);
  EXPECT_EQ(steps.steps, 5u);
}

TEST_P(SradModes, SurvivesKills) {
  if (std::strcmp(holdfast::backend::name(), "cpu") != 0) GTEST_SKIP() << "forks";
  workload_checks::expect_kills_survived(info(), small(GetParam()), 5, holdfast::test::test_seed());
}

TEST(SradTest, HostThreadsDoNotChangeTheResult) {
  Frame frame;
  frame.rows = 150;
  frame.columns = 120;
  frame.region_rows = frame.region_columns = 20;
  const std::vector<float> input = intensities(make_speckled(150, 120, 3));
  std::vector<std::vector<float>> results;
  for (const unsigned threads : {1u, 2u, 5u}) {
    std::vector<float> even = input, odd(input.size()), coefficients(input.size());
    for (std::uint64_t i = 0; i < 3; ++i) {
      iterate_on_cpu(frame, {{even.data(), odd.data()}, coefficients.data(), nullptr}, i, threads);
    }
    results.push_back(odd);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// A medium and a diffusion on it, with tiles so small that there are many.
struct Small {
  explicit Small(std::uint64_t seed, std::uint32_t rows = 9, std::uint32_t columns = 14)
      : image(make_speckled(rows, columns, seed)), input(intensities(image)) {
    frame.rows = rows;
    frame.columns = columns;
    frame.region_rows = std::min(rows, 5u);
    frame.region_columns = std::min(columns, 5u);
    frame.tile = 8;
    frame.most_blocks = 5;
    for (auto& floats : medium) {
      floats = holdfast::PinnedBuffer<float>(frame.pixels());
      std::fill_n(floats.data(), floats.size(), 0.0f);
    }
    stamps = holdfast::PinnedBuffer<std::uint32_t>(frame.pixels() / kQuad + 1);
    std::fill_n(stamps.data(), stamps.size(), 0u);
  }
  Durable durable() const {
    return {{medium[0].data(), medium[1].data()}, medium[2].data(), stamps.data()};
  }
  // Goes on from what the medium holds. Returns how many iterations that was.
  std::uint64_t run(std::uint64_t iterations) {
    Diffusion diffusion(stream, frame, durable(), true, false);
    const std::uint64_t done = diffusion.iterations_done();
    diffusion.load(done, input);
    for (std::uint64_t i = done; i < iterations; ++i) diffusion.iterate(i);
    stream.synchronize();
    bytes_stored = diffusion.bytes_stored();
    return done;
  }
  std::vector<float> result(std::uint64_t iterations) const {
    const auto& floats = medium[iterations % 2];
    return {floats.data(), floats.data() + floats.size()};
  }

  Image image;
  std::vector<float> input;
  Frame frame;
  std::uint64_t bytes_stored = 0;  // by the last run
  holdfast::PinnedBuffer<float> medium[3];
  holdfast::PinnedBuffer<std::uint32_t> stamps;
  holdfast::Stream stream;
};

// Of an iteration that was cut off any tiles may be there, and of the others any pixels.
TEST(SradTest, ResumesFromWhatIsThere) {
  std::mt19937_64 random(holdfast::test::test_seed());
  Small whole(4);
  whole.run(4);
  for (int round = 0; round < 40; ++round) {
    Small cut(4);
    cut.run(2);
    const std::vector<float> before = cut.result(1);  // what the cut iteration overwrites
    cut.run(3);
    const bool in_image = round % 2 == 0;
    float* const data = in_image ? cut.medium[1].data() : cut.medium[2].data();
    for (std::uint64_t tile = 0; tile < cut.frame.tiles(); ++tile) {
      const bool lost = random() % 2 == 0;
      cut.stamps[tile] = 4 + (in_image ? 2 : 1) - lost;
      for (std::uint64_t i = tile * 8; lost && i < std::min<std::uint64_t>(tile * 8 + 8, 126);
           ++i) {
        if (random() % 2) data[i] = before[i];
      }
    }
    for (std::uint64_t i = 0; !in_image && i < before.size(); ++i) cut.medium[1][i] = before[i];
    // What is there is not stored again: tiles of 8 pixels, but for the last one's 6.
    std::uint64_t ahead = 0;
    for (std::uint64_t tile = 0; tile < cut.frame.tiles(); ++tile) {
      ahead += (cut.stamps[tile] - 4) * (4 * (tile == 15 ? 6 : 8) + 4);
    }
    EXPECT_LE(cut.run(4), 3u);
    EXPECT_EQ(cut.bytes_stored, 2 * 2 * (4 * 126 + 4 * cut.frame.tiles()) - ahead);
    ASSERT_EQ(cut.result(4), whole.result(4)) << "round " << round;
  }
}

// Tiles that quads, a block's threads and the blocks fit and do not fit, and rows of any width.
TEST(SradTest, TilesDoNotChangeTheResult) {
  for (const auto& [rows, columns] : {std::pair{9u, 14u}, {7u, 13u}, {1u, 3u}, {64u, 1u}}) {
    Small usual(2, rows, columns);
    usual.frame.tile = 1024;
    usual.run(3);
    const std::uint64_t pixels = usual.frame.pixels();
    EXPECT_EQ(usual.bytes_stored, 3 * (8 * pixels + 8));
    for (const auto& [tile, threads, blocks] :
         {std::tuple{4u, 1u, 1u}, {4u, 256u, 1000u}, {20u, 2u, 3u}, {36u, 4u, 2u}}) {
      Small other(2, rows, columns);
      other.frame.tile = tile;
      other.frame.threads = threads;
      other.frame.most_blocks = blocks;
      other.run(3);
      EXPECT_EQ(other.result(3), usual.result(3)) << rows << " x " << columns << ", tile " << tile;
      for (std::uint64_t i = 0; i < pixels; ++i) ASSERT_EQ(other.medium[2][i], usual.medium[2][i]);
      EXPECT_EQ(other.bytes_stored, 3 * (8 * pixels + 8 * other.frame.tiles()));
    }
  }
}

TEST(SradTest, WhatQuadsDoNotFitIsRefused) {
  Small small(1);
  small.frame.tile = 6;
  EXPECT_EQ(error_of([&] { small.run(1); }, {"multiple of 4"}), Errc::invalid_argument);
  small.frame.tile = 8;
  Durable durable = small.durable();
  durable.images[1] += 1;
  EXPECT_EQ(error_of([&] { Diffusion(small.stream, small.frame, durable, true, false); },
                     {"multiples of 16"}),
            Errc::invalid_argument);
}

TEST(SradTest, StampsThatNoRunLeavesAreRefused) {
  Small small(1);
  small.run(2);
  small.stamps[3] = 7;
  EXPECT_EQ(error_of([&] { small.run(3); }, {"remove the region"}), Errc::damaged);
}

// Shapes of one row, one column, one pixel; an image without any speckle.
TEST(SradTest, UnusualImages) {
  for (const auto& [rows, columns] :
       {std::pair{"1", "1"}, {"1", "300"}, {"300", "1"}, {"2", "2"}, {"61", "67"}}) {
    Settings settings = small(Mode::gpm);
    settings.options = {{"rows", rows}, {"columns", columns}};
    EXPECT_EQ(workload_checks::run_whole(info(), settings).wrong, "") << rows << " x " << columns;
    settings.mode = Mode::cpu;
    EXPECT_EQ(workload_checks::run_whole(info(), settings).wrong, "") << rows << " x " << columns;
  }
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(SradTest, Ultrasound) {
  Settings settings;
  settings.size = workload::Size::real;
  const char* const folder = std::getenv("HOLDFAST_DATA");
  settings.data_folder = folder ? folder : "";
  const auto text = workload::read_input(settings.data_folder, "srad/image.pgm");
  if (!text) GTEST_SKIP() << "set HOLDFAST_DATA to the folder that holds srad/image.pgm";
  const Image image = parse_pgm(*text, "image.pgm");
  EXPECT_EQ(image.columns, 458u);
  EXPECT_EQ(image.rows, 502u);
  EXPECT_EQ(std::accumulate(image.pixels.begin(), image.pixels.end(), 0u), 24470946u);
  // Reference values: the formulas in another language.
  const Diffused after = oracle(image, 10, 0.5, 32);
  EXPECT_NEAR(mean_of(after.image), 1.552872670, 1e-8);
  EXPECT_NEAR(after.image[250 * 458 + 200], 1.422758787, 1e-8);
  EXPECT_NEAR(mean_of(after.coefficients), 0.995836546, 1e-8);
  EXPECT_NEAR(*std::min_element(after.coefficients.begin(), after.coefficients.end()),
              0.05164812202, 1e-8);

  settings.steps = 10;
  for (const Mode mode : {Mode::gpm, Mode::cap_mm, Mode::cpu}) {
    settings.mode = mode;
    EXPECT_EQ(workload_checks::run_whole(info(), settings).wrong, "") << workload::to_string(mode);
  }
  EXPECT_NE(info().make(settings)->input().find("ultrasound"), std::string::npos);
}

TEST(SradTest, WithoutTheRealInputOneIsGenerated) {
  Settings settings;
  settings.size = workload::Size::real;
  EXPECT_NE(info().make(settings)->input().find("generated"), std::string::npos);
}

TEST(SradTest, BadOptionsAreRefused) {
  expect_refused(info(), {{"lambda", "0"}}, {"lambda", "give"});
  expect_refused(info(), {{"lambda", "101"}}, {"lambda", "give"});
  expect_refused(info(), {{"rows", "0"}}, {"rows", "give"});
  expect_refused(info(), {{"region", "big"}}, {"region", "give"});
  expect_refused(info(), {{"rows", "1048576"}, {"columns", "1048576"}}, {"rows", "at most"});
  Settings settings;
  settings.steps = 1ull << 40;
  EXPECT_EQ(error_of([&] { info().make(settings); }, {"steps"}), Errc::invalid_argument);
}

class ImageFileTest : public holdfast::test::Scratch {};

TEST_F(ImageFileTest, AFileCanBeNamed) {
  const std::string text = "P2\n# made by hand\n3 2\n# white is 9\n9\n0 1 2\n3 4 9\n";
  holdfast::test::write_file(path("a.pgm"), {text.begin(), text.end()});
  Settings settings = small(Mode::gpm);
  settings.options = {{"image", path("a.pgm")}};
  EXPECT_NE(info().make(settings)->input().find("3 x 2"), std::string::npos);
  EXPECT_EQ(workload_checks::run_whole(info(), settings).wrong, "");
}

// Without any variance nothing flows, and nothing is divided by zero.
TEST_F(ImageFileTest, AnEvenImageStaysAsItIs) {
  const std::string text = "P2 4 4 255\n7 7 7 7 7 7 7 7\n7 7 7 7 7 7 7 7\n";
  holdfast::test::write_file(path("even.pgm"), {text.begin(), text.end()});
  for (const Mode mode : {Mode::gpm, Mode::cpu}) {
    Settings settings = small(mode);
    settings.options = {{"image", path("even.pgm")}};
    EXPECT_EQ(workload_checks::run_whole(info(), settings).wrong, "");
  }
}

// As ultrasound often is: the corner that should show speckle is black.
TEST_F(ImageFileTest, ABlackCornerIsNoSpeckle) {
  std::string text = "P2 40 40 255\n";
  for (int i = 0; i < 40 * 40; ++i) {
    const bool black = i / 40 < 35 && i % 40 < 35;
    text += std::to_string(black ? 0 : 50 + i * 37 % 100) + (i % 40 == 39 ? "\n" : " ");
  }
  holdfast::test::write_file(path("corner.pgm"), {text.begin(), text.end()});
  for (const Mode mode : {Mode::gpm, Mode::cpu}) {
    Settings settings = small(mode);
    settings.options = {{"image", path("corner.pgm")}};
    EXPECT_EQ(workload_checks::run_whole(info(), settings).wrong, "");
  }
}

TEST(ImageTest, DamagedTextsAreRefused) {
  for (const char* const text :
       {"", "P2", "P5 1 1 255\n0", "P2 0 1 255\n", "P2 1 1 0\n0", "P2 1 1 70000\n0",
        "P2 2 2 255\n1 2 3\n", "P2 2 2 255\n1 2 3 4 5\n", "P2 2 2 255\n1 2 3 256\n",
        "P2 2 2 255\n1 2 3 -4\n", "P2 2 2 255\n1 2 3 x\n", "P2 1000000 1000000 255\n1 2 3\n",
        "P2 99999999 1 255\n1\n", "P2 2 # two\n"}) {
    EXPECT_EQ(error_of([&] { parse_pgm(text, "a.pgm"); }, {"a.pgm"}), Errc::damaged) << text;
  }
  EXPECT_EQ(parse_pgm("P2 2 # two\n1 255 1 2 # end\n", "a.pgm").pixels[1], 2u);
}

}  // namespace
}  // namespace srad

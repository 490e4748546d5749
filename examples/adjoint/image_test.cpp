// The image: a reflector is seen where it is; the file; options of the program.
#include "adjoint/image.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "adjoint/job.hpp"
#include "adjoint/stores.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace adjoint {
namespace {

using holdfast::Errc;
using holdfast::Stream;
using holdfast::test::error_of;
using holdfast::test::read_file;

// Water over a faster half space, migrated with water alone: the strongest of the image below the
// source is the boundary.
TEST(MigratedImage, AReflectorIsWhereItIs) {
  constexpr std::uint64_t kNx = 100, kNz = 70;
  for (const std::uint64_t depth : {30, 45}) {
    const Survey survey = make_survey(kNx, kNz, 750, 2);
    std::vector<double> water(kNx * kNz, 1500.0), velocity = water;
    for (std::uint64_t i = depth * kNx; i < velocity.size(); ++i) velocity[i] = 2000.0;
    Stream stream;
    Misfit<float> misfit(stream, survey, courant2(survey, velocity));
    MemoryStore store;
    SumBuffers<float> sums(survey.grid.cells);
    for (std::uint64_t shot = 0; shot < 2; ++shot) {
      misfit.gradient(stream, courant2(survey, water), shot, store, sums.sums());
    }
    const Image image =
        migrated(survey, to_host(stream, sums.correlation.data(), sums.correlation.size()),
                 to_host(stream, sums.illumination.data(), sums.illumination.size()));
    for (const std::uint64_t x : {kNx / 4, kNx / 2, 3 * kNx / 4}) {
      std::uint64_t strongest = 15;  // below what is near the sources
      for (std::uint64_t z = 15; z < kNz; ++z) {
        const auto size = [&](std::uint64_t at) { return std::abs(image.values[at * kNx + x]); };
        if (size(z) > size(strongest)) strongest = z;
      }
      EXPECT_NEAR(static_cast<double>(strongest), static_cast<double>(depth), 3.0)
          << "column " << x;
    }
  }
}

TEST(MigratedImage, AGreymapHasAByteForACell) {
  Image image{4, 25, std::vector<double>(100, 0.0)};
  image.values[0] = 1e9;  // one in a hundred may be beyond
  image.values[1] = 2.0;
  image.values[2] = -2.0;
  image.values[3] = 1.0;
  for (std::uint64_t i = 4; i < 100; ++i) image.values[i] = i % 2 == 0 ? 0.0 : 1e-9;
  const std::string head = "P5\n4 25\n255\n";
  const std::string map = greymap(image);
  ASSERT_EQ(map.size(), head.size() + 100);
  EXPECT_EQ(map.substr(0, head.size()), head);
  const auto grey = [&](int i) { return static_cast<unsigned char>(map[head.size() + i]); };
  EXPECT_EQ(grey(0), 255);
  EXPECT_EQ(grey(1), 255);
  EXPECT_EQ(grey(2), 0);
  EXPECT_EQ(grey(3), 191);
  EXPECT_EQ(grey(4), 128);
  const std::string still = greymap({2, 1, {0.0, 0.0}});
  EXPECT_EQ(still, std::string("P5\n2 1\n255\n\x80\x80"));
}

class GreymapFile : public holdfast::test::Scratch {};

TEST_F(GreymapFile, IsWrittenWholeOrNotAtAll) {
  write_file(path("a.pgm"), "first");
  write_file(path("a.pgm"), "second");
  EXPECT_EQ(read_file(path("a.pgm")), std::vector<char>({'s', 'e', 'c', 'o', 'n', 'd'}));
  only_file(folder());
  const std::string lost = path("no/such/a.pgm");
  EXPECT_EQ(error_of([&] { write_file(lost, "x"); }, {lost}), Errc::io);
}

Options parsed(std::vector<const char*> words) {
  words.insert(words.begin(), "adjoint");
  return parse(static_cast<int>(words.size()), words.data());
}

TEST(AdjointProgram, OptionsAreTaken) {
  const Options options = parsed({"--nx", "20", "--nz", "30", "--steps", "7", "--shots", "3",
                                  "--store", "revolve", "--snapshots", "4", "--compress", "--image",
                                  "i", "--region", "r", "--check-gradient"});
  EXPECT_EQ(options.nx, 20u);
  EXPECT_EQ(options.nz, 30u);
  EXPECT_EQ(options.steps, 7u);
  EXPECT_EQ(options.shots, 3u);
  EXPECT_EQ(options.store, "revolve");
  EXPECT_EQ(options.snapshots, 4u);
  EXPECT_TRUE(options.compress);
  EXPECT_EQ(options.image, "i");
  EXPECT_EQ(options.region, "r");
  EXPECT_TRUE(options.check_gradient);
}

TEST(AdjointProgram, OtherOptionsAreRefused) {
  const auto code = [](std::vector<const char*> words, std::vector<std::string> say) {
    return error_of([&] { parsed(words); }, say);
  };
  EXPECT_EQ(code({"--depth", "3"}, {"--depth", "usage"}), Errc::invalid_argument);
  EXPECT_EQ(code({"--nx"}, {"--nx", "usage"}), Errc::invalid_argument);
  EXPECT_EQ(code({"--nx", "-3"}, {"--nx -3"}), Errc::invalid_argument);
  EXPECT_EQ(code({"--nx", "12k"}, {"--nx 12k"}), Errc::invalid_argument);
  EXPECT_EQ(code({"--nx", "99999999999999999999"}, {"--nx"}), Errc::invalid_argument);
  EXPECT_EQ(code({"--snapshots", "0"}, {"--snapshots"}), Errc::invalid_argument);
  std::ostringstream out;
  Options options;
  options.nx = 3;
  EXPECT_EQ(error_of([&] { run(options, out); }, {"nx 3"}), Errc::invalid_argument);
  options.nx = 20;
  options.store = "revolve";
  options.compress = true;
  EXPECT_EQ(error_of([&] { run(options, out); }, {"--compress"}), Errc::invalid_argument);
  EXPECT_EQ(out.str(), "");
}

TEST(AdjointProgram, ChecksItsGradient) {
  Options options;
  options.nx = options.nz = 24;
  options.steps = 120;
  options.check_gradient = options.compress = true;
  std::ostringstream out;
  EXPECT_EQ(run(options, out), 0) << out.str();
  EXPECT_NE(out.str().find("compressed: relative error"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("the gradient holds"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace adjoint

// Gradients: the oracle's against differences of its own loss, kernels' and host threads' against
// the oracle's. Digits: files that are whole, and files that are not.
#include <gtest/gtest.h>

#include <cmath>

#include "holdfast/stream.hpp"
#include "lenet/digits.hpp"
#include "lenet/lenet_oracle.hpp"
#include "lenet/trainer.hpp"
#include "support/error_of.hpp"

namespace lenet {
namespace {

using holdfast::Errc;
using holdfast::test::error_of;

std::vector<float> some_parameters(const Shape& shape, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(shape.parameters());
  for (float& value : values) value = random.between(-0.2f, 0.2f);
  return values;
}

oracle::Examples examples_of(const Digits& digits) { return {digits.normalised(), digits.labels}; }

std::vector<std::uint32_t> places(std::uint32_t count, std::uint32_t among, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint32_t> result;
  for (std::uint32_t i = 0; i < count; ++i) result.push_back(random.below(among));
  return result;
}

TEST(LenetGradient, OfTheOracleIsThatOfItsLoss) {
  const Shape shape{2, 3, 8};
  const Digits digits = draw_digits(20, 3);
  const oracle::Examples examples = examples_of(digits);
  const std::vector<std::uint32_t> batch = {4, 11};
  const std::vector<float> start = some_parameters(shape, 5);
  std::vector<double> parameters(start.begin(), start.end());
  std::vector<double> gradient;
  oracle::loss(shape, parameters, examples, batch, &gradient);
  ASSERT_EQ(gradient.size(), shape.parameters());
  double length = 0;
  for (const double value : gradient) length = std::max(length, std::abs(value));
  constexpr double kStep = 1e-6;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double value = parameters[i];
    parameters[i] = value + kStep;
    const double above = oracle::loss(shape, parameters, examples, batch);
    parameters[i] = value - kStep;
    const double below = oracle::loss(shape, parameters, examples, batch);
    parameters[i] = value;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-6 * length) << "parameter " << i;
  }
}

struct Case {
  Shape shape;
  std::uint32_t batch;
};

// Batches that do not divide into tiles and shares, layers of one map, and the paper's network.
const Case kCases[] = {{{1, 1, 4}, 1}, {{3, 5, 20}, 5}, {{6, 16, 120}, 7}, {{20, 50, 500}, 2}};

void expect_gradients(Trainer& trainer, const Case& at, const Digits& digits) {
  const std::vector<float> parameters = some_parameters(at.shape, at.batch);
  trainer.start(parameters);
  const std::vector<std::uint32_t> batch = places(at.batch, digits.count(), 77);
  const std::vector<float> found = trainer.gradient(batch);
  std::vector<double> expected;
  oracle::loss(at.shape, {parameters.begin(), parameters.end()}, examples_of(digits), batch,
               &expected);
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  ASSERT_GT(largest, 0.0);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 1e-4 * largest)
        << "parameter " << i << " of " << at.shape.channels1 << "-" << at.shape.channels2 << "-"
        << at.shape.hidden;
  }
  EXPECT_EQ(trainer.read_parameters(), parameters) << "a gradient alone changes nothing";
  EXPECT_EQ(trainer.gradient(batch), found);
}

TEST(LenetGradient, OfKernelsIsTheOracles) {
  const Digits digits = draw_digits(30, 8);
  for (const Case& at : kCases) {
    holdfast::Stream stream;
    expect_gradients(*make_kernel_trainer(stream, at.shape, {at.batch}, digits), at, digits);
  }
}

TEST(LenetGradient, OfHostThreadsIsTheOracles) {
  const Digits digits = draw_digits(30, 8);
  for (const Case& at : kCases) {
    expect_gradients(*make_host_trainer(2, at.shape, {at.batch}, digits), at, digits);
  }
}

// Classifying takes any number of digits, a batch or part of one at a time.
TEST(LenetVerdicts, AreTheOraclesInBothTrainers) {
  const Shape shape{4, 6, 24};
  const Digits digits = draw_digits(50, 2);
  const std::vector<float> parameters = some_parameters(shape, 9);
  const std::vector<std::uint32_t> all = places(43, digits.count(), 1);
  const auto expected =
      oracle::classify(shape, {parameters.begin(), parameters.end()}, examples_of(digits), all);
  holdfast::Stream stream;
  for (const auto& trainer : {make_kernel_trainer(stream, shape, {16}, digits),
                              make_host_trainer(3, shape, {16}, digits)}) {
    trainer->start(parameters);
    EXPECT_EQ(trainer->classify(all), expected);
    EXPECT_TRUE(trainer->classify({}).empty());
  }
}

// One training, by one thread and by several, and in one go and in two.
TEST(LenetTraining, BitsDoNotDependOnThreadsOrPauses) {
  const Shape shape{3, 4, 16};
  const Digits digits = draw_digits(40, 6);
  const std::vector<float> start = some_parameters(shape, 1);
  const std::vector<std::uint32_t> list = places(6 * 9, digits.count(), 4);
  const std::vector<float> rates = {0.05f, 0.04f, 0.03f, 0.02f, 0.01f, 0.005f};
  std::vector<std::vector<float>> results;
  for (const unsigned threads : {1u, 2u, 5u}) {
    const auto trainer = make_host_trainer(threads, shape, {9}, digits);
    trainer->start(start);
    trainer->train(list, rates);
    results.push_back(trainer->read_parameters());
  }
  EXPECT_NE(results[0], start);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  holdfast::Stream stream;
  const auto kernels = make_kernel_trainer(stream, shape, {9}, digits);
  kernels->start(start);
  kernels->train(list, rates);
  const std::vector<float> whole = kernels->read_parameters();
  kernels->start(start);
  kernels->train({list.begin(), list.begin() + 2 * 9}, {rates.begin(), rates.begin() + 2});
  kernels->train({list.begin() + 2 * 9, list.end()}, {rates.begin() + 2, rates.end()});
  EXPECT_EQ(kernels->read_parameters(), whole);
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], results[0][i], 1e-4);
}

// idx files of `count` images of rows x columns, and of labels.
std::string words(std::initializer_list<std::uint32_t> values) {
  std::string bytes;
  for (const std::uint32_t value : values) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  }
  return bytes;
}
std::string images(std::uint32_t count, std::uint32_t rows = kSide, std::uint32_t columns = kSide) {
  return words({0x803, count, rows, columns}) + std::string(std::size_t{count} * kPixels, '\7');
}
std::string labels(std::uint32_t count, char label = 3) {
  return words({0x801, count}) + std::string(count, label);
}

TEST(LenetDigits, AreReadFromWholeFiles) {
  const Digits digits = parse_idx(images(5), "i", labels(5), "l");
  EXPECT_EQ(digits.count(), 5u);
  EXPECT_TRUE(digits.handwritten);
  EXPECT_EQ(digits.pixels, std::vector<std::uint8_t>(5 * kPixels, 7));
  EXPECT_EQ(digits.labels, std::vector<std::uint8_t>(5, 3));
  Digits fewer = digits;
  fewer.shorten(2);
  EXPECT_EQ(fewer.count(), 2u);
  EXPECT_EQ(fewer.pixels.size(), 2u * kPixels);
}

TEST(LenetDigits, DamagedFilesAreRefused) {
  const auto refused = [](const std::string& image_file, const std::string& label_file,
                          const std::vector<std::string>& said) {
    EXPECT_EQ(error_of([&] { parse_idx(image_file, "im", label_file, "la"); }, said),
              Errc::damaged);
  };
  refused("", labels(5), {"'im'", "header"});
  refused(images(5).substr(0, 15), labels(5), {"'im'", "header"});
  refused(words({0x801, 5, 28, 28}), labels(5), {"'im'", "2051", "2049"});
  refused(images(5).substr(0, 2000), labels(5), {"'im'", "3920", "1984"});
  refused(images(5) + "x", labels(5), {"'im'", "get the file again"});
  refused(images(5, 14, 56), labels(5), {"'im'", "14 x 56"});
  // Sizes whose product overflows 64 bits.
  refused(words({0x803, 0xffffffff, 0xffffffff, 0xffffffff}), labels(5), {"'im'"});
  refused(words({0x803, 0x80000000, 0x80000000, 4}), labels(5), {"'im'"});
  refused(words({0x803, 0, 28, 28}) + "x", labels(5), {"'im'"});
  refused(images(5), labels(6), {"'la'", "6 labels", "5 images"});
  refused(images(5), labels(5).substr(0, 9), {"'la'"});
  refused(images(5), images(5), {"'la'", "2049"});
  refused(images(5), labels(5, 10), {"'la'", "label 0 is 10"});
}

TEST(LenetDigits, AreDrawnTheSameForASeed) {
  const Digits first = draw_digits(100, 4);
  EXPECT_EQ(first.pixels, draw_digits(100, 4).pixels);
  EXPECT_NE(first.pixels, draw_digits(100, 5).pixels);
  EXPECT_FALSE(first.handwritten);
  EXPECT_NE(first.source.find("generated"), std::string::npos);
  unsigned counts[kClasses] = {};
  for (const std::uint8_t label : first.labels) ++counts[label];
  for (const unsigned count : counts) EXPECT_GT(count, 0u);
}

}  // namespace
}  // namespace lenet

// Gradients: the oracle's against differences of its own loss, every trainer's against the
// oracle's. Digits: files that are whole, and files that are not.
#include <gtest/gtest.h>

#include <cmath>

#include "holdfast/stream.hpp"
#include "lenet/digits.hpp"
#include "lenet/lenet_oracle.hpp"
#include "lenet/trainer.hpp"
#include "support/error_of.hpp"
#if LENET_CUDNN_STAND_IN
#include "cudnn_stand_in.hpp"
#endif

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

// What trains: each trainer that there is.
enum class Kind { kernels, host, cudnn, cudnn_stand_in };

std::string name_of(const ::testing::TestParamInfo<Kind>& info) {
  static const char* const kNames[] = {"kernels", "host_threads", "cudnn", "cudnn_stand_in"};
  return kNames[static_cast<int>(info.param)];
}

class EveryTrainer : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    std::string why;
    if (GetParam() == Kind::cudnn && !cudnn_usable(&why)) GTEST_SKIP() << why;
#if !LENET_CUDNN_STAND_IN
    if (GetParam() == Kind::cudnn_stand_in) {
      GTEST_SKIP() << "built for a GPU, or without the headers of cuDNN and cuBLAS";
    }
#endif
  }

  std::unique_ptr<Trainer> make(const Shape& shape, const Descent& descent, const Digits& digits) {
    switch (GetParam()) {
      case Kind::kernels:
        return make_kernel_trainer(stream_, shape, descent, digits);
      case Kind::host:
        return make_host_trainer(2, shape, descent, digits);
      case Kind::cudnn:
        return make_cudnn_trainer(stream_, shape, descent, digits);
      case Kind::cudnn_stand_in:
#if LENET_CUDNN_STAND_IN
        return make_cudnn_trainer(stand_in::api(), stream_, shape, descent, digits);
#endif
        break;
    }
    return nullptr;
  }

 private:
  holdfast::Stream stream_;
};

INSTANTIATE_TEST_SUITE_P(Trainers, EveryTrainer,
                         ::testing::Values(Kind::kernels, Kind::host, Kind::cudnn,
                                           Kind::cudnn_stand_in),
                         name_of);

TEST_P(EveryTrainer, GradientIsTheOracles) {
  const Digits digits = draw_digits(30, 8);
  for (const Case& at : kCases) expect_gradients(*make(at.shape, {at.batch}, digits), at, digits);
}

// Classifying takes any number of digits, a batch or part of one at a time.
TEST_P(EveryTrainer, VerdictsAreTheOracles) {
  const Shape shape{4, 6, 24};
  const Digits digits = draw_digits(50, 2);
  const std::vector<float> parameters = some_parameters(shape, 9);
  const std::vector<std::uint32_t> all = places(43, digits.count(), 1);
  const auto expected =
      oracle::classify(shape, {parameters.begin(), parameters.end()}, examples_of(digits), all);
  const auto trainer = make(shape, {16}, digits);
  trainer->start(parameters);
  EXPECT_EQ(trainer->classify(all), expected);
  EXPECT_TRUE(trainer->classify({}).empty());
}

// One training, as the oracle's, in one go and in two, and by another trainer that goes on from
// what the first one left.
TEST_P(EveryTrainer, TrainsAsTheOracleAndBitsDoNotDependOnPauses) {
  const Shape shape{3, 4, 16};
  const Digits digits = draw_digits(40, 6);
  const std::vector<float> start = some_parameters(shape, 1);
  const std::vector<std::uint32_t> list = places(6 * 9, digits.count(), 4);
  const std::vector<float> rates = {0.05f, 0.04f, 0.03f, 0.02f, 0.01f, 0.005f};
  const Descent descent{9};
  std::vector<double> expected(start.begin(), start.end()), gradient;
  for (std::size_t pass = 0; pass < rates.size(); ++pass) {
    oracle::loss(shape, expected, examples_of(digits),
                 {list.begin() + 9 * pass, list.begin() + 9 * (pass + 1)}, &gradient);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] -= rates[pass] * gradient[i];
    }
  }
  const auto trainer = make(shape, descent, digits);
  trainer->start(start);
  trainer->train(list, rates);
  const std::vector<float> whole = trainer->read_parameters();
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], expected[i], 1e-4);

  trainer->start(start);
  trainer->train({list.begin(), list.begin() + 2 * 9}, {rates.begin(), rates.begin() + 2});
  const auto other = make(shape, descent, digits);
  other->start(trainer->read_parameters());
  for (Trainer* const each : {trainer.get(), other.get()}) {
    each->train({list.begin() + 2 * 9, list.end()}, {rates.begin() + 2, rates.end()});
    EXPECT_EQ(each->read_parameters(), whole);
  }
}

TEST(LenetTraining, BitsDoNotDependOnHostThreads) {
  const Shape shape{3, 4, 16};
  const Digits digits = draw_digits(40, 6);
  const std::vector<float> start = some_parameters(shape, 1);
  std::vector<std::vector<float>> results;
  for (const unsigned threads : {1u, 2u, 5u}) {
    const auto trainer = make_host_trainer(threads, shape, {9}, digits);
    trainer->start(start);
    trainer->train(places(3 * 9, digits.count(), 4), {0.05f, 0.04f, 0.03f});
    results.push_back(trainer->read_parameters());
  }
  EXPECT_NE(results[0], start);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
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

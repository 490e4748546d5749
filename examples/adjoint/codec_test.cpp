// Packed wavefields: how wrong a value can be, how many bytes they take, and bytes of any kind.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "adjoint/solver.hpp"
#include "adjoint/wavefield_codec.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace adjoint {
namespace {

using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::Stream;
using holdfast::test::error_of;

template <class Real>
std::vector<double> there_and_back(WavefieldCodec<Real>& codec, const std::vector<double>& field,
                                   std::uint64_t& bytes) {
  Stream stream;
  const DeviceBuffer<Real> from = to_device<Real>(stream, field);
  bytes = codec.pack(stream, from.data());
  DeviceBuffer<Real> to = to_device<Real>(stream, std::vector<double>(field.size(), 7.0));
  codec.unpack(stream, bytes, to.data());
  return to_host(stream, to.data(), field.size());
}

double peak(const std::vector<double>& field) {
  double result = 0;
  for (const double value : field) result = std::max(result, std::abs(value));
  return result;
}

// Fields of any size and loudness, loud and quiet blocks side by side.
template <class Real>
void expect_bounded(std::mt19937_64& random) {
  for (int i = 0; i < 60; ++i) {
    const auto count = static_cast<std::uint32_t>(1 + random() % 40000);
    const double loudness = std::pow(10.0, static_cast<double>(random() % 31) - 15.0);
    std::vector<double> field(count);
    double level = 1;
    for (std::uint32_t j = 0; j < count; ++j) {
      if (j % 64 == 0) level = std::pow(10.0, -static_cast<double>(random() % 1200) / 100);
      const double value = 2.0 * static_cast<double>(random() >> 11) * 0x1p-53 - 1.0;
      field[j] = static_cast<Real>(loudness * level * value);
    }
    WavefieldCodec<Real> codec(count);
    std::uint64_t bytes = 0;
    const std::vector<double> back = there_and_back(codec, field, bytes);
    const double bound = peak(field) / 65534 * (1 + 1e-5) + peak(field) * 4e-7;
    for (std::uint32_t j = 0; j < count; ++j) {
      ASSERT_NEAR(back[j], field[j], bound) << j << " of " << count;
    }
    ASSERT_LE(bytes, codec.most_bytes());
  }
}

TEST(WavefieldCodec, NoValueIsWrongByMoreThanAQuantum) {
  std::mt19937_64 random(holdfast::test::test_seed());
  expect_bounded<float>(random);
  expect_bounded<double>(random);
}

// A quiet block has quanta of its own: they are as fine as it is quiet.
TEST(WavefieldCodec, ABlockIsScaledByItself) {
  std::vector<double> field(128);
  for (int i = 0; i < 64; ++i) field[i] = std::sin(i), field[64 + i] = 1e-3 * std::sin(i);
  WavefieldCodec<double> codec(128);
  std::uint64_t bytes = 0;
  const std::vector<double> back = there_and_back(codec, field, bytes);
  for (int i = 64; i < 128; ++i) EXPECT_NEAR(back[i], field[i], 1e-3 / 65534 * 1.01);
}

TEST(WavefieldCodec, BlocksThatAreStillTakeNothing) {
  constexpr std::uint32_t kBlocks = 1000;
  WavefieldCodec<float> codec(kBlocks * 64);
  std::vector<double> field(kBlocks * 64, 0.0);
  std::uint64_t bytes = 0;
  EXPECT_EQ(there_and_back(codec, field, bytes), field);
  EXPECT_EQ(bytes, kBlocks * 8u);
  for (const int block : {0, 3, 511, 512, 999}) field[block * 64 + block % 64] = 1.0 + block;
  field[17 * 64] = 1e-3;  // less than a quantum of the loudest
  const std::vector<double> back = there_and_back(codec, field, bytes);
  EXPECT_EQ(bytes, kBlocks * 8u + 5 * 128u);
  EXPECT_EQ(back[17 * 64], 0.0);
  for (const int block : {0, 3, 511, 512, 999}) {
    EXPECT_FLOAT_EQ(static_cast<float>(back[block * 64 + block % 64]), 1.0f + block);
  }
  for (double& value : field) value = 1.0;
  there_and_back(codec, field, bytes);
  EXPECT_EQ(bytes, codec.most_bytes());
  EXPECT_EQ(bytes, kBlocks * (8u + 128u));
}

TEST(WavefieldCodec, FieldsThatAreNoNumbersDoNoHarm) {
  WavefieldCodec<float> codec(200);
  std::uint64_t bytes = 0;
  for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan(""), 1e-45, 3.4e38}) {
    std::vector<double> field(200, 0.25);
    field[70] = value;
    there_and_back(codec, field, bytes);
    EXPECT_LE(bytes, codec.most_bytes());
  }
}

TEST(WavefieldCodec, OtherBytesAreRefusedOrGiveSomeField) {
  Stream stream;
  WavefieldCodec<float> codec(500);
  DeviceBuffer<float> field(500);
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, codec.least_bytes() - 1, codec.least_bytes() + 1,
        codec.most_bytes() + 128, ~std::uint64_t{0}}) {
    EXPECT_EQ(error_of([&] { codec.unpack(stream, bytes, field.data()); }, {"500 values"}),
              Errc::invalid_argument);
  }
  std::mt19937_64 random(holdfast::test::test_seed());
  std::vector<unsigned char> noise(codec.most_bytes());
  for (int i = 0; i < 20; ++i) {
    for (unsigned char& byte : noise) byte = static_cast<unsigned char>(random());
    copy_async(stream, codec.packed(), noise.data(), noise.size());
    codec.unpack(stream, codec.least_bytes() + 128 * (random() % 9), field.data());
    stream.synchronize();
  }
}

}  // namespace
}  // namespace adjoint

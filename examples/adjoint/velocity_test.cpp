// Velocity models from files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "adjoint/job.hpp"
#include "adjoint/survey.hpp"
#include "adjoint/velocity_file.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace adjoint {
namespace {

using holdfast::Errc;
using holdfast::test::error_of;

class AdjointVelocity : public holdfast::test::Scratch {
 protected:
  void write(const std::string& name, const std::vector<float>& values) const {
    std::vector<char> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    holdfast::test::write_file(path(name), bytes);
  }
};

TEST_F(AdjointVelocity, IsReadRowByRow) {
  std::vector<float> values(20 * 30);
  for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = 1500 + static_cast<float>(i);
  write("model", values);
  EXPECT_EQ(read_velocity(path("model"), 20, 30),
            std::vector<double>(values.begin(), values.end()));
}

TEST_F(AdjointVelocity, WhatIsNoModelIsRefused) {
  const std::vector<float> good(20 * 30, 2000.0F);
  write("model", good);
  const auto read = [&](const std::string& name, std::uint64_t nx, std::uint64_t nz) {
    return [this, name, nx, nz] { read_velocity(path(name), nx, nz); };
  };
  EXPECT_EQ(error_of(read("none", 20, 30), {path("none")}), Errc::io);
  EXPECT_EQ(error_of(read("model", 20, 31), {path("model"), "2400", "2480", "--nz"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of(read("model", 1u << 30, 1u << 30), {"too many"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { read_velocity(path(""), 20, 30); }, {}), Errc::io) << "a folder";
  for (const float bad : {NAN, INFINITY, -INFINITY, 0.0F, -1500.0F, 1.5F, 1e9F}) {
    std::vector<float> values = good;
    values[20 * 7 + 3] = bad;
    write("bad", values);
    EXPECT_EQ(error_of(read("bad", 20, 30), {path("bad"), "x 3, z 7", "metres a second"}),
              Errc::invalid_argument)
        << bad;
  }
}

// With cells of any size and waves of any speed a step is as long as the scheme allows.
TEST_F(AdjointVelocity, ScaleFollowsFromIt) {
  const Scale usual, same = scale_of({1500.0, 2000.0, 3200.0}, 10.0);
  EXPECT_DOUBLE_EQ(same.time_step, usual.time_step);
  EXPECT_DOUBLE_EQ(same.peak_frequency, usual.peak_frequency);
  const std::vector<double> crust(40 * 40, 8040.0);
  const Survey survey = make_survey(40, 40, 10, 1, 1, scale_of(crust, 250.0));
  const std::vector<double> square = courant2(survey, crust);
  EXPECT_NEAR(*std::max_element(square.begin(), square.end()), 0.16, 1e-12);
}

// A shot over two layers that were written to a file; its reflector is where they meet.
TEST_F(AdjointVelocity, AnImageShowsWhereLayersMeet) {
  constexpr std::uint64_t kNx = 60, kNz = 60, kMeet = 30;
  std::vector<float> values(kNx * kNz, 5800.0F);
  std::fill(values.begin() + kNx * kMeet, values.end(), 8040.0F);
  write("crust", values);
  Options options;
  options.nx = kNx;
  options.nz = kNz;
  options.steps = 420;
  options.shots = 2;
  options.velocity = path("crust");
  options.spacing = 1000.0;
  options.image = path("image");
  options.region = path("region");
  std::ostringstream out;
  ASSERT_EQ(run(options, out), 0);
  const std::vector<char> image = holdfast::test::read_file(path("image"));
  const std::size_t head = image.size() - kNx * kNz;
  std::vector<double> rows(kNz);
  for (std::uint64_t z = 0; z < kNz; ++z) {
    for (std::uint64_t x = kNx / 4; x < 3 * kNx / 4; ++x) {
      rows[z] += static_cast<unsigned char>(image[head + z * kNx + x]) - 127.5;
    }
    rows[z] = std::abs(rows[z]);
  }
  const auto strongest = std::max_element(rows.begin() + 12, rows.end()) - rows.begin();
  EXPECT_NEAR(static_cast<double>(strongest), kMeet, 3.0);
  // Another model is another run.
  values[0] = 5700.0F;
  write("crust", values);
  EXPECT_EQ(error_of([&] { run(options, out); }, {"velocity model"}), Errc::conflict);
}

TEST_F(AdjointVelocity, SpacingIsOfAFile) {
  Options options;
  options.spacing = 20.0;
  std::ostringstream out;
  EXPECT_EQ(error_of([&] { run(options, out); }, {"--spacing", "--velocity"}),
            Errc::invalid_argument);
}

}  // namespace
}  // namespace adjoint

// Checkpoints of code written for libGPM: the paper's Figure 7, killed and recovered.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "libgpm/figure7.hpp"
#include "support/killed_child.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace {

using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::Stream;
using holdfast::test::error_of;

std::vector<float> weights_after(std::uint32_t passes) {
  std::vector<float> weights(figure7::kWeights);
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = figure7::trained(weights[i], i, pass);
    }
  }
  return weights;
}

class LibGpmCheckpoint : public holdfast::test::Scratch {};

TEST(LibGpmCheckpointChild, DISABLED_TrainsUntilKilled) {
  const std::string file = holdfast::test::from_environment("HOLDFAST_TEST_PATH");
  figure7::dnn_training(file.c_str(), true, [](std::uint32_t passes, const auto&) {
    holdfast::test::report(passes);
    return true;
  });
}

TEST_F(LibGpmCheckpoint, Figure7RecoversFromKills) {
  std::mt19937_64 random(holdfast::test::test_seed());
  const std::string file = path("file_weights");
  figure7::dnn_training(file.c_str(), false,
                        [](std::uint32_t passes, const auto&) { return passes < 2; });
  std::uint32_t reported = 2;
  for (holdfast::test::KillRounds rounds(holdfast::test::some_of(12, 4));
       rounds.another(reported > 2);) {
    const auto told = holdfast::test::told_until_killed<std::uint32_t>(
        "LibGpmCheckpointChild.DISABLED_TrainsUntilKilled", arenas(),
        {{"HOLDFAST_TEST_PATH", file}}, random, rounds.most_microseconds(40'000));
    ASSERT_FALSE(told.empty());
    EXPECT_GE(told.front(), reported) << "a checkpoint was lost";
    reported = told.back();
    figure7::dnn_training(file.c_str(), true, [&](std::uint32_t passes, const auto& weights) {
      EXPECT_GE(passes, reported) << "a checkpoint was lost";
      EXPECT_LE(passes, reported + 1) << "a checkpoint that never was";
      EXPECT_EQ(weights, weights_after(passes)) << "a torn checkpoint, of pass " << passes;
      reported = passes;
      return false;
    });
  }
}

TEST_F(LibGpmCheckpoint, GroupsAreSavedAndRestoredOnTheirOwn) {
  Stream stream;
  const DeviceBuffer<char> a(5000), b(300), c(70);
  const auto fill = [&](int value) {
    for (const auto* buffer : {&a, &b, &c}) {
      holdfast::fill_async(stream, buffer->data(), value, buffer->size());
    }
    stream.synchronize();
  };
  const auto first_of = [&](const DeviceBuffer<char>& buffer) {
    std::vector<char> bytes(buffer.size());
    holdfast::copy_async(stream, bytes.data(), buffer.data(), bytes.size());
    stream.synchronize();
    EXPECT_EQ(bytes, std::vector<char>(bytes.size(), bytes[0]));
    return static_cast<int>(bytes[0]);
  };
  const auto add_all = [&](gpmcp* checkpoint) {
    gpmcp_register(checkpoint, a.data(), a.size(), 0);
    gpmcp_register(checkpoint, c.data(), c.size(), 2);
    gpmcp_register(checkpoint, b.data(), b.size(), 0);
  };
  const std::string file = path();
  gpmcp* checkpoint = gpmcp_create(file.c_str(), 5370, 2, 3);
  add_all(checkpoint);
  EXPECT_EQ(error_of([&] { gpmcp_restore(checkpoint, 0); }, {"group 0", "never saved"}),
            Errc::not_found);
  fill(1);
  gpmcp_checkpoint(checkpoint, 0);
  fill(2);
  gpmcp_checkpoint(checkpoint, 2);
  gpmcp_close(checkpoint);
  checkpoint = gpmcp_open(file.c_str());
  add_all(checkpoint);
  fill(3);
  gpmcp_restore(checkpoint, 2);
  EXPECT_EQ((std::vector{first_of(a), first_of(b), first_of(c)}), (std::vector{3, 3, 2}));
  gpmcp_restore(checkpoint, 0);
  EXPECT_EQ((std::vector{first_of(a), first_of(b), first_of(c)}), (std::vector{1, 1, 2}));
  gpmcp_close(checkpoint);
}

TEST_F(LibGpmCheckpoint, AnotherOrderOrSizeIsRefused) {
  const DeviceBuffer<char> a(5000), b(300);
  const std::string file = path();
  gpmcp* checkpoint = gpmcp_create(file.c_str(), 8000, 2, 1);
  gpmcp_register(checkpoint, a.data(), a.size(), 0);
  gpmcp_register(checkpoint, b.data(), b.size(), 0);
  gpmcp_checkpoint(checkpoint, 0);
  gpmcp_close(checkpoint);
  const auto refused = [&](std::vector<const DeviceBuffer<char>*> buffers, std::size_t more,
                           std::vector<std::string> words) {
    gpmcp* opened = gpmcp_open(file.c_str());
    for (const auto* buffer : buffers) {
      gpmcp_register(opened, buffer->data(), buffer->size() - more, 0);
    }
    EXPECT_EQ(error_of([&] { gpmcp_restore(opened, 0); }, words), Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { gpmcp_checkpoint(opened, 0); }, words), Errc::invalid_argument);
    gpmcp_close(opened);
  };
  refused({&b, &a}, 0, {"element 0", "5000", "300"});
  refused({&a, &b}, 1, {"element 0", "5000", "4999"});
  refused({&a}, 0, {"element 1", "not added"});
}

// However the bytes are shared out, there is room for what the limits allow.
TEST_F(LibGpmCheckpoint, TheLimitsCanBeReached) {
  constexpr int kGroups = 40;
  const DeviceBuffer<char> data(kGroups * 16 + 4096);
  const std::string file = path();
  gpmcp* checkpoint = gpmcp_create(file.c_str(), data.size(), 16, kGroups);
  for (int group = 0; group < kGroups; ++group) {
    for (int i = 0; i < 15; ++i) gpmcp_register(checkpoint, data.data(), 1, group);
    gpmcp_register(checkpoint, data.data(), group == 0 ? 4097 : 1, group);
    gpmcp_checkpoint(checkpoint, group);
  }
  EXPECT_EQ(error_of([&] { gpmcp_register(checkpoint, data.data(), 1, 1); }, {"16 in each group"}),
            Errc::invalid_argument);
  gpmcp_close(checkpoint);
}

TEST_F(LibGpmCheckpoint, MisuseIsRefused) {
  const DeviceBuffer<char> data(100);
  const std::string file = path();
  EXPECT_EQ(error_of([&] { gpmcp_create(file.c_str(), 0, 1, 1); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { gpmcp_create(file.c_str(), ~std::size_t{0}, 1, 1); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { gpmcp_create(file.c_str(), 100, 0, 1); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { gpmcp_create(file.c_str(), 100, 1, 501); }, {"500 groups"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { gpmcp_open(file.c_str()); }), Errc::not_found);
  void* memory = gpm_map(file.c_str(), 100, true);
  gpm_unmap(file.c_str(), memory, 100);
  EXPECT_EQ(error_of([&] { gpmcp_open(file.c_str()); }, {"gpmcp_create"}), Errc::not_found);
  EXPECT_EQ(error_of([&] { gpmcp_close(nullptr); }), Errc::invalid_argument);

  const std::string other = path("other");
  gpmcp* checkpoint = gpmcp_create(other.c_str(), 100, 2, 2);
  EXPECT_EQ(error_of([&] { gpmcp_create(other.c_str(), 100, 2, 2); }), Errc::already_exists);
  EXPECT_EQ(error_of([&] { gpmcp_open(other.c_str()); }), Errc::in_use);
  const auto add = [&](std::size_t size, int group) {
    gpmcp_register(checkpoint, data.data(), size, group);
  };
  EXPECT_EQ(error_of([&] { add(10, 2); }, {"no group 2", "0 to 1"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { add(10, -1); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { add(101, 0); }, {"100 bytes in all"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { add(0, 0); }), Errc::invalid_argument);
  add(60, 0);
  EXPECT_EQ(error_of([&] { add(41, 1); }, {"100 bytes in all"}), Errc::invalid_argument);
  add(40, 1);
  EXPECT_EQ(error_of([&] { gpmcp_checkpoint(checkpoint, 3); }, {"no group 3"}),
            Errc::invalid_argument);
  gpmcp_checkpoint(checkpoint, 0);
  EXPECT_EQ(error_of([&] { add(1, 0); }), Errc::invalid_argument);
  gpmcp_close(checkpoint);
  EXPECT_EQ(error_of([&] { gpmcp_checkpoint(checkpoint, 0); }, {"not an open"}),
            Errc::invalid_argument);
}

}  // namespace

// The gradient: against finite differences, as the transposed of the linearised shot, and the same
// from every store.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "adjoint/misfit.hpp"
#include "adjoint/stores.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace adjoint {
namespace {

using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::Stream;
using holdfast::test::error_of;

constexpr std::uint64_t kNx = 40, kNz = 30, kSteps = 220;

struct Case {
  Survey survey = make_survey(kNx, kNz, kSteps, 2);
  std::vector<double> truth = courant2(survey, layered_velocity(kNx, kNz));
  std::vector<double> model = courant2(survey, smoothed(layered_velocity(kNx, kNz), kNx, kNz, 3.0));
};

struct Result {
  std::vector<double> sensitivity, correlation, illumination;
  double misfit = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Result& other) const {
    return sensitivity == other.sensitivity && correlation == other.correlation &&
           illumination == other.illumination && misfit == other.misfit;
  }
};

template <class Real>
Result gradient(const Case& of, StoreOptions options, bool compress = false,
                std::uint64_t shots = 1) {
  Stream stream;
  Misfit<Real> misfit(stream, of.survey, of.truth, compress);
  options.advance = [&](std::uint64_t step, Stream& on) { misfit.solver().advance(step, on); };
  const auto store = make_store(options);
  SumBuffers<Real> sums(of.survey.grid.cells);
  Result result;
  for (std::uint64_t shot = 0; shot < shots; ++shot) {
    result.misfit += misfit.gradient(stream, of.model, shot, *store, sums.sums());
  }
  const auto host = [&](const DeviceBuffer<Real>& sum) {
    return to_host(stream, sum.data(), sum.size());
  };
  result.sensitivity = host(sums.sensitivity);
  result.correlation = host(sums.correlation);
  result.illumination = host(sums.illumination);
  result.bytes = store->most_bytes();
  return result;
}

template <class Real>
Result gradient(const Case& of, const std::string& name, std::uint64_t snapshots = 0,
                bool compress = false, std::uint64_t shots = 1) {
  return gradient<Real>(of, StoreOptions{name, snapshots, nullptr}, compress, shots);
}

TEST(Gradient, PassesTaylorsTest) {
  const Case of;
  const std::uint64_t seed = holdfast::test::test_seed();
  for (const std::uint64_t snapshots : {0, 3}) {
    const Result exact = gradient<double>(of, snapshots == 0 ? "memory" : "revolve", snapshots);
    Stream stream;
    Misfit<double> misfit(stream, of.survey, of.truth);
    const TaylorTest test =
        taylor_test([&](const std::vector<double>& model) { return misfit.of(stream, model, 0); },
                    of.model, exact.sensitivity, seed);
    ASSERT_EQ(test.lines.size(), 6u);
    EXPECT_GT(test.order_with, 1.95);
  }
}

// Central differences in single cells: near the source, at a receiver, in the sponge, in the
// middle.
TEST(Gradient, IsRightCellByCell) {
  const Case of;
  const Result exact = gradient<double>(of, "memory");
  Stream stream;
  Misfit<double> misfit(stream, of.survey, of.truth);
  const Grid& grid = of.survey.grid;
  double largest = 0;
  for (const double value : exact.sensitivity) largest = std::max(largest, std::abs(value));
  for (const std::uint32_t cell :
       {of.survey.sources[0], of.survey.receivers[5], of.survey.image_at(20, 15),
        of.survey.image_at(7, 22), grid.at(kSponge - 3, 40), grid.at(0, 0), grid.at(50, 10)}) {
    std::vector<double> model = of.model;
    constexpr double kStep = 1e-4;
    model[cell] = of.model[cell] * (1 + kStep);
    const double above = misfit.of(stream, model, 0);
    model[cell] = of.model[cell] * (1 - kStep);
    const double slope = (above - misfit.of(stream, model, 0)) / (2 * kStep);
    EXPECT_NEAR(slope, -exact.sensitivity[cell], 1e-6 * largest) << "cell " << cell;
  }
}

// <F m, r> = <m, F' r> for any m and r: F by the linearised shot, F' by the backward pass.
template <class Real>
double mismatch(std::uint64_t seed) {
  const Case of;
  std::mt19937_64 random(seed);
  const auto draw = [&](std::uint64_t count) {
    std::vector<double> values(count);
    for (double& value : values) {
      value = static_cast<float>(2.0 * static_cast<double>(random() >> 11) * 0x1p-53 - 1.0);
    }
    return values;
  };
  Stream stream;
  Solver<Real> solver(of.survey);
  const std::vector<double> relative = draw(of.survey.grid.cells);
  const std::vector<double> residuals = draw(solver.trace_values());
  std::vector<double> change(relative.size());
  for (std::uint64_t i = 0; i < change.size(); ++i) change[i] = relative[i] * of.model[i];
  const auto model = to_device<Real>(stream, of.model);
  const auto device_change = to_device<Real>(stream, change);
  const auto device_residuals = to_device<Real>(stream, residuals);
  DeviceBuffer<Real> traces(solver.trace_values());
  solver.linearised(stream, model.data(), device_change.data(), 0, traces.data());
  const std::vector<double> image = to_host(stream, traces.data(), traces.size());
  double forwards = 0, size = 0;
  for (std::uint64_t i = 0; i < image.size(); ++i) {
    forwards += image[i] * residuals[i];
    size += std::abs(image[i] * residuals[i]);
  }
  MemoryStore store;
  SumBuffers<Real> sums(of.survey.grid.cells);
  solver.forward(stream, model.data(), 0, traces.data(), store);
  solver.backward(stream, device_residuals.data(), store, sums.sums());
  const std::vector<double> sum = to_host(stream, sums.sensitivity.data(), sums.sensitivity.size());
  double backwards = 0;
  for (std::uint64_t i = 0; i < sum.size(); ++i) backwards -= sum[i] * relative[i];
  return std::abs(forwards - backwards) / std::max(std::abs(forwards), 1e-2 * size);
}

TEST(Gradient, BackwardIsForwardTransposed) {
  const std::uint64_t seed = holdfast::test::test_seed();
  EXPECT_LT(mismatch<double>(seed), 1e-12);
  EXPECT_LT(mismatch<float>(seed), 1e-3);
}

TEST(Gradient, IsTheSameBitsFromEveryStore) {
  const Case of;
  const Result memory = gradient<float>(of, "memory", 0, false, 2);
  EXPECT_EQ(gradient<float>(of, "memory", 0, false, 2), memory) << "run twice";
  for (const std::uint64_t snapshots : {2, 7, 220, 500}) {
    const Result revolve = gradient<float>(of, "revolve", snapshots, false, 2);
    EXPECT_EQ(revolve, memory) << snapshots << " snapshots";
    EXPECT_LE(revolve.bytes, snapshots * 2 * of.survey.grid.cells * sizeof(float));
  }
  EXPECT_EQ(memory.bytes, kSteps * of.survey.grid.cells * sizeof(float));
}

// Caches that hold a part of a shot, so that steps come from all tiers.
TEST(Gradient, IsTheSameBitsFromAHistory) {
  const Case of;
  const holdfast::test::ScratchFolders scratch;
  const std::uint64_t shot = kSteps * of.survey.grid.cells * sizeof(float);
  StoreOptions options{.name = "history", .advance = nullptr};
  const auto tried = holdfast::test::every(1, 4);
  std::uint64_t number = 0;
  for (const bool compress : {false, true}) {
    const Result memory = gradient<float>(of, "memory", 0, compress, 2);
    for (const std::uint64_t part : {4, 16}) {
      if (number++ % tried.step != tried.first) continue;
      options.gpu_cache = shot / part;
      options.host_cache = shot / part;
      options.folder = scratch.arenas() + "/" + std::to_string(part) + (compress ? "c" : "");
      EXPECT_EQ(gradient<float>(of, options, compress, 2), memory) << "a part in " << part;
    }
  }
}

// Gives back nothing of the steps that an image of every so many steps lacks.
class SparseStore : public MemoryStore {
 public:
  SparseStore(std::uint64_t every, std::uint64_t bytes) : every_(every), nothing_(bytes) {}
  void protect(const std::string& name, void* device, std::uint64_t bytes) override {
    device_ = device;
    MemoryStore::protect(name, device, bytes);
  }
  void restore(std::uint64_t step, Stream& stream) override {
    if (step % every_ == 0) return MemoryStore::restore(step, stream);
    copy_async(stream, device_, nothing_.data(), nothing_.bytes());
  }

 private:
  std::uint64_t every_;
  DeviceBuffer<unsigned char> nothing_;  // zeroed
  void* device_ = nullptr;
};

// From every store, and with an interval that divides the steps, or does not, or leaves the first.
TEST(Gradient, AnImageOfEverySoManyStepsIsTheSumOverThose) {
  const Case all;
  for (const std::uint64_t every : {2, 7, 55, 220}) {
    Stream stream;
    Misfit<float> misfit(stream, all.survey, all.truth);
    SparseStore store(every, misfit.solver().field_bytes());
    SumBuffers<float> sums(all.survey.grid.cells);
    misfit.gradient(stream, all.model, 0, store, sums.sums());
    Case some;
    some.survey.every = every;
    const Result memory = gradient<float>(some, "memory");
    EXPECT_EQ(memory.correlation,
              to_host(stream, sums.correlation.data(), sums.correlation.size()));
    EXPECT_EQ(memory.illumination,
              to_host(stream, sums.illumination.data(), sums.illumination.size()));
    EXPECT_EQ(memory.bytes, some.survey.imaged() * misfit.solver().field_bytes());
    EXPECT_EQ(gradient<float>(some, "revolve", 3), memory) << "every " << every;
    EXPECT_EQ(gradient<float>(some, "memory", 0, true).misfit, memory.misfit);
  }
}

TEST(Gradient, SingleAndDoublePrecisionAgree) {
  const Case of;
  const Result single = gradient<float>(of, "memory"), twice = gradient<double>(of, "memory");
  EXPECT_LT(relative_error(single.sensitivity, twice.sensitivity), 1e-3);
  EXPECT_NEAR(single.misfit, twice.misfit, 1e-3 * twice.misfit);
}

// Of half the bytes; and what was dropped were blocks that no wave had come to.
TEST(Gradient, CompressionChangesItLittle) {
  const Case of;
  const Result exact = gradient<float>(of, "memory", 0, false, 2);
  const Result packed = gradient<float>(of, "memory", 0, true, 2);
  EXPECT_EQ(gradient<float>(of, "memory", 0, true, 2), packed);
  EXPECT_EQ(packed.misfit, exact.misfit);
  const double error = relative_error(packed.sensitivity, exact.sensitivity);
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 1e-3);
  EXPECT_LT(packed.bytes * 2, exact.bytes);
  RecordProperty("relative_error", std::to_string(error));
}

TEST(Gradient, NothingIsComputedFromPackedSnapshots) {
  const Case of;
  EXPECT_EQ(error_of([&] { gradient<float>(of, "revolve", 3, true); }, {"--compress", "memory"}),
            Errc::invalid_argument);
}

// The model that made the data has no misfit, and no gradient.
TEST(Gradient, VanishesAtTheTruth) {
  Case of;
  of.model = of.truth;
  const Result none = gradient<float>(of, "revolve", 4);
  EXPECT_EQ(none.misfit, 0);
  for (const double value : none.sensitivity) ASSERT_EQ(value, 0);
}

}  // namespace
}  // namespace adjoint

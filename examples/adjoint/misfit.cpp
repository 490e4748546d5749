#include "adjoint/misfit.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::DeviceBuffer;
using holdfast::Stream;

namespace {

// What a block declares behind its buffers: they are in use until the stream is done, also where an
// exception leaves it. What the stream met is for its next wait to say.
class Settle {
 public:
  explicit Settle(Stream& stream) : stream_(stream) {}
  ~Settle() {
    try {
      stream_.synchronize();
    } catch (const holdfast::Error&) {
    }
  }
  Settle(const Settle&) = delete;
  Settle& operator=(const Settle&) = delete;

 private:
  Stream& stream_;
};

}  // namespace

template <class Real>
Misfit<Real>::Misfit(Stream& stream, const Survey& survey, const std::vector<double>& observed,
                     bool compress)
    : solver_(survey, compress),
      true_courant2_(to_device<Real>(stream, observed)),
      observed_(solver_.trace_values()),
      traces_(solver_.trace_values()) {}

template <class Real>
void Misfit<Real>::observe(Stream& stream, std::uint64_t shot) {
  if (observed_shot_ == shot) return;
  solver_.record(stream, true_courant2_.data(), shot, observed_.data());
  observed_shot_ = shot;
}

// Leaves d - observed in the traces.
template <class Real>
double Misfit<Real>::residuals(Stream& stream) {
  subtract(stream, traces_.size(), traces_.data(), observed_.data());
  return half_square(to_host(stream, traces_.data(), traces_.size()));
}

template <class Real>
double Misfit<Real>::of(Stream& stream, const std::vector<double>& courant2, std::uint64_t shot) {
  observe(stream, shot);
  const DeviceBuffer<Real> model = to_device<Real>(stream, courant2);
  const Settle settle(stream);
  solver_.record(stream, model.data(), shot, traces_.data());
  return residuals(stream);
}

template <class Real>
double Misfit<Real>::gradient(Stream& stream, const std::vector<double>& courant2,
                              std::uint64_t shot, SnapshotStore& store, const Sums<Real>& sums) {
  observe(stream, shot);
  const DeviceBuffer<Real> model = to_device<Real>(stream, courant2);
  const Settle settle(stream);
  double result = 0;
  const ShotPlace place =
      solver_.resume(stream, model.data(), shot, traces_.data(), store, sums, result);
  if (on_place_) on_place_(shot, place);
  solver_.forward(stream, model.data(), shot, traces_.data(), store);
  const double misfit = residuals(stream);
  if (place.left == solver_.survey().imaged()) result = misfit;  // of all traces
  solver_.backward(stream, traces_.data(), store, sums, result);
  stream.synchronize();
  return result;
}

template class Misfit<float>;
template class Misfit<double>;

TaylorTest taylor_test(const std::function<double(const std::vector<double>&)>& misfit,
                       const std::vector<double>& courant2, const std::vector<double>& sensitivity,
                       std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> direction(courant2.size());
  double slope = 0;
  for (std::uint64_t i = 0; i < direction.size(); ++i) {
    direction[i] = 2.0 * static_cast<double>(random() >> 11) * 0x1p-53 - 1.0;
    slope -= sensitivity[i] * direction[i];  // dJ/dk = -sensitivity / k, and k changes by k d
  }
  constexpr double kFiner = 4;
  const auto order = [](double before, double after) {
    return std::log(before / after) / std::log(kFiner);
  };
  const double here = misfit(courant2);
  TaylorTest test;
  test.order_with = test.order_without = INFINITY;
  for (int line_number = 0; line_number < 6; ++line_number) {
    const double h = 0x1p-8 / std::pow(kFiner, line_number);
    std::vector<double> there = courant2;
    for (std::uint64_t i = 0; i < there.size(); ++i) there[i] *= 1.0 + h * direction[i];
    const double change = misfit(there) - here;
    const TaylorLine line{h, std::abs(change), std::abs(change - h * slope)};
    if (!test.lines.empty()) {
      const TaylorLine& before = test.lines.back();
      test.order_without = std::min(test.order_without, order(before.without, line.without));
      test.order_with = std::min(test.order_with, order(before.with, line.with));
    }
    test.lines.push_back(line);
  }
  return test;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::uint64_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace adjoint

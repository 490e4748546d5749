// The misfit of a model to what was observed, its gradient, and the test of the one by the other.
//
// Tested by gradient_test.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "adjoint/solver.hpp"

namespace adjoint {

// The sums of a solver in device memory, zeroed.
template <class Real>
class SumBuffers {
 public:
  explicit SumBuffers(std::uint64_t cells)
      : sensitivity(cells), correlation(cells), illumination(cells) {}
  Sums<Real> sums() const { return {sensitivity.data(), correlation.data(), illumination.data()}; }

  holdfast::DeviceBuffer<Real> sensitivity, correlation, illumination;
};

// Thread safety: one thread, one stream.
template <class Real>
class Misfit {
 public:
  // `observed`: courant2() of the true velocity, in which each shot is simulated first.
  Misfit(holdfast::Stream& stream, const Survey& survey, const std::vector<double>& observed,
         bool compress = false);

  Solver<Real>& solver() { return solver_; }
  // Called by gradient() with a shot, and from where it goes on.
  void on_place(std::function<void(std::uint64_t shot, const ShotPlace& place)> call) {
    on_place_ = std::move(call);
  }
  // Of one shot; they wait for the stream. gradient() adds to the sums.
  double of(holdfast::Stream& stream, const std::vector<double>& courant2, std::uint64_t shot);
  double gradient(holdfast::Stream& stream, const std::vector<double>& courant2, std::uint64_t shot,
                  SnapshotStore& store, const Sums<Real>& sums);

 private:
  void observe(holdfast::Stream& stream, std::uint64_t shot);
  double residuals(holdfast::Stream& stream);

  Solver<Real> solver_;
  std::function<void(std::uint64_t, const ShotPlace&)> on_place_;
  holdfast::DeviceBuffer<Real> true_courant2_, observed_, traces_;
  std::uint64_t observed_shot_ = ~std::uint64_t{0};
};

// J(k (1 + h d)) for ever smaller h, without the gradient's part and with it: what is left has to
// fall as h does, and as its square.
struct TaylorLine {
  double h = 0;
  double without = 0;  // |J(h) - J(0)|
  double with = 0;     // |J(h) - J(0) - h dJ|
};
struct TaylorTest {
  std::vector<TaylorLine> lines;
  // Least exponents with which they fall from a line to the next.
  double order_without = 0;
  double order_with = 0;
};
// `misfit` of a model; d is drawn from `seed`, between -1 and 1 for each cell.
TaylorTest taylor_test(const std::function<double(const std::vector<double>&)>& misfit,
                       const std::vector<double>& courant2, const std::vector<double>& sensitivity,
                       std::uint64_t seed);

// |a - b| / |b|, Euclidean.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace adjoint

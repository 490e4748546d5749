// A shot: the forward pass, and the backward pass that gives the gradient and the image.
//
// With d[n] the samples of u[n] at the receivers and J = 1/2 sum over n of |d[n] - observed[n]|^2,
// the adjoint v goes from v[N] = v[N+1] = 0 downwards,
//   (1 + a) v[n-1] = 2 v[n] - (1 - a) v[n+1] + k (D v[n] - R^T (d[n] - observed[n])),
// and dJ/dk = -1/k sum over n < N of v[n] (D u[n] + f[n]): the backward pass needs u[n] of every
// step, from the last one to the first, which a SnapshotStore keeps. With Survey::every above 1 it
// is the sum over every so many steps, and the image is made of those: the wavelet has nothing
// above a fraction of the time step's frequency, so that an image lacks nothing; the gradient is
// not exact then. A store counts the steps that are kept: its step i is step i * every.
//
// Invariant: sums and traces are the same bits for every store and from run to run; with a codec,
// for every store that keeps each step. Tested by: wave_test (against another program),
// gradient_test (Taylor, transposition, stores).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "adjoint/shot_points.hpp"
#include "adjoint/snapshot_store.hpp"
#include "adjoint/survey.hpp"
#include "adjoint/wave.hpp"
#include "adjoint/wavefield_codec.hpp"
#include "holdfast/stream.hpp"

namespace adjoint {

// Traces: `steps` rows of a value for each receiver; row n is of u[n + 1]. All pointers are to
// device memory. Stream-ordered, but with a codec, which waits at each step. Thread safety: one
// thread, one stream.
template <class Real>
class Solver {
 public:
  explicit Solver(const Survey& survey, bool compress = false);

  const Survey& survey() const { return survey_; }
  std::uint64_t trace_values() const { return survey_.steps * survey_.receivers.size(); }
  std::uint64_t field_bytes() const { return state_[0].bytes(); }

  // The traces of a shot.
  void record(holdfast::Stream& stream, const Real* courant2, std::uint64_t shot, Real* traces);
  // Throws invalid_argument for a store that recomputes, with a codec: it would compute with
  // errors.
  void check(const SnapshotStore& store) const;
  // What a killed run has left of the shot, if its store can tell: forward() and backward(), which
  // are called as ever, go on from there. Loads the traces up to there, the sums, and the misfit,
  // but the latter two only if the backward pass had begun, which the place says. Throws as
  // check().
  ShotPlace resume(holdfast::Stream& stream, const Real* courant2, std::uint64_t shot, Real* traces,
                   SnapshotStore& store, const Sums<Real>& sums, double& misfit);
  // The same, with the steps of the image offered to the store. Throws as check().
  void forward(holdfast::Stream& stream, const Real* courant2, std::uint64_t shot, Real* traces,
               SnapshotStore& store);
  // REQUIRES: forward() with the same store and courant2 was the last call. `residuals` is what the
  // receivers inject, d - observed. Adds to the sums. The misfit is for points.
  void backward(holdfast::Stream& stream, const Real* residuals, SnapshotStore& store,
                const Sums<Real>& sums, double misfit = 0);
  // How the traces change, to first order, with a change of courant2.
  void linearised(holdfast::Stream& stream, const Real* courant2, const Real* change,
                  std::uint64_t shot, Real* traces);

  // For a store that recomputes: from a step of the image, by its number, to the next one.
  // REQUIRES: the shot of forward().
  void advance(std::uint64_t number, holdfast::Stream& stream);

 private:
  void begin(holdfast::Stream& stream, const Real* courant2, std::uint64_t shot);
  void advance_step(std::uint64_t step, holdfast::Stream& stream);
  void keep(std::uint64_t step, SnapshotStore& store, holdfast::Stream& stream);
  bool load_points(holdfast::Stream& stream, Real* traces, ShotPoints& points,
                   const Sums<Real>& sums, double& misfit);
  void save_point(std::uint64_t n, ShotPoints& points, holdfast::Stream& stream,
                  const Sums<Real>& sums, double misfit);
  std::vector<PointArray> forward_point(std::uint64_t step, std::uint64_t interval, Real* traces);
  std::vector<PointArray> backward_point(std::uint64_t step, const Sums<Real>& sums,
                                         double& misfit);
  void load(std::uint64_t step, SnapshotStore& store, holdfast::Stream& stream);
  Pulse<Real> pulse(std::uint64_t step) const;
  // u[n] and v[n]; the one before and the one behind share a place.
  Real* state(std::uint64_t step) const { return state_[step % 2].data(); }
  Real* adjoint(std::uint64_t step) const { return adjoint_[step % 2].data(); }

  Survey survey_;
  holdfast::DeviceBuffer<Real> damping_;
  holdfast::DeviceBuffer<std::uint32_t> receiver_cells_;
  holdfast::DeviceBuffer<Real> state_[2], adjoint_[2];
  std::optional<WavefieldCodec<Real>> codec_;
  Receivers receivers_;
  Medium<Real> medium_;
  std::uint64_t shot_ = 0;
  std::optional<ShotPlace> place_;  // of resume(), until backward() is done
};

// Copies to the device, in another precision, and back. They wait.
template <class Real>
holdfast::DeviceBuffer<Real> to_device(holdfast::Stream& stream, const std::vector<double>& values);
template <class Real>
std::vector<double> to_host(holdfast::Stream& stream, const Real* values, std::uint64_t count);

// 1/2 sum of squares, in order.
double half_square(const std::vector<double>& residuals);

}  // namespace adjoint

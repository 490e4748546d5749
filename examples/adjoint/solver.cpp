#include "adjoint/solver.hpp"

#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::DeviceBuffer;
using holdfast::Errc;
using holdfast::Error;
using holdfast::Stream;

template <class Real>
Solver<Real>::Solver(const Survey& survey, bool compress)
    : survey_(survey), receiver_cells_(survey.receivers.size()) {
  Stream stream;
  damping_ = to_device<Real>(stream, survey.damping);
  copy_async(stream, receiver_cells_.data(), survey.receivers.data(), receiver_cells_.bytes());
  stream.synchronize();
  for (auto* fields : {state_, adjoint_}) {
    for (int i = 0; i < 2; ++i) fields[i] = DeviceBuffer<Real>(survey.grid.cells);
  }
  if (compress) codec_.emplace(survey.grid.cells);
  receivers_ = {receiver_cells_.data(), static_cast<std::uint32_t>(survey.receivers.size())};
}

template <class Real>
void Solver<Real>::begin(Stream& stream, const Real* courant2, std::uint64_t shot) {
  shot_ = shot;
  medium_ = {courant2, damping_.data()};
  for (auto* fields : {state_, adjoint_}) {
    for (int i = 0; i < 2; ++i) fill_async(stream, fields[i].data(), 0, fields[i].bytes());
  }
}

template <class Real>
Pulse<Real> Solver<Real>::pulse(std::uint64_t step) const {
  return {survey_.sources[shot_], static_cast<Real>(survey_.wavelet[step])};
}

template <class Real>
void Solver<Real>::advance_step(std::uint64_t n, Stream& stream) {
  step(stream, survey_.grid, medium_, state(n), state(n + 1), state(n + 1), pulse(n));
}

template <class Real>
void Solver<Real>::advance(std::uint64_t number, Stream& stream) {
  const std::uint64_t first = number * survey_.every;
  for (std::uint64_t n = first; n < first + survey_.every; ++n) advance_step(n, stream);
}

template <class Real>
void Solver<Real>::record(Stream& stream, const Real* courant2, std::uint64_t shot, Real* traces) {
  begin(stream, courant2, shot);
  for (std::uint64_t n = 0; n < survey_.steps; ++n) {
    advance_step(n, stream);
    sample(stream, state(n + 1), receivers_, traces + n * receivers_.count);
  }
}

template <class Real>
void Solver<Real>::check(const SnapshotStore& store) const {
  if (!codec_ || !store.recomputes()) return;
  throw Error(Errc::invalid_argument,
              "adjoint: revolve computes steps from its snapshots, which must be exact: leave "
              "--compress away, or keep every step (--store memory)");
}

// At the step of the image whose number is `step`.
template <class Real>
std::vector<PointArray> Solver<Real>::forward_point(std::uint64_t step, std::uint64_t interval,
                                                    Real* traces) {
  const std::uint64_t n = step * survey_.every, rows = interval * survey_.every;
  return {
      {"now", state(n), state_[0].bytes()},
      {"before", state(n + 1), state_[0].bytes()},
      {"traces", traces + (n - rows) * receivers_.count, rows * receivers_.count * sizeof(Real)}};
}

// Behind that step, which the sums have already.
template <class Real>
std::vector<PointArray> Solver<Real>::backward_point(std::uint64_t step, const Sums<Real>& sums,
                                                     double& misfit) {
  const std::uint64_t n = step * survey_.every, bytes = state_[0].bytes();
  return {{"now", adjoint(n), bytes},
          {"before", adjoint(n + 1), bytes},
          {"sensitivity", sums.sensitivity, bytes},
          {"correlation", sums.correlation, bytes},
          {"illumination", sums.illumination, bytes},
          {"misfit", &misfit, sizeof misfit, holdfast::BufferMemory::host}};
}

// False: one was damaged, and another place is to be found.
template <class Real>
bool Solver<Real>::load_points(Stream& stream, Real* traces, ShotPoints& points,
                               const Sums<Real>& sums, double& misfit) {
  for (std::uint64_t step = points.interval(); step <= place_->from; step += points.interval()) {
    const auto arrays = forward_point(step, points.interval(), traces);
    if (!points.load(Pass::forward, step, arrays, stream)) return false;
  }
  if (place_->left == survey_.imaged()) return true;
  return points.load(Pass::backward, place_->left, backward_point(place_->left, sums, misfit),
                     stream);
}

template <class Real>
ShotPlace Solver<Real>::resume(Stream& stream, const Real* courant2, std::uint64_t shot,
                               Real* traces, SnapshotStore& store, const Sums<Real>& sums,
                               double& misfit) {
  check(store);
  place_.reset();
  ShotPoints* const points = store.points();
  if (points == nullptr) return {0, survey_.imaged()};
  do {
    begin(stream, courant2, shot);
    place_ = points->begin(shot, survey_.imaged());
  } while (!load_points(stream, traces, *points, sums, misfit));
  return *place_;
}

template <class Real>
void Solver<Real>::forward(Stream& stream, const Real* courant2, std::uint64_t shot, Real* traces,
                           SnapshotStore& store) {
  check(store);
  ShotPoints* const points = place_ ? store.points() : nullptr;
  if (points == nullptr) begin(stream, courant2, shot);
  const ShotPlace place = place_.value_or(ShotPlace{0, survey_.imaged()});
  std::vector<std::uint64_t> order(place.left);
  for (std::uint64_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  store.plan(order);
  if (store.recomputes()) {
    store.protect("even", state(0), state_[0].bytes());
    store.protect("odd", state(1), state_[1].bytes());
  }
  // What is behind the last step that is kept only gives samples. It goes elsewhere, so that the
  // arrays stay as they were saved: then a store can restore the last one from there.
  const std::uint64_t last = (survey_.imaged() - 1) * survey_.every;
  const auto field = [&](std::uint64_t n) { return n <= last ? state(n) : adjoint(n - last - 1); };
  const bool whole = place.left == survey_.imaged();
  const std::uint64_t end = whole ? survey_.steps : place.left * survey_.every;
  for (std::uint64_t n = place.from * survey_.every; n < end; ++n) {
    const std::uint64_t number = n / survey_.every;
    if (n % survey_.every == 0) {
      if (points != nullptr && number > place.from && number % points->interval() == 0) {
        points->save(Pass::forward, number, forward_point(number, points->interval(), traces),
                     stream);
      }
      keep(n, store, stream);
    }
    const Real* const before = n <= last ? state(n + 1) : field(n - 1);
    step(stream, survey_.grid, medium_, field(n), before, field(n + 1), pulse(n));
    sample(stream, field(n + 1), receivers_, traces + n * receivers_.count);
  }
}

template <class Real>
void Solver<Real>::keep(std::uint64_t n, SnapshotStore& store, Stream& stream) {
  if (codec_) {
    store.protect("wavefield", codec_->packed(), codec_->pack(stream, state(n)));
  } else if (!store.recomputes()) {
    store.protect("wavefield", state(n), state_[0].bytes());
  }
  store.save(n / survey_.every, stream);
}

template <class Real>
void Solver<Real>::load(std::uint64_t n, SnapshotStore& store, Stream& stream) {
  if (codec_) {
    const std::uint64_t bytes = store.size(n / survey_.every, "wavefield");
    if (bytes > codec_->most_bytes()) codec_->unpack(stream, bytes, state(n));  // throws
    store.protect("wavefield", codec_->packed(), bytes);
    store.restore(n / survey_.every, stream);
    codec_->unpack(stream, bytes, state(n));
    return;
  }
  if (!store.recomputes()) store.protect("wavefield", state(n), state_[0].bytes());
  store.restore(n / survey_.every, stream);
}

template <class Real>
void Solver<Real>::backward(Stream& stream, const Real* residuals, SnapshotStore& store,
                            const Sums<Real>& sums, double misfit) {
  ShotPoints* const points = place_ ? store.points() : nullptr;
  std::uint64_t first = survey_.steps;
  if (points != nullptr && place_->left < survey_.imaged()) {
    first = place_->left * survey_.every;  // its point is loaded
  } else {
    for (auto& field : adjoint_) fill_async(stream, field.data(), 0, field.bytes());
  }
  place_.reset();
  // [backward]
  for (std::uint64_t n = first; n > 0; --n) {
    step(stream, survey_.grid, medium_, adjoint(n), adjoint(n + 1), adjoint(n - 1), {});
    inject(stream, medium_, adjoint(n - 1), receivers_, residuals + (n - 1) * receivers_.count);
    if ((n - 1) % survey_.every != 0) continue;
    load(n - 1, store, stream);
    correlate(stream, survey_.grid, state(n - 1), adjoint(n - 1), pulse(n - 1), sums);
    if (points != nullptr) save_point(n - 1, *points, stream, sums, misfit);
  }
  // [end]
}

template <class Real>
void Solver<Real>::save_point(std::uint64_t n, ShotPoints& points, Stream& stream,
                              const Sums<Real>& sums, double misfit) {
  const std::uint64_t number = n / survey_.every;
  if (number % points.interval() != 0) return;
  points.save(Pass::backward, number, backward_point(number, sums, misfit), stream);
}

template <class Real>
void Solver<Real>::linearised(Stream& stream, const Real* courant2, const Real* change,
                              std::uint64_t shot, Real* traces) {
  begin(stream, courant2, shot);
  for (std::uint64_t n = 0; n < survey_.steps; ++n) {  // the change is where the adjoint else is
    linearised_step(stream, survey_.grid, medium_, adjoint(n), adjoint(n + 1), adjoint(n + 1),
                    change, state(n), pulse(n));
    sample(stream, adjoint(n + 1), receivers_, traces + n * receivers_.count);
    advance_step(n, stream);
  }
}

template <class Real>
DeviceBuffer<Real> to_device(Stream& stream, const std::vector<double>& values) {
  const std::vector<Real> converted(values.begin(), values.end());
  DeviceBuffer<Real> result(values.size());
  copy_async(stream, result.data(), converted.data(), result.bytes());
  stream.synchronize();
  return result;
}

template <class Real>
std::vector<double> to_host(Stream& stream, const Real* values, std::uint64_t count) {
  std::vector<Real> result(count);
  copy_async(stream, result.data(), values, count * sizeof(Real));
  stream.synchronize();
  return {result.begin(), result.end()};
}

double half_square(const std::vector<double>& residuals) {
  double sum = 0;
  for (const double residual : residuals) sum += residual * residual;
  return 0.5 * sum;
}

template class Solver<float>;
template class Solver<double>;
template DeviceBuffer<float> to_device(Stream&, const std::vector<double>&);
template DeviceBuffer<double> to_device(Stream&, const std::vector<double>&);
template std::vector<double> to_host(Stream&, const float*, std::uint64_t);
template std::vector<double> to_host(Stream&, const double*, std::uint64_t);

}  // namespace adjoint

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

template <class Real>
void Solver<Real>::forward(Stream& stream, const Real* courant2, std::uint64_t shot, Real* traces,
                           SnapshotStore& store) {
  check(store);
  begin(stream, courant2, shot);
  std::vector<std::uint64_t> order(survey_.imaged());
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
  for (std::uint64_t n = 0; n < survey_.steps; ++n) {
    if (n % survey_.every == 0) keep(n, store, stream);
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
                            const Sums<Real>& sums) {
  for (auto& field : adjoint_) fill_async(stream, field.data(), 0, field.bytes());
  // [backward]
  for (std::uint64_t n = survey_.steps; n > 0; --n) {
    step(stream, survey_.grid, medium_, adjoint(n), adjoint(n + 1), adjoint(n - 1), {});
    inject(stream, medium_, adjoint(n - 1), receivers_, residuals + (n - 1) * receivers_.count);
    if ((n - 1) % survey_.every != 0) continue;
    load(n - 1, store, stream);
    correlate(stream, survey_.grid, state(n - 1), adjoint(n - 1), pulse(n - 1), sums);
  }
  // [end]
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

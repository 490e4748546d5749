#include "adjoint/history_store.hpp"

#include <algorithm>

#include "holdfast/error.hpp"

namespace adjoint {

using holdfast::BufferMemory;
using holdfast::Errc;
using holdfast::Error;
using holdfast::Stream;
using holdfast::Ticket;
using holdfast::Tier;
using holdfast::detail::concat;

namespace {

// A checkpoint's number: the shot, what it is of, the step of the image.
constexpr unsigned kShotBit = 40, kKindBit = 38;
constexpr std::uint64_t kKindMask = std::uint64_t{3} << kKindBit;
constexpr std::uint64_t kStepMask = (std::uint64_t{1} << kKindBit) - 1;
constexpr std::uint64_t kRun = std::uint64_t{1} << 63;  // that says whose the others are

bool outlives(const holdfast::HistoryOptions& options) {
  return !options.disk.empty() || !options.remote.empty() || !options.host_region.empty();
}

holdfast::HistoryOptions consuming(holdfast::HistoryOptions options, bool resumable) {
  options.discard_consumed = !resumable;
  return options;
}

}  // namespace

HistoryStore::HistoryStore(holdfast::HistoryOptions options, std::optional<Resumption> resumption)
    : history_(holdfast::History::open(consuming(options, resumption && outlives(options)))) {
  check_ours();
  if (!resumption || !outlives(options)) {
    discard_all();
    return;
  }
  if (resumption->interval == 0) {
    throw Error(Errc::invalid_argument, "adjoint: points at every 0 steps: give 1 or more");
  }
  const Tier durable = !options.disk.empty()          ? Tier::disk
                       : !options.host_region.empty() ? Tier::host
                                                      : Tier::remote;
  claim(resumption->run ^ resumption->interval, durable);
  points_.emplace(*this, std::move(*resumption), durable);
}

// A folder that is named by mistake keeps what it has.
void HistoryStore::check_ours() const {
  for (const std::uint64_t step : history_.steps()) {
    const auto has = [&](const char* name) {
      try {
        history_.size(step, name);
        return true;
      } catch (const Error& error) {
        if (error.code() != Errc::not_found) throw;
        return false;
      }
    };
    if (has("wavefield") || has("now") || has("run")) continue;
    throw Error(Errc::conflict, concat("adjoint: step ", step, " in the folder of the history is ",
                                       "of another program: give --folder another path"));
  }
}

// Keeps what is of this run, and nothing else.
void HistoryStore::claim(std::uint64_t run, Tier durable) {
  Stream stream;
  const std::vector<std::uint64_t> steps = history_.steps();
  std::uint64_t theirs = ~run;
  history_.protect("run", &theirs, 1, BufferMemory::host);
  if (std::binary_search(steps.begin(), steps.end(), kRun)) {
    try {
      history_.restore(kRun, stream);
      stream.synchronize();
    } catch (const Error& error) {
      if (error.code() != Errc::damaged && error.code() != Errc::invalid_argument) throw;
      theirs = ~run;
    }
  }
  if (theirs != run) {
    discard_all();
    history_.flush();  // nothing of theirs comes back behind a crash
    history_.discard(kRun);
    theirs = run;
    history_.save(kRun, stream).wait(durable);
  }
  history_.unprotect("run");
}

void HistoryStore::discard_all() {
  for (const std::uint64_t step : history_.steps()) history_.discard(step);
}

std::uint64_t HistoryStore::number(Pass pass, std::uint64_t step) const {
  return base_ | (pass == Pass::forward ? std::uint64_t{1} : std::uint64_t{2}) << kKindBit | step;
}

void HistoryStore::plan(std::span<const std::uint64_t> restore_order) {
  if (!points_) discard_all();
  bytes_ = 0;
  std::vector<std::uint64_t> numbers;
  numbers.reserve(restore_order.size());
  for (const std::uint64_t step : restore_order) numbers.push_back(number(step));
  history_.hint(numbers);
  history_.prefetch_start();  // it waits for the first hint's step, which is saved last
}

void HistoryStore::protect(const std::string& name, void* device, std::uint64_t bytes) {
  history_.protect(name, static_cast<unsigned char*>(device), bytes);
  arrays_[name] = {device, bytes};
}

void HistoryStore::save(std::uint64_t step, Stream& stream) {
  for (const auto& [name, array] : arrays_) bytes_ += array.bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
  if (!is_there(number(step))) history_.save(number(step), stream);
}

void HistoryStore::restore(std::uint64_t step, Stream& stream) {
  try {
    history_.restore(number(step), stream);
  } catch (const Error& error) {
    if (!points_ || error.code() != Errc::damaged) throw;
    history_.discard(number(step));
    throw Error(Errc::damaged, concat("adjoint: run again, and step ", step,
                                      " is computed again: ", error.what()));
  }
}

std::uint64_t HistoryStore::size(std::uint64_t step, const std::string& name) const {
  return history_.size(number(step), name);
}

template <class Use>
auto HistoryStore::with(std::span<const PointArray> arrays, Use use) {
  for (const auto& [name, array] : arrays_) history_.unprotect(name);
  for (const PointArray& array : arrays) {
    history_.protect_raw(array.name, array.data, array.bytes, array.memory);
  }
  struct Back {
    HistoryStore& store;
    std::span<const PointArray> arrays;
    ~Back() {
      try {
        for (const PointArray& array : arrays) store.history_.unprotect(array.name);
        for (const auto& [name, array] : store.arrays_) {
          store.history_.protect_raw(name, array.device, array.bytes);
        }
      } catch (const Error&) {  // of a history that is broken, which the next call says
      }
    }
  };
  const Back back{*this, arrays};
  return use();
}

// The newest point of the backward pass counts; then the newest of the forward pass that is no
// further than the first snapshot that is missing, with all points before it, whose traces it
// needs.
ShotPlace HistoryStore::Points::place(std::uint64_t steps) const {
  ShotPlace place{0, steps};
  for (std::uint64_t step = 0; step < steps; step += interval()) {
    if (!store_.is_there(store_.number(Pass::backward, step))) continue;
    place.left = step;
    break;
  }
  std::uint64_t whole = 0;
  while (whole < place.left && store_.is_there(store_.number(whole))) ++whole;
  for (std::uint64_t step = interval(); step <= whole; step += interval()) {
    if (!store_.is_there(store_.number(Pass::forward, step))) break;
    place.from = step;
  }
  return place;
}

ShotPlace HistoryStore::Points::begin(std::uint64_t shot, std::uint64_t steps) {
  pending_.clear();
  store_.there_.clear();
  store_.base_ = shot << kShotBit;
  for (const std::uint64_t number : store_.history_.steps()) {
    if (number == kRun) continue;
    if (number >> kShotBit == shot) {
      store_.there_.insert(number);
    } else {
      store_.history_.discard(number);
    }
  }
  return place(steps);
}

void HistoryStore::Points::save(Pass pass, std::uint64_t step, std::span<const PointArray> arrays,
                                Stream& stream) {
  const std::uint64_t number = store_.number(pass, step);
  if (store_.is_there(number)) return;  // of a pass that is gone through again
  const Ticket ticket = store_.with(arrays, [&] { return store_.history_.save(number, stream); });
  if (resumption_.on_point) resumption_.on_point(pass, step);
  if (pass == Pass::forward) return;
  pending_.emplace_back(step, ticket);
  release();
}

// What is behind a durable point of the backward pass is not needed again.
void HistoryStore::Points::release() {
  std::size_t durable = pending_.size();
  while (durable > 0 && !pending_[durable - 1].second.is_in(durable_)) --durable;
  if (durable == 0) return;
  const std::uint64_t step = pending_[durable - 1].first;
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(durable - 1));
  for (const std::uint64_t number : store_.history_.steps()) {
    if (number == kRun || number >> kShotBit != store_.base_ >> kShotBit) continue;
    const std::uint64_t kind = (number & kKindMask) >> kKindBit, at = number & kStepMask;
    if ((kind == 0 && at >= step) || (kind == 2 && at > step)) store_.history_.discard(number);
  }
}

bool HistoryStore::Points::load(Pass pass, std::uint64_t step, std::span<const PointArray> arrays,
                                Stream& stream) {
  const std::uint64_t number = store_.number(pass, step);
  try {
    store_.with(arrays, [&] { store_.history_.restore(number, stream); });
    stream.synchronize();
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::damaged) throw;
    store_.history_.discard(number);
    store_.there_.erase(number);
    return false;
  }
}

void HistoryStore::Points::forget() {
  pending_.clear();
  store_.there_.clear();
  for (const std::uint64_t number : store_.history_.steps()) {
    if (number != kRun) store_.history_.discard(number);
  }
}

}  // namespace adjoint

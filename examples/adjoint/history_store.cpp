#include "adjoint/history_store.hpp"

#include <algorithm>
#include <utility>

namespace adjoint {

namespace {

holdfast::HistoryOptions consuming(holdfast::HistoryOptions options) {
  options.discard_consumed = true;
  return options;
}

}  // namespace

HistoryStore::HistoryStore(holdfast::HistoryOptions options)
    : history_(holdfast::History::open(consuming(std::move(options)))) {
  discard_all();
}

void HistoryStore::discard_all() {
  for (const std::uint64_t step : history_.steps()) history_.discard(step);
}

void HistoryStore::plan(std::span<const std::uint64_t> restore_order) {
  discard_all();
  bytes_ = 0;
  history_.hint(restore_order);
  history_.prefetch_start();  // it waits for the first hint's step, which is saved last
}

void HistoryStore::protect(const std::string& name, void* device, std::uint64_t bytes) {
  history_.protect(name, static_cast<unsigned char*>(device), bytes);
  arrays_[name] = bytes;
}

void HistoryStore::save(std::uint64_t step, holdfast::Stream& stream) {
  history_.save(step, stream);
  for (const auto& [name, bytes] : arrays_) bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
}

void HistoryStore::restore(std::uint64_t step, holdfast::Stream& stream) {
  history_.restore(step, stream);
}

std::uint64_t HistoryStore::size(std::uint64_t step, const std::string& name) const {
  return history_.size(step, name);
}

}  // namespace adjoint

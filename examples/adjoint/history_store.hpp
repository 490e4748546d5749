// Every step in a history: device memory, host memory and a folder, as far as each goes.
//
// The restore order is the history's hint, so that a step is in device memory again when the
// backward pass comes to it. A step is discarded once it was restored. Tested by: gradient_test and
// store_test, as the other stores.
#pragma once

#include <map>
#include <string>

#include "adjoint/snapshot_store.hpp"
#include "holdfast/history.hpp"

namespace adjoint {

class HistoryStore : public SnapshotStore {
 public:
  // Throws what History::open() throws. What a killed run has left in the folder is discarded: a
  // shot begins anew.
  explicit HistoryStore(holdfast::HistoryOptions options);

  void plan(std::span<const std::uint64_t> restore_order) override;
  void protect(const std::string& name, void* device, std::uint64_t bytes) override;
  void save(std::uint64_t step, holdfast::Stream& stream) override;
  void restore(std::uint64_t step, holdfast::Stream& stream) override;
  std::uint64_t size(std::uint64_t step, const std::string& name) const override;
  std::uint64_t most_bytes() const override { return most_bytes_; }
  holdfast::HistoryStats stats() const { return history_.stats(); }

 private:
  void discard_all();

  holdfast::History history_;
  std::map<std::string, std::uint64_t> arrays_;  // bytes
  std::uint64_t bytes_ = 0, most_bytes_ = 0;     // saved in this shot, and in any
};

}  // namespace adjoint

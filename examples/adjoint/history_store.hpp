// Every step in a history: device memory, host memory and a folder, as far as each goes.
//
// The restore order is the history's hint, so that a step is in device memory again when the
// backward pass comes to it. A step is discarded once it was restored, or, where a killed run is to
// be gone on from, once the backward pass has a point behind it. Tested by: gradient_test and
// store_test, as the other stores; resume_within_test.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adjoint/shot_points.hpp"
#include "adjoint/snapshot_store.hpp"
#include "holdfast/history.hpp"

namespace adjoint {

// How a killed run is gone on from.
struct Resumption {
  std::uint64_t run = 0;        // whose the steps have to be; drawn anew for a run that begins
  std::uint64_t interval = 50;  // of the points
  // Called with each point that is saved, which need not be durable yet.
  std::function<void(Pass pass, std::uint64_t step)> on_point = {};
};

class HistoryStore : public SnapshotStore {
 public:
  // Throws what History::open() throws, and conflict: the folder has steps of another program. What
  // a killed run has left there is discarded, but for that of `resumption`, which counts where a
  // tier outlives the process.
  explicit HistoryStore(holdfast::HistoryOptions options,
                        std::optional<Resumption> resumption = std::nullopt);

  void plan(std::span<const std::uint64_t> restore_order) override;
  void protect(const std::string& name, void* device, std::uint64_t bytes) override;
  void save(std::uint64_t step, holdfast::Stream& stream) override;
  void restore(std::uint64_t step, holdfast::Stream& stream) override;
  std::uint64_t size(std::uint64_t step, const std::string& name) const override;
  std::uint64_t most_bytes() const override { return most_bytes_; }
  ShotPoints* points() override { return points_ ? &*points_ : nullptr; }
  holdfast::HistoryStats stats() const { return history_.stats(); }

 private:
  class Points : public ShotPoints {
   public:
    Points(HistoryStore& store, Resumption resumption, holdfast::Tier durable)
        : store_(store), resumption_(std::move(resumption)), durable_(durable) {}
    std::uint64_t interval() const override { return resumption_.interval; }
    ShotPlace begin(std::uint64_t shot, std::uint64_t steps) override;
    void save(Pass pass, std::uint64_t step, std::span<const PointArray> arrays,
              holdfast::Stream& stream) override;
    bool load(Pass pass, std::uint64_t step, std::span<const PointArray> arrays,
              holdfast::Stream& stream) override;
    void forget() override;

   private:
    ShotPlace place(std::uint64_t steps) const;
    void release();

    HistoryStore& store_;
    Resumption resumption_;
    holdfast::Tier durable_;
    // Points of the backward pass that are not known to be durable, the newest last.
    std::vector<std::pair<std::uint64_t, holdfast::Ticket>> pending_;
  };

  void check_ours() const;
  void claim(std::uint64_t run, holdfast::Tier durable);
  void discard_all();
  bool is_there(std::uint64_t number) const { return there_.contains(number); }
  std::uint64_t number(std::uint64_t step) const { return base_ | step; }
  std::uint64_t number(Pass pass, std::uint64_t step) const;
  // Calls `use` while the history protects only these.
  template <class Use>
  auto with(std::span<const PointArray> arrays, Use use);

  holdfast::History history_;
  std::map<std::string, Protected> arrays_;
  std::uint64_t bytes_ = 0, most_bytes_ = 0;  // saved in this shot, and in any
  std::uint64_t base_ = 0;                    // of the shot's numbers
  std::set<std::uint64_t> there_;             // numbers that a killed run has left of the shot
  std::optional<Points> points_;
};

}  // namespace adjoint

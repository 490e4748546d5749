// The layout log: batches appended to a log of records, and an index of it in device memory.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kv_store/impl.hpp"
#include "kv_store/log/batch.hpp"
#include "kv_store/log/cleaning.hpp"
#include "kv_store/log/loading.hpp"
#include "kv_store/log/memory.hpp"
#include "kv_store/log/rules.hpp"
#include "kv_store/log/snapshot.hpp"
#include "kv_store/log/survey.hpp"

namespace holdfast::kv::log {

// The host's side of it. Invariant: between calls, what it counts is as the medium and the index
// have it, or `broken_` says why nothing is known.
class LogStore : public KvStore::Impl {
 public:
  // `asked`: the form of its index, which `memory` has. `what`: it is, for messages.
  LogStore(Region& region, std::string_view name, LogObject object, core::Use use, Memory memory,
           KvStore::Index asked, std::string what);
  ~LogStore() override {
    close();
    end_work();
  }

  // Fills the index; drops what a crash cut off. Throws damaged.
  void load();

  KvStore::BatchResult update(const std::uint64_t* keys, const std::uint64_t* values,
                              std::size_t count, const Mixed* mixed) override;
  void get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
           std::size_t count) override;
  detail::KvView view() override;
  std::uint64_t scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit) override;
  // Calls take(pairs, count) for all of the index, piece by piece: `pairs` are in device memory,
  // where key 0 is none, until work that it has put into the stream has ended.
  using Take = std::function<void(const detail::KvPair*, std::uint64_t)>;
  void list(const Take& take);              // by `stream`
  void list(Stream& on, const Take& take);  // REQUIRES: nothing is under way in `stream`
  std::uint64_t listed_at_once() const;     // pairs of a piece at most
  std::string verify() override;
  std::shared_ptr<Impl> grown(std::uint64_t capacity, std::uint64_t log_records) override;
  // What grown() is made of. A log of that room beside this one, with all its pairs; null where
  // this one has as much.
  std::shared_ptr<LogStore> copy_beside(std::uint64_t capacity, std::uint64_t log_records);
  void drop_copy(std::shared_ptr<LogStore>& copy) const;
  // The copy has this one's place from now on, and its name, and what else `names` say; by one
  // store. This one is not in use any more. Where it throws nothing has changed.
  void hand_over(LogStore& copy, std::vector<core::Renaming> names);
  void await_cache() override {}
  KvStore::Stats stats() override;
  KvStore::Timing timing() override;

 private:
  Survey survey(const SnapshotWord* snapshots);
  Census fill_index(Survey& survey);
  void check_whole() const;  // throws device: an earlier call failed
  Work work() const;
  Batch begin_batch(const std::uint64_t* keys, const std::uint64_t* values, std::uint32_t count);
  void stage(Batch& batch, const std::uint64_t* keys, const std::uint64_t* values);
  void begin_mixed(Batch& batch, const Mixed& mixed);
  Outcome run_small(const Batch& batch, const RunPlan& run);
  Outcome run_large(Batch batch, const RunPlan& run, bool sure);
  void check_counts(Batch batch);  // looks up, and throws no_space
  // What claiming the keys begins with. Later claims find them in device memory.
  KeysIn begin_claims(Batch& batch, std::uint32_t pieces);
  void find(std::uint32_t count);
  void look_up(const Batch& batch);  // in whichever order
  // Whether lookups are ordered by the records that they read.
  bool ordered(std::size_t count, bool updates) const;
  // Calls function(index), of whichever form.
  template <class Function>
  decltype(auto) with_index(Function&& function) const {
    return std::visit(function, index_);
  }
  Outcome await_outcome();
  void begin_work(std::uint32_t pieces);
  KvStore::BatchResult finish(const Batch& batch, const RunPlan& run, const Outcome& done);

  // ---- Room (room.cu) ----
  std::uint64_t piece_room() const { return shape_.segment_records - kHeaderRecords; }
  std::uint64_t room() const;  // records of one run that there is room for
  // What cleaning leaves behind a batch, so that another one fits and cleaning goes on behind that.
  std::uint64_t room_kept(std::uint32_t count) const;
  std::uint64_t slack() const;  // of this, what is there for copies
  // Where a run of so many records goes. REQUIRES: there is room.
  RunPlan plan(std::uint64_t records, std::uint64_t tombstones);
  void advance(const RunPlan& run, const Outcome& done);  // behind a run that is committed
  void make_room(std::uint64_t records);                  // throws no_space
  bool is_sure(std::uint32_t count) const;
  // Slots that may be other than empty, so that searches end soon.
  std::uint64_t most_slots() const { return base_.mask - base_.mask / 16; }
  // Cleans until `wanted` records come free, and copies no more than `most`. Returns whether it
  // found anything to clean.
  bool clean(std::uint64_t wanted, std::uint64_t most, Choice choice);
  void clean_behind(std::uint32_t count) noexcept;
  // False: there were none that could go.
  bool drop_oldest_tombstones();
  bool drop_tombstones(std::uint64_t count);  // at least so many, where there are
  void bring_counts();   // what segments have, into pinned memory, behind what is under way
  void update_states();  // from there; waits
  void sweep();

  // ---- More room (growth.cu) ----
  KvStore::Options options_with(std::uint64_t capacity, std::uint64_t log_records) const;
  // Sets all pairs of another, and counts on from there. REQUIRES: nothing was done with it yet.
  void take_over(LogStore& other);
  void set_counted(LogStore& other, const std::uint64_t* keys, const std::uint64_t* values,
                   std::size_t count);

  // ---- Snapshots (snapshot_turns.cu) ----
  bool is_sealed(std::uint32_t segment) const;  // no run will reach into it, and it is not free
  void seal();                                  // the tail is left for another segment
  void snapshot_behind();                       // of those that are due
  // Of those that are sealed and have changed. Waits for the stream.
  void take_snapshots(const std::vector<std::uint32_t>& segments);
  void close() noexcept;
  void add_snapshot_stats(KvStore::Stats& stats) const;

  std::string name_;
  KvStore::Index asked_;
  LogObject object_;
  LogParameters shape_ = object_.parameters();
  Memory memory_;
  Medium medium_{object_.part<Record>(kRecords).data(), object_.part<Commit>(kCommit).data(),
                 region.marks()};
  SnapshotWord* snapshots_ = object_.part<SnapshotWord>(kSnapshots).data();
  AnyIndex index_ = memory_.index(medium_.records);
  const IndexBase& base_ =
      std::visit([](const auto& form) -> const IndexBase& { return form; }, index_);
  std::uint32_t shift_;
  std::uint64_t most_entries_;  // pairs and tombstones

  RunHeader counts_{};         // those of the last run
  std::uint64_t opening_ = 0;  // 0: its creation
  std::uint64_t chain_ = 0;    // of the tail
  std::uint32_t tail_ = ~0u;
  std::uint32_t tail_used_ = 0;
  std::deque<std::uint32_t> free_;
  std::vector<SegmentState> segments_;  // live and tombstones: as update_states() found them
  std::vector<std::uint64_t> taken_;    // by segment: the run of its snapshot; 0: it has none
  std::vector<std::uint32_t> due_;      // segments whose snapshots come behind the batch
  std::uint32_t tail_pieces_ = 0;       // of runs
  std::uint64_t opened_run_ = 0;        // the last one when it was opened
  bool counts_come_ = false;  // bring_counts() was called, and no kernel has changed them since

  std::uint64_t pairs_ = 0;
  std::uint64_t tombstones_ = 0;
  std::uint64_t removed_ = 0;
  std::uint64_t used_slots_ = 0;
  std::uint64_t gone_slots_ = 0;  // since the last sweep
  std::uint32_t tag_ = 0;
  std::uint64_t ticket_ = 0;  // of the last small batch

  std::uint64_t batch_records_ = 0;
  std::uint64_t copied_records_ = 0;
  std::uint64_t bytes_stored_ = 0;    // by runs and cleaning
  std::uint64_t snapshot_bytes_ = 0;  // beside these
  std::uint64_t snapshots_used_ = 0;  // by opening
  bool snapshots_refused_ = false;
  bool timed_ = false;
  std::string broken_;
  const std::uint64_t* keys_at_ = nullptr;  // where the batch's keys are; not yet in its memory
  bool values_beside_ = false;              // the batch's values come by a stream of their own
  Stream beside_;
  Event keys_in_, values_in_;
};

enum class Room { as_it_is, enlarged };  // of the region, where it has too little

// The durable object of this name. `what`: as messages call it. Thrown as by KvStore::create() and
// open(). REQUIRES: the options that all layouts have are checked.
std::shared_ptr<LogStore> create_store(Region& region, std::string_view name,
                                       const std::string& what, const KvStore::Options& options,
                                       Room room = Room::as_it_is);
std::shared_ptr<LogStore> open_store(Region& region, std::string_view name, const std::string& what,
                                     KvStore::Index index);
// As KvStore::remove().
void remove_store(Region& region, std::string_view name);
// Removes what a growth that was cut off has left, if anything.
void drop_growth(Region& region, std::string_view name);

}  // namespace holdfast::kv::log

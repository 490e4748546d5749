// Commits of a file-backed region: the snapshot in stream order, the disk behind it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/arena.hpp"
#include "core/directory.hpp"
#include "core/image.hpp"
#include "core/marks.hpp"
#include "core/process.hpp"
#include "core/snapshot.hpp"
#include "holdfast/region.hpp"
#include "holdfast/testing/throttle.hpp"

namespace holdfast {

namespace core {

// The marks that a commit takes, for later ones that must look at the same pages again.
//
// Thread safety: all but `overlapped`, which is of the region's thread, under the mutex.
struct TakenMarks {
  enum class Fate { on_its_way, taken, lost };

  std::mutex mutex;
  Fate fate = Fate::on_its_way;
  std::vector<std::uint8_t> marks;
  // Those whose pages this commit looks at again. Empty once it has.
  std::vector<std::shared_ptr<TakenMarks>> again;
  // There is a writer that may have set marks before this commit fetched them, and have made its
  // stores behind this commit's snapshot.
  bool overlapped = false;

  void take(std::vector<std::uint8_t> own) noexcept;
  void lose() noexcept;
};

}  // namespace core

struct Commit::State : std::enable_shared_from_this<Commit::State> {
  core::Maker maker;
  std::mutex mutex;
  std::condition_variable changed;
  bool started = false;  // the stream has reached the commit
  bool copied = false;   // the snapshot is taken
  bool done = false;
  std::optional<Error> error;
  CommitStats stats;
  std::shared_ptr<Event> reached;  // behind the host function in the stream
  // Set when it fails: the marks that it took are lost.
  std::shared_ptr<std::atomic<bool>> compare_everything;
  std::shared_ptr<core::TakenMarks> taken;  // null: no commit looks at marks

  // Throws in_use in a forked child, where no one finishes it.
  void check_process() const;
  // Queues `body`, which is called at the commit's place in the stream and finishes it. If the
  // stream never comes there, the commit has failed.
  void queue(Stream& stream, std::function<void(State&)> body);
  void finish(const std::optional<Error>& failure);
  // As finish(), unless the stream has reached it; after this it never will.
  void give_up(const char* why) noexcept;
  // Returns once the stream has come to the commit, or never will.
  void await_stream();
};

namespace core {

// The commits that streams hold. They are kept until no stream does: a host function must not be
// the one that lets go of an event. Thread safety: one thread.
class QueuedCommits {
 public:
  void add(const std::shared_ptr<Commit::State>& state);
  // Waits until the streams have let go of all of them, whatever became of each.
  void drain() noexcept;

 private:
  std::vector<std::shared_ptr<Commit::State>> states_;
};

// One commit is on its way at a time; the next one's place in its stream waits for it.
//
// Thread safety: start(), now(), drain() and what writers call from one thread; they may run beside
// the host functions and the writer.
class Committer {
 public:
  // `mutex` guards directory and marks. All references outlive the committer.
  Committer(Image& image, Arena& arena, Directory& directory, std::mutex& mutex);
  ~Committer();  // REQUIRES: drained

  enum class Unchanged { commit, skip };  // a region that equals its image

  // Queues a commit.
  std::shared_ptr<Commit::State> start(Stream& stream, Unchanged unchanged = Unchanged::commit);
  // Commits on the calling thread what the host sees, without asking the device for its marks.
  CommitStats now(Unchanged unchanged = Unchanged::commit);
  // Waits until nothing is on its way, whatever became of it.
  void drain() noexcept;

  // A writer that began behind the last start() may have set marks before the commits on their way
  // fetch them, and store behind their snapshots: the next one looks again at their pages. It is
  // not known when it began, so that all count that had not taken their snapshot at that start().
  void writer_registered() noexcept;
  // The same for a writer that has not begun.
  void writer_begins();

  // Throws not_found or damaged if the image was removed, replaced or cut from outside.
  void check_image() const;

  // From now on a commit is done once `throttle`, which outlives the committer, has taken it.
  void set_throttle(testing::Throttle& throttle) { throttle_ = &throttle; }

  // After a crash the marks are gone: the next commit compares every page.
  void compare_everything() { *compare_everything_ = true; }
  // The same, for who finds out later.
  const std::shared_ptr<std::atomic<bool>>& everything() const { return compare_everything_; }
  MarkMap& marks() { return marks_; }
  // Of the last commit that is durable.
  std::uint64_t generation() const { return generation_; }

  // Tests: the most pages that a commit copies aside.
  static std::atomic<std::uint64_t> staging_pages;

 private:
  struct Job;
  using Clock = std::chrono::steady_clock;

  void run(Commit::State& state, Unchanged unchanged) noexcept;
  // Of the commits that are not known to precede every writer, those that the next one has to look
  // at again.
  std::vector<std::shared_ptr<TakenMarks>> to_look_at_again() const;
  void forget_what_is_over();
  void seen_to(const std::vector<std::shared_ptr<TakenMarks>>& again);
  // Takes the snapshot. REQUIRES: wait_idle() has returned. If it throws, the next one can begin.
  std::unique_ptr<Job> copy_aside(std::shared_ptr<Commit::State> state, Unchanged unchanged,
                                  Clock::time_point begun);
  bool may_skip(const Job& job) const;
  Snapshot snapshot(TakenMarks* taken);  // null: without the device's marks
  void wait_idle();
  void set_idle();
  testing::Throttle::Mark mark() const {
    return throttle_ ? throttle_->mark() : testing::Throttle::Mark();
  }
  void write(Job& job) noexcept;
  void writer_loop() noexcept;
  void start_writer();

  Image& image_;
  Arena& arena_;
  Directory& directory_;
  std::mutex& region_mutex_;
  MarkMap marks_;
  std::unique_ptr<StagingBuffer> staging_;
  std::shared_ptr<std::atomic<bool>> compare_everything_;
  testing::Throttle* throttle_ = nullptr;
  QueuedCommits queued_;
  // Of commits whose snapshot a writer may have begun before; in their order.
  std::vector<std::shared_ptr<TakenMarks>> recent_;
  std::atomic<std::uint64_t> generation_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::unique_ptr<Job> job_;
  bool busy_ = false;  // a commit has begun its snapshot and is not done
  bool stop_ = false;
  std::thread writer_;
};

}  // namespace core
}  // namespace holdfast

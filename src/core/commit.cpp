#include "core/commit.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "core/guard.hpp"
#include "core/host_asks.hpp"
#include "core/stream_end.hpp"

namespace holdfast {

using detail::concat;

void core::TakenMarks::take(std::vector<std::uint8_t> own) noexcept {
  const std::lock_guard lock(mutex);
  marks = std::move(own);
  again.clear();
  fate = Fate::taken;
}

void core::TakenMarks::lose() noexcept {
  const std::lock_guard lock(mutex);
  if (fate == Fate::on_its_way) fate = Fate::lost;
}

void Commit::State::finish(const std::optional<Error>& failure) {
  {
    const std::lock_guard lock(mutex);
    if (done) return;
    done = true;
    error = failure;
    if (failure && compare_everything) *compare_everything = true;
    if (failure && taken) taken->lose();
  }
  changed.notify_all();
}

void Commit::State::give_up(const char* why) noexcept {
  {
    const std::lock_guard lock(mutex);
    if (started || done) return;
    done = true;
    try {
      error.emplace(Errc::device, concat("the commit was not made: ", why));
    } catch (...) {
      error = core::current_error("a commit");
    }
    if (compare_everything) *compare_everything = true;
    if (taken) taken->lose();
  }
  changed.notify_all();
}

namespace {

constexpr char kStreamFailed[] = "its stream failed before";

// What the stream holds of a commit. If the stream drops it, the commit has failed.
struct Ticket {
  explicit Ticket(std::shared_ptr<Commit::State> state_of) : state(std::move(state_of)) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() { state->give_up(kStreamFailed); }
  const std::shared_ptr<Commit::State> state;
};

}  // namespace

void Commit::State::queue(Stream& stream, std::function<void(State&)> body) {
  reached = std::make_shared<Event>();
  const auto ticket = std::make_shared<Ticket>(shared_from_this());
  stream.enqueue([ticket, body = std::move(body)] {
    State& state = *ticket->state;
    {
      const std::lock_guard lock(state.mutex);
      if (state.done) return;  // given up
      state.started = true;
    }
    body(state);
  });
  reached->record(stream);
}

void Commit::State::await_stream() {
  std::shared_ptr<Event> event;
  {
    const std::lock_guard lock(mutex);
    if (!started && !done) event = reached;
  }
  if (!event) return;
  // A stream that failed before the commit never comes to it; one that failed later has.
  try {
    event->synchronize();
    give_up(kStreamFailed);
  } catch (const Error& failure) {
    give_up(failure.what());
  }
}

void Commit::State::check_process() const {
  if (!maker.is_this_process()) maker.refuse("the commit", "wait for it there");
}

Commit::State& Commit::state() const {
  if (!state_) detail::throw_moved_from("commit");
  return *state_;
}

CommitStats Commit::wait() try {
  State& state = this->state();
  state.check_process();
  state.await_stream();
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.done; });
  if (state.error) throw *state.error;
  return state.stats;
} catch (const std::exception&) {
  core::fail("waiting for a commit");
}

void Commit::wait_snapshot() try {
  State& state = this->state();
  state.check_process();
  state.await_stream();
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.copied || state.done; });
  if (!state.copied && state.error) throw *state.error;
} catch (const std::exception&) {
  core::fail("waiting for a commit's snapshot");
}

bool Commit::done() const {
  State& state = this->state();
  state.check_process();
  core::host_asks();
  const std::lock_guard lock(state.mutex);
  return state.done;
}

namespace core {

namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  const auto passed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::milli>(passed).count();
}

}  // namespace

void QueuedCommits::add(const std::shared_ptr<Commit::State>& state) {
  std::erase_if(states_, [](const auto& earlier) { return earlier.use_count() == 1; });
  states_.push_back(state);
}

void QueuedCommits::drain() noexcept {
  for (const auto& state : states_) {
    try {
      Commit(state).wait();
    } catch (const Error&) {
      // Whoever holds the Commit learns of it.
    }
    try {
      if (state->reached) state->reached->synchronize();  // the stream has let go of it
    } catch (const Error&) {
    }
  }
  states_.clear();
}

std::atomic<std::uint64_t> Committer::staging_pages{(std::uint64_t{256} << 20) / kPage};

struct Committer::Job {
  std::shared_ptr<Commit::State> state;
  Unchanged unchanged = Unchanged::commit;
  testing::Throttle::Mark begun;
  Snapshot snapshot;
  Clock::time_point copied;
};

Committer::Committer(Image& image, Arena& arena, Directory& directory, std::mutex& mutex)
    : image_(image),
      arena_(arena),
      directory_(directory),
      region_mutex_(mutex),
      marks_(pages_of(arena.max_size()), arena.base()),
      compare_everything_(std::make_shared<std::atomic<bool>>(false)),
      generation_(image.has_commit() ? image.generation() : 0) {}

Committer::~Committer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

std::shared_ptr<Commit::State> Committer::start(Stream& stream, Unchanged unchanged) {
  start_writer();
  const auto state = std::make_shared<Commit::State>();
  state->compare_everything = compare_everything_;
  state->taken = std::make_shared<TakenMarks>();
  const std::vector<std::shared_ptr<TakenMarks>> again = to_look_at_again();
  state->taken->again = again;
  recent_.reserve(recent_.size() + 1);
  queued_.add(state);
  recent_.push_back(state->taken);
  try {
    // The region's size now: marks of what grows later are the next commit's.
    marks_.fetch(stream, pages_of(arena_.size()), compare_everything_);
    state->queue(stream, [this, unchanged](Commit::State& commit) { run(commit, unchanged); });
    marks_.taken(stream);
  } catch (...) {
    // What is queued would clear marks that a later commit has to see.
    { const StreamEnd end(stream); }
    *compare_everything_ = true;  // the marks may have been cleared, and no one has seen them
    state->give_up("it could not be queued");
    throw;
  }
  seen_to(again);
  return state;
}

// By the commit that start() has queued last.
void Committer::seen_to(const std::vector<std::shared_ptr<TakenMarks>>& again) {
  for (const auto& earlier : recent_) earlier->overlapped = false;
  std::erase_if(recent_, [&](const auto& taken) {
    const std::lock_guard lock(taken->mutex);
    return taken->fate == TakenMarks::Fate::lost &&
           std::find(again.begin(), again.end(), taken) != again.end();
  });
  forget_what_is_over();
}

void Committer::writer_registered() noexcept {
  for (const auto& taken : recent_) taken->overlapped = true;
}

void Committer::writer_begins() {
  forget_what_is_over();
  writer_registered();
}

void Committer::forget_what_is_over() {
  std::erase_if(recent_, [](const auto& taken) {
    const std::lock_guard lock(taken->mutex);
    return taken->fate == TakenMarks::Fate::taken && !taken->overlapped;
  });
}

// What failed has lost its marks, and with them its word to look at earlier ones' pages; what is on
// its way may yet fail.
std::vector<std::shared_ptr<TakenMarks>> Committer::to_look_at_again() const {
  std::vector<std::shared_ptr<TakenMarks>> all;
  const auto add = [&](const std::shared_ptr<TakenMarks>& taken) {
    if (std::find(all.begin(), all.end(), taken) == all.end()) all.push_back(taken);
  };
  for (const auto& taken : recent_) {
    const std::lock_guard lock(taken->mutex);
    if (taken->overlapped || taken->fate == TakenMarks::Fate::lost) add(taken);
    if (taken->fate != TakenMarks::Fate::taken) {
      for (const auto& earlier : taken->again) add(earlier);
    }
  }
  return all;
}

void Committer::run(Commit::State& state, Unchanged unchanged) noexcept {
  const Clock::time_point begun = Clock::now();
  wait_idle();
  try {
    std::unique_ptr<Job> job = copy_aside(state.shared_from_this(), unchanged, begun);
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
  } catch (const Error& error) {
    state.finish(error);
  }
  changed_.notify_all();
}

std::unique_ptr<Committer::Job> Committer::copy_aside(std::shared_ptr<Commit::State> state,
                                                      Unchanged unchanged,
                                                      Clock::time_point begun) {
  try {
    auto job = std::make_unique<Job>();
    job->state = std::move(state);
    job->unchanged = unchanged;
    job->begun = mark();
    job->snapshot = snapshot(job->state->taken.get());
    job->copied = Clock::now();
    {
      const std::lock_guard lock(job->state->mutex);
      job->state->stats.pages_examined = job->snapshot.pages_examined;
      job->state->stats.snapshot_ms = ms_since(begun);
      job->state->copied = true;
    }
    job->state->changed.notify_all();
    return job;
  } catch (...) {
    const Error error = current_error("the snapshot");
    set_idle();
    throw error;
  }
}

namespace {

// Adds the marks of earlier commits. False: some are not known.
bool add_marks(const std::vector<std::shared_ptr<TakenMarks>>& earlier,
               std::vector<std::uint8_t>& marks) {
  for (const auto& taken : earlier) {
    const std::lock_guard lock(taken->mutex);
    if (taken->fate != TakenMarks::Fate::taken) return false;
    const std::size_t both = std::min(marks.size(), taken->marks.size());
    for (std::size_t i = 0; i < both; ++i) marks[i] |= taken->marks[i];
  }
  return true;
}

}  // namespace

// The region's mutex is held throughout: an object that is removed meanwhile, and its space
// handed out again, must not be half of one and half of the other in the image.
Snapshot Committer::snapshot(TakenMarks* taken) {
  const std::lock_guard lock(region_mutex_);
  const std::uint64_t pages = pages_of(directory_.region_bytes());
  bool everything = compare_everything_->exchange(false) || taken == nullptr;
  try {
    std::vector<std::uint8_t> own = marks_.take(pages, taken != nullptr);
    std::vector<std::uint8_t> marks = own;
    if (taken != nullptr && !add_marks(taken->again, marks)) everything = true;
    if (!staging_) {
      // No larger than it can ever be filled.
      staging_ = std::make_unique<StagingBuffer>(
          std::min<std::uint64_t>(staging_pages, pages_of(arena_.max_size())));
    }
    check_image();
    const SnapshotInput input{arena_.base(), &directory_, &marks, everything};
    Snapshot result = take_snapshot(input, image_, *staging_);
    if (taken != nullptr) taken->take(std::move(own));
    return result;
  } catch (...) {
    *compare_everything_ = true;
    throw;
  }
}

void Committer::check_image() const {
  if (!image_.has_commit()) return;
  try {
    image_.check_in_place();
  } catch (const Error& error) {
    throw Error(error.code(), concat(error.what(), ". What was persisted is kept in the arena '",
                                     arena_.path(), "': holdfast backup makes a region of it"));
  }
}

void Committer::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
  busy_ = true;
}

void Committer::set_idle() {
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }
  changed_.notify_all();
}

void Committer::write(Job& job) noexcept {
  std::optional<Error> failure;
  try {
    WriteResult result;
    if (may_skip(job)) {
      result.generation = image_.generation();
    } else {
      // A new image gets its name behind its first commit.
      const bool unnamed = !image_.has_commit();
      const Uuid id = new_uuid();
      arena_.agree(image_.commit_id());
      arena_.announce(id);
      result = image_.write(std::move(job.snapshot.changes), id);
      if (!unnamed) check_image();
      if (throttle_ != nullptr) {
        const std::uint64_t bytes = result.bytes_written + job.snapshot.bytes_written;
        throttle_->write(job.begun, bytes, testing::Access::aligned);  // whole pages
        throttle_->wait();
      }
      arena_.agree(id);
      generation_ = result.generation;
    }
    const std::lock_guard lock(job.state->mutex);
    CommitStats& stats = job.state->stats;
    stats.generation = result.generation;
    stats.pages_written = result.pages_written;
    stats.pages_moved = result.pages_moved;
    stats.bytes_written = result.bytes_written + job.snapshot.bytes_written;
    stats.write_ms = ms_since(job.copied);
  } catch (...) {
    failure = current_error("writing the image");
    *compare_everything_ = true;  // before the next snapshot can begin
  }
  set_idle();
  job.state->finish(failure);
}

bool Committer::may_skip(const Job& job) const {
  return job.unchanged == Unchanged::skip && job.snapshot.changes.segments.empty() &&
         image_.has_commit() && image_.region_bytes() == job.snapshot.changes.region_bytes;
}

void Committer::start_writer() {
  if (writer_.joinable()) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    writer_ = std::thread([this] { writer_loop(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(Errc::no_memory,
                concat("cannot start a thread for commits: ", error.what(), "; raise ulimit -u"));
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Committer::writer_loop() noexcept {
  for (;;) {
    std::unique_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || job_ != nullptr; });
      if (job_ == nullptr) return;
      job = std::move(job_);
    }
    write(*job);
  }
}

CommitStats Committer::now(Unchanged unchanged) {
  const auto state = std::make_shared<Commit::State>();
  wait_idle();
  write(*copy_aside(state, unchanged, Clock::now()));
  if (state->error) throw *state->error;
  recent_.clear();  // every page has been looked at
  return state->stats;
}

void Committer::drain() noexcept {
  queued_.drain();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
}

}  // namespace core
}  // namespace holdfast

// Lets someone else decide which thread goes on: for the exploration of schedules.
//
// While an Exploration lives on a thread, kernels that this thread launches, and this thread as the
// host, are actors of one pool: kernels of different streams, the blocks of each, and the host run
// in turns. An actor runs up to its next visible step, an access by which threads may tell each
// other something: an atomic, a volatile access, an acquire or a release. There it stops, and the
// chooser says who goes on. All else (plain accesses, fences, durable points, barriers, copies,
// launches and waits) needs no choice: it commutes with what other actors do, or orders them, which
// the chooser is told.
//
// A thread that asks the same again in the same state and gets the same answer is blocked until
// what it has asked for changes. If nobody can go on, that is a livelock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace holdfast::cpu {

using Actor = std::uint64_t;
inline constexpr Actor kHostActor = 0;
// A thread of a kernel: `task` counts what the host has given to streams, from 1; `thread` counts
// the threads of the grid. The same in each run of a program that does the same.
constexpr Actor thread_actor(std::uint64_t task, std::uint64_t thread) {
  return task << 32 | thread;
}
// Stands for a task as a whole, in Chooser::order().
constexpr Actor task_actor(std::uint64_t task) { return task << 32 | 0xffffffff; }

// What an actor will do next.
struct Step {
  Actor actor = kHostActor;
  bool writes = false;   // it may write
  bool blocked = false;  // it waits for a change of what it has read, and must not be chosen
  const void* address = nullptr;
  std::size_t size = 0;
};

class Chooser {
 public:
  virtual ~Chooser() = default;
  // Returns the index of the step to take. At least one is not blocked; ordered by actor.
  virtual std::size_t choose(std::span<const Step> steps) = 0;
  // The step that was chosen last wrote nothing: a compare-and-swap that failed.
  virtual void only_read() = 0;
  // What `before` has done so far comes before all that `after` does from now on.
  virtual void order(Actor before, Actor after) = 0;
  // These meet: what each has done so far comes before all that the others do from now on.
  virtual void meet(std::span<const Actor> actors) = 0;
  // A spinning thread was held back although its state was not quite the same: a loop that counts
  // its turns may do what was not explored.
  virtual void cut() {}
};

class Engine;

// Throws unsupported where can_listen() is false. Thread safety: one in a process at a time;
// destroyed by the thread that made it. REQUIRES: nothing runs or is queued on a stream at its
// begin; streams that were used meanwhile are waited for before its end.
class Exploration {
 public:
  explicit Exploration(Chooser& chooser);
  ~Exploration();
  Exploration(const Exploration&) = delete;
  Exploration& operator=(const Exploration&) = delete;

  // Does what the host does. Passes on what it throws.
  void run(const std::function<void()>& host);

 private:
  std::unique_ptr<Engine> engine_;
};

}  // namespace holdfast::cpu

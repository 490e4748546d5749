#include "backend_cpu/team.hpp"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <semaphore>
#include <thread>

#include "backend_cpu/events.hpp"
#include "backend_cpu/faults.hpp"

namespace holdfast::cpu {
namespace {

// Slots are kept for the life of the process: their stacks and threads serve the next kernel.
class Team {
 public:
  static Team& instance();

  std::optional<Error> execute(Run& run);
  Slot* recruit(Run& run);
  std::mutex& kernel_mutex() { return kernel_mutex_; }
  Slot& slot(unsigned number) { return member(number).slot; }
  void drive(Slot& slot);

 private:
  struct Member {
    explicit Member(unsigned number) : slot(number) {}
    Slot slot;
    std::binary_semaphore baton{0};
    std::thread thread;  // none for slot 0, which runs on the thread that calls execute()
  };

  Member& member(unsigned number);
  void serve(Member& member);
  void hand_on(Slot* next);

  std::mutex kernel_mutex_;
  std::vector<std::unique_ptr<Member>> members_;
};

std::atomic<Team*> g_team{nullptr};

// The threads of a team do not exist in a forked child: it gets a team of its own.
void abandon_team_after_fork() { g_team.store(new Team); }

Team& Team::instance() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_team.store(new Team);
    pthread_atfork(nullptr, nullptr, &abandon_team_after_fork);
  });
  return *g_team.load();
}

Team::Member& Team::member(unsigned number) {
  if (number == members_.size()) members_.push_back(std::make_unique<Member>(number));
  Member& found = *members_[number];
  if (number != 0 && !found.thread.joinable()) {
    found.thread = std::thread([this, &found] { serve(found); });
  }
  return found;
}

void Team::serve(Member& member) {
  for (;;) {
    member.baton.acquire();
    hand_on(member.slot.drive());
  }
}

// Null: the kernel is over, which slot 0 waits for.
void Team::hand_on(Slot* next) { members_[next ? next->number() : 0]->baton.release(); }

Slot* Team::recruit(Run& run) {
  Slot& slot = member(static_cast<unsigned>(run.slots.size())).slot;
  slot.join(run);
  run.slots.push_back(&slot);
  return &slot;
}

void Team::drive(Slot& slot) {
  Slot* next = &slot;
  if (slot.number() == 0) next = slot.drive();
  if (next == nullptr || next->number() == 0) return;
  hand_on(next);
  members_[0]->baton.acquire();
}

std::optional<Error> Team::execute(Run& run) {
  install_fault_handlers();
  try {
    emit_run(run, EventKind::kernel_begin, 0, false);
    Slot& slot = *recruit(run);
    Slot* next = &slot;
    while (next != nullptr) {
      if (next == &slot) {
        next = slot.drive();
      } else {
        hand_on(next);
        members_[0]->baton.acquire();
        // Whoever handed the baton here either wants slot 0 to go on or has ended the kernel.
        next = run.over() ? nullptr : &slot;
      }
    }
  } catch (const Error& error) {
    run.fail(error.code(), error.what());
  } catch (const std::exception& error) {
    run.fail(Errc::no_memory, concat("the kernel could not start: ", error.what()));
  }
  for (Slot* slot : run.slots) slot->leave();
  emit_run(run, EventKind::kernel_end, 0, !run.error);
  return std::move(run.error);
}

}  // namespace

std::optional<Error> execute(const Shape& shape, const Schedule& schedule,
                             const std::function<void()>& body) {
  Team& team = Team::instance();
  const std::lock_guard lock(team.kernel_mutex());
  Run run;
  run.shape = shape;
  run.body = &body;
  run.schedule = schedule;
  run.random = Random(schedule.seed);
  run.listener = current_listener();
  run.block_threads = shape.block.x * shape.block.y * shape.block.z;
  run.blocks = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  run.idle_limit = schedule.livelock_rounds;
  return team.execute(run);
}

std::unique_lock<std::mutex> lock_kernels() {
  return std::unique_lock(Team::instance().kernel_mutex());
}

Slot& team_slot(unsigned number) { return Team::instance().slot(number); }
void drive_slot(Slot& slot) { Team::instance().drive(slot); }

Slot* recruit_slot(Run& run) { return Team::instance().recruit(run); }

}  // namespace holdfast::cpu

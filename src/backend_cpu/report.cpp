// Errors of a kernel, in words.
#include <dlfcn.h>

#include "backend_cpu/events.hpp"
#include "backend_cpu/run.hpp"

namespace holdfast::cpu {
namespace {

constexpr unsigned kListed = 16;  // stuck threads named in a report

std::string triple(const uint3& v) { return concat("(", v.x, ",", v.y, ",", v.z, ")"); }

const char* verb(ThreadState state) {
  return state == ThreadState::ready ? " spins at " : " waits at ";
}

}  // namespace

std::string describe_place(const Standing& standing) {
  if (standing.file != nullptr) return concat(standing.file, ":", standing.line);
  Dl_info info{};
  if (standing.pc == nullptr || dladdr(standing.pc, &info) == 0 || info.dli_fname == nullptr) {
    return "an unknown place";
  }
  // As addr2line takes it.
  const auto offset = static_cast<const char*>(standing.pc) - static_cast<char*>(info.dli_fbase);
  return concat(info.dli_fname, "+0x", std::hex, offset);
}

std::string Slot::describe(const Thread& thread) const {
  return concat("block ", triple(block_index_), ", thread ", triple(thread.index));
}

std::string describe_stuck(const Run& run) {
  std::string text;
  unsigned stuck = 0;
  for (const Slot* slot : run.slots) {
    if (!slot->active()) continue;
    for (unsigned i = 0; i < run.block_threads; ++i) {
      const Thread& thread = slot->thread(i);
      if (thread.state == ThreadState::fresh || thread.state == ThreadState::exited) continue;
      if (++stuck > kListed) continue;
      const Standing& at = thread.standing;
      text +=
          concat("\n  ", slot->describe(thread), verb(thread.state),
                 at.operation ? at.operation : "an unknown operation", ", ", describe_place(at));
      if (at.address != nullptr) text += concat(", address ", at.address);
    }
  }
  if (stuck > kListed) text += concat("\n  and ", stuck - kListed, " more");
  if (run.next_block < run.blocks) {
    text += concat("\n  and ", run.blocks - run.next_block,
                   " blocks that have not started, since Schedule::resident_blocks is ",
                   run.schedule.resident_blocks);
  }
  return text;
}

void Slot::note_failure(const Thread& self, Errc code, const std::string& what) {
  std::string where = describe(self);
  if (self.standing.operation != nullptr && self.standing.file != nullptr) {
    where += concat(", ", self.standing.operation, " at ", describe_place(self.standing));
  }
  run_->fail(code, concat("kernel error in ", where, ": ", what));
}

void Slot::abandon(Thread& self) {
  go_home(self, Outcome::failed, true);
  __builtin_unreachable();
}

void Slot::fail_deadlock(Thread& self) {
  run_->fail(Errc::livelock,
             concat("deadlock: every thread of block ", triple(block_index_),
                    " that has not exited waits for another one:", describe_stuck(*run_)));
  abandon(self);
}

void Slot::fail_overflow(Thread& self) {
  note_failure(self, Errc::kernel_fault,
               concat("the thread's stack of ", stacks_.stack_bytes(),
                      " bytes overflowed: raise HOLDFAST_CPU_STACK or Schedule::stack_bytes"));
  abandon(self);
}

void Slot::check_idle(Thread& self) {
  std::uint64_t runnable = 1;
  for (const Slot* slot : run_->slots) {
    if (slot->active()) runnable += slot->runnable();
  }
  const std::uint64_t required = run_->schedule.livelock_rounds * runnable;
  if (run_->can_start_block()) {
    run_->idle_limit = run_->idle + required;
    return;
  }
  if (run_->idle < required) {
    run_->idle_limit = required;
    return;
  }
  run_->fail(Errc::livelock,
             concat("livelock: no thread exited, no barrier completed and no atomic changed "
                    "memory in ",
                    run_->schedule.livelock_rounds,
                    " rounds (Schedule::livelock_rounds); where the threads stand:",
                    describe_stuck(*run_)));
  abandon(self);
}

unsigned Run::active_slots() const {
  unsigned count = 0;
  for (const Slot* slot : slots) count += slot->active();
  return count;
}

}  // namespace holdfast::cpu

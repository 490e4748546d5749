// How the threads of one block take turns.
#include <exception>
#include <utility>

#include "backend_cpu/engine.hpp"
#include "backend_cpu/events.hpp"
#include "backend_cpu/faults.hpp"
#include "backend_cpu/run.hpp"
#include "backend_cpu/team.hpp"

namespace holdfast::cpu {

constinit thread_local Thread* t_current = nullptr;

namespace {

constexpr std::size_t kStackMargin = 512;  // bytes that the switch itself may need
constexpr std::uint64_t kTurn = 1 << 16;   // yields after which other blocks get a turn
constexpr unsigned kMaxPatience = 64;      // rounds alone before other blocks get a turn
constexpr unsigned kSeededPass = 4;        // one in so many yields goes to another block
constexpr std::size_t kSharedAlignment = 128;

}  // namespace

void Slot::join(Run& run) {
  if (!threads_) threads_ = std::make_unique<Thread[]>(kMaxThreads);
  stacks_.configure(kMaxThreads, run.schedule.stack_bytes);
  shared_.resize(run.shape.shared_bytes + kSharedAlignment);
  const auto start = reinterpret_cast<std::uintptr_t>(shared_.data());
  shared_base_ = shared_.data() + (kSharedAlignment - start % kSharedAlignment) % kSharedAlignment;
  run_ = &run;
  active_ = false;
  for (unsigned i = 0; i < kMaxThreads; ++i) threads_[i].slot = this;
}

void Slot::leave() noexcept {
  if (active_) stacks_.forget();  // its block was abandoned
  active_ = false;
  run_ = nullptr;
}

void Slot::begin_block(std::uint64_t number) {
  const dim3& grid = run_->shape.grid;
  block_number_ = number;
  block_index_ = {static_cast<unsigned>(number % grid.x),
                  static_cast<unsigned>(number / grid.x % grid.y),
                  static_cast<unsigned>(number / grid.x / grid.y)};
  detail::builtins.block = block_index_;
  detail::builtins.block_dim = run_->shape.block;
  detail::builtins.grid_dim = grid;
  const unsigned threads = run_->block_threads;
  live_ = threads;
  barrier_ = {};
  ready_.clear();
  at_barrier_.clear();
  for (unsigned i = 0; i < threads; ++i) {
    threads_[i].state = ThreadState::fresh;
    threads_[i].stack = nullptr;
  }
  next_fresh_ = 0;
  if (run_->seeded()) {
    for (; next_fresh_ < threads; ++next_fresh_) ready_.push(next_fresh_);
  }
  for (unsigned i = 0; i * kLanes < threads; ++i) {
    const unsigned lanes = std::min(kLanes, threads - i * kLanes);
    warps_[i].present = lanes == kLanes ? ~0u : (1u << lanes) - 1;
    warps_[i].exited = 0;
    warps_[i].group_count = 0;
  }
  stacks_.reset();
  active_ = true;
  emit_run(*run_, EventKind::block_begin, number, false);
}

void Slot::end_block() {
  active_ = false;
  emit_run(*run_, EventKind::block_end, block_number_, true);
}

Slot* Slot::drive() {
  if (kEvents && run_->engine != nullptr) return drive_explored();
  FaultScope faults;
  if (sigsetjmp(faults.landing(), 0) != 0) {
    Thread* const thread = std::exchange(t_current, nullptr);
    set_hook(nullptr);
    run_->fail(Errc::kernel_fault, concat("kernel fault in ", describe(*thread), ": ",
                                          faults.describe(thread->stack, stacks_)));
    return nullptr;
  }
  faults.arm();
  idle_ = turn_ = 0;
  for (;;) {
    if (!active_) {
      if (run_->next_block == run_->blocks) return next_active();
      begin_block(run_->next_block++);
      if (run_->seeded() && has_other() && run_->random.below(2) == 0) return choose_other();
    }
    Thread& next = *pick();
    prepare_stack(next);
    set_running(next);
    switch_context(home_, next);
    if (outcome_ == Outcome::failed) return nullptr;
    if (outcome_ == Outcome::block_done) {
      end_block();
    } else {
      return choose_other();
    }
  }
}

// Does as its run's engine decides, until that is something for another slot, which is returned, or
// for the host: null.
Slot* Slot::drive_explored() {
  Engine& engine = *run_->engine;
  FaultScope faults;
  if (sigsetjmp(faults.landing(), 0) != 0) {
    Thread* const thread = std::exchange(t_current, nullptr);
    set_hook(nullptr);
    run_->fail(Errc::kernel_fault, concat("kernel fault in ", describe(*thread), ": ",
                                          faults.describe(thread->stack, stacks_)));
    engine.failed(*this);
    return nullptr;
  }
  faults.arm();
  for (;;) {
    const Decision next = engine.take();
    if (next.slot != this) {
      engine.put(next);
      return next.slot;
    }
    if (next.kind == Decision::Kind::begin) {
      begin_block(engine.next_block(*this));
      engine.block_begun(*this);
      engine.put(engine.decide());
      continue;
    }
    prepare_stack(*next.thread);
    set_running(*next.thread);
    switch_context(home_, *next.thread);
    if (outcome_ == Outcome::failed) {
      engine.failed(*this);
      return nullptr;
    }
    if (outcome_ == Outcome::block_done) {
      end_block();
      engine.block_ended(*this);
      engine.put(engine.decide());
    }
  }
}

Thread* Slot::pick() {
  if (run_->seeded()) {
    const unsigned count = ready_.size();
    return count == 0 ? nullptr : &threads_[ready_.take(run_->random.below(count))];
  }
  if (next_fresh_ < run_->block_threads) return &threads_[next_fresh_++];
  return ready_.empty() ? nullptr : &threads_[ready_.pop()];
}

void Slot::prepare(Thread& thread) {
  const auto number = static_cast<unsigned>(&thread - threads_.get());
  const dim3& extent = run_->shape.block;
  thread.number = number;
  if (extent.y == 1 && extent.z == 1) {
    thread.index = {number, 0, 0};
  } else {
    thread.index = {number % extent.x, number / extent.x % extent.y, number / extent.x / extent.y};
  }
  thread.state = ThreadState::ready;
  thread.in_kernel = false;
  thread.streak = 0;
  thread.standing = {};
  thread.polled_address = nullptr;
  thread.last_operand = 0;
  thread.pending.address = nullptr;
  thread.pending.load_passed = false;
}

// Gives a thread that has not started a fiber of its own.
void Slot::prepare_stack(Thread& thread) {
  if (thread.state != ThreadState::fresh) return;
  prepare(thread);
  thread.stack = stacks_.take();
  const std::size_t bytes = stacks_.stack_bytes();
  thread.where = boost::context::detail::make_fcontext(thread.stack + bytes, bytes, &fiber_main);
#if HOLDFAST_FIBER_ASAN
  thread.fake_stack = nullptr;
  thread.bottom = thread.stack;
  thread.size = bytes;
#endif
}

void Slot::set_running(Thread& thread) {
  t_current = &thread;
  detail::builtins.thread = thread.index;
  set_hook(&thread);
}

void Slot::fiber_main(boost::context::detail::transfer_t transfer) {
  arrive(transfer, nullptr);
  Thread* thread = t_current;
  for (;;) {
    thread->slot->run_thread(*thread);
    thread = thread->slot->finish(*thread);
  }
}

void Slot::run_thread(Thread& thread) {
  emit(thread, EventKind::thread_begin, Scope::system, {});
  std::optional<std::string> thrown;
  try {
    (*run_->body)();
  } catch (const std::exception& error) {
    thrown = error.what();
  } catch (...) {
    thrown = "of an unknown type";
  }
  if (thrown) {
    note_failure(thread, Errc::kernel_fault, "the kernel threw an exception: " + *thrown);
    thrown.reset();
    abandon(thread);
  }
}

// Ends `thread`. Returns a thread to start on the same stack, or does not return.
Thread* Slot::finish(Thread& thread) {
  settle(thread);
  thread.in_kernel = false;
  set_hook(nullptr);
  emit(thread, EventKind::thread_end, Scope::system, {});
  if (!StackPool::intact(thread.stack)) fail_overflow(thread);
  thread.state = ThreadState::exited;
  --live_;
  progress();
  exit_warp(thread);
  Engine* const engine = run_->engine;
  if (engine != nullptr) engine->ended(thread);
  if (live_ == 0) {
    stacks_.give(std::exchange(thread.stack, nullptr));
    go_home(thread, Outcome::block_done, true);
  }
  if (barrier_.arrived == live_) complete_barrier();
  Thread* next = nullptr;
  if (engine != nullptr) {
    const Decision decision = engine->decide();
    if (decision.kind != Decision::Kind::thread || decision.slot != this) {
      stacks_.give(std::exchange(thread.stack, nullptr));
      engine->put(decision);
      go_home(thread, Outcome::pass_baton, true);
    }
    next = decision.thread;
  } else {
    next = pick();
  }
  if (next == nullptr) fail_deadlock(thread);
  if (next->state == ThreadState::fresh) {
    prepare(*next);
    next->stack = std::exchange(thread.stack, nullptr);
    set_running(*next);
    return next;
  }
  stacks_.give(std::exchange(thread.stack, nullptr));
  set_running(*next);
  switch_context(thread, *next, true);
  __builtin_unreachable();
}

void Slot::go(Thread& self, Thread& next) {
  prepare_stack(next);
  set_running(next);
  switch_context(self, next);
}

void Slot::go_home(Thread& self, Outcome outcome, bool ends) {
  outcome_ = outcome;
  t_current = nullptr;
  set_hook(nullptr);
  switch_context(self, home_, ends);
  if (ends) __builtin_unreachable();
}

// A thread that is deep in too small a stack has perhaps not touched the canary yet.
void Slot::check_stack(Thread& self) {
  const auto* frame = static_cast<const std::byte*>(__builtin_frame_address(0));
  if (frame < self.stack + kStackMargin) fail_overflow(self);
}

void Slot::yield(Thread& self) {
  settle(self);
  self.streak = 0;
  if (kEvents && run_->engine != nullptr) return;  // others go on at the next visible step
  ++turn_;
  ++idle_;
  if (++run_->idle >= run_->idle_limit) check_idle(self);
  check_stack(self);
  if (should_pass()) {
    ready_.push(self.number);
    go_home(self, Outcome::pass_baton, false);
    return;
  }
  if (runnable() == 0) return;
  ready_.push(self.number);
  Thread* const next = pick();
  if (next != &self) go(self, *next);
}

void Slot::wait(Thread& self) {
  settle(self);
  self.streak = 0;
  check_stack(self);
  if (kEvents && run_->engine != nullptr) {
    run_->engine->follow(self, run_->engine->decide());
    return;
  }
  if (run_->seeded() && runnable() != 0 && has_other() && run_->random.below(kSeededPass) == 0) {
    go_home(self, Outcome::pass_baton, false);
    return;
  }
  Thread* const next = pick();
  if (next == nullptr) fail_deadlock(self);
  go(self, *next);
}

void Slot::make_ready(std::uint32_t thread) {
  threads_[thread].state = ThreadState::ready;
  if (kEvents && run_->engine != nullptr) {
    run_->engine->make_local(threads_[thread]);
  } else {
    ready_.push(thread);
  }
}

bool Slot::has_other() const { return run_->active_slots() > 1 || run_->can_start_block(); }

bool Slot::should_pass() {
  if (run_->seeded()) {
    return has_other() && run_->random.below(kSeededPass) == 0;
  }
  if (run_->lockstep() && turn_ > runnable()) return has_other();
  if (idle_ < std::uint64_t{patience_} * (runnable() + 1) && turn_ < kTurn) return false;
  if (!has_other()) return false;
  patience_ = std::min(2 * patience_, kMaxPatience);
  return true;
}

Slot* Slot::next_active() const {
  for (std::size_t i = 1; i <= run_->slots.size(); ++i) {
    Slot* const slot = run_->slots[(number_ + i) % run_->slots.size()];
    if (slot->active()) return slot;
  }
  return nullptr;
}

// The slot that gets the baton: perhaps a new one for the next block. Null: out of memory.
Slot* Slot::choose_other() {
  bool start = run_->can_start_block();
  unsigned skip = 0;
  if (run_->seeded()) {
    const unsigned others = run_->active_slots() - (active_ ? 1 : 0);
    skip = run_->random.below(others + (start ? 1 : 0));
    start = start && skip == others;
  }
  if (start) {
    try {
      return recruit_slot(*run_);
    } catch (const Error& error) {
      run_->fail(error.code(), error.what());
      return nullptr;
    } catch (const std::exception& error) {
      run_->fail(Errc::no_memory, concat("no thread for one more resident block (", error.what(),
                                         "): lower resident_blocks"));
      return nullptr;
    }
  }
  const Slot* slot = this;
  Slot* next = slot->next_active();
  for (; skip > 0; --skip) next = next->next_active();
  return next;
}

int Slot::block_barrier(Thread& self, detail::BarrierOp op, int predicate) {
  if (barrier_.arrived == 0) {
    barrier_.op = op;
    barrier_.count = 0;
  } else if (barrier_.op != op) {
    note_failure(self, Errc::kernel_fault,
                 concat("the block's threads meet at different barriers: others wait at ",
                        name_of(barrier_.op)));
    abandon(self);
  }
  barrier_.count += predicate != 0;
  if (++barrier_.arrived == live_) {
    complete_barrier();
    if (run_->seeded()) yield(self);
  } else {
    self.state = ThreadState::at_barrier;
    at_barrier_.push(self.number);
    wait(self);
  }
  return barrier_.result;
}

void Slot::complete_barrier() {
  switch (barrier_.op) {
    case detail::BarrierOp::sync:
      barrier_.result = 0;
      break;
    case detail::BarrierOp::count:
      barrier_.result = barrier_.count;
      break;
    case detail::BarrierOp::all:
      barrier_.result = barrier_.count == static_cast<int>(barrier_.arrived);
      break;
    case detail::BarrierOp::any:
      barrier_.result = barrier_.count != 0;
      break;
  }
  if (kEvents && run_->engine != nullptr) run_->engine->met_block(*this);
  barrier_.arrived = 0;
  ++barrier_.generation;
  while (!at_barrier_.empty()) make_ready(at_barrier_.pop());
  progress();
}

}  // namespace holdfast::cpu

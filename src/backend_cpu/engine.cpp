#include "backend_cpu/engine.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "backend_cpu/events.hpp"
#include "backend_cpu/faults.hpp"
#include "backend_cpu/host_events.hpp"
#include "backend_cpu/pending.hpp"
#include "backend_cpu/team.hpp"
#include "core/host_asks.hpp"

namespace holdfast::cpu {

namespace {

// How often a loop may ask the same, in a state that is not quite the same, before it counts as
// spinning.
constexpr unsigned kRepeats = 2;
// How often one that counts as spinning is let go on because nobody else can.
constexpr std::uint64_t kReleases = 10'000;
// How many updates in a row may change nothing before they count as looks.
constexpr unsigned kIdle = 16;
// How often one goes on while others could, too, before they do.
constexpr std::uint64_t kInARow = 1'000;

// How often the host may ask the same before all else goes on a little each time it asks, and how
// often in vain.
constexpr std::uint64_t kAsked = 1'000;
constexpr std::uint64_t kAskedInVain = 1'000'000;

constinit thread_local Engine* t_engine = nullptr;

std::uint64_t peek(const void* address, std::size_t size) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, address, std::min(size, sizeof bits));
  return bits;
}

}  // namespace

// The caller's registers are on its stack if it has called __builtin_unwind_init().
[[gnu::noinline]] std::uint64_t hash_stack(const std::byte* high) noexcept {
  const auto* at = static_cast<const std::byte*>(__builtin_frame_address(0));
  std::uint64_t result = 0x9e3779b97f4a7c15u;
  for (; at + 8 <= high; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    result = (result ^ word) * 0xff51afd7ed558ccdu;
    result ^= result >> 32;
  }
  return result;
}

[[gnu::noinline]] void stop_thread(Thread& self, bool writes, const void* address,
                                   std::size_t size) {
  __builtin_unwind_init();
  const std::byte* const top = self.stack + self.slot->stacks().stack_bytes();
  const std::uint64_t state = hash_stack(top);
  Step step;
  step.writes = writes;
  step.address = address;
  step.size = size;
  const void* const site =
      self.standing.pc != nullptr
          ? self.standing.pc
          : reinterpret_cast<const void*>(static_cast<std::uintptr_t>(self.standing.line));
  self.slot->run().engine->point(self, step, site, state ^ self.stores);
}

[[gnu::noinline]] void stop_host(bool writes, const void* address, std::size_t size,
                                 const void* site) {
  __builtin_unwind_init();
  Engine& engine = *Engine::of_host();
  const std::uint64_t state = hash_stack(engine.host_stack());
  Step step;
  step.writes = writes;
  step.address = address;
  step.size = size;
  engine.host_point(step, site, state ^ engine.host_stores());
}

Engine::Engine(Chooser& chooser) : chooser_(chooser), outer_(std::exchange(t_engine, this)) {
  install_fault_handlers();
  team_slot(0);
}

Engine::~Engine() {
  for (Lane& lane : lanes_) {
    if (!lane.running) continue;
    lane.running->run.fail(Errc::device, "the exploration ended while a kernel was underway");
    end_kernel(*lane.running);
  }
  t_engine = outer_;
}

Engine* Engine::of_host() { return t_engine; }

Engine::Lane& Engine::lane(Stream::Impl& stream) {
  for (Lane& lane : lanes_) {
    if (lane.stream == &stream) return lane;
  }
  Lane& fresh = lanes_.emplace_back();
  fresh.number = static_cast<std::uint32_t>(lanes_.size());
  fresh.stream = &stream;
  return fresh;
}

std::uint32_t Engine::number_of(Stream::Impl& stream) { return lane(stream).number; }

void Engine::forget(Stream::Impl& stream) {
  for (Lane& lane : lanes_) {
    if (lane.stream == &stream) lane.stream = nullptr;
  }
}

bool Engine::idle(Stream::Impl& stream) {
  Lane& its = lane(stream);
  return its.items.empty() && !its.running;
}

// The host gives the stream one more task.
Engine::Item& Engine::add(Stream::Impl& stream, std::uint64_t waits_for) {
  stream.adopt();
  host_acts();
  Lane& its = lane(stream);
  Item& item = its.items.emplace_back();
  item.task = its.given = ++tasks_;
  item.waits_for = waits_for;
  chooser_.order(kHostActor, task_actor(item.task));
  if (Listener* const listener = current_listener()) {
    Event event;
    event.kind = EventKind::launch;
    event.host = true;
    event.stream = its.number;
    event.task = item.task;
    event.generation = waits_for;
    const Silence silence;
    listener->on_event(event);
  }
  return item;
}

void Engine::push(Stream::Impl& stream, std::function<void()> work, bool always,
                  std::function<bool()> ready, std::uint64_t waits_for) {
  Item& item = add(stream, waits_for);
  item.work = std::move(work);
  item.always = always;
  item.ready = std::move(ready);
}

void Engine::launch(Stream::Impl& stream, const Shape& shape, const Schedule& schedule,
                    std::function<void()> body) {
  Item& item = add(stream, 0);
  item.kernel = std::make_unique<Kernel>();
  Kernel& kernel = *item.kernel;
  kernel.stream = &stream;
  kernel.body = std::move(body);
  Run& run = kernel.run;
  run.shape = shape;
  run.body = &kernel.body;
  run.schedule = schedule;
  run.schedule.seed = 0;
  run.listener = current_listener();
  run.engine = this;
  run.stream = lane(stream).number;
  run.task = item.task;
  run.block_threads = shape.block.x * shape.block.y * shape.block.z;
  run.blocks = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
}

// Whoever goes on meanwhile must find the host's last store told, which it has made.
void Engine::wait_until(const std::function<bool()>& done) {
  settle_host();
  const auto* const outer = std::exchange(host_waits_, &done);
  while (!done()) advance();
  if (next_.kind == Decision::Kind::host) take();  // it goes on: that was for this wait alone
  host_waits_ = outer;
}

void Engine::wait_for(Stream::Impl& stream) {
  wait_until([&] { return idle(stream); });
}

void Engine::synchronized(Stream::Impl* stream, std::uint64_t task) {
  for (const Lane& lane : lanes_) {
    if (lane.last == 0 || (stream != nullptr && lane.stream != stream)) continue;
    chooser_.order(task_actor(stream != nullptr && task != 0 ? task : lane.last), kHostActor);
  }
}

void Engine::host_point(const Step& step, const void* site, std::uint64_t state) {
  if (running_task_ != 0) return;  // work of a stream
  const Silence silence;           // what the engine looks at, the host does not read
  Pending& host = pending_[kHostActor];
  arrive(host, step, site, state);
  host_at_point_ = true;
  while (host_at_point_) advance();
}

// Whether it is told so now or later is no step of a schedule: one answer alone is tried.
void Engine::host_asks() {
  if (has_work() && running_task_ == 0) chooser_.cut();
  let_others(++asked_);
}

void Engine::host_reads(const void* address, std::size_t size) {
  const Silence silence;
  Asked& read = reads_[reinterpret_cast<std::uintptr_t>(address) / 4 % reads_.size()];
  const std::uint64_t value = peek(address, size);
  if (read.address != address || read.value != value) read = {address, value, 0};
  let_others(++read.times);
}

void Engine::host_stores(const void* address) {
  const bool on_stack = address >= __builtin_frame_address(0) && address < host_stack_;
  if (!on_stack && running_task_ == 0) ++stores_;
}

bool Engine::has_work() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.stream != nullptr && (lane.running || !lane.items.empty());
  });
}

void Engine::let_others(std::uint64_t asked) {
  if (asked <= kAsked || running_task_ != 0) return;
  if (!has_work()) return;
  chooser_.cut();  // it might have been told earlier
  if (next_.kind == Decision::Kind::none) next_ = decide();
  if (next_.kind != Decision::Kind::stuck) return advance();
  take();
  if (asked > kAskedInVain) fail_all();
}

// On the host's thread: lets whoever is next go on.
void Engine::advance() {
  const Silence silence;  // functions of streams are not the host's, either
  if (next_.kind == Decision::Kind::none) next_ = decide();
  switch (next_.kind) {
    case Decision::Kind::host:
      take();
      host_at_point_ = false;
      break;
    case Decision::Kind::work:
      do_work(*take().stream);
      break;
    case Decision::Kind::stuck:
      take();
      fail_all();
      break;
    default:
      drive_slot(*next_.slot);
  }
}

// Begins what is at the head of the stream's queue. False: it is work for the host's thread.
bool Engine::begin_task(Lane& lane) {
  Item& head = lane.items.front();
  if (head.ready && !head.ready()) return true;
  const bool skip = lane.stream->error().has_value() && !head.always;
  chooser_.order(task_actor(lane.last), task_actor(head.task));
  if (head.waits_for != 0) chooser_.order(task_actor(head.waits_for), task_actor(head.task));
  if (skip) {
    lane.last = head.task;
    lane.items.pop_front();
    return true;
  }
  if (!head.kernel) return false;
  lane.last = head.task;
  Item item = std::move(head);
  lane.items.pop_front();
  begin_kernel(lane, std::move(item));
  return true;
}

void Engine::begin_kernel(Lane& lane, Item item) {
  lane.running = std::move(item.kernel);
  Kernel& kernel = *lane.running;
  emit_run(kernel.run, EventKind::kernel_begin, 0, false);
  kernel.unassigned = kernel.run.blocks;
  try {
    while (kernel.unassigned > 0 && kernel.run.slots.size() < kernel.run.schedule.resident_blocks) {
      const auto free = std::find(used_slots_.begin(), used_slots_.end(), false);
      const auto number = static_cast<unsigned>(free - used_slots_.begin());
      Slot& slot = team_slot(number);
      slot.join(kernel.run);
      if (free == used_slots_.end()) used_slots_.push_back(false);
      used_slots_[number] = true;
      kernel.run.slots.push_back(&slot);
      to_begin_.push_back(&slot);
      --kernel.unassigned;
    }
    if (kernel.unassigned > 0) chooser_.cut();  // none of them comes before all of the first
  } catch (const std::exception& error) {
    kernel.run.fail(Errc::no_memory, concat("the kernel could not start: ", error.what()));
    end_kernel(kernel);
  }
}

void Engine::do_work(Stream::Impl& stream) {
  Lane& its = lane(stream);
  Item item = std::move(its.items.front());
  its.items.pop_front();
  its.last = item.task;
  const std::uint64_t task = std::exchange(running_task_, item.task);
  const std::uint32_t number = std::exchange(running_stream_, its.number);
  work_frame_ = static_cast<const std::byte*>(__builtin_frame_address(0));
  accessed_.clear();
  stream.attempt(item.work);
  running_task_ = task;
  running_stream_ = number;
}

bool Engine::is_new_to_function(EventKind kind, const void* address, std::size_t size) {
  if (running_task_ == 0 || size == 0) return false;
  if (address >= __builtin_frame_address(0) && address < work_frame_) return false;
  return accessed_.emplace(kind, address, size).second;
}

Engine::Kernel& Engine::kernel_of(const Slot& slot) {
  for (Lane& lane : lanes_) {
    if (lane.running && &lane.running->run == &slot.run()) return *lane.running;
  }
  std::terminate();
}

std::uint64_t Engine::next_block(Slot& slot) { return slot.run().next_block++; }

void Engine::block_begun(Slot& slot) {
  const unsigned threads = slot.run().block_threads;
  slot.next_fresh_ = threads;
  for (unsigned i = threads; i-- > 0;) {
    Thread& thread = slot.threads_[i];
    thread.number = i;
    locals_.push_back(&thread);
    chooser_.order(task_actor(slot.run().task), actor_of(thread));
  }
}

void Engine::free_slot(Kernel& kernel, Slot& slot) {
  std::erase(kernel.run.slots, &slot);
  used_slots_[slot.number()] = false;
  slot.leave();
}

void Engine::block_ended(Slot& slot) {
  Kernel& kernel = kernel_of(slot);
  if (kernel.unassigned > 0) {
    --kernel.unassigned;
    to_begin_.push_back(&slot);
    return;
  }
  free_slot(kernel, slot);
  if (kernel.run.slots.empty()) end_kernel(kernel);
}

void Engine::failed(Slot& slot) { end_kernel(kernel_of(slot)); }

// However it has ended.
void Engine::end_kernel(Kernel& kernel) {
  const auto is_its = [&](const Thread* thread) { return &thread->slot->run() == &kernel.run; };
  std::erase_if(locals_, is_its);
  std::erase_if(to_begin_, [&](const Slot* slot) { return &slot->run() == &kernel.run; });
  std::erase_if(points_, [&](Pending* pending) {
    if (pending->thread == nullptr || !is_its(pending->thread)) return false;
    pending->listed = false;
    return true;
  });
  while (!kernel.run.slots.empty()) free_slot(kernel, *kernel.run.slots.back());
  emit_run(kernel.run, EventKind::kernel_end, 0, !kernel.run.error);
  for (Lane& lane : lanes_) {
    if (lane.running.get() != &kernel) continue;
    if (kernel.run.error && lane.stream != nullptr) lane.stream->fail(*kernel.run.error);
    lane.running.reset();
    return;
  }
}

// Nobody can go on.
void Engine::fail_all() {
  bool any = false;
  for (Lane& lane : lanes_) {
    if (!lane.running) continue;
    any = true;
    lane.running->run.fail(
        Errc::livelock,
        concat("livelock: every thread waits for another one, or asks the same again and again; "
               "where the threads stand:",
               describe_stuck(lane.running->run)));
    end_kernel(*lane.running);
  }
  if (any) return;
  throw Error(Errc::livelock, host_at_point_
                                  ? "livelock: the host reads the same again and again, and no "
                                    "kernel is there that could change it"
                                  : "deadlock: the host waits for a stream that cannot go on");
}

Actor Engine::actor_of(const Thread& thread) const {
  const Run& run = thread.slot->run();
  return thread_actor(run.task, thread.slot->block_number() * run.block_threads + thread.number);
}

void Engine::only_read(const Thread& self) {
  chooser_.only_read();
  pending_[actor_of(self)].wrote = false;
}

// One that goes on so counts as spinning, though to others each is a write.
void Engine::left_alone(Pending& pending) {
  pending.was_idle = true;
  if (++pending.idle > kIdle) pending.wrote = false;
}

void Engine::left_alone(const Thread& self) { left_alone(pending_[actor_of(self)]); }

void Engine::host_left_alone() {
  if (running_task_ == 0) left_alone(pending_[kHostActor]);
}

void Engine::host_only_read() {
  if (running_task_ != 0) return;
  chooser_.only_read();
  pending_[kHostActor].wrote = false;
}

void Engine::arrive(Pending& pending, const Step& step, const void* site, std::uint64_t state) {
  if (!std::exchange(pending.was_idle, false)) pending.idle = 0;
  if (pending.wrote) {
    pending.reads.clear();
    pending.repeats = 0;
  }
  const Actor actor = pending.step.actor;
  pending.step = step;
  pending.step.actor = actor;
  pending.wrote = step.writes;
  pending.spins = pending.is_cut = false;
  const Read now{site,  step.address,    step.size, peek(step.address, step.size),
                 state, pending.meetings};
  const auto before = std::find_if(
      pending.reads.begin(), pending.reads.end(),
      [&](const Read& read) { return read.site == site && read.address == step.address; });
  const auto is_as_before = [&] {
    return before->state == now.state && before->meetings == now.meetings;
  };
  if (before == pending.reads.end()) {
    pending.reads.push_back(now);
  } else if (before->value != now.value) {
    pending.reads.assign(1, now);
    pending.repeats = 0;
  } else if (is_as_before() || ++pending.repeats > kRepeats) {
    pending.spins = true;
    pending.is_cut = !is_as_before();
    // What it read before it came here is no part of the loop.
    if (pending.is_cut) {
      pending.reads.assign(1, now);
    } else {
      pending.reads.erase(pending.reads.begin(), before);
    }
    if (pending.is_cut || pending.reads.size() > 1) chooser_.cut();
  } else {
    *before = now;
  }
  if (!pending.listed) {
    pending.listed = true;
    points_.insert(std::upper_bound(points_.begin(), points_.end(), &pending,
                                    [](const Pending* a, const Pending* b) {
                                      return a->step.actor < b->step.actor;
                                    }),
                   &pending);
  }
}

// Until something that it has read changes.
bool Engine::is_blocked(const Pending& pending) {
  return pending.spins &&
         std::all_of(pending.reads.begin(), pending.reads.end(),
                     [](const Read& read) { return peek(read.address, read.size) == read.value; });
}

// Where nobody can go on, a loop that counts its turns may.
bool Engine::release_one() {
  if (++released_ > kReleases) return false;
  Pending* next = nullptr;  // the one that has waited for longest
  for (Pending* pending : points_) {
    if (pending->is_cut && (next == nullptr || pending->released < next->released)) next = pending;
  }
  if (next == nullptr) return false;
  next->spins = next->is_cut = false;
  next->released = released_;
  return true;
}

// Whoever goes on and on, though others could: a loop that writes is not known to spin.
bool Engine::hold_back() {
  in_a_row_ = 0;
  for (Pending* pending : points_) {
    if (pending->step.actor != last_) continue;
    pending->spins = pending->is_cut = true;
    pending->reads.clear();
    chooser_.cut();
    return true;
  }
  return false;
}

Decision Engine::decide() {
  if (host_waits_ != nullptr && (*host_waits_)()) return {Decision::Kind::host};
  for (bool again = true; again;) {
    again = false;
    for (Lane& lane : lanes_) {
      if (lane.stream == nullptr || lane.running || lane.items.empty()) continue;
      const std::size_t before = lane.items.size();
      if (!begin_task(lane)) return {Decision::Kind::work, nullptr, nullptr, lane.stream};
      if (lane.items.size() != before) again = true;
    }
    if (host_waits_ != nullptr && (*host_waits_)()) return {Decision::Kind::host};
  }
  if (!to_begin_.empty()) {
    Slot* const slot = to_begin_.back();
    to_begin_.pop_back();
    return {Decision::Kind::begin, slot};
  }
  if (!locals_.empty()) {
    Thread* const thread = locals_.back();
    locals_.pop_back();
    return {Decision::Kind::thread, thread->slot, thread};
  }
  return choose();
}

Decision Engine::choose() {
  steps_.clear();
  std::size_t able = 0;
  for (Pending* pending : points_) {
    steps_.push_back(pending->step);
    steps_.back().blocked = is_blocked(*pending);
    able += steps_.back().blocked ? 0 : 1;
  }
  if (able == 0) {
    if (release_one()) return choose();
    return {Decision::Kind::stuck};
  }
  if (able > 1 && in_a_row_ > kInARow && hold_back()) return choose();
  const std::size_t chosen = chooser_.choose(steps_);
  Pending& pending = *points_[chosen];
  for (Read& read : pending.reads) {  // what it reads now, where it has waited for that
    if (read.address == pending.step.address) read.value = peek(read.address, read.size);
  }
  in_a_row_ = able > 1 && pending.step.actor == last_ ? in_a_row_ + 1 : 0;
  last_ = pending.step.actor;
  pending.listed = false;
  points_.erase(points_.begin() + static_cast<std::ptrdiff_t>(chosen));
  if (pending.thread == nullptr) return {Decision::Kind::host};
  return {Decision::Kind::thread, pending.thread->slot, pending.thread};
}

void Engine::point(Thread& self, const Step& step, const void* site, std::uint64_t state) {
  self.slot->check_stack(self);
  const Actor actor = actor_of(self);
  Pending& pending = pending_[actor];
  pending.step.actor = actor;
  pending.thread = &self;
  arrive(pending, step, site, state);
  follow(self, decide());
}

void Engine::follow(Thread& self, const Decision& decision) {
  if (decision.kind == Decision::Kind::thread && decision.slot == self.slot) {
    if (decision.thread != &self) self.slot->go(self, *decision.thread);
    return;
  }
  put(decision);
  self.slot->go_home(self, Outcome::pass_baton, false);
}

void Engine::ended(Thread& thread) {
  chooser_.order(actor_of(thread), task_actor(thread.slot->run().task));
}

void Engine::met(const Slot& slot, std::uint32_t first, std::uint32_t lanes) {
  std::vector<Actor> actors;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) actors.push_back(actor_of(slot.threads_[first + lane]));
  }
  met(actors);
}

void Engine::met_block(const Slot& slot) {
  std::vector<Actor> actors;
  for (unsigned i = 0; i < slot.run().block_threads; ++i) {
    if (slot.threads_[i].state != ThreadState::exited) {
      actors.push_back(actor_of(slot.threads_[i]));
    }
  }
  met(actors);
}

void Engine::met(const std::vector<Actor>& actors) {
  chooser_.meet(actors);
  if (actors.size() < 2) return;
  for (const Actor actor : actors) {
    if (const auto pending = pending_.find(actor); pending != pending_.end()) {
      ++pending->second.meetings;
    }
  }
}

Exploration::Exploration(Chooser& chooser) {
  if (!kEvents) {
    throw Error(Errc::unsupported,
                "this program's library cannot explore schedules: link holdfast::check");
  }
  engine_ = std::make_unique<Engine>(chooser);
}
Exploration::~Exploration() = default;

// What lies below this frame is the host's own state.
[[gnu::noinline]] void Exploration::run(const std::function<void()>& host) {
  engine_->set_host_stack(static_cast<const std::byte*>(__builtin_frame_address(0)));
  host();
}

}  // namespace holdfast::cpu

void holdfast::core::host_asks() {
  cpu::note_host_beside(nullptr);
  if (cpu::Engine* const engine = cpu::Engine::of_host()) engine->host_asks();
}

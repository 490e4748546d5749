#include "check/race.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "check/event_site.hpp"
#include "check/race_order.hpp"
#include "check/race_shadow.hpp"
#include "check/race_tasks.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {

using cpu::Event;
using cpu::EventKind;
using race::Access;
using race::for_granules;
using race::kGranule;
using race::Shadow;
using race::Strength;

namespace {

constexpr unsigned kMaxAccesses = 32;     // of one kind in a list, once it was shortened ...
constexpr unsigned kLongList = 64;        // ... which is done from here on
constexpr std::size_t kMaxCopies = 4096;  // that the host has not waited for

Strength strength_of(const Event& event) {
  const bool strong = event.is_volatile || event.is_atomic || event.kind == EventKind::atomic ||
                      event.kind == EventKind::acquire || event.kind == EventKind::release;
  return strong ? static_cast<Strength>(1 + static_cast<int>(event.scope)) : Strength::weak;
}

// Strong accesses may be unordered if they are of the same bytes and each thread is within the
// other's scope (PTX, "morally strong").
bool same_bytes(const Access& a, const Access& b) { return a.whole == b.whole && a.size == b.size; }
bool exempt(const Access& a, const Access& b) {
  if (a.strength == Strength::weak || b.strength == Strength::weak) return false;
  if (!same_bytes(a, b)) return false;
  if (a.work == 0 || b.work == 0) {  // the host's
    return a.strength == Strength::system && b.strength == Strength::system;
  }
  return race::block_of(a.thread) == race::block_of(b.thread) ||
         (a.strength >= Strength::device && b.strength >= Strength::device);
}

// Whether all that would race with `earlier` later on will race with `access`, which comes after
// it.
bool supersedes(const Access& access, const Access& earlier) {
  if (earlier.is_write && !access.is_write) return false;
  if (earlier.strength == Strength::weak && access.strength != Strength::weak) return false;
  if (access.strength != Strength::weak && !same_bytes(access, earlier)) return false;
  return access.is_write || access.chain == 0 || earlier.chain == 0 ||
         access.chain == earlier.chain;
}

// Numbers for places.
class Sites {
 public:
  std::uint32_t number(const Event& event) {
    const Site site = site_of(event);
    if (last_ < sites_.size() && sites_[last_] == site) return last_;
    const auto next = static_cast<std::uint32_t>(sites_.size());
    last_ = site.pc != nullptr
                ? by_pc_.try_emplace(site.pc, next).first->second
                : by_line_.try_emplace({site.file ? site.file : "", site.line}, next).first->second;
    if (last_ == next) sites_.push_back(site);
    return last_;
  }
  const Site& operator[](std::uint32_t number) const { return sites_[number]; }

 private:
  std::vector<Site> sites_;
  std::unordered_map<const void*, std::uint32_t> by_pc_;
  std::map<std::pair<std::string, unsigned>, std::uint32_t> by_line_;
  std::uint32_t last_ = ~0u;
};

}  // namespace

class RaceDetector::Impl {
 public:
  explicit Impl(std::size_t max_bytes) : order_(max_bytes / 2), max_shadow_(max_bytes / 2) {}

  void on_event(const Event& event);

  std::vector<Race> races;
  bool is_complete() const { return !was_short_ && !order_.was_short() && !more_; }

 private:
  struct Placed {
    race::Variable variable;
    std::uint8_t mask;
  };
  // A kernel or copy that has begun, by number; number 0 is what the host does itself.
  struct Work {
    std::uint64_t task = 0;
    std::uint64_t first_block = race::kHostBlock;
    bool follows_all = false;  // comes behind all with lower numbers but the host
    bool is_copy = false;
  };
  struct Copy {
    std::uintptr_t begin, end;
    bool is_write;
    std::uint32_t site;
    std::uint32_t work;
  };

  void on_kernel_event(const Event& event);
  void begin_kernel(const Event& event);
  void end_kernel(const Event& event);
  std::uint32_t begin_work(const Event& event, race::Tasks::Begin& begin);
  void on_access(race::Thread& thread, const Event& event, std::uint32_t work);
  void access(const race::Thread& thread, Access access, std::uint64_t granule, bool shared);
  void meet_copies(const race::Thread& thread, const Access& access, std::uintptr_t begin);
  bool ordered(const race::Thread& thread, std::uint32_t work, const Access& earlier) const;
  bool observed(const race::Thread& thread, const Access& access, const Access& earlier,
                std::uint32_t first) const;
  std::uint32_t synchronize(race::Thread& thread, const Event& event, bool reads, bool writes,
                            bool shared);
  void overwrite(std::uint64_t granule, std::uint8_t mask);
  void make_room();

  void on_host_event(const Event& event);
  void on_copy(const Event& event);
  std::uint32_t work_of_copy(const Event& event);
  void synchronized(const Event& event);

  void report(const Access& first, const Access& second, std::uint64_t granule, bool shared);
  void add(Race race, std::uint32_t first, std::uint32_t second);
  RaceSide side(const Access& access) const;

  race::Order order_;
  race::Tasks tasks_{order_};
  std::vector<Work> works_{Work{}};
  std::unordered_map<std::uint64_t, std::uint32_t> running_;  // kernels, by their events' task
  std::uint64_t own_tasks_ = 0;                               // where events tell none
  Shadow shadow_;
  std::size_t max_shadow_;
  std::unordered_map<std::uint64_t, std::vector<Placed>> variables_;  // by granule
  std::vector<Copy> copies_;                                          // that someone may not know
  race::KnownPtr copy_knows_;                                         // of the last one
  Sites sites_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> reported_;
  std::uint32_t time_ = 0;
  race::Clock host_spoke_ = 0;  // when the host last made a strong access, from 1
  bool beside_ = false;         // some work may have learnt something from other that ran then
  bool was_short_ = false;
  bool more_ = false;
};

void RaceDetector::Impl::on_event(const Event& event) {
  if (event.host) {
    on_host_event(event);
  } else {
    on_kernel_event(event);
  }
}

// Where events tell no tasks, each comes behind all before it, and behind what the host has done.
std::uint32_t RaceDetector::Impl::begin_work(const Event& event, race::Tasks::Begin& begin) {
  std::uint64_t task = event.task;
  if (task == 0) tasks_.give(1, task = ++own_tasks_, 0);
  begin = tasks_.begin(task);
  works_.push_back({task, 0, begin.follows_all, event.is_copy});
  return static_cast<std::uint32_t>(works_.size() - 1);
}

void RaceDetector::Impl::begin_kernel(const Event& event) {
  race::Tasks::Begin begin;
  const std::uint32_t work = begin_work(event, begin);
  const bool alone = begin.follows_all && running_.empty();
  const bool knows_host =
      host_spoke_ == 0 || begin.known->covers(order_.host().key, host_spoke_ - 1);
  if (alone && knows_host && (begin.host_knows || event.task == 0)) {
    variables_.clear();  // nothing is to be learnt from what was written so far
    time_ = 0;
  }
  beside_ = beside_ || !alone;
  works_[work].first_block =
      order_.begin_kernel(std::uint64_t{event.grid.x} * event.grid.y * event.grid.z,
                          event.extent.x * event.extent.y * event.extent.z, std::move(begin.known));
  running_[event.task] = work;
}

void RaceDetector::Impl::end_kernel(const Event& event) {
  order_.end_kernel(works_[running_.at(event.task)].first_block);
  running_.erase(event.task);
}

void RaceDetector::Impl::on_kernel_event(const Event& event) {
  if (event.kind == EventKind::kernel_begin) return begin_kernel(event);
  const auto running = running_.find(event.task);
  if (running == running_.end()) return;
  const std::uint32_t number = running->second;
  const Work& work = works_[number];
  const std::uint64_t block = work.first_block + event.block;
  switch (event.kind) {
    case EventKind::kernel_end:
      return end_kernel(event);
    case EventKind::block_begin:
      return order_.begin_block(block);
    case EventKind::block_end:
      return order_.end_block(block);
    default:
      break;
  }
  race::Thread& thread = order_.arrive(block, event.thread);
  switch (event.kind) {
    case EventKind::thread_end:
      if (beside_) tasks_.end(work.task, thread.known);
      return order_.end_thread(thread);
    case EventKind::fence:
      return order_.fence(thread, event.scope);
    case EventKind::durability_fence:
      return order_.fence(thread, Scope::system);
    case EventKind::barrier:
      return order_.barrier(thread, event.generation);
    case EventKind::warp_barrier:  // votes and shuffles order no memory
      if (event.exchanges) return;
      return order_.warp_barrier(thread, event.mask);
    case EventKind::load:
    case EventKind::store:
    case EventKind::atomic:
    case EventKind::acquire:
    case EventKind::release:
      return on_access(thread, event, number);
    default:
      return;
  }
}

void RaceDetector::Impl::on_access(race::Thread& thread, const Event& event, std::uint32_t work) {
  make_room();
  const bool updates = event.kind == EventKind::atomic && !event.failed;
  const bool shared = work != 0 && cpu::is_shared(event.address);
  Access access;
  access.thread = thread.key;
  access.clock = thread.now;
  access.site = sites_.number(event);
  access.work = work;
  access.time = ++time_;
  access.size = static_cast<std::uint32_t>(event.size);
  access.is_write = updates || event.kind == EventKind::store || event.kind == EventKind::release;
  access.strength = strength_of(event);
  if (access.strength != Strength::weak) {
    access.chain = synchronize(thread, event, updates || !access.is_write, access.is_write, shared);
  }
  if (!copies_.empty() && !shared) {
    meet_copies(thread, access, reinterpret_cast<std::uintptr_t>(event.address));
  }
  for_granules(event.address, event.size, [&](std::uint64_t granule, std::uint8_t mask) {
    access.mask = access.whole = mask;
    if (access.is_write && access.strength == Strength::weak) overwrite(granule, mask);
    this->access(thread, access, granule, shared);
  });
}

// A strong access: what is learnt by it, and what it publishes. Returns its chain.
std::uint32_t RaceDetector::Impl::synchronize(race::Thread& thread, const Event& event, bool reads,
                                              bool writes, bool shared) {
  const auto address = reinterpret_cast<std::uintptr_t>(event.address);
  if (address % kGranule + event.size > kGranule) return 0;
  const std::uint64_t granule = address / kGranule;
  const auto mask = static_cast<std::uint8_t>(((1u << event.size) - 1) << address % kGranule);
  auto& placed = variables_[granule];
  std::erase_if(placed, [&](const Placed& other) {
    return (shared && other.variable.writer_block != thread.block()) ||
           (writes && (other.mask & mask) != 0 && other.mask != mask);
  });
  auto found = std::find_if(placed.begin(), placed.end(),
                            [&](const Placed& other) { return other.mask == mask; });
  if (found == placed.end()) {
    if (!writes) return 0;
    found = placed.insert(placed.end(), Placed{{}, mask});
    found->variable.address = address;
  }
  // The orders that std::atomic was given are not known: it passes for sequentially consistent.
  const bool is_std =
      event.host || event.is_atomic || (event.kind == EventKind::atomic && event.pc != nullptr);
  std::uint32_t chain = 0;
  if (reads) {
    chain = order_.read(thread, found->variable, event.scope,
                        is_std || event.kind == EventKind::acquire);
  }
  if (!writes) return chain;
  order_.write(thread, found->variable, event.scope, is_std || event.kind == EventKind::release,
               reads);
  return found->variable.chain;
}

// A weak write publishes nothing and ends what a variable published.
void RaceDetector::Impl::overwrite(std::uint64_t granule, std::uint8_t mask) {
  const auto found = variables_.find(granule);
  if (found == variables_.end()) return;
  std::erase_if(found->second, [&](const Placed& placed) { return (placed.mask & mask) != 0; });
  if (found->second.empty()) variables_.erase(found);
}

// Whether `earlier` comes before what the thread, of that work, does now.
bool RaceDetector::Impl::ordered(const race::Thread& thread, std::uint32_t work,
                                 const Access& earlier) const {
  if (earlier.work != work && earlier.work != 0) {
    if (works_[work].follows_all && earlier.work < work) return true;
    if (tasks_.is_done(thread.known, works_[earlier.work].task)) return true;
  }
  return order_.ordered(thread, earlier.thread, earlier.clock);
}

// Whether a strong access that is so ordered has read what `earlier` wrote (PTX: causality order
// takes in what was observed). `first`: its granule's list.
bool RaceDetector::Impl::observed(const race::Thread& thread, const Access& access,
                                  const Access& earlier, std::uint32_t first) const {
  if (!earlier.is_write || earlier.chain == 0) return false;
  for (std::uint32_t at = first; at != 0; at = shadow_[at].next) {
    const Access& other = shadow_[at];
    if (other.chain == earlier.chain && other.time > earlier.time &&
        ordered(thread, access.work, other)) {
      return true;
    }
  }
  return false;
}

// Reports what races with `access`, and adds it to its granule.
void RaceDetector::Impl::access(const race::Thread& thread, Access access, std::uint64_t granule,
                                bool shared) {
  std::uint32_t& first = shadow_.first(granule);
  const bool is_long = first != 0 && shadow_[first].length >= kLongList;
  // A read that only finds reads of others races with none of them.
  if (first != 0 && !is_long && !access.is_write && !shadow_[first].meets_writes &&
      shadow_[first].thread != access.thread) {
    access.length = static_cast<std::uint16_t>(shadow_[first].length + 1);
    access.next = first;
    first = shadow_.add(access);
    return;
  }
  for (std::uint32_t at = first; at != 0; at = shadow_[at].next) {
    Access& earlier = shadow_[at];
    earlier.is_superseded = false;
    if ((earlier.mask & access.mask) == 0) continue;
    if (shared && race::block_of(earlier.thread) != thread.block()) {
      earlier.is_superseded = true;  // of other memory, which was at the same address
      continue;
    }
    const bool reads = !earlier.is_write && !access.is_write;
    // Whether one read comes before another matters to the list's length alone, and takes time.
    if (reads && earlier.thread != access.thread && !is_long) continue;
    const bool conflicts = !reads && !exempt(earlier, access);
    if (ordered(thread, access.work, earlier) ||
        (conflicts && observed(thread, access, earlier, first))) {
      earlier.is_superseded = supersedes(access, earlier);
    } else if (conflicts) {
      report(earlier, access, granule, shared);
    }
  }
  unsigned alike = 0;
  access.length = 1;
  access.meets_writes = access.is_write;
  for (std::uint32_t* link = &first; *link != 0;) {
    const std::uint32_t number = *link;
    Access& earlier = shadow_[number];
    if (earlier.is_superseded) {
      if (!access.is_write && access.chain == 0) {
        access.chain = earlier.chain;  // it knows what its thread has observed
        access.time = earlier.time;
      }
      earlier.mask = static_cast<std::uint8_t>(earlier.mask & ~access.mask);
    }
    if (earlier.mask == 0 || (is_long && earlier.like(access) && ++alike >= kMaxAccesses)) {
      *link = earlier.next;
      shadow_.remove(number);
    } else {
      ++access.length;
      access.meets_writes = access.meets_writes || earlier.is_write;
      link = &earlier.next;
    }
  }
  access.next = first;
  first = shadow_.add(access);
}

void RaceDetector::Impl::make_room() {
  constexpr std::size_t kVariableBytes = 256;
  if (shadow_.bytes() + variables_.size() * kVariableBytes <= max_shadow_) return;
  was_short_ = true;
  shadow_.clear();
  variables_.clear();
}

// What comes after all that was given has been waited for comes after everything.
void RaceDetector::Impl::synchronized(const Event& event) {
  tasks_.waited(event.stream, event.task);
  if (!tasks_.all_waited_for()) return;
  shadow_.clear();
  copies_.clear();
}

void RaceDetector::Impl::on_host_event(const Event& event) {
  if (event.kind == EventKind::synchronize) return synchronized(event);
  if (event.kind == EventKind::launch) {
    return tasks_.give(event.stream, event.task, event.generation);
  }
  if (event.size == 0) return;
  if (event.is_copy) return on_copy(event);
  race::Thread& host = order_.host();
  if (strength_of(event) != Strength::weak) {
    beside_ = beside_ || !tasks_.all_waited_for();
    on_access(host, event, 0);
    host_spoke_ = host.now + 1;
    return;
  }
  on_access(host, event, 0);
}

// What a copy reads and what it writes comes in two events.
std::uint32_t RaceDetector::Impl::work_of_copy(const Event& event) {
  if (event.task != 0 && works_.back().task == event.task) {
    return static_cast<std::uint32_t>(works_.size() - 1);
  }
  race::Tasks::Begin begin;
  const std::uint32_t work = begin_work(event, begin);
  beside_ = beside_ || !begin.follows_all;
  copy_knows_ = begin.known;
  works_[work].first_block = order_.begin_kernel(1, 1, std::move(begin.known));
  order_.end_kernel(works_[work].first_block);
  return work;
}

void RaceDetector::Impl::on_copy(const Event& event) {
  const auto begin = reinterpret_cast<std::uintptr_t>(event.address);
  const std::uintptr_t end = begin + event.size;
  Access access;
  access.work = work_of_copy(event);
  access.site = sites_.number(event);
  access.is_write = event.kind == EventKind::store;
  access.size = static_cast<std::uint32_t>(event.size);
  access.thread = race::thread_key(works_[access.work].first_block, 0);
  race::Thread thread;
  thread.key = access.thread;
  thread.known = copy_knows_;
  meet_copies(thread, access, begin);
  shadow_.for_lists(begin, end, [&](std::uint64_t granule, std::uint32_t first) {
    for_granules(reinterpret_cast<const void*>(std::max(begin, granule * kGranule)),
                 std::min(end, (granule + 1) * kGranule) - std::max(begin, granule * kGranule),
                 [&](std::uint64_t, std::uint8_t mask) { access.mask = mask; });
    for (std::uint32_t at = first; at != 0; at = shadow_[at].next) {
      const Access& earlier = shadow_[at];
      if ((earlier.mask & access.mask) == 0 || !(earlier.is_write || access.is_write)) continue;
      if (!ordered(thread, access.work, earlier)) report(earlier, access, granule, false);
    }
  });
  if (copies_.size() == kMaxCopies) {
    was_short_ = true;
    return;
  }
  copies_.push_back({begin, end, access.is_write, access.site, access.work});
}

// Copies, which are many bytes each, are not in the shadow.
void RaceDetector::Impl::meet_copies(const race::Thread& thread, const Access& access,
                                     std::uintptr_t begin) {
  const Work& work = works_[access.work];
  for (auto copy = copies_.rbegin(); copy != copies_.rend(); ++copy) {
    if (copy->work < access.work && work.follows_all) return;
    if (copy->work == access.work || !(copy->is_write || access.is_write)) continue;
    if (copy->begin >= begin + access.size || begin >= copy->end) continue;
    if (tasks_.is_done(thread.known, works_[copy->work].task)) continue;
    Access earlier;
    earlier.work = copy->work;
    earlier.site = copy->site;
    earlier.is_write = copy->is_write;
    earlier.thread = race::thread_key(works_[copy->work].first_block, 0);
    const std::uintptr_t byte = std::max(begin, copy->begin);
    earlier.mask = static_cast<std::uint8_t>(1u << byte % kGranule);
    Access later = access;
    later.mask = earlier.mask;
    report(earlier, later, byte / kGranule, false);
  }
}

RaceSide RaceDetector::Impl::side(const Access& access) const {
  const bool host = access.work == 0;
  const bool is_copy = works_[access.work].is_copy;
  RaceSide result{sites_[access.site], access.is_write, host || is_copy, is_copy, 0, 0};
  if (result.host) return result;
  result.block = race::block_of(access.thread) - works_[access.work].first_block;
  result.thread = race::thread_of(access.thread);
  return result;
}

void RaceDetector::Impl::report(const Access& first, const Access& second, std::uint64_t granule,
                                bool shared) {
  Race race;
  if (first.work == 0 || second.work == 0) {
    race.kind = "host does not wait";
  } else if (first.strength != Strength::weak && second.strength != Strength::weak) {
    race.kind = same_bytes(first, second) ? "scope too narrow: block" : "mixed sizes";
  } else if (first.work != second.work) {
    race.kind = "streams do not wait";
  } else {
    race.kind = first.is_write && second.is_write ? "write-write" : "read-write";
  }
  const auto byte = std::countr_zero(static_cast<unsigned>(first.mask & second.mask));
  race.address =
      reinterpret_cast<const void*>(granule * kGranule + static_cast<std::uintptr_t>(byte));
  race.is_shared = shared;
  race.first = side(first);
  race.second = side(second);
  add(std::move(race), first.site, second.site);
}

void RaceDetector::Impl::add(Race race, std::uint32_t first, std::uint32_t second) {
  if (reported_.contains(std::minmax(first, second))) return;
  if (races.size() == kMaxRaces) {
    more_ = true;
    return;
  }
  reported_.insert(std::minmax(first, second));
  races.push_back(std::move(race));
}

RaceDetector::RaceDetector(std::size_t max_bytes) : impl_(std::make_unique<Impl>(max_bytes)) {}
RaceDetector::~RaceDetector() = default;
void RaceDetector::on_event(const Event& event) {
  if (!event.presumed) impl_->on_event(event);  // the store of the same bytes says more
}
std::vector<Race> RaceDetector::races() const { return impl_->races; }
bool RaceDetector::complete() const { return impl_->is_complete(); }

std::string to_string(const Race& race) {
  const auto text = [](const RaceSide& side) {
    const char* const what = side.is_write ? "a write" : "a read";
    if (side.is_copy) return detail::concat(what, " of a copy");
    if (side.host) return detail::concat(what, " of the host");
    return detail::concat(what, " of block ", side.block, ", thread ", side.thread);
  };
  return detail::concat(race.kind, " at ", race.address, race.is_shared ? " in shared memory" : "",
                        ": ", text(race.first), " and ", text(race.second));
}

}  // namespace holdfast::check

// Warp collectives: a rendezvous of the lanes of a mask.
#include <algorithm>
#include <bit>

#include "backend_cpu/engine.hpp"
#include "backend_cpu/events.hpp"
#include "backend_cpu/run.hpp"

namespace holdfast::cpu {
namespace {

using detail::WarpOp;

bool is_shuffle(WarpOp op) { return op >= WarpOp::shfl; }

template <class Visit>
void for_each_lane(unsigned lanes, Visit visit) {
  for (; lanes != 0; lanes &= lanes - 1) visit(static_cast<unsigned>(std::countr_zero(lanes)));
}

// The lane that `lane` reads; itself where CUDA returns the caller's own value.
unsigned shuffle_source(WarpOp op, unsigned lane, unsigned argument, unsigned width) {
  const unsigned first = lane & ~(width - 1);
  const unsigned last = first + width - 1;
  switch (op) {
    case WarpOp::shfl:
      return first + (argument & (width - 1));
    case WarpOp::shfl_up:
      return argument <= lane - first ? lane - argument : lane;
    case WarpOp::shfl_down:
      return argument <= last - lane ? lane + argument : lane;
    default: {
      const unsigned source = lane ^ (argument & (kLanes - 1));
      return source <= last ? source : lane;
    }
  }
}

std::uint32_t combine(WarpOp op, std::uint32_t a, std::uint32_t b) {
  switch (op) {
    case WarpOp::add:
      return a + b;
    case WarpOp::min_signed:
      return static_cast<std::uint32_t>(
          std::min(static_cast<std::int32_t>(a), static_cast<std::int32_t>(b)));
    case WarpOp::max_signed:
      return static_cast<std::uint32_t>(
          std::max(static_cast<std::int32_t>(a), static_cast<std::int32_t>(b)));
    case WarpOp::min_unsigned:
      return std::min(a, b);
    case WarpOp::max_unsigned:
      return std::max(a, b);
    case WarpOp::bit_and:
      return a & b;
    case WarpOp::bit_or:
      return a | b;
    default:
      return a ^ b;
  }
}

// What all lanes get from a vote, a reduction or __match_all_sync.
std::uint64_t common_result(const Warp& warp, WarpOp op, unsigned members) {
  const std::uint64_t first = warp.lanes[static_cast<unsigned>(std::countr_zero(members))].value;
  unsigned votes = 0;
  bool equal = true;
  std::uint32_t reduced = static_cast<std::uint32_t>(first);
  bool is_first = true;
  for_each_lane(members, [&](unsigned lane) {
    const std::uint64_t value = warp.lanes[lane].value;
    if (value != 0) votes |= 1u << lane;
    equal = equal && value == first;
    if (!is_first) reduced = combine(op, reduced, static_cast<std::uint32_t>(value));
    is_first = false;
  });
  switch (op) {
    case WarpOp::sync:
      return 0;
    case WarpOp::ballot:
      return votes;
    case WarpOp::any:
      return votes != 0;
    case WarpOp::all:
      return votes == members;
    case WarpOp::match_all:
      return equal ? members : 0;
    default:
      return reduced;
  }
}

void compute(Warp& warp, WarpOp op, unsigned members) {
  if (is_shuffle(op)) {
    for_each_lane(members, [&](unsigned lane) {
      Warp::Lane& to = warp.lanes[lane];
      to.result = warp.lanes[shuffle_source(op, lane, to.argument, to.width)].value;
    });
  } else if (op == WarpOp::match_any) {
    for_each_lane(members, [&](unsigned lane) {
      unsigned same = 0;
      for_each_lane(members, [&](unsigned other) {
        if (warp.lanes[other].value == warp.lanes[lane].value) same |= 1u << other;
      });
      warp.lanes[lane].result = same;
    });
  } else {
    const std::uint64_t result = common_result(warp, op, members);
    for_each_lane(members, [&](unsigned lane) { warp.lanes[lane].result = result; });
  }
}

std::string hex(unsigned mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

}  // namespace

const char* name_of(detail::WarpOp op) noexcept {
  constexpr const char* kNames[] = {"__syncwarp",        "__ballot_sync",     "__any_sync",
                                    "__all_sync",        "__match_any_sync",  "__match_all_sync",
                                    "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
                                    "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync",
                                    "__reduce_or_sync",  "__reduce_xor_sync", "__shfl_sync",
                                    "__shfl_up_sync",    "__shfl_down_sync",  "__shfl_xor_sync"};
  return kNames[static_cast<unsigned>(op)];
}

const char* name_of(detail::BarrierOp op) noexcept {
  constexpr const char* kNames[] = {"__syncthreads", "__syncthreads_count", "__syncthreads_and",
                                    "__syncthreads_or"};
  return kNames[static_cast<unsigned>(op)];
}

void Slot::check_mask(Thread& self, const Warp& warp, WarpOp op, unsigned mask, int width) {
  const unsigned me = 1u << self.lane();
  if ((mask & me) == 0) {
    note_failure(self, Errc::kernel_fault,
                 concat("lane ", self.lane(), " calls with mask ", hex(mask),
                        ", which does not name it: every caller must be in its mask"));
    abandon(self);
  }
  if (const unsigned gone = mask & warp.exited; gone != 0 && op != WarpOp::sync) {
    note_failure(self, Errc::kernel_fault,
                 concat("mask ", hex(mask), " names lane ", std::countr_zero(gone),
                        ", which has exited: name only lanes that reach this call"));
    abandon(self);
  }
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    note_failure(self, Errc::kernel_fault,
                 concat("width ", width, " is not a power of two from 1 to 32"));
    abandon(self);
  }
  for (unsigned i = 0; i < warp.group_count; ++i) {
    const Warp::Group& group = warp.groups[i];
    if ((group.mask & me) == 0 || (group.arrived & mask) == 0) continue;
    if (group.mask == mask && group.op == op) continue;
    const unsigned lane = static_cast<unsigned>(std::countr_zero(group.arrived & mask));
    const Thread& other = threads_[self.number - self.lane() + lane];
    note_failure(
        self, Errc::kernel_fault,
        concat("lanes that wait for each other are at different operations: lane ", self.lane(),
               " with mask ", hex(mask), ", and lane ", lane, " at ", name_of(group.op),
               " with mask ", hex(group.mask), " (", describe_place(other.standing), ")"));
    abandon(self);
  }
}

void Slot::check_sources(Thread& self, const Warp& warp, WarpOp op, unsigned members) {
  for_each_lane(members, [&](unsigned lane) {
    const Warp::Lane& to = warp.lanes[lane];
    const unsigned source = shuffle_source(op, lane, to.argument, static_cast<unsigned>(to.width));
    if ((members >> source & 1) != 0) return;
    const Thread& reader = threads_[self.number - self.lane() + lane];
    run_->fail(Errc::kernel_fault,
               concat(describe(reader), ", ", reader.standing.operation, " at ",
                      describe_place(reader.standing), ": lane ", lane, " reads lane ", source,
                      ", which does not take part: its value is undefined"));
    abandon(self);
  });
}

std::uint64_t Slot::warp_collective(Thread& self, WarpOp op, unsigned mask, std::uint64_t value,
                                    unsigned argument, int width) {
  Warp& warp = warps_[self.warp()];
  check_mask(self, warp, op, mask, width);
  const unsigned lane = self.lane();
  warp.lanes[lane] = {value, 0, argument, width};
  unsigned group = 0;
  while (group < warp.group_count &&
         (warp.groups[group].mask != mask || warp.groups[group].op != op)) {
    ++group;
  }
  if (group == warp.group_count) warp.groups[warp.group_count++] = {op, mask, 0};
  warp.groups[group].arrived |= 1u << lane;
  if (!try_complete(self, warp, group)) {
    self.state = ThreadState::at_collective;
    wait(self);
  } else if (run_->seeded()) {
    yield(self);
  }
  return warp.lanes[lane].result;
}

// Completes the group if all its lanes are there; `self` is one of them or has just exited.
bool Slot::try_complete(Thread& self, Warp& warp, unsigned number) {
  const Warp::Group group = warp.groups[number];
  const unsigned members = group.mask & warp.present & ~warp.exited;
  if (group.arrived != members) return false;
  if (is_shuffle(group.op)) check_sources(self, warp, group.op, members);
  compute(warp, group.op, members);
  warp.groups[number] = warp.groups[--warp.group_count];
  const unsigned first = self.number - self.lane();
  if (kEvents && run_->engine != nullptr) run_->engine->met(*this, first, members);
  for_each_lane(members, [&](unsigned lane) {
    if (first + lane != self.number) make_ready(first + lane);
  });
  progress();
  return true;
}

void Slot::exit_warp(Thread& self) {
  Warp& warp = warps_[self.warp()];
  const unsigned me = 1u << self.lane();
  warp.exited |= me;
  for (unsigned i = 0; i < warp.group_count;) {
    const Warp::Group& group = warp.groups[i];
    if ((group.mask & me) == 0) {
      ++i;
    } else if (group.op == WarpOp::sync) {
      if (!try_complete(self, warp, i)) ++i;
    } else {
      const unsigned lane = static_cast<unsigned>(std::countr_zero(group.arrived));
      const Thread& waiting = threads_[self.number - self.lane() + lane];
      run_->fail(
          Errc::kernel_fault,
          concat(describe(waiting), ", ", name_of(group.op), " at ",
                 describe_place(waiting.standing), ": mask ", hex(group.mask), " names lane ",
                 self.lane(), ", which has exited: name only lanes that reach this call"));
      abandon(self);
    }
  }
}

}  // namespace holdfast::cpu

#include "check/mutate.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "holdfast/cpu/executor.hpp"

namespace holdfast::check {

using cpu::Event;
using cpu::EventKind;

namespace {

bool is_store(const Trace& trace, const Op& op) {
  return op.kind == OpKind::write && trace.persistent.contains(op.address);
}

bool orders(const Op& op) {
  return op.kind == OpKind::ordering_fence || op.kind == OpKind::durability_fence ||
         op.kind == OpKind::fence || op.kind == OpKind::release || op.kind == OpKind::acquire;
}

bool overlap(const Op& a, const Op& b) {
  return a.address < b.address + b.size && b.address < a.address + a.size;
}

// Calls visit(first, second) with the numbers of a thread's store and its next one, where a fence
// stands between them and they are not to the same bytes.
template <class Visit>
void for_fenced_pairs(const Trace& trace, Visit&& visit) {
  struct Last {
    std::size_t store = 0;
    bool any = false;
    bool fenced = false;
  };
  std::vector<Last> threads(trace.threads.size());
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    Last& last = threads[op.thread];
    if (op.thread == kHostThread || op.thread == kCopyThread) continue;
    if (is_store(trace, op)) {
      const bool pair = last.any && last.fenced && !overlap(trace.ops[last.store], op);
      const std::size_t before = last.store;
      last = {i, true, false};
      if (pair) visit(before, i);
    } else if (orders(op)) {
      last.fenced = true;
    }
  }
}

void swap_stores(Trace& trace, std::size_t first, std::size_t second) {
  Op& a = trace.ops[first];
  Op& b = trace.ops[second];
  std::swap(a.site, b.site);
  std::swap(a.address, b.address);
  std::swap(a.size, b.size);
  std::swap(a.value, b.value);
  std::swap(a.strong, b.strong);
  std::swap(a.scope, b.scope);
}

// A collective that returns something is more than a barrier: without it, there is no program.
bool is_droppable(const Event& event) {
  switch (event.kind) {
    case EventKind::fence:
    case EventKind::ordering_fence:
    case EventKind::durability_fence:
    case EventKind::release:
    case EventKind::acquire:
    case EventKind::barrier:
      return true;
    case EventKind::warp_barrier:
      return !event.exchanges;
    case EventKind::synchronize:
      return event.pc != nullptr;
    default:
      return false;
  }
}

bool has_scope(const Event& event) {
  return event.kind == EventKind::fence || event.kind == EventKind::release ||
         event.kind == EventKind::acquire;
}

}  // namespace

void Census::add(Mutation::Kind kind, const Site& site, Scope scope) {
  if (known_.insert({kind, scope, site.pc, site.file, site.line}).second) {
    changes_.push_back({kind, scope, site});
  }
}

void Census::on_event(const Event& event) {
  waited_ = event.kind == EventKind::synchronize && event.pc != nullptr;
  if (waited_) wait_ = site_of(event);
  if (!is_droppable(event)) return;
  const Site site = site_of(event);
  add(Mutation::Kind::drop, site);
  if (event.kind == EventKind::durability_fence) add(Mutation::Kind::weaken, site);
  if (!has_scope(event)) return;
  if (event.scope > Scope::device) add(Mutation::Kind::narrow, site, Scope::device);
  if (event.scope > Scope::block) add(Mutation::Kind::narrow, site, Scope::block);
}

void Census::acknowledged() {
  if (waited_) add(Mutation::Kind::early, wait_);
}

void Census::add_pairs(const Trace& trace) {
  for_fenced_pairs(trace, [&](std::size_t first, std::size_t) {
    add(Mutation::Kind::swap, trace.sites[trace.ops[first].site]);
  });
}

Mutator::Mutator(const Mutation& mutation, std::vector<Site> sites)
    : mutation_(mutation), sites_(std::move(sites)) {
  for (const Site& site : sites_) {
    if (site.pc != nullptr) pcs_.insert(site.pc);
  }
  leaves_out_ = [this](const char* file, unsigned line) {
    if (!is_meant({nullptr, file, line})) return false;
    met_ = true;
    return true;
  };
}

Mutator::~Mutator() { end(); }

void Mutator::begin(cpu::Listener& to) {
  to_ = &to;
  early_ = false;
  if (mutation_.kind == Mutation::Kind::drop) cpu::leave_out_barriers(&leaves_out_);
}

void Mutator::end() {
  if (to_ == nullptr) return;
  to_ = nullptr;
  cpu::leave_out_barriers(nullptr);
}

bool Mutator::is_meant(const Site& site) const {
  if (site.pc != nullptr) return pcs_.contains(site.pc);
  return std::any_of(sites_.begin(), sites_.end(), [&](const Site& other) {
    return other.pc == nullptr && other.line == site.line && other.file != nullptr &&
           site.file != nullptr && std::strcmp(other.file, site.file) == 0;
  });
}

// Changes that add something, where the others take something away.
bool Mutator::adds(const Event& event) {
  const bool stores = event.kind == EventKind::store || event.kind == EventKind::atomic ||
                      event.kind == EventKind::release;
  const bool persists = mutation_.kind == Mutation::Kind::persist && stores && !event.is_copy;
  const bool widens = mutation_.kind == Mutation::Kind::widen;
  if ((!persists && !widens) || !is_meant(site_of(event))) return false;
  met_ = true;
  Event changed = event;
  if (widens) changed.scope = std::max(event.scope, mutation_.scope);
  to_->on_event(changed);
  if (widens || event.host) return true;
  changed.kind = EventKind::durability_fence;
  changed.scope = Scope::system;
  changed.is_volatile = changed.is_atomic = false;
  changed.address = changed.value = changed.new_value = nullptr;
  changed.size = 0;
  to_->on_event(changed);
  return true;
}

void Mutator::on_event(const Event& event) {
  early_ = false;
  if (adds(event)) return;
  if (!is_droppable(event) || !is_meant(site_of(event))) return to_->on_event(event);
  Event changed = event;
  switch (mutation_.kind) {
    case Mutation::Kind::drop:
      met_ = true;
      // Without its order it is still an access, and one that cannot tear.
      dropped_wait_ = dropped_wait_ || event.kind == EventKind::synchronize;
      if (event.kind != EventKind::release && event.kind != EventKind::acquire) return;
      changed.kind = event.kind == EventKind::release ? EventKind::store : EventKind::load;
      changed.is_volatile = true;
      break;
    case Mutation::Kind::narrow:
      if (has_scope(event)) {
        met_ = true;
        changed.scope = std::min(event.scope, mutation_.scope);
      }
      break;
    case Mutation::Kind::weaken:
      if (event.kind == EventKind::durability_fence) {
        met_ = true;
        changed.kind = EventKind::ordering_fence;
      }
      break;
    case Mutation::Kind::early:
      early_ = event.kind == EventKind::synchronize;
      met_ = met_ || early_;
      break;
    default:
      break;
  }
  to_->on_event(changed);
}

void Mutator::change(Trace& trace) {
  if (mutation_.kind != Mutation::Kind::swap) return;
  const Trace before = trace;
  std::vector<bool> moved(trace.ops.size());
  for_fenced_pairs(before, [&](std::size_t first, std::size_t second) {
    if (!is_meant(before.sites[before.ops[first].site]) || moved[first]) return;
    moved[second] = true;
    met_ = true;
    swap_stores(trace, first, second);
  });
}

void acknowledge_early(Trace& trace) {
  auto at = trace.ops.end();
  while (at != trace.ops.begin() && std::prev(at)->kind == OpKind::synchronize) --at;
  while (at != trace.ops.begin() && std::prev(at)->thread != kHostThread) --at;
  Op op;
  op.kind = OpKind::acknowledge;
  op.thread = kHostThread;
  trace.ops.insert(at, op);
}

}  // namespace holdfast::check

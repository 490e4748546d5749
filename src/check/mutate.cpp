#include "check/mutate.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace holdfast::check {

namespace {

bool is_store(const Trace& trace, const Op& op) {
  return op.kind == OpKind::write && trace.persistent.contains(op.address);
}

bool is_fence(const Op& op) {
  return op.kind == OpKind::ordering_fence || op.kind == OpKind::durability_fence ||
         op.kind == OpKind::fence;
}

bool orders(const Op& op) {
  return is_fence(op) || op.kind == OpKind::release || op.kind == OpKind::acquire;
}

// Whether a scope can be narrowed: persist() and its like have none.
bool has_scope(const Op& op) {
  return op.kind == OpKind::fence || op.kind == OpKind::release || op.kind == OpKind::acquire;
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

// With a durability fence behind each store of the places meant.
Trace persisted(const Trace& trace, const std::vector<bool>& meant) {
  Trace changed = trace;
  changed.ops.clear();
  for (Op op : trace.ops) {
    changed.ops.push_back(op);
    const bool stores = op.kind == OpKind::write || op.kind == OpKind::update;
    if (!meant[op.site] || !stores || !trace.persistent.contains(op.address)) continue;
    op.kind = OpKind::durability_fence;
    op.scope = Scope::system;
    op.strong = false;
    op.size = 0;
    changed.ops.push_back(op);
  }
  return changed;
}

}  // namespace

Trace mutate(const Trace& trace, const Mutation& mutation, Places& places) {
  if (mutation.kind == Mutation::Kind::none) return trace;
  places.look_up(trace);
  std::vector<bool> meant(trace.sites.size());
  for (std::size_t i = 0; i < meant.size(); ++i) {
    meant[i] = places.name(trace.sites[i]) == mutation.place;
  }
  Trace changed = trace;
  if (mutation.kind == Mutation::Kind::swap) {
    std::vector<bool> moved(trace.ops.size());
    for_fenced_pairs(trace, [&](std::size_t first, std::size_t second) {
      if (!meant[trace.ops[first].site] || moved[first]) return;
      moved[second] = true;
      swap_stores(changed, first, second);
    });
    return changed;
  }
  if (mutation.kind == Mutation::Kind::persist) return persisted(trace, meant);
  for (Op& op : changed.ops) {
    if (mutation.kind == Mutation::Kind::widen && meant[op.site] && (has_scope(op) || op.strong)) {
      op.scope = std::max(op.scope, mutation.scope);
    }
    if (!meant[op.site] || !orders(op)) continue;
    if (mutation.kind == Mutation::Kind::narrow) {
      if (has_scope(op)) op.scope = std::min(op.scope, mutation.scope);
    } else if (mutation.kind == Mutation::Kind::weaken) {
      if (op.kind == OpKind::durability_fence) op.kind = OpKind::ordering_fence;
    } else if (mutation.kind != Mutation::Kind::drop) {
      continue;
    } else if (op.kind == OpKind::release) {
      op.kind = OpKind::write;  // still strong, and still a store
    } else if (op.kind == OpKind::acquire) {
      op.kind = OpKind::read;
    }
  }
  if (mutation.kind == Mutation::Kind::drop) {
    std::erase_if(changed.ops, [&](const Op& op) { return meant[op.site] && is_fence(op); });
  }
  return changed;
}

std::vector<Mutation> mutations_of(const Trace& trace, Places& places) {
  places.look_up(trace);
  std::vector<Mutation> result;
  std::set<std::tuple<Mutation::Kind, std::string, Scope>> known;
  const auto add = [&](Mutation::Kind kind, const Op& op, Scope scope = Scope::system) {
    const std::string place = places.name(trace.sites[op.site]);
    if (known.insert({kind, place, scope}).second) result.push_back({kind, place, scope});
  };
  for (const Op& op : trace.ops) {
    if (!orders(op)) continue;
    add(Mutation::Kind::drop, op);
    if (op.kind == OpKind::durability_fence) add(Mutation::Kind::weaken, op);
    if (!has_scope(op)) continue;
    if (op.scope > Scope::device) add(Mutation::Kind::narrow, op, Scope::device);
    if (op.scope > Scope::block) add(Mutation::Kind::narrow, op, Scope::block);
  }
  for_fenced_pairs(
      trace, [&](std::size_t first, std::size_t) { add(Mutation::Kind::swap, trace.ops[first]); });
  return result;
}

}  // namespace holdfast::check

// The order of docs/model.md once more, written as its formal lines stand there: edges between
// operations and a search for paths. Slow, and independent of src/check/order.cpp. SBRP's model.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "check/bitset.hpp"
#include "check/order.hpp"
#include "check/trace.hpp"

namespace holdfast::test {

class ReferenceOrder {
 public:
  explicit ReferenceOrder(const check::Trace& trace) : trace_(trace), ops_(trace.ops) {
    find_reads_from();
    find_synchronisation();
  }

  // Whether persists `before` and `after` (of operations, not numbers) are ordered by A1, A2, A3,
  // A4 or A6, without transitivity.
  bool ordered(std::uint32_t before, std::uint32_t after) const {
    if (before >= after) return false;
    if (po(before, after)) {
      for (std::uint32_t f = before + 1; f < after; ++f) {
        if (is_fence(f) && po(before, f) && po(f, after)) return true;  // A1
      }
      if (ops_[after].kind == Kind::release) return true;  // A6
    }
    return synchronised(before, after);
  }

 private:
  using Kind = check::OpKind;

  bool po(std::uint32_t a, std::uint32_t b) const {
    return a < b && ops_[a].thread == ops_[b].thread;
  }
  bool is_fence(std::uint32_t i) const {
    return ops_[i].kind == Kind::fence || ops_[i].kind == Kind::ordering_fence ||
           ops_[i].kind == Kind::durability_fence;
  }
  // Of a fence for volatile memory, too: whom it reaches.
  int reach(std::uint32_t i) const {
    if (ops_[i].kind == Kind::durability_fence) return 2;
    return ops_[i].kind == Kind::fence ? static_cast<int>(ops_[i].scope) : -1;
  }
  bool writes(std::uint32_t i) const {
    return ops_[i].kind == Kind::write || ops_[i].kind == Kind::update ||
           ops_[i].kind == Kind::release;
  }
  bool overlap(std::uint32_t a, std::uint32_t b) const {
    return ops_[a].address < ops_[b].address + ops_[b].size &&
           ops_[b].address < ops_[a].address + ops_[a].size;
  }
  int distance(std::uint32_t a, std::uint32_t b) const {
    const check::TraceThread& one = trace_.threads[ops_[a].thread];
    const check::TraceThread& other = trace_.threads[ops_[b].thread];
    if ((one.launch == 0) != (other.launch == 0)) return 2;
    return one.launch == other.launch && one.block == other.block ? 0 : 1;
  }
  // Strong, and in each other's scope.
  bool morally_strong(std::uint32_t a, std::uint32_t b) const {
    if (!ops_[a].strong || !ops_[b].strong) return false;
    if (ops_[a].thread == ops_[b].thread) return true;
    const int apart = distance(a, b);
    return static_cast<int>(ops_[a].scope) >= apart && static_cast<int>(ops_[b].scope) >= apart;
  }

  // By reader: the writes that it observes, through read-modify-writes.
  void find_reads_from() {
    observed_.resize(ops_.size());
    for (std::uint32_t r = 0; r < ops_.size(); ++r) {
      if (ops_[r].kind != Kind::read && ops_[r].kind != Kind::acquire &&
          ops_[r].kind != Kind::update) {
        continue;
      }
      for (std::uint32_t w = r; w-- > 0;) {
        if (!writes(w) || !overlap(w, r)) continue;
        const bool same = ops_[w].address == ops_[r].address && ops_[w].size == ops_[r].size;
        if (same && morally_strong(w, r)) {
          observed_[r].push_back(w);
          if (ops_[w].kind == Kind::update) {
            observed_[r].insert(observed_[r].end(), observed_[w].begin(), observed_[w].end());
          }
        }
        break;
      }
    }
  }

  // Edges from a release, or a fence before a write, to an acquire, or a fence behind a read; and
  // between fences around a barrier.
  void find_synchronisation() {
    edges_.resize(ops_.size());
    for (std::uint32_t r = 0; r < ops_.size(); ++r) {
      for (const std::uint32_t w : observed_[r]) {
        if (ops_[w].thread == ops_[r].thread || !morally_strong(w, r)) continue;
        const int apart = distance(w, r);
        std::vector<std::uint32_t> from;
        std::vector<std::uint32_t> to;
        for (std::uint32_t i = 0; i < ops_.size(); ++i) {
          if (po(i, w) && reach(i) >= apart) from.push_back(i);
          if (po(r, i) && reach(i) >= apart) to.push_back(i);
        }
        if (ops_[w].kind == Kind::release) from.push_back(w);
        if (ops_[r].kind == Kind::acquire) to.push_back(r);
        connect(from, to);
      }
    }
    for (std::uint32_t a = 0; a < ops_.size(); ++a) {
      for (std::uint32_t b = 0; b < ops_.size(); ++b) {
        if (a == b || ops_[a].kind != Kind::barrier || ops_[b].kind != Kind::barrier ||
            ops_[a].group != ops_[b].group) {
          continue;
        }
        std::vector<std::uint32_t> from;
        std::vector<std::uint32_t> to;
        for (std::uint32_t i = 0; i < ops_.size(); ++i) {
          if (is_fence(i) && po(i, a)) from.push_back(i);
          if (is_fence(i) && po(b, i)) to.push_back(i);
        }
        connect(from, to);
      }
    }
  }

  void connect(const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to) {
    for (const std::uint32_t a : from) {
      edges_[a].insert(edges_[a].end(), to.begin(), to.end());
    }
  }

  // A path of program order and synchronisation, with at least one step of the latter.
  bool synchronised(std::uint32_t before, std::uint32_t after) const {
    std::vector<std::uint8_t> seen(ops_.size());
    std::vector<std::uint32_t> open;
    const auto leave = [&](std::uint32_t from) {
      for (std::uint32_t i = from; i < ops_.size(); ++i) {
        if (i != from && !po(from, i)) continue;
        for (const std::uint32_t next : edges_[i]) {
          if (seen[next] == 0) open.push_back(next);
          seen[next] = 1;
        }
      }
    };
    for (std::uint32_t i = before + 1; i < ops_.size(); ++i) {
      if (!po(before, i)) continue;
      for (const std::uint32_t next : edges_[i]) {
        if (seen[next] == 0) open.push_back(next);
        seen[next] = 1;
      }
    }
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      if (po(at, after)) return true;
      leave(at);
    }
    return false;
  }

  const check::Trace& trace_;
  const std::vector<check::Op>& ops_;
  std::vector<std::vector<std::uint32_t>> observed_;
  std::vector<std::vector<std::uint32_t>> edges_;
};

// By persist: those that are ordered before it.
inline std::vector<check::Bitset> reference_down(const check::Order& order) {
  const ReferenceOrder reference(order.trace());
  const auto& writes = order.writes();
  std::vector<check::Bitset> down(writes.size());
  for (std::uint32_t w = 0; w < writes.size(); ++w) {
    for (std::uint32_t v = 0; v < w; ++v) {
      const bool overlap = writes[v].address < writes[w].address + writes[w].size &&
                           writes[w].address < writes[v].address + writes[v].size;
      if (!overlap && !reference.ordered(writes[v].op, writes[w].op)) continue;
      down[w] |= down[v];
      down[w].set(v);
    }
  }
  return down;
}

// Whether the host's wait `sync` covers what `op` of `stream` did: A7, A9, A10. By a search
// backwards from the stream or event that it waits for.
inline bool wait_covers(const check::Trace& trace, std::uint32_t sync, std::uint32_t op) {
  const check::Op& wait = trace.ops[sync];
  if (op >= sync) return false;
  if (wait.group == 0 && wait.stream == 0) return true;
  if (trace.ops[op].thread == check::kHostThread) return false;
  using Ended = std::pair<std::uint32_t, std::uint32_t>;  // a stream's work before an operation
  std::vector<Ended> open;
  const auto last_record = [&](std::uint32_t event, std::uint32_t before) {
    for (std::uint32_t i = before; i-- > 0;) {
      if (trace.ops[i].kind == check::OpKind::record && trace.ops[i].group == event) {
        open.push_back({trace.ops[i].stream, i});
        return;
      }
    }
  };
  if (wait.group != 0) {
    last_record(wait.group, sync);
  } else {
    open.push_back({wait.stream, sync});
  }
  while (!open.empty()) {
    const auto [stream, end] = open.back();
    open.pop_back();
    if (trace.ops[op].stream == stream && op < end) return true;
    for (std::uint32_t i = 0; i < end; ++i) {
      const check::Op& step = trace.ops[i];
      if (step.kind == check::OpKind::wait_event && step.stream == stream) {
        last_record(step.group, i);
      }
    }
  }
  return false;
}

// What is durable before operation `end`: A7.
inline check::Bitset reference_floor(const check::Order& order, std::uint32_t end) {
  const check::Trace& trace = order.trace();
  check::Bitset durable;
  for (std::uint32_t w = 0; w < order.writes().size(); ++w) {
    const check::Write& write = order.writes()[w];
    bool waited = write.thread == check::kHostThread && write.op < end;
    for (std::uint32_t i = write.op + 1; i < end; ++i) {
      const check::Op& op = trace.ops[i];
      waited = waited ||
               (op.kind == check::OpKind::synchronize && wait_covers(trace, i, write.op)) ||
               (op.kind == check::OpKind::durability_fence && op.thread == write.thread);
    }
    if (!waited) continue;
    durable |= order.down(w);
    durable.set(w);
  }
  return durable;
}

}  // namespace holdfast::test

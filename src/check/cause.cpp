#include "check/cause.hpp"

#include <algorithm>
#include <vector>

namespace holdfast::check {

namespace {

class Search {
 public:
  Search(const FailingState& state, const Fails& fails)
      : order_(*state.order), point_(order_.points()[state.point]), fails_(fails) {}

  // Adds writes while it still fails: what is then missing is missed.
  Bitset grow(Bitset state) const {
    halve(missing(state), [&](const std::vector<std::uint32_t>& some) {
      Bitset more = state;
      for (const std::uint32_t write : some) add(more, write);
      if (more == state) return true;
      if (!fails_(more)) return false;
      state = std::move(more);
      return true;
    });
    return state;
  }

  // Takes writes away while it still fails, and passes with `lost` beside it: what is then left is
  // needed.
  Bitset shrink(Bitset state, std::optional<std::uint32_t> lost) const {
    std::vector<std::uint32_t> present;
    state.for_each([&](std::size_t write) {
      if (!point_.durable.test(write)) present.push_back(static_cast<std::uint32_t>(write));
    });
    std::reverse(present.begin(), present.end());  // from above: each leaves a smaller state
    halve(present, [&](const std::vector<std::uint32_t>& some) {
      Bitset less = state;
      for (const std::uint32_t write : some) remove(less, write);
      if (less == state) return true;
      if (!fails_(less)) return false;
      if (lost) {
        Bitset whole = less;
        add(whole, *lost);
        if (fails_(whole)) return false;
      }
      state = std::move(less);
      return true;
    });
    return state;
  }

  std::vector<std::uint32_t> missing(const Bitset& state) const {
    std::vector<std::uint32_t> result;
    for (std::uint32_t write = 0; write < point_.executed; ++write) {
      if (!state.test(write)) result.push_back(write);
    }
    return result;
  }

  void add(Bitset& state, std::uint32_t write) const {
    state |= order_.down(write);
    state.set(write);
  }

  // Where all that was made is durable: the write still to come with which it passes.
  std::optional<std::uint32_t> still_to_come(Bitset state) const {
    for (auto write = point_.executed; write < order_.writes().size(); ++write) {
      add(state, write);
      if (!fails_(state)) return write;
    }
    return std::nullopt;
  }

  // The last write without which the state would pass.
  std::optional<std::uint32_t> needed(const Bitset& state) const {
    std::optional<std::uint32_t> result;
    for (std::uint32_t write = point_.executed; write-- > 0 && !result;) {
      if (!state.test(write) || point_.durable.test(write)) continue;
      Bitset less = state;
      remove(less, write);
      if (!fails_(less)) result = write;
    }
    return result;
  }

  // The write whose presence would make the state pass: of the one thread's, where there is any.
  std::optional<std::uint32_t> missed(const Bitset& state,
                                      std::optional<std::uint32_t> kept) const {
    std::optional<std::uint32_t> result;
    int best = -1;
    for (const std::uint32_t write : missing(state)) {
      const bool earlier = kept && write < *kept;
      const bool own = kept && order_.writes()[write].thread == order_.writes()[*kept].thread;
      const int rank = (earlier ? 2 : 0) + (own ? 1 : 0);
      if (rank <= best) continue;
      Bitset more = state;
      add(more, write);
      if (more.test(write) && !fails_(more)) {
        result = write;
        best = rank;
      }
    }
    return result;
  }

 private:
  void remove(Bitset& state, std::uint32_t write) const {
    if (point_.durable.test(write)) return;
    for (std::uint32_t above = write; above < point_.executed; ++above) {
      if (above == write || order_.ordered(write, above)) state.reset(above);
    }
  }
  // Offers all, then halves, and so on down to single ones: `take` says whether it took them.
  template <class Take>
  static void halve(const std::vector<std::uint32_t>& writes, Take&& take) {
    for (std::size_t size = writes.size(); size > 0; size /= 2) {
      for (std::size_t at = 0; at < writes.size(); at += size) {
        const auto first = writes.begin() + static_cast<std::ptrdiff_t>(at);
        take(std::vector<std::uint32_t>(
            first, first + static_cast<std::ptrdiff_t>(std::min(size, writes.size() - at))));
      }
    }
  }

  const Order& order_;
  const CrashPoint& point_;
  const Fails& fails_;
};

bool ordered_if(const Order& order, const OrderOptions& options, std::uint32_t before,
                std::uint32_t after, const std::function<void(Axioms&)>& change) {
  OrderOptions other = options;
  change(other.axioms);
  return Order(order.trace(), other).ordered(before, after);
}

// The one operation whose scope, were it wider, would order them; else the first narrow one of the
// writer.
std::optional<std::uint32_t> narrow_op(const Order& order, const OrderOptions& options,
                                       std::uint32_t before, std::uint32_t after) {
  const Trace& trace = order.trace();
  std::vector<std::uint32_t> sites;
  std::optional<std::uint32_t> first;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    const bool scoped = op.kind == OpKind::release || op.kind == OpKind::acquire ||
                        op.kind == OpKind::fence || op.strong;
    if (!scoped || op.scope != Scope::block) continue;
    if (!first && op.thread == order.writes()[before].thread && i > order.writes()[before].op) {
      first = i;
    }
    if (std::find(sites.begin(), sites.end(), op.site) != sites.end()) continue;
    sites.push_back(op.site);
    Trace wider = trace;
    for (Op& other : wider.ops) {
      if (other.site == op.site) other.scope = Scope::system;
    }
    if (Order(wider, options).ordered(before, after)) return i;
  }
  return first;
}

void classify(Cause& cause, const Order& order, const OrderOptions& options, bool nested) {
  const Write& lost = order.writes()[*cause.lost];
  const Write& kept = order.writes()[*cause.kept];
  if (lost.op == kept.op) {
    cause.kind = CauseKind::torn_store;
  } else if (*cause.lost > *cause.kept && nested) {
    // The crash came before what is lost was made: Moments::cuts has no point for that moment.
    cause.kind = CauseKind::not_idempotent;
    cause.lost.reset();
  } else if (*cause.lost > *cause.kept) {
    cause.kind = CauseKind::not_atomic;
  } else if (lost.thread != kept.thread &&
             ordered_if(order, options, *cause.lost, *cause.kept,
                        [](Axioms& axioms) { axioms.inclusion = false; })) {
    cause.kind = CauseKind::narrow_scope;
    cause.fix = narrow_op(order, options, *cause.lost, *cause.kept);
  } else if (lost.thread != kept.thread &&
             ordered_if(order, options, *cause.lost, *cause.kept,
                        [](Axioms& axioms) { axioms.barrier_alone = true; })) {
    cause.kind = CauseKind::barrier_only;
  } else {
    cause.kind = CauseKind::missing_order;
  }
}

}  // namespace

Cause find_cause(const FailingState& state, const OrderOptions& options, bool nested,
                 const Fails& fails) {
  const Order& order = *state.order;
  const Search search(state, fails);
  const Bitset largest = search.grow(state.durable);
  Cause cause;
  if (search.missing(largest).empty()) {
    if (!nested) cause.lost = search.still_to_come(largest);
    cause.kind = nested       ? CauseKind::not_idempotent
                 : cause.lost ? CauseKind::not_atomic
                              : CauseKind::not_a_crash_matter;
    cause.smallest = search.shrink(largest, std::nullopt);
    cause.kept = search.needed(cause.smallest);
    return cause;
  }
  cause.lost = search.missed(largest, search.needed(largest));
  cause.smallest = search.shrink(largest, cause.lost);
  cause.kept = search.needed(cause.smallest);
  if (!cause.lost) cause.lost = search.missing(cause.smallest).front();
  if (cause.kept) {
    classify(cause, order, options, nested);
  } else {
    cause.kind = CauseKind::lost_acknowledged;
  }
  return cause;
}

}  // namespace holdfast::check

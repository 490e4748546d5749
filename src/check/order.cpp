#include "check/order.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "check/happens.hpp"

namespace holdfast::check {

const char* to_string(Model model) noexcept { return model == Model::sbrp ? "sbrp" : "epoch"; }

namespace {

using Snapshot = std::shared_ptr<const Bitset>;

Snapshot share(const Bitset& set) { return std::make_shared<const Bitset>(set); }

constexpr std::size_t kScopes = 3;

// How far apart two threads are: the least scope that holds both. The host is outside the device.
Scope distance(const TraceThread& a, const TraceThread& b) {
  if ((a.launch == 0) != (b.launch == 0)) return Scope::system;
  return a.launch == b.launch && a.block == b.block ? Scope::block : Scope::device;
}

// What a strong write lets its readers know. Of a chain of read-modify-writes every link speaks.
struct Message {
  std::uint32_t thread = 0;
  std::uint32_t site = 0;
  Scope scope = Scope::system;
  Snapshot released;                     // a release's: all that its thread knew; else null
  std::array<Snapshot, kScopes> fenced;  // what it knew at its last fence of at least this scope
};

// The strong write that a variable holds, with the links that lead to it. Messages are of whole
// variables: a read of other bytes observes nothing (docs/model.md, decision 14).
struct Chain {
  std::uint64_t address = 0;
  std::uint32_t size = 0;
  std::vector<Message> links;

  bool is(const Op& op) const { return address == op.address && size == op.size; }
  bool overlaps(const Op& op) const {
    return address < op.address + op.size && op.address < address + size;
  }
};

constexpr std::uint64_t kGranule = 8;  // the largest access that can be a message; aligned

struct ThreadState {
  Bitset before;        // ordered before the thread's next writes
  Bitset seen;          // all that is ordered before its next release
  Bitset mine;          // its own writes and what is ordered before them: what a dF waits for
  Snapshot fenced_any;  // what it knew at its last fence
  std::array<Snapshot, kScopes> fenced;  // the same, for fences that reach other threads
  Bitset pending_barrier;                // known to it once it fences
  std::array<Bitset, kScopes> pending;   // once it fences with at least this scope
  std::uint32_t barrier = 0;             // whose departure is still to come
  bool at_barrier = false;
  std::vector<std::uint32_t> idle_fences;  // sites of fences that no write has followed yet
  bool wrote_since_fence = false;
};

}  // namespace

class OrderBuilder {
 public:
  OrderBuilder(Order& order, const OrderOptions& options)
      : order_(order), trace_(*order.trace_), options_(options), threads_(trace_.threads.size()) {
    order_.fence_uses_.resize(trace_.sites.size());
    order_.release_uses_.resize(trace_.sites.size());
    if (options.moments == Moments::cuts) happens_.emplace(trace_);
    tasks_.resize(trace_.tasks.size());
    before_.resize(trace_.tasks.size());
    for (std::uint32_t task = 1; task < trace_.tasks.size(); ++task) {
      before_[task] = std::exchange(last_[trace_.tasks[task].stream], task);
    }
  }

  void run() {
    make_cells();
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      depart(trace_.ops[i].thread);
      if (happens_) past_ = &happens_->enter(trace_.ops[i]);
      step(i, trace_.ops[i]);
      if (happens_) happens_->done(trace_.ops[i]);
    }
    if (happens_) {
      add_cut(static_cast<std::uint32_t>(trace_.ops.size()));
    } else {
      add_point(static_cast<std::uint32_t>(trace_.ops.size()));
    }
  }

 private:
  static bool writes(const Op& op) {
    return op.kind == OpKind::write || op.kind == OpKind::update || op.kind == OpKind::release;
  }
  bool epoch() const { return options_.model == Model::epoch; }
  const Axioms& axioms() const { return options_.axioms; }

  // Bytes of a store, as aligned words of at most 8, or one by one.
  template <class Visit>
  void for_each_atom(const Op& op, Visit&& visit) const {
    if (!trace_.persistent.contains(op.address)) return;
    const std::uint64_t widest = op.by_bytes ? 1 : 8;
    for (std::uint32_t done = 0; done < op.size;) {
      const std::uint64_t address = op.address + done;
      const auto size = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(widest - address % widest, op.size - done));
      visit(address, size, op.value + done);
      done += size;
    }
  }

  void make_cells() {
    std::map<std::uint64_t, std::uint8_t> cuts;  // by word: at which bytes a write begins or ends
    std::map<std::uint64_t, std::uint8_t> covered;
    for (const Op& op : trace_.ops) {
      if (!writes(op)) continue;
      for_each_atom(op, [&](std::uint64_t address, std::uint32_t size, std::size_t) {
        const std::uint64_t word = address / 8;
        const unsigned first = address % 8;
        cuts[word] |= static_cast<std::uint8_t>(1u << first);
        if (first + size < 8) cuts[word] |= static_cast<std::uint8_t>(1u << (first + size));
        covered[word] |= static_cast<std::uint8_t>(((1u << size) - 1) << first);
      });
    }
    for (const auto& [word, bytes] : covered) {
      for (unsigned first = 0; first < 8;) {
        unsigned end = first + 1;
        while (end < 8 && (cuts[word] >> end & 1) == 0) ++end;
        if ((bytes >> first & 1) != 0) order_.cells_.push_back({word * 8 + first, end - first, {}});
        first = end;
      }
    }
  }

  void step(std::uint32_t index, const Op& op) {
    switch (op.kind) {
      case OpKind::write:
      case OpKind::update:
        if (op.kind == OpKind::update && op.strong) read_from(op, false);
        if (op.strong) {
          publish(op, nullptr, op.kind == OpKind::update);
        } else {
          silence(op);
        }
        persist(index, op, nullptr);
        break;
      case OpKind::read:
        if (op.strong) read_from(op, false);
        break;
      case OpKind::release:
        release(index, op);
        break;
      case OpKind::acquire:
        read_from(op, true);
        if (epoch()) wait(index, op);
        break;
      case OpKind::fence:
        if (!epoch()) fence(op, op.scope);
        if (epoch() && op.scope == Scope::system) wait(index, op);
        break;
      case OpKind::ordering_fence:
        if (epoch()) {
          wait(index, op);
        } else {
          note_fence(op, false);
          order_only(op);
        }
        break;
      case OpKind::durability_fence:
        wait(index, op);
        break;
      case OpKind::barrier:
        arrive(op);
        break;
      case OpKind::exchange:  // whoever has the others' values has waited for them, and no more
        break;
      case OpKind::synchronize:
        synchronize(index, op);
        break;
      case OpKind::record:
        if (axioms().events) events_[op.group] = streams_[op.stream];
        break;
      case OpKind::wait_event:
        if (axioms().events) streams_[op.stream] |= events_[op.group];
        break;
      case OpKind::start:
        mark(index);
        ++started_;
        break;
      case OpKind::acknowledge:
        mark(index);
        ++acknowledged_;
        break;
    }
  }

  // The writes of an op. `first` is ordered before them, beside what the thread's fences say.
  void persist(std::uint32_t index, const Op& op, const Bitset* first) {
    ThreadState& thread = threads_[op.thread];
    Bitset made;
    for_each_atom(op, [&](std::uint64_t address, std::uint32_t size, std::size_t value) {
      const auto number = static_cast<std::uint32_t>(order_.writes_.size());
      Bitset down = thread.before;
      if (first != nullptr) down |= *first;
      if (happens_) down |= past_->durable;
      const auto [begin, end] = order_.cells_of(address, size);
      for (std::uint32_t cell = begin; cell < end; ++cell) {
        auto& cell_writes = order_.cells_[cell].writes;
        if (!cell_writes.empty() && axioms().coherence) {
          down |= order_.down_[cell_writes.back()];
          down.set(cell_writes.back());
        }
        cell_writes.push_back(number);
      }
      order_.writes_.push_back({index, op.thread, address, size, value});
      made |= down;
      made.set(number);
      order_.down_.push_back(std::move(down));
    });
    if (made.empty()) return;
    thread.mine |= made;
    thread.seen |= made;
    if (trace_.tasks.size() > 1) {
      tasks_[op.thread == kCopyThread ? op.task : trace_.threads[op.thread].task] |= made;
    } else if (op.thread != kHostThread) {
      streams_[op.stream] |= made;
    }
    for (const std::uint32_t site : thread.idle_fences) ++order_.fence_uses_[site].useful;
    thread.idle_fences.clear();
    thread.wrote_since_fence = true;
    // What the host stores is durable as it is made (docs/model.md, decision 9), word by word.
    if (op.thread == kHostThread) {
      raise(index, made);
    }
  }

  // A strong write speaks to those who read it; a plain one silences what was there. A
  // read-modify-write continues a chain unless it and the last link are not in each other's scope.
  void publish(const Op& op, Snapshot released, bool continues) {
    std::vector<Message> links;
    if (Chain* const chain = continues ? chain_of(op) : nullptr) {
      if (reaches(chain->links.back(), op)) links = std::move(chain->links);
    }
    silence(op);
    if (op.address % kGranule + op.size > kGranule) return;
    links.push_back(
        {op.thread, op.site, op.scope, std::move(released), threads_[op.thread].fenced});
    chains_[op.address / kGranule].push_back({op.address, op.size, std::move(links)});
  }

  Chain* chain_of(const Op& op) {
    const auto found = chains_.find(op.address / kGranule);
    if (found == chains_.end()) return nullptr;
    for (Chain& chain : found->second) {
      if (chain.is(op)) return &chain;
    }
    return nullptr;
  }

  // A write ends the messages of all variables of which it changes a byte.
  void silence(const Op& op) {
    const auto end_in = [&](std::vector<Chain>& chains) {
      std::erase_if(chains, [&](const Chain& chain) { return chain.overlaps(op); });
    };
    const std::uint64_t first = op.address / kGranule;
    const std::uint64_t last = (op.address + op.size - 1) / kGranule;
    if (op.size == 0 || chains_.empty()) return;
    if (last - first >= chains_.size()) {
      for (auto& [granule, chains] : chains_) end_in(chains);
      return;
    }
    for (std::uint64_t granule = first; granule <= last; ++granule) {
      const auto found = chains_.find(granule);
      if (found != chains_.end()) end_in(found->second);
    }
  }

  void release(std::uint32_t index, const Op& op) {
    if (epoch()) {
      wait(index, op);
      publish(op, nullptr, false);
      persist(index, op, nullptr);
      return;
    }
    const Snapshot known = share(threads_[op.thread].seen);
    publish(op, axioms().release_acquire ? known : nullptr, false);
    persist(index, op, axioms().release_write ? known.get() : nullptr);
  }

  Scope apart(std::uint32_t one, std::uint32_t other) const {
    if (!axioms().inclusion) return Scope::block;
    return distance(trace_.threads[one], trace_.threads[other]);
  }
  bool reaches(const Message& message, const Op& op) const {
    if (message.thread == op.thread) return true;
    return std::min(message.scope, op.scope) >= apart(message.thread, op.thread);
  }

  void read_from(const Op& op, bool acquires) {
    if (epoch()) return;  // order across threads comes from waiting alone
    const Chain* const chain = chain_of(op);
    if (chain == nullptr || !reaches(chain->links.back(), op)) return;
    ThreadState& reader = threads_[op.thread];
    for (const Message& message : chain->links) {
      if (message.thread == op.thread) continue;
      if (!reaches(message, op)) continue;
      const Scope far = apart(message.thread, op.thread);
      const auto by_scope = static_cast<std::size_t>(far);
      const Bitset* known = message.released      ? message.released.get()
                            : axioms().fence_sync ? message.fenced[by_scope].get()
                                                  : nullptr;
      if (known == nullptr) continue;
      if (message.released) note_acquired(message.site, far);
      if (acquires) {
        reader.before |= *known;
        reader.seen |= *known;
      } else if (axioms().fence_sync) {
        reader.pending[by_scope] |= *known;
      }
    }
  }

  void note_acquired(std::uint32_t site, Scope far) {
    order_.release_uses_[site].acquired = true;
    if (far != Scope::block) order_.release_uses_[site].other_block = true;
  }

  // A fence that orders volatile memory too. Its scope says whom it reaches.
  void fence(const Op& op, Scope scope) {
    ThreadState& thread = threads_[op.thread];
    const auto reached = static_cast<std::size_t>(scope);
    for (std::size_t i = 0; i <= reached; ++i) {
      thread.before |= thread.pending[i];
      thread.seen |= thread.pending[i];
      thread.pending[i].clear();
    }
    order_only(op);
    for (std::size_t i = 0; i <= reached; ++i) thread.fenced[i] = thread.fenced_any;
  }

  void order_only(const Op& op) {
    ThreadState& thread = threads_[op.thread];
    thread.seen |= thread.pending_barrier;
    // What was learnt of others is ordered by acquiring, not by A1.
    if (axioms().fence_order) {
      thread.before |= thread.seen;
    } else {
      thread.before |= thread.pending_barrier;
    }
    thread.pending_barrier.clear();
    thread.fenced_any = share(thread.seen);
  }

  void wait(std::uint32_t index, const Op& op) {
    const Bitset& mine = threads_[op.thread].mine;
    note_fence(op, !durable_.contains(mine));
    if (axioms().durability) raise(index, mine);
    if (epoch()) {
      if (axioms().fence_order) threads_[op.thread].before |= mine;
    } else {
      fence(op, Scope::system);
    }
  }

  // What the stream has done up to the task, and what that has waited for.
  void collect(std::uint32_t task, Bitset& into, std::vector<bool>& seen) const {
    for (; task != 0 && !seen[task]; task = before_[task]) {
      seen[task] = true;
      into |= tasks_[task];
      if (axioms().events) collect(trace_.tasks[task].waits_for, into, seen);
    }
  }

  // The host has waited: for an event, for a stream and what that has waited for, or for all.
  void synchronize(std::uint32_t index, const Op& op) {
    if (!axioms().durability) return;
    if (!axioms().streams || (op.group == 0 && op.stream == 0)) {
      raise(index, Bitset::below(order_.writes_.size()));
    } else if (trace_.tasks.size() == 1) {
      raise(index, op.group != 0 ? events_[op.group] : streams_[op.stream]);
    } else {
      Bitset done;
      std::vector<bool> seen(trace_.tasks.size());
      collect(op.task != 0 ? op.task : last_[op.stream], done, seen);
      raise(index, done);
    }
  }

  void note_fence(const Op& op, bool waited) {
    if (op.kind == OpKind::acquire || op.kind == OpKind::release) return;
    ThreadState& thread = threads_[op.thread];
    ++order_.fence_uses_[op.site].executed;
    if (waited) {
      ++order_.fence_uses_[op.site].useful;
    } else if (thread.wrote_since_fence) {
      thread.idle_fences.push_back(op.site);
    }
    thread.wrote_since_fence = false;
  }

  void arrive(const Op& op) {
    ThreadState& thread = threads_[op.thread];
    if (epoch()) return;
    Bitset& met = barriers_[op.group];
    if (axioms().barrier_alone) met |= thread.seen;
    if (axioms().barrier_sync && thread.fenced_any) met |= *thread.fenced_any;
    thread.at_barrier = true;
    thread.barrier = op.group;
  }

  // Nobody leaves a barrier before all have come: its set is whole at the thread's next operation.
  void depart(std::uint32_t number) {
    ThreadState& thread = threads_[number];
    if (!thread.at_barrier) return;
    thread.at_barrier = false;
    const Bitset& met = barriers_[thread.barrier];
    if (axioms().barrier_alone) {
      thread.before |= met;
      thread.seen |= met;
    } else {
      thread.pending_barrier |= met;
    }
  }

  void raise(std::uint32_t index, const Bitset& more) {
    if (happens_) past_->durable |= more;
    if (durable_.contains(more)) return;
    if (!happens_) add_point(index);
    durable_ |= more;
  }

  void mark(std::uint32_t index) {
    if (!happens_) {
      add_point(index);
      return;
    }
    add_cut(index);
    marked_ = past_->durable;
    ++past_->marks;
  }

  // All that need not come after the host's next mark may have been made; what came before the last
  // one has been waited for.
  void add_cut(std::uint32_t index) {
    order_.points_.push_back({index, static_cast<std::uint32_t>(order_.writes_.size()), marked_,
                              started_, acknowledged_});
  }

  void add_point(std::uint32_t index) {
    const auto executed = static_cast<std::uint32_t>(order_.writes_.size());
    auto& points = order_.points_;
    if (!points.empty()) {
      const CrashPoint& last = points.back();
      if (last.executed == executed && last.started == started_ &&
          last.acknowledged == acknowledged_ && last.durable == durable_) {
        return;
      }
    }
    points.push_back({index, executed, durable_, started_, acknowledged_});
  }

  Order& order_;
  const Trace& trace_;
  const OrderOptions& options_;
  std::vector<ThreadState> threads_;
  std::unordered_map<std::uint64_t, std::vector<Chain>> chains_;  // by granule
  std::unordered_map<std::uint32_t, Bitset> barriers_;
  // By stream: what its kernels and copies have stored, and what it has waited for; by event: that
  // of its stream when it was recorded. Each with what is ordered before.
  std::unordered_map<std::uint32_t, Bitset> streams_, events_;
  // Where the trace has tasks, in place of these: what each has stored.
  std::vector<Bitset> tasks_;
  std::vector<std::uint32_t> before_;  // the task before it in its stream; 0: none
  std::unordered_map<std::uint32_t, std::uint32_t> last_;  // by stream: its last task
  Bitset durable_;
  std::optional<Happens> happens_;  // Moments::cuts
  Past* past_ = nullptr;            // of the operation at hand
  Bitset marked_;                   // what the host's last mark had behind it
  std::uint32_t started_ = 0;
  std::uint32_t acknowledged_ = 0;
};

Order::Order(const Trace& trace, const OrderOptions& options) : trace_(&trace) {
  OrderBuilder(*this, options).run();
}

std::pair<std::uint32_t, std::uint32_t> Order::cells_of(std::uint64_t address,
                                                        std::uint64_t size) const {
  const auto begin = std::partition_point(cells_.begin(), cells_.end(), [&](const Cell& cell) {
    return cell.address + cell.size <= address;
  });
  auto end = begin;
  while (end != cells_.end() && end->address < address + size) ++end;
  return {static_cast<std::uint32_t>(begin - cells_.begin()),
          static_cast<std::uint32_t>(end - cells_.begin())};
}

void Order::find_constant(std::span<const std::byte> base, std::uint64_t begin) {
  base_ = base;
  base_begin_ = begin;
  constant_.clear();
  for (const Cell& cell : cells_) {
    bool same = true;
    for (std::uint32_t version = 1; same && version <= cell.writes.size(); ++version) {
      same = std::memcmp(value(cell, version), value(cell, 0), cell.size) == 0;
    }
    constant_.push_back(same);
  }
}

const std::byte* Order::value(const Cell& cell, std::uint32_t version) const {
  if (version == 0) {
    return base_.empty() ? nullptr : base_.data() + (cell.address - base_begin_);
  }
  const Write& write = writes_[cell.writes[version - 1]];
  return trace_->bytes.data() + write.value + (cell.address - write.address);
}

std::uint32_t Order::version(std::uint32_t cell, const Bitset& durable) const {
  const auto& writes = cells_[cell].writes;
  auto count = static_cast<std::uint32_t>(writes.size());
  while (count > 0 && !durable.test(writes[count - 1])) --count;
  return count;
}

std::uint32_t Order::versions(std::uint32_t cell, const CrashPoint& point) const {
  const auto& writes = cells_[cell].writes;
  return static_cast<std::uint32_t>(std::lower_bound(writes.begin(), writes.end(), point.executed) -
                                    writes.begin());
}

void Order::for_each_state(const CrashPoint& point,
                           const std::function<bool(const Bitset&)>& visit) const {
  // Depth first over the writes in their order: with each or without it, where both are legal.
  struct Walk {
    const Order& order;
    const CrashPoint& point;
    const std::function<bool(const Bitset&)>& visit;
    bool go(std::uint32_t write, Bitset& state) const {
      if (write == point.executed) return visit(state);
      if (!point.durable.test(write) && !go(write + 1, state)) return false;
      if (!state.contains(order.down(write))) return true;
      state.set(write);
      const bool more = go(write + 1, state);
      state.reset(write);
      return more;
    }
  };
  Bitset state;
  Walk{*this, point, visit}.go(0, state);
}

}  // namespace holdfast::check

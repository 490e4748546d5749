#include "check/robustness.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include "holdfast/error.hpp"

namespace holdfast::check {

namespace {

constexpr std::size_t kMaxReasons = 16;
constexpr std::uint64_t kMaxPairs = 4'000'000;   // of a thread's accesses, all threads together
constexpr std::uint64_t kMaxSteps = 40'000'000;  // of searches
constexpr std::size_t kScopes = 3;

using Fences = std::array<std::uint32_t, kScopes>;  // by scope: how many of at least that scope

// Accesses of a thread to one variable that no fence keeps apart.
struct Access {
  std::uint32_t first = 0, last = 0;  // ops
  std::uint32_t variable = 0;
  bool reads = false, writes = false;
  bool acquires = false, releases = false;
  Fences fences{};
};

struct Variable {
  std::uint64_t begin = 0, end = 0;
  std::set<std::uint32_t> users;    // threads
  std::set<std::uint32_t> storers;  // that write without reading
  bool written = false;
  Scope reach = Scope::block;  // the least scope that holds all users
};

// A way through a thread: in by an access to one variable, out by a later one to another.
struct Passage {
  std::uint32_t from = 0, to = 0;  // variables
  bool in_reads = false, in_writes = false;
  bool out_reads = false, out_writes = false;
  bool acquires = false;  // it learns by its first access what that observes
  bool releases = false;  // it tells by its second what came before, its first included
  bool fenced = false;    // a fence.sc in between that all concerned share
  auto operator<=>(const Passage&) const = default;
};

// Of each thread that has it: two of its ops.
struct Example {
  std::uint32_t thread, first, second;
};

Scope distance(const TraceThread& a, const TraceThread& b) {
  if ((a.launch == 0) != (b.launch == 0)) return Scope::system;
  return a.launch == b.launch && a.block == b.block ? Scope::block : Scope::device;
}

// One kernel, or several that run beside each other.
class Phase {
 public:
  Phase(const Trace& trace, std::vector<std::uint32_t> ops, std::vector<WeakReason>& reasons,
        std::set<std::pair<std::uint32_t, std::uint32_t>>& known)
      : trace_(trace), ops_(std::move(ops)), reasons_(reasons), known_(known) {}

  void run() {
    find_variables();
    find_barriers();
    for (const std::uint32_t op : ops_) take(op);
    find_passages();
    if (!gave_up_) search();
    if (gave_up_) {
      WeakReason reason;
      reason.gave_up = true;
      reasons_.push_back(reason);
    }
  }

 private:
  static bool writes(const Op& op) {
    return op.kind == OpKind::write || op.kind == OpKind::update || op.kind == OpKind::release;
  }
  static bool reads(const Op& op) {
    return op.kind == OpKind::read || op.kind == OpKind::update || op.kind == OpKind::acquire;
  }
  static bool counts(const Op& op) {
    return op.strong && (reads(op) || writes(op)) && op.size != 0;
  }

  // Strong accesses that overlap are of one variable.
  void find_variables() {
    std::map<std::uint64_t, std::uint64_t> ranges;
    for (const std::uint32_t i : ops_) {
      const Op& op = trace_.ops[i];
      if (!counts(op)) continue;
      std::uint64_t& end = ranges[op.address];
      end = std::max(end, op.address + op.size);
    }
    for (const auto& [begin, end] : ranges) {
      if (!variables_.empty() && begin < variables_.back().end) {
        variables_.back().end = std::max(variables_.back().end, end);
      } else {
        variables_.push_back({begin, end, {}, {}, false, Scope::block});
      }
    }
    for (const std::uint32_t i : ops_) {
      const Op& op = trace_.ops[i];
      if (!counts(op)) continue;
      Variable& variable = variables_[variable_of(op)];
      variable.users.insert(op.thread);
      variable.written = variable.written || writes(op);
      if (writes(op) && !reads(op)) variable.storers.insert(op.thread);
    }
    for (Variable& variable : variables_) {
      for (const std::uint32_t user : variable.users) {
        const Scope far = distance(trace_.threads[*variable.users.begin()], trace_.threads[user]);
        variable.reach = std::max(variable.reach, far);
      }
    }
  }

  std::uint32_t variable_of(const Op& op) const {
    const auto after =
        std::partition_point(variables_.begin(), variables_.end(),
                             [&](const Variable& of) { return of.begin <= op.address; });
    return static_cast<std::uint32_t>(after - variables_.begin() - 1);
  }

  // Barriers of a whole block are fences of block scope; warps' are not looked into.
  void find_barriers() {
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::set<std::uint32_t>> blocks;
    std::unordered_map<std::uint32_t, std::set<std::uint32_t>> met;
    for (const std::uint32_t i : ops_) {
      const Op& op = trace_.ops[i];
      const TraceThread& thread = trace_.threads[op.thread];
      if (thread.launch != 0) blocks[{thread.launch, thread.block}].insert(op.thread);
      if (op.kind == OpKind::barrier) met[op.group].insert(op.thread);
    }
    for (const auto& [group, threads] : met) {
      const TraceThread& one = trace_.threads[*threads.begin()];
      if (threads == blocks[{one.launch, one.block}]) block_barriers_.insert(group);
    }
  }

  void fence(Fences& fences, Scope scope) const {
    for (std::size_t i = 0; i <= static_cast<std::size_t>(scope); ++i) ++fences[i];
  }

  void take(std::uint32_t index) {
    const Op& op = trace_.ops[index];
    Fences& fences = fences_[op.thread];
    if (op.kind == OpKind::fence) fence(fences, op.scope);
    if (op.kind == OpKind::durability_fence || op.kind == OpKind::synchronize) {
      fence(fences, Scope::system);
    }
    if (op.kind == OpKind::barrier && block_barriers_.contains(op.group)) {
      fence(fences, Scope::block);
    }
    if (!counts(op)) return;
    const std::uint32_t number = variable_of(op);
    const Variable& variable = variables_[number];
    if (variable.users.size() < 2 || !variable.written) return;
    Access access{index, index, number, reads(op), writes(op), false, false, fences};
    access.acquires = op.kind == OpKind::acquire && op.scope >= variable.reach;
    access.releases = op.kind == OpKind::release && op.scope >= variable.reach;
    auto& of = accesses_[op.thread];
    for (auto earlier = of.rbegin(); earlier != of.rend() && earlier->fences == fences; ++earlier) {
      if (earlier->variable == number && earlier->reads == access.reads &&
          earlier->writes == access.writes && earlier->acquires == access.acquires &&
          earlier->releases == access.releases) {
        earlier->last = index;
        return;
      }
    }
    of.push_back(access);
  }

  void find_passages() {
    std::uint64_t pairs = 0;
    for (const auto& [thread, accesses] : accesses_) {
      pairs += accesses.size() * accesses.size();
      if (pairs > kMaxPairs) {
        gave_up_ = true;
        return;
      }
      for (const Access& in : accesses) {
        for (const Access& out : accesses) {
          if (in.variable == out.variable || in.first >= out.last) continue;
          passages_[passage(in, out)].push_back({thread, in.first, out.last});
        }
      }
    }
    by_variable_.resize(variables_.size());
    for (const auto& [passage, examples] : passages_)
      by_variable_[passage.from].push_back(&passage);
  }

  Passage passage(const Access& in, const Access& out) const {
    const auto fenced = [&](Scope scope) {
      const auto by = static_cast<std::size_t>(scope);
      return out.fences[by] > in.fences[by];
    };
    const Scope from = variables_[in.variable].reach;
    const Scope to = variables_[out.variable].reach;
    return {in.variable,
            out.variable,
            in.reads,
            in.writes,
            out.reads,
            out.writes,
            in.acquires || fenced(from),
            out.releases || fenced(to),
            fenced(std::max(from, to))};
  }

  // Whether the second of two accesses to a variable, by different threads, may come after the
  // first, and whether that then orders all before the first before all behind the second: it
  // does where a release is acquired. Reads may come apart by somebody's write.
  bool synchronises(const Passage& first, const Passage& second) const {
    const Variable& variable = variables_[first.to];
    if (!first.out_writes || !second.in_reads || !first.releases || !second.acquires) return false;
    // Another thread's store may hide the release; a read-modify-write carries it on.
    return variable.storers.empty() || (variable.storers.size() == 1 && !first.out_reads);
  }

  // A place in a search: out of a passage, with how many steps so far did not synchronise.
  struct State {
    const Passage* at;
    unsigned loose;
    auto operator<=>(const State&) const = default;
  };

  static const Example* other_than(const std::vector<Example>& examples, std::uint32_t thread) {
    for (const Example& example : examples) {
      if (example.thread != thread) return &example;
    }
    return nullptr;
  }

  // From the passage's second access back to its first, through other threads than `thread`. A
  // cycle in which all steps but one synchronise contradicts PTX's causality.
  bool search_from(const Passage& start, std::uint32_t thread, std::vector<std::uint32_t>& ops) {
    std::map<State, State> came;  // from where
    std::vector<State> open{{&start, 0}};
    came.emplace(open[0], open[0]);
    for (std::size_t next = 0; next < open.size(); ++next) {
      const State state = open[next];
      const auto loose_after = [&](const Passage& to) {
        return std::min(2u, state.loose + (synchronises(*state.at, to) ? 0u : 1u));
      };
      if (next != 0 && state.at->to == start.from && loose_after(start) == 2) {
        for (State at = state; at.at != &start; at = came.at(at)) {
          const Example* const example = other_than(passages_.at(*at.at), thread);
          ops.insert(ops.begin(), {example->first, example->second});
        }
        return true;
      }
      for (const Passage* const to : by_variable_[state.at->to]) {
        if (++steps_ > kMaxSteps) {
          gave_up_ = true;
          return false;
        }
        if (other_than(passages_.at(*to), thread) == nullptr) continue;
        const State reached{to, loose_after(*to)};
        if (came.emplace(reached, state).second) open.push_back(reached);
      }
    }
    return false;
  }

  void search() {
    for (const auto& [passage, examples] : passages_) {
      if (passage.fenced) continue;
      for (const Example& example : examples) {
        if (reasons_.size() >= kMaxReasons || gave_up_) return;
        const std::pair<std::uint32_t, std::uint32_t> places{trace_.ops[example.first].site,
                                                             trace_.ops[example.second].site};
        if (places != std::pair<std::uint32_t, std::uint32_t>{} && known_.contains(places))
          continue;
        WeakReason reason;
        reason.first = example.first;
        reason.second = example.second;
        if (!search_from(passage, example.thread, reason.others)) continue;
        known_.insert(places);
        reasons_.push_back(std::move(reason));
      }
    }
  }

  const Trace& trace_;
  const std::vector<std::uint32_t> ops_;
  std::vector<WeakReason>& reasons_;
  std::set<std::pair<std::uint32_t, std::uint32_t>>& known_;  // sites of reasons
  std::vector<Variable> variables_;                           // by address
  std::set<std::uint32_t> block_barriers_;
  std::unordered_map<std::uint32_t, Fences> fences_;       // by thread
  std::map<std::uint32_t, std::vector<Access>> accesses_;  // by thread
  std::map<Passage, std::vector<Example>> passages_;
  std::vector<std::vector<const Passage*>> by_variable_;
  std::uint64_t steps_ = 0;
  bool gave_up_ = false;
};

// Streams with kernels that the host has not waited for.
class Unwaited {
 public:
  explicit Unwaited(const Trace& trace) : trace_(trace) {}
  bool none() const { return last_.empty(); }
  bool is_only(std::uint32_t stream) const { return last_.size() == 1 && last_.contains(stream); }
  void clear() { last_.clear(); }
  // `task`: 0 where it is not known.
  void launch(std::uint32_t stream, std::uint32_t task) { last_[stream] = task; }
  // The host's wait, also for what the stream had waited for.
  void wait(const Op& op) {
    if (op.stream == 0) return last_.clear();
    const auto kernel = last_.find(op.stream);
    if (kernel == last_.end()) return;
    const std::uint32_t last = kernel->second;
    last_.erase(kernel);
    // By stream, up to which task. A task waits for earlier ones.
    std::map<std::uint32_t, std::uint32_t> done{{op.stream, last}};
    for (std::uint32_t i = last; i > 0; --i) {
      const TraceTask& task = trace_.tasks[i];
      const auto at = done.find(task.stream);
      if (task.waits_for == 0 || at == done.end() || at->second < i) continue;
      std::uint32_t& other = done[trace_.tasks[task.waits_for].stream];
      other = std::max(other, task.waits_for);
    }
    std::erase_if(last_, [&](const auto& other) {
      const auto at = done.find(other.first);
      return other.second != 0 && at != done.end() && other.second <= at->second;
    });
  }

 private:
  const Trace& trace_;
  std::map<std::uint32_t, std::uint32_t> last_;  // by stream: its last kernel
};

}  // namespace

std::vector<WeakReason> find_weak(const Trace& trace) {
  std::vector<WeakReason> reasons;
  std::set<std::pair<std::uint32_t, std::uint32_t>> known;
  std::vector<std::uint32_t> ops;
  Unwaited streams(trace);   // of the kernels in `ops`
  std::uint32_t launch = 0;  // the last that began
  const auto end_phase = [&] {
    if (!ops.empty()) Phase(trace, std::move(ops), reasons, known).run();
    ops.clear();
    streams.clear();
  };
  for (std::uint32_t i = 0; i < trace.ops.size() && reasons.size() < kMaxReasons; ++i) {
    const Op& op = trace.ops[i];
    const std::uint32_t of = trace.threads[op.thread].launch;
    // A kernel comes behind all others of its stream, and behind what the host has waited for.
    if (of > launch) {
      launch = of;
      if (streams.is_only(op.stream)) end_phase();
      streams.launch(op.stream, trace.threads[op.thread].task);
    } else if (op.kind == OpKind::synchronize && op.group == 0) {
      streams.wait(op);
      if (streams.none()) end_phase();
    }
    ops.push_back(i);
  }
  end_phase();
  return reasons;
}

std::string to_string(const WeakReason& reason, const Trace& trace) {
  if (reason.gave_up) return "weak memory: too many accesses to rule it out";
  const auto text = [&](std::uint32_t index) {
    const Op& op = trace.ops[index];
    const bool writes = op.kind == OpKind::write || op.kind == OpKind::release;
    const char* const what = op.kind == OpKind::update ? "an update"
                             : writes                  ? "a write"
                                                       : "a read";
    const TraceThread& thread = trace.threads[op.thread];
    if (thread.launch == 0) return detail::concat(what, " of the host");
    return detail::concat(what, " of kernel ", thread.launch, ", block ", thread.block, ", thread ",
                          thread.thread);
  };
  return detail::concat("weak memory: ", text(reason.first), " and ", text(reason.second),
                        " may be seen out of order: no fence between them that the other threads "
                        "share, and these could tell");
}

}  // namespace holdfast::check

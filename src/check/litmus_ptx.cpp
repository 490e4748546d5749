#include "check/litmus_ptx.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "holdfast/error.hpp"

namespace holdfast::check {

const char* to_string(Memory memory) noexcept { return memory == Memory::sc ? "sc" : "ptx"; }

namespace {

using Relation = std::vector<std::vector<bool>>;

Relation none(std::size_t count) { return Relation(count, std::vector<bool>(count)); }

void close(Relation& relation) {
  const std::size_t count = relation.size();
  for (std::size_t via = 0; via < count; ++via) {
    for (std::size_t from = 0; from < count; ++from) {
      if (!relation[from][via]) continue;
      for (std::size_t to = 0; to < count; ++to) {
        if (relation[via][to]) relation[from][to] = true;
      }
    }
  }
}

bool is_acyclic(Relation relation) {
  close(relation);
  for (std::size_t i = 0; i < relation.size(); ++i) {
    if (relation[i][i]) return false;
  }
  return true;
}

struct Event {
  const LitmusStep* step = nullptr;
  std::uint32_t thread = 0;
  std::uint64_t place = 0;  // of accesses
  bool reads = false, writes = false, fence = false;
  bool strong = false, acquires = false, releases = false;
  Scope scope = Scope::system;
};

constexpr int kInitial = -1;

// One choice of what each read reads from, and what follows from it.
class Candidate {
 public:
  Candidate(const LitmusTest& test, const std::vector<Event>& events, std::vector<int> sources)
      : test_(test), events_(events), sources_(std::move(sources)), values_(events.size()) {}

  // False: a value would come from nowhere, or from a swap that fails, or a wait would not end.
  bool evaluate() {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (!events_[i].reads) continue;
      const std::optional<std::uint64_t> value = read(i);
      if (!value) return false;
      const LitmusStep& step = *events_[i].step;
      if (step.op != LitmusOp::wait) continue;
      const auto awaited = operand(i, step.expected);
      if (!awaited || !holds(*value, step.comparison, *awaited)) return false;
    }
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].writes && wrote(i) && !written(i)) return false;
      if (events_[i].reads && sources_[i] != kInitial &&
          !wrote(static_cast<std::size_t>(sources_[i]))) {
        return false;
      }
    }
    return true;
  }

  int source(std::size_t read) const { return sources_[read]; }
  // Whether the event writes: a swap may fail.
  bool wrote(std::size_t i) {
    if (!events_[i].writes) return false;
    if (events_[i].step->op != LitmusOp::cas) return true;
    const auto found = read(i);
    const auto expected = operand(i, events_[i].step->expected);
    return found && expected && *found == cut(i, *expected);
  }
  std::uint64_t value_written(std::size_t i) { return *written(i); }
  std::uint64_t value_read(std::size_t i) { return *read(i); }
  std::optional<std::uint64_t> register_at_end(std::uint32_t thread, std::uint32_t number) {
    return register_before(events_.size(), thread, number);
  }
  std::uint64_t initial(std::size_t i) const {
    return test_.variables[events_[i].step->place.variable].initial;
  }

 private:
  std::uint64_t cut(std::size_t i, std::uint64_t value) const {
    const bool narrow = test_.variables[events_[i].step->place.variable].width == 4;
    return narrow ? value & 0xffffffff : value;
  }

  std::optional<std::uint64_t> read(std::size_t i) {
    if (sources_[i] == kInitial) return initial(i);
    if (values_[i].has_value()) return values_[i];
    if (depth_ > events_.size()) return std::nullopt;  // out of thin air
    ++depth_;
    values_[i] = written(static_cast<std::size_t>(sources_[i]));
    --depth_;
    return values_[i];
  }

  std::optional<std::uint64_t> written(std::size_t i) {
    const LitmusStep& step = *events_[i].step;
    auto value = operand(i, step.value);
    if (step.op == LitmusOp::add) {
      const auto before = read(i);
      if (!before || !value) return std::nullopt;
      value = *before + *value;
    }
    if (!value) return std::nullopt;
    return cut(i, *value);
  }

  std::optional<std::uint64_t> operand(std::size_t i, const LitmusValue& value) {
    if (!value.is_register) return value.number;
    return register_before(i, events_[i].thread, static_cast<std::uint32_t>(value.number));
  }

  std::optional<std::uint64_t> register_before(std::size_t end, std::uint32_t thread,
                                               std::uint32_t number) {
    for (std::size_t i = end; i-- > 0;) {
      if (events_[i].thread == thread && events_[i].reads && events_[i].step->result == number) {
        return read(i);
      }
    }
    return 0;
  }

  const LitmusTest& test_;
  const std::vector<Event>& events_;
  std::vector<int> sources_;
  std::vector<std::optional<std::uint64_t>> values_;
  std::size_t depth_ = 0;
};

class Search {
 public:
  // `outcomes`: null, or receives them all.
  Search(const LitmusTest& test, Memory memory, std::set<std::vector<std::uint64_t>>* outcomes)
      : test_(test), memory_(memory), outcomes_(outcomes) {
    for (std::uint32_t i = 0; i < test.threads.size(); ++i) {
      for (const LitmusStep& step : test.threads[i].steps) add(i, step);
    }
    const std::size_t count = events_.size();
    po_ = none(count);
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = a + 1; b < count; ++b)
        po_[a][b] = events_[a].thread == events_[b].thread;
    }
  }

  bool run() {
    std::vector<int> sources(events_.size(), kInitial);
    return choose_sources(sources, 0);
  }

 private:
  void add(std::uint32_t thread, const LitmusStep& step) {
    if (step.op == LitmusOp::launch) return;
    Event event;
    event.step = &step;
    event.thread = thread;
    event.scope = step.op == LitmusOp::dfence ? Scope::system : step.scope;
    event.fence = step.op == LitmusOp::fence || step.op == LitmusOp::dfence;
    event.writes =
        step.op == LitmusOp::store || step.op == LitmusOp::add || step.op == LitmusOp::cas;
    event.reads = step.op == LitmusOp::load || step.op == LitmusOp::wait ||
                  step.op == LitmusOp::add || step.op == LitmusOp::cas;
    if (step.op == LitmusOp::ofence) return;
    const bool access = event.reads || event.writes;
    if (thread == kHostThread || (!access && !event.fence) || (access && step.place.count != 1)) {
      throw Error(Errc::unsupported,
                  detail::concat(test_.file, ":", step.line, ": test '", test_.name,
                                 "': with 'final' there are kernels' accesses to one element and "
                                 "fences alone"));
    }
    event.strong = event.fence || step.access != Access::plain;
    event.acquires = event.reads && step.access == Access::persist;
    event.releases = event.writes && step.access == Access::persist;
    event.place = std::uint64_t{step.place.variable} << 32 | step.place.first;
    events_.push_back(event);
  }

  bool choose_sources(std::vector<int>& sources, std::size_t from) {
    while (from < events_.size() && !events_[from].reads) ++from;
    if (from == events_.size()) {
      Candidate candidate(test_, events_, sources);
      return candidate.evaluate() && choose_orders(candidate);
    }
    for (int i = kInitial; i < static_cast<int>(events_.size()); ++i) {
      const auto number = static_cast<std::size_t>(i);
      if (i != kInitial && (!events_[number].writes || number == from ||
                            events_[number].place != events_[from].place)) {
        continue;
      }
      sources[from] = i;
      if (choose_sources(sources, from + 1)) return true;
    }
    return false;
  }

  // Every order of the writes to each variable, and of the fences.
  bool choose_orders(Candidate& candidate) {
    std::map<std::uint64_t, std::vector<std::size_t>> writes;
    std::vector<std::size_t> fences;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (candidate.wrote(i)) writes[events_[i].place].push_back(i);
      if (events_[i].fence) fences.push_back(i);
    }
    std::vector<std::vector<std::size_t>> orders;
    orders.reserve(writes.size());
    for (auto& [place, of] : writes) orders.push_back(of);
    return choose_order(candidate, orders, 0, fences);
  }

  bool choose_order(Candidate& candidate, std::vector<std::vector<std::size_t>>& orders,
                    std::size_t from, std::vector<std::size_t>& fences) {
    if (from == orders.size()) {
      if (outcomes_ == nullptr) {
        return reached(candidate, orders) && is_consistent(candidate, orders, fences);
      }
      const std::vector<std::uint64_t> outcome = outcome_of(candidate, orders);
      if (!outcomes_->contains(outcome) && is_consistent(candidate, orders, fences)) {
        outcomes_->insert(outcome);
      }
      return false;
    }
    std::sort(orders[from].begin(), orders[from].end());
    do {
      if (choose_order(candidate, orders, from + 1, fences)) return true;
    } while (std::next_permutation(orders[from].begin(), orders[from].end()));
    return false;
  }

  bool reached(Candidate& candidate, const std::vector<std::vector<std::size_t>>& orders) const {
    for (const LitmusTerm& term : test_.condition) {
      std::uint64_t value = 0;
      if (term.of == LitmusTerm::Of::reg) {
        value = candidate.register_at_end(term.thread, term.reg).value_or(0);
      } else {
        value = test_.variables[term.place.variable].initial;
        for (const auto& order : orders) {
          const std::uint64_t place = std::uint64_t{term.place.variable} << 32 | term.place.first;
          if (events_[order.back()].place == place) value = candidate.value_written(order.back());
        }
      }
      if (!holds(value, term.comparison, term.value)) return false;
    }
    return true;
  }

  bool is_consistent(const Candidate& candidate,
                     const std::vector<std::vector<std::size_t>>& orders,
                     std::vector<std::size_t>& fences) const {
    if (memory_ == Memory::sc) return is_sc(candidate, orders);
    std::sort(fences.begin(), fences.end());
    do {
      if (is_ptx(candidate, orders, fences)) return true;
    } while (std::next_permutation(fences.begin(), fences.end()));
    return false;
  }

  std::vector<std::uint64_t> outcome_of(Candidate& candidate,
                                        const std::vector<std::vector<std::size_t>>& orders) const {
    std::vector<std::uint64_t> outcome;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].reads) outcome.push_back(candidate.value_read(i));
    }
    for (const auto& order : orders) outcome.push_back(candidate.value_written(order.back()));
    return outcome;
  }

  struct Communication {
    Relation rf, co, fr;
  };

  Communication communicate(const Candidate& candidate,
                            const std::vector<std::vector<std::size_t>>& orders) const {
    const std::size_t count = events_.size();
    Communication com{none(count), none(count), none(count)};
    for (const auto& order : orders) {
      for (std::size_t i = 0; i < order.size(); ++i) {
        for (std::size_t j = i + 1; j < order.size(); ++j) com.co[order[i]][order[j]] = true;
      }
    }
    for (std::size_t read = 0; read < count; ++read) {
      if (!events_[read].reads) continue;
      const int source = candidate.source(read);
      if (source != kInitial) com.rf[static_cast<std::size_t>(source)][read] = true;
      for (const auto& order : orders) {
        if (events_[order[0]].place != events_[read].place) continue;
        for (const std::size_t write : order) {
          const bool later = source == kInitial || com.co[static_cast<std::size_t>(source)][write];
          if (later && write != read) com.fr[read][write] = true;
        }
      }
    }
    return com;
  }

  // An update's write is the next one after what it has read.
  bool is_atomic(const Communication& com, std::size_t count) const {
    for (std::size_t update = 0; update < count; ++update) {
      if (!events_[update].reads || !events_[update].writes) continue;
      for (std::size_t write = 0; write < count; ++write) {
        if (com.fr[update][write] && com.co[write][update]) return false;
      }
    }
    return true;
  }

  bool is_sc(const Candidate& candidate,
             const std::vector<std::vector<std::size_t>>& orders) const {
    const Communication com = communicate(candidate, orders);
    Relation all = po_;
    for (std::size_t a = 0; a < all.size(); ++a) {
      for (std::size_t b = 0; b < all.size(); ++b) {
        if (com.rf[a][b] || com.co[a][b] || com.fr[a][b]) all[a][b] = true;
      }
    }
    return is_atomic(com, all.size()) && is_acyclic(std::move(all));
  }

  bool morally_strong(std::size_t a, std::size_t b) const {
    const Event& one = events_[a];
    const Event& other = events_[b];
    if (!one.strong || !other.strong) return false;
    if (one.thread == other.thread) return true;
    const bool same_kernel = test_.threads[one.thread].launch == test_.threads[other.thread].launch;
    const bool same_block =
        same_kernel && test_.threads[one.thread].block == test_.threads[other.thread].block;
    return same_block || std::min(one.scope, other.scope) >= Scope::device;
  }

  // By PTX's words: of a release pattern the first operation and a write in it.
  Relation release_patterns() const {
    Relation patterns = none(events_.size());
    for (std::size_t first = 0; first < events_.size(); ++first) {
      for (std::size_t write = first; write < events_.size(); ++write) {
        const Event& event = events_[write];
        if (!event.writes || !event.strong) continue;
        const bool release = events_[first].releases && event.place == events_[first].place;
        if (first == write ? release : po_[first][write] && (release || events_[first].fence)) {
          patterns[first][write] = true;
        }
      }
    }
    return patterns;
  }
  // Of an acquire pattern a read in it and the last operation.
  Relation acquire_patterns() const {
    Relation patterns = none(events_.size());
    for (std::size_t read = 0; read < events_.size(); ++read) {
      const Event& event = events_[read];
      if (!event.reads || !event.strong) continue;
      for (std::size_t last = read; last < events_.size(); ++last) {
        const bool acquire = events_[last].acquires && event.place == events_[last].place;
        if (read == last ? acquire : po_[read][last] && (acquire || events_[last].fence)) {
          patterns[read][last] = true;
        }
      }
    }
    return patterns;
  }

  // The longest chains of updates are shorter than the number of events.
  Relation observe(const Communication& com) const {
    const std::size_t count = events_.size();
    Relation seen = none(count);
    for (std::size_t w = 0; w < count; ++w) {
      for (std::size_t r = 0; r < count; ++r) seen[w][r] = com.rf[w][r] && morally_strong(w, r);
    }
    for (std::size_t round = 0; round < count; ++round) {
      for (std::size_t w = 0; w < count; ++w) {
        for (std::size_t via = 0; via < count; ++via) {
          if (!seen[w][via] || !events_[via].writes) continue;
          for (std::size_t r = 0; r < count; ++r) {
            if (seen[via][r]) seen[w][r] = true;
          }
        }
      }
    }
    return seen;
  }

  bool is_ptx(const Candidate& candidate, const std::vector<std::vector<std::size_t>>& orders,
              const std::vector<std::size_t>& fences) const {
    const std::size_t count = events_.size();
    const Communication com = communicate(candidate, orders);
    if (!is_atomic(com, count)) return false;
    const Relation observed = observe(com);
    Relation base = po_;
    synchronise(observed, base);
    for (std::size_t i = 0; i < fences.size(); ++i) {
      for (std::size_t j = i + 1; j < fences.size(); ++j) {
        if (morally_strong(fences[i], fences[j])) base[fences[i]][fences[j]] = true;
      }
    }
    close(base);
    Relation cause = base;
    for (std::size_t w = 0; w < count; ++w) {
      for (std::size_t via = 0; via < count; ++via) {
        if (!observed[w][via]) continue;
        for (std::size_t to = 0; to < count; ++to) {
          if (base[via][to]) cause[w][to] = true;
        }
      }
    }
    for (std::size_t i = 0; i < fences.size(); ++i) {  // Fence-SC
      for (std::size_t j = 0; j < i; ++j) {
        if (morally_strong(fences[i], fences[j]) && cause[fences[i]][fences[j]]) return false;
      }
    }
    return agrees(com, cause) && is_sc_per_place(com);
  }

  void synchronise(const Relation& observed, Relation& base) const {
    const std::size_t count = events_.size();
    const Relation releases = release_patterns();
    const Relation acquires = acquire_patterns();
    for (std::size_t first = 0; first < count; ++first) {
      for (std::size_t w = 0; w < count; ++w) {
        if (!releases[first][w]) continue;
        for (std::size_t r = 0; r < count; ++r) {
          if (!observed[w][r] || events_[w].thread == events_[r].thread) continue;
          for (std::size_t last = 0; last < count; ++last) {
            if (acquires[r][last] && morally_strong(first, last)) base[first][last] = true;
          }
        }
      }
    }
  }

  // Axioms Coherence and Causality.
  bool agrees(const Communication& com, const Relation& cause) const {
    const std::size_t count = events_.size();
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b < count; ++b) {
        if (!cause[a][b]) continue;
        if (a == b) return false;
        if (com.co[b][a] || com.rf[b][a] || com.fr[b][a]) return false;
      }
    }
    return true;
  }

  // Axiom SC-per-Location: of accesses that are pairwise morally strong.
  bool is_sc_per_place(const Communication& com) const {
    const std::size_t count = events_.size();
    Relation all = none(count);
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b < count; ++b) {
        if (events_[a].fence || events_[b].fence || events_[a].place != events_[b].place) continue;
        const bool communicates = com.rf[a][b] || com.co[a][b] || com.fr[a][b];
        all[a][b] = po_[a][b] || (communicates && morally_strong(a, b));
      }
    }
    return is_acyclic(std::move(all));
  }

  const LitmusTest& test_;
  const Memory memory_;
  std::set<std::vector<std::uint64_t>>* const outcomes_;
  std::vector<Event> events_;
  Relation po_;
};

}  // namespace

bool run_memory(const LitmusTest& test, Memory memory) {
  return Search(test, memory, nullptr).run();
}

std::set<std::vector<std::uint64_t>> memory_outcomes(const LitmusTest& test, Memory memory) {
  std::set<std::vector<std::uint64_t>> outcomes;
  Search(test, memory, &outcomes).run();
  return outcomes;
}

}  // namespace holdfast::check

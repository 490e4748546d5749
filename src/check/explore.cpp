#include "check/explore.hpp"

#include <array>
#include <map>
#include <set>
#include <utility>

#include "check/decision_tree.hpp"

namespace holdfast::check {

// Outcomes by the versions of the cells that recovery read, and by what was promised to whom.
class Explorer::Memory {
 public:
  explicit Memory(const Order& order) : order_(order) {}

  const Outcome* find(const CrashPoint& point, const Bitset& durable) const {
    const auto tree = trees_.find(history(point));
    if (tree == trees_.end()) return nullptr;
    return tree->second.find(
        [&](std::uint64_t cell) {
          return order_.version(static_cast<std::uint32_t>(cell), durable);
        },
        [](std::uint64_t) {});
  }

  const Outcome& insert(const CrashPoint& point, const Bitset& durable, Outcome outcome) {
    std::vector<Reading> readings;
    readings.reserve(outcome.reads.size());
    for (const std::uint32_t cell : outcome.reads) {
      readings.push_back({cell, order_.version(cell, durable)});
    }
    return trees_[history(point)].insert(readings, std::move(outcome));
  }

  std::uint64_t runs = 0;

 private:
  static std::uint64_t history(const CrashPoint& point) {
    return std::uint64_t{point.started} << 32 | point.acknowledged;
  }

  const Order& order_;
  std::map<std::uint64_t, DecisionTree<Outcome>> trees_;
};

// The state that is being chosen: `in` is what must be durable, `out` what must not.
struct Explorer::Choice {
  Bitset in;
  Bitset out;
  Bitset decided;  // cells
};

Explorer::Explorer(const Order& order, RunState run)
    : order_(order), run_(std::move(run)), memory_(std::make_unique<Memory>(order)) {}
Explorer::~Explorer() = default;

std::uint64_t Explorer::runs() const { return memory_->runs; }

const Outcome& Explorer::outcome(std::size_t point, const Bitset& durable) {
  const CrashPoint& where = order_.points()[point];
  if (const Outcome* known = memory_->find(where, durable)) return *known;
  ++memory_->runs;
  Outcome fresh = run_(durable, where);
  if (stop_ && stop_()) {
    // It may have been cut short: what it read is not all that it would have.
    unfinished_ = std::move(fresh);
    return unfinished_;
  }
  return memory_->insert(where, durable, std::move(fresh));
}

bool Explorer::descend(std::size_t point, Choice& choice,
                       const std::function<bool(std::uint32_t)>& cells) {
  if (stop_ && stop_()) return false;
  const CrashPoint& where = order_.points()[point];
  const Outcome& result = outcome(point, choice.in);
  if (visit_ && !visit_({point, choice.in, result})) return false;
  for (const std::uint32_t cell : result.reads) {
    if (choice.decided.test(cell) || (cells && !cells(cell))) continue;
    if (order_.is_constant(cell)) continue;
    choice.decided.set(cell);
    const auto& writes = order_.cells()[cell].writes;
    const std::uint32_t versions = order_.versions(cell, where);
    const std::uint32_t now = order_.version(cell, choice.in);
    for (std::uint32_t version = now + 1; version <= versions; ++version) {
      Choice later = choice;
      later.in |= order_.down(writes[version - 1]);
      later.in.set(writes[version - 1]);
      if (later.in.intersects(choice.out)) break;  // so would every later version
      if (version < writes.size()) later.out.set(writes[version]);
      if (!descend(point, later, cells)) return false;
    }
    if (now < writes.size()) choice.out.set(writes[now]);
  }
  return true;
}

bool Explorer::explore(const std::function<bool(std::uint32_t)>& cells) {
  // Of points that agree on these cells and on all that is ordered before their writes, one will
  // do.
  Bitset relevant;
  for (std::uint32_t cell = 0; cells && cell < order_.cells().size(); ++cell) {
    if (!cells(cell) || order_.is_constant(cell)) continue;
    for (const std::uint32_t write : order_.cells()[cell].writes) {
      relevant |= order_.down(write);
      relevant.set(write);
    }
  }
  std::set<std::array<std::uint64_t, 4>> seen;
  for (std::size_t number = 0; number < order_.points().size(); ++number) {
    const CrashPoint& point = order_.points()[number];
    if (cells) {
      Bitset durable = point.durable;
      durable &= relevant;
      Bitset executed = Bitset::below(point.executed);
      executed &= relevant;
      if (!seen.insert({durable.hash(), executed.hash(), point.started, point.acknowledged})
               .second) {
        continue;
      }
    }
    Choice choice;
    choice.in = point.durable;
    if (!descend(number, choice, cells)) return false;
  }
  return true;
}

}  // namespace holdfast::check

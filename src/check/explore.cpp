#include "check/explore.hpp"

#include <array>
#include <map>
#include <set>
#include <utility>

#include "holdfast/error.hpp"

namespace holdfast::check {

// Outcomes by what recovery read: a tree of cells and versions, a run of reads to a node. Recovery
// is a function of what it has read, so at a node all runs read the same cell next.
class Explorer::Memory {
 public:
  explicit Memory(const Order& order) : order_(order) {}

  const Outcome* find(const CrashPoint& point, const Bitset& durable) {
    const auto root = roots_.find(history(point));
    if (root == roots_.end()) return nullptr;
    const Node* node = root->second.get();
    for (;;) {
      for (const Reading& reading : node->run) {
        const std::uint32_t version = order_.version(reading.cell, durable);
        if (version != reading.version) return nullptr;
      }
      if (node->outcome) return node->outcome.get();
      const auto child = node->children.find(order_.version(node->branch, durable));
      if (child == node->children.end()) return nullptr;
      node = child->second.get();
    }
  }

  const Outcome& insert(const CrashPoint& point, const Bitset& durable, Outcome outcome) {
    std::vector<Reading> readings;
    readings.reserve(outcome.reads.size());
    for (const std::uint32_t cell : outcome.reads) {
      readings.push_back({cell, order_.version(cell, durable)});
    }
    auto leaf = std::make_unique<Outcome>(std::move(outcome));
    const Outcome& result = *leaf;
    std::unique_ptr<Node>* place = &roots_[history(point)];
    std::size_t at = 0;
    while (*place) {
      Node& node = **place;
      std::size_t same = 0;
      while (same < node.run.size() && at + same < readings.size() &&
             node.run[same] == readings[at + same]) {
        ++same;
      }
      if (same < node.run.size()) {
        split(node, same, readings, at + same);
      }
      at += node.run.size();
      expect(at < readings.size() && readings[at].cell == node.branch && !node.outcome);
      place = &node.children[readings[at].version];
      ++at;
    }
    *place = std::make_unique<Node>();
    (*place)->run.assign(readings.begin() + static_cast<std::ptrdiff_t>(at), readings.end());
    (*place)->outcome = std::move(leaf);
    return result;
  }

  std::uint64_t runs = 0;

 private:
  struct Reading {
    std::uint32_t cell;
    std::uint32_t version;
    bool operator==(const Reading&) const = default;
  };
  struct Node {
    std::vector<Reading> run;
    std::uint32_t branch = 0;                                 // the cell that is read behind `run`
    std::map<std::uint32_t, std::unique_ptr<Node>> children;  // by its version
    std::unique_ptr<Outcome> outcome;                         // of a leaf
  };

  static std::uint64_t history(const CrashPoint& point) {
    return std::uint64_t{point.started} << 32 | point.acknowledged;
  }

  static void expect(bool deterministic) {
    if (deterministic) return;
    throw Error(
        Errc::unsupported,
        "recovery is not a function of what it reads from persistent memory: the same "
        "bytes led it to another read; take clocks, random numbers and addresses out of it");
  }

  // The node's run becomes its first `same` readings; the rest goes to a child.
  static void split(Node& node, std::size_t same, const std::vector<Reading>& readings,
                    std::size_t at) {
    expect(at < readings.size() && readings[at].cell == node.run[same].cell);
    auto rest = std::make_unique<Node>();
    rest->run.assign(node.run.begin() + static_cast<std::ptrdiff_t>(same) + 1, node.run.end());
    rest->branch = node.branch;
    rest->children = std::move(node.children);
    rest->outcome = std::move(node.outcome);
    const Reading branch = node.run[same];
    node.run.resize(same);
    node.branch = branch.cell;
    node.children.clear();
    node.outcome.reset();
    node.children[branch.version] = std::move(rest);
  }

  const Order& order_;
  std::map<std::uint64_t, std::unique_ptr<Node>> roots_;  // by what was promised to whom
};

// The state that is being chosen: `in` is what must be durable, `out` what must not.
struct Explorer::Choice {
  Bitset in;
  Bitset out;
  Bitset decided;  // cells
  unsigned depth = 0;
};

Explorer::Explorer(const Order& order, RunState run)
    : order_(order), run_(std::move(run)), memory_(std::make_unique<Memory>(order)) {}
Explorer::~Explorer() = default;

std::uint64_t Explorer::runs() const { return memory_->runs; }

const Outcome& Explorer::outcome(std::size_t point, const Bitset& durable) {
  const CrashPoint& where = order_.points()[point];
  if (const Outcome* known = memory_->find(where, durable)) return *known;
  ++memory_->runs;
  return memory_->insert(where, durable, run_(durable, where));
}

bool Explorer::descend(std::size_t point, Choice& choice,
                       const std::function<bool(std::uint32_t)>& cells) {
  if (stop_ && stop_()) return false;
  const CrashPoint& where = order_.points()[point];
  const Outcome& result = outcome(point, choice.in);
  if (visit_ && !visit_({point, choice.in, result})) return false;
  for (const std::uint32_t cell : result.reads) {
    if (choice.decided.test(cell) || (cells && !cells(cell))) continue;
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
      // Every worker goes through the first choices, so that all meet the same subtrees.
      constexpr unsigned kShared = 2;
      if (++later.depth == kShared + 1 && later.in.hash() % workers_ != worker_) continue;
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
    if (!cells(cell)) continue;
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

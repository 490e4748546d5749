// What a deterministic reader did, by what it read: a tree in which the values read so far lead to
// what is read next, or to the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "holdfast/error.hpp"

namespace holdfast::check {

struct Reading {
  std::uint64_t what = 0;
  std::uint64_t value = 0;
  bool operator==(const Reading&) const = default;
};

// Invariant: at a node, every reader that has read the values on the way reads the same next.
template <class Leaf>
class DecisionTree {
 public:
  // The leaf to which value_of(what) leads, or null. visit(what) is called for what is read on the
  // way, also where it leads nowhere.
  template <class ValueOf, class Visit>
  const Leaf* find(ValueOf&& value_of, Visit&& visit) const {
    const Node* node = root_.get();
    while (node != nullptr) {
      for (const Reading& reading : node->run) {
        visit(reading.what);
        if (value_of(reading.what) != reading.value) return nullptr;
      }
      if (node->leaf) return node->leaf.get();
      visit(node->branch);
      const auto child = node->children.find(value_of(node->branch));
      node = child == node->children.end() ? nullptr : child->second.get();
    }
    return nullptr;
  }

  // Throws unsupported if the readings contradict the invariant. REQUIRES: they lead to no leaf.
  const Leaf& insert(const std::vector<Reading>& readings, Leaf leaf) {
    std::unique_ptr<Node>* place = &root_;
    std::size_t at = 0;
    while (*place) {
      Node& node = **place;
      std::size_t same = 0;
      while (same < node.run.size() && at + same < readings.size() &&
             node.run[same] == readings[at + same]) {
        ++same;
      }
      if (same < node.run.size()) split(node, same, readings, at + same);
      at += node.run.size();
      expect(!node.leaf && at < readings.size() && readings[at].what == node.branch);
      place = &node.children[readings[at].value];
      ++at;
    }
    *place = std::make_unique<Node>();
    Node& node = **place;
    node.run.assign(readings.begin() + static_cast<std::ptrdiff_t>(at), readings.end());
    node.leaf = std::make_unique<Leaf>(std::move(leaf));
    size_ += node.run.size() + 8;
    return *node.leaf;
  }

  void clear() {
    root_.reset();
    size_ = 0;
  }
  // Roughly, in readings.
  std::size_t size() const { return size_; }

 private:
  struct Node {
    std::vector<Reading> run;
    std::uint64_t branch = 0;                                 // what is read behind `run`
    std::map<std::uint64_t, std::unique_ptr<Node>> children;  // by its value
    std::unique_ptr<Leaf> leaf;                               // there are no children then
  };

  static void expect(bool deterministic) {
    if (deterministic) return;
    throw Error(
        Errc::unsupported,
        "recovery is not a function of what it reads from persistent memory: the same bytes led it "
        "to another read; take clocks, random numbers and addresses out of it");
  }

  // The node's run becomes its first `same` readings; the rest goes to a child.
  static void split(Node& node, std::size_t same, const std::vector<Reading>& readings,
                    std::size_t at) {
    expect(at < readings.size() && readings[at].what == node.run[same].what);
    auto rest = std::make_unique<Node>();
    rest->run.assign(node.run.begin() + static_cast<std::ptrdiff_t>(same) + 1, node.run.end());
    rest->branch = node.branch;
    rest->children = std::move(node.children);
    rest->leaf = std::move(node.leaf);
    const Reading branch = node.run[same];
    node.run.resize(same);
    node.branch = branch.what;
    node.children.clear();
    node.leaf.reset();
    node.children[branch.value] = std::move(rest);
  }

  std::unique_ptr<Node> root_;
  std::size_t size_ = 0;
};

}  // namespace holdfast::check

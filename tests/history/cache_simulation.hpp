// A cache tier without time: checkpoints of different sizes are saved in order and then restored in
// another, and what counts is the bytes that are fetched again. Everything is flushed at once, so
// that no window waits; a restore whose checkpoint is not in the cache brings it back through the
// cache; what was restored is consumed. Against it, what the best of all placements would fetch.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "history/eviction.hpp"

namespace holdfast::history::simulation {

enum class Order { reverse, sequential, irregular };

inline constexpr std::array kOrders{Order::reverse, Order::sequential, Order::irregular};

const char* to_string(Order order);

struct Trace {
  std::uint64_t capacity = 0;        // units
  std::vector<std::uint64_t> bytes;  // by step, units
  std::vector<Step> restores;        // each step once
  bool hinted = true;                // all restores are known from the start
};

// Sizes are 1 to most units.
Trace random_trace(std::mt19937_64& random, std::uint64_t capacity, std::size_t checkpoints,
                   std::uint64_t most, Order order);

class Simulation;
// Makes room for a checkpoint and places it.
using Policy = std::function<void(Simulation&, Step)>;

class Simulation {
 public:
  Simulation(const Trace& trace, const Policy& policy);
  // Units fetched again.
  std::uint64_t run();

  // What policies look at and change.
  AllocationTable& table() { return table_; }
  std::uint64_t bytes(Step step) const { return trace_.bytes[step]; }
  Score score(Step step) const;
  // Restores still to come.
  std::uint64_t to_come() const { return trace_.restores.size() - restored_; }
  // When the checkpoint came in or was restored, whichever is later.
  std::uint64_t last_use(Step step) const { return last_use_[step]; }
  void put(const Window& window, Step step);

 private:
  void bring_in(Step step);

  const Trace& trace_;
  const Policy& policy_;
  AllocationTable table_;
  std::size_t restored_ = 0;
  std::uint64_t clock_ = 0;
  std::vector<std::uint64_t> position_;  // in the restores, by step
  std::vector<std::uint64_t> last_use_;  // by step
  std::vector<bool> consumed_;           // by step
};

// choose_window().
Policy gap_aware();
// A checkpoint that an eviction loses.
struct Evicted {
  std::uint64_t bytes;
  std::uint64_t distance;
};
// What windows are compared by, of those they lose and of their bytes; the least is the best.
using Key = std::function<std::vector<double>(const std::vector<Evicted>&, std::uint64_t window)>;
// The window of the least key, found by looking at all.
Policy least_key(Key key);
// The least recently used one after another, until there is a gap that is large enough; the first.
Policy lru_first_fit();
// Algorithm 1 with its scores and its search as printed. What is not in the restore queue, gaps
// among it, has the distance of the queue's end. Its erasing, which does not end, is mended.
Policy as_printed();

// The bytes that no sequence of placements can do without, by trying all. REQUIRES: at most 15
// units and 12 checkpoints. States that cost more than `bound` are left out; REQUIRES: some
// sequence costs no more.
std::uint64_t least_fetched(const Trace& trace, std::uint64_t bound);

// The bytes that even a cache without fragments fetches, which may hold any part of a checkpoint
// anywhere: the farthest restore's bytes leave first.
std::uint64_t least_fetched_by_units(const Trace& trace);

}  // namespace holdfast::history::simulation

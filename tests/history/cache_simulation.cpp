#include "history/cache_simulation.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace holdfast::history::simulation {

const char* to_string(Order order) {
  switch (order) {
    case Order::reverse:
      return "reverse";
    case Order::sequential:
      return "sequential";
    case Order::irregular:
      return "irregular";
  }
  return "";
}

Trace random_trace(std::mt19937_64& random, std::uint64_t capacity, std::size_t checkpoints,
                   std::uint64_t most, Order order) {
  Trace trace;
  trace.capacity = capacity;
  for (std::size_t i = 0; i < checkpoints; ++i) trace.bytes.push_back(1 + random() % most);
  trace.restores.resize(checkpoints);
  std::iota(trace.restores.begin(), trace.restores.end(), Step{0});
  if (order == Order::reverse) std::reverse(trace.restores.begin(), trace.restores.end());
  if (order == Order::irregular) {
    std::shuffle(trace.restores.begin(), trace.restores.end(), random);
  }
  return trace;
}

Simulation::Simulation(const Trace& trace, const Policy& policy)
    : trace_(trace),
      policy_(policy),
      table_(trace.capacity, 1),
      position_(trace.bytes.size()),
      last_use_(trace.bytes.size()),
      consumed_(trace.bytes.size()) {
  for (std::size_t i = 0; i < trace.restores.size(); ++i) position_[trace.restores[i]] = i;
}

std::uint64_t Simulation::run() {
  for (Step step = 0; step < trace_.bytes.size(); ++step) bring_in(step);
  std::uint64_t fetched = 0;
  for (const Step step : trace_.restores) {
    if (table_.find(step) == nullptr) {
      fetched += bytes(step);
      bring_in(step);
    }
    last_use_[step] = ++clock_;
    consumed_[step] = true;
    ++restored_;
  }
  return fetched;
}

Score Simulation::score(Step step) const {
  const bool known = trace_.hinted && !consumed_[step];
  return {0, known ? position_[step] - restored_ : kUnhinted, consumed_[step]};
}

void Simulation::put(const Window& window, Step step) {
  table_.place(window.first, window.last, step, bytes(step), window.rest);
}

void Simulation::bring_in(Step step) {
  policy_(*this, step);
  last_use_[step] = ++clock_;
  if (!table_.valid() || table_.find(step) == nullptr) {
    throw std::logic_error("a policy left no sound table");
  }
}

Policy gap_aware() {
  return [](Simulation& simulation, Step step) {
    const auto window = choose_window(simulation.table().fragments(), simulation.bytes(step),
                                      [&](const Fragment& f) { return simulation.score(f.step); });
    simulation.put(window.value(), step);
  };
}

Policy least_key(Key key) {
  return [key = std::move(key)](Simulation& simulation, Step step) {
    const auto fragments = simulation.table().fragments();
    std::optional<std::pair<std::vector<double>, Window>> best;
    for (std::size_t first = 0; first < fragments.size(); ++first) {
      std::vector<Evicted> evicted;
      std::uint64_t window = 0;
      for (std::size_t i = first; i < fragments.size() && window < simulation.bytes(step); ++i) {
        window += fragments[i].bytes;
        if (fragments[i].step != kGap) {
          const Score score = simulation.score(fragments[i].step);
          if (!score.consumed) evicted.push_back({fragments[i].bytes, score.distance});
        }
        if (window < simulation.bytes(step)) continue;
        auto of = key(evicted, window);
        if (!best || of < best->first) best.emplace(std::move(of), Window{first, i + 1, 0});
      }
    }
    simulation.put(best.value().second, step);
  };
}

Policy lru_first_fit() {
  return [](Simulation& simulation, Step step) {
    AllocationTable& table = simulation.table();
    while (true) {
      const auto fragments = table.fragments();
      const Fragment* oldest = nullptr;
      for (std::size_t i = 0; i < fragments.size(); ++i) {
        const Fragment& fragment = fragments[i];
        if (fragment.step == kGap) {
          if (fragment.bytes < simulation.bytes(step)) continue;
          simulation.put({i, i + 1, 0}, step);
          return;
        }
        if (oldest == nullptr ||
            simulation.last_use(fragment.step) < simulation.last_use(oldest->step)) {
          oldest = &fragment;
        }
      }
      table.erase(oldest->step);
    }
  };
}

Policy as_printed() {
  return [](Simulation& simulation, Step step) {
    const auto fragments = simulation.table().fragments();
    const std::size_t n = fragments.size();
    const auto distance = [&](std::size_t i) {
      const std::uint64_t behind = simulation.to_come();
      if (fragments[i].step == kGap) return behind;
      const Score score = simulation.score(fragments[i].step);
      return std::min(score.distance, behind);
    };
    std::size_t j = 0;
    std::size_t r_start = 0;
    std::size_t r_end = 0;
    std::uint64_t window = 0;
    std::uint64_t s_score = 0;
    std::uint64_t max_s_score = 0;
    bool found = false;  // min_p_score is still infinite
    for (std::size_t i = 0; i < n && j < n; ++i) {
      if (i > 0) {
        s_score -= distance(i - 1);
        window -= fragments[i - 1].bytes;
      }
      while (window < simulation.bytes(step) && j < n) {
        s_score += distance(j);
        window += fragments[j].bytes;
        ++j;
      }
      if (window >= simulation.bytes(step) && (!found || s_score > max_s_score)) {
        found = true;
        max_s_score = s_score;
        r_start = i;
        r_end = j;
      }
    }
    simulation.put({r_start, r_end, 0}, step);
  };
}

namespace {

// Where the checkpoints are that are in the cache and not consumed: 4 bits for each, its offset and
// one more, or 0.
using Layout = std::uint64_t;

std::uint64_t place_of(Layout layout, Step step) { return layout >> (4 * step) & 0xf; }

using Layouts = std::unordered_map<Layout, std::uint64_t>;  // the least that has led to each

// All ways to put a checkpoint in, with those in its place evicted; `kept` if it stays.
void put_anywhere(const Trace& trace, Layout from, Step step, bool kept, std::uint64_t cost,
                  Layouts& to) {
  for (std::uint64_t at = 0; at + trace.bytes[step] <= trace.capacity; ++at) {
    Layout layout = from;
    for (Step other = 0; other < trace.bytes.size(); ++other) {
      const std::uint64_t place = place_of(from, other);
      if (place == 0) continue;
      const std::uint64_t begin = place - 1;
      if (begin < at + trace.bytes[step] && at < begin + trace.bytes[other]) {
        layout &= ~(Layout{0xf} << (4 * other));
      }
    }
    if (kept) layout |= (at + 1) << (4 * step);
    const auto [known, is_new] = to.try_emplace(layout, cost);
    if (!is_new) known->second = std::min(known->second, cost);
  }
}

}  // namespace

std::uint64_t least_fetched(const Trace& trace, std::uint64_t bound) {
  Layouts now{{0, 0}};
  for (Step step = 0; step < trace.bytes.size(); ++step) {
    Layouts next;
    for (const auto& [layout, cost] : now) put_anywhere(trace, layout, step, true, cost, next);
    now = std::move(next);
  }
  for (const Step step : trace.restores) {
    Layouts next;
    for (const auto& [layout, cost] : now) {
      if (place_of(layout, step) == 0) {
        const std::uint64_t more = cost + trace.bytes[step];
        if (more <= bound) put_anywhere(trace, layout, step, false, more, next);
        continue;
      }
      const Layout left = layout & ~(Layout{0xf} << (4 * step));
      const auto [known, is_new] = next.try_emplace(left, cost);
      if (!is_new) known->second = std::min(known->second, cost);
    }
    now = std::move(next);
  }
  std::uint64_t least = ~std::uint64_t{0};
  for (const auto& [layout, cost] : now) least = std::min(least, cost);
  return least;
}

std::uint64_t least_fetched_by_units(const Trace& trace) {
  std::vector<std::uint64_t> position(trace.bytes.size());
  for (std::size_t i = 0; i < trace.restores.size(); ++i) position[trace.restores[i]] = i;
  std::vector<std::uint64_t> held(trace.bytes.size());
  std::set<std::pair<std::uint64_t, Step>> by_position;
  std::uint64_t used = 0;
  const auto room_for = [&](std::uint64_t bytes) {
    while (trace.capacity - used < bytes) {
      const Step farthest = by_position.rbegin()->second;
      const std::uint64_t leave = std::min(held[farthest], bytes - (trace.capacity - used));
      held[farthest] -= leave;
      used -= leave;
      if (held[farthest] == 0) by_position.erase(std::prev(by_position.end()));
    }
  };
  for (Step step = 0; step < trace.bytes.size(); ++step) {
    room_for(trace.bytes[step]);
    held[step] = trace.bytes[step];
    used += held[step];
    by_position.emplace(position[step], step);
  }
  std::uint64_t fetched = 0;
  for (const Step step : trace.restores) {
    fetched += trace.bytes[step] - held[step];
    by_position.erase({position[step], step});
    used -= held[step];
    held[step] = 0;
    room_for(trace.bytes[step]);  // the whole of it passes through
  }
  return fetched;
}

}  // namespace holdfast::history::simulation

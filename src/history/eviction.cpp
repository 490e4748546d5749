#include "history/eviction.hpp"

#include <limits>
#include <vector>

namespace holdfast::history::detail {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The least wait of all windows; kNever if there are none. Slides as least_loss() does.
double least_wait(std::span<const Fragment> fragments, std::span<const Score> scores,
                  std::uint64_t bytes) {
  double least = kNever;
  std::size_t first = 0;
  // Those fragments of the window that no later one outwaits: the largest wait stands in front.
  std::vector<std::size_t> queue;
  std::size_t front = 0;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    const double wait = scores[i].wait;
    if (!(wait >= 0 && wait < least)) {  // NaN, too
      first = i + 1;
      queue.clear();
      front = 0;
      continue;
    }
    while (queue.size() > front && scores[queue.back()].wait <= wait) queue.pop_back();
    queue.push_back(i);
    const std::uint64_t end = fragments[i].offset + fragments[i].bytes;
    while (first < i && end - fragments[first + 1].offset >= bytes) {
      front += queue[front] == first ? 1 : 0;
      ++first;
    }
    if (end - fragments[first].offset < bytes) continue;
    least = scores[queue[front]].wait;
    if (least == 0) break;  // mostly there is one that need not wait
  }
  return least;
}

}  // namespace

std::optional<Window> choose_scored_window(std::span<const Fragment> fragments,
                                           std::span<const Score> scores, std::uint64_t bytes,
                                           Best best) {
  const auto score_at = [scores](std::size_t i) -> const Score& { return scores[i]; };
  double wait = 0;
  if (best.last == 0) {
    // All that can be evicted within the least wait are equal in that, and the loss decides.
    wait = least_wait(fragments, scores, bytes);
    if (wait == kNever) return std::nullopt;
    best = first_window(fragments, score_at, bytes, wait);
    best = least_loss(fragments, score_at, bytes, wait, best);
  }
  return window_of(fragments, score_at, best, bytes, wait);
}

}  // namespace holdfast::history::detail

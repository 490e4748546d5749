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
    if (end - fragments[first].offset >= bytes) least = scores[queue[front]].wait;
  }
  return least;
}

}  // namespace

std::optional<Window> choose_scored_window(std::span<const Fragment> fragments,
                                           std::span<const Score> scores, std::uint64_t bytes) {
  const auto score_at = [&](std::size_t i) -> const Score& { return scores[i]; };
  const auto free_within = [&](double limit) {
    return [fragments, scores, limit](std::size_t i) {
      const Score& score = scores[i];
      const bool in_time = both(score.wait >= 0, score.wait <= limit);
      return either(fragments[i].step == kGap, both(score.consumed, in_time));
    };
  };
  // Mostly there is a window that need not wait. Where there is none, all that can be evicted
  // within the least wait are equal in that, and the loss decides.
  auto best = least_loss(fragments, score_at, free_within(0), bytes, 0);
  if (!best) {
    const double wait = least_wait(fragments, scores, bytes);
    if (wait == kNever) return std::nullopt;
    best = least_loss(fragments, score_at, free_within(wait), bytes, wait);
  }
  best->rest = choose_rest(fragments, score_at, *best);
  return best;
}

}  // namespace holdfast::history::detail

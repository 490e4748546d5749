#include "history/eviction.hpp"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <utility>
#include <vector>

namespace holdfast::history::detail {

namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr double kNever = std::numeric_limits<double>::infinity();

// A condition without a branch: what kind of fragment comes next cannot be foretold, and a wrong
// guess of the processor takes longer than all the arithmetic of a fragment.
constexpr std::uint64_t mask(bool holds) { return std::uint64_t{0} - (holds ? 1 : 0); }

// What evicting a window loses.
struct Loss {
  std::uint64_t hinted = 0;    // bytes over 1 + distance, in units of 1 / scale
  std::uint64_t unhinted = 0;  // bytes
  std::uint64_t window = 0;    // bytes
  std::uint64_t consumed = 0;  // bytes

  auto operator<=>(const Loss&) const = default;
};

// Windows are compared while their sums slide, so these must come out the same whatever was in them
// before: the quotients are rounded to whole units, as small as the whole buffer's sum lets them
// be.
class Losses {
 public:
  Losses(std::span<const Fragment> fragments, std::span<const Score> scores)
      : fragments_(fragments), scores_(scores) {
    const std::uint64_t bytes =
        fragments.back().offset - fragments.front().offset + fragments.back().bytes;
    constexpr int kBits = 62;  // of the sum; the 63rd is for quotients that are rounded up to 1
    int exponent = 0;
    std::frexp(static_cast<double>(bytes), &exponent);
    scale_ = std::ldexp(1.0, kBits - exponent);
  }

  // Of one fragment, the window's bytes left out.
  Loss at(std::size_t i) const {
    const Fragment& fragment = fragments_[i];
    const Score& score = scores_[i];
    const bool held = fragment.step != kGap;
    const bool live = held && !score.consumed;
    const bool hinted = live && score.distance != kUnhinted;
    // Signed numbers, since processors convert them in one instruction.
    constexpr std::uint64_t kFar = std::uint64_t{1} << 62;
    const auto distance = static_cast<std::int64_t>(std::min(score.distance, kFar));
    const double units =
        static_cast<double>(fragment.bytes) * scale_ / (1 + static_cast<double>(distance));
    const auto whole = static_cast<std::uint64_t>(static_cast<std::int64_t>(units));
    return {.hinted = mask(hinted) & std::max<std::uint64_t>(whole, 1),  // none is worth nothing
            .unhinted = mask(live && !hinted) & fragment.bytes,
            .window = 0,
            .consumed = mask(held && score.consumed) & fragment.bytes};
  }

 private:
  std::span<const Fragment> fragments_;
  std::span<const Score> scores_;
  double scale_;
};

// Both searches slide over the fragments and look, for each as the last of a window, at the
// shortest window that is large enough. A fragment that no better window than the best so far can
// have ends all windows before it, as does one that can never be evicted.

// The least wait of all windows; kNever if there are none.
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

// The window whose loss is least, the first of equal ones, of fragments that can be evicted within
// `limit` seconds.
std::optional<Window> least_loss(std::span<const Fragment> fragments, std::span<const Score> scores,
                                 std::uint64_t bytes, double limit) {
  const Losses losses(fragments, scores);
  std::optional<Window> best;
  Loss least{kMost, kMost, kMost, kMost};
  Loss loss;  // of the window [first, i]
  std::size_t first = 0;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    const std::uint64_t end = fragments[i].offset + fragments[i].bytes;
    const double wait = scores[i].wait;
    const bool in_time = wait >= 0 && wait <= limit;  // NaN is not
    const Loss more = in_time ? losses.at(i) : Loss{};
    if (!in_time || more.hinted > least.hinted) {
      loss = {};
      first = i + 1;
      continue;
    }
    loss.hinted += more.hinted;
    loss.unhinted += more.unhinted;
    loss.consumed += more.consumed;
    if (end - fragments[first].offset < bytes) continue;
    for (; first < i && end - fragments[first + 1].offset >= bytes; ++first) {
      const Loss less = losses.at(first);
      loss.hinted -= less.hinted;
      loss.unhinted -= less.unhinted;
      loss.consumed -= less.consumed;
    }
    loss.window = end - fragments[first].offset;
    if (loss < least) {
      least = loss;
      best = {first, i + 1, limit, Rest::behind};
    }
  }
  return best;
}

// What is lost with the fragment beside a window: the greater, the less likely it is to go next.
std::pair<int, std::uint64_t> worth(std::span<const Fragment> fragments,
                                    std::span<const Score> scores, std::size_t i) {
  if (i >= fragments.size()) return {4, 0};  // the buffer's end
  if (fragments[i].step == kGap) return {0, 0};
  if (!(scores[i].wait >= 0 && scores[i].wait < kNever)) return {4, 0};
  if (scores[i].consumed) return {1, 0};
  if (scores[i].distance == kUnhinted) return {2, 0};
  return {3, ~scores[i].distance};
}

}  // namespace

std::optional<Window> choose_window_now(std::span<const Fragment> fragments,
                                        std::span<const Score> scores, std::uint64_t bytes) {
  if (fragments.empty()) return std::nullopt;
  return least_loss(fragments, scores, bytes, 0);
}

Rest choose_rest(std::span<const Fragment> fragments, std::span<const Score> scores,
                 const Window& window) {
  const std::size_t before = window.first - 1;  // no index if the window is the buffer's first
  const bool less = worth(fragments, scores, before) < worth(fragments, scores, window.last);
  return less ? Rest::before : Rest::behind;
}

std::optional<Window> choose_scored_window(std::span<const Fragment> fragments,
                                           std::span<const Score> scores, std::uint64_t bytes) {
  if (fragments.empty()) return std::nullopt;
  // Mostly there is a window that need not wait. Where there is none, all that can be evicted
  // within the least wait are equal in that, and the loss decides.
  auto best = least_loss(fragments, scores, bytes, 0);
  if (!best) {
    const double wait = least_wait(fragments, scores, bytes);
    if (wait == kNever) return std::nullopt;
    best = least_loss(fragments, scores, bytes, wait);
  }
  best->rest = choose_rest(fragments, scores, *best);
  return best;
}

}  // namespace holdfast::history::detail

// The search of eviction.hpp for the window that loses least, over scores that are worked out on
// the way: those of a full tier would not fit the processor's first cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "history/eviction_score.hpp"

namespace holdfast::history::detail {

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
  explicit Losses(std::span<const Fragment> fragments) {
    const std::uint64_t bytes =
        fragments.back().offset - fragments.front().offset + fragments.back().bytes;
    constexpr int kBits = 62;  // of the sum; the 63rd is for quotients that are rounded up to 1
    int exponent = 0;
    std::frexp(static_cast<double>(bytes), &exponent);
    scale_ = std::ldexp(1.0, kBits - exponent);
    half_scale_ = 2 * scale_;
  }

  // Of one fragment, the window's bytes left out.
  Loss of(const Fragment& fragment, const Score& score) const {
    const bool held = fragment.step != kGap;
    const bool live = held && !score.consumed;
    const bool hinted = live && score.distance != kUnhinted;
    const double units = static_cast<double>(fragment.bytes) * scale_ / divisor(score);
    const auto whole = static_cast<std::uint64_t>(static_cast<std::int64_t>(units));
    return {.hinted = mask(hinted) & std::max<std::uint64_t>(whole, 1),  // none is worth nothing
            .unhinted = mask(live && !hinted) & fragment.bytes,
            .window = 0,
            .consumed = mask(held && score.consumed) & fragment.bytes};
  }

  // Whether the fragment alone loses more than `least` does, before windows are compared by their
  // bytes. May say no where it does; it saves most fragments their division.
  void set_least(const Loss& least) {
    // So much more that no rounding, here or in the quotient, makes up for it.
    most_hinted_ = static_cast<double>(least.hinted) * (1 + 1e-12) + 2;
    most_unhinted_ = least.hinted == 0 ? least.unhinted : std::numeric_limits<std::uint64_t>::max();
  }
  bool is_more(const Fragment& fragment, const Score& score) const {
    const bool live = fragment.step != kGap && !score.consumed;
    const bool hinted = score.distance != kUnhinted;
    if (!live) return false;
    if (!hinted) return fragment.bytes > most_unhinted_;
    const auto half = static_cast<double>(static_cast<std::int64_t>(fragment.bytes / 2));
    return half * half_scale_ > most_hinted_ * divisor(score);
  }

 private:
  static double divisor(const Score& score) {
    // Signed numbers, since processors convert them in one instruction.
    constexpr std::uint64_t kFar = std::uint64_t{1} << 62;
    return 1 + static_cast<double>(static_cast<std::int64_t>(std::min(score.distance, kFar)));
  }

  double scale_, half_scale_;
  double most_hinted_ = std::numeric_limits<double>::infinity();
  std::uint64_t most_unhinted_ = std::numeric_limits<std::uint64_t>::max();
};

// The window whose loss is least, the first of equal ones, of fragments that can be evicted within
// `limit` seconds. Slides over the fragments and looks, for each as the last of a window, at the
// shortest window that is large enough. A fragment that no better window than the best so far can
// have ends all windows before it, as does one that is not evicted in time. score_at(i) may be
// asked twice, and is the same then; of a gap it says nothing but a wait of 0.
template <class ScoreAt>
std::optional<Window> least_loss(std::span<const Fragment> fragments, const ScoreAt& score_at,
                                 std::uint64_t bytes, double limit) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  if (fragments.empty()) return std::nullopt;
  Losses losses(fragments);
  std::optional<Window> best;
  Loss least{kMost, kMost, kMost, kMost};
  Loss loss;  // of the window [first, i]
  std::size_t first = 0;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    const Score& score = score_at(i);
    const bool in_time = score.wait >= 0 && score.wait <= limit;  // NaN is not
    if (!in_time || losses.is_more(fragments[i], score)) {
      loss = {};
      first = i + 1;
      continue;
    }
    const Loss more = losses.of(fragments[i], score);
    loss.hinted += more.hinted;
    loss.unhinted += more.unhinted;
    loss.consumed += more.consumed;
    const std::uint64_t end = fragments[i].offset + fragments[i].bytes;
    if (end - fragments[first].offset < bytes) continue;
    for (; first < i && end - fragments[first + 1].offset >= bytes; ++first) {
      const Loss less = losses.of(fragments[first], score_at(first));
      loss.hinted -= less.hinted;
      loss.unhinted -= less.unhinted;
      loss.consumed -= less.consumed;
    }
    loss.window = end - fragments[first].offset;
    if (loss < least) {
      least = loss;
      losses.set_least(least);
      best = {first, i + 1, limit, Rest::behind};
    }
  }
  return best;
}

// What is lost with the fragment beside a window: the greater, the less likely it is to go next.
template <class ScoreAt>
std::pair<int, std::uint64_t> worth(std::span<const Fragment> fragments, const ScoreAt& score_at,
                                    std::size_t i) {
  if (i >= fragments.size()) return {4, 0};  // the buffer's end
  if (fragments[i].step == kGap) return {0, 0};
  const Score score = score_at(i);
  if (!(score.wait >= 0 && score.wait < std::numeric_limits<double>::infinity())) return {4, 0};
  if (score.consumed) return {1, 0};
  if (score.distance == kUnhinted) return {2, 0};
  return {3, ~score.distance};
}

// The side for what is left of a window, by its neighbours.
template <class ScoreAt>
Rest choose_rest(std::span<const Fragment> fragments, const ScoreAt& score_at,
                 const Window& window) {
  const std::size_t before = window.first - 1;  // no index if the window is the buffer's first
  const bool less = worth(fragments, score_at, before) < worth(fragments, score_at, window.last);
  return less ? Rest::before : Rest::behind;
}

}  // namespace holdfast::history::detail

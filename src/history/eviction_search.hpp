// The search of eviction.hpp for the window that loses least, over scores that are worked out on
// the way: those of a full tier would not fit the processor's first cache.
#pragma once

#include <algorithm>
#include <bit>
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
constexpr bool both(bool one, bool other) { return (int{one} & int{other}) != 0; }
constexpr bool either(bool one, bool other) { return (int{one} | int{other}) != 0; }

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

// What a search has found so far.
struct Best {
  static constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  std::size_t first = 0, last = 0;  // equal: nothing
  Loss loss{kMost, kMost, kMost, kMost};
};

// Slides over the fragments [begin, end) and looks, for each as the last of a window, at the
// shortest window that is large enough. A fragment that no better window than the best so far can
// have ends all windows before it, as does one that is not evicted within `limit` seconds.
template <class ScoreAt>
[[gnu::always_inline]] inline Best slide(std::span<const Fragment> fragments, std::size_t begin,
                                         std::size_t end, ScoreAt score_at, std::uint64_t bytes,
                                         double limit, Losses losses, Best best) {
  if (best.last > 0) losses.set_least(best.loss);
  Loss loss;  // of the window [first, i]
  std::size_t first = begin;
  for (std::size_t i = begin; i < end; ++i) {
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
    const std::uint64_t behind = fragments[i].offset + fragments[i].bytes;
    if (behind - fragments[first].offset < bytes) continue;
    for (; first < i && behind - fragments[first + 1].offset >= bytes; ++first) {
      const Loss less = losses.of(fragments[first], score_at(first));
      loss.hinted -= less.hinted;
      loss.unhinted -= less.unhinted;
      loss.consumed -= less.consumed;
    }
    loss.window = behind - fragments[first].offset;
    if (loss < best.loss) {
      best = {first, i + 1, loss};
      losses.set_least(loss);
    }
  }
  return best;
}

// body(begin, end) for free fragments, as many as there are in a row, if they have the bytes.
// Branches where a row begins or ends, and nowhere else.
template <class FreeAt, class Body>
void for_each_free_row(std::span<const Fragment> fragments, FreeAt free_at, std::uint64_t bytes,
                       const Body& body) {
  constexpr std::size_t kBlock = 64;
  const std::size_t count = fragments.size();
  bool free = false;
  std::size_t begin = 0;  // of the row, if `free`
  const auto turn = [&](std::size_t i) {
    const auto have = [&] {
      return fragments[i - 1].offset + fragments[i - 1].bytes - fragments[begin].offset;
    };
    if (free && have() >= bytes) body(begin, i);
    free = !free;
    begin = i;
  };
  for (std::size_t block = 0; block < count; block += kBlock) {
    const std::size_t end = std::min(block + kBlock, count);
    std::uint64_t bits = 0;  // of the block, which are free
    for (std::size_t i = block; i < end; ++i) {
      bits |= static_cast<std::uint64_t>(free_at(i)) << (i - block);
    }
    std::uint64_t turns = bits ^ (bits << 1 | static_cast<std::uint64_t>(free));
    for (; turns != 0; turns &= turns - 1) {
      turn(block + static_cast<std::size_t>(std::countr_zero(turns)));
    }
  }
  if (free) turn(count);
}

// Whether there may well be a window of free fragments: by a sample, as if what is consumed were
// strewn over the table. It decides how long the search takes, not what it finds.
template <class FreeAt>
bool expects_free_window(std::span<const Fragment> fragments, FreeAt free_at, std::uint64_t bytes) {
  constexpr std::size_t kFew = 64, kStride = 17;
  if (fragments.size() <= kFew) return false;  // there is nothing to be saved
  std::size_t held = 0, consumed = 0;
  for (std::size_t i = 0; i < fragments.size(); i += kStride) {
    const bool holds = fragments[i].step != kGap;
    held += static_cast<std::size_t>(holds);
    consumed += static_cast<std::size_t>(both(holds, free_at(i)));
  }
  const auto count = static_cast<double>(fragments.size());
  const Fragment& last = fragments.back();
  const double neighbours =
      static_cast<double>(bytes) * count / static_cast<double>(last.offset + last.bytes);
  const double share = static_cast<double>(consumed) / static_cast<double>(held + 1);
  constexpr double kEnough = 8;
  return count * std::pow(share, neighbours) >= kEnough;
}

// The window whose loss is least, the first of equal ones, of fragments that can be evicted within
// `limit` seconds. score_at(i) may be asked twice, and is the same then; of a gap it says nothing
// but a wait of 0. free_at(i): a gap, or consumed and evicted in time.
template <class ScoreAt, class FreeAt>
std::optional<Window> least_loss(std::span<const Fragment> fragments, const ScoreAt& score_at,
                                 const FreeAt& free_at, std::uint64_t bytes, double limit) {
  if (fragments.empty()) return std::nullopt;
  const Losses losses(fragments);
  Best best;
  // A window of free ones loses less than any other, and to look for these is quicker than to find
  // out what all the others are worth.
  if (expects_free_window(fragments, free_at, bytes)) {
    for_each_free_row(fragments, free_at, bytes, [&](std::size_t begin, std::size_t end) {
      best = slide(fragments, begin, end, score_at, bytes, limit, losses, best);
    });
  }
  if (best.last == 0) {
    best = slide(fragments, 0, fragments.size(), score_at, bytes, limit, losses, best);
  }
  if (best.last == 0) return std::nullopt;
  return Window{best.first, best.last, limit, Rest::behind};
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

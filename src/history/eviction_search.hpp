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
  void set_least(const Loss& least, std::uint64_t) {
    // So much more that no rounding, here or in the quotient, makes up for it.
    const double most_hinted = static_cast<double>(least.hinted) * (1 + 1e-12) + 2;
    bytes_by_distance_ = 2 * most_hinted / scale_;
  }
  bool is_more(const Fragment& fragment, const Score& score) const {
    // Half of the distance, rounded down: so it is a signed number, as processors convert in one
    // instruction, and that of kUnhinted, which what was consumed has too, is beyond all.
    const auto half = static_cast<double>(static_cast<std::int64_t>(score.distance / 2));
    const auto bytes = static_cast<double>(static_cast<std::int64_t>(fragment.bytes));
    return bytes > bytes_by_distance_ * (half + 1);
  }

 private:
  static double divisor(const Score& score) {
    // Signed numbers, since processors convert them in one instruction.
    constexpr std::uint64_t kFar = std::uint64_t{1} << 62;
    return 1 + static_cast<double>(static_cast<std::int64_t>(std::min(score.distance, kFar)));
  }

  double scale_;
  double bytes_by_distance_ = std::numeric_limits<double>::infinity();
};

// The same once a window is known that no hint names anything of: what a hint names is more, and
// nothing is divided.
class UnhintedLosses {
 public:
  Loss of(const Fragment& fragment, const Score& score) const {
    const bool held = fragment.step != kGap;
    return {.unhinted = mask(both(held, !score.consumed)) & fragment.bytes,
            .consumed = mask(both(held, score.consumed)) & fragment.bytes};
  }
  // Where a window of `bytes` fits exactly nothing is better that loses as much: of one size, each.
  void set_least(const Loss& least, std::uint64_t bytes) {
    const bool fits = least.unhinted > 0 && least.window == bytes && least.consumed == 0;
    most_ = least.unhinted - (fits ? 1 : 0);
  }
  bool is_more(const Fragment& fragment, const Score& score) const {
    const bool more = either(score.distance != kUnhinted, fragment.bytes > most_);
    return both(!score.consumed, more);
  }

 private:
  std::uint64_t most_ = std::numeric_limits<std::uint64_t>::max();
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
template <class ScoreAt, class Losses>
[[gnu::always_inline]] inline Best slide(std::span<const Fragment> fragments, std::size_t begin,
                                         std::size_t end, ScoreAt score_at, std::uint64_t bytes,
                                         double limit, Losses losses, Best best) {
  if (best.last > 0) losses.set_least(best.loss, bytes);
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
      losses.set_least(loss, bytes);
    }
  }
  return best;
}

// Finds rows of neighbours, in blocks of as many fragments as a word has bits. Branches where a row
// begins or ends, and nowhere else.
class Rows {
 public:
  static constexpr std::size_t kBlock = 64;

  Rows(std::span<const Fragment> fragments, std::uint64_t bytes)
      : fragments_(fragments), bytes_(bytes) {}

  // may(i), in order and once: whether fragment i of [block, end) can be in a row. body(begin, end)
  // for the rows that end here, if they have the bytes. REQUIRES: the blocks come in order, all but
  // the last of kBlock.
  template <class May, class Body>
  void add(std::size_t block, std::size_t end, const May& may, const Body& body) {
    std::uint64_t bits = 0;
    for (std::size_t i = block; i < end; ++i) {
      bits = bits >> 1 | static_cast<std::uint64_t>(may(i)) << (kBlock - 1);
    }
    bits >>= kBlock - (end - block);
    std::uint64_t turns = bits ^ (bits << 1 | static_cast<std::uint64_t>(open_));
    for (; turns != 0; turns &= turns - 1) {
      turn(block + static_cast<std::size_t>(std::countr_zero(turns)), body);
    }
    if (open_ && end == fragments_.size()) turn(end, body);
  }
  // body(begin, end) for a row that goes on behind `end`, if it has the bytes already.
  template <class Body>
  void look(std::size_t end, const Body& body) const {
    if (!open_) return;
    const Fragment& last = fragments_[end - 1];
    if (last.offset + last.bytes - fragments_[begin_].offset >= bytes_) body(begin_, end);
  }

 private:
  template <class Body>
  void turn(std::size_t i, const Body& body) {
    look(i, body);
    open_ = !open_;
    begin_ = i;
  }

  const std::span<const Fragment> fragments_;
  const std::uint64_t bytes_;
  bool open_ = false;
  std::size_t begin_ = 0;  // of the row, if it is open
};

// The best window of fragments that are free: gaps, or consumed and evicted now. It loses less than
// any other, and to look for it is quicker than to find out what the others are worth.
// may_be_free(i): not of one that is not; score_at(i): asked of those, and says it.
template <class MayBeFree, class ScoreAt>
Best least_room(std::span<const Fragment> fragments, const MayBeFree& may_be_free,
                const ScoreAt& score_at, std::uint64_t bytes) {
  Best best;
  UnhintedLosses losses;
  losses.set_least({}, bytes);  // what is not free is more
  Rows rows(fragments, bytes);
  for (std::size_t block = 0; block < fragments.size(); block += Rows::kBlock) {
    const std::size_t end = std::min(block + Rows::kBlock, fragments.size());
    rows.add(block, end, may_be_free, [&](std::size_t first, std::size_t last) {
      best = slide(fragments, first, last, score_at, bytes, 0, losses, best);
    });
  }
  return best;
}

// What to compare windows with: of a few fragments the best window itself; else one of some that
// are strewn over the table, since losses may rise or fall along it, made a little worse, so that
// it is found again in its turn. score_at(i) may be asked often, and is the same then; of a gap and
// of what was consumed it has no distance.
template <class ScoreAt>
Best first_window(std::span<const Fragment> fragments, const ScoreAt& score_at, std::uint64_t bytes,
                  double limit) {
  if (fragments.empty()) return {};
  constexpr std::size_t kSamples = 8, kOfEach = Rows::kBlock / kSamples;
  const Losses losses(fragments);
  Best best;
  const auto look = [&](std::size_t first, std::size_t count) {
    best = slide(fragments, first, first + count, score_at, bytes, limit, losses, best);
  };
  if (fragments.size() <= Rows::kBlock) {
    look(0, fragments.size());
    return best;
  }
  for (std::size_t i = 0; i < kSamples; ++i) look(i * (fragments.size() / kSamples), kOfEach);
  if (best.last == 0) look(0, Rows::kBlock);
  best.loss.consumed += best.last > 0 ? 1 : 0;
  return best;
}

// The window whose loss is least, the first of equal ones, of fragments that can be evicted within
// `limit` seconds. `best`: first_window().
//
// A fragment that loses more than the best window so far is in no better one, and soon that is
// nearly each: what is left is looked at row by row, if the row is large enough.
template <class ScoreAt>
Best least_loss(std::span<const Fragment> fragments, const ScoreAt& score_at, std::uint64_t bytes,
                double limit, Best best) {
  if (fragments.size() <= Rows::kBlock) return best;
  const Losses any(fragments);
  Rows rows(fragments, bytes);
  const auto look_through = [&](std::size_t block, std::size_t end, auto losses) {
    if (best.last > 0) losses.set_least(best.loss, bytes);
    const auto may = [&](std::size_t i) {
      const Score& score = score_at(i);
      const bool in_time = both(score.wait >= 0, score.wait <= limit);  // NaN is not
      return both(in_time, !losses.is_more(fragments[i], score));
    };
    const auto look = [&](std::size_t first, std::size_t last) {
      best = slide(fragments, first, last, score_at, bytes, limit, losses, best);
    };
    rows.add(block, end, may, look);
    if (best.last == 0 || block == 0) rows.look(end, look);  // the sooner a better one is known
  };
  for (std::size_t block = 0; block < fragments.size(); block += Rows::kBlock) {
    const std::size_t end = std::min(block + Rows::kBlock, fragments.size());
    if (best.loss.hinted == 0) {
      look_through(block, end, UnhintedLosses());
    } else {
      look_through(block, end, any);
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

// With the side for what is left, if anything is, by the neighbours.
template <class ScoreAt>
Window window_of(std::span<const Fragment> fragments, const ScoreAt& score_at, const Best& best,
                 std::uint64_t bytes, double wait) {
  if (best.loss.window == bytes) return {best.first, best.last, wait};
  const std::size_t before = best.first - 1;  // no index if the window is the buffer's first
  const bool less = worth(fragments, score_at, before) < worth(fragments, score_at, best.last);
  return {best.first, best.last, wait, less ? Rest::before : Rest::behind};
}

}  // namespace holdfast::history::detail

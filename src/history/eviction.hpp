// Which neighbouring fragments of a tier to evict for a new checkpoint (gap-aware eviction).
//
// Interface: choose_window() looks at every run of fragments that is large enough and that no
// smaller run inside it makes needless, and returns the best. The caller evicts and place()s at
// once if its wait is 0. If not it waits, lets the table change, and asks again: no index outlives
// a wait. Sizes in bytes, times in seconds.
//
// The better of two windows, by the first of these that differs:
// 1. `wait`: the largest of its fragments', since they become evictable side by side.
// 2. What the restore order will fetch again: each hinted checkpoint's bytes over 1 + distance. A
//    sum that weighs the near restores most, and the bytes that room is bought with.
// 3. Bytes of checkpoints that no hint names and that were not consumed.
// 4. Bytes of the window: what a consumed checkpoint or a gap loses of its room, best fit.
// 5. Bytes of consumed checkpoints, then the lower offset.
//
// Invariants: the sums are whole numbers, so that a fragment which leaves a window leaves nothing
// behind; a fragment that can never be evicted is in no window.
//
// Source: SCORE (HPDC '23), sections 4.1.6 and 4.2. docs/history-eviction.md: where Algorithm 1
// would go wrong as printed, what is done instead, and how far from the best choice this is.
//
// Tested: against a comparison of all windows one by one, and against the best of all placements
// (tests/history/eviction_test.cpp, eviction_optimum_test.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "history/allocation_table.hpp"
#include "history/eviction_score.hpp"
#include "history/eviction_search.hpp"

namespace holdfast::history {

namespace detail {

// choose_window() with a score for each fragment; that of a gap says no more than a wait of 0.
// `best`: what was found of windows that lose nothing but room.
std::optional<Window> choose_scored_window(std::span<const Fragment> fragments,
                                           std::span<const Score> scores, std::uint64_t bytes,
                                           Best best);

}  // namespace detail

// The best window of `bytes` at least, never an empty one; none if there is no room that can ever
// be had. score_of(fragment) is asked once for every fragment that holds a checkpoint, in order.
// REQUIRES: the fragments are a table's. O(N). Throws bad_alloc, and what score_of throws.
// `memory`: for the scores, so that it can be used again.
template <class ScoreOf>
std::optional<Window> choose_window(std::span<const Fragment> fragments, std::uint64_t bytes,
                                    ScoreOf&& score_of, std::vector<Score>& memory) {
  if (memory.size() < fragments.size()) memory.resize(2 * fragments.size());
  const std::span<Score> scores = std::span(memory).first(fragments.size());
  // Windows that lose nothing but room lose less than any other, and show while scores are asked.
  const auto is_free = [&](std::size_t i) {
    if (fragments[i].step == kGap) {
      scores[i] = {0, kUnhinted, true};
      return true;
    }
    const Score score = score_of(fragments[i]);
    // One by one: copied as a whole, what was just written in parts is waited for.
    scores[i].wait = score.wait;
    scores[i].distance = score.distance | detail::mask(score.consumed);  // kUnhinted
    scores[i].consumed = score.consumed;
    return detail::both(score.consumed, score.wait == 0);
  };
  const auto score_at = [scores](std::size_t i) -> const Score& { return scores[i]; };
  const detail::Best best = detail::least_room(fragments, is_free, score_at, bytes);
  return detail::choose_scored_window(fragments, scores, bytes, best);
}

template <class ScoreOf>
std::optional<Window> choose_window(std::span<const Fragment> fragments, std::uint64_t bytes,
                                    ScoreOf&& score_of) {
  std::vector<Score> memory;
  return choose_window(fragments, bytes, std::forward<ScoreOf>(score_of), memory);
}

// The same choice where what decides most is quickly known. now(fragment) is its score if its wait
// is 0, and else one that waits for ever; it may be asked often, and has no distance where it was
// consumed. may_be_free(fragment): not where that score is of none that was consumed, as far as
// that is quickly said; asked of gaps, too, where it does not matter, and best without a branch.
// score_of() is asked of the window's neighbours, and of all only if no window can be had at once.
// `gaps`: bytes of all gaps, which decide how long the search takes, not what it finds.
template <class MayBeFree, class Now, class ScoreOf>
std::optional<Window> choose_window(std::span<const Fragment> fragments, std::uint64_t bytes,
                                    std::uint64_t gaps, MayBeFree&& may_be_free, Now&& now,
                                    ScoreOf&& score_of, std::vector<Score>& memory) {
  const auto now_at = [&](std::size_t i) {
    return fragments[i].step == kGap ? Score{0, kUnhinted, true} : now(fragments[i]);
  };
  const auto may_be_free_at = [&](std::size_t i) {
    return detail::either(fragments[i].step == kGap, may_be_free(fragments[i]));
  };
  // Windows that lose nothing but room are looked for apart where there may be a gap that suffices,
  // or where other windows take a division for each fragment.
  detail::Best best, first;
  const bool may_fit = gaps >= bytes;
  if (!may_fit) first = detail::first_window(fragments, now_at, bytes, 0);
  if (first.loss.hinted > 0) best = detail::least_room(fragments, may_be_free_at, now_at, bytes);
  if (best.last == 0 && may_fit) first = detail::first_window(fragments, now_at, bytes, 0);
  if (best.last == 0) best = detail::least_loss(fragments, now_at, bytes, 0, first);
  if (best.last == 0) {
    return choose_window(fragments, bytes, std::forward<ScoreOf>(score_of), memory);
  }
  const auto score_at = [&](std::size_t i) { return score_of(fragments[i]); };
  return detail::window_of(fragments, score_at, best, bytes, 0);
}

}  // namespace holdfast::history

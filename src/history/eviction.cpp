#include "history/eviction.hpp"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>

namespace holdfast::history::detail {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

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
    Loss loss;
    if (fragment.step == kGap) return loss;
    if (score.consumed) {
      loss.consumed = fragment.bytes;
    } else if (score.distance == kUnhinted) {
      loss.unhinted = fragment.bytes;
    } else {
      const double units =
          static_cast<double>(fragment.bytes) * scale_ / (1 + static_cast<double>(score.distance));
      // By a signed number, since processors convert to that in one instruction.
      const auto whole = static_cast<std::uint64_t>(static_cast<std::int64_t>(units));
      loss.hinted = std::max<std::uint64_t>(whole, 1);  // none is worth nothing
    }
    return loss;
  }

 private:
  std::span<const Fragment> fragments_;
  std::span<const Score> scores_;
  double scale_;
};

// Slides over the windows of `bytes` at least from which no fragment can be left out at the front,
// one for each last fragment, of fragments that can be evicted within `limit` seconds. Calls
// user.enter(i) and user.leave(i) as fragments come and go, user.clear() when all of them do, and
// user.visit(first, last) for each window.
template <class User>
void slide(std::span<const Fragment> fragments, std::span<const Score> scores, std::uint64_t bytes,
           double limit, User& user) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    if (const double wait = scores[i].wait; !(wait >= 0 && wait <= limit)) {  // NaN, too
      first = i + 1;
      user.clear();
      continue;
    }
    user.enter(i);
    const std::uint64_t end = fragments[i].offset + fragments[i].bytes;
    for (; first < i && end - fragments[first + 1].offset >= bytes; ++first) user.leave(first);
    if (end - fragments[first].offset >= bytes) user.visit(first, i + 1);
  }
}

// The least wait of all windows. The largest wait of a window stands at the front of a queue of
// those fragments that no later one outwaits.
class LeastWait {
 public:
  explicit LeastWait(std::span<const Score> scores) : scores_(scores) {
    queue_.reserve(scores.size());
  }

  void enter(std::size_t i) {
    while (queue_.size() > front_ && scores_[queue_.back()].wait <= scores_[i].wait) {
      queue_.pop_back();
    }
    queue_.push_back(i);
  }
  void leave(std::size_t i) {
    if (queue_[front_] == i) ++front_;
  }
  void clear() {
    queue_.clear();
    front_ = 0;
  }
  void visit(std::size_t, std::size_t) { least_ = std::min(least_, scores_[queue_[front_]].wait); }

  double least() const { return least_; }

 private:
  std::span<const Score> scores_;
  std::vector<std::size_t> queue_;
  std::size_t front_ = 0;
  double least_ = kNever;
};

// The window whose loss is least, the first of equal ones.
class LeastLoss {
 public:
  LeastLoss(std::span<const Fragment> fragments, const Losses& losses)
      : fragments_(fragments), losses_(losses) {}

  void enter(std::size_t i) {
    const Loss of = losses_.at(i);
    loss_.hinted += of.hinted;
    loss_.unhinted += of.unhinted;
    loss_.consumed += of.consumed;
  }
  void leave(std::size_t i) {
    const Loss of = losses_.at(i);
    loss_.hinted -= of.hinted;
    loss_.unhinted -= of.unhinted;
    loss_.consumed -= of.consumed;
  }
  void clear() { loss_ = {}; }
  void visit(std::size_t first, std::size_t last) {
    if (best_ && loss_.hinted > least_.hinted) return;
    const Fragment& back = fragments_[last - 1];
    loss_.window = back.offset + back.bytes - fragments_[first].offset;
    if (best_ && !(loss_ < least_)) return;
    least_ = loss_;
    best_ = {first, last, 0};
  }

  std::optional<Window> best() const { return best_; }

 private:
  std::span<const Fragment> fragments_;
  const Losses& losses_;
  Loss loss_;
  Loss least_;
  std::optional<Window> best_;
};

std::optional<Window> least_loss(std::span<const Fragment> fragments, std::span<const Score> scores,
                                 std::uint64_t bytes, double limit) {
  const Losses losses(fragments, scores);
  LeastLoss user(fragments, losses);
  slide(fragments, scores, bytes, limit, user);
  std::optional<Window> best = user.best();
  if (best) best->wait = limit;
  return best;
}

}  // namespace

std::optional<Window> choose_scored_window(std::span<const Fragment> fragments,
                                           std::span<const Score> scores, std::uint64_t bytes) {
  if (fragments.empty()) return std::nullopt;
  // Mostly there is a window that need not wait. Where there is none, all that can be evicted
  // within the least wait are equal in that, and the loss decides.
  if (const auto now = least_loss(fragments, scores, bytes, 0)) return now;
  LeastWait waits(scores);
  slide(fragments, scores, bytes, std::numeric_limits<double>::max(), waits);
  if (waits.least() == kNever) return std::nullopt;
  return least_loss(fragments, scores, bytes, waits.least());
}

}  // namespace holdfast::history::detail

// Whether some order of operations, in which each stands between its call and its return, explains
// what they were answered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace holdfast::test {

// Wing and Gong's search, with what was tried already left out. A call has the moments
// `step.begun` and `step.ended`, and `behind`, the number of one that comes before it, or -1;
// answers(call, state) says whether its answer is what `state` gives, and changes that.
template <class Called, class State>
class Explanation {
 public:
  explicit Explanation(const std::vector<Called>& calls) : calls_(calls) {}

  bool from(std::uint64_t done, const State& state) {
    if (done == (std::uint64_t{1} << calls_.size()) - 1) return true;
    if (!tried_.insert({done, state}).second) return false;
    unsigned long long first_end = ~0ull;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if ((done >> i & 1) == 0) first_end = std::min(first_end, calls_[i].step.ended);
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if ((done >> i & 1) != 0 || calls_[i].step.begun > first_end) continue;
      if (calls_[i].behind >= 0 && (done >> calls_[i].behind & 1) == 0) continue;
      State next = state;
      if (answers(calls_[i], next) && from(done | std::uint64_t{1} << i, next)) return true;
    }
    return false;
  }

 private:
  const std::vector<Called>& calls_;
  std::set<std::pair<std::uint64_t, State>> tried_;
};

// REQUIRES: fewer than 64 calls.
template <class Called, class State>
bool is_explained(const std::vector<Called>& calls, const State& first) {
  return Explanation<Called, State>(calls).from(0, first);
}

}  // namespace holdfast::test

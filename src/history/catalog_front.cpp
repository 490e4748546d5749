// The front of the restore order, followed as hints and checkpoints come and go.
#include <iterator>

#include "history/catalog.hpp"

namespace holdfast::history {

// A checkpoint whose size is known from now on.
Catalog::Checkpoint& Catalog::learn(Step step, std::uint64_t bytes) {
  const auto [at, is_new] = checkpoints_.try_emplace(step);
  if (!is_new) return at->second;
  at->second.bytes = bytes;
  known_bytes_ += bytes;
  count_in_front(step, true);
  fit_front();
  return at->second;
}

void Catalog::forget(Step step) {
  count_in_front(step, false);
  known_bytes_ -= checkpoints_.at(step).bytes;
  checkpoints_.erase(step);
  fit_front();
}

// Its size counts, or does no longer, at all places that it has in the front.
void Catalog::count_in_front(Step step, bool counts) {
  const auto places = places_.find(step);
  if (places == places_.end()) return;
  const std::uint64_t bytes = checkpoints_.at(step).bytes;
  for (const std::uint64_t place : places->second) {
    if (place >= front_.end) break;
    front_.known += counts ? 1 : std::uint64_t{0} - 1;
    front_.known_bytes += counts ? bytes : std::uint64_t{0} - bytes;
  }
}

void Catalog::enter_front(Step step, bool enters) {
  front_.count += enters ? 1 : std::uint64_t{0} - 1;
  const auto found = checkpoints_.find(step);
  if (found == checkpoints_.end()) return;
  front_.known += enters ? 1 : std::uint64_t{0} - 1;
  front_.known_bytes += enters ? found->second.bytes : std::uint64_t{0} - found->second.bytes;
}

bool Catalog::front_fits() const {
  if (front_.count > Front::kMost) return false;
  const double mean = checkpoints_.empty()
                          ? static_cast<double>(front_.limit)
                          : static_cast<double>(known_bytes_) / double(checkpoints_.size());
  return static_cast<double>(front_.known_bytes) + double(front_.count - front_.known) * mean <=
         static_cast<double>(front_.limit);
}

void Catalog::fit_front() {
  if (front_.limit == 0) return;
  while (front_.count > 0 && !front_fits()) {
    const auto last = std::prev(hints_.lower_bound(front_.end));
    front_.end = last->first;
    enter_front(last->second, false);
  }
  for (auto next = hints_.lower_bound(front_.end); next != hints_.end(); ++next) {
    enter_front(next->second, true);
    if (!front_fits()) {
      enter_front(next->second, false);
      return;
    }
    front_.end = next->first + 1;
  }
}

}  // namespace holdfast::history

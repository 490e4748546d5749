#include "check/schedules.hpp"

#include <algorithm>
#include <optional>

#include "holdfast/check.hpp"

namespace holdfast::check {

namespace {

bool holds(const std::vector<std::uint32_t>& set, std::uint32_t actor) {
  return std::find(set.begin(), set.end(), actor) != set.end();
}

}  // namespace

void Schedules::begin() {
  named_ = false;
  depth_ = 0;
  replayed_ = nodes_.size();
  step_open_ = redundant_ = false;
  for (Clock& past : pasts_) past.clear();
}

void Schedules::begin_named(std::string_view name) {
  nodes_.clear();
  begin();
  named_ = true;
  wanted_ = name == "-" ? "" : name;
  wanted_at_ = 0;
  const auto is_digit = [](char c) { return c == kMore || kDigits.find(c) != kDigits.npos; };
  if (name.empty() || !std::all_of(wanted_.begin(), wanted_.end(), is_digit)) {
    throw OptionError(detail::concat("'", name,
                                     "' names no schedule: it is digits and letters, as a "
                                     "report has them, or -"));
  }
}

std::uint32_t Schedules::number_of(cpu::Actor actor) {
  return numbers_.try_emplace(actor, static_cast<std::uint32_t>(numbers_.size())).first->second;
}

Schedules::Clock& Schedules::past_of(std::uint32_t actor) {
  if (actor >= pasts_.size()) pasts_.resize(actor + 1);
  return pasts_[actor];
}

void Schedules::join(Clock& clock, const Clock& other) {
  if (other.size() > clock.size()) clock.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool Schedules::conflict(const Node& node, const Pending& step, bool writes) {
  const Pending& other = node.step();
  return (node.wrote || writes) && other.address < step.address + step.size &&
         step.address < other.address + other.size;
}

void Schedules::order(cpu::Actor before, cpu::Actor after) {
  finish_step();
  const std::uint32_t from = number_of(before);
  const std::uint32_t to = number_of(after);
  past_of(std::max(from, to));
  join(pasts_[to], pasts_[from]);
}

void Schedules::meet(std::span<const cpu::Actor> actors) {
  finish_step();
  Clock all;
  for (const cpu::Actor actor : actors) join(all, past_of(number_of(actor)));
  for (const cpu::Actor actor : actors) past_of(number_of(actor)) = all;
}

void Schedules::only_read() {
  if (depth_ != 0) nodes_[depth_ - 1].wrote = false;
}

void Schedules::fill(Node& node, std::span<const cpu::Step> steps) {
  node.steps.clear();
  for (const cpu::Step& step : steps) {
    node.steps.push_back({number_of(step.actor), step.blocked, step.writes,
                          reinterpret_cast<std::uintptr_t>(step.address), step.size, 1});
  }
}

bool Schedules::same(const Node& node, std::span<const cpu::Step> steps) {
  if (node.steps.size() != steps.size()) return false;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (node.steps[i].actor != number_of(steps[i].actor)) return false;
    if (node.steps[i].writes != steps[i].writes || node.steps[i].blocked != steps[i].blocked) {
      return false;
    }
  }
  return true;
}

std::uint32_t Schedules::column_of(std::uint32_t actor) {
  return columns_.try_emplace(actor, static_cast<std::uint32_t>(columns_.size())).first->second;
}

void Schedules::lost() {
  was_lost_ = true;
  throw Error(Errc::unsupported,
              detail::concat("the program did not do the same under the same schedule, at step ",
                             depth_, ": what it does must depend on persistent memory alone"));
}

std::size_t Schedules::choose(std::span<const cpu::Step> steps) {
  finish_step();
  if (depth_ < replayed_) {
    Node& node = nodes_[depth_];
    if (!same(node, steps)) lost();
    fill(node, steps);  // memory may lie elsewhere now
  } else {
    moving_ = 1;
    nodes_.emplace_back();
    moving_ = 0;
    fill(nodes_.back(), steps);
    inherit_sleep(nodes_.back());
    nodes_.back().chosen = pick(nodes_.back());
    if (!named_) nodes_.back().backtrack.push_back(nodes_.back().step().actor);
    if (reduction_ == Reduction::none) {
      for (const Pending& other : nodes_.back().steps) {
        if (!other.blocked && !holds(nodes_.back().backtrack, other.actor)) {
          nodes_.back().backtrack.push_back(other.actor);
        }
      }
    }
  }
  Node& node = nodes_[depth_++];
  node.wrote = node.step().writes;
  step_open_ = true;
  return node.chosen;
}

// Those that slept before the last step still sleep if it does not depend on them.
void Schedules::inherit_sleep(Node& node) {
  if (depth_ == 0 || reduction_ == Reduction::none) return;
  const Node& before = nodes_[depth_ - 1];
  for (const Sleeper& sleeper : before.slept) {
    if (sleeper.actor == before.step().actor) continue;
    for (const Pending& step : node.steps) {
      if (step.actor == sleeper.actor && !conflict(before, step, sleeper.wrote)) {
        node.slept.push_back(sleeper);
      }
    }
  }
}

// An actor that can go on and need not wait for others to be worth it.
std::size_t Schedules::pick(Node& node) {
  std::vector<std::size_t> able;
  for (std::size_t i = 0; i < node.steps.size(); ++i) {
    if (!node.steps[i].blocked) able.push_back(i);
  }
  if (named_) {
    if (able.size() == 1 || wanted_at_ >= wanted_.size()) return able.front();
    const std::size_t index = next_wanted();
    if (index >= able.size()) {
      was_lost_ = true;
      throw OptionError(detail::concat("schedule ", wanted_,
                                       " does not fit the program: at choice ", wanted_at_,
                                       " only ", able.size(), " threads can go on"));
    }
    return able[index];
  }
  for (const std::size_t i : able) {
    const auto sleeps = [&](const Sleeper& one) { return one.actor == node.steps[i].actor; };
    if (std::none_of(node.slept.begin(), node.slept.end(), sleeps)) return i;
  }
  redundant_ = true;  // the rest of this run is of no interest
  return able.front();
}

// The next choice of the name.
std::size_t Schedules::next_wanted() {
  std::size_t index = 0;
  for (; wanted_at_ < wanted_.size() && wanted_[wanted_at_] == kMore; ++wanted_at_) {
    index += kDigits.size();
  }
  return wanted_at_ == wanted_.size() ? index : index + kDigits.find(wanted_[wanted_at_++]);
}

// What the last step did is known now: its place among the others, and which of them it could
// change places with.
void Schedules::finish_step() {
  if (!step_open_) return;
  step_open_ = false;
  const std::size_t last = depth_ - 1;
  Node& node = nodes_[last];
  const std::uint32_t actor = node.step().actor;
  node.column = column_of(actor);
  Clock clock = past_of(actor);
  if (node.column >= clock.size()) clock.resize(node.column + 1);
  const bool fresh = last + 1 >= replayed_ && !redundant_ && !named_;
  for (std::size_t i = last; i-- > 0;) {
    const Node& other = nodes_[i];
    if (other.step().actor == actor || !conflict(other, node.step(), node.wrote)) continue;
    if (covers(clock, other)) continue;
    if (fresh && reduction_ != Reduction::none) reverse(i, node, clock);
    join(clock, other.clock);
  }
  node.turn = ++clock[node.column];
  node.clock = clock;
  past_of(actor) = std::move(clock);
}

// The steps at `index` and `last` are in a race: sees to it that an execution is tried in which
// what comes behind the first, and need not, comes in its place.
// `clock`: what comes before `last` without the step at `index`.
void Schedules::reverse(std::size_t index, const Node& last, const Clock& clock) {
  Node& from = nodes_[index];
  const std::uint32_t actor = last.step().actor;
  std::vector<std::size_t> firsts;      // the first step of each actor in what moves forward
  std::vector<std::uint32_t> initials;  // actors that may come first there
  const auto offer = [&](std::uint32_t who, const Clock& before) {
    for (const std::size_t first : firsts) {
      if (nodes_[first].step().actor == who) return false;
    }
    for (const std::size_t first : firsts) {
      if (covers(before, nodes_[first])) return true;
    }
    initials.push_back(who);
    return true;
  };
  for (std::size_t i = index + 1; i + 1 < depth_; ++i) {
    if (covers(nodes_[i].clock, from)) continue;
    if (offer(nodes_[i].step().actor, nodes_[i].clock)) firsts.push_back(i);
  }
  const bool is_next = offer(actor, clock);
  for (const Pending& step : from.steps) {
    // It waited for just that: the two cannot change places.
    if (is_next && step.actor == actor && step.blocked) return;
  }
  std::optional<std::uint32_t> choice;
  for (const std::uint32_t initial : initials) {
    if (holds(from.backtrack, initial)) return;
    for (const Pending& step : from.steps) {
      if (step.actor == initial && !step.blocked && (!choice || initial == actor)) {
        choice = initial;
      }
    }
  }
  if (choice) from.backtrack.push_back(*choice);
}

void Schedules::count_left() {
  std::vector<std::uint32_t> left(numbers_.size());
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    ++left[nodes_[i].step().actor];
    for (Pending& step : nodes_[i].steps) step.left = std::max(left[step.actor], 1u);
  }
  for (auto actor = static_cast<std::uint32_t>(meets_.size()); actor < numbers_.size(); ++actor) {
    meets_.push_back(actor);
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const std::uint32_t one = nodes_[i].step().actor;
    for (std::size_t j = 0; j < i; ++j) {
      const std::uint32_t other = circle_of(nodes_[j].step().actor);
      if (circle_of(one) == other || !conflict(nodes_[j], nodes_[i].step(), nodes_[i].wrote)) {
        continue;
      }
      meets_[circle_of(one)] = other;
    }
  }
}

std::uint32_t Schedules::circle_of(std::uint32_t actor) const {
  while (meets_[actor] != actor) actor = meets_[actor];
  return actor;
}

bool Schedules::end() {
  finish_step();
  if (named_) return false;
  if (redundant_) {
    ++wasted_;
  } else {
    ++made_;
  }
  while (nodes_.size() > depth_) nodes_.pop_back();  // the program ended before
  count_left();
  while (!nodes_.empty()) {
    Node& node = nodes_.back();
    node.slept.push_back({node.step().actor, node.wrote});
    for (const std::uint32_t actor : node.backtrack) {
      const auto sleeps = [&](const Sleeper& one) { return one.actor == actor; };
      if (std::any_of(node.slept.begin(), node.slept.end(), sleeps)) continue;
      const auto at = std::find_if(node.steps.begin(), node.steps.end(), [&](const Pending& step) {
        return step.actor == actor && !step.blocked;
      });
      node.chosen = static_cast<std::size_t>(at - node.steps.begin());
      return true;
    }
    nodes_.pop_back();
  }
  over_ = true;
  return false;
}

double Schedules::share() const {
  if (over_) return 1;
  double done = 0;
  double weight = 1;
  for (const Node& node : nodes_) {
    double all = 0, tried = 0, now = 0;
    for (const Pending& step : node.steps) {
      const bool slept = std::any_of(node.slept.begin(), node.slept.end(),
                                     [&](const Sleeper& one) { return one.actor == step.actor; });
      const bool wanted = holds(node.backtrack, step.actor);
      const bool may_be =
          !slept && !step.blocked && circle_of(step.actor) == circle_of(node.step().actor);
      if (!wanted && !may_be) continue;
      all += step.left;
      if (slept) tried += step.left;
      if (step.actor == node.step().actor) now = step.left;
    }
    done += weight * tried / all;
    weight *= now / all;
  }
  return done;
}

std::string Schedules::name() const {
  std::string result;
  spell([&](char c) { result += c; });
  return result;
}

}  // namespace holdfast::check

#include "check/race_tasks.hpp"

#include <algorithm>

namespace holdfast::check::race {

namespace {

bool knows(const KnownPtr& known, std::uint32_t stream, std::uint64_t task) {
  return task == 0 || (known && known->covers(stream_key(stream), task));
}

}  // namespace

// What the host has done so far comes before it, so it publishes something here.
void Tasks::give(std::uint32_t stream, std::uint64_t task, std::uint64_t waits_for) {
  Thread& host = order_.host();
  const Bound own{host.key, ++host.now};
  KnownPtr start = order_.merge(host.known, {&own, 1});
  Stream& its = streams_[stream];
  start = order_.merge(start, done(its.given));
  start = order_.merge(start, done(waits_for));
  its.given = task;
  tasks_[task] = {stream, std::move(start), nullptr};
}

// All that the task has done, and what comes before it.
KnownPtr Tasks::done(std::uint64_t task) {
  const auto given = tasks_.find(task);
  if (given == tasks_.end()) return nullptr;
  const Bound bound{stream_key(given->second.stream), task + 1};
  return order_.merge(given->second.start, {&bound, 1});
}

// Threads may have learnt something from kernels beside their own after later tasks were given.
KnownPtr Tasks::with_ends(KnownPtr known) {
  std::vector<bool> joined(ended_.size());
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = 0; i < ended_.size(); ++i) {
      const Given& given = tasks_.at(ended_[i]);
      if (joined[i] || !knows(known, given.stream, ended_[i])) continue;
      known = order_.merge(known, given.end);
      joined[i] = again = true;
    }
  }
  return known;
}

bool Tasks::knows_begun(const KnownPtr& known) const {
  return std::all_of(streams_.begin(), streams_.end(), [&](const auto& entry) {
    return knows(known, entry.first, entry.second.begun);
  });
}

Tasks::Begin Tasks::begin(std::uint64_t task) {
  Given& given = tasks_.at(task);
  given.start = with_ends(given.start);
  const Begin result{given.start, knows_begun(given.start), knows_begun(order_.host().known)};
  streams_[given.stream].begun = task;
  return result;
}

void Tasks::end(std::uint64_t task, const KnownPtr& known) {
  Given& given = tasks_.at(task);
  if (known == given.start) return;
  if (!given.end) ended_.push_back(task);
  given.end = order_.merge(given.end, known);
}

void Tasks::waited(std::uint32_t stream, std::uint64_t task) {
  Thread& host = order_.host();
  for (const auto& [number, its] : streams_) {
    if (stream != 0 && number != stream) continue;
    const std::uint64_t last = stream == 0 || task == 0 ? its.given : task;
    host.known = order_.merge(host.known, done(last));
  }
  host.known = with_ends(host.known);
}

bool Tasks::is_done(const KnownPtr& known, std::uint64_t task) const {
  return knows(known, tasks_.at(task).stream, task);
}

bool Tasks::all_waited_for() const {
  return std::all_of(streams_.begin(), streams_.end(), [&](const auto& entry) {
    return knows(order_.host().known, entry.first, entry.second.given);
  });
}

}  // namespace holdfast::check::race

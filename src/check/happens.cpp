#include "check/happens.hpp"

#include <algorithm>
#include <utility>

namespace holdfast::check {

namespace {

bool writes(const Op& op) {
  return op.kind == OpKind::write || op.kind == OpKind::update || op.kind == OpKind::release;
}

bool speaks(const Op& op) {
  return op.kind == OpKind::release || op.kind == OpKind::acquire || op.kind == OpKind::update ||
         ((op.kind == OpKind::read || op.kind == OpKind::write) && op.strong);
}

bool marks(const Op& op) { return op.kind == OpKind::start || op.kind == OpKind::acknowledge; }

}  // namespace

Happens::Happens(const Trace& trace)
    : trace_(trace),
      threads_(trace.threads.size()),
      begun_(trace.threads.size()),
      tasks_(trace.tasks.size()),
      task_known_(trace.tasks.size()),
      given_(trace.tasks.size()),
      copies_(trace.tasks.size()),
      members_(trace.tasks.size()),
      before_(trace.tasks.size()),
      at_barrier_(trace.threads.size()) {
  std::unordered_map<std::uint32_t, std::uint32_t> last;  // by stream
  for (std::uint32_t task = 1; task < trace.tasks.size(); ++task) {
    before_[task] = std::exchange(last[trace.tasks[task].stream], task);
  }
  for (std::uint32_t i = 0; i < trace.threads.size(); ++i) {
    members_[trace.threads[i].task].push_back(i);
  }
  for (const Op& op : trace.ops) {
    if (speaks(op) && (op.address % 4 != 0 || op.size % 4 != 0)) unit_ = 1;
  }
  for (; next_given_ < given_.size() && trace.tasks[next_given_].host_ops == 0; ++next_given_) {
  }
}

template <class Visit>
void Happens::for_units(const Op& op, Visit&& visit) {
  for (std::uint64_t unit = op.address / unit_; unit * unit_ < op.address + op.size; ++unit) {
    visit(locations_[unit]);
  }
}

// What is before the task's own operations. All of that has been made by now.
const Past& Happens::begin_of(std::uint32_t task) {
  if (task_known_[task]) return tasks_[task];
  task_known_[task] = true;
  Past past = given_[task];
  for (const std::uint32_t other : {before_[task], trace_.tasks[task].waits_for}) {
    if (other != 0) join_task(past, other);
  }
  return tasks_[task] = std::move(past);
}

// All that the task has done. REQUIRES: it is done.
void Happens::join_task(Past& past, std::uint32_t task) {
  past.join(begin_of(task));
  past.join(copies_[task]);
  for (const std::uint32_t member : members_[task]) past.join(threads_[member]);
}

// All that the stream's kernels and copies have done so far.
void Happens::join_stream(Past& past, std::uint32_t stream) {
  past.join(threads_[kCopyThread]);
  for (const std::uint32_t number : streams_[stream].threads) past.join(threads_[number]);
}

void Happens::begin(const Op& op) {
  begun_[op.thread] = true;
  const TraceThread& thread = trace_.threads[op.thread];
  if (thread.task != 0) {
    threads_[op.thread].join(begin_of(thread.task));
    return;
  }
  if (op.thread == kHostThread || op.thread == kCopyThread) return;
  Serial& stream = streams_[op.stream];
  if (thread.launch > stream.launch) {
    join_stream(stream.before, op.stream);
    stream.launch = thread.launch;
  }
  stream.threads.push_back(op.thread);
  threads_[op.thread].join(stream.before);
  threads_[op.thread].join(threads_[kHostThread]);
}

Past& Happens::enter(const Op& op) {
  if (op.thread == kCopyThread && op.task != 0 && op.task < tasks_.size()) {
    copies_[op.task].join(begin_of(op.task));
    return copies_[op.task];
  }
  if (!begun_[op.thread]) begin(op);
  Past& past = threads_[op.thread];
  if (op.thread == kCopyThread) {  // without a task
    past.join(threads_[kHostThread]);
    join_stream(past, op.stream);
  }
  if (const std::uint32_t group = std::exchange(at_barrier_[op.thread], 0)) {
    past.join(barriers_[group - 1]);
  }
  if (op.kind == OpKind::synchronize) {
    if (trace_.tasks.size() == 1) {
      for (const Past& other : threads_) past.join(other);
    }
    for (std::uint32_t task = 1; task < next_given_; ++task) {
      const bool its = op.stream == 0 || trace_.tasks[task].stream == op.stream;
      if (its && (op.task == 0 || task <= op.task)) join_task(past, task);
    }
  }
  if (speaks(op)) {
    for_units(op, [&](Location& location) {
      past.join(location.written);
      if (writes(op)) past.join(location.read);
    });
  }
  return past;
}

void Happens::done(const Op& op) {
  const bool copied = op.thread == kCopyThread && op.task != 0 && op.task < tasks_.size();
  const Past& past = copied ? copies_[op.task] : threads_[op.thread];
  if (speaks(op)) {
    for_units(op, [&](Location& location) {
      (writes(op) ? location.written : location.read).join(past);
    });
  }
  if (op.kind == OpKind::barrier || op.kind == OpKind::exchange) {
    barriers_[op.group].join(past);
    at_barrier_[op.thread] = op.group + 1;
  }
  if (op.thread != kHostThread) return;
  ++host_ops_;
  for (; next_given_ < given_.size() && trace_.tasks[next_given_].host_ops <= host_ops_;
       ++next_given_) {
    given_[next_given_] = past;
  }
}

Trace late_host(const Trace& trace) {
  Happens happens(trace);
  std::vector<std::uint32_t> marks_before(trace.ops.size());
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    Past& past = happens.enter(trace.ops[i]);
    marks_before[i] = 2 * past.marks;
    if (marks(trace.ops[i])) marks_before[i] = 2 * past.marks++ + 1;
    happens.done(trace.ops[i]);
  }
  Trace result = trace;
  if (std::is_sorted(marks_before.begin(), marks_before.end())) return result;
  std::vector<std::uint32_t> order(trace.ops.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(marks_before[a], a) < std::pair(marks_before[b], b);
  });
  for (std::size_t i = 0; i < order.size(); ++i) result.ops[i] = trace.ops[order[i]];
  return result;
}

}  // namespace holdfast::check

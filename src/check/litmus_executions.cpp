#include "check/litmus_executions.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/error.hpp"

namespace holdfast::check {

namespace {

// Why leaving executions out is sound (docs/model.md, "Executions", has this in
// words). All crash states count, at every point of every execution. So
// - what touches only its own thread's things is done as soon as it can be, a persist included:
//   all states without it are still there, since it is merely allowed to be durable;
// - a fence that waits is done as late as it can be, with its thread's next operation: before it
//   has ended, more states are legal than after;
// - of executions that differ in the order of neighbours that do not see each other one is enough
//   (sleep sets: Godefroid, LNCS 1032).

// What a unit of execution did that others can see.
struct Effects {
  std::uint64_t reads = 0;   // variables
  std::uint64_t writes = 0;  // variables
  bool waits = false;        // made persists durable
  bool persists = false;
  bool history = false;  // started or acknowledged an operation
};

bool independent(const Effects& a, const Effects& b) {
  if ((a.writes & (b.reads | b.writes)) != 0 || (b.writes & a.reads) != 0) return false;
  const auto cross = [](const Effects& one, const Effects& other) {
    return (one.waits && (other.persists || other.history)) || (one.history && other.persists);
  };
  return !cross(a, b) && !cross(b, a);
}

struct ThreadState {
  std::uint32_t pc = 0;
  std::uint32_t barriers = 0;  // reached
  std::vector<std::uint64_t> registers;
};

struct State {
  std::vector<ThreadState> threads;
  std::vector<std::uint64_t> memory;  // by element
  std::uint32_t launched = 0;
};

// A thread whose turn here leads to executions that are known.
struct Sleeper {
  std::size_t thread;
  Effects effects;
};

class Enumerator {
 public:
  Enumerator(const LitmusTest& test, const ExecutionOptions& options,
             const std::function<bool(const Trace&)>& visit)
      : test_(test), options_(options), visit_(visit) {
    trace_.persistent = persistent_range(test);
    for (std::size_t i = 1; i < test.threads.size(); ++i) {
      const LitmusThread& thread = test.threads[i];
      trace_.threads.push_back({thread.launch, thread.block, static_cast<std::uint32_t>(i)});
    }
    for (const LitmusVariable& variable : test.variables) {
      first_element_.push_back(elements_);
      elements_ += variable.count;
    }
    find_private();
  }

  std::uint64_t run() {
    State state;
    for (const LitmusThread& thread : test_.threads) {
      state.threads.push_back({0, 0, std::vector<std::uint64_t>(thread.registers)});
    }
    for (const LitmusVariable& variable : test_.variables) {
      state.memory.insert(state.memory.end(), variable.count, variable.initial);
    }
    Effects ignored;
    run_free(state, ignored);
    explore(state, {});
    if (!stopped_) check_waits();
    return executions_;
  }

 private:
  struct Mark {
    std::size_t ops;
    std::size_t bytes;
  };

  // Variables that only one thread ever touches.
  void find_private() {
    std::vector<std::set<std::size_t>> users(test_.variables.size());
    for (std::size_t i = 0; i < test_.threads.size(); ++i) {
      for (const LitmusStep& step : test_.threads[i].steps) {
        if (touches_memory(step.op)) users[step.place.variable].insert(i);
      }
    }
    for (const auto& of : users) private_.push_back(of.size() < 2);
  }

  static bool touches_memory(LitmusOp op) {
    return op == LitmusOp::store || op == LitmusOp::load || op == LitmusOp::wait ||
           op == LitmusOp::add || op == LitmusOp::cas;
  }

  const LitmusStep* step_of(const State& state, std::size_t thread) const {
    const auto& steps = test_.threads[thread].steps;
    const std::uint32_t pc = state.threads[thread].pc;
    return pc < steps.size() ? &steps[pc] : nullptr;
  }
  bool persistent(const LitmusStep& step) const {
    return test_.variables[step.place.variable].persistent;
  }

  // Does nothing but make its thread's persists durable.
  bool is_wait(const LitmusStep& step) const {
    if (step.op == LitmusOp::dfence || step.op == LitmusOp::synchronize) return true;
    if (options_.model != Model::epoch) return false;
    return step.op == LitmusOp::ofence ||
           (step.op == LitmusOp::fence && step.scope == Scope::system);
  }

  // Nobody else notices when it is done, and sooner is as good as later.
  bool is_free(std::size_t thread, const LitmusStep& step) const {
    if (step.op == LitmusOp::branch) return true;
    if (!options_.reduce || is_wait(step)) return false;
    switch (step.op) {
      case LitmusOp::store:
      case LitmusOp::load:
      case LitmusOp::add:
      case LitmusOp::cas:
        if (step.access == Access::persist && options_.model == Model::epoch) return false;
        // What the host stores is durable at once.
        if (thread == kHostThread && persistent(step)) return false;
        return private_[step.place.variable];
      case LitmusOp::fence:
      case LitmusOp::ofence:
      case LitmusOp::barrier:
      case LitmusOp::launch:
      case LitmusOp::record:
      case LitmusOp::wait_event:
        return true;
      default:
        return false;
    }
  }

  bool finished(const State& state, std::size_t thread) const {
    return state.threads[thread].pc >= test_.threads[thread].steps.size();
  }
  // All threads of kernels up to this one have come to their end.
  // In which stream; 0: in any.
  bool complete(const State& state, std::uint32_t launch, std::uint32_t stream) const {
    for (std::size_t i = 1; i < test_.threads.size(); ++i) {
      const LitmusThread& thread = test_.threads[i];
      if (stream != 0 && thread.stream != stream) continue;
      if (thread.launch <= launch && !finished(state, i)) return false;
    }
    return true;
  }
  // The last record of an event has been reached.
  bool recorded(const State& state, std::uint32_t launch) const {
    for (std::size_t i = 1; i < test_.threads.size(); ++i) {
      if (test_.threads[i].launch == launch) return finished(state, i);
    }
    return false;
  }

  // Its kernel has begun, and nobody is missing at the barrier that it has reached.
  bool may_run(const State& state, std::size_t thread) const {
    if (thread == kHostThread) return true;
    const LitmusThread& self = test_.threads[thread];
    if (self.launch > state.launched || !complete(state, self.launch - 1, self.stream)) {
      return false;
    }
    for (std::size_t i = 1; i < test_.threads.size(); ++i) {
      const LitmusThread& other = test_.threads[i];
      if (other.launch == self.launch && other.block == self.block &&
          state.threads[i].barriers < state.threads[thread].barriers) {
        return false;
      }
    }
    return true;
  }

  bool is_enabled(const State& state, std::size_t thread, const LitmusStep& step) const {
    if (step.op == LitmusOp::wait_event || (step.op == LitmusOp::synchronize && step.event != 0)) {
      return recorded(state, step.event);
    }
    if (step.op == LitmusOp::synchronize) return complete(state, state.launched, step.stream);
    if (step.op != LitmusOp::wait) return true;
    return holds(value_at(state, step.place), step.comparison,
                 value_of(state, thread, step.expected));
  }

  std::size_t element(const LitmusPlace& place) const {
    return first_element_[place.variable] + place.first;
  }
  std::uint64_t value_at(const State& state, const LitmusPlace& place) const {
    const std::uint64_t value = state.memory[element(place)];
    return place.count == 2 && test_.variables[place.variable].width == 4
               ? value | state.memory[element(place) + 1] << 32
               : value;
  }
  std::uint64_t value_of(const State& state, std::size_t thread, const LitmusValue& value) const {
    return value.is_register ? state.threads[thread].registers[value.number] : value.number;
  }
  std::uint64_t cut(const LitmusStep& step, std::uint64_t value) const {
    return test_.variables[step.place.variable].width == 4 ? value & 0xffffffff : value;
  }

  Op make_op(OpKind kind, std::size_t thread, const LitmusStep& step) const {
    Op op;
    op.kind = kind;
    op.scope = step.scope;
    const LitmusThread& self = test_.threads[thread];
    // The copy engine is thread 1 of every trace.
    op.thread = thread == kHostThread ? kHostThread
                : self.is_kernel      ? static_cast<std::uint32_t>(thread + 1)
                                      : kCopyThread;
    op.stream = step.op == LitmusOp::synchronize ? step.stream : self.stream;
    op.group = step.event;
    if (!touches_memory(step.op)) return op;
    const LitmusVariable& variable = test_.variables[step.place.variable];
    op.strong = step.access != Access::plain;
    op.address = variable.address + std::uint64_t{step.place.first} * variable.width;
    op.size = variable.width * step.place.count;
    return op;
  }

  void write(State& state, std::size_t thread, const LitmusStep& step, OpKind kind,
             std::uint64_t value) {
    Op op = make_op(kind, thread, step);
    const std::uint32_t width = test_.variables[step.place.variable].width;
    op.value = trace_.bytes.size();
    for (std::uint32_t i = 0; i < step.place.count; ++i) {
      state.memory[element(step.place) + i] = value;
      trace_.keep(&value, width);
    }
    trace_.ops.push_back(op);
  }

  // Makes the thread's next step, which must be enabled.
  void make_step(State& state, std::size_t thread, Effects& effects) {
    const LitmusStep& step = *step_of(state, thread);
    ThreadState& self = state.threads[thread];
    ++self.pc;
    if (step.op == LitmusOp::branch) {
      const std::uint64_t value = self.registers[step.tested];
      if (!holds(value, step.comparison, value_of(state, thread, step.expected))) {
        self.pc += step.skip;
      }
    } else if (step.op == LitmusOp::launch) {
      ++state.launched;
    } else if (touches_memory(step.op)) {
      access(state, thread, step, effects);
    } else {
      order(state, thread, step, effects);
    }
  }

  void order(State& state, std::size_t thread, const LitmusStep& step, Effects& effects) {
    static constexpr std::pair<LitmusOp, OpKind> kKinds[] = {
        {LitmusOp::fence, OpKind::fence},
        {LitmusOp::ofence, OpKind::ordering_fence},
        {LitmusOp::dfence, OpKind::durability_fence},
        {LitmusOp::barrier, OpKind::barrier},
        {LitmusOp::synchronize, OpKind::synchronize},
        {LitmusOp::record, OpKind::record},
        {LitmusOp::wait_event, OpKind::wait_event},
        {LitmusOp::start, OpKind::start},
        {LitmusOp::acknowledge, OpKind::acknowledge}};
    const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                    [&](const auto& pair) { return pair.first == step.op; });
    Op op = make_op(kind->second, thread, step);
    if (step.op == LitmusOp::barrier) {
      const LitmusThread& self = test_.threads[thread];
      // The block's first thread and the count name the meeting.
      std::uint32_t first = 1;
      while (test_.threads[first].launch != self.launch ||
             test_.threads[first].block != self.block) {
        ++first;
      }
      op.group = first << 16 | ++state.threads[thread].barriers;
    }
    trace_.ops.push_back(op);
    effects.waits = effects.waits || is_wait(step);
    effects.history =
        effects.history || step.op == LitmusOp::start || step.op == LitmusOp::acknowledge;
  }

  void access(State& state, std::size_t thread, const LitmusStep& step, Effects& effects) {
    ThreadState& self = state.threads[thread];
    const std::uint64_t mask = std::uint64_t{1} << step.place.variable;
    const std::uint64_t before = value_at(state, step.place);
    const std::uint64_t value = cut(step, value_of(state, thread, step.value));
    bool writes = true;
    switch (step.op) {
      case LitmusOp::store:
        write(state, thread, step, step.access == Access::persist ? OpKind::release : OpKind::write,
              value);
        break;
      case LitmusOp::add:
        write(state, thread, step, OpKind::update, cut(step, before + value));
        break;
      case LitmusOp::cas:
        writes = before == cut(step, value_of(state, thread, step.expected));
        if (writes) {
          write(state, thread, step, OpKind::update, value);
        } else {
          trace_.ops.push_back(make_op(OpKind::read, thread, step));
        }
        break;
      default:
        writes = false;
        trace_.ops.push_back(
            make_op(step.access == Access::persist ? OpKind::acquire : OpKind::read, thread, step));
        if (step.op == LitmusOp::wait) passed_.insert(&step);
    }
    if (step.op != LitmusOp::store) effects.reads |= mask;
    if (step.result != kNoRegister) self.registers[step.result] = before;
    if (writes) effects.writes |= mask;
    if (writes && persistent(step)) effects.persists = true;
    const bool host_stores = thread == kHostThread && writes && persistent(step);
    const bool fences = step.access == Access::persist && options_.model == Model::epoch;
    if (host_stores || fences) effects.waits = true;
  }

  // Whatever is free to be done at once.
  void run_free(State& state, Effects& effects) {
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = 0; i < test_.threads.size(); ++i) {
        while (const LitmusStep* step = step_of(state, i)) {
          if (!may_run(state, i) || !is_free(i, *step) || !is_enabled(state, i, *step)) break;
          make_step(state, i, effects);
          more = true;
        }
      }
    }
  }

  // The thread's next operation, with the waits before it. False: not now, and nothing is left
  // behind but in `state` and the trace.
  bool run_unit(State& state, std::size_t thread, Effects& effects) {
    if (!may_run(state, thread)) return false;
    while (const LitmusStep* step = step_of(state, thread)) {
      if (!is_enabled(state, thread, *step)) return false;
      const bool passes = is_wait(*step) || step->op == LitmusOp::branch ||
                          step->op == LitmusOp::fence || step->op == LitmusOp::ofence;
      make_step(state, thread, effects);
      if (!options_.reduce || !passes) return true;
    }
    return thread == kHostThread || others_are_done(state, thread);
  }

  // Only fences are left to the other threads of the kernel.
  bool others_are_done(const State& state, std::size_t thread) const {
    for (std::size_t i = 1; i < test_.threads.size(); ++i) {
      if (test_.threads[i].launch == test_.threads[thread].launch && next_access(state, i)) {
        return false;
      }
    }
    return true;
  }

  // The first of the thread's next steps that is no fence; null: there is none.
  const LitmusStep* next_access(const State& state, std::size_t thread) const {
    const auto& steps = test_.threads[thread].steps;
    const ThreadState& self = state.threads[thread];
    for (std::size_t pc = self.pc; pc < steps.size(); ++pc) {
      const LitmusStep& step = steps[pc];
      if (step.op == LitmusOp::branch) {
        const std::uint64_t value = self.registers[step.tested];
        if (!holds(value, step.comparison, value_of(state, thread, step.expected))) pc += step.skip;
      } else if (!is_wait(step) && step.op != LitmusOp::fence && step.op != LitmusOp::ofence) {
        return &step;
      }
    }
    return nullptr;
  }

  void explore(const State& state, std::vector<Sleeper> sleepers) {
    bool any = false;
    for (std::size_t i = 0; i < test_.threads.size() && !stopped_; ++i) {
      if (finished(state, i)) continue;
      if (std::any_of(sleepers.begin(), sleepers.end(),
                      [i](const Sleeper& sleeper) { return sleeper.thread == i; })) {
        any = true;
        continue;
      }
      const Mark mark{trace_.ops.size(), trace_.bytes.size()};
      State next = state;
      Effects effects;
      if (run_unit(next, i, effects)) {
        any = true;
        run_free(next, effects);
        check_budget();
        std::vector<Sleeper> left;
        for (const Sleeper& sleeper : sleepers) {
          if (independent(sleeper.effects, effects)) left.push_back(sleeper);
        }
        explore(next, std::move(left));
        if (options_.reduce) sleepers.push_back({i, effects});
      }
      trace_.ops.resize(mark.ops);
      trace_.bytes.resize(mark.bytes);
    }
    if (!any && !stopped_) {
      note_stuck(state);
      ++executions_;
      stopped_ = !visit_(trace_);
    }
  }

  void check_budget() {
    ++units_;
    if (executions_ < options_.max_executions && units_ / 64 < options_.max_executions) return;
    throw Error(Errc::unsupported,
                detail::concat(test_.file, ":", test_.line, ": test '", test_.name,
                               "' has more than ", options_.max_executions,
                               " executions; give it fewer operations that threads share"));
  }

  void note_stuck(const State& state) {
    for (std::size_t i = 0; i < test_.threads.size(); ++i) {
      if (!may_run(state, i)) continue;
      const LitmusStep* step = next_access(state, i);
      if (step != nullptr && step->op == LitmusOp::wait) stuck_.insert({i, step});
    }
  }

  void check_waits() const {
    for (const auto& [thread, step] : stuck_) {
      if (passed_.contains(step)) continue;
      throw Error(
          Errc::invalid_argument,
          detail::concat(test_.file, ":", step->line, ": test '", test_.name,
                         "': ", test_.threads[thread].name, " waits for a value that never comes"));
    }
  }

  const LitmusTest& test_;
  const ExecutionOptions& options_;
  const std::function<bool(const Trace&)>& visit_;
  Trace trace_;
  std::vector<std::size_t> first_element_;
  std::size_t elements_ = 0;
  std::vector<bool> private_;
  std::uint64_t executions_ = 0;
  std::uint64_t units_ = 0;
  bool stopped_ = false;
  std::set<const LitmusStep*> passed_;
  std::set<std::pair<std::size_t, const LitmusStep*>> stuck_;
};

}  // namespace

std::uint64_t for_each_execution(const LitmusTest& test, const ExecutionOptions& options,
                                 const std::function<bool(const Trace&)>& visit) {
  return Enumerator(test, options, visit).run();
}

}  // namespace holdfast::check

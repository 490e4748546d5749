// Small programs of a few operations, run by a chooser's turns without the executor: to compare
// reduced schedules and cuts with every interleaving and its prefixes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "check/trace.hpp"
#include "holdfast/cpu/chooser.hpp"

namespace holdfast::check {

enum class Do : std::uint8_t {
  store,  // plain, to a persistent word of the thread's own
  strong_store,
  load,
  add,
  cas,  // 0 becomes the value
  prel,
  pacq,
  ofence,
  dfence,
  fence,
  start,
  acknowledge,
  synchronize,  // with the stream of thread `word`; of all: kAll
};
inline constexpr unsigned kAll = 99;

struct Act {
  Do what = Do::store;
  unsigned word = 0;
  std::uint32_t value = 1;
  Scope scope = Scope::device;
  int only_if = -1;  // what the thread has read last; -1: always
};

// The host's acts, and those of kernels of one thread each, in streams of their own, that are
// launched before the host's first act but `start`.
struct SmallProgram {
  std::vector<Act> host;
  std::vector<std::vector<Act>> threads;
  bool one_kernel = true;   // its threads, in different blocks; else each a kernel and a stream
  unsigned persistent = 0;  // words [0, persistent) survive a crash
  unsigned words = 0;
};

class SmallRun {
 public:
  static constexpr std::uint64_t kBase = 0x10000;

  SmallRun(const SmallProgram& program, bool every_act)
      : program_(program), every_act_(every_act), memory_(program.words) {
    trace_.persistent = {kBase, kBase + 8 * program.persistent};
    const auto kernels = program.one_kernel ? 1 : program.threads.size();
    for (std::uint32_t i = 0; i < kernels; ++i) trace_.tasks.push_back({i + 1, 1, 0});
    for (std::uint32_t i = 0; i < program.threads.size(); ++i) {
      const std::uint32_t task = program.one_kernel ? 1 : i + 1;
      trace_.threads.push_back({task, i, 0, task});
    }
    actors_.resize(program.threads.size() + 1);
  }

  Trace run(cpu::Chooser& chooser) {
    skip();
    while (advance_silently(chooser) || step(chooser)) skip();
    return std::move(trace_);
  }

 private:
  struct Actor {
    std::size_t at = 0;
    std::uint32_t read = 0;
  };
  static bool speaks(Do what) {
    return what == Do::strong_store || what == Do::load || what == Do::add || what == Do::cas ||
           what == Do::prel || what == Do::pacq;
  }
  static bool writes(Do what) { return what != Do::load && what != Do::pacq; }
  const std::vector<Act>& acts(std::size_t actor) const {
    return actor == 0 ? program_.host : program_.threads[actor - 1];
  }
  bool done(std::size_t actor) const { return actors_[actor].at >= acts(actor).size(); }
  bool can(std::size_t actor) const {
    if (done(actor)) return false;
    if (actor != 0) return launched_;
    const Act& act = program_.host[actors_[0].at];
    if (act.what != Do::synchronize) return true;
    for (std::size_t i = 1; i < actors_.size(); ++i) {
      const bool its = program_.one_kernel || act.word == kAll || act.word + 1 == i;
      if (its && !done(i)) return false;
    }
    return true;
  }

  // What an actor does only if it has read something else.
  void skip() {
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      Actor& actor = actors_[i];
      while (!done(i) && acts(i)[actor.at].only_if >= 0 &&
             static_cast<std::uint32_t>(acts(i)[actor.at].only_if) != actor.read) {
        ++actor.at;
      }
    }
  }

  bool advance_silently(cpu::Chooser& chooser) {
    if (every_act_) return false;
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      if (!can(i) || speaks(acts(i)[actors_[i].at].what)) continue;
      perform(i, chooser);
      return true;
    }
    return false;
  }

  bool step(cpu::Chooser& chooser) {
    std::vector<cpu::Step> steps;
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      if (!can(i)) continue;
      const Act& act = acts(i)[actors_[i].at];
      cpu::Step step;
      step.actor = i;
      step.writes = writes(act.what);
      step.address = reinterpret_cast<const void*>(kBase + 8 * act.word);
      step.size = 8;
      steps.push_back(step);
    }
    if (steps.empty()) return false;
    perform(steps[chooser.choose(steps)].actor, chooser);
    return true;
  }

  void perform(std::size_t number, cpu::Chooser& chooser) {
    Actor& actor = actors_[number];
    const Act act = acts(number)[actor.at++];
    if (!launched_ && number == 0) {  // the first act: kernels are launched behind it
      launched_ = true;
      for (std::size_t i = 1; i < actors_.size(); ++i) chooser.order(0, i);
    }
    Op op;
    op.thread = number == 0 ? kHostThread : static_cast<std::uint32_t>(number + 1);
    op.scope = act.scope;
    op.address = kBase + 8 * act.word;
    op.size = 8;
    op.strong = speaks(act.what);
    op.stream = number == 0 ? 0 : program_.one_kernel ? 1 : static_cast<std::uint32_t>(number);
    std::uint64_t& word = memory_[std::min<std::size_t>(act.word, memory_.size() - 1)];
    const std::uint64_t value = act.value + 10 * actor.read;
    const auto write = [&](OpKind kind, std::uint64_t now) {
      op.kind = kind;
      word = now;
      op.value = trace_.keep(&word, 8);
    };
    switch (act.what) {
      case Do::store:
      case Do::strong_store:
        write(OpKind::write, value);
        break;
      case Do::prel:
        write(OpKind::release, value);
        break;
      case Do::load:
      case Do::pacq:
        op.kind = act.what == Do::load ? OpKind::read : OpKind::acquire;
        actor.read = static_cast<std::uint32_t>(word);
        break;
      case Do::add:
        actor.read = static_cast<std::uint32_t>(word);
        write(OpKind::update, word + act.value);
        break;
      case Do::cas:
        actor.read = static_cast<std::uint32_t>(word);
        if (word == 0) {
          write(OpKind::update, act.value);
        } else {
          op.kind = OpKind::read;
          chooser.only_read();
        }
        break;
      case Do::ofence:
        op.kind = OpKind::ordering_fence;
        break;
      case Do::dfence:
        op.kind = OpKind::durability_fence;
        break;
      case Do::fence:
        op.kind = OpKind::fence;
        break;
      case Do::start:
        op.kind = OpKind::start;
        break;
      case Do::acknowledge:
        op.kind = OpKind::acknowledge;
        break;
      case Do::synchronize:
        op.kind = OpKind::synchronize;
        op.stream = act.word == kAll ? 0 : program_.one_kernel ? 1 : act.word + 1;
        for (std::size_t i = 1; i < actors_.size(); ++i) {
          if (program_.one_kernel || act.word == kAll || act.word + 1 == i) chooser.order(i, 0);
        }
        break;
    }
    trace_.ops.push_back(op);
  }

  const SmallProgram& program_;
  const bool every_act_;
  bool launched_ = false;
  std::vector<std::uint64_t> memory_;
  std::vector<Actor> actors_;
  Trace trace_;
};

}  // namespace holdfast::check

// What the paper's sections 4.1.3 and 4.3.2 say of a copy's life, and what the doubled states add,
// as properties of a table; for the real one, and for changed ones.
#pragma once

#include <string>

#include "history/life_cycle.hpp"

namespace holdfast::history {

// The first sentence that the table breaks; empty: none.
inline std::string broken_sentence(const LifeCycleTable& table) {
  using enum State;
  const auto phase = [](State state) {  // the same for a copy that is alone and one that is not
    switch (state) {
      case written_alone:
      case flushed:
        return 'w';
      case ready_alone:
      case ready:
        return 'r';
      case consumed_alone:
      case consumed:
        return 'c';
      default:
        return '-';
    }
  };
  std::string broken;
  const auto must = [&](bool holds, const std::string& sentence) {
    if (!holds && broken.empty()) broken = sentence;
  };
  const auto at = [&](State state, Input input) { return next_state(state, input, table); };

  must(at(absent, Input::write) == writing, "a checkpoint is born on the checkpointing path");
  must(at(absent, Input::fetch) == reading, "or on the prefetching path");
  must(at(writing, Input::arrived) == written_alone, "the transfer ends in Write Complete");
  must(at(written_alone, Input::backed) == flushed, "then, flushed, it is Flushed");
  must(at(flushed, Input::evict) == absent, "Flushed is eligible for eviction");
  must(at(reading, Input::arrived) == ready, "Read in Progress ends in Read Complete");
  must(at(flushed, Input::want) == ready, "a hint takes Flushed directly to Read Complete");
  must(at(written_alone, Input::want) == ready_alone, "and what is still being flushed");
  must(!at(ready, Input::evict) && !at(ready_alone, Input::evict), "Read Complete is not evicted");
  must(at(ready, Input::restore) == consumed, "a restore takes it to Consumed");
  must(at(consumed, Input::evict) == absent, "which is again eligible for eviction");

  for (std::size_t s = 0; s < kStates; ++s) {
    const State state = static_cast<State>(s);
    const std::string name = to_string(state);
    if (!is_whole(state)) {
      must(at(state, Input::failed) == (state == absent ? std::nullopt : std::optional(absent)),
           name + ": what fails is absent");
      must(state != absent || !at(state, Input::arrived), "nothing arrives where no room is");
      for (const Input input : {Input::backed, Input::unbacked, Input::want, Input::unwant,
                                Input::restore, Input::keep, Input::evict, Input::discard}) {
        must(!at(state, input), name + " has nothing to " + to_string(input));
      }
      if (state != absent) {
        must(!at(state, Input::write) && !at(state, Input::fetch), name + " has its room");
      }
      continue;
    }
    for (const Input input : {Input::write, Input::fetch, Input::arrived}) {
      must(!at(state, input), name + " is not stored to: " + to_string(input));
    }
    must(at(state, Input::discard) == absent, name + " can be discarded");
    must(at(state, Input::failed) == absent, name + " can be damaged");
    must(!is_alone(state) || !at(state, Input::evict), name + " is the only one, and stays");
    const auto turned = at(state, is_alone(state) ? Input::backed : Input::unbacked);
    must(turned && phase(*turned) == phase(state) && is_alone(*turned) != is_alone(state),
         name + ": a flush changes nothing else");
    must(!at(state, is_alone(state) ? Input::unbacked : Input::backed), name + " is told once");
    const auto leads = [&](Input input, char to) {
      const auto next = at(state, input);
      must(next && phase(*next) == to && is_alone(*next) == is_alone(state),
           name + ", " + to_string(input) + ": whether it is alone does not change");
    };
    leads(Input::restore, 'c');
    leads(Input::keep, 'w');
    if (is_ready(state)) {
      leads(Input::unwant, 'w');
      must(!at(state, Input::want), name + " is wanted already");
    } else {
      leads(Input::want, 'r');
      must(!at(state, Input::unwant), name + " is not wanted");
    }
  }
  return broken;
}

}  // namespace holdfast::history

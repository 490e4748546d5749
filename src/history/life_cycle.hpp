// The life of one checkpoint in one tier, as a finite-state machine.
//
// Source: Score (HPDC '23), sections 4.1.3 and 4.3.2, Figure 1. The paper's machine says of a copy
// whether it is being read ahead or flushed, not both: a checkpoint that is restored while its
// flush is pending would be Consumed, so evictable, and lost. Here each state behind Write Complete
// comes twice: the copy is the only whole one so far (`..._alone`), or a slower tier has one, too.
//
// Interface: next_state() and three predicates over one table, without memory of its own; the
// catalog (catalog.hpp) holds the states.
// Invariants: a copy that can be evicted is whole elsewhere or may be discarded; what was fetched
// ahead is not evicted before it was restored or unwanted; no bytes are used in two states.
// Tests: life_cycle_test (the table against the paper's sentences), catalog_model_test (every
// interleaving of small histories; each entry of the table changed in turn is noticed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace holdfast::history {

enum class State : std::uint8_t {
  absent,          // Init: no room is taken
  writing,         // Write in Progress: from the program or from the faster tier
  written_alone,   // Write Complete: no slower tier has it whole yet
  flushed,         // Flushed: a slower tier has it whole
  reading,         // Read in Progress: from the slower tier
  ready_alone,     // Read Complete, before its flush: kept until it is restored
  ready,           // Read Complete: kept until it is restored
  consumed_alone,  // Consumed, before its flush
  consumed,        // Consumed
};
inline constexpr std::size_t kStates = 9;

enum class Input : std::uint8_t {
  write,     // room was taken for a save or for a flush from the faster tier
  fetch,     // room was taken for a copy from the slower tier
  arrived,   // the bytes are whole
  failed,    // they will not be; or the copy was found damaged
  backed,    // a slower tier has it whole
  unbacked,  // no slower tier has it whole any longer (damage; never by eviction)
  want,      // the prefetcher came to its hint
  unwant,    // its hint is gone, though it was not restored; or a save has no other room
  restore,   // the program has its bytes, or a faster tier has (promotion)
  keep,      // the program has its bytes, and said that it will want them again
  evict,     // its room is needed
  discard,   // nobody will restore it
};
inline constexpr std::size_t kInputs = 12;

// next[state][input]; kStates where the input must not come.
struct LifeCycleTable {
  std::uint8_t next[kStates][kInputs];
};
const LifeCycleTable& life_cycle() noexcept;

// Nothing where the input must not come: a defect of the caller.
std::optional<State> next_state(State state, Input input,
                                const LifeCycleTable& table = life_cycle()) noexcept;

// Its room may be given to another at once, if nobody reads it.
inline bool is_evictable(State state, const LifeCycleTable& table = life_cycle()) noexcept {
  return next_state(state, Input::evict, table).has_value();
}
// Its bytes can be read.
bool is_whole(State state) noexcept;
// No slower tier has it whole: it waits for its flush.
bool is_alone(State state) noexcept;
// It was fetched ahead, or found where it is wanted, and stays until it is restored.
bool is_ready(State state) noexcept;

const char* to_string(State state) noexcept;
const char* to_string(Input input) noexcept;

}  // namespace holdfast::history

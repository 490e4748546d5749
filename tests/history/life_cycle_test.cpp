#include "history/life_cycle.hpp"

#include <gtest/gtest.h>

#include "history/life_cycle_sentences.hpp"

namespace {

using namespace holdfast::history;

TEST(LifeCycle, SaysWhatThePaperSays) { EXPECT_EQ(broken_sentence(life_cycle()), ""); }

// Every state can be reached, and left.
TEST(LifeCycle, HasNoDeadEnds) {
  bool reached[kStates] = {true};
  for (std::size_t round = 0; round < kStates; ++round) {
    for (std::size_t state = 0; state < kStates; ++state) {
      for (std::size_t input = 0; input < kInputs; ++input) {
        const auto next = next_state(static_cast<State>(state), static_cast<Input>(input));
        if (reached[state] && next) reached[static_cast<std::size_t>(*next)] = true;
      }
    }
  }
  for (std::size_t state = 0; state < kStates; ++state) {
    EXPECT_TRUE(reached[state]) << to_string(static_cast<State>(state));
    bool left = false;
    for (std::size_t input = 0; input < kInputs; ++input) {
      const auto next = next_state(static_cast<State>(state), static_cast<Input>(input));
      left |= next && *next != static_cast<State>(state);
    }
    EXPECT_TRUE(left) << to_string(static_cast<State>(state));
  }
}

// Each entry changed to each other one. Names are there for all.
TEST(LifeCycle, AnyOtherTableBreaksASentence) {
  for (std::size_t state = 0; state < kStates; ++state) {
    for (std::size_t input = 0; input < kInputs; ++input) {
      for (std::size_t next = 0; next <= kStates; ++next) {
        LifeCycleTable table = life_cycle();
        if (table.next[state][input] == next) continue;
        table.next[state][input] = static_cast<std::uint8_t>(next);
        EXPECT_NE(broken_sentence(table), "")
            << to_string(static_cast<State>(state)) << ", " << to_string(static_cast<Input>(input));
      }
    }
  }
}

}  // namespace

// Failures in words: places, values, advice; and the names of crash states.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check/cause.hpp"
#include "check/machine.hpp"
#include "check/mutate.hpp"

namespace holdfast::check {

// A crash state as text: the crash point, and the writes that nothing else in it follows. With a
// second part behind a slash for a crash inside recovery, such as "12:345.350/3:7". Before each
// part, the schedule of the recovery from there, if it is not the one that kernels have in any
// test: "r102@12:345.350/r-@3:7".
struct StateName {
  std::size_t point = 0;
  std::vector<std::uint32_t> top;
  std::string schedule{};  // as Schedules has it; empty: none is named
};
// `name.top` is worked out.
std::string name_state(const Order& order, const StateName& name, const Bitset& durable);
// Takes what name_state() makes and nothing else; throws OptionError. One part or two. `text`: all
// that was given, of which `state` is the end.
std::vector<StateName> parse_state(const std::string& state, const std::string& text);
// What is no name of a state, and what one looks like.
[[noreturn]] void bad_form(const std::string& text);
// Throws OptionError if the order has no such point or write.
Bitset state_of(const Order& order, const StateName& name);

// What a program says, as a terminal may show it: control characters in hexadecimal.
std::string printable(const std::string& text);

// Fills in all of a failure but message, state and nested.
void describe(Failure& failure, const Cause& cause, const Order& order, std::size_t point,
              const Machine& machine, Places& places);

}  // namespace holdfast::check

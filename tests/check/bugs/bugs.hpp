// Kernels with a crash-consistency bug each, and their fixed twins. Every file says what kind
// of bug it holds, and marks the stores that a failing crash state separates: `BUG: lost` is not
// durable in it, `BUG: kept` is.
#pragma once

#include <string>

#include "holdfast/check.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {

check::Program missing_fence(bool fixed);
check::Program wrong_order(bool fixed);
check::Program torn_wide_write(bool fixed);
check::Program flag_before_data(bool fixed);
check::Program recovery_not_idempotent(bool fixed);
check::Program log_truncated_too_early(bool fixed);
check::Program leaked_allocation(bool fixed);
check::Program count_before_publish(bool fixed);
check::Program count_in_every_turn(bool fixed);
check::Program stale_offset_after_grow(bool fixed);
check::Program value_of_a_lost_writer(bool fixed);

// What a file says of its program: functions on one zeroed object. The operation is one.
template <class State>
struct Scenario {
  void (*run)(Stream&, State*);
  void (*recover)(Stream&, State*);  // null: nothing to do
  std::string (*verify)(const State&, const check::History&);
};

template <class State>
check::Program make_program(const char* name, const Scenario<State>& scenario) {
  const auto state_of = [](Region& region) {
    return static_cast<State*>(region.address(region.object("state")));
  };
  check::Program program;
  program.name = name;
  program.set_up = [](Region& region) {
    region.allocate_raw("state", "state", sizeof(State), 1, Tracking::hashed);
  };
  program.run = [=](Region& region, check::Session& session) {
    session.start();
    Stream stream;
    scenario.run(stream, state_of(region));
    stream.synchronize();
    session.acknowledge();
  };
  program.recover = [=](Region& region) {
    if (scenario.recover == nullptr) return;
    Stream stream;
    scenario.recover(stream, state_of(region));
    stream.synchronize();
  };
  program.verify = [=](Region& region, const check::History& history, std::uint64_t) {
    return scenario.verify(*state_of(region), history);
  };
  return program;
}

}  // namespace holdfast::test

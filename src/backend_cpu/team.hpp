// The OS threads behind the slots, and the baton that one of them holds.
#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "backend_cpu/run.hpp"

namespace holdfast::cpu {

// Runs one kernel on the calling thread, and on further ones where blocks wait for each other;
// returns its error, if any. Thread safety: any thread; kernels queue up for one lock.
std::optional<Error> execute(const Shape& shape, const Schedule& schedule,
                             const std::function<void()>& body);

// Keeps kernels from running while it is held.
std::unique_lock<std::mutex> lock_kernels();

// Adds a slot with an OS thread of its own to the run. Throws Errc::no_memory, std::system_error.
// REQUIRES: run.can_start_block().
Slot* recruit_slot(Run& run);

// For an engine: slot `number`, or one more than there are; and the baton for a slot, which comes
// back once the calling thread is to go on.
Slot& team_slot(unsigned number);
void drive_slot(Slot& slot);

}  // namespace holdfast::cpu

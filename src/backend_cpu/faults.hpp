// Signals that a kernel's own code raises (bad memory, division by zero) become errors.
//
// A handler on an alternate stack jumps back to the slot. Faults anywhere else go to the handler
// that was there before. Under the address sanitizer faults stay with the sanitizer.
#pragma once

#include <csetjmp>
#include <csignal>
#include <string>

#include "backend_cpu/fiber.hpp"

namespace holdfast::cpu {

// Installs the handlers, once for the process.
void install_fault_handlers();

// For a handler: hands the signal to the one that was there `before` it; where there was none, the
// process ends by the signal. Async-signal-safe.
void pass_on(const struct sigaction& before, int signal, siginfo_t* info, void* context) noexcept;

// Whom to tell of a fault that nobody takes care of, before it ends the process; async-signal-safe.
void tell_of_fatal_faults(void (*tell)(int signal) noexcept);

// Catches the faults of the fibers that run on this OS thread while it lives.
// Use: if (sigsetjmp(scope.landing(), 0) != 0) { a fault happened }; scope.arm();
class FaultScope {
 public:
  FaultScope();
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

  static sigjmp_buf& landing();
  void arm();
  // The last fault in words, with what to do about it. `stack`: that of the thread at fault.
  std::string describe(const std::byte* stack, const StackPool& stacks) const;
};

}  // namespace holdfast::cpu

// Kills its own process at a fence or a store of a kernel, for tests of what a killed process
// leaves. In the intercepted flavour (preset cpu-check) alone: include it where HOLDFAST_INTERCEPT
// is defined.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdint>

#include "holdfast/cpu/listener.hpp"

namespace holdfast::test {

// Dies at the n-th fence that a kernel makes durable, or at its n-th event of another kind.
class Reaper : public cpu::Listener {
 public:
  explicit Reaper(std::uint64_t events, cpu::EventKind kind = cpu::EventKind::durability_fence)
      : left_(events), kind_(kind) {}
  void on_event(const cpu::Event& event) override {
    if (event.kind != kind_) return;
    if (left_-- == 0) ::kill(::getpid(), SIGKILL);
  }

 private:
  std::uint64_t left_;
  const cpu::EventKind kind_;
};

}  // namespace holdfast::test

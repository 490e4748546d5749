// For tests: what a crash may leave on an emulated medium: of the stores that no fence has waited
// for yet, some are there and some are not. The intercepted flavour alone (holdfast::check).
#pragma once

#include <cstdint>
#include <memory>

#include "holdfast/cpu/listener.hpp"
#include "holdfast/region.hpp"

namespace holdfast::testing {

// Watches kernels that store into a region and makes crash states of it. Every fence that reaches
// the system waits for its thread's stores, as on today's GPUs (the epoch model of SBRP, ASPLOS
// '23); so does the end of a kernel. A state is drawn from the seed, word by word (8 bytes): a word
// holds what was last waited for, or a later store to it. It is one legal state, not all of them.
//
// REQUIRES: one medium at a time; the region outlives it. Thread safety: no kernel runs during
// construction, destruction and crash().
class CrashMedium : public cpu::Listener {
 public:
  CrashMedium(Region& region, std::uint64_t seed);
  ~CrashMedium() override;
  CrashMedium(const CrashMedium&) = delete;
  CrashMedium& operator=(const CrashMedium&) = delete;

  // Takes the crash state just before the `fences`-th fence from now on completes, counting from 0;
  // the kernel runs on, since a listener cannot stop it.
  void crash_at(std::uint64_t fences);
  // Whether that fence has come.
  bool crashed() const;
  // Puts the state taken, or else one of this moment, into the region.
  void crash();

  void on_event(const cpu::Event& event) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast::testing

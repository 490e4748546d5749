// Sees what host code that is not instrumented does to persistent memory: the region's pages are
// protected while recover() and verify() run, and every access to them faults, is noted, and is
// made by one step of the processor. Slow (two signals an access), so not for every run.
//
// Of other threads than the one that runs recover() and verify(), of functions on a stream among
// them, the first access is seen. Not seen: what any of them does while a kernel is underway, and
// between the first copy or such access of another thread and the next kernel's end, the next time
// that the host waits, or the next item.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "check/recorder.hpp"
#include "holdfast/cpu/listener.hpp"

namespace holdfast::check {

// An access that no hook announced.
struct UnseenAccess {
  std::uint64_t address = 0;
  const void* pc = nullptr;  // behind the instruction's first byte, as a call's return address is
  bool is_store = false;
  bool by_other = false;  // another thread than the one that runs recover() and verify()
};

// Whether this machine can: x86-64 alone.
bool can_watch_host() noexcept;

// Protects [range) while it lives, but for the kernels in between, which it hears of as it passes
// their events on to `next`. What is read unannounced, of words that may differ, goes to
// `footprint` as it is read: 64 bytes from the address, for an instruction reads no more. Thread
// safety: one at a time in a process; for the thread that makes it.
class HostWatch : public cpu::Listener {
 public:
  HostWatch(cpu::Listener& next, Footprint& footprint, PersistentRange range);
  ~HostWatch() override;
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  void on_event(const cpu::Event& event) override;
  // From here on `actor` reads. Protects the pages again, whoever has opened them.
  void set_actor(std::uint64_t actor);
  // Opens the pages for good.
  void end();

  // The first read that no hook announced; or the first store; or what another thread did.
  // REQUIRES: end() was called, and the stores of hooks are delivered.
  std::optional<UnseenAccess> unseen() const;
  // How often it was signalled.
  std::uint64_t faults() const { return faults_; }

 private:
  friend struct WatchSignals;
  bool on_fault(std::uint64_t address, bool is_store, std::uint64_t pc);
  void on_other_thread(const UnseenAccess& access);
  void on_step();
  void note_store(const UnseenAccess& access);
  void protect();
  void open();

  cpu::Listener& next_;
  Footprint& footprint_;
  PersistentRange range_;
  std::uint64_t actor_ = Recorder::kHostActor;
  std::uint64_t faults_ = 0;
  std::atomic<bool> protected_ = false;  // threads of kernels and copies open the pages, too
  bool ended_ = false;
  std::uint64_t running_ = 0;  // kernels
  std::atomic<bool> has_other_ = false;
  UnseenAccess other_;
  std::array<std::uint64_t, 4> stepping_{};  // pages that the current instruction uses
  unsigned steps_ = 0;
  std::optional<UnseenAccess> read_;
  std::array<UnseenAccess, 64> stores_{};  // those that a hook may still deliver
  std::size_t store_count_ = 0;
};

}  // namespace holdfast::check

// Hears a run of a program or of its recovery, and says whether it might have gone another way.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "check/mutate.hpp"
#include "holdfast/cpu/executor.hpp"
#include "holdfast/cpu/listener.hpp"

namespace holdfast::check {

// Hears what a run does, before it is recorded: whether it might have gone another way.
class Ear : public cpu::Listener {
 public:
  Ear(cpu::Listener& next, cpu::Listener* also, Census* census)
      : next_(next), also_(also), census_(census) {
    cpu::watch_streams();
  }
  void on_event(const cpu::Event& event) override {
    if (event.kind == cpu::EventKind::kernel_begin) {
      const auto threads = [](const dim3& extent) {
        return std::uint64_t{extent.x} * extent.y * extent.z;
      };
      if (threads(event.grid) * threads(event.extent) > 1) threads_ = true;
      told_.clear();
    } else if (event.host && !event.is_copy && event.kind != cpu::EventKind::synchronize) {
      note_host();
    } else if (!talked_ && !event.host && is_strong(event)) {
      note_strong(event);
    }
    if (event.kind == cpu::EventKind::kernel_end && !event.completed) failed_ = true;
    if (census_ != nullptr) census_->on_event(event);
    next_.on_event(event);
    if (also_ != nullptr) also_->on_event(event);
  }
  // The host does something that a crash or a kernel may come before or after.
  void note_host() { beside_ = beside_ || cpu::work_is_pending(); }
  bool heard_choices() const { return threads_ || heard_beside(); }
  // Something ran beside a kernel or copy.
  bool heard_beside() const { return beside_ || cpu::streams_have_overlapped(); }
  // There may be executions that are not equivalent, unless by a race.
  bool heard_turns() const { return talked_ || heard_beside(); }
  bool heard_talk() const { return talked_; }
  // A kernel failed: what its threads stored last was not told.
  bool heard_failure() const { return failed_; }

 private:
  struct Told {
    std::uint64_t thread = 0;
    bool written = false;
    bool several = false;
  };
  static bool is_strong(const cpu::Event& event) {
    return event.is_volatile || event.is_atomic || event.kind == cpu::EventKind::atomic ||
           event.kind == cpu::EventKind::acquire || event.kind == cpu::EventKind::release;
  }
  void note_strong(const cpu::Event& event) {
    const std::uint64_t thread = event.block << 16 | event.thread;
    const bool writes = event.kind != cpu::EventKind::load && event.kind != cpu::EventKind::acquire;
    const auto address = reinterpret_cast<std::uintptr_t>(event.address);
    for (std::uint64_t unit = address / 4; unit * 4 < address + event.size; ++unit) {
      Told& told = told_.try_emplace(unit, Told{thread, false, false}).first->second;
      told.several = told.several || told.thread != thread;
      told.written = told.written || writes;
      talked_ = talked_ || (told.several && told.written);
    }
  }

  cpu::Listener& next_;
  cpu::Listener* also_;
  Census* census_;
  bool threads_ = false;                          // a kernel had several
  bool beside_ = false;                           // the host ran beside what it had queued
  std::unordered_map<std::uint64_t, Told> told_;  // by 4 bytes, of the kernel that runs
  bool talked_ = false;
  bool failed_ = false;
};

// Kernels, copies and this thread's host code are listened to while it lives.
class Recording {
 public:
  Recording(cpu::Listener& listener, Mutator* mutator) : mutator_(mutator) {
    if (mutator_ != nullptr) mutator_->begin(listener);
    cpu::set_listener(mutator_ != nullptr ? mutator_ : &listener);
  }
  ~Recording() {
    cpu::set_listener(nullptr);
    if (mutator_ != nullptr) mutator_->end();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  Mutator* mutator_;
};

}  // namespace holdfast::check

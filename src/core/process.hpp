// Processes by name and age: whether the one that had a region can still write to it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace holdfast::core {

// A process, told from a later one with the same number.
struct ProcessName {
  std::uint64_t pid = 0;            // 0: none
  std::uint64_t start = 0;          // field 22 of /proc/PID/stat: clock ticks since boot
  std::uint64_t pid_namespace = 0;  // st_ino of /proc/PID/ns/pid
  bool operator==(const ProcessName&) const = default;
};

// The process that has made something. What it forks has a copy, without the threads that serve it,
// and of memory and files that are the maker's: it may not use it, nor wait for it, nor end it.
class Maker {
 public:
  Maker();
  bool is_this_process() const noexcept;
  // Throws in_use: `what` belongs to the maker. REQUIRES: !is_this_process().
  [[noreturn]] void refuse(const std::string& what, const char* remedy) const;

 private:
  pid_t process_;
};

// What cannot be read of /proc is 0.
ProcessName this_process();

// As /proc/PID/stat has it: 'R', 'S', 'Z' for a zombie, ...; 0: it does not tell.
char state_letter(std::uint64_t pid);

// unknown: it is, or was, in another namespace of process numbers, or /proc does not tell.
enum class Life { running, ending, ended, unknown };

// A process that was killed is `ending` until its last thread has let go of its files and its
// memory, and with them of the GPU. Throws no_memory, io for want of memory or descriptors to ask.
Life life_of(const ProcessName& process);

// Waits until the process has ended. Returns false if it has not by the deadline; true at once
// where that is unknown. Throws as life_of().
bool wait_for_end(const ProcessName& process, std::chrono::steady_clock::time_point deadline);

}  // namespace holdfast::core

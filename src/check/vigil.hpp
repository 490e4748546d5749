// Watches over the program's own code: what ends the process, or does not end, is named first.
//
// A recovery is code of the program under check, which may do anything. Where it raises a signal
// that ends the process, or takes longer than it may, one line on standard error says from which
// crash state, as --replay takes it. Setting the state costs a few stores: its name is worked out
// when it is needed, in the handler of a signal, without memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include <pthread.h>
#include <signal.h>

#include "check/level.hpp"
#include "check/schedules.hpp"
#include "holdfast/check.hpp"

namespace holdfast::check {

class Line;

// Where to say the line, too: a file descriptor. For a process whose parent reports.
void tell_also(int fd);

// Thread safety: one in a process at a time, used by the thread that made it.
class Vigil {
 public:
  Vigil(const std::string& program, const Options& options);
  ~Vigil();
  Vigil(const Vigil&) = delete;
  Vigil& operator=(const Vigil&) = delete;

  // What comes before a state in its name, such as "x102@epoch@".
  void set_execution(std::string execution) { execution_ = std::move(execution); }
  // How the program is changed.
  void set_mutation(const Mutation& mutation);

  // While it lives, the program's own code runs. `schedules`: who decides the turns, or null.
  class Call {
   public:
    Call(Vigil& vigil, const char* function, std::span<const Level> levels,
         const Schedules* schedules)
        : vigil_(vigil) {
      vigil.function_ = function;
      vigil.levels_ = levels;
      vigil.is_recovery_ = true;
      vigil.schedules_ = schedules;
      vigil.turn();
    }
    // Of set_up() or run(), which no crash state comes before.
    Call(Vigil& vigil, const char* function) : vigil_(vigil) {
      vigil.function_ = function;
      vigil.levels_ = {};
      vigil.is_recovery_ = false;
      vigil.turn();
    }
    ~Call() { vigil_.turn(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // Something of it is over: the time counts anew.
    void go_on() {
      vigil_.turn();
      vigil_.turn();
    }

   private:
    Vigil& vigil_;
  };

  // For the handlers of signals. Says what is under way, if anything is; once in a process.
  static void say_crashed(int signal) noexcept;
  static void say_overdue() noexcept;

 private:
  void turn() {
    number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  bool is_under_way() const { return number_.load(std::memory_order_acquire) % 2 == 1; }
  const std::string& overdue() const { return is_recovery_ ? overdue_ : run_overdue_; }
  void watch();
  void give_up(std::uint64_t number);
  // `name`: the state, too.
  void say(const char* what, const char* remedy, bool name = true) const noexcept;
  bool add_name(Line& line) const noexcept;

  const std::string program_;
  std::string execution_;
  std::string mutation_;
  const double limit_;      // in seconds, of a recovery
  const double run_limit_;  // of all else
  const std::string overdue_;
  const std::string run_overdue_;
  std::atomic<std::uint64_t> number_{0};  // odd: a call is under way
  const char* function_ = "";
  std::span<const Level> levels_;
  std::atomic<bool> is_recovery_{false};
  const Schedules* schedules_ = nullptr;

  const pthread_t checker_ = ::pthread_self();
  struct sigaction before_ {};
  std::atomic<std::uint64_t> given_up_{0};  // the call that was
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread watcher_;
};

}  // namespace holdfast::check

// That one process at a time writes to a history in an object store: an object `history.lock` that
// says who does. docs/format.md ("In an object store").
//
// There are no locks in object stores that would go with a process. So the owner renews the object
// every quarter of `lease`; one that was not renewed for so long may be taken over, and so may one
// whose owner is seen to be dead, on this machine. How old it is, the store's own clock says.
//
// Invariant: two processes that both believe they own the place do so for less than a `lease`, and
// only where the store has no put-if-absent, where an owner stood still for longer than a lease, or
// where two have found the same dead one in the same moment. Who finds out writes nothing any more.
// No step is harmed: each is whole by itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/format.hpp"
#include "core/process.hpp"
#include "holdfast/object_store.hpp"

namespace holdfast::history {

class ObjectClaim {
 public:
  // Throws in_use: who has it, and until when; and what the store throws.
  ObjectClaim(ObjectStore& objects, std::chrono::milliseconds lease);
  // Gives it up, in the process that took it.
  ~ObjectClaim();
  ObjectClaim(const ObjectClaim&) = delete;
  ObjectClaim& operator=(const ObjectClaim&) = delete;

  // Throws in_use if another process has taken over; what the store throws, where the claim could
  // not be renewed for so long that one may have.
  void check();

 private:
  using Clock = std::chrono::steady_clock;
  struct Owner {
    std::string id;  // random
    std::string host;
    core::Uuid boot{};
    core::ProcessName process;
  };

  static std::string encode(const Owner& owner);
  static std::optional<Owner> decode(const std::string& text);
  std::string text_of_lock() const;
  std::string path() const;
  bool is_own(const std::optional<Owner>& owner) const { return owner && owner->id == own_.id; }
  bool has_own() const;
  void take();
  bool make();
  bool may_take_over(const std::optional<Owner>& owner, std::chrono::nanoseconds age) const;
  std::optional<std::chrono::nanoseconds> age() const;
  [[noreturn]] void refuse(const std::optional<Owner>& owner, std::chrono::nanoseconds age) const;
  void renew();
  void keep_renewing();
  void replace();

  ObjectStore& objects_;
  const std::chrono::milliseconds lease_;
  const core::Maker maker_;
  Owner own_;
  std::string text_;  // of own_

  std::mutex renewing_;  // taken before state_
  std::mutex state_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::string lost_;  // what is said of it
  Clock::time_point renewed_;
  std::thread thread_;
};

}  // namespace holdfast::history

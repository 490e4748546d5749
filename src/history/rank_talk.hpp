// What the ranks of a history say to each other: collective calls in which each also says whether
// it is well, so that one that cannot go on is heard of at once, and not by a deadline.
//
// Thread safety: one call at a time; a mutex of its own sees to that.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "holdfast/ranks.hpp"

namespace holdfast::history {

class RankTalk {
 public:
  using Bytes = RankGroup::Bytes;
  // Throws invalid_argument: a group without ranks, or without this one.
  RankTalk(std::shared_ptr<RankGroup> group, std::chrono::milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  std::string node() const { return group_->node(); }

  // Collective: what each rank gives, by rank. `call` names the function for which it is. Throws
  // rank_lost; another rank's error, with its code and number; invalid_argument if the ranks are
  // not at the same call.
  // `longer`: for which others may be kept by what they do before.
  std::vector<Bytes> exchange(const char* call, std::span<const std::byte> mine,
                              std::chrono::milliseconds longer = {});
  // In place of exchange(): this rank cannot go on, and the others throw what it met.
  void tell_failure(const char* call, const std::exception_ptr& error) noexcept;
  // The last exchange has thrown: the others know, or cannot be told.
  bool has_failed() const { return failed_; }

 private:
  std::vector<Bytes> gather(std::span<const std::byte> mine, std::chrono::milliseconds timeout);

  const std::shared_ptr<RankGroup> group_;
  const std::chrono::milliseconds timeout_;
  const int rank_, size_;
  std::mutex one_at_a_time_;
  std::string lost_;
  bool failed_ = false;
};

}  // namespace holdfast::history

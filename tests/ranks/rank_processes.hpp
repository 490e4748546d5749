// Processes of a test, one for each rank, that are forked, killed and waited for.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "support/still_fork.hpp"

namespace holdfast::test {

// A number that forked processes share.
class SharedCount {
 public:
  SharedCount()
      : at_(static_cast<std::atomic<int>*>(::mmap(nullptr, sizeof(std::atomic<int>),
                                                  PROT_READ | PROT_WRITE,
                                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    *at_ = 0;
  }
  ~SharedCount() { ::munmap(at_, sizeof(*at_)); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  std::atomic<int>& operator*() const { return *at_; }

 private:
  std::atomic<int>* at_;
};

class RankProcesses {
 public:
  // `body(rank)` is the exit status; an exception's is 99. Whoever hangs is ended by SIGALRM.
  RankProcesses(int size, const std::function<int(int)>& body, unsigned alarm_seconds = 60) {
    for (int rank = 0; rank < size; ++rank) {
      const pid_t child = test::fork_when_still();
      if (child == 0) {
        ::alarm(alarm_seconds);
        int status = 99;
        try {
          status = body(rank);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        }
        std::fflush(nullptr);
        ::_exit(status);
      }
      children_.push_back(child);
      statuses_.push_back(0);
      ended_.push_back(false);
    }
  }
  ~RankProcesses() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) kill(static_cast<int>(rank));
    wait_all();
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void kill(int rank, int signal = SIGKILL) {
    const auto at = static_cast<std::size_t>(rank);
    if (!ended_[at]) ::kill(children_[at], signal);
  }
  bool has_ended(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (!ended_[at]) ended_[at] = ::waitpid(children_[at], &statuses_[at], WNOHANG) != 0;
    return ended_[at];
  }
  // As waitpid() says it.
  int wait(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (!ended_[at]) ::waitpid(children_[at], &statuses_[at], 0);
    ended_[at] = true;
    return statuses_[at];
  }
  // The exit status, or minus the signal.
  int result(int rank) {
    const int status = wait(rank);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  std::vector<int> wait_all() {
    std::vector<int> all;
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      all.push_back(result(static_cast<int>(rank)));
    }
    return all;
  }

 private:
  std::vector<pid_t> children_;
  std::vector<int> statuses_;
  std::vector<bool> ended_;
};

}  // namespace holdfast::test

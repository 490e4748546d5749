// A memory server that is a process of its own, as a partner is: so that a test can kill it, and so
// that a test that forks has no busy threads (a child whose parent's allocator was locked by one
// would wait for it for ever, as under the address sanitizer).
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string>

#include "holdfast/memory_server.hpp"
#include "support/still_fork.hpp"

namespace holdfast::test {

class MemoryServerProcess {
 public:
  // REQUIRES: no other thread of this process is busy.
  explicit MemoryServerProcess(const MemoryServerOptions& options) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    pid_ = test::fork_when_still();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      try {
        MemoryServer server(options);
        (void)!::write(ends[1], server.address().data(), server.address().size());
        ::close(ends[1]);
        for (;;) ::pause();
      } catch (...) {
      }
      ::_exit(1);
    }
    ::close(ends[1]);
    char address[128] = {};
    const ssize_t got = ::read(ends[0], address, sizeof address - 1);
    ::close(ends[0]);
    if (got > 0) address_ = address;
    if (got <= 0) throw std::runtime_error("the memory server did not start");
  }
  ~MemoryServerProcess() { kill(); }
  MemoryServerProcess(const MemoryServerProcess&) = delete;
  MemoryServerProcess& operator=(const MemoryServerProcess&) = delete;

  const std::string& address() const { return address_; }
  void signal(int number) const { ::kill(pid_, number); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  std::string address_;
};

}  // namespace holdfast::test

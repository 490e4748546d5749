// Child processes of tests: the test program itself, started anew with one disabled test to run.
// Started anew, because a GPU's context does not survive fork().
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::test {

class Child {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  // Runs the test `name` ("Suite.DISABLED_Name") in a child. What it writes to report_fd() is
  // read here with read().
  Child(const std::string& name, const Environment& environment) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    read_end_ = ends[0];
    // Everything that allocates comes before the fork.
    const std::string filter = "--gtest_filter=" + name;
    const char* const arguments[] = {"/proc/self/exe", filter.c_str(),
                                     "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr};
    const std::string number = std::to_string(ends[1]);
    for (const auto& [key, value] : environment) ::setenv(key.c_str(), value.c_str(), 1);
    ::setenv("HOLDFAST_TEST_REPORT_FD", number.c_str(), 1);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      ::execv("/proc/self/exe", const_cast<char* const*>(arguments));
      ::_exit(127);
    }
    ::unsetenv("HOLDFAST_TEST_REPORT_FD");
    for (const auto& [key, value] : environment) ::unsetenv(key.c_str());
    ::close(ends[1]);
  }
  ~Child() {
    if (pid_ > 0) kill();
    ::close(read_end_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // One message; false once the child is gone and everything has been read.
  template <class Message>
  bool read(Message& message) {
    auto* to = reinterpret_cast<char*>(&message);
    std::size_t left = sizeof message;
    while (left > 0) {
      const ssize_t got = ::read(read_end_, to, left);
      if (got <= 0) return false;
      to += got;
      left -= static_cast<std::size_t>(got);
    }
    return true;
  }

  void kill() {
    ::kill(pid_, SIGKILL);
    wait();
  }
  // Its exit status, or 128 + signal.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int read_end_ = -1;
};

// In the child: sends a message to the parent, whole or not at all.
template <class Message>
void report(const Message& message) {
  static_assert(sizeof message <= 512, "must fit PIPE_BUF to be atomic");
  const char* fd = std::getenv("HOLDFAST_TEST_REPORT_FD");
  if (fd == nullptr) return;
  if (::write(std::atoi(fd), &message, sizeof message) != sizeof message) std::abort();
}

inline std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace holdfast::test

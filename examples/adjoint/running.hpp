// The program in a process of its own, which tests kill.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace adjoint {

using Words = std::vector<std::string>;

// The program, started anew. Its output is read line by line.
class Running {
 public:
  explicit Running(const Words& words) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    std::vector<char*> arguments{const_cast<char*>(ADJOINT_PROGRAM)};
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      ::execv(ADJOINT_PROGRAM, arguments.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ::fdopen(ends[0], "r");
  }
  ~Running() {
    if (pid_ > 0) kill();
    std::fclose(output_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Empty at the end.
  std::string line() {
    char text[512];
    return std::fgets(text, sizeof text, output_) == nullptr ? "" : text;
  }
  int kill() {
    ::kill(pid_, SIGKILL);
    return wait();
  }
  // Its exit status, or 128 + signal.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  std::FILE* output_ = nullptr;
};

}  // namespace adjoint

// A child that a test forks, with copies of what the test has open.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>

#include "support/still_fork.hpp"

namespace holdfast::test {

// How `body` ends in a forked child; one that waits for ever is ended by a signal.
inline int in_child(const std::function<void()>& body) {
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    ::alarm(20);
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the child: %s\n", error.what());
      ::_exit(2);
    }
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace holdfast::test

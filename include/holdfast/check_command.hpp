// The checker's command line, for programs of your own: what holdfast-check does with those that
// Holdfast ships. Link holdfast::check; docs/crash-consistent-kernels.md has an example.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "holdfast/check.hpp"

namespace holdfast::check {

// How large a program is made: --threads, --blocks and --persists. 0: as it likes.
struct Sizes {
  std::uint32_t threads = 0;
  std::uint32_t blocks = 0;
  std::uint32_t persists = 0;
  bool operator==(const Sizes&) const = default;
};
// As --sizes takes them: threads, blocks and persists, such as "3x2x1", "3" or "0x2"; "default".
std::string to_string(const Sizes& sizes);

// A program that the command line offers.
struct Offer {
  std::string name;
  std::string summary;  // one line, for `list`
  bool correct = true;  // false: there to show a bug
  // Called in the process that checks it. Throws invalid_argument for sizes that it cannot have.
  std::function<Program(const Sizes& sizes)> make;
  // The sizes at which its mutants are checked where none are asked for; none: as it likes.
  std::vector<Sizes> mutant_sizes{};
};

// Runs one command and returns the process's exit status: 0 where what was checked passed, 1 where
// it failed or an error occurred, 2 for wrong usage, 3 where no failure was found but not all was
// explored, 4 where it is racy, 5 where the verdict is void. Of mutants: 0 where each is killed or
// not needed, 3 where some is not killed. Prints to stdout and stderr.
//
// It forks the processes that check, and the backend's threads do not survive a fork. REQUIRES: no
// stream, region or kernel was used in this process before.
int command_line(int argc, const char* const* argv, const std::vector<Offer>& offers);

}  // namespace holdfast::check

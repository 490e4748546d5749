// The programs that `holdfast check` knows by name: what the project ships, as the crash-state
// checker takes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/check.hpp"

namespace holdfast::check {

struct ProgramOptions {
  std::uint32_t threads = 0;   // in a block, or operations in a batch; 0: the program's own number
  std::uint32_t blocks = 0;    // 0: the program's own number
  std::uint32_t persists = 0;  // words that a thread updates in a transaction; 0: the program's own
};

struct ProgramInfo {
  std::string name;
  std::string summary;
  // What 0 stands for in ProgramOptions; 0 here: the option does not apply.
  ProgramOptions defaults;
  bool correct = true;  // false: shipped to show a bug
  // The models under which it keeps (correct) what it promises.
  bool right_under_sbrp = true;
  bool right_under_epoch = true;
  // The sizes at which its mutants are checked where none are asked for; none: its own.
  std::vector<ProgramOptions> mutant_sizes{};
};

// In the order in which they are listed.
const std::vector<ProgramInfo>& programs();

// Throws invalid_argument: no such program, or an option out of range (threads 2 to 1,024, blocks
// and persists 1 to 64) or that does not apply.
Program make_program(const std::string& name, const ProgramOptions& options = {});

}  // namespace holdfast::check

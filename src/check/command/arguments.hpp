// What the user asked of the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/check_command.hpp"

namespace holdfast::check {

struct Arguments {
  std::string program;
  Sizes sizes;
  std::vector<Sizes> mutant_sizes;  // of --sizes
  Options options;                  // worker and workers are set in each process
  unsigned jobs = 1;
  bool mutants = false;
  bool budget = false;  // one was asked for
  bool json = false;
  bool help = false;
};

// Throws OptionError, naming the word and what could stand there.
Arguments parse_arguments(const std::vector<std::string>& words);

// The usage, as --help prints it. `command` is the executable's name.
std::string usage(const std::string& command);

// The arguments that try one state of the same program again. `mutation`: of a mutant.
std::vector<std::string> replay_arguments(const Arguments& arguments, const Mutation& mutation,
                                          const std::string& state);

// What to_string() makes of sizes, back. Throws OptionError.
Sizes parse_sizes(const std::string& text);

// What to_string() makes of a mutation, back. Throws OptionError.
Mutation parse_mutation(const std::string& text);

}  // namespace holdfast::check

// The command that runs litmus tests.
#pragma once

#include <string>
#include <vector>

namespace holdfast::check {

// Arguments: folders or files, --json, --model sbrp|epoch|both, --brute, --help. Writes a table or
// JSON to standard output. Returns the exit status: 0 if all tests pass, 1 if one does not, 2 if
// the arguments or a file are not what they should be (standard error says why).
int litmus_command(const std::vector<std::string>& args);

}  // namespace holdfast::check

// holdfast-check: checks the programs that Holdfast ships, and the model's litmus tests.
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "check/tool_litmus.hpp"
#include "holdfast/check_command.hpp"
#include "shipped.hpp"

namespace holdfast::check {
namespace {

int litmus(const std::vector<std::string>& words) {
  try {
    return litmus_command(words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast-check litmus: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace holdfast::check

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "litmus") {
    return holdfast::check::litmus(std::vector<std::string>(argv + 2, argv + argc));
  }
  return holdfast::check::command_line(argc, argv, holdfast::check::shipped_programs());
}

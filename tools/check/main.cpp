// holdfast-check: checks the programs that Holdfast ships, and the model's litmus tests.
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "check/tool_litmus.hpp"
#include "checked_append/append.hpp"
#include "holdfast/check_command.hpp"
#include "programs.hpp"

namespace holdfast::check {
namespace {

std::vector<Offer> offers() {
  std::vector<Offer> result = checked_append::offers();
  for (const ProgramInfo& info : programs()) {
    Offer& offer = result.emplace_back();
    offer.name = info.name;
    offer.summary = info.summary;
    offer.correct = info.correct;
    offer.make = [name = info.name](const Sizes& sizes) {
      return make_program(name, {sizes.threads, sizes.blocks, sizes.persists});
    };
    for (const ProgramOptions& sizes : info.mutant_sizes) {
      offer.mutant_sizes.push_back({sizes.threads, sizes.blocks, sizes.persists});
    }
  }
  return result;
}

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
  return holdfast::check::command_line(argc, argv, holdfast::check::offers());
}

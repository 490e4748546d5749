#include "check/tool_litmus.hpp"

#include <cstdio>

#include "check/litmus_run.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {

namespace {

constexpr const char* kHelp =
    "usage: litmus [--json] [--model sbrp|epoch|both] [--brute] FOLDER|FILE...\n"
    "\n"
    "Runs litmus tests of the persistency model (docs/model.md has their text form).\n"
    "  --json    results as JSON\n"
    "  --model   the model to run: sbrp, epoch or both (default), which takes in those tests that\n"
    "            are about memory alone (sc and ptx)\n"
    "  --brute   try every crash state, too, and compare with lazy exploration\n"
    "\n"
    "Exits with 0 only if all tests pass. Example: litmus --brute litmus/\n";

int misuse(const std::string& message) {
  std::fprintf(stderr, "litmus: %s\n", message.c_str());
  return 2;
}

}  // namespace

int litmus_command(const std::vector<std::string>& args) {
  LitmusOptions options;
  bool json = false;
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help" || arg == "-h") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (arg == "--json") {
      json = true;
    } else if (arg == "--brute") {
      options.brute = true;
    } else if (arg == "--model" || arg.starts_with("--model=")) {
      const bool apart = arg == "--model";
      if (apart && i + 1 == args.size()) return misuse("--model: name sbrp, epoch or both");
      const std::string model = apart ? args[++i] : arg.substr(8);
      if (model != "sbrp" && model != "epoch" && model != "both") {
        return misuse("--model: '" + model + "' is not one of sbrp, epoch, both");
      }
      options.sbrp = model != "epoch";
      options.epoch = model != "sbrp";
    } else if (arg.starts_with('-')) {
      return misuse("unknown option '" + arg + "'; --help lists them");
    } else {
      paths.push_back(arg);
    }
  }
  if (paths.empty()) return misuse("name a folder or files with litmus tests");
  try {
    const LitmusReport report = run_litmus(paths, options);
    if (report.results.empty()) return misuse("no test says what is expected of this model");
    std::fputs((json ? to_json(report) : to_table(report)).c_str(), stdout);
    return report.passed() ? 0 : 1;
  } catch (const Error& error) {
    return misuse(error.what());
  }
}

}  // namespace holdfast::check

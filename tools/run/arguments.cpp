#include "arguments.hpp"

#include <charconv>

namespace holdfast_run {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;

const char* const kUsage =
    "usage: holdfast-run list\n"
    "       holdfast-run remove PATH\n"
    "       holdfast-run WORKLOAD [--mode "
    "gpm|cap-fs|cap-mm|ndp|gpufs|cpu|eadr|cap-eadr|cap-delta|\n"
    "           cap-delta-raw|cap-log]\n"
    "           [--size test|real|paper] [--data FOLDER] [--seed N] [--steps N] [--set "
    "NAME=VALUE]...\n"
    "           [--medium dram|optane|cxl|limit=RATE] [--region PATH] [--cpu-threads N]\n"
    "           [--files N] [--file-io direct|buffered] [--no-verify | --expect STATE]\n"
    "           [--last-commit] [--die-in-step N]\n"
    "Runs a workload to its end, or on from where a killed run of the same --region stopped.\n"
    "--expect: the state that a run of the same workload, input and steps printed, which its "
    "oracle\n"
    "verified: this run must end with the same bits, and no oracle is asked.\n"
    "--die-in-step: kills itself in step N, counted from 1, just before what the step did is\n"
    "committed: of transactional workloads in the modes gpm and eadr, of checkpointing ones.\n"
    "--last-commit: begins with the region's last commit, and sets aside what a crash left since.\n"
    "--files: over which mode cap-fs stripes an array (default: one for each CPU thread).\n"
    "--file-io: of mode cap-fs; direct (default) passes the page cache where the file system can.\n"
    "--medium: takes as long as on that medium; RATE is such as 1.6GB/s.\n"
    "Prints JSON lines: 'ready' when what is set up is in place, 'done' at the end.\n";

namespace {

std::uint64_t number(const std::string& option, const std::string& text, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) {
    throw Error(Errc::invalid_argument,
                concat(option, " ", text, ": give a whole number up to ", most));
  }
  return value;
}

workload::Size size_of(const std::string& text) {
  if (text == "test") return workload::Size::test;
  if (text == "real") return workload::Size::real;
  if (text == "paper") return workload::Size::paper;
  throw Error(Errc::invalid_argument, concat("--size ", text, ": use test, real or paper"));
}

void set_option(workload::Settings& settings, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(Errc::invalid_argument, concat("--set ", text, ": give NAME=VALUE"));
  }
  settings.options[text.substr(0, equals)] = text.substr(equals + 1);
}

}  // namespace

Arguments parse(int argc, const char* const* argv) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0} - 1;
  Arguments result;
  if (argc < 2) throw Error(Errc::invalid_argument, concat("name a workload\n", kUsage));
  result.name = argv[1];
  if (result.name == "list" && argc == 2) {
    result.list = true;
    return result;
  }
  if (result.name == "remove" && argc == 3) {
    result.remove = true;
    result.region = argv[2];
    return result;
  }
  workload::find_workload(result.name);
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--no-verify") {
      result.verify = false;
      continue;
    }
    if (option == "--last-commit") {
      result.last_commit = true;
      continue;
    }
    if (i + 1 == argc) {
      throw Error(Errc::invalid_argument, concat(option, " has no value\n", kUsage));
    }
    const std::string value = argv[++i];
    if (option == "--mode") {
      const auto mode = workload::parse_mode(value);
      if (!mode) {
        throw Error(Errc::invalid_argument,
                    concat("--mode ", value,
                           ": use gpm, cap-fs, cap-mm, ndp, gpufs, cpu, eadr, cap-eadr, "
                           "cap-delta, cap-delta-raw or cap-log"));
      }
      result.settings.mode = *mode;
    } else if (option == "--size") {
      result.settings.size = size_of(value);
    } else if (option == "--data") {
      result.settings.data_folder = value;
    } else if (option == "--seed") {
      result.settings.seed = number(option, value, kMost);
    } else if (option == "--steps") {
      result.settings.steps = number(option, value, 1u << 30);
    } else if (option == "--set") {
      set_option(result.settings, value);
    } else if (option == "--medium") {
      result.medium = holdfast::testing::MediumModel::parse(value);
    } else if (option == "--die-in-step") {
      result.die_in_step = number(option, value, 1u << 30);
    } else if (option == "--expect") {
      if (value.find_first_not_of("0123456789abcdef:") != std::string::npos || value.size() < 32) {
        throw Error(Errc::invalid_argument,
                    concat("--expect ", value, ": give the state that a verified run printed"));
      }
      result.expect = value;
    } else if (option == "--region") {
      result.region = value;
    } else if (option == "--cpu-threads") {
      result.cpu_threads = static_cast<unsigned>(number(option, value, 1024));
    } else if (option == "--file-io") {
      if (value != "direct" && value != "buffered") {
        throw Error(Errc::invalid_argument,
                    concat("--file-io ", value, ": use direct or buffered"));
      }
      result.direct_io = value == "direct";
    } else if (option == "--files") {
      result.files = static_cast<unsigned>(number(option, value, 1024));
    } else {
      throw Error(Errc::invalid_argument, concat("there is no option ", option, "\n", kUsage));
    }
  }
  const workload::Info& info = workload::find_workload(result.name);
  if (result.die_in_step != 0 && (info.kind == workload::Info::Class::native ||
                                  (info.kind == workload::Info::Class::transactional &&
                                   !workload::kernel_persists(result.settings.mode)))) {
    throw Error(Errc::invalid_argument,
                concat("--die-in-step: ", result.name, " commits nothing as a whole in mode ",
                       workload::to_string(result.settings.mode), ": leave it out"));
  }
  if (!result.verify && !result.expect.empty()) {
    throw Error(Errc::invalid_argument, "--no-verify and --expect are both given: leave out one");
  }
  workload::check_options(info, result.settings);
  return result;
}

}  // namespace holdfast_run

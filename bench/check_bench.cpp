// What the crash-state checker costs: accesses that are recorded, litmus tests, states per minute,
// and how states, time and memory grow with a program. One core, unless a line says otherwise.
//
// Usage: check_bench [--seconds=S] [--repeat=N] [--threads=MOST]
#include "check_bench.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.hpp"
#include "holdfast/check.hpp"

namespace {

using holdfast::Region;
using holdfast::bench::kCheckWords;
using Json = nlohmann::json;

// Ends a check once its program was recorded: what follows is not measured here.
struct Measured {};

// The seconds of `work` while it is recorded.
double recorded_seconds(const std::function<void(Region&, holdfast::Stream&)>& work) {
  double seconds = 0;
  holdfast::check::Program program;
  program.name = "recorder";
  program.set_up = [](Region& region) {
    region.allocate<std::uint64_t>("in", kCheckWords);
    region.allocate<std::uint64_t>("out", kCheckWords);
  };
  program.run = [&](Region& region, holdfast::check::Session&) {
    holdfast::Stream stream;
    seconds = bench::seconds([&] {
      work(region, stream);
      stream.synchronize();
    });
    throw Measured();  // NOLINT(bugprone-std-exception-baseclass): no error of the program
  };
  program.recover = [](Region&) {};
  program.verify = [](Region&, const holdfast::check::History&, std::uint64_t) { return ""; };
  try {
    holdfast::check::check(program);
  } catch (const Measured&) {
  }
  return seconds;
}

void recorder(std::uint64_t repeat) {
  constexpr unsigned kThreads = 64, kCount = 4'000, kStores = 400;
  const auto print = [&](const char* what, double events, const auto& work) {
    std::vector<double> runs;
    runs.reserve(repeat);
    for (std::uint64_t i = 0; i < repeat; ++i) runs.push_back(recorded_seconds(work));
    bench::Line("check_recorder")
        .text("what", what)
        .number("ns", 1e9 * bench::median(runs) / events)
        .count("repeats", repeat)
        .print();
  };
  holdfast::DeviceBuffer<std::uint64_t> a(kCheckWords), b(kCheckWords);
  const std::uint64_t* const from = a.data();
  print("access to device memory", 2.0 * kCount * kThreads, [&](Region&, holdfast::Stream& stream) {
    launch(stream, 1, kThreads, holdfast::bench::copy_words, kCount, from, b.data());
  });
  print("access to the region", 2.0 * kCount * kThreads, [&](Region& region, auto& stream) {
    const std::uint64_t* const in = region.find<std::uint64_t>("in").data();
    launch(stream, 1, kThreads, holdfast::bench::copy_words, kCount, in,
           region.find<std::uint64_t>("out").data());
  });
  print("store to the region and persist()", 1.0 * kStores * kThreads,
        [&](Region& region, auto& stream) {
          launch(stream, 1, kThreads, holdfast::bench::store_and_persist, kStores,
                 region.find<std::uint64_t>("out").data());
        });
}

std::string tool() {
  const auto own = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto path = own.parent_path() / "tools" / "check" / "holdfast-check";
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error(path.string() + " is not there: build holdfast-check");
  }
  return path.string();
}

// What holdfast-check prints with these arguments. Its exit status may be that of a failure.
Json ask(const std::string& arguments) {
  const std::string command = tool() + " " + arguments + " --json 2>/dev/null";
  FILE* const pipe = ::popen(command.c_str(), "r");  // NOLINT(bugprone-command-processor)
  if (pipe == nullptr) throw std::runtime_error("popen failed: " + command);
  std::string text;
  std::array<char, 65536> buffer;
  for (std::size_t count; (count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), count);
  }
  ::pclose(pipe);
  Json answer = Json::parse(text, nullptr, false);
  if (answer.is_discarded() || answer.contains("error")) {
    throw std::runtime_error(command + " printed " + text);
  }
  return answer;
}

void litmus(std::uint64_t repeat) {
  Json answer;
  std::vector<double> runs;
  runs.reserve(repeat);
  for (std::uint64_t i = 0; i < repeat; ++i) {
    runs.push_back(bench::seconds([&] { answer = ask("litmus " HOLDFAST_LITMUS_FOLDER); }));
  }
  bench::Line("check_litmus")
      .count("tests", answer["tests"])
      .count("runs", answer["runs"])
      .count("failures", answer["failures"])
      .number("seconds", bench::median(runs))
      .count("repeats", repeat)
      .print();
}

// The states of one schedule, under one model.
void print_growth(const char* benchmark, const std::string& program, std::uint64_t threads,
                  std::uint64_t persists, std::uint64_t jobs, double limit,
                  const std::string& model = "sbrp") {
  std::string arguments = program + " --threads " + std::to_string(threads) + " --jobs " +
                          std::to_string(jobs) + " --model " + model +
                          " --schedules 0 --max-states 1000000000 --max-seconds " +
                          std::to_string(limit);
  if (persists != 0) arguments += " --persists " + std::to_string(persists);
  Json report;
  const double wall = bench::seconds([&] { report = ask(arguments); });
  const auto states = report["states"].get<double>();
  bench::Line line(benchmark);
  line.text("program", program).text("model", model).count("threads", threads).count("jobs", jobs);
  if (persists != 0) line.count("persists_per_thread", persists);
  line.count("persists", report["persists"])
      .text("verdict", report["verdict"])
      .text("rung", report["rung"])
      .count("complete", report["complete"].get<bool>() && report["nested_complete"].get<bool>())
      .count("states", report["states"])
      .count("nested_states", report["nested_states"])
      .count("recoveries", report["runs"])
      .count("known_without", report["memoised"])
      .number("seconds", wall)
      .number("limit_seconds", limit)
      .number("states_per_minute", 60 * states / wall)
      .number("mib", report["peak_bytes"].get<double>() / (1 << 20))
      .print();
}

// Threads that add to one word, in all orders, and the crash states of each, under both models.
void schedules(unsigned threads, unsigned each, double limit) {
  holdfast::check::Program program;
  program.name = "counters";
  program.set_up = [](Region& region) { region.allocate<std::uint64_t>("out", 64); };
  program.run = [&](Region& region, holdfast::check::Session& session) {
    holdfast::Stream stream;
    const holdfast::DeviceBuffer<std::uint32_t> word(1);
    fill_async(stream, word.data(), 0, sizeof(std::uint32_t));
    session.start();
    launch(stream, 1, threads, holdfast::bench::count_together, each, word.data(),
           region.find<std::uint64_t>("out").data());
    stream.synchronize();
    session.acknowledge();
  };
  program.recover = [](Region&) {};
  program.verify = [&](Region& region, const holdfast::check::History& history, std::uint64_t) {
    std::uint64_t most = 0;
    const auto out = region.find<std::uint64_t>("out");
    for (unsigned i = 0; i < threads; ++i) most = std::max(most, holdfast::check::read(&out[i]));
    return history.acknowledged == 1 && most != std::uint64_t{threads} * each ? "nobody was last"
                                                                              : "";
  };
  holdfast::check::Options options;
  options.schedules = 1'000'000'000;
  options.max_seconds = limit;
  holdfast::check::Report report;
  const double wall = bench::seconds([&] { report = holdfast::check::check(program, options); });
  bench::Line("check_schedules")
      .count("threads", threads)
      .count("each", each)
      .text("verdict", to_string(report.verdict))
      .count("schedules", report.schedules)
      .count("complete", report.schedules_complete)
      .number("share", report.schedules_share)
      .count("states", report.states)
      .number("seconds", wall)
      .number("limit_seconds", limit)
      .print();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, {{"seconds", 20}, {"repeat", 5}, {"threads", 1024}});
  try {
    recorder(options["repeat"]);
    litmus(options["repeat"]);
    const auto limit = static_cast<double>(options["seconds"]);
    schedules(3, 4, limit);
    schedules(4, 2, limit);
    schedules(4, 4, 10);
    for (const std::uint64_t jobs : {1, 2}) {
      for (const char* model : {"sbrp", "epoch"}) {
        print_growth("check_states", "gpkvs_set", 64, 0, jobs, limit, model);
      }
    }
    for (const char* program : {"append", "undo_log", "gpkvs_set"}) {
      for (std::uint64_t threads = 2; threads <= options["threads"]; threads *= 2) {
        print_growth("check_threads", program, threads, 0, 1, limit);
      }
    }
    for (std::uint64_t persists = 1; persists <= 64; persists *= 2) {
      print_growth("check_persists", "undo_log", 8, persists, 1, limit);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "check_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

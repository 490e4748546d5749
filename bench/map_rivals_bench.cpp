// A persistent map's rivals under one workload: batch after batch of operations whose keys and
// values are in device memory. What a batch is made of is drawn, and what comes back is checked,
// outside of the time that is taken.
//
//   map_rivals_bench [--contestants=NAME,...] [--workload=NAME] [--distribution=NAME]
//       [--keys=N] [--operations=N] [--batch=N] [--key_bytes=8|32] [--ordered=0|1|2] [--log=0|1]
//       [--theta_percent=N] [--threads=N] [--seed=N] [--seconds=N] [--first_keys=N] [--curve=0|1]
//
// Workloads are YCSB's load, a, b, c, d and f; search-present, search-absent, insert, update and
// erase; dlrm and pagerank, fitted to the files of $HOLDFAST_DATA where it has them. Distributions,
// of YCSB's: uniform, zipf (Zipf's itself), scrambled (YCSB's own). --ordered: batches in the order
// of addresses, 2 for both. --log=0: SlabHash-GPM without its log, to see what that takes.
// --seconds ends a run early; the line says how many operations there were. --curve=1: of a load,
// the keys for each place behind each batch; --first_keys: how many keys the first levels of Clevel
// are made for.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "bench.hpp"
#include "holdfast/region.hpp"
#include "map/batches.hpp"
#include "map/contestant.hpp"

namespace {

using maps::Contestant;
using maps::Phases;

constexpr std::uint32_t kLoadBatch = 1 << 18;

struct Words {
  std::vector<std::string> contestants;
  std::string workload, distribution;
};

// A folder for a contestant's region, which goes with it.
class Folder {
 public:
  Folder() {
    std::string pattern = "/tmp/holdfast-bench-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed in /tmp");
    path_ = pattern;
  }
  ~Folder() {
    try {
      if (std::filesystem::exists(region())) holdfast::Region::destroy(region());
    } catch (const holdfast::Error& error) {
      std::fprintf(stderr, "map_rivals_bench: %s\n", error.what());
    }
    ::rmdir(path_.c_str());
  }
  std::string region() const { return path_ + "/region"; }

 private:
  std::string path_;
};

struct Result {
  std::vector<double> batch_seconds;
  Phases phases;  // of all batches
  maps::Answers answers;
  std::vector<double> load_factors;  // behind each batch
  std::uint64_t operations = 0;
  double seconds = 0;
};

struct Run {
  Contestant& contestant;
  maps::BatchRoom& room;
  workload::Team& team;
  std::uint64_t done = 0;  // operations
};

void add(Result& result, const Phases& phases, double seconds, const maps::Answers& answers) {
  result.batch_seconds.push_back(seconds);
  result.seconds += seconds;
  for (const auto part :
       {&Phases::order, &Phases::to_cpu, &Phases::to_gpu, &Phases::operations, &Phases::commit}) {
    result.phases.*part += phases.*part;
  }
  result.answers.absent += answers.absent;
  result.answers.present += answers.present;
  result.answers.failed += answers.failed;
  result.answers.wrong += answers.wrong;
}

Result carry_out(Run& run, maps::Source& source, std::uint64_t operations, std::uint32_t batch,
                 double most_seconds, bool curve) {
  Result result;
  std::uint64_t there = 0;
  while (result.operations < operations && result.seconds < most_seconds) {
    std::vector<maps::Request> requests(
        std::min<std::uint64_t>(batch, operations - result.operations));
    source.next(run.team, requests);
    const maps::Batch made = run.room.make(requests, run.done);
    Phases phases;
    const double seconds = bench::seconds([&] { phases = run.contestant.run(made); });
    const maps::Answers answers = run.room.check();
    add(result, phases, seconds, answers);
    run.done += requests.size();
    result.operations += requests.size();
    there += answers.absent;
    if (curve) {
      result.load_factors.push_back(static_cast<double>(there) /
                                    static_cast<double>(run.contestant.places()));
    }
    if (answers.wrong != 0) throw std::runtime_error("a value came back torn, or another key's");
  }
  return result;
}

std::unique_ptr<maps::Source> source_of(const Words& words, const bench::Options& options,
                                        std::string& from) {
  const char* const data = std::getenv("HOLDFAST_DATA");
  const std::string folder = data != nullptr ? data : "";
  if (words.workload == "dlrm") {
    const maps::DlrmFit fit = maps::fit_dlrm_in(folder);
    from = fit.from;
    return maps::make_dlrm(fit, options["keys"], options["seed"]);
  }
  if (words.workload == "pagerank") {
    const maps::PageRankFit fit = maps::fit_pagerank_in(folder);
    from = fit.from;
    return maps::make_pagerank(fit, options["keys"], options["seed"]);
  }
  maps::YcsbOptions ycsb;
  ycsb.mix = maps::mix_of(words.workload);
  ycsb.distribution = maps::distribution_of(words.distribution);
  ycsb.theta = static_cast<double>(options["theta_percent"]) / 100;
  ycsb.keys = options["keys"];
  ycsb.seed = options["seed"];
  from = words.distribution;
  return maps::make_ycsb(ycsb);
}

void print(const Words& words, const bench::Options& options, const maps::Promise& promise,
           const std::string& from, const Result& load, const Result& result, double load_factor) {
  const double batches = static_cast<double>(result.batch_seconds.size());
  std::vector<double> sorted = result.batch_seconds;
  std::sort(sorted.begin(), sorted.end());
  bench::Line line("map_rival");
  line.text("contestant", promise.contestant)
      .text("form", promise.form)
      .text("rung", promise.rung)
      .text("atomic", promise.atomic)
      .text("guarantee", promise.guarantee)
      .count("cpu_threads", promise.cpu_threads)
      .text("workload", words.workload)
      .text("drawn_from", from)
      .count("key_bytes", options["key_bytes"])
      .count("value_bytes", maps::kValueBytes)
      .count("keys", options["keys"])
      .count("operations", result.operations)
      .count("batch", options["batch"])
      .number("million_operations_per_s", result.operations / result.seconds / 1e6)
      .number("batch_us", bench::median(result.batch_seconds) * 1e6)
      .number("batch_p99_us", sorted[sorted.size() * 99 / 100] * 1e6)
      .number("order_us", result.phases.order / batches * 1e6)
      .number("to_cpu_us", result.phases.to_cpu / batches * 1e6)
      .number("operations_us", result.phases.operations / batches * 1e6)
      .number("to_gpu_us", result.phases.to_gpu / batches * 1e6)
      .number("commit_us", result.phases.commit / batches * 1e6)
      .number("load_factor", load_factor)
      .count("there", result.answers.present)
      .count("not_there", result.answers.absent)
      .count("no_room", load.answers.failed + result.answers.failed);
  if (load.seconds > 0) {
    line.number("million_loads_per_s", load.operations / load.seconds / 1e6);
  }
  if (!result.load_factors.empty()) line.numbers("load_factors", result.load_factors);
  line.print();
}

void measure(const Words& words, const bench::Options& options, const maps::Offer& offer,
             bool ordered) {
  std::string from;
  const auto source = source_of(words, options, from);
  const bool loads = source->keys() != 0;
  const auto batch = static_cast<std::uint32_t>(options["batch"]);
  const std::uint64_t operations =
      loads || options["operations"] != 0 ? options["operations"] : options["keys"];
  const Folder folder;
  maps::Setting setting;
  setting.key_bytes = static_cast<std::uint32_t>(options["key_bytes"]);
  setting.keys = source->most_keys(operations);
  setting.batch = loads ? std::max(batch, kLoadBatch) : batch;
  setting.ordered = ordered;
  setting.path = folder.region();
  setting.threads = static_cast<unsigned>(options["threads"]);
  setting.first_keys = options["first_keys"];
  setting.log = options["log"] != 0;
  workload::Team team(std::max(setting.threads, 1u));
  const auto contestant = offer.make(setting);
  maps::BatchRoom room(setting.key_bytes, setting.batch);
  Run run{*contestant, room, team};
  Result load;
  if (loads) {
    maps::YcsbOptions all;
    all.mix = maps::Mix::load;
    const auto loader = maps::make_ycsb(all);
    load = carry_out(run, *loader, source->keys(), setting.batch, 1e9, false);
  }
  const Result result = carry_out(run, *source, operations, batch,
                                  static_cast<double>(options["seconds"]), options["curve"] != 0);
  if (result.operations == 0) throw std::invalid_argument("--operations=0: give one or more");
  const double there = static_cast<double>(loads ? load.answers.absent : result.answers.absent);
  print(words, options, contestant->promise(), from, load, result,
        there / static_cast<double>(contestant->places()));
}

void run(const Words& words, const bench::Options& options) {
  for (const std::string& name : words.contestants) {
    const auto& all = maps::offers();
    const auto offer = std::find_if(all.begin(), all.end(),
                                    [&](const maps::Offer& one) { return name == one.name; });
    if (offer == all.end())
      throw std::invalid_argument("--contestants: there is no '" + name + "'");
    for (const bool ordered : {false, true}) {
      if (options["ordered"] == (ordered ? 0 : 1)) continue;
      measure(words, options, *offer, ordered);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<char*> arguments(argv, argv + argc);
    Words words;
    words.workload = bench::take_text(arguments, "workload").value_or("c");
    words.distribution = bench::take_text(arguments, "distribution").value_or("zipf");
    if (const auto names = bench::take_text(arguments, "contestants")) {
      words.contestants = bench::words_of(*names);
    } else {
      for (const maps::Offer& offer : maps::offers()) words.contestants.push_back(offer.name);
    }
    const bench::Options options(static_cast<int>(arguments.size()), arguments.data(),
                                 {{"keys", 1 << 14},
                                  {"operations", 1 << 15},
                                  {"batch", 1 << 12},
                                  {"key_bytes", 8},
                                  {"ordered", 2},
                                  {"log", 1},
                                  {"theta_percent", 99},
                                  {"threads", 16},
                                  {"seed", 1},
                                  {"seconds", 600},
                                  {"first_keys", 0},
                                  {"curve", 0}});
    run(words, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "map_rivals_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

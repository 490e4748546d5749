// A persistent map's rivals under workloads: batch after batch of operations whose keys and
// values are in device memory. What a batch is made of is drawn, and what comes back is checked,
// outside of the time that is taken.
//
//   map_rivals_bench [--contestants=NAME,...] [--workloads=NAME,...] [--distribution=NAME]
//       [--batches=N,...] [--thetas=T,...] [--keys=N] [--operations=N] [--key_bytes=8|16|32|64|128]
//       [--ordered=0|1|2] [--log=0|1] [--threads=N] [--seed=N] [--seconds=N] [--first_keys=N]
//       [--curve=0|1]
//
// Workloads are YCSB's load, a, b, c, d and f; search-present, search-absent, insert, update and
// erase; dlrm and pagerank, fitted to the files of $HOLDFAST_DATA where it has them. Those that
// leave the same keys there run on one map, one behind the other; the others each on one of their
// own. Distributions, of YCSB's: uniform, zipf (Zipf's itself), scrambled (YCSB's own; d's "latest"
// is Zipf's then). --thetas are Zipf's (0.99).
// --ordered: batches in the order of addresses, 2 for both. --log=0: SlabHash-GPM without its log,
// to see what that takes. --seconds ends a run early; the line says how many operations there were.
// --curve=1: of a load, the keys for each place behind each batch; --first_keys: how many keys the
// first levels of those that grow are made for, Clevel's and ours.
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
  std::vector<std::string> contestants, workloads;
  std::string distribution;
  std::vector<std::uint32_t> batches;
  std::vector<double> thetas;
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

struct Drawn {
  std::unique_ptr<maps::Source> source;
  std::string from;  // of what distribution, or which file
  double theta = 0;  // of Zipf's, where it is one
};

Drawn draw(const std::string& workload, const std::string& distribution, double theta,
           const bench::Options& options) {
  const char* const data = std::getenv("HOLDFAST_DATA");
  const std::string folder = data != nullptr ? data : "";
  if (workload == "dlrm") {
    const maps::DlrmFit fit = maps::fit_dlrm_in(folder);
    return {maps::make_dlrm(fit, options["keys"], options["seed"]), fit.from};
  }
  if (workload == "pagerank") {
    const maps::PageRankFit fit = maps::fit_pagerank_in(folder);
    return {maps::make_pagerank(fit, options["keys"], options["seed"]), fit.from};
  }
  const bool latest = workload == "d" && distribution == "scrambled";
  const std::string name = latest ? "zipf" : distribution;
  maps::YcsbOptions ycsb;
  ycsb.mix = maps::mix_of(workload);
  ycsb.distribution = maps::distribution_of(name);
  ycsb.theta = theta;
  ycsb.keys = options["keys"];
  ycsb.seed = options["seed"];
  const bool drawn = workload != "load" && workload != "insert" && workload != "erase";
  if (!drawn) return {maps::make_ycsb(ycsb), "each key once"};
  return {maps::make_ycsb(ycsb), name, name == "uniform" ? 0 : ycsb.theta};
}

// A contestant and what is in it.
struct Loaded {
  Loaded(const maps::Offer& offer, const maps::Setting& given, std::uint64_t keys)
      : setting(with_path(given)),
        contestant(offer.make(setting)),
        room(setting.key_bytes, setting.batch),
        team(std::max(setting.threads, 1u)) {
    if (keys == 0) return;
    maps::YcsbOptions all;
    all.mix = maps::Mix::load;
    const auto source = maps::make_ycsb(all);
    Run run{*contestant, room, team, 0};
    load = carry_out(run, *source, keys, setting.batch, 1e9, false);
    done = run.done;
  }

  maps::Setting with_path(maps::Setting given) const {
    given.path = folder.region();
    return given;
  }

  Folder folder;  // goes last
  maps::Setting setting;
  std::unique_ptr<Contestant> contestant;
  maps::BatchRoom room;
  workload::Team team;
  Result load;
  std::uint64_t done = 0;  // operations
};

void print(const std::string& workload, const Drawn& drawn, const bench::Options& options,
           const Loaded& loaded, std::uint32_t batch, const Result& result) {
  const maps::Promise& promise = loaded.contestant->promise();
  const double batches = static_cast<double>(result.batch_seconds.size());
  std::vector<double> sorted = result.batch_seconds;
  std::sort(sorted.begin(), sorted.end());
  const auto us = [batches](double seconds) { return seconds / batches * 1e6; };
  bench::Line line("map_rival");
  line.text("contestant", promise.contestant)
      .text("form", promise.form)
      .text("rung", promise.rung)
      .text("atomic", promise.atomic)
      .text("guarantee", promise.guarantee)
      .count("cpu_threads", promise.cpu_threads)
      .text("workload", workload)
      .text("drawn_from", drawn.from)
      .number("theta", drawn.theta)
      .count("key_bytes", loaded.setting.key_bytes)
      .count("value_bytes", maps::kValueBytes)
      .count("keys", options["keys"])
      .count("operations", result.operations)
      .count("batch", batch)
      .number("million_operations_per_s",
              static_cast<double>(result.operations) / result.seconds / 1e6)
      .number("batch_us", bench::median(sorted) * 1e6)
      .number("batch_p99_us", sorted[sorted.size() * 99 / 100] * 1e6)
      .number("mean_us", us(result.seconds))
      .number("order_us", us(result.phases.order))
      .number("to_cpu_us", us(result.phases.to_cpu))
      .number("operations_us", us(result.phases.operations))
      .number("to_gpu_us", us(result.phases.to_gpu))
      .number("commit_us", us(result.phases.commit))
      .count("places", loaded.contestant->places())
      .count("there", result.answers.present)
      .count("not_there", result.answers.absent)
      .count("no_room", loaded.load.answers.failed + result.answers.failed);
  if (loaded.load.seconds > 0) {
    line.number("million_loads_per_s",
                static_cast<double>(loaded.load.operations) / loaded.load.seconds / 1e6);
  }
  if (!result.load_factors.empty()) line.numbers("load_factors", result.load_factors);
  line.print();
}

maps::Setting setting_for(const Words& words, const bench::Options& options, bool ordered) {
  maps::Setting setting;
  setting.key_bytes = static_cast<std::uint32_t>(options["key_bytes"]);
  setting.batch = *std::max_element(words.batches.begin(), words.batches.end());
  for (const std::string& workload : words.workloads) {
    const auto source = draw(workload, words.distribution, words.thetas[0], options).source;
    setting.keys = std::max(setting.keys, source->most_keys(options["operations"]));
    if (source->keys() != 0) setting.batch = std::max(setting.batch, kLoadBatch);
  }
  setting.ordered = ordered;
  setting.threads = static_cast<unsigned>(options["threads"]);
  setting.first_keys = options["first_keys"];
  setting.log = options["log"] != 0;
  return setting;
}

// `loaded`: what the one before has left, if its keys are still there.
void measure_one(std::unique_ptr<Loaded>& loaded, const maps::Offer& offer,
                 const maps::Setting& setting, const std::string& workload, const Drawn& drawn,
                 const bench::Options& options, std::uint32_t batch) {
  if (!loaded || loaded->load.operations != drawn.source->keys()) {
    loaded.reset();  // the memory of the one before
    loaded = std::make_unique<Loaded>(offer, setting, drawn.source->keys());
  }
  Run run{*loaded->contestant, loaded->room, loaded->team, loaded->done};
  const Result result = carry_out(run, *drawn.source, options["operations"], batch,
                                  static_cast<double>(options["seconds"]), options["curve"] != 0);
  loaded->done = run.done;
  print(workload, drawn, options, *loaded, batch, result);
  if (!drawn.source->keeps_keys()) loaded.reset();
}

void measure(const Words& words, const bench::Options& options, const maps::Offer& offer,
             bool ordered) {
  const maps::Setting setting = setting_for(words, options, ordered);
  std::unique_ptr<Loaded> loaded;
  for (const std::string& workload : words.workloads) {
    for (const double theta : words.thetas) {
      for (const std::uint32_t batch : words.batches) {
        measure_one(loaded, offer, setting, workload,
                    draw(workload, words.distribution, theta, options), options, batch);
      }
    }
  }
}

void run(const Words& words, const bench::Options& options) {
  if (options["operations"] == 0 || options["keys"] == 0) {
    throw std::invalid_argument("--operations and --keys: give one or more");
  }
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

std::vector<double> thetas_of(const std::string& list) {
  std::vector<double> thetas;
  for (const std::string& word : bench::words_of(list)) {
    char* end = nullptr;
    thetas.push_back(std::strtod(word.c_str(), &end));
    if (word.empty() || *end != '\0') {
      throw std::invalid_argument("--thetas: '" + word + "' is no number");
    }
  }
  return thetas;
}

Words take_words(std::vector<char*>& arguments) {
  Words words;
  const auto list = [&](const char* name, const char* otherwise) {
    return bench::take_text(arguments, name).value_or(otherwise);
  };
  std::string all;
  for (const maps::Offer& offer : maps::offers()) {
    all += (all.empty() ? "" : ",") + std::string(offer.name);
  }
  words.contestants = bench::words_of(list("contestants", all.c_str()));
  words.workloads = bench::words_of(list("workloads", "c,a"));
  words.distribution = list("distribution", "zipf");
  words.batches = bench::batches_of(list("batches", "4096"));
  words.thetas = thetas_of(list("thetas", "0.99"));
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<char*> arguments(argv, argv + argc);
    const Words words = take_words(arguments);
    const bench::Options options(static_cast<int>(arguments.size()), arguments.data(),
                                 {{"keys", 1 << 13},
                                  {"operations", 1 << 13},
                                  {"key_bytes", 8},
                                  {"ordered", 2},
                                  {"log", 1},
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

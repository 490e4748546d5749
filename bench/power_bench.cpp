// Batches of SETs made durable on a disk: our key-value store at the process rung (the batch alone)
// and at the power rung (batches, then a commit), beside CAP with fsync and RocksDB with its log
// synced, on the same disk; and beside a plain stream of as many bytes, which is the bound.
//
//   power_bench [--disk=FOLDER] [--batches=N,N,...] [--rocksdb=LIBRARY] [--table_mib=N] [--keys=N]
//       [--warm=N] [--repeat=N] [--seconds=N] [--threads=N]
//
// Batches are of 1, 1,024, 65,536 and 2,097,152 SETs of uniformly random keys (--keys: of a quarter
// of as many as the table has places), beginning with an empty store. Every system takes its turn
// in each round, --warm rounds unmeasured and then --repeat (ten times as many for small batches),
// of which none begins after --seconds. The disk is that of the working directory if none is named.
// Afterwards each is let go of as by the crash that it claims
// to survive, opened again, and compared with an oracle, pair by pair, before its line is printed.
#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "bench.hpp"
#include "power/comparison.hpp"

namespace {

struct Words {
  std::string disk = ".", rocksdb;
  std::vector<std::uint32_t> batches{1, 1024, 65'536, 2'097'152};
};

constexpr std::uint32_t kSmallBatch = 1024;
constexpr unsigned kSmallTimes = 10;

// Takes the options that are words out of the arguments.
Words take_words(std::vector<char*>& arguments) {
  Words words;
  if (const auto disk = bench::take_text(arguments, "disk"); disk && !disk->empty()) {
    words.disk = *disk;
  }
  words.rocksdb = bench::take_text(arguments, "rocksdb").value_or("");
  if (const auto batches = bench::take_text(arguments, "batches")) {
    words.batches = bench::batches_of(*batches);
  }
  return words;
}

// As the value of a line, which has no means to quote.
std::string plain_words(std::string words) {
  for (char& letter : words) {
    if (letter == '"' || letter == '\\' || static_cast<unsigned char>(letter) < ' ') letter = ' ';
  }
  return words;
}

std::vector<double> list_of(const std::vector<power::Turn>& turns, double power::Turn::*part) {
  std::vector<double> list(turns.size());
  std::transform(turns.begin(), turns.end(), list.begin(),
                 [part](const power::Turn& turn) { return turn.*part; });
  return list;
}

void print(const power::Plan& plan, const power::Result& result, const std::string& file_system) {
  const power::Promise& promise = result.promise;
  const unsigned batches = promise.batches_per_commit;
  const std::vector<double> totals = list_of(result.turns, &power::Turn::total_seconds);
  const double total = bench::median(totals);
  std::vector<double> bytes(result.turns.size());
  std::transform(result.turns.begin(), result.turns.end(), bytes.begin(),
                 [](const power::Turn& turn) { return static_cast<double>(turn.disk_bytes); });
  const bool on_disk = promise.rung == "power";
  const std::string disk = power::is_in_memory(file_system) ? "no disk" : "disk";
  bench::Line line("power_set");
  line.text("system", promise.system)
      .text("form", promise.form)
      .text("rung", promise.rung)
      .text("medium", on_disk ? disk + " (" + file_system + ")" : "dram")
      .text("atomic", promise.atomic)
      .text("guarantee", promise.guarantee)
      .text("recovery", promise.recovery)
      .count("table_bytes", plan.shape.table_bytes)
      .count("keys", plan.shape.keys)
      .count("batch", plan.shape.batch)
      .count("batches_per_commit", batches)
      .count("turns", result.turns.size())
      .count("batches", result.batches)
      .number("batch_ms",
              bench::median(list_of(result.turns, &power::Turn::batch_seconds)) * 1e3 / batches)
      .number("commit_ms", bench::median(list_of(result.turns, &power::Turn::commit_seconds)) * 1e3)
      .number("total_ms", total * 1e3)
      .number("worst_total_ms", *std::max_element(totals.begin(), totals.end()) * 1e3)
      .number("ms_per_batch", total * 1e3 / batches)
      .number("million_sets_per_s", plan.shape.batch * batches / total / 1e6)
      .count("disk_bytes", static_cast<std::uint64_t>(bench::median(bytes)))
      .count("system_write_bytes", static_cast<std::uint64_t>(bench::median(result.system_bytes)))
      .count("cpu_threads", result.cpu_threads)
      .number("recovery_ms", result.recovered.seconds * 1e3)
      .count("verified_pairs", result.recovered.pairs)
      .count("evicted_keys", result.recovered.lost);
  if (!result.io.empty()) line.text("io", result.io);
  if (!result.plain_seconds.empty()) {
    const double bound = bench::median(result.plain_seconds);
    line.number("plain_ms", bound * 1e3).number("ratio_to_plain", total / bound);
  }
  line.print();
}

unsigned small_times(std::uint32_t batch) { return batch <= kSmallBatch ? kSmallTimes : 1; }

// Of RocksDB's systems that are there at once.
std::uint64_t rocksdb_sets(const Words& words, const bench::Options& options) {
  constexpr std::uint64_t kForms = 3;
  std::uint64_t most = 0;
  for (const std::uint32_t batch : words.batches) {
    const std::uint64_t turns = options["warm"] + options["repeat"] * small_times(batch);
    most = std::max(most, turns * batch * kForms);
  }
  return most;
}

void run(const Words& words, const bench::Options& options) {
  const power::ScratchFolder scratch(words.disk);
  const std::string file_system = power::file_system_of(scratch.path());
  power::Plan plan;
  plan.shape.table_bytes = options["table_mib"] << 20;
  plan.shape.keys = options["keys"] != 0 ? options["keys"] : plan.shape.capacity() / 4;
  plan.folder = scratch.path();
  plan.warm = static_cast<unsigned>(options["warm"]);
  plan.seconds = static_cast<double>(options["seconds"]);
  plan.threads = static_cast<unsigned>(options["threads"]);
  if (plan.threads == 0) plan.threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  for (const std::uint32_t batch : words.batches) {
    plan.shape.batch = batch;
    power::check_shape(plan.shape);
  }
  const std::string lack = power::load_rocksdb(words.rocksdb);
  plan.rocksdb = lack.empty();
  if (!lack.empty() && !words.rocksdb.empty()) {
    throw std::invalid_argument("--rocksdb=" + words.rocksdb + ": " + lack);
  }
  bench::Line rival("power_rocksdb");
  if (plan.rocksdb) {
    rival.text("version", power::rocksdb_version()).print();
    power::set_rocksdb_memory_aside(rocksdb_sets(words, options));
  } else {
    rival.text("not_there", plain_words(lack)).print();
  }
  for (const std::uint32_t batch : words.batches) {
    plan.shape.batch = batch;
    plan.repeat = static_cast<unsigned>(options["repeat"]) * small_times(batch);
    power::compare_systems(plan,
                           [&](const power::Result& result) { print(plan, result, file_system); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<char*> arguments(argv, argv + argc);
    const Words words = take_words(arguments);
    const bench::Options options(static_cast<int>(arguments.size()), arguments.data(),
                                 {{"table_mib", 1024},
                                  {"keys", 0},
                                  {"warm", 3},
                                  {"repeat", 5},
                                  {"seconds", 60},
                                  {"threads", 0}});
    run(words, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "power_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

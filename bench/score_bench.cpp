// Histories against their rivals: the shots of Score (HPDC '23), section 5.
//
//   score_bench [--option=value ...] [CELL ...]
//
// A CELL is one shot: STORE/SIZES/ORDER/HINTS/WAIT, then what differs from the defaults, for
// example history/variable/irregular/all/nowait/interval_us=20000. STORE: history, pager, buffers.
// SIZES: uniform, variable. ORDER: sequential, reverse, irregular. HINTS: none, single, all.
// WAIT (for the flushes, before the backward pass): wait, nowait. More: coupled=1, interval_us=N,
// gpu_bytes=N, host_bytes=N. Or one of: copies, together, host, eviction, slowdown (costs.hpp);
// schedule, which prints each rank's sizes and every order, for programs that run the same shots.
// (`lend` is what copies starts this program anew with, as a partner whose GPU has the copies.)
//
// Defaults are a small size, of which a result says nothing but that the program works. A line of
// JSON for each cell and rank; exit status 1 if a store fails or gives back a wrong byte.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench.hpp"
#include "holdfast/error.hpp"
#include "score/costs.hpp"
#include "score/lender.hpp"
#include "score/ranks.hpp"
#include "score/shot.hpp"

namespace {

using score::Cell;
using score::Settings;
using score::ShotResult;

[[noreturn]] void refuse(const std::string& why) {
  throw holdfast::Error(holdfast::Errc::invalid_argument, why);
}

struct Arguments {
  Settings settings;
  Cell defaults;
  unsigned ranks = 1, gpus = 0;
  std::uint64_t seconds = 0;  // no cell begins later; 0: no limit
  std::vector<std::string> cells;
};

std::uint64_t number(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 0);
  if (text.empty() || *end != '\0' || text[0] == '-') refuse(name + "=" + text + ": not a number");
  return value;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> words{""};
  for (const char c : text) {
    if (c == at) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

template <class Value>
Value named(const std::string& word, std::initializer_list<Value> values) {
  std::string known;
  for (const Value value : values) {
    if (word == to_string(value)) return value;
    known += std::string(known.empty() ? "" : ", ") + to_string(value);
  }
  refuse("'" + word + "': choose of " + known);
}

bool set(Cell& cell, const std::string& name, const std::string& value) {
  if (name == "interval_us") {
    cell.interval_us = number(name, value);
  } else if (name == "gpu_bytes") {
    cell.gpu_bytes = number(name, value);
  } else if (name == "host_bytes") {
    cell.host_bytes = number(name, value);
  } else if (name == "coupled") {
    cell.coupled = number(name, value) != 0;
  } else {
    return false;
  }
  return true;
}

bool set(Arguments& arguments, const std::string& name, const std::string& value) {
  Settings& settings = arguments.settings;
  if (name == "snapshots") {
    settings.snapshots = number(name, value);
  } else if (name == "bytes") {
    settings.bytes = number(name, value);
  } else if (name == "page_bytes") {
    settings.page_bytes = number(name, value);
  } else if (name == "seed") {
    settings.seed = number(name, value);
  } else if (name == "disk") {
    settings.disk = value;
  } else if (name == "compute") {
    if (value != "sleep" && value != "kernel") refuse("compute: sleep or kernel");
    settings.compute = value == "sleep" ? score::Compute::sleep : score::Compute::kernel;
  } else if (name == "ranks") {
    arguments.ranks = static_cast<unsigned>(std::clamp<std::uint64_t>(number(name, value), 1, 64));
  } else if (name == "gpus") {
    arguments.gpus = static_cast<unsigned>(std::clamp<std::uint64_t>(number(name, value), 1, 64));
  } else if (name == "seconds") {
    arguments.seconds = number(name, value);
  } else {
    return set(arguments.defaults, name, value);
  }
  return true;
}

Cell parse_cell(const std::string& text, const Cell& defaults) {
  const std::vector<std::string> words = split(text, '/');
  if (words.size() < 5) refuse("'" + text + "': a cell is STORE/SIZES/ORDER/HINTS/WAIT");
  Cell cell = defaults;
  cell.text = text;
  cell.store = words[0];
  cell.sizes = named(words[1], {score::Sizes::uniform, score::Sizes::variable});
  cell.order =
      named(words[2], {score::Order::sequential, score::Order::reverse, score::Order::irregular});
  cell.hints = named(words[3], {score::Hints::none, score::Hints::single, score::Hints::all});
  if (words[4] != "wait" && words[4] != "nowait") refuse("'" + words[4] + "': wait or nowait");
  cell.wait = words[4] == "wait";
  for (std::size_t i = 5; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals == std::string::npos ||
        !set(cell, words[i].substr(0, equals), words[i].substr(equals + 1))) {
      refuse("'" + words[i] + "' in '" + text + "': no such setting of a cell");
    }
  }
  return cell;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  arguments.settings.snapshots = 48;
  arguments.settings.bytes = 1u << 20;
  arguments.settings.page_bytes = 1u << 16;
  arguments.settings.disk = ".";
  arguments.defaults.interval_us = 1000;
  arguments.defaults.gpu_bytes = 4u << 20;
  arguments.defaults.host_bytes = 32u << 20;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text.rfind("--", 0) != 0) {
      arguments.cells.push_back(text);
      continue;
    }
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos ||
        !set(arguments, text.substr(2, equals - 2), text.substr(equals + 1))) {
      refuse(text + ": no such option: see the head of score_bench.cpp");
    }
  }
  if (arguments.settings.snapshots == 0 || arguments.settings.bytes < 4096 ||
      arguments.settings.page_bytes < 4096 || arguments.settings.page_bytes % 4096 != 0) {
    refuse("there must be a snapshot, of 4096 bytes at least, and pages of whole 4096 bytes");
  }
  if (arguments.gpus == 0) arguments.gpus = arguments.ranks;
  if (arguments.cells.empty()) {
    arguments.cells = {"history/variable/irregular/all/nowait",
                       "pager/variable/irregular/all/nowait",
                       "buffers/variable/irregular/all/nowait"};
  }
  return arguments;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

double quantile_us(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return 1e6 * values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

void print(const Cell& cell, const Settings& settings, const score::Ranks& ranks,
           const ShotResult& shot) {
  const auto gb = static_cast<double>(shot.bytes) / 1e9;
  std::vector<double> rates;
  rates.reserve(shot.restore_seconds.size());
  for (std::size_t i = 0; i < shot.restore_seconds.size(); ++i) {
    rates.push_back(shot.restored_bytes[i] / shot.restore_seconds[i] / 1e9);
  }
  const double restored = static_cast<double>(shot.bytes);
  const auto hit = [&](int tier) {
    return static_cast<double>(shot.counts.restored_bytes[tier]) / restored;
  };
  bench::Line line("score_shot");
  line.text("cell", cell.text)
      .text("store", cell.store)
      .text("sizes", to_string(cell.sizes))
      .text("order", to_string(cell.order))
      .text("hints", to_string(cell.hints))
      .count("wait", cell.wait)
      .count("coupled", cell.coupled)
      .count("rank", ranks.rank)
      .count("ranks", ranks.count)
      .count("snapshots", settings.snapshots)
      .count("bytes", shot.bytes)
      .count("gpu_bytes", cell.gpu_bytes)
      .count("host_bytes", cell.host_bytes)
      .count("interval_us", cell.interval_us)
      .text("compute", settings.compute == score::Compute::sleep ? "sleep" : "kernel")
      .count("seed", settings.seed)
      .number("save_seconds", sum(shot.save_seconds))
      .number("restore_seconds", sum(shot.restore_seconds))
      .number("save_gb_per_s", gb / sum(shot.save_seconds))
      .number("restore_gb_per_s", gb / sum(shot.restore_seconds))
      .number("init_seconds", shot.init_seconds)
      .number("forward_seconds", shot.forward_seconds)
      .number("drain_seconds", shot.drain_seconds)
      .number("backward_seconds", shot.backward_seconds)
      .number("close_seconds", shot.close_seconds)
      .number("gpu_hits", hit(0))
      .number("host_hits", hit(1))
      .number("disk_hits", hit(2))
      .count("fetched_to_gpu", shot.counts.fetched_bytes[0])
      .count("fetched_to_host", shot.counts.fetched_bytes[1])
      .count("waits", shot.counts.waits)
      .count("pinned_bytes", shot.counts.pinned_bytes)
      .number("save_call_median_us", quantile_us(shot.save_call_seconds, 0.5))
      .number("save_call_p99_us", quantile_us(shot.save_call_seconds, 0.99))
      .number("restore_call_median_us", quantile_us(shot.restore_call_seconds, 0.5))
      .number("restore_call_p99_us", quantile_us(shot.restore_call_seconds, 0.99))
      .number("save_median_us", quantile_us(shot.save_seconds, 0.5))
      .number("restore_median_us", quantile_us(shot.restore_seconds, 0.5))
      .count("verified", shot.restore_seconds.size())
      .numbers("restore_rates_gb_per_s", rates)
      .numbers("prefetch_distance", shot.ready)
      .print();
}

void print_schedule(const Arguments& arguments) {
  const Settings& settings = arguments.settings;
  const auto doubles = [](const std::vector<std::uint64_t>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  for (const auto sizes : {score::Sizes::uniform, score::Sizes::variable}) {
    for (unsigned rank = 0; rank < arguments.ranks; ++rank) {
      bench::Line("score_sizes")
          .text("sizes", to_string(sizes))
          .count("rank", rank)
          .numbers("bytes", doubles(score::snapshot_bytes(sizes, settings.snapshots, settings.bytes,
                                                          settings.seed, rank)))
          .print();
    }
  }
  for (const auto order :
       {score::Order::sequential, score::Order::reverse, score::Order::irregular}) {
    bench::Line("score_order")
        .text("order", to_string(order))
        .numbers("steps", doubles(score::restore_order(order, settings.snapshots, settings.seed)))
        .print();
  }
}

void run_cell(const std::string& text, const Arguments& arguments, score::Ranks& ranks) {
  const Settings& settings = arguments.settings;
  if (text == "lend") return score::lend(settings.disk, settings.bytes);
  if (text == "copies") return score::print_copies(settings);
  if (text == "together") return score::print_together(settings, ranks);
  if (text == "host") return score::print_host_costs(settings);
  if (text == "eviction") return score::print_eviction_costs(settings);
  if (text == "slowdown") return score::print_slowdown(settings);
  const Cell cell = parse_cell(text, arguments.defaults);
  const ShotResult shot = score::run_shot(cell, settings, ranks);
  ranks.in_turn([&] { print(cell, settings, ranks, shot); });
}

}  // namespace

int main(int argc, char** argv) try {
  const Arguments arguments = parse(argc, argv);
  if (arguments.cells == std::vector<std::string>{"schedule"}) {
    print_schedule(arguments);
    return 0;
  }
  return score::run_ranks(arguments.ranks, arguments.gpus, [&](score::Ranks& ranks) {
    const auto start = std::chrono::steady_clock::now();
    try {
      for (const std::string& cell : arguments.cells) {
        const auto ran = std::chrono::steady_clock::now() - start;
        const bool late = arguments.seconds > 0 && ran > std::chrono::seconds(arguments.seconds);
        if (ranks.any(late)) break;
        run_cell(cell, arguments, ranks);
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "score_bench: %s\n", error.what());
      return 1;
    }
    return 0;
  });
} catch (const std::exception& error) {
  std::fprintf(stderr, "score_bench: %s\n", error.what());
  return 2;
}

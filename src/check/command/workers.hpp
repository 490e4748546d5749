// Processes that share the work of a check, and the merging of what they report.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "check/command/report_json.hpp"

namespace holdfast::check {

// What the workers tell while they work, in memory that all of them share.
struct Progress {
  std::atomic<std::uint64_t> recoveries{0};
};

struct Answers {
  std::vector<Json> answers;      // of the workers that ended well, in their order
  std::vector<std::string> dead;  // what became of the others
};

// Runs `work(worker, workers, progress)` in `workers` processes of its own and collects what it
// returns. What it throws is thrown here. `title` names the work on a terminal's progress line.
// REQUIRES: this process has made no stream, region or kernel.
Answers run_workers(const std::string& title, unsigned workers,
                    const std::function<Json(unsigned worker, unsigned workers, Progress&)>& work);

// The whole of what the workers explored, each its share. REQUIRES: at least one report.
Report merge(const std::vector<Report>& reports);

// The workers' shares of mutants, by place.
std::vector<Mutant> merge(std::vector<std::vector<Mutant>> shares);

}  // namespace holdfast::check

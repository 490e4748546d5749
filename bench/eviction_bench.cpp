// What an eviction decision takes: the window is chosen and the new checkpoint placed in it, which
// erases those it evicts. The scores are looked up by step. One JSON object per line.
//
//   eviction_bench [--decisions=N] [--repeat=N]
//
// The tier stays full. With each decision time passes for one checkpoint: its score is drawn again.
// "now": everything can be evicted; "flushing": one in four waits for its flush; "all wait": the
// least wait is looked for, too.
#include <random>

#include "bench.hpp"
#include "history/eviction.hpp"

namespace {

using holdfast::history::AllocationTable;
using holdfast::history::Fragment;
using holdfast::history::kGap;
using holdfast::history::kUnhinted;
using holdfast::history::Score;
using holdfast::history::Step;

constexpr std::uint64_t kUnit = 4096;
constexpr std::uint64_t kMean = 1024;  // units of a checkpoint

enum class Waits { now, flushing, all };

const char* to_string(Waits waits) {
  switch (waits) {
    case Waits::now:
      return "now";
    case Waits::flushing:
      return "flushing";
    case Waits::all:
      return "all wait";
  }
  return "";
}

struct Setting {
  std::uint64_t checkpoints;  // of the mean size fill the tier
  bool uniform;               // all of the mean size
  Waits waits;
};

// A full tier and what comes to it. Steps are used again, so that scores are an array.
class Tier {
 public:
  explicit Tier(const Setting& setting)
      : setting_(setting), table_(setting.checkpoints * kMean * kUnit, kUnit) {
    for (std::uint64_t i = 0; i < 4 * setting.checkpoints; ++i) decide();
  }

  void decide() {
    const std::uint64_t bytes = size();
    const auto window = choose_window(
        table_.fragments(), bytes, [this](const Fragment& f) { return scores_[f.step]; }, memory_);
    for (std::size_t i = window->first; i < window->last; ++i) {
      const Step old = table_.fragments()[i].step;
      if (old != kGap) free_.push_back(old);
    }
    if (free_.empty()) {
      free_.push_back(scores_.size());
      scores_.emplace_back();
    }
    const Step step = free_.back();
    free_.pop_back();
    scores_[step] = score();
    scores_[random_() % scores_.size()] = score();
    table_.place(window->first, window->last, step, bytes, window->rest);
    fragments_ += table_.fragments().size();
    ++decisions_;
  }

  // The mean over the decisions since the last call.
  double fragments() {
    const double mean = static_cast<double>(fragments_) / static_cast<double>(decisions_);
    fragments_ = decisions_ = 0;
    return mean;
  }

 private:
  std::uint64_t size() {
    return setting_.uniform ? kMean * kUnit : (1 + random_() % (2 * kMean - 1)) * kUnit;
  }
  Score score() {
    Score score{0, random_() % (2 * setting_.checkpoints), random_() % 8 == 0};
    if (random_() % 8 == 0) score.distance = kUnhinted;
    if (setting_.waits == Waits::all || (setting_.waits == Waits::flushing && random_() % 4 == 0)) {
      score.wait = static_cast<double>(1 + random_() % 1000) / 1000;
    }
    return score;
  }

  const Setting setting_;
  AllocationTable table_;
  std::vector<Score> scores_;
  std::vector<Step> free_;
  std::vector<Score> memory_;
  std::mt19937_64 random_{1};
  std::uint64_t fragments_ = 0;
  std::uint64_t decisions_ = 0;
};

void measure(const Setting& setting, std::uint64_t decisions, std::uint64_t repeat) {
  Tier tier(setting);
  tier.fragments();
  std::vector<double> times;
  times.reserve(repeat);
  for (std::uint64_t i = 0; i < repeat; ++i) {
    times.push_back(bench::seconds([&] {
                      for (std::uint64_t n = 0; n < decisions; ++n) tier.decide();
                    }) /
                    static_cast<double>(decisions));
  }
  bench::Line("eviction")
      .number("fragments", tier.fragments())
      .text("sizes", setting.uniform ? "uniform" : "variable")
      .text("waits", to_string(setting.waits))
      .number("best_us", *std::min_element(times.begin(), times.end()) * 1e6)
      .number("median_us", bench::median(times) * 1e6)
      .print();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, {{"decisions", 1000}, {"repeat", 50}});
  if (options["decisions"] == 0 || options["repeat"] == 0) {
    std::fprintf(stderr, "eviction_bench: --decisions and --repeat are 1 or more\n");
    return 2;
  }
  for (const std::uint64_t fragments : {32, 256, 10'000}) {
    const std::uint64_t decisions = std::max<std::uint64_t>(
        1, fragments < 10'000 ? options["decisions"] : options["decisions"] / 50);
    for (const bool uniform : {true, false}) {
      // Where sizes vary there are gaps, too, and of the smaller ones more stay.
      const std::uint64_t checkpoints = uniform ? fragments : fragments * 7 / 10;
      for (const Waits waits : {Waits::now, Waits::flushing, Waits::all}) {
        measure({checkpoints, uniform, waits}, decisions, options["repeat"]);
      }
    }
  }
  return 0;
}

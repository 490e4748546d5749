// What an eviction decision takes: the window is chosen and the new checkpoint placed in it, which
// erases those it evicts. The scores are looked up by step. One JSON object per line.
//
//   eviction_bench [--decisions=N] [--repeat=N]
//
// The tier stays full. "now": everything can be evicted; "flushing": one in four waits for its
// flush; "waits": all do, so that the least wait is looked for, too.
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

struct Setting {
  std::uint64_t fragments;
  bool uniform;  // checkpoints of one size
  const char* waits;
};

// A full tier and what comes to it. Steps are used again, so that scores are an array.
class Tier {
 public:
  explicit Tier(const Setting& setting)
      : setting_(setting),
        table_(setting.fragments * kMean * kUnit, kUnit),
        scores_(4 * setting.fragments) {
    for (Step step = 0; step < scores_.size(); ++step) free_.push_back(step);
    for (std::uint64_t i = 0; i < 4 * setting.fragments; ++i) decide();
  }

  void decide() {
    const std::uint64_t bytes = size();
    const auto window = choose_window(table_.fragments(), bytes,
                                      [this](const Fragment& f) { return scores_[f.step]; });
    for (std::size_t i = window->first; i < window->last; ++i) {
      const Step old = table_.fragments()[i].step;
      if (old != kGap) free_.push_back(old);
    }
    const Step step = free_.back();
    free_.pop_back();
    scores_[step] = score();
    table_.place(window->first, window->last, step, bytes);
  }

  std::size_t fragments() const { return table_.fragments().size(); }

 private:
  std::uint64_t size() {
    return setting_.uniform ? kMean * kUnit : (1 + random_() % (2 * kMean - 1)) * kUnit;
  }
  Score score() {
    Score score{0, random_() % (2 * setting_.fragments), random_() % 8 == 0};
    if (random_() % 8 == 0) score.distance = kUnhinted;
    const bool flushing = setting_.waits[0] == 'f' && random_() % 4 == 0;
    if (flushing || setting_.waits[0] == 'w') {
      score.wait = static_cast<double>(1 + random_() % 1000) / 1000;
    }
    return score;
  }

  const Setting setting_;
  AllocationTable table_;
  std::vector<Score> scores_;
  std::vector<Step> free_;
  std::mt19937_64 random_{1};
};

void measure(const Setting& setting, std::uint64_t decisions, std::uint64_t repeat) {
  Tier tier(setting);
  std::vector<double> times;
  for (std::uint64_t i = 0; i < repeat; ++i) {
    times.push_back(bench::seconds([&] {
                      for (std::uint64_t n = 0; n < decisions; ++n) tier.decide();
                    }) /
                    static_cast<double>(decisions));
  }
  bench::Line("eviction")
      .count("checkpoints", setting.fragments)
      .count("fragments_at_end", tier.fragments())
      .text("sizes", setting.uniform ? "uniform" : "variable")
      .text("waits", setting.waits)
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
    for (const bool uniform : {true, false}) {
      for (const char* waits : {"now", "flushing", "waits"}) {
        const std::uint64_t decisions =
            fragments < 10'000 ? options["decisions"] : options["decisions"] / 20 + 1;
        measure({fragments, uniform, waits}, decisions, options["repeat"]);
      }
    }
  }
  return 0;
}

// The checker against brute force: random small programs, at every rung.
//
// An item of the verification says what it saw and finds nothing wrong. What the items saw over all
// states that the checker tried must be what they saw over all states that there are: if one is
// missing, there is a verification (the one that refuses just that) which the checker passes
// although a legal state fails it, and if there is one too many, it would report a failure that no
// crash can cause. So each program stands for all verifications with these items. On top, one of
// the rarest observations is refused: that failure has to be found, and has to fail when replayed.
//
// Both take one schedule of the program.
// SchedulesTest.ReducedSchedulesLeaveWhatAllInterleavingsLeave compares those that are explored
// with all interleavings.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "check/checker.hpp"
#include "check/fuzz/fuzz_brute.hpp"
#include "check/fuzz/fuzz_case.hpp"
#include "support/scratch.hpp"

namespace holdfast::test {
namespace {

using check::Checker;
using check::Report;
using check::Rung;
using check::Verdict;

// Crash states of a program, beyond which brute force leaves it alone.
constexpr std::uint64_t kMost = 20'000;

struct Tally {
  std::uint64_t programs = 0;
  std::uint64_t too_large = 0;
  std::uint64_t checks = 0;
  std::uint64_t components = 0;  // checks that decomposed the program
  std::uint64_t states = 0;      // by brute force
  std::uint64_t replays = 0;
};

double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

std::string text_of(const Observation& seen) {
  std::string text =
      detail::concat("item ", seen[0], ", ", seen[1], " started, ", seen[2], " acknowledged, read");
  for (std::size_t i = 3; i < seen.size(); ++i) text += detail::concat(" ", seen[i]);
  return text;
}

class Fuzzed {
 public:
  Fuzzed(std::uint64_t seed, Tally& tally)
      : random_(seed ^ 0x9e3779b97f4a7c15u),
        tally_(tally),
        fuzz_(std::make_shared<const FuzzCase>(generate(seed))) {
    options_.model = random_() % 3 == 0 ? check::Model::epoch : check::Model::sbrp;
    options_.schedule = random_() % 4 == 0 ? 1 + random_() % 100 : 0;
    options_.schedules = options_.recovery_schedules = 0;  // as brute force
    options_.max_states = 200'000;
    options_.races = false;
  }

  // What is wrong with the checker's word on this program, or an empty string.
  std::string compare() {
    {
      BruteForce brute(fuzz_, *options_.model, options_.schedule);
      const auto all = brute.explore(kMost);
      tally_.states += brute.states();
      if (!all) {
        ++tally_.too_large;
        return "";
      }
      all_ = *all;
    }
    ++tally_.programs;
    for (const Rung rung : {Rung::exhaustive, Rung::components, Rung::sampled}) {
      std::string wrong;
      try {
        wrong = compare_at(rung);
        if (wrong.empty()) wrong = refuse_one(rung);
      } catch (const std::exception& error) {
        wrong = detail::concat("throws: ", error.what());
      }
      if (!wrong.empty()) {
        return detail::concat("from rung ", to_string(rung), ", model ", to_string(*options_.model),
                              ", schedule ", options_.schedule, ": ", wrong, "\n",
                              to_string(*fuzz_));
      }
    }
    return "";
  }

 private:
  std::string compare_at(Rung rung) {
    std::set<Observation> seen;
    check::Options options = options_;
    if (rung == Rung::sampled) options.max_states = 300;
    options.workers = random_() % 8 == 0 ? 2 : 1;
    bool complete = true;
    for (options.worker = 0; options.worker < options.workers; ++options.worker) {
      const check::Program program = make_program(fuzz_, [&](const Observation& observation) {
        seen.insert(observation);
        return std::string();
      });
      Checker checker(program, options);
      checker.start_at(rung);
      const Report report = checker.check(false);
      ++tally_.checks;
      tally_.components += report.rung == Rung::components && report.models.at(0).components > 1;
      complete = complete && report.complete && report.nested_complete;
    }
    for (const Observation& one : seen) {
      if (all_.count(one) == 0) return "false alarm: no crash leaves " + text_of(one);
    }
    if (!complete) return rung == Rung::sampled ? "" : "it is small, and was not explored whole";
    for (const Observation& one : all_) {
      if (seen.count(one) == 0) return "missed, and called complete: " + text_of(one);
    }
    return "";
  }

  std::string refuse_one(Rung rung) {
    auto refused = all_.begin();
    std::advance(refused, static_cast<std::ptrdiff_t>(random_() % all_.size()));
    const check::Program program = make_program(fuzz_, [&](const Observation& observation) {
      return observation == *refused ? "refused: " + text_of(observation) : std::string();
    });
    check::Options options = options_;
    Report report;
    {
      Checker checker(program, options);
      checker.start_at(rung);
      report = checker.check(false);
    }
    ++tally_.checks;
    if (report.failures.empty()) {
      if (!report.complete || !report.nested_complete || rung == Rung::sampled) return "";
      return "passed, although a state fails: " + text_of(*refused);
    }
    const std::string& state = report.failures.at(0).state;
    ++tally_.replays;
    {
      BruteForce brute(fuzz_, *options.model, options.schedule);
      // Behind the names of the schedule and the model.
      if (brute.replay(state.substr(state.rfind('@') + 1)).count(*refused) == 0) {
        return detail::concat("state ", state, " does not fail: ", report.failures[0].message);
      }
    }
    options.replay = state;
    Checker checker(program, options);
    if (checker.replay(state).verdict != Verdict::failed) {
      return detail::concat("state ", state, " passes its own replay");
    }
    return "";
  }

  std::mt19937_64 random_;
  Tally& tally_;
  std::shared_ptr<const FuzzCase> fuzz_;
  check::Options options_;
  std::set<Observation> all_;
};

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

// Programs of which a state was missed. The first three: each by two workers that explored some
// groups each, and neither learnt that the groups were linked. The last: an atomic of recovery
// reads a copy of persistent words in device memory.
TEST(CheckerFuzzTest, SaysWhatBruteForceSaysOfWhatItOnceMissed) {
  Tally tally;
  for (const std::uint64_t seed :
       {157688941798624ull, 59330248785895ull, 161699352550207ull, 23976552946714ull}) {
    EXPECT_EQ(Fuzzed(seed, tally).compare(), "") << "program " << seed;
  }
}

// $HOLDFAST_FUZZ_SECONDS: for how long. $HOLDFAST_FUZZ_PROGRAM: the seed of one program, as a
// failure names it, which alone is tried and shown.
TEST(CheckerFuzzTest, SaysWhatBruteForceSays) {
  Tally tally;
  if (std::getenv("HOLDFAST_FUZZ_PROGRAM") != nullptr) {
    const std::uint64_t seed = number_from("HOLDFAST_FUZZ_PROGRAM", 0);
    std::printf("%s", to_string(generate(seed)).c_str());
    EXPECT_EQ(Fuzzed(seed, tally).compare(), "");
    return;
  }
  const std::uint64_t seconds = number_from("HOLDFAST_FUZZ_SECONDS", 15);
  std::mt19937_64 seeds(test_seed());
  const auto begun = std::chrono::steady_clock::now();
  auto shown = begun;
  while (seconds_since(begun) < static_cast<double>(seconds)) {
    const std::uint64_t seed = seeds() >> 16;
    const std::string wrong = Fuzzed(seed, tally).compare();
    if (!wrong.empty()) {
      FAIL() << "after " << seconds_since(begun) << " s and " << tally.programs
             << " programs; again: HOLDFAST_FUZZ_PROGRAM=" << seed << "\n"
             << wrong;
    }
    if (seconds_since(shown) < 60) continue;
    shown = std::chrono::steady_clock::now();
    std::printf("%.0f s: %llu programs\n", seconds_since(begun),
                static_cast<unsigned long long>(tally.programs));
    std::fflush(stdout);
  }
  std::printf(
      "%llu programs (%.1f a second; %llu too large), %llu checks, %llu of them by "
      "components; %llu crash states by brute force; %llu failures replayed\n",
      static_cast<unsigned long long>(tally.programs),
      static_cast<double>(tally.programs) / seconds_since(begun),
      static_cast<unsigned long long>(tally.too_large),
      static_cast<unsigned long long>(tally.checks),
      static_cast<unsigned long long>(tally.components),
      static_cast<unsigned long long>(tally.states),
      static_cast<unsigned long long>(tally.replays));
  EXPECT_GT(tally.programs, 0u);
}

}  // namespace
}  // namespace holdfast::test

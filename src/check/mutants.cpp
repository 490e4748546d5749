// Mutants: each single change of a program, checked.
#include <algorithm>
#include <new>
#include <utility>

#include "check/checker.hpp"

namespace holdfast::check {

namespace {

// Schedules that are explored of each mutant at most: those that kill one are among the first, and
// of the programs that are shipped ten times as many kill none besides (programs_test.cpp).
constexpr std::uint64_t kSchedules = 20;

// What the sizes that were tried so far say of one mutant.
struct Trials {
  Mutant mutant;
  bool all_passed = true;
  bool done = false;  // nothing that is tried now can say more
};

Trials* find(std::vector<Trials>& all, const Mutation& wanted) {
  const auto known = std::find_if(all.begin(), all.end(), [&](const Trials& trials) {
    return trials.mutant.mutation == wanted;
  });
  return known == all.end() ? nullptr : &*known;
}

Trials& find_or_add(std::vector<Trials>& all, const Checker::Target& target) {
  if (Trials* const known = find(all, target.mutation)) return *known;
  Trials& trials = all.emplace_back();
  trials.mutant.mutation = target.mutation;
  trials.mutant.place = target.place;
  trials.mutant.in_recovery = !target.in_run;
  return trials;
}

void kill(Trials& trials, Mutant::Killer killer, const std::string& sizes, std::uint64_t schedule) {
  Mutant& mutant = trials.mutant;
  mutant.fate = Mutant::Fate::killed;
  mutant.killer = killer;
  mutant.killed_at = sizes;
  mutant.schedule = schedule;
  // A race goes on: a state may fail, too.
  trials.done = killer != Mutant::Killer::race;
}

// One execution, and for the first seed those that are explored behind it. Returns whether other
// schedules may say more.
bool try_schedule(Checker& checker, Trials& trials, const std::string& sizes, std::uint64_t seed,
                  std::uint64_t schedules) {
  Mutant& mutant = trials.mutant;
  checker.set_schedule(seed, seed == 0 ? schedules : 0);
  Report report;
  try {
    report = checker.check(false);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    mutant.message = error.what();
    trials.all_passed = false;
    if (checker.run_failed()) kill(trials, Mutant::Killer::executor, sizes, seed);
    return false;
  }
  const bool raced = mutant.killer == Mutant::Killer::race;
  if (!report.failures.empty()) {
    kill(trials, Mutant::Killer::state, sizes, seed);
  } else if (!report.races.empty() && !raced) {
    kill(trials, Mutant::Killer::race, sizes, seed);
  }
  // What threads tell one another may arrive otherwise in a GPU's weak memory, the more so in a
  // changed program: that is not explored. Nor is what the host would do earlier.
  trials.all_passed = trials.all_passed && report.verdict == Verdict::passed &&
                      !checker.threads_have_talked() && !checker.dropped_wait();
  const bool more = !trials.done && !report.schedules_complete;
  if (!raced || trials.done) mutant.report = std::move(report);
  return more;
}

void try_size(const SizedProgram& sized, const Options& options, std::uint64_t seeds,
              std::vector<Trials>& all) {
  if (std::all_of(all.begin(), all.end(), [](const Trials& trials) { return trials.done; })) return;
  const Program program = sized.make();
  Checker checker(program, options);
  for (const Checker::Target& target : checker.targets()) {
    Trials* const trials = find(all, target.mutation);
    if (trials == nullptr || trials->done) continue;
    trials->mutant.sizes.push_back(sized.sizes);
    checker.change(target.mutation);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      if (!try_schedule(checker, *trials, sized.sizes, seed, options.schedules)) break;
    }
  }
}

}  // namespace

// Schedules of each mutant's recovery that are explored from each state at most.
static constexpr std::uint64_t kRecoverySchedules = 10;

std::vector<Mutant> check_mutants(const std::vector<SizedProgram>& programs, const Options& options,
                                  std::uint64_t seeds) {
  if (programs.empty() || seeds == 0) {
    throw Error(Errc::invalid_argument, "check_mutants: give at least one program and one seed");
  }
  Options own = options;
  own.mutation = {};
  own.replay.clear();
  own.schedules = std::min(own.schedules, kSchedules);
  own.recovery_schedules = std::min(own.recovery_schedules, kRecoverySchedules);
  own.worker = 0;  // the mutants are shared out, not their states
  own.workers = 1;
  std::vector<Trials> all;
  for (const SizedProgram& sized : programs) {
    const Program program = sized.make();
    Checker checker(program, own);
    for (const Checker::Target& target : checker.targets()) {
      Trials& trials = find_or_add(all, target);
      trials.mutant.in_recovery = trials.mutant.in_recovery && !target.in_run;
    }
  }
  std::vector<Trials> ours;
  for (std::size_t i = options.worker; i < all.size(); i += options.workers) {
    ours.push_back(std::move(all[i]));
  }
  for (const SizedProgram& sized : programs) try_size(sized, own, seeds, ours);
  std::vector<Mutant> result;
  for (Trials& trials : ours) {
    const bool was_tried = !trials.mutant.sizes.empty();
    if (trials.mutant.fate != Mutant::Fate::killed && was_tried && trials.all_passed) {
      trials.mutant.fate = Mutant::Fate::not_needed;
    }
    result.push_back(std::move(trials.mutant));
  }
  return result;
}

std::vector<Mutant> check_mutants(const Program& program, const Options& options) {
  return check_mutants({{"default", [&program] { return program; }}}, options);
}

}  // namespace holdfast::check

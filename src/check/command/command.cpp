// The command line: what holdfast-check and programs like it do.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "check/command/report_text.hpp"
#include "check/command/workers.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

constexpr int kPassed = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

// Passes on what `call` throws, with where that was: a program's own words need not tell.
template <class Call>
void call_named(const char* function, const std::string& program, Call&& call) {
  const auto words = [&](const std::exception& error) {
    return concat(function, "() of program '", program, "' failed: ", error.what());
  };
  try {
    call();
  } catch (const std::bad_alloc&) {
    throw;  // of the checker's own, as likely
  } catch (const Error& error) {
    throw Error(error.code(), words(error));
  } catch (const std::exception& error) {
    throw std::runtime_error(words(error));
  }
}

// The program at a size; what it throws here is about the sizes that were asked for.
Program make(const Offer& offer, const Sizes& sizes) {
  try {
    return offer.make(sizes);
  } catch (const Error& error) {
    if (error.code() == Errc::invalid_argument) throw OptionError(error.what());
    throw;
  }
}

// The program, counting its recoveries for the progress line.
Program counted(Program program, Progress& progress) {
  if (!program.recover) return program;  // which check() will say
  program.recover = [recover = program.recover, &progress](Region& region) {
    progress.recoveries.fetch_add(1, std::memory_order_relaxed);
    recover(region);
  };
  return program;
}

// The program, naming the function that threw.
Program named(Program program) {
  if (program.set_up) {
    program.set_up = [set_up = program.set_up, name = program.name](Region& region) {
      call_named("set_up", name, [&] { set_up(region); });
    };
  }
  if (program.run) {
    program.run = [run = program.run, name = program.name](Region& region, Session& session) {
      call_named("run", name, [&] { run(region, session); });
    };
  }
  return program;
}

Options share(const Arguments& arguments, unsigned worker, unsigned workers) {
  Options options = arguments.options;
  options.worker = worker;
  options.workers = workers;
  return options;
}

struct Checked {
  Report report;
  std::vector<std::string> dead;
};

Checked check_in_workers(const Arguments& arguments, const Offer& offer) {
  // A state that is named is one process's work.
  const unsigned jobs = arguments.options.replay.empty() ? arguments.jobs : 1;
  Answers answers = run_workers(
      arguments.program, jobs, [&](unsigned worker, unsigned workers, Progress& progress) {
        const Program program = named(counted(make(offer, arguments.sizes), progress));
        return to_json(check(program, share(arguments, worker, workers)));
      });
  std::vector<Report> reports;
  reports.reserve(answers.answers.size());
  for (const Json& answer : answers.answers) reports.push_back(report_from_json(answer));
  if (reports.empty()) {
    reports.emplace_back();
    reports[0].program = arguments.program;
  }
  Checked result{merge(reports), std::move(answers.dead)};
  if (!result.dead.empty()) {
    for (ModelReport& part : result.report.models) part.complete = false;
    conclude(result.report);
    result.report.verdict = Verdict::failed;
  }
  return result;
}

int check_program(const Arguments& arguments, const Offer& offer, const std::string& command) {
  const Checked result = check_in_workers(arguments, offer);
  const Json json = checked(result.report, arguments, result.dead);
  std::puts(arguments.json ? print(json).c_str() : report_text(json, command).c_str());
  return result.dead.empty() ? status_of(result.report.verdict) : kFailed;
}

// The sizes at which mutants are checked.
std::vector<Sizes> sizes_of(const Arguments& arguments, const Offer& offer) {
  if (!arguments.mutant_sizes.empty()) return arguments.mutant_sizes;
  if (arguments.sizes != Sizes{} || offer.mutant_sizes.empty()) return {arguments.sizes};
  return offer.mutant_sizes;
}

int check_mutants_of(const Arguments& arguments, const Offer& offer, const std::string& command) {
  const std::vector<Sizes> sizes = sizes_of(arguments, offer);
  Arguments first = arguments;
  first.sizes = sizes[0];
  Checked plain = check_in_workers(first, offer);
  std::vector<std::vector<Mutant>> shares;
  if (is_sound(plain.report) && plain.dead.empty()) {
    Answers answers = run_workers(
        arguments.program + ", mutants", arguments.jobs,
        [&](unsigned worker, unsigned workers, Progress& progress) {
          std::vector<SizedProgram> programs;
          programs.reserve(sizes.size());
          for (const Sizes& one : sizes) {
            programs.push_back(
                {to_string(one), [&, one] { return counted(make(offer, one), progress); }});
          }
          Json list = Json::array();
          for (const Mutant& one : check_mutants(programs, share(arguments, worker, workers))) {
            list.push_back(to_json(one));
          }
          return list;
        });
    for (const Json& answer : answers.answers) {
      std::vector<Mutant>& mutants = shares.emplace_back();
      for (const Json& one : answer) mutants.push_back(mutant_from_json(one));
    }
    plain.dead = std::move(answers.dead);
  }
  const Json json = checked_mutants(plain.report, merge(std::move(shares)), first, plain.dead);
  std::puts(arguments.json ? print(json).c_str() : mutants_text(json, command).c_str());
  if (json["ok"]) return kPassed;
  if (!plain.dead.empty()) return kFailed;
  return is_sound(plain.report) ? status_of(Verdict::none_found) : status_of(plain.report.verdict);
}

int list(const std::vector<Offer>& offers, bool as_json) {
  std::size_t width = 0;
  for (const Offer& offer : offers) width = std::max(width, offer.name.size());
  Json names = Json::array();
  for (const Offer& offer : offers) {
    if (!as_json) {
      std::printf("%-*s  %s\n", static_cast<int>(width), offer.name.c_str(), offer.summary.c_str());
    }
    names.push_back({{"name", offer.name}, {"summary", offer.summary}, {"correct", offer.correct}});
  }
  if (as_json) std::puts(print({{"ok", true}, {"programs", names}}).c_str());
  return kPassed;
}

const Offer& find(const std::vector<Offer>& offers, const std::string& name,
                  const std::string& command) {
  const auto found = std::find_if(offers.begin(), offers.end(),
                                  [&](const Offer& offer) { return offer.name == name; });
  if (found == offers.end()) {
    throw OptionError(
        concat("there is no program '", name, "': '", command, " list' names those there are"));
  }
  return *found;
}

int run(const Arguments& arguments, const std::vector<Offer>& offers, const std::string& command) {
  if (arguments.help) {
    std::fputs(usage(command).c_str(), stdout);
    return kPassed;
  }
  if (arguments.program == "list") return list(offers, arguments.json);
  if (arguments.program.empty()) {
    throw OptionError("no program is named; --help shows the usage");
  }
  const Offer& offer = find(offers, arguments.program, command);
  return arguments.mutants ? check_mutants_of(arguments, offer, command)
                           : check_program(arguments, offer, command);
}

int report_error(const char* code, const char* message, bool as_json, const std::string& command,
                 int status) {
  if (as_json) {
    const Json json = {{"ok", false}, {"error", {{"code", code}, {"message", message}}}};
    std::puts(print(json).c_str());
  } else {
    std::fprintf(stderr, "%s: %s\n", command.c_str(), message);
  }
  return status;
}

// The words that mean something else.
void check_names(const std::vector<Offer>& offers) {
  for (const Offer& offer : offers) {
    if (offer.name != "list" && !offer.name.empty() && offer.name.front() != '-') continue;
    throw OptionError(concat("a program cannot be named '", offer.name,
                             "': give it a name that is no option and not 'list'"));
  }
}

}  // namespace

int command_line(int argc, const char* const* argv, const std::vector<Offer>& offers) {
  std::string command = argc > 0 ? argv[0] : "holdfast-check";
  command = command.substr(command.rfind('/') + 1);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  // Errors in the arguments themselves are to be JSON, too.
  const bool as_json = std::find(words.begin(), words.end(), "--json") != words.end();
  try {
    check_names(offers);
    return run(parse_arguments(words), offers, command);
  } catch (const OptionError& error) {
    return report_error(to_string(error.code()), error.what(), as_json, command, kUsage);
  } catch (const Error& error) {
    return report_error(to_string(error.code()), error.what(), as_json, command, kFailed);
  } catch (const std::exception& error) {
    return report_error("io", error.what(), as_json, command, kFailed);
  }
}

}  // namespace holdfast::check

#include "check/litmus_run.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "check/explore.hpp"
#include "check/litmus_executions.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {

namespace {

// Evaluates the condition on crash states of one order, as a recovery that reads no more than it
// needs.
class Recovery {
 public:
  Recovery(const LitmusTest& test, const Order& order)
      : test_(test), order_(order), range_(persistent_range(test)) {}

  // Returns whether the condition holds. `values` and `cells` receive what was read.
  bool run(const Bitset& durable, const CrashPoint& point, LitmusOutcome& values,
           std::vector<std::uint32_t>& cells) const {
    const std::vector<std::byte> image = image_of(test_, order_, durable);
    for (const LitmusTerm& term : test_.condition) {
      if (term.of != LitmusTerm::Of::place) {
        values.push_back(term.of == LitmusTerm::Of::started ? point.started : point.acknowledged);
        if (!holds(values.back(), term.comparison, term.value)) return false;
        continue;
      }
      const LitmusVariable& variable = test_.variables[term.place.variable];
      for (std::uint32_t i = 0; i < term.place.count; ++i) {
        const std::uint64_t address =
            variable.address + std::uint64_t{term.place.first + i} * variable.width;
        const auto [begin, end] = order_.cells_of(address, variable.width);
        for (std::uint32_t cell = begin; cell < end; ++cell) {
          if (std::find(cells.begin(), cells.end(), cell) == cells.end()) cells.push_back(cell);
        }
        std::uint64_t value = 0;
        std::memcpy(&value, image.data() + (address - range_.begin), variable.width);
        values.push_back(value);
        if (!holds(value, term.comparison, term.value)) return false;
      }
    }
    return true;
  }

 private:
  const LitmusTest& test_;
  const Order& order_;
  PersistentRange range_;
};

class Engine {
 public:
  Engine(const LitmusTest& test, Model model, const LitmusOptions& options)
      : test_(test), model_(model), options_(options) {}

  LitmusOutcomes run(const std::function<void(const Order&, Engine&)>& states) {
    const ExecutionOptions how{model_, options_.reduce, options_.max_executions};
    found_.executions = for_each_execution(test_, how, [&](const Trace& trace) {
      const Order order(trace, {model_, options_.axioms});
      const std::uint64_t before = found_.runs;
      states(order, *this);
      found_.persists = std::max<std::uint64_t>(found_.persists, order.writes().size());
      if (order.writes().size() > 12) found_.runs_of_most += found_.runs - before;
      return true;
    });
    return std::move(found_);
  }

  Outcome try_state(const Recovery& recovery, const Bitset& durable, const CrashPoint& point) {
    if (++found_.runs > options_.max_runs) {
      throw Error(
          Errc::unsupported,
          detail::concat(test_.file, ":", test_.line, ": test '", test_.name, "' has more than ",
                         options_.max_runs, " crash states to try; make it smaller"));
    }
    LitmusOutcome values;
    Outcome outcome;
    if (recovery.run(durable, point, values, outcome.reads)) {
      outcome.verdict = 1;
      found_.reached = true;
    }
    found_.all.insert(std::move(values));
    return outcome;
  }

  const LitmusTest& test() const { return test_; }

 private:
  const LitmusTest& test_;
  Model model_;
  const LitmusOptions& options_;
  LitmusOutcomes found_;
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

const char* word(bool allowed) { return allowed ? "allowed" : "forbidden"; }

// What all results of a test have; `fill` finds out the rest, and is timed.
template <class Fill>
LitmusResult result_of(const LitmusTest& test, Fill&& fill) {
  const auto start = std::chrono::steady_clock::now();
  LitmusResult result;
  result.name = test.name;
  result.comment = test.comment;
  result.file = test.file;
  result.line = test.line;
  fill(result);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  result.milliseconds = took.count();
  return result;
}

LitmusResult run_one(const LitmusTest& test, Model model, const LitmusOptions& options) {
  return result_of(test, [&](LitmusResult& result) {
    result.model = model;
    result.expected = *test.allowed(model);
    const LitmusOutcomes lazy = run_lazy(test, model, options);
    result.found = lazy.reached;
    result.executions = lazy.executions;
    result.persists = lazy.persists;
    result.outcomes = lazy.all.size();
    result.lazy_runs = lazy.runs;
    if (!options.brute) return;
    const LitmusOutcomes brute = run_brute(test, model, options);
    result.brute_runs = brute.runs;
    result.engines_agree = brute.all == lazy.all && brute.reached == lazy.reached;
  });
}

LitmusResult run_final(const LitmusTest& test, Memory memory) {
  return result_of(test, [&](LitmusResult& result) {
    result.memory = memory;
    result.expected = memory == Memory::sc ? *test.sc : *test.ptx;
    result.found = run_memory(test, memory);
  });
}

}  // namespace

std::vector<std::byte> image_of(const LitmusTest& test, const Order& order, const Bitset& durable) {
  std::vector<std::byte> image = initial_image(test);
  const std::uint64_t begin = persistent_range(test).begin;
  durable.for_each([&](std::size_t number) {
    const Write& write = order.writes()[number];
    std::memcpy(image.data() + (write.address - begin), order.trace().bytes.data() + write.value,
                write.size);
  });
  return image;
}

LitmusOutcomes run_brute(const LitmusTest& test, Model model, const LitmusOptions& options) {
  return Engine(test, model, options).run([](const Order& order, Engine& engine) {
    const Recovery recovery(engine.test(), order);
    for (const CrashPoint& point : order.points()) {
      order.for_each_state(point, [&](const Bitset& durable) {
        engine.try_state(recovery, durable, point);
        return true;
      });
    }
  });
}

LitmusOutcomes run_lazy(const LitmusTest& test, Model model, const LitmusOptions& options) {
  return Engine(test, model, options).run([](const Order& order, Engine& engine) {
    const Recovery recovery(engine.test(), order);
    Explorer explorer(order, [&](const Bitset& durable, const CrashPoint& point) {
      return engine.try_state(recovery, durable, point);
    });
    explorer.explore();
  });
}

std::size_t LitmusReport::failures() const {
  return static_cast<std::size_t>(std::count_if(
      results.begin(), results.end(), [](const LitmusResult& result) { return !result.passed(); }));
}

std::vector<LitmusTest> load_litmus(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<LitmusTest> tests;
  std::map<std::string, const std::string> files;  // by name of a test
  for (const std::string& path : paths) {
    std::vector<std::string> names;
    std::error_code error;
    if (fs::is_directory(path, error)) {
      for (const auto& entry : fs::directory_iterator(path, error)) {
        if (entry.path().extension() == ".litmus") names.push_back(entry.path().string());
      }
      if (error) throw Error(Errc::io, "cannot list '" + path + "': " + error.message());
      if (names.empty()) throw Error(Errc::not_found, "no .litmus file in folder '" + path + "'");
      std::sort(names.begin(), names.end());
    } else {
      names.push_back(path);
    }
    for (const std::string& name : names) {
      for (LitmusTest& test : read_litmus(name)) {
        const auto [known, added] = files.try_emplace(test.name, test.file);
        if (!added) {
          throw Error(Errc::invalid_argument,
                      detail::concat(test.file, ":", test.line, ": test '", test.name, "' is in ",
                                     known->second, ", too; rename one"));
        }
        tests.push_back(std::move(test));
      }
    }
  }
  return tests;
}

LitmusReport run_litmus(const std::vector<LitmusTest>& tests, const LitmusOptions& options) {
  LitmusReport report;
  report.tests = tests.size();
  for (const LitmusTest& test : tests) {
    if (test.is_final && options.sbrp && options.epoch) {
      report.results.push_back(run_final(test, Memory::sc));
      report.results.push_back(run_final(test, Memory::ptx));
    }
    if (options.sbrp && test.sbrp) report.results.push_back(run_one(test, Model::sbrp, options));
    if (options.epoch && test.epoch) report.results.push_back(run_one(test, Model::epoch, options));
  }
  return report;
}

LitmusReport run_litmus(const std::vector<std::string>& paths, const LitmusOptions& options) {
  return run_litmus(load_litmus(paths), options);
}

std::string to_json(const LitmusReport& report) {
  std::string out =
      detail::concat("{\n  \"tests\": ", report.tests, ",\n  \"runs\": ", report.results.size(),
                     ",\n  \"failures\": ", report.failures(), ",\n  \"results\": [");
  const char* separator = "\n";
  for (const LitmusResult& result : report.results) {
    out += detail::concat(
        separator, "    {\"name\": ", quoted(result.name), ", \"model\": \"", result.model_name(),
        "\", \"expected\": \"", word(result.expected), "\", \"found\": \"", word(result.found),
        "\", \"passed\": ", result.passed() ? "true" : "false",
        ", \"executions\": ", result.executions, ", \"persists\": ", result.persists,
        ", \"outcomes\": ", result.outcomes, ", \"lazy_runs\": ", result.lazy_runs,
        ", \"brute_runs\": ", result.brute_runs ? std::to_string(*result.brute_runs) : "null",
        ", \"engines_agree\": ", result.engines_agree ? "true" : "false",
        ", \"milliseconds\": ", result.milliseconds, ", \"file\": ", quoted(result.file),
        ", \"line\": ", result.line, ", \"comment\": ", quoted(result.comment), "}");
    separator = ",\n";
  }
  return out + "\n  ]\n}\n";
}

std::string to_table(const LitmusReport& report) {
  std::size_t width = 4;
  for (const LitmusResult& result : report.results) width = std::max(width, result.name.size());
  const auto row = [&](const std::string& name, const char* model, const char* expected,
                       const char* found, const std::string& states, const std::string& runs,
                       const char* remark) {
    std::string line = name + std::string(width - name.size(), ' ');
    char rest[128];
    std::snprintf(rest, sizeof rest, "  %-5s  %-9s  %-9s  %9s  %7s%s\n", model, expected, found,
                  states.c_str(), runs.c_str(), remark);
    return line + rest;
  };
  std::string out = row("test", "model", "expected", "found", "states", "runs", "");
  for (const LitmusResult& result : report.results) {
    const char* remark = result.passed()        ? ""
                         : result.engines_agree ? "  FAILED"
                                                : "  FAILED: the engines disagree";
    out += row(result.name, result.model_name(), word(result.expected), word(result.found),
               result.brute_runs ? std::to_string(*result.brute_runs) : "-",
               std::to_string(result.lazy_runs), remark);
  }
  std::uint64_t states = 0;
  std::uint64_t runs = 0;
  double milliseconds = 0;
  for (const LitmusResult& result : report.results) {
    states += result.brute_runs.value_or(0);
    runs += result.lazy_runs;
    milliseconds += result.milliseconds;
  }
  char total[160];
  std::snprintf(total, sizeof total, "%zu tests, %zu results, %zu failed, %llu runs", report.tests,
                report.results.size(), report.failures(), static_cast<unsigned long long>(runs));
  out += total;
  if (states != 0) {
    std::snprintf(total, sizeof total, " for %llu states", static_cast<unsigned long long>(states));
    out += total;
  }
  std::snprintf(total, sizeof total, ", %.0f ms\n", milliseconds);
  return out + total;
}

}  // namespace holdfast::check

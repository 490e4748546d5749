#include "check/command/arguments.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <optional>

#include "holdfast/error.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

constexpr unsigned kMaxJobs = 256;

[[noreturn]] void refuse(const std::string& message) { throw OptionError(message); }

template <class T>
T number(const std::string& name, const std::string& text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !(value >= least && value <= most)) {  // NaN is neither
    refuse(concat(name, " is '", text, "': give a number from ", least,
                  most == std::numeric_limits<T>::max() ? "" : concat(" to ", most)));
  }
  return value;
}

// The words after the program's name, one option at a time.
class Words {
 public:
  explicit Words(const std::vector<std::string>& words) : words_(words) {}
  bool done() const { return at_ == words_.size(); }
  // The next word; "--name=value" counts as two.
  std::string next() {
    const std::string& word = words_[at_++];
    const std::size_t equals = word.find('=');
    if (word.rfind("--", 0) != 0 || equals == std::string::npos) return word;
    value_ = word.substr(equals + 1);
    return word.substr(0, equals);
  }
  std::string value(const std::string& name) {
    if (value_) return *std::exchange(value_, std::nullopt);
    if (done()) refuse(concat(name, " needs a value"));
    return words_[at_++];
  }
  bool has_loose_value() const { return value_.has_value(); }

 private:
  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
  std::optional<std::string> value_;
};

bool take_flag(const std::string& name, Arguments& result) {
  if (name == "--no-nested") {
    result.options.nested = false;
  } else if (name == "--barrier-orders") {
    result.options.barrier_orders = true;
  } else if (name == "--no-races") {
    result.options.races = false;
  } else if (name == "--robust") {
    result.options.robust = true;
  } else if (name == "--mutants") {
    result.mutants = true;
  } else if (name == "--json") {
    result.json = true;
  } else if (name == "--help" || name == "-h") {
    result.help = true;
  } else {
    return false;
  }
  return true;
}

std::vector<Sizes> parse_list(const std::string& text) {
  std::vector<Sizes> list;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    list.push_back(parse_sizes(text.substr(at, end - at)));
    at = end + 1;
  }
  return list;
}

bool take_number(const std::string& name, Words& words, Arguments& result) {
  constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint32_t kSize = std::numeric_limits<std::uint32_t>::max();
  const auto size = [&] { return number<std::uint32_t>(name, words.value(name), 1, kSize); };
  if (name == "--threads") {
    result.sizes.threads = size();
  } else if (name == "--blocks") {
    result.sizes.blocks = size();
  } else if (name == "--persists") {
    result.sizes.persists = size();
  } else if (name == "--jobs" || name == "-j") {
    result.jobs = number<unsigned>(name, words.value(name), 1, kMaxJobs);
  } else if (name == "--max-states") {
    result.options.max_states = number<std::uint64_t>(name, words.value(name), 1, kAny);
    result.budget = true;
  } else if (name == "--max-seconds") {
    result.options.max_seconds = number<double>(name, words.value(name), 0, 1e9);
    result.budget = true;
  } else if (name == "--recovery-seconds") {
    result.options.recovery_seconds = number<double>(name, words.value(name), 0.01, 1e9);
  } else if (name == "--schedules") {
    result.options.schedules = number<std::uint64_t>(name, words.value(name), 0, kAny);
    result.budget = true;
  } else if (name == "--recovery-schedules") {
    result.options.recovery_schedules = number<std::uint64_t>(name, words.value(name), 0, kAny);
  } else if (name == "--seed") {
    result.options.seed = number<std::uint64_t>(name, words.value(name), 0, kAny);
  } else if (name == "--schedule") {
    result.options.schedule = number<std::uint64_t>(name, words.value(name), 0, kAny);
  } else {
    return false;
  }
  return true;
}

bool take_word(const std::string& name, Words& words, Arguments& result) {
  if (name == "--model") {
    const std::string model = words.value(name);
    if (model != "sbrp" && model != "epoch" && model != "both") {
      refuse(concat("--model is '", model, "': sbrp, epoch or both"));
    }
    result.options.model.reset();
    if (model != "both") result.options.model = model == "sbrp" ? Model::sbrp : Model::epoch;
  } else if (name == "--sizes") {
    result.mutant_sizes = parse_list(words.value(name));
  } else if (name == "--mutation") {
    result.options.mutation = parse_mutation(words.value(name));
  } else if (name == "--replay") {
    result.options.replay = words.value(name);
    if (result.options.replay.empty()) refuse("--replay names no state: take one from a report");
  } else {
    return false;
  }
  return true;
}

// What cannot stand together. `stray`: the first option that `list` has no use for.
void refuse_mixtures(const Arguments& result, const std::string& stray) {
  if (result.program == "list" && !stray.empty() && !result.help) {
    refuse(concat("'list' takes no option but --json: leave ", stray, " out"));
  }
  if (result.mutants && !result.options.replay.empty()) {
    refuse("--mutants and --replay exclude each other: give one");
  }
  if (result.mutants && result.options.mutation.kind != Mutation::Kind::none) {
    refuse("--mutants and --mutation exclude each other: give one");
  }
  if (!result.mutant_sizes.empty() && !result.mutants) {
    refuse("--sizes lists the sizes of mutants: give --mutants, too, or --threads and its like");
  }
  if (!result.mutant_sizes.empty() && result.sizes != Sizes{}) {
    refuse("--sizes and --threads, --blocks or --persists exclude each other");
  }
}

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& list) {
  Arguments result;
  Words words(list);
  std::string stray;
  while (!words.done()) {
    const std::string name = words.next();
    if (name.rfind('-', 0) != 0) {
      if (!result.program.empty()) {
        refuse(concat("'", name, "' comes after the program '", result.program,
                      "': one program at a time"));
      }
      result.program = name;
      continue;
    }
    if (take_flag(name, result)) {
      if (words.has_loose_value()) refuse(concat(name, " takes no value"));
    } else if (!take_number(name, words, result) && !take_word(name, words, result)) {
      refuse(concat("there is no option ", name, ": --help lists them"));
    }
    if (stray.empty() && name != "--json") stray = name;
  }
  refuse_mixtures(result, stray);
  return result;
}

std::string usage(const std::string& command) {
  return concat("usage: ", command, R"( PROGRAM [options]    checks a program
       )",
                command, R"( list [--json]        names the programs

  --threads N, --blocks N, --persists N   how large the program is made
  --model sbrp|epoch|both   the persistency model (both)
  --jobs N              processes that share the executions, under each model (1)
  --max-states N        crash states to try at most, for each model and process
  --max-seconds S       time to take at most
  --recovery-seconds S  one recovery may take, before it is said not to end (30, or --max-seconds);
                        run() may take as long (300)
  --seed S              of random states
  --schedule S          of the kernels' schedule; 0: in index order
  --schedules N         schedules to explore at most (10000); 0: one is run, and none explored
  --recovery-schedules N   of recovery, from each crash state at most (100); 0: one is run
  --no-nested           do not crash once more, inside recovery
  --no-races            do not look for scoped races
  --robust              judge by what recovery reads: no in-order crash may leave other values
  --barrier-orders      for study: a barrier alone orders persists
  --mutants             check every change of a fence, scope, barrier, wait or acknowledgement
  --sizes LIST          of mutants: threads x blocks x persists, such as 2,3x2,4x1x2
  --mutation CHANGE     check with one change, such as drop@kernel.cu:12
  --replay STATE        try one state of a report again
  --json                print one JSON object

Exit status: 0 passed: nothing fails, and all was explored under both models; 1 failed, or an
error; 2 wrong usage; 3 no failure found: not all was explored; 4 racy; 5 void.
Example: )",
                command, " append_naive\n");
}

std::vector<std::string> replay_arguments(const Arguments& arguments, const Mutation& mutation,
                                          const std::string& state) {
  std::vector<std::string> result{arguments.program};
  const auto add = [&](const char* name, const std::string& value) {
    result.emplace_back(name);
    result.push_back(value);
  };
  const auto size = [&](const char* name, std::uint32_t value) {
    if (value != 0) add(name, std::to_string(value));
  };
  size("--threads", arguments.sizes.threads);
  size("--blocks", arguments.sizes.blocks);
  size("--persists", arguments.sizes.persists);
  const Options& options = arguments.options;
  if (options.model) add("--model", to_string(*options.model));
  if (options.schedule != 0) add("--schedule", std::to_string(options.schedule));
  if (options.barrier_orders) result.emplace_back("--barrier-orders");
  if (options.robust) result.emplace_back("--robust");
  if (options.recovery_seconds > 0) {
    add("--recovery-seconds", concat(options.recovery_seconds));
  }
  if (mutation.kind != Mutation::Kind::none) add("--mutation", to_string(mutation));
  add("--replay", state);
  return result;
}

Sizes parse_sizes(const std::string& text) {
  Sizes sizes;
  if (text == "default") return sizes;
  std::uint32_t* const parts[] = {&sizes.threads, &sizes.blocks, &sizes.persists};
  std::size_t at = 0;
  for (std::uint32_t* const part : parts) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    *part = number<std::uint32_t>("a size of --sizes", text.substr(at, end - at), 0,
                                  std::numeric_limits<std::uint32_t>::max());
    at = end + 1;
    if (at > text.size()) return sizes;
  }
  refuse(concat("'", text, "' has too many parts: a size is threads x blocks x persists, such as ",
                "3x2x1"));
}

std::string to_string(const Sizes& sizes) {
  if (sizes == Sizes{}) return "default";
  if (sizes.persists != 0) return concat(sizes.threads, "x", sizes.blocks, "x", sizes.persists);
  if (sizes.blocks != 0) return concat(sizes.threads, "x", sizes.blocks);
  return concat(sizes.threads);
}

Mutation parse_mutation(const std::string& text) {
  const std::size_t at = text.find('@');
  const std::string what = text.substr(0, at);
  Mutation result;
  for (const auto kind : {Mutation::Kind::drop, Mutation::Kind::weaken, Mutation::Kind::swap,
                          Mutation::Kind::early, Mutation::Kind::persist}) {
    if (what == to_string(kind)) result.kind = kind;
  }
  if (what == "widen=device") {
    result.kind = Mutation::Kind::widen;
    result.scope = Scope::device;
  }
  for (const Scope scope : {Scope::block, Scope::device}) {
    if (what == concat("narrow=", to_string(scope))) {
      result.kind = Mutation::Kind::narrow;
      result.scope = scope;
    }
  }
  if (result.kind == Mutation::Kind::none || at == std::string::npos || at + 1 == text.size()) {
    refuse(concat("--mutation is '", text, "': give drop@FILE:LINE, weaken@FILE:LINE, ",
                  "swap@FILE:LINE, early@FILE:LINE, persist@FILE:LINE, narrow=block@FILE:LINE, ",
                  "narrow=device@FILE:LINE or widen=device@FILE:LINE"));
  }
  result.place = text.substr(at + 1);
  return result;
}

}  // namespace holdfast::check

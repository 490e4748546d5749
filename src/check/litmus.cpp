#include "check/litmus.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "check/litmus_steps.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {

bool holds(std::uint64_t left, Comparison comparison, std::uint64_t right) {
  switch (comparison) {
    case Comparison::equal:
      return left == right;
    case Comparison::unequal:
      return left != right;
    case Comparison::less:
      return left < right;
    case Comparison::greater:
      return left > right;
  }
  return false;
}

namespace {

constexpr std::uint64_t kPersistentBase = 0x10000;
constexpr std::uint64_t kVolatileBase = 0x20000;
// Bounds that keep a test within reach of exhaustive enumeration, and of one bit mask.
constexpr std::size_t kMaxVariables = 64;
constexpr std::uint64_t kMaxElements = 64;
constexpr std::size_t kMaxThreads = 16;
constexpr std::size_t kMaxTerms = 64;

class Parser : private LitmusSteps {
 public:
  Parser(std::string_view text, const std::string& file) : LitmusSteps(text, file) {}

  std::vector<LitmusTest> tests() {
    std::vector<LitmusTest> result;
    std::map<std::string, std::uint32_t> lines;
    while (now().kind != Token::Kind::end) {
      const Token& start = now();
      LitmusTest test = parse_test();
      const auto [known, added] = lines.try_emplace(test.name, test.line);
      if (!added) {
        fail(start, detail::concat("another name: '", test.name, "' is on line ", known->second));
      }
      result.push_back(std::move(test));
    }
    return result;
  }

 private:
  // Words joined by dots: parts may begin with a digit.
  std::string dotted_name() {
    std::string name = expect(Kind::word, "a name").text;
    while (accept(".")) {
      if (now().kind != Kind::word && now().kind != Kind::number) fail(now(), "a name after '.'");
      name += "." + take().text;
    }
    return name;
  }

  LitmusTest parse_test() {
    LitmusTest test;
    test_ = &test;
    next_persistent_ = kPersistentBase;
    next_volatile_ = kVolatileBase;
    streams_.clear();
    events_.clear();
    stream_ = 1;
    const Token& start = now();
    if (!accept("test")) fail(start, "'test'");
    test.file = file_;
    test.line = start.line;
    test.name = dotted_name();
    if (now().kind == Kind::text) test.comment = take().text;
    test.threads.push_back({.name = "host", .steps = {}});
    expect("{");
    while (!is(now(), "}")) parse_item();
    check_complete();
    take();
    return test;
  }

  void check_complete() {
    if (test_->kernels == 0 && test_->threads[0].steps.empty()) fail(now(), "a thread");
    if (test_->condition.empty()) fail(now(), "'crash' with a condition");
    if (!test_->is_final && !test_->sbrp && !test_->epoch) {
      fail(now(), "'sbrp:' or 'epoch:' with what is expected");
    }
    if (test_->is_final && (!test_->sc || !test_->ptx)) {
      fail(now(), "'sc:' and 'ptx:' with what is expected");
    }
    if (test_->is_final ? test_->sbrp || test_->epoch : test_->sc || test_->ptx) {
      fail(now(), "'sc:' and 'ptx:' with 'final', 'sbrp:' and 'epoch:' with 'crash'");
    }
    check_barriers();
  }

  void check_barriers() const {
    for (std::size_t i = 1; i < test_->threads.size(); ++i) {
      const LitmusThread& thread = test_->threads[i];
      for (std::size_t j = 1; j < i; ++j) {
        const LitmusThread& other = test_->threads[j];
        if (other.launch != thread.launch || other.block != thread.block) continue;
        const auto barriers = [](const LitmusThread& of) {
          return std::count_if(of.steps.begin(), of.steps.end(),
                               [](const LitmusStep& step) { return step.op == LitmusOp::barrier; });
        };
        if (barriers(other) != barriers(thread)) {
          fail(now(), detail::concat("as many barriers in thread ", thread.name,
                                     " as in the others of its block"));
        }
      }
    }
  }

  void parse_item() {
    const Token& token = now();
    if (is(token, "persistent") || is(token, "volatile")) {
      parse_variables();
    } else if (is(token, "thread")) {
      begin_kernel();
      while (is(now(), "thread")) parse_thread();
    } else if (is(token, "kernel")) {
      take();
      begin_kernel();
      expect("{");
      if (!is(now(), "thread")) fail(now(), "'thread'");
      while (is(now(), "thread")) parse_thread();
      expect("}");
    } else if (is(token, "stream")) {
      parse_stream();
    } else if (is(token, "host")) {
      take();
      parse_block(test_->threads[0], 0);
    } else if (is(token, "synchronize") || is(token, "start") || is(token, "acknowledge")) {
      parse_step(test_->threads[0], 0);
    } else if (is(token, "crash") || is(token, "final")) {
      parse_condition();
    } else if (is(token, "sbrp") || is(token, "epoch") || is(token, "sc") || is(token, "ptx")) {
      parse_expectation();
    } else {
      fail(token,
           "'persistent', 'volatile', 'thread', 'kernel', 'stream', 'host', 'synchronize', "
           "'start', 'acknowledge', 'crash', 'sbrp', 'epoch' or '}'");
    }
  }

  // What is in it is launched one after the other; a stream may be gone on with further below.
  void parse_stream() {
    take();
    const Token& name = expect(Kind::word, "the stream's name");
    if (!streams_.contains(name.text)) {
      check_new_name(name);
      streams_.emplace(name.text, static_cast<std::uint32_t>(streams_.size() + 2));
    }
    stream_ = streams_.at(name.text);
    expect("{");
    while (!accept("}")) {
      const Token& token = now();
      if (is(token, "thread") || is(token, "kernel")) {
        parse_item();
      } else if (is(token, "copy")) {
        parse_copy();
      } else if (is(token, "record") || is(token, "wait")) {
        parse_event();
      } else {
        fail(token, "'kernel', 'thread', 'copy', 'record', 'wait' or '}'");
      }
      accept(";");
    }
    stream_ = 1;
  }

  LitmusThread begin_launch(const Token& token) {
    begin_kernel();
    if (test_->threads.size() > kMaxThreads) {
      fail(token, detail::concat("at most ", kMaxThreads, " threads and copies"));
    }
    LitmusThread thread;
    thread.name = token.text;
    thread.launch = test_->kernels;
    thread.stream = stream_;
    return thread;
  }

  // copy place = number, or = a variable whose value it finds.
  void parse_copy() {
    const Token& token = now();
    LitmusThread thread = begin_launch(token);
    take();
    LitmusStep step;
    step.line = token.line;
    step.op = LitmusOp::store;
    step.place = parse_place(true);
    expect("=");
    const Token& source = now();
    if (source.kind == Kind::word && find_variable(source.text)) {
      LitmusStep load;
      load.line = token.line;
      load.op = LitmusOp::load;
      load.place = parse_place(false);
      load.result = 0;
      if (step.place.count != 1 || width_of(load.place) != width_of(step.place)) {
        fail(source, "a number, or an element as wide as the one that is copied to");
      }
      thread.registers = 1;
      add(thread, load, token);
      step.value = {true, 0};
    } else {
      step.value = {false, number_of_width(width_of(step.place))};
    }
    add(thread, step, token);
    test_->threads.push_back(std::move(thread));
  }

  // record E, or wait E: for its last record above.
  void parse_event() {
    const Token& token = now();
    LitmusThread thread = begin_launch(token);
    take();
    const Token& name = expect(Kind::word, "the event's name");
    LitmusStep step;
    step.line = token.line;
    if (is(token, "record")) {
      if (!events_.contains(name.text)) check_new_name(name);
      events_[name.text] = thread.launch;
      step.op = LitmusOp::record;
    } else {
      if (!events_.contains(name.text)) fail(name, "an event that is recorded above");
      step.op = LitmusOp::wait_event;
    }
    step.event = events_[name.text];
    add(thread, step, token);
    test_->threads.push_back(std::move(thread));
  }

  void begin_kernel() {
    ++test_->kernels;
    LitmusStep step;
    step.op = LitmusOp::launch;
    step.line = now().line;
    add(test_->threads[0], step, now());
  }

  void parse_variables() {
    const bool persistent = take().text == "persistent";
    const Token& type = now();
    if (!is(type, "u32") && !is(type, "u64")) fail(type, "'u32' or 'u64'");
    const std::uint32_t width = take().text == "u32" ? 4 : 8;
    do {
      parse_variable(persistent, width);
    } while (accept(","));
  }

  void parse_variable(bool persistent, std::uint32_t width) {
    LitmusVariable variable;
    variable.persistent = persistent;
    variable.width = width;
    const Token& name = expect(Kind::word, "a variable's name");
    check_new_name(name);
    if (test_->variables.size() == kMaxVariables) {
      fail(name, detail::concat("at most ", kMaxVariables, " variables"));
    }
    variable.name = name.text;
    if (accept("[")) {
      const Token& count = expect(Kind::number, "a number of elements");
      if (count.number == 0 || count.number > kMaxElements) {
        fail(count, detail::concat("1 to ", kMaxElements, " elements"));
      }
      variable.count = static_cast<std::uint32_t>(count.number);
      expect("]");
    }
    if (accept("=")) variable.initial = number_of_width(width);
    std::uint64_t& next = persistent ? next_persistent_ : next_volatile_;
    variable.address = next;
    next += (std::uint64_t{variable.width} * variable.count + 15) / 16 * 16;
    test_->variables.push_back(std::move(variable));
  }

  void check_new_name(const Token& name) const {
    if (is_keyword(name.text) || find_variable(name.text) || is_register(name.text) ||
        streams_.contains(name.text) || events_.contains(name.text)) {
      fail(name, "a name that is not in use and does not read r0, r1, ...");
    }
  }

  void parse_thread() {
    const Token& token = take();
    if (test_->threads.size() > kMaxThreads) {
      fail(token, detail::concat("at most ", kMaxThreads, " threads"));
    }
    LitmusThread thread;
    thread.launch = test_->kernels;
    thread.stream = stream_;
    thread.is_kernel = true;
    thread.name = expect(Kind::word, "the thread's name").text;
    for (const LitmusThread& other : test_->threads) {
      if (other.name == thread.name) fail(ahead(0), "a name that no other thread has");
    }
    expect("block");
    thread.block = expect(Kind::number, "the block's number").number;
    parse_block(thread, 0);
    test_->threads.push_back(std::move(thread));
  }

  void parse_condition() {
    const Token& token = take();
    if (!test_->condition.empty()) fail(token, "one condition");
    test_->is_final = token.text == "final";
    do {
      LitmusTerm term;
      if (test_->is_final && is(ahead(1), ".")) {
        parse_register_term(term);
      } else if (is(now(), "started") || is(now(), "acknowledged")) {
        term.of = take().text == "started" ? LitmusTerm::Of::started : LitmusTerm::Of::acknowledged;
        term.comparison = parse_comparison();
        term.value = number_of_width(8);
      } else {
        const Token& name = now();
        term.place = parse_place(true);
        if (!test_->is_final && !test_->variables[term.place.variable].persistent) {
          fail(name, "a persistent variable: no other survives a crash");
        }
        term.comparison = parse_comparison();
        term.value = number_of_width(width_of(term.place));
      }
      if (test_->condition.size() == kMaxTerms) {
        fail(now(), detail::concat("at most ", kMaxTerms, " comparisons"));
      }
      test_->condition.push_back(term);
    } while (accept("&&"));
  }

  // T0.r1: what a register of a thread holds at the end.
  void parse_register_term(LitmusTerm& term) {
    term.of = LitmusTerm::Of::reg;
    const Token& name = take();
    const auto found = std::find_if(test_->threads.begin(), test_->threads.end(),
                                    [&](const LitmusThread& of) { return of.name == name.text; });
    if (found == test_->threads.end()) fail(name, "a thread that stands above");
    term.thread = static_cast<std::uint32_t>(found - test_->threads.begin());
    expect(".");
    term.reg = parse_register_name(*found, false);
    term.comparison = parse_comparison();
    term.value = number_of_width(8);
  }

  void parse_expectation() {
    const Token& model = take();
    std::optional<bool>& expected = model.text == "sbrp"    ? test_->sbrp
                                    : model.text == "epoch" ? test_->epoch
                                    : model.text == "sc"    ? test_->sc
                                                            : test_->ptx;
    if (expected) fail(model, "each model once");
    expect(":");
    if (accept("allowed")) {
      expected = true;
    } else if (accept("forbidden")) {
      expected = false;
    } else {
      fail(now(), "'allowed' or 'forbidden'");
    }
  }

  std::uint32_t stream_ = 1;  // that we are in
  std::uint64_t next_persistent_ = 0;
  std::uint64_t next_volatile_ = 0;
};

}  // namespace

std::vector<LitmusTest> parse_litmus(std::string_view text, const std::string& file) {
  return Parser(text, file).tests();
}

std::vector<LitmusTest> read_litmus(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(Errc::not_found, "cannot open '" + path + "': name a litmus file");
  std::ostringstream text;
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (file.bad() || text.bad()) throw Error(Errc::io, "cannot read '" + path + "'");
  return parse_litmus(text.str(), path);
}

PersistentRange persistent_range(const LitmusTest& test) {
  std::uint64_t end = kPersistentBase;
  for (const LitmusVariable& variable : test.variables) {
    if (!variable.persistent) continue;
    end = std::max(end, variable.address + std::uint64_t{variable.width} * variable.count);
  }
  return {kPersistentBase, end};
}

std::vector<std::byte> initial_image(const LitmusTest& test) {
  const PersistentRange range = persistent_range(test);
  std::vector<std::byte> image(range.end - range.begin);
  for (const LitmusVariable& variable : test.variables) {
    if (!variable.persistent) continue;
    for (std::uint32_t i = 0; i < variable.count; ++i) {
      std::memcpy(image.data() + (variable.address - range.begin + i * variable.width),
                  &variable.initial, variable.width);
    }
  }
  return image;
}

}  // namespace holdfast::check

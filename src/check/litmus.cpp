#include "check/litmus.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "check/litmus_lexer.hpp"
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
constexpr std::size_t kMaxSteps = 256;
constexpr std::size_t kMaxTerms = 64;
constexpr unsigned kMaxDepth = 8;

using Token = LitmusToken;

class Parser {
 public:
  Parser(std::string_view text, const std::string& file)
      : file_(file), tokens_(lex_litmus(text, file)) {}

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
  using Kind = Token::Kind;

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead(std::size_t by) const {
    return tokens_[std::min(at_ + by, tokens_.size() - 1)];
  }
  const Token& take() {
    const Token& token = tokens_[at_];
    if (token.kind != Kind::end) ++at_;
    return token;
  }
  static bool is(const Token& token, std::string_view text) {
    return token.kind != Kind::text && token.kind != Kind::end && token.text == text;
  }
  bool accept(std::string_view text) {
    if (!is(now(), text)) return false;
    take();
    return true;
  }
  void expect(std::string_view text) {
    if (!accept(text)) fail(now(), detail::concat("'", text, "'"));
  }
  const Token& expect(Kind kind, const std::string& what) {
    if (now().kind != kind) fail(now(), what);
    return take();
  }

  [[noreturn]] void fail(const Token& token, const std::string& expected) const {
    std::string found = "the end of the file";
    if (token.kind == Kind::text) found = "a text";
    if (token.kind != Kind::text && token.kind != Kind::end) found = "'" + token.text + "'";
    throw Error(Errc::invalid_argument, detail::concat(file_, ":", token.line, ":", token.column,
                                                       ": expected ", expected, ", found ", found));
  }

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

  // synchronize, or synchronize with a stream or an event that stands above.
  void parse_synchronize(LitmusStep& step, const Token& token) {
    const Token& name = now();
    if (name.kind != Kind::word) return;
    if (streams_.contains(name.text)) {
      step.stream = streams_.at(name.text);
    } else if (events_.contains(name.text)) {
      step.event = events_.at(name.text);
    } else if (name.line == token.line && !is_keyword(name.text) && !find_variable(name.text) &&
               !is_register(name.text)) {
      fail(name, "a stream or an event that stands above");
    } else {
      return;
    }
    take();
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

  static bool is_keyword(const std::string& word) {
    static constexpr std::string_view kTaken[] = {
        "ofence",     "dfence",   "persist",     "fence", "barrier", "prel",
        "pacq",       "strong",   "wait",        "add",   "cas",     "if",
        "persistent", "volatile", "synchronize", "start", "host",    "acknowledge",
        "thread",     "kernel",   "stream",      "copy",  "record",  "acknowledged",
        "started",    "crash",    "sbrp",        "epoch", "ptx",     "final",
        "sc"};
    return std::find(std::begin(kTaken), std::end(kTaken), word) != std::end(kTaken);
  }
  void check_new_name(const Token& name) const {
    if (is_keyword(name.text) || find_variable(name.text) || is_register(name.text) ||
        streams_.contains(name.text) || events_.contains(name.text)) {
      fail(name, "a name that is not in use and does not read r0, r1, ...");
    }
  }

  std::uint64_t number_of_width(std::uint32_t width) {
    const Token& token = expect(Kind::number, "a number");
    if (width == 4 && token.number > 0xffffffff) fail(token, "a number of at most 32 bits");
    return token.number;
  }

  std::optional<std::uint32_t> find_variable(const std::string& name) const {
    for (std::uint32_t i = 0; i < test_->variables.size(); ++i) {
      if (test_->variables[i].name == name) return i;
    }
    return std::nullopt;
  }

  static bool is_register(const std::string& name) {
    return name.size() >= 2 && name.size() <= 3 && name[0] == 'r' &&
           std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; });
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

  void parse_block(LitmusThread& thread, unsigned depth) {
    expect("{");
    while (!accept("}")) {
      parse_step(thread, depth);
      accept(";");
    }
  }

  void add(LitmusThread& thread, const LitmusStep& step, const Token& token) {
    if (thread.steps.size() == kMaxSteps) {
      fail(token, detail::concat("at most ", kMaxSteps, " operations in a thread"));
    }
    thread.steps.push_back(step);
  }

  void parse_step(LitmusThread& thread, unsigned depth) {
    const Token& token = now();
    LitmusStep step;
    step.line = token.line;
    const bool host = thread.launch == 0;
    if (is(token, "if")) {
      parse_branch(thread, depth);
      return;
    }
    static const std::map<std::string, std::pair<LitmusOp, bool>> kSimple = {
        {"ofence", {LitmusOp::ofence, false}},          {"dfence", {LitmusOp::dfence, false}},
        {"persist", {LitmusOp::dfence, false}},         {"barrier", {LitmusOp::barrier, false}},
        {"synchronize", {LitmusOp::synchronize, true}}, {"start", {LitmusOp::start, true}},
        {"acknowledge", {LitmusOp::acknowledge, true}},
    };
    const auto simple = kSimple.find(token.text);
    if (token.kind == Kind::word && simple != kSimple.end()) {
      if (simple->second.second != host) {
        fail(token, host ? "an operation of the host" : "an operation of a kernel's thread");
      }
      take();
      step.op = simple->second.first;
      if (step.op == LitmusOp::synchronize) parse_synchronize(step, token);
      if (step.op == LitmusOp::barrier && depth != 0) {
        fail(token, "no barrier inside 'if': all threads of a block must reach it");
      }
    } else if (is(token, "fence")) {
      take();
      step.op = LitmusOp::fence;
      step.scope = parse_scope();
    } else if (is(token, "prel") || is(token, "strong")) {
      parse_access(step, "prel", host);
      parse_store(thread, step);
    } else if (is(token, "wait")) {
      take();
      parse_wait(thread, step);
    } else if (is(token, "add") || is(token, "cas")) {
      parse_update(thread, step);
    } else if (token.kind == Kind::word && is_register(token.text)) {
      parse_register(thread, step);
    } else if (token.kind == Kind::word && find_variable(token.text)) {
      parse_store(thread, step);
    } else {
      fail(token,
           "an operation: a variable, a register, 'prel', 'strong', 'wait', 'add', 'cas', "
           "'ofence', 'dfence', 'fence', 'barrier', 'if' or '}'");
    }
    add(thread, step, token);
  }

  void parse_branch(LitmusThread& thread, unsigned depth) {
    const Token& token = take();
    if (depth == kMaxDepth) fail(token, detail::concat("at most ", kMaxDepth, " nested 'if'"));
    LitmusStep step;
    step.op = LitmusOp::branch;
    step.line = token.line;
    step.tested = parse_register_name(thread, false);
    step.comparison = parse_comparison();
    step.expected = parse_value(thread, 8);
    const std::size_t at = thread.steps.size();
    add(thread, step, token);
    if (is(now(), "{")) {
      parse_block(thread, depth + 1);
    } else {
      expect(":");
      parse_step(thread, depth + 1);
    }
    thread.steps[at].skip = static_cast<std::uint32_t>(thread.steps.size() - at - 1);
  }

  Scope parse_scope() {
    expect(".");
    if (accept("block")) return Scope::block;
    if (accept("device")) return Scope::device;
    if (accept("system")) return Scope::system;
    fail(now(), "'block', 'device' or 'system'");
  }

  // 'strong.SCOPE', or with `persist` in place of 'strong'.
  void parse_access(LitmusStep& step, std::string_view persist, bool host) {
    const Token& token = now();
    if (accept("strong")) {
      step.access = Access::strong;
    } else if (accept(persist)) {
      step.access = Access::persist;
      if (host) fail(token, "'strong': the host has no prel and no pacq");
    } else {
      fail(token, detail::concat("'strong' or '", persist, "'"));
    }
    step.scope = parse_scope();
  }

  std::uint32_t parse_register_name(LitmusThread& thread, bool may_be_new) {
    const Token& token = now();
    if (token.kind != Kind::word || !is_register(token.text)) fail(token, "a register, such as r0");
    std::uint32_t number = 0;
    std::from_chars(token.text.data() + 1, token.text.data() + token.text.size(), number);
    if (!may_be_new && number >= thread.registers) {
      fail(token, "a register that an operation before it has set");
    }
    thread.registers = std::max(thread.registers, number + 1);
    take();
    return number;
  }

  LitmusValue parse_value(LitmusThread& thread, std::uint32_t width) {
    if (now().kind == Kind::word && is_register(now().text)) {
      return {true, parse_register_name(thread, false)};
    }
    if (now().kind != Kind::number) fail(now(), "a number or a register");
    return {false, number_of_width(width)};
  }

  Comparison parse_comparison() {
    if (accept("==")) return Comparison::equal;
    if (accept("!=")) return Comparison::unequal;
    if (accept("<")) return Comparison::less;
    if (accept(">")) return Comparison::greater;
    fail(now(), "'==', '!=', '<' or '>'");
  }

  LitmusPlace parse_place(bool range) {
    const Token& name = expect(Kind::word, "a variable");
    const auto variable = find_variable(name.text);
    if (!variable) fail(name, "a variable that is declared above");
    const std::uint32_t count = test_->variables[*variable].count;
    LitmusPlace place{*variable, 0, 1};
    if (!accept("[")) {
      if (count != 1) fail(now(), detail::concat("'[' with an element of ", name.text));
      return place;
    }
    place.first = parse_element(count);
    if (range && accept("..")) {
      const Token& token = now();
      const std::uint32_t last = parse_element(count);
      if (last < place.first) fail(token, "a last element that is not before the first");
      place.count = last - place.first + 1;
    }
    expect("]");
    return place;
  }

  std::uint32_t parse_element(std::uint32_t count) {
    const Token& token = expect(Kind::number, "an element's number");
    if (token.number >= count) fail(token, detail::concat("an element below ", count));
    return static_cast<std::uint32_t>(token.number);
  }

  std::uint32_t width_of(const LitmusPlace& place) const {
    return test_->variables[place.variable].width;
  }

  void parse_store(LitmusThread& thread, LitmusStep& step) {
    step.op = LitmusOp::store;
    step.place = step.access == Access::plain ? parse_place(true) : parse_word();
    expect("=");
    step.value = parse_value(thread, width_of(step.place));
  }

  void parse_wait(LitmusThread& thread, LitmusStep& step) {
    parse_access(step, "pacq", thread.launch == 0);
    step.op = LitmusOp::wait;
    step.place = parse_word();
    step.comparison = parse_comparison();
    step.expected = parse_value(thread, width_of(step.place) * step.place.count);
  }

  void parse_update(LitmusThread& thread, LitmusStep& step) {
    const bool add = take().text == "add";
    step.op = add ? LitmusOp::add : LitmusOp::cas;
    step.access = Access::strong;
    step.scope = parse_scope();
    step.place = parse_place(false);
    expect(",");
    if (!add) {
      step.expected = parse_value(thread, width_of(step.place));
      expect(",");
    }
    step.value = parse_value(thread, width_of(step.place));
  }

  // r = what is read.
  void parse_register(LitmusThread& thread, LitmusStep& step) {
    step.result = parse_register_name(thread, true);
    expect("=");
    if (is(now(), "add") || is(now(), "cas")) {
      parse_update(thread, step);
      return;
    }
    step.op = LitmusOp::load;
    if (is(now(), "strong") || is(now(), "pacq")) parse_access(step, "pacq", thread.launch == 0);
    step.place = step.access == Access::plain ? parse_place(false) : parse_word();
  }

  // An element, or two that are one aligned word of 8 bytes: what one access may take in.
  LitmusPlace parse_word() {
    const Token& token = ahead(1);
    const LitmusPlace place = parse_place(true);
    const bool pair = place.count == 2 && width_of(place) == 4 && place.first % 2 == 0;
    if (place.count != 1 && !pair)
      fail(token, "one element, or two of 4 bytes from an even one on");
    return place;
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

  const std::string& file_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  LitmusTest* test_ = nullptr;
  std::map<std::string, std::uint32_t> streams_;  // by name: numbers from 2
  std::map<std::string, std::uint32_t> events_;   // by name: the launch of the last record
  std::uint32_t stream_ = 1;                      // that we are in
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

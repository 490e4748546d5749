#include "check/litmus_steps.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "holdfast/error.hpp"

namespace holdfast::check {

namespace {

// Bounds that keep a test within reach of exhaustive enumeration.
constexpr std::size_t kMaxSteps = 256;
constexpr unsigned kMaxDepth = 8;

}  // namespace

const LitmusToken& LitmusSteps::take() {
  const Token& token = tokens_[at_];
  if (token.kind != Kind::end) ++at_;
  return token;
}

bool LitmusSteps::accept(std::string_view text) {
  if (!is(now(), text)) return false;
  take();
  return true;
}

void LitmusSteps::expect(std::string_view text) {
  if (!accept(text)) fail(now(), detail::concat("'", text, "'"));
}

const LitmusToken& LitmusSteps::expect(Kind kind, const std::string& what) {
  if (now().kind != kind) fail(now(), what);
  return take();
}

void LitmusSteps::fail(const Token& token, const std::string& expected) const {
  std::string found = "the end of the file";
  if (token.kind == Kind::text) found = "a text";
  if (token.kind != Kind::text && token.kind != Kind::end) found = "'" + token.text + "'";
  throw Error(Errc::invalid_argument, detail::concat(file_, ":", token.line, ":", token.column,
                                                     ": expected ", expected, ", found ", found));
}

bool LitmusSteps::is_keyword(const std::string& word) {
  static constexpr std::string_view kTaken[] = {
      "ofence",     "dfence",   "persist",     "fence", "barrier", "prel",
      "pacq",       "strong",   "wait",        "add",   "cas",     "if",
      "persistent", "volatile", "synchronize", "start", "host",    "acknowledge",
      "thread",     "kernel",   "stream",      "copy",  "record",  "acknowledged",
      "started",    "crash",    "sbrp",        "epoch", "ptx",     "final",
      "sc"};
  return std::find(std::begin(kTaken), std::end(kTaken), word) != std::end(kTaken);
}

std::optional<std::uint32_t> LitmusSteps::find_variable(const std::string& name) const {
  for (std::uint32_t i = 0; i < test_->variables.size(); ++i) {
    if (test_->variables[i].name == name) return i;
  }
  return std::nullopt;
}

bool LitmusSteps::is_register(const std::string& name) {
  return name.size() >= 2 && name.size() <= 3 && name[0] == 'r' &&
         std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::uint64_t LitmusSteps::number_of_width(std::uint32_t width) {
  const Token& token = expect(Kind::number, "a number");
  if (width == 4 && token.number > 0xffffffff) fail(token, "a number of at most 32 bits");
  return token.number;
}

std::uint32_t LitmusSteps::width_of(const LitmusPlace& place) const {
  return test_->variables[place.variable].width;
}

void LitmusSteps::parse_block(LitmusThread& thread, unsigned depth) {
  expect("{");
  while (!accept("}")) {
    parse_step(thread, depth);
    accept(";");
  }
}

void LitmusSteps::add(LitmusThread& thread, const LitmusStep& step, const Token& token) {
  if (thread.steps.size() == kMaxSteps) {
    fail(token, detail::concat("at most ", kMaxSteps, " operations in a thread"));
  }
  thread.steps.push_back(step);
}

void LitmusSteps::parse_step(LitmusThread& thread, unsigned depth) {
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

// synchronize, or synchronize with a stream or an event that stands above.
void LitmusSteps::parse_synchronize(LitmusStep& step, const Token& token) {
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

void LitmusSteps::parse_branch(LitmusThread& thread, unsigned depth) {
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

Scope LitmusSteps::parse_scope() {
  expect(".");
  if (accept("block")) return Scope::block;
  if (accept("device")) return Scope::device;
  if (accept("system")) return Scope::system;
  fail(now(), "'block', 'device' or 'system'");
}

// 'strong.SCOPE', or with `persist` in place of 'strong'.
void LitmusSteps::parse_access(LitmusStep& step, std::string_view persist, bool host) {
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

std::uint32_t LitmusSteps::parse_register_name(LitmusThread& thread, bool may_be_new) {
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

LitmusValue LitmusSteps::parse_value(LitmusThread& thread, std::uint32_t width) {
  if (now().kind == Kind::word && is_register(now().text)) {
    return {true, parse_register_name(thread, false)};
  }
  if (now().kind != Kind::number) fail(now(), "a number or a register");
  return {false, number_of_width(width)};
}

Comparison LitmusSteps::parse_comparison() {
  if (accept("==")) return Comparison::equal;
  if (accept("!=")) return Comparison::unequal;
  if (accept("<")) return Comparison::less;
  if (accept(">")) return Comparison::greater;
  fail(now(), "'==', '!=', '<' or '>'");
}

LitmusPlace LitmusSteps::parse_place(bool range) {
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

std::uint32_t LitmusSteps::parse_element(std::uint32_t count) {
  const Token& token = expect(Kind::number, "an element's number");
  if (token.number >= count) fail(token, detail::concat("an element below ", count));
  return static_cast<std::uint32_t>(token.number);
}

void LitmusSteps::parse_store(LitmusThread& thread, LitmusStep& step) {
  step.op = LitmusOp::store;
  step.place = step.access == Access::plain ? parse_place(true) : parse_word();
  expect("=");
  step.value = parse_value(thread, width_of(step.place));
}

void LitmusSteps::parse_wait(LitmusThread& thread, LitmusStep& step) {
  parse_access(step, "pacq", thread.launch == 0);
  step.op = LitmusOp::wait;
  step.place = parse_word();
  step.comparison = parse_comparison();
  step.expected = parse_value(thread, width_of(step.place) * step.place.count);
}

void LitmusSteps::parse_update(LitmusThread& thread, LitmusStep& step) {
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
void LitmusSteps::parse_register(LitmusThread& thread, LitmusStep& step) {
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
LitmusPlace LitmusSteps::parse_word() {
  const Token& token = ahead(1);
  const LitmusPlace place = parse_place(true);
  const bool pair = place.count == 2 && width_of(place) == 4 && place.first % 2 == 0;
  if (place.count != 1 && !pair) fail(token, "one element, or two of 4 bytes from an even one on");
  return place;
}

}  // namespace holdfast::check

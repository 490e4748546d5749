// Parsing the operations of litmus tests' threads, and the places and values that they name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/litmus.hpp"
#include "check/litmus_lexer.hpp"

namespace holdfast::check {

// What parsing a file of tests (litmus.cpp) stands on. All of it throws invalid_argument where the
// text is not what it has to be, with the place and what was expected there.
class LitmusSteps {
 protected:
  using Token = LitmusToken;
  using Kind = Token::Kind;

  // `file`, for messages, outlives it.
  LitmusSteps(std::string_view text, const std::string& file)
      : file_(file), tokens_(lex_litmus(text, file)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead(std::size_t by) const {
    return tokens_[std::min(at_ + by, tokens_.size() - 1)];
  }
  const Token& take();
  static bool is(const Token& token, std::string_view text) {
    return token.kind != Kind::text && token.kind != Kind::end && token.text == text;
  }
  bool accept(std::string_view text);
  void expect(std::string_view text);
  const Token& expect(Kind kind, const std::string& what);
  [[noreturn]] void fail(const Token& token, const std::string& expected) const;

  static bool is_keyword(const std::string& word);
  static bool is_register(const std::string& name);
  std::optional<std::uint32_t> find_variable(const std::string& name) const;

  std::uint64_t number_of_width(std::uint32_t width);
  std::uint32_t width_of(const LitmusPlace& place) const;
  std::uint32_t parse_register_name(LitmusThread& thread, bool may_be_new);
  Comparison parse_comparison();
  LitmusPlace parse_place(bool range);

  // Operations in braces, each of which is added to the thread; `depth`: of the 'if's around them.
  void parse_block(LitmusThread& thread, unsigned depth);
  void parse_step(LitmusThread& thread, unsigned depth);
  void add(LitmusThread& thread, const LitmusStep& step, const Token& token);

  const std::string& file_;
  LitmusTest* test_ = nullptr;                    // that we are in
  std::map<std::string, std::uint32_t> streams_;  // by name: numbers from 2
  std::map<std::string, std::uint32_t> events_;   // by name: the launch of the last record

 private:
  void parse_synchronize(LitmusStep& step, const Token& token);
  void parse_branch(LitmusThread& thread, unsigned depth);
  Scope parse_scope();
  void parse_access(LitmusStep& step, std::string_view persist, bool host);
  LitmusValue parse_value(LitmusThread& thread, std::uint32_t width);
  std::uint32_t parse_element(std::uint32_t count);
  LitmusPlace parse_word();
  void parse_store(LitmusThread& thread, LitmusStep& step);
  void parse_wait(LitmusThread& thread, LitmusStep& step);
  void parse_update(LitmusThread& thread, LitmusStep& step);
  void parse_register(LitmusThread& thread, LitmusStep& step);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace holdfast::check

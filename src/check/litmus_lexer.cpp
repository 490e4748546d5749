#include "check/litmus_lexer.hpp"

#include <cctype>
#include <charconv>

#include "holdfast/error.hpp"

namespace holdfast::check {

namespace {

using Token = LitmusToken;

bool is_word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What a message shows of a character that was not expected.
std::string shown(char c) {
  if (std::isprint(static_cast<unsigned char>(c)) != 0) return std::string("'") + c + "'";
  return "a byte of value " + std::to_string(static_cast<unsigned char>(c));
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  std::vector<Token> all() {
    std::vector<Token> tokens;
    do {
      tokens.push_back(next());
    } while (tokens.back().kind != Token::Kind::end);
    return tokens;
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool done() const { return at_ >= text_.size(); }
  void advance() {
    if (text_[at_] == '\n') {
      ++line_;
      column_ = 0;
    }
    ++at_;
    ++column_;
  }

  void skip_blanks() {
    while (!done()) {
      if (peek() == '/' && peek(1) == '/') {
        while (!done() && peek() != '\n') advance();
      } else if (std::isspace(static_cast<unsigned char>(peek())) != 0) {
        advance();
      } else {
        return;
      }
    }
  }

  Token next() {
    skip_blanks();
    Token token;
    token.line = line_;
    token.column = column_;
    if (done()) return token;
    if (is_word_start(peek())) {
      token.kind = Token::Kind::word;
      while (!done() && is_word(peek())) take(token);
    } else if (is_digit(peek())) {
      token.kind = Token::Kind::number;
      while (!done() && is_word(peek())) take(token);
      read_number(token);
    } else if (peek() == '"') {
      read_text(token);
    } else {
      read_symbol(token);
    }
    return token;
  }

  void take(Token& token) {
    token.text += peek();
    advance();
  }

  void read_number(Token& token) const {
    const bool hex = token.text.starts_with("0x");
    const char* const begin = token.text.data() + (hex ? 2 : 0);
    const char* const end = token.text.data() + token.text.size();
    const auto [stop, error] = std::from_chars(begin, end, token.number, hex ? 16 : 10);
    if (error != std::errc{} || stop != end) {
      fail(token, "a number of at most 64 bits, such as 7 or 0xff");
    }
  }

  void read_text(Token& token) {
    token.kind = Token::Kind::text;
    advance();
    while (!done() && peek() != '"' && peek() != '\n') take(token);
    if (peek() != '"') fail(token, "'\"' at the end of the text, on the same line");
    advance();
  }

  void read_symbol(Token& token) {
    static constexpr std::string_view kTwo[] = {"==", "!=", "&&", ".."};
    static constexpr std::string_view kOne = "{}[],;:.=<>";
    token.kind = Token::Kind::symbol;
    for (const std::string_view two : kTwo) {
      if (text_.substr(at_, 2) != two) continue;
      take(token);
      take(token);
      return;
    }
    if (kOne.find(peek()) == std::string_view::npos) {
      const char odd = peek();
      throw Error(
          Errc::invalid_argument,
          detail::concat(file_, ":", line_, ":", column_,
                         ": expected a name, a number or one of {}[],;:.=<>, found ", shown(odd)));
    }
    take(token);
  }

  [[noreturn]] void fail(const Token& token, const std::string& expected) const {
    throw Error(Errc::invalid_argument,
                detail::concat(file_, ":", token.line, ":", token.column, ": expected ", expected,
                               ", found '", token.text, "'"));
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  std::uint32_t column_ = 1;
};

}  // namespace

std::vector<LitmusToken> lex_litmus(std::string_view text, const std::string& file) {
  return Lexer(text, file).all();
}

}  // namespace holdfast::check

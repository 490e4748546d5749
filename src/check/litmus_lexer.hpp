// Words, numbers and symbols of litmus tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::check {

struct LitmusToken {
  enum class Kind : std::uint8_t { word, number, text, symbol, end } kind = Kind::end;
  std::string text;
  std::uint64_t number = 0;
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

// All tokens; the last one is of kind `end`. Throws invalid_argument with the place in `file`.
std::vector<LitmusToken> lex_litmus(std::string_view text, const std::string& file);

}  // namespace holdfast::check

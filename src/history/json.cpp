#include "history/json.hpp"

#include <cstdio>

namespace holdfast::history {

namespace {

// The length of the UTF-8 character that `text` begins with; 0: none.
std::size_t character_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  // Too long a form, a surrogate, past the last character.
  const bool wrong = (first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f) ||
                     (first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) > 0x8f);
  return wrong ? 0 : bytes;
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  const auto escape = [&](unsigned code) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\u%04x", code);
    out += hex;
  };
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t bytes = character_bytes(text.substr(i));
    if (bytes == 0) {
      escape(0xdc00u + byte);
    } else if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text[i];
    } else if (byte < 0x20 || byte == 0x7f) {
      escape(byte);
    } else {
      out += text.substr(i, bytes);
    }
    i += bytes == 0 ? 1 : bytes;
  }
  return out + '"';
}

std::string microseconds(std::int64_t ns) {
  std::string out;
  if (ns < 0) out = "-";
  const std::uint64_t size =
      ns < 0 ? -static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  const std::string rest = std::to_string(1000 + size % 1000);
  append(out, size / 1000, ".", std::string_view(rest).substr(1));
  return out;
}

}  // namespace holdfast::history

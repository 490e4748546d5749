// JSON as a history writes it.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

namespace holdfast::history {

// What a trace's file begins with, by which it is known.
inline constexpr std::string_view kTraceStart = R"({"otherData":{"holdfast_history_trace":1)";

// A JSON string. Bytes that are no UTF-8, as file names may have, become the lone surrogates that
// Python's os.fsencode() makes bytes of again.
std::string json_string(std::string_view text);

// Puts texts and whole numbers behind a text. (A stream is ten times slower.)
inline void append_part(std::string& out, std::string_view text) { out += text; }
template <std::integral Number>
void append_part(std::string& out, Number number) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, number);
  out.append(digits, end.ptr);
}
template <class... Parts>
void append(std::string& out, const Parts&... parts) {
  (append_part(out, parts), ...);
}
// Of nanoseconds, with three decimals.
std::string microseconds(std::int64_t ns);

// CLOCK_REALTIME.
inline std::uint64_t unix_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace holdfast::history

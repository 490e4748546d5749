#include <charconv>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace workload {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

void NumberReader::fail(const std::string& what) const {
  damaged_input(name_, holdfast::detail::concat("line ", line_, ": ", what));
}

void NumberReader::skip_space() {
  for (; at_ < text_.size() && is_space(text_[at_]); ++at_) line_ += text_[at_] == '\n';
}

bool NumberReader::at_end() {
  skip_space();
  return at_ == text_.size();
}

void NumberReader::skip_lines(char mark) {
  for (skip_space(); at_ < text_.size() && text_[at_] == mark; skip_space()) {
    const std::size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end;
  }
}

std::string_view NumberReader::word() {
  skip_space();
  const std::size_t first = at_;
  while (at_ < text_.size() && !is_space(text_[at_])) ++at_;
  if (first == at_) fail("the text ends where more was to come");
  return text_.substr(first, at_ - first);
}

std::uint64_t NumberReader::whole(std::uint64_t least, std::uint64_t most) {
  const std::string_view text = word();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    fail(holdfast::detail::concat("'", text.substr(0, 40), "' is not a whole number from ", least,
                                  " to ", most));
  }
  return value;
}

double NumberReader::real() {
  const std::string_view text = word();
  double value = 0;
  const char* const first = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value - value == 0)) {
    fail(holdfast::detail::concat("'", text.substr(0, 40), "' is not a number"));
  }
  return value;
}

}  // namespace workload

// What the benchmark programs share: options, medians, JSON lines.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

// "--name=number" options. An unknown one ends the program with a list of those there are.
class Options {
 public:
  Options(int argc, char** argv, std::map<std::string, std::uint64_t> defaults)
      : values_(std::move(defaults)) {
    for (int i = 1; i < argc; ++i) {
      const std::string text = argv[i];
      const std::size_t equals = text.find('=');
      const auto known = values_.find(text.substr(2, equals - 2));
      if (text.rfind("--", 0) != 0 || equals == std::string::npos || known == values_.end()) {
        std::fprintf(stderr, "unknown option %s; there are:", argv[i]);
        for (const auto& [name, value] : values_) {
          std::fprintf(stderr, " --%s=%llu", name.c_str(), static_cast<unsigned long long>(value));
        }
        std::fprintf(stderr, "\n");
        std::exit(2);
      }
      known->second = std::strtoull(text.c_str() + equals + 1, nullptr, 0);
    }
  }
  std::uint64_t operator[](const char* name) const { return values_.at(name); }

 private:
  std::map<std::string, std::uint64_t> values_;
};

// Takes "--name=text" out of the arguments, of several the last; none: it is not there.
inline std::optional<std::string> take_text(std::vector<char*>& arguments, const char* name) {
  const std::string start = std::string("--") + name + "=";
  std::optional<std::string> text;
  for (std::size_t at = 1; at < arguments.size();) {
    const std::string argument = arguments[at];
    if (argument.rfind(start, 0) != 0) {
      ++at;
      continue;
    }
    text = argument.substr(start.size());
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return text;
}

// The words of a list with commas. Of "" one, which is empty.
inline std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t at = 0;;) {
    const std::size_t comma = list.find(',', at);
    words.push_back(list.substr(at, comma - at));
    if (comma == std::string::npos) return words;
    at = comma + 1;
  }
}

// Of --batches. Throws std::invalid_argument.
inline std::vector<std::uint32_t> batches_of(const std::string& list) {
  std::vector<std::uint32_t> batches;
  for (const std::string& word : words_of(list)) {
    char* end = nullptr;
    const unsigned long long number = std::strtoull(word.c_str(), &end, 10);
    if (word.empty() || *end != '\0' || number == 0 || number > 1u << 26) {
      throw std::invalid_argument("--batches: '" + word + "' is no number from 1 to 2^26");
    }
    batches.push_back(static_cast<std::uint32_t>(number));
  }
  return batches;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Seconds that `body` takes, on the host's clock.
template <class Body>
double seconds(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The median of what once(i) returns, which takes so many seconds: `repeat` times, behind one that
// does not count.
template <class Once>
double warmed(std::uint64_t repeat, Once&& once) {
  std::vector<double> times;
  for (std::uint64_t i = 0; i <= repeat; ++i) {
    const double took = once(i);
    if (i > 0) times.push_back(took);
  }
  return median(times);
}

// One JSON object on a line of its own.
class Line {
 public:
  explicit Line(const std::string& benchmark) { text("benchmark", benchmark); }
  Line& text(const char* key, const std::string& value) { return add(key, "\"" + value + "\""); }
  Line& number(const char* key, double value) {
    char digits[40];
    std::snprintf(digits, sizeof(digits), "%.6g", value);
    return add(key, digits);
  }
  Line& count(const char* key, std::uint64_t value) { return add(key, std::to_string(value)); }
  Line& numbers(const char* key, const std::vector<double>& values) {
    std::string list;
    for (const double value : values) {
      char digits[40];
      const bool whole = value == static_cast<double>(static_cast<std::int64_t>(value));
      std::snprintf(digits, sizeof(digits), whole ? "%.0f" : "%.4g", value);
      list += (list.empty() ? "" : ", ") + std::string(digits);
    }
    return add(key, "[" + list + "]");
  }
  void print() const {
    std::printf("{%s}\n", body_.c_str());
    std::fflush(stdout);
  }

 private:
  Line& add(const char* key, const std::string& value) {
    body_ += (body_.empty() ? "\"" : ", \"") + std::string(key) + "\": " + value;
    return *this;
  }
  std::string body_;
};

}  // namespace bench

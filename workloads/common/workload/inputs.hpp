// Reading the real inputs that workloads take, and checksums of results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace workload {

struct Settings;

// What is wrong with an input, the same for every workload:
// - not_found: an option names a file that is not there; says what the option takes, and who has
// it;
// - invalid_argument: the value of an option, such as a folder's name, one of two files that belong
//   together, or a file that is too large;
// - permission, io: the file is there and cannot be read;
// - damaged: what the file holds.

constexpr std::size_t kMostInputBytes = std::size_t{1} << 30;

// The whole of folder/name, decompressed where the name ends in .gz or .xz. Empty where the folder
// is "" or the file is not there.
std::optional<std::string> read_input(const std::string& folder, const std::string& name);

// A file that an option names.
struct NamedInput {
  std::string path;
  std::string text;  // decompressed
};
// Empty where the option is not given. `takes` is for who names a file that is not there: what the
// option takes, and where that is to be had.
std::optional<NamedInput> read_named_input(const Settings& settings, const std::string& option,
                                           const std::string& takes,
                                           std::size_t most_bytes = kMostInputBytes);

// Throws Error(damaged), naming the input.
[[noreturn]] void damaged_input(const std::string& name, const std::string& what);

// Numbers of a text, taken one by one. Errors name the input and the line.
class NumberReader {
 public:
  NumberReader(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}
  // Skips white space. Throws Error(damaged): no number there, or out of [least, most].
  std::uint64_t whole(std::uint64_t least, std::uint64_t most);
  double real();
  // Skips white space, and lines that start with `mark`.
  void skip_lines(char mark);
  // The word up to the next white space.
  std::string_view word();
  bool at_end();

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void skip_space();
  std::string_view text_;
  std::string name_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
};

// xxHash (XXH3) of bytes.
std::uint64_t checksum(const void* data, std::size_t bytes);
template <class T>
std::uint64_t checksum(const std::vector<T>& values) {
  return checksum(values.data(), values.size() * sizeof(T));
}

}  // namespace workload

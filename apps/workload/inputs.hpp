// Reading the real inputs that workloads take, and checksums of results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace workload {

// The whole of folder/name, decompressed where the name ends in .gz or .xz. Empty where the folder
// is "" or the file is not there. Throws Error(damaged) for a file that does not decompress,
// io for one that cannot be read. At most 1 GiB.
std::optional<std::string> read_input(const std::string& folder, const std::string& name);
// The same for a file that a user names. Empty where it is not there.
std::optional<std::string> read_input_file(const std::string& path);

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

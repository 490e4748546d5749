#include "check/command/source.hpp"

#include <fstream>
#include <map>
#include <vector>

namespace holdfast::check {

std::string source_line(const Place& place) {
  static std::map<std::string, std::vector<std::string>> files;
  if (place.file.empty() || place.line == 0) return {};
  const auto [known, is_new] = files.try_emplace(place.file);
  if (is_new) {
    std::ifstream file(place.file);
    for (std::string line; std::getline(file, line);) known->second.push_back(line);
  }
  if (place.line > known->second.size()) return {};
  const std::string& line = known->second[place.line - 1];
  const std::size_t first = line.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace holdfast::check

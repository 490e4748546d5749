#include "workload/workload.hpp"

#include <algorithm>
#include <charconv>

namespace workload {

void check_options(const Info& info, const Settings& settings) {
  for (const auto& [name, value] : settings.options) {
    if (info.options.count(name)) continue;
    std::string known;
    for (const auto& [option, what] : info.options) known += (known.empty() ? "" : ", ") + option;
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("option ", name, ": ", info.name, " has no such option; it has ",
                                 known.empty() ? "none" : known));
  }
}

std::uint64_t number_option(const Settings& settings, const std::string& name,
                            std::uint64_t otherwise, std::uint64_t least, std::uint64_t most) {
  const auto found = settings.options.find(name);
  if (found == settings.options.end()) return otherwise;
  const std::string& text = found->second;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("option ", name, "=", text, ": give a whole number from ", least,
                                 " to ", most));
  }
  return value;
}

void check_together(const Settings& settings, const std::vector<std::string>& names) {
  const auto given = std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return settings.options.count(name) != 0;
  });
  if (given == 0 || given == std::ssize(names)) return;
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " and ") + name;
  throw holdfast::Error(
      holdfast::Errc::invalid_argument,
      holdfast::detail::concat("options ", all, " belong together: give all of them, or none"));
}

}  // namespace workload

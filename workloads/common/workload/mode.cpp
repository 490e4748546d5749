#include "workload/mode.hpp"

#include <array>
#include <utility>

namespace workload {
namespace {

constexpr std::array<std::pair<Mode, const char*>, 11> kNames{{
    {Mode::gpm, "gpm"},
    {Mode::cap_fs, "cap-fs"},
    {Mode::cap_mm, "cap-mm"},
    {Mode::ndp, "ndp"},
    {Mode::gpufs, "gpufs"},
    {Mode::cpu, "cpu"},
    {Mode::eadr, "eadr"},
    {Mode::cap_eadr, "cap-eadr"},
    {Mode::cap_delta, "cap-delta"},
    {Mode::cap_delta_raw, "cap-delta-raw"},
    {Mode::cap_log, "cap-log"},
}};

}  // namespace

const char* to_string(Mode mode) noexcept {
  for (const auto& [known, name] : kNames) {
    if (known == mode) return name;
  }
  return "?";
}

std::optional<Mode> parse_mode(std::string_view name) noexcept {
  for (const auto& [mode, known] : kNames) {
    if (known == name) return mode;
  }
  return std::nullopt;
}

const std::vector<Mode>& all_modes() {
  static const std::vector<Mode> modes = [] {
    std::vector<Mode> all;
    all.reserve(kNames.size());
    for (const auto& [mode, name] : kNames) all.push_back(mode);
    return all;
  }();
  return modes;
}

}  // namespace workload

#include "contestant.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace maps {

const std::vector<Offer>& offers() {
  static const std::vector<Offer> all{
      {"holdfast", make_holdfast_map, {8, 16, 32, 64, 128}},
      {"holdfast-no-directory", make_holdfast_map_without_directory, {8, 16, 32, 64, 128}},
      {"holdfast-log", make_holdfast_log_map, {8}},
      {"slabhash-gpm", make_slabhash_gpm},
      {"clevel-gpm", make_clevel_gpm},
      {"cpu-assisted", make_cpu_map},
      {"volatile", make_volatile_map}};
  return all;
}

void check(const Setting& setting, const std::vector<std::uint32_t>& key_bytes) {
  // Slots are counted in 32 bits, with some to spare.
  constexpr std::uint64_t kMostKeys = std::uint64_t{1} << 31;
  constexpr std::uint32_t kMostBatch = 1 << 26;
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("map: " + what); };
  if (std::find(key_bytes.begin(), key_bytes.end(), setting.key_bytes) == key_bytes.end()) {
    std::string sizes;
    for (const std::uint32_t bytes : key_bytes) {
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(bytes);
    }
    refuse("keys of " + std::to_string(setting.key_bytes) + " bytes; give one of " + sizes);
  }
  if (setting.keys == 0 || setting.keys > kMostKeys) {
    refuse("room for " + std::to_string(setting.keys) + " keys; give 1 to 2^31");
  }
  if (setting.batch == 0 || setting.batch > kMostBatch) {
    refuse("batches of " + std::to_string(setting.batch) + "; give 1 to 2^26");
  }
}

void check(const Batch& batch, const Setting& setting) {
  if (batch.count != 0 && batch.count <= setting.batch) return;
  throw std::invalid_argument("map: a batch of " + std::to_string(batch.count) +
                              " operations; it was made for 1 to " + std::to_string(setting.batch));
}

}  // namespace maps

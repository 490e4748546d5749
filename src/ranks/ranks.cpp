#include "holdfast/ranks.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core/sysfs.hpp"
#include "core/uuid.hpp"

namespace holdfast {

using detail::concat;

std::string RankGroup::node() const { return core::to_text(core::this_boot()); }

RankMap map_ranks(RankGroup& group, std::chrono::milliseconds timeout) {
  const std::string own = group.node();
  const auto names = group.all_gather(std::as_bytes(std::span(own)), timeout);
  RankMap map;
  std::map<std::string, int> numbers;
  for (const RankGroup::Bytes& bytes : names) {
    const std::string name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    map.node_of.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  map.nodes = static_cast<int>(numbers.size());
  map.node_size = 0;
  const auto rank = static_cast<std::size_t>(group.rank());
  for (std::size_t other = 0; other < map.node_of.size(); ++other) {
    if (map.node_of[other] != map.node_of[rank]) continue;
    ++map.node_size;
    if (other < rank) ++map.node_rank;
  }
  return map;
}

namespace {

int number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  const auto number = text ? sysfs::parse_u64(text) : std::nullopt;
  if (number && *number <= 1'000'000) return static_cast<int>(*number);
  throw Error(
      Errc::invalid_argument,
      concat("the environment's ", variable, " is ", text ? concat("'", text, "'") : "not set",
             ": set RANK, WORLD_SIZE and HOLDFAST_RANKS (the path of a socket), as "
             "torchrun sets the first two"));
}

}  // namespace

std::shared_ptr<RankGroup> ranks_from_environment(std::chrono::milliseconds timeout) {
  LocalRanksOptions options;
  options.rank = number_of("RANK");
  options.size = number_of("WORLD_SIZE");
  options.timeout = timeout;
  const char* const path = std::getenv("HOLDFAST_RANKS");
  if (path == nullptr || *path == 0) {
    throw Error(
        Errc::invalid_argument,
        "the environment's HOLDFAST_RANKS is not set: give all ranks of a run the path of a "
        "socket that rank 0 can make");
  }
  options.path = path;
  return local_ranks(options);
}

}  // namespace holdfast

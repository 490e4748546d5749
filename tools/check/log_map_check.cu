// The log map: a batch whose values go to places that earlier ones had.
#include <cstring>
#include <memory>
#include <vector>

#include "holdfast/error.hpp"
#include "holdfast/log_map.hpp"
#include "layers.hpp"

namespace holdfast::check {
namespace {

constexpr std::uint32_t kValueBytes = 16;
constexpr std::uint64_t kBatches = 2;  // that set_up() makes

// Room for the batch's keys, were they new: the host waits for nothing between values and commit.
// An opened map takes the first places, which the first batch had. One operation more than those
// that count: of a key that is not there.
LogMap::Options options_of(std::uint32_t operations) {
  LogMap::Options options;
  options.capacity = 2 * std::uint64_t{operations};
  options.max_batch = operations + 1;
  options.value_bytes = kValueBytes;
  options.index = KvStore::Index::whole;
  return options;
}

// What batch number `batch` stores: rows that say which it was.
std::vector<std::uint64_t> rows_of(std::uint64_t batch, std::uint32_t operations) {
  std::vector<std::uint64_t> rows;
  for (std::uint64_t key = 1; key <= operations; ++key) {
    rows.push_back(batch << 32 | key);
    rows.push_back(~(batch << 32 | key));
  }
  return rows;
}

void put(LogMap& map, std::uint64_t batch, std::uint32_t operations) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 1; key <= operations; ++key) keys.push_back(key);
  map.insert_or_assign(keys.data(), rows_of(batch, operations).data(), operations);
}

// The same, of the keys that are there, among which is one that is not.
void assign(LogMap& map, std::uint64_t batch, std::uint32_t operations) {
  std::vector<std::uint64_t> keys{operations + 1};
  std::vector<std::uint64_t> rows{1, 2};
  for (std::uint64_t key = 1; key <= operations; ++key) keys.push_back(key);
  const std::vector<std::uint64_t> stored = rows_of(batch, operations);
  rows.insert(rows.end(), stored.begin(), stored.end());
  map.assign(keys.data(), rows.data(), keys.size());
}

std::string verify_map(LogMap& map, const History& history, std::uint32_t operations) {
  const LogMap::Stats stats = map.stats();
  const std::uint64_t batches = stats.index.batches;
  if (batches < kBatches + history.acknowledged || batches > kBatches + history.started) {
    return detail::concat("the map says that it holds ", batches, " batches");
  }
  if (stats.free_places != stats.places - operations) {
    return detail::concat(stats.free_places, " places are free, and not all but ", operations);
  }
  std::vector<std::uint64_t> keys(operations), found(2 * std::size_t{operations});
  if (map.scan(keys.data(), found.data(), operations) != operations) return "a pair is missing";
  const std::vector<std::uint64_t> expected = rows_of(batches, operations);
  for (std::size_t i = 0; i < operations; ++i) {
    const std::size_t at = 2 * (keys[i] - 1);
    if (keys[i] == 0 || keys[i] > operations || found[2 * i] != expected[at] ||
        found[2 * i + 1] != expected[at + 1]) {
      return detail::concat("behind batch ", batches, " key ", keys[i], " has ", found[2 * i], ", ",
                            found[2 * i + 1]);
    }
  }
  return {};
}

using Call = void (*)(LogMap& map, std::uint64_t batch, std::uint32_t operations);

Program make(const char* name, Call call, std::uint32_t operations) {
  const auto recovered = std::make_shared<std::unique_ptr<LogMap>>();
  Program program;
  program.name = name;
  program.region_bytes = LogMap::region_bytes(options_of(operations));
  program.set_up = [operations](Region& region) {
    LogMap map = LogMap::create(region, "map", options_of(operations));
    for (std::uint64_t batch = 1; batch <= kBatches; ++batch) put(map, batch, operations);
  };
  program.run = [call, operations](Region& region, Session& session) {
    LogMap map = LogMap::open(region, "map", KvStore::Index::whole);
    session.start();
    call(map, kBatches + 1, operations);
    session.acknowledge();
  };
  program.recover = [recovered](Region& region) {
    *recovered = std::make_unique<LogMap>(LogMap::open(region, "map", KvStore::Index::whole));
  };
  program.items = 1;
  program.verify = [recovered, operations](Region&, const History& history, std::uint64_t) {
    return verify_map(**recovered, history, operations);
  };
  return program;
}

}  // namespace

std::vector<Offer> log_map_programs() {
  const auto offer = [](const char* name, const char* what, Call call) -> Offer {
    const auto program = [name, call](const Sizes& sizes) {
      if (sizes.blocks != 0 || sizes.persists != 0 || sizes.threads > 64) {
        throw Error(Errc::invalid_argument, "the map has one size, --threads: operations, 1 to 64");
      }
      return make(name, call, sizes.threads == 0 ? 1 : sizes.threads);
    };
    return {name, what, true, program, {{1, 0, 0}}};
  };
  return {offer("log_map", "the log map: a batch of upserts, to places that came free", put),
          offer("log_map_assign", "the same of those keys that are there, of which one is not",
                assign)};
}

}  // namespace holdfast::check

// Breadth-first search, in two operations: recovery is to go on with it.
#include "bfs/search.hpp"

#include <memory>

#include "checking/sized_offer.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::check {
namespace {

// Levels of 1, 3 and 2 nodes, and an arc between nodes of one level.
constexpr const char* kText = "p tw 6 7\n1 2\n1 3\n1 4\n2 3\n2 5\n3 5\n4 6\n";
constexpr std::uint32_t kStoredCosts[] = {1, 2, 2, 2, 3, 3};  // one more than they are
constexpr std::uint32_t kEnds[] = {1, 4, 6, 6};
constexpr std::uint32_t kNodes = 6;
constexpr std::uint32_t kLevels = 3;

template <class T>
T* object(Region& region, const char* name) {
  return static_cast<T*>(region.address(region.object(name)));
}

// As the progress of a run is set behind all else: costs are not stored again.
__global__ void set_done(std::uint32_t* done) {
  *done = 1;
  persist();
}

// The first level, then the others by as many blocks as its nodes take, and then the costs.
void search_all(Region& region, const bfs::Graph& graph, bfs::Persists persists,
                std::uint32_t threads, Session* session) {
  auto* const done = object<std::uint32_t>(region, "done");
  if (*done == 1) return;
  const DeviceBuffer<std::uint32_t> costs(kNodes);
  const bfs::Durable durable{costs.data(), object<std::uint32_t>(region, "sequence"),
                             object<std::uint32_t>(region, "ends")};
  Stream stream;
  bfs::Search search(stream, graph, durable, kLevels, persists, threads);
  std::uint32_t levels = search.recover(0).levels;
  do {
    if (session) session->start();
    if (levels < kLevels) levels = search.expand(levels == 0 ? 1 : kLevels).levels;
    if (levels == kLevels) {
      search.store_costs(object<std::uint32_t>(region, "costs"));
      launch(stream, dim3(1), dim3(1), set_done, done);
      stream.synchronize();
    }
    if (session) session->acknowledge();
  } while (levels < kLevels);
}

// All that the search found is there, whatever was there before recovery.
std::string verify(Region& region) {
  const auto* const costs = object<std::uint32_t>(region, "costs");
  const auto* const sequence = object<std::uint32_t>(region, "sequence");
  const auto* const ends = object<std::uint32_t>(region, "ends");
  for (std::uint32_t level = 0; level <= kLevels; ++level) {
    if (ends[level] != kEnds[level]) {
      return detail::concat("level ", level, " ends at ", ends[level], ", and should at ",
                            kEnds[level]);
    }
  }
  std::uint32_t seen = 0;
  for (std::uint32_t i = 0; i < kNodes; ++i) {
    if (costs[i] != kStoredCosts[i]) {
      return detail::concat("the cost of node ", i, " is stored as ", costs[i],
                            ", and should be as ", kStoredCosts[i]);
    }
    const std::uint32_t node = sequence[i];
    const bool is_next = node < kNodes && (seen & 1u << node) == 0 &&
                         i >= (kStoredCosts[node] == 1 ? 0 : kEnds[kStoredCosts[node] - 2]) &&
                         i < kEnds[kStoredCosts[node] - 1];
    if (!is_next) return detail::concat("node ", node, " is in place ", i, " of the sequence");
    seen |= 1u << node;
  }
  return {};
}

Program make(const Sizes& sizes, bfs::Persists persists) {
  const std::uint32_t threads = sizes.threads;
  const auto graph = std::make_shared<bfs::Graph>(bfs::parse_graph(kText, "small graph"));
  Program program;
  program.set_up = [](Region& region) {
    region.allocate<std::uint32_t>("costs", kNodes);
    region.allocate<std::uint32_t>("sequence", kNodes);
    region.allocate<std::uint32_t>("ends", kLevels + 1);
    region.allocate<std::uint32_t>("done", 1);
  };
  program.run = [=](Region& region, Session& session) {
    search_all(region, *graph, persists, threads, &session);
  };
  program.recover = [=](Region& region) { search_all(region, *graph, persists, threads, nullptr); };
  program.verify = [](Region& region, const History&, std::uint64_t) { return verify(region); };
  return program;
}

std::function<Program(const Sizes&)> make(bfs::Persists persists) {
  return [=](const Sizes& sizes) { return make(sizes, persists); };
}

}  // namespace
}  // namespace holdfast::check

namespace bfs {

std::vector<holdfast::check::Offer> check_programs() {
  using holdfast::check::sized_offer;
  return {sized_offer("bfs", "breadth-first search over six nodes, recovered by going on",
                      {2, 0, 0}, holdfast::check::make(Persists::levels)),
          sized_offer("bfs_step", "the same, with levels that are persisted together", {2, 0, 0},
                      holdfast::check::make(Persists::expansions))};
}

}  // namespace bfs

// The breadth-first search in every mode, cut off at any place, and its inputs.
#include "bfs/bfs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "bfs/search.hpp"
#include "support/scratch.hpp"
#include "workload/inputs.hpp"
#include "workload_checks.hpp"

namespace bfs {
namespace {

using holdfast::Errc;
using holdfast::test::error_of;
using workload::Mode;
using workload::Settings;
using workload_checks::expect_refused;

Settings small(Mode mode) {
  Settings settings;
  settings.mode = mode;
  settings.options = {{"width", "40"}, {"height", "20"}, {"levels_per_step", "8"}};
  return settings;
}

class BfsModes : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(All, BfsModes, ::testing::ValuesIn(workload::all_modes()),
                         workload_checks::mode_name);

TEST_P(BfsModes, AgreesWithTheOracle) {
  Settings settings;
  settings.mode = GetParam();
  const auto run = workload_checks::run_whole(info(), settings);
  EXPECT_EQ(run.wrong, "");
  EXPECT_EQ(run.digest.text(), workload_checks::run_whole(info(), {}).digest.text());
}

TEST_P(BfsModes, ResumesAfterEachStep) {
  const Settings settings = small(GetParam());
  const auto whole = workload_checks::run_whole(info(), settings);
  const auto steps = workload_checks::run_step_by_step(info(), settings);
  EXPECT_EQ(whole.wrong, "");
  EXPECT_EQ(steps.wrong, "");
  EXPECT_EQ(steps.digest, whole.digest);
  EXPECT_GT(steps.steps, 3u);
}

TEST_P(BfsModes, SurvivesKills) {
  if (std::strcmp(holdfast::backend::name(), "cpu") != 0) GTEST_SKIP() << "forks";
  workload_checks::expect_kills_survived(info(), small(GetParam()), 5, holdfast::test::test_seed());
}

TEST_P(BfsModes, StopsAfterTheStepsThatAreAskedFor) {
  Settings settings = small(GetParam());
  settings.steps = 2;
  const auto run = workload_checks::run_step_by_step(info(), settings);
  EXPECT_EQ(run.wrong, "");
  EXPECT_EQ(run.steps, 2u);
}

TEST_P(BfsModes, PublishesOnceAStepWhereThatIsAskedFor) {
  Settings settings = small(GetParam());
  settings.options["publish"] = "step";
  const auto run = workload_checks::run_step_by_step(info(), settings);
  EXPECT_EQ(run.wrong, "");
  EXPECT_EQ(run.digest, workload_checks::run_whole(info(), small(Mode::gpm)).digest);
  settings.options["publish_costs"] = "1";
  EXPECT_EQ(workload_checks::run_step_by_step(info(), settings).digest, run.digest);
  if (std::strcmp(holdfast::backend::name(), "cpu") != 0) return;  // forks
  settings.options.erase("publish_costs");
  workload_checks::expect_kills_survived(info(), settings, 5, holdfast::test::test_seed());
}

// Of several ends that were stored at once, a kill may have left the last and not the first.
class BfsRegions : public holdfast::test::Scratch, public ::testing::WithParamInterface<Mode> {};
INSTANTIATE_TEST_SUITE_P(All, BfsRegions, ::testing::Values(Mode::cap_mm, Mode::gpm),
                         workload_checks::mode_name);
TEST_P(BfsRegions, ForgetEndsThatOthersShouldPrecede) {
  Settings settings = small(GetParam());
  settings.options["publish"] = "step";
  const auto work_on = [&](auto&& body) {
    const auto work = info().make(settings);
    workload::BackingOptions options;
    options.mode = settings.mode;
    options.path = path();
    options.capacity = work->medium_bytes();
    options.cpu_threads = 2;
    workload::Backing backing(options);
    work->prepare(backing);
    const std::uint64_t first = work->resume();
    auto* const ends =
        static_cast<std::uint32_t*>(backing.region().address(backing.region().object("ends")));
    body(*work, first, ends);
  };
  work_on([](auto& work, std::uint64_t, std::uint32_t* ends) {
    work.step(0);
    work.step(1);
    ASSERT_NE(ends[12], 0u);
    ends[11] = 0;
  });
  work_on([](auto& work, std::uint64_t first, const std::uint32_t* ends) {
    EXPECT_EQ(first, 1u);
    EXPECT_NE(ends[10], 0u);
    EXPECT_EQ(ends[12], 0u);
    for (std::uint64_t step = first; step < work.steps(); ++step) work.step(step);
    EXPECT_EQ(work.verify(), "");
  });
}

TEST(BfsTest, CostsMayBePublishedAfterEachLevel) {
  Settings settings = small(Mode::cap_mm);
  const auto usual = workload_checks::run_whole(info(), settings);
  settings.options["publish_costs"] = "1";
  const auto often = workload_checks::run_step_by_step(info(), settings);
  EXPECT_EQ(often.wrong, "");
  EXPECT_EQ(often.digest, usual.digest);
}

TEST(BfsTest, GatheredCostsMayBeStoredAfterEachLevel) {
  Settings settings = small(Mode::cap_delta_raw);
  settings.options["publish_costs"] = "1";
  const auto often = workload_checks::run_step_by_step(info(), settings);
  EXPECT_EQ(often.wrong, "");
  EXPECT_EQ(often.digest, workload_checks::run_whole(info(), small(Mode::gpm)).digest);
}

// More nodes than the first copy of a level brings.
TEST(BfsTest, AWideLevelIsGatheredWhole) {
  std::string star = "p tw 5000 4999\n";
  for (int i = 2; i <= 5000; ++i) star += "1 " + std::to_string(i) + "\n";
  const Graph graph = parse_graph(star, "test");
  const std::uint32_t nodes = graph.nodes();
  holdfast::Stream stream;
  const holdfast::DeviceBuffer<std::uint32_t> working(3 * std::size_t{nodes} + 1);
  std::uint32_t* const costs = working.data();
  Search search(stream, graph, {costs, costs + nodes, costs + 2 * nodes}, nodes, Persists::never);
  search.set_up_gathering();
  search.recover(0);
  const Gathered level = search.expand_gathered(1);
  const std::uint32_t* const found = level.nodes;
  ASSERT_EQ(search.reached().begin, 1u);
  ASSERT_EQ(search.reached().end, nodes);
  std::vector<std::uint32_t> sorted(found, found + nodes - 1);
  std::sort(sorted.begin(), sorted.end());
  for (std::uint32_t i = 1; i < nodes; ++i) EXPECT_EQ(sorted[i - 1], i);
  EXPECT_EQ(level.levels, 1u);
  EXPECT_EQ(level.ends[0], nodes);
  EXPECT_EQ(search.expand_gathered(1).levels, 1u);
  EXPECT_TRUE(search.reached().complete());
  EXPECT_EQ(search.expand_gathered(1).levels, 0u);
}

// Levels that are gathered together, against those of the oracle.
TEST(BfsTest, SeveralLevelsAreGatheredAtOnce) {
  const Graph graph = make_road_grid(150, 40, 3);
  const std::vector<std::uint32_t> expected = oracle_costs(graph, 5);
  const std::uint32_t nodes = graph.nodes();
  for (const std::uint32_t at_once : {1u, 7u, 1000u}) {
    holdfast::Stream stream;
    const holdfast::DeviceBuffer<std::uint32_t> working(3 * std::size_t{nodes} + 1);
    std::uint32_t* const costs = working.data();
    Search search(stream, graph, {costs, costs + nodes, costs + 2 * nodes}, nodes, Persists::never);
    search.set_up_gathering();
    search.recover(5);
    std::vector<std::uint32_t> found(nodes, kUnreached);
    std::uint32_t level = 0;
    for (std::uint32_t place = 1; !search.reached().complete();) {
      const Gathered some = search.expand_gathered(at_once);
      ASSERT_GT(some.levels, 0u);
      ASSERT_LE(some.levels, at_once);
      const std::uint32_t* node = some.nodes;
      for (std::uint32_t i = 0; i < some.levels; ++i) {
        ++level;
        for (; place < some.ends[i]; ++place) found[*node++] = level;
      }
      ASSERT_EQ(place, search.reached().end);
    }
    found[5] = 0;
    EXPECT_EQ(found, expected);
  }
}

TEST(BfsTest, CostsAreStoredAsAWhole) {
  for (const std::uint32_t width : {1u, 2u, 3u, 5u, 37u}) {
    const Graph graph = make_road_grid(width, 3, 1);
    const std::vector<std::uint32_t> expected = oracle_costs(graph, 0);
    const std::uint32_t nodes = graph.nodes();
    holdfast::Stream stream;
    const holdfast::DeviceBuffer<std::uint32_t> costs(nodes);
    const holdfast::PinnedBuffer<std::uint32_t> medium(2 * std::size_t{nodes} + 1);
    std::memset(medium.data(), 0, medium.size() * sizeof(std::uint32_t));
    Search search(stream, graph, {costs.data(), medium.data(), medium.data() + nodes}, nodes,
                  Persists::levels);
    search.recover(0);
    search.expand(nodes);
    // Aligned as regions' objects are.
    const holdfast::PinnedBuffer<std::uint32_t> aligned(nodes + 1);
    aligned[nodes] = 77;
    search.store_costs(aligned.data());
    for (std::uint32_t node = 0; node < nodes; ++node) {
      EXPECT_EQ(aligned[node], expected[node] + 1);
    }
    EXPECT_EQ(aligned[nodes], 77u);
  }
}

// Nodes without arcs, arcs to oneself and twice, nodes of as many arcs as are stored with them, of
// one more, and of more than a round takes, a part that
// is not reached; with blocks of few threads, so that several work at a level.
TEST(BfsTest, UnusualGraphs) {
  std::vector<std::string> texts = {
      "p tw 1 0\n", "p tw 3 0\n", "p tw 4 5\n1 1\n1 2\n2 1\n3 3\n3 4\n",
      "c a directed cycle\np sp 3 3\na 1 2 5\nc more\na 2 3 0\na 3 1 9\nc the end\n"};
  texts.push_back("p sp 9 7\na 1 3 1\na 1 4 1\na 1 5 1\na 1 6 1\na 1 7 1\na 1 8 1\na 1 9 1\n");
  texts.push_back(
      "p sp 9 8\na 1 2 1\na 1 3 1\na 1 4 1\na 1 5 1\na 1 6 1\na 1 7 1\na 1 8 1\na 1 9 1\n");
  std::string star = "p tw 400 600\n";
  for (int i = 2; i <= 301; ++i) star += "1 " + std::to_string(i) + "\n";
  for (int i = 2; i <= 301; ++i) {
    star += std::to_string(i) + " " + std::to_string(302 + i % 99) + "\n";
  }
  texts.push_back(star);
  for (const std::string& text : texts) {
    const Graph graph = parse_graph(text, "test");
    const std::vector<std::uint32_t> expected = oracle_costs(graph, 0);
    for (const std::uint32_t threads : {2u, 7u, 64u}) {
      holdfast::Stream stream;
      const std::uint32_t nodes = graph.nodes();
      const holdfast::PinnedBuffer<std::uint32_t> medium(3 * nodes + 1);
      std::memset(medium.data(), 0, medium.size() * sizeof(std::uint32_t));
      Search search(stream, graph,
                    {medium.data(), medium.data() + nodes, medium.data() + 2 * nodes}, nodes,
                    Persists::levels, threads);
      search.recover(0);
      const Reached reached = search.expand(nodes);
      EXPECT_TRUE(reached.complete());
      for (std::uint32_t node = 0; node < nodes; ++node) {
        EXPECT_EQ(medium[node], expected[node] + 1) << "node " << node << " of " << text;
      }
    }
  }
}

// Of a level that was cut off anything may be there.
TEST(BfsTest, ResumesFromWhatIsThere) {
  const Graph graph = make_road_grid(12, 7, 3);
  const std::vector<std::uint32_t> expected = oracle_costs(graph, 5);
  const std::uint32_t nodes = graph.nodes();
  std::mt19937_64 random(holdfast::test::test_seed());
  const holdfast::PinnedBuffer<std::uint32_t> medium(3 * nodes + 1);
  std::uint32_t* const costs = medium.data();
  std::uint32_t* const sequence = costs + nodes;
  std::uint32_t* const ends = sequence + nodes;
  holdfast::Stream stream;
  for (std::uint32_t stop = 0; stop < 20; ++stop) {
    std::memset(medium.data(), 0, medium.size() * sizeof(std::uint32_t));
    const Persists persists = stop % 2 == 0 ? Persists::levels : Persists::expansions;
    Search first(stream, graph, {costs, sequence, ends}, nodes, persists, 8);
    first.recover(5);
    first.expand(stop);
    const Reached whole = first.reached();
    first.expand(1);
    ends[whole.levels + 1] = 0;
    for (std::uint32_t i = whole.end; i < nodes; ++i) {
      const std::uint32_t node = sequence[i];
      if (random() % 2) sequence[i] = 0;
      if (random() % 2 && expected[node] > whole.levels) costs[node] = 0;
    }
    Search second(stream, graph, {costs, sequence, ends}, nodes, persists, 8);
    EXPECT_EQ(second.recover(5).levels, whole.levels);
    second.expand(nodes);
    EXPECT_TRUE(second.reached().complete());
    for (std::uint32_t node = 0; node < nodes; ++node) {
      ASSERT_EQ(costs[node], expected[node] + 1) << "node " << node << ", cut after " << stop;
    }
  }
}

TEST(BfsTest, AMediumThatIsNoSearchIsRefused) {
  const Graph graph = make_road_grid(8, 8, 1);
  const std::uint32_t nodes = graph.nodes();
  holdfast::Stream stream;
  const holdfast::PinnedBuffer<std::uint32_t> medium(3 * nodes + 1);
  const auto recover = [&](std::uint32_t place, std::uint32_t value) {
    std::memset(medium.data(), 0, medium.size() * sizeof(std::uint32_t));
    const Durable durable{medium.data(), medium.data() + nodes, medium.data() + 2 * nodes};
    Search search(stream, graph, durable, nodes, Persists::levels);
    search.recover(0);
    search.expand(5);
    medium[place] = value;
    return error_of([&] { search.recover(0); }, {"remove the region"});
  };
  EXPECT_EQ(recover(nodes + 1, nodes), Errc::damaged);     // no node
  EXPECT_EQ(recover(nodes + 1, 0), Errc::damaged);         // the source again
  EXPECT_EQ(recover(2 * nodes + 3, 9999), Errc::damaged);  // an end past all nodes
  EXPECT_EQ(recover(2 * nodes + 3, 1), Errc::damaged);     // an end before the last
}

TEST(BfsTest, NewYork) {
  Settings settings;
  settings.size = workload::Size::real;
  const char* const folder = std::getenv("HOLDFAST_DATA");
  settings.data_folder = folder ? folder : "";
  const auto text = workload::read_input(settings.data_folder, "road/NY.gr.xz");
  if (!text) GTEST_SKIP() << "set HOLDFAST_DATA to the folder that holds road/NY.gr.xz";
  const Graph graph = parse_graph(*text, "NY");
  EXPECT_EQ(graph.nodes(), 264346u);
  EXPECT_EQ(graph.targets.size(), 2 * 365050u);
  // Reference values: a search by another program, in another language.
  const std::vector<std::uint32_t> from_1 = oracle_costs(graph, 0);
  EXPECT_EQ(std::accumulate(from_1.begin(), from_1.end(), std::uint64_t{0}), 90771609u);
  EXPECT_EQ(*std::max_element(from_1.begin(), from_1.end()), 619u);
  EXPECT_EQ(from_1[264345], 198u);
  const std::vector<std::uint32_t> from_100000 = oracle_costs(graph, 99999);
  EXPECT_EQ(std::accumulate(from_100000.begin(), from_100000.end(), std::uint64_t{0}), 74692594u);

  for (const Mode mode : {Mode::gpm, Mode::cap_mm, Mode::cpu}) {
    settings.mode = mode;
    const auto run = workload_checks::run_whole(info(), settings);
    EXPECT_EQ(run.wrong, "") << workload::to_string(mode);
    EXPECT_EQ(run.steps, 10u);
  }
  EXPECT_NE(info().make(settings)->input().find("New York"), std::string::npos);
}

TEST(BfsTest, WithoutTheRealInputOneIsGenerated) {
  Settings settings;
  settings.size = workload::Size::real;
  EXPECT_NE(info().make(settings)->input().find("generated"), std::string::npos);
}

TEST(BfsTest, BadOptionsAreRefused) {
  expect_refused(info(), {{"source", "0"}}, {"source", "give"});
  expect_refused(info(), {{"source", "3073"}}, {"source", "give"});
  expect_refused(info(), {{"levels_per_step", "none"}}, {"levels_per_step", "give"});
  expect_refused(info(), {{"publish", "never"}}, {"publish", "give level or step"});
  expect_refused(info(), {{"width", "0"}}, {"width", "give"});
  expect_refused(info(), {{"width", "65536"}, {"height", "65536"}}, {"width", "at most"});
}

class GraphFileTest : public holdfast::test::Scratch {};

TEST_F(GraphFileTest, AFileCanBeNamed) {
  const std::string text = "p tw 3 2\n1 2\n2 3\n";
  holdfast::test::write_file(path("g.gr"), {text.begin(), text.end()});
  Settings settings;
  settings.options = {{"graph", path("g.gr")}};
  EXPECT_EQ(info().make(settings)->steps(), 1u);
  EXPECT_EQ(workload_checks::run_whole(info(), settings).wrong, "");
}

TEST(GraphTest, DamagedTextsAreRefused) {
  for (const char* const text :
       {"", "p", "p tw", "p tw 3", "q tw 3 1\n1 2\n", "p xx 3 1\n1 2\n", "p tw 0 0\n",
        "p tw 3 2\n1 2\n", "p tw 3 1\n1 2\n2 3\n", "p tw 3 1\n1 4\n", "p tw 3 1\n0 1\n",
        "p tw 3 1\n1 -2\n", "p tw 3 1\n1\n", "p tw 4000000000 1\n1 2\n", "p tw 200000000 1\n1 2\n",
        "p tw 3 2000000000\n1 2\n", "p sp 2 1\n1 2 3\n", "p sp 2 1\na 1 2\n", "p tw 2 1\n1 2x\n"}) {
    EXPECT_EQ(error_of([&] { parse_graph(text, "test.gr"); }, {"test.gr"}), Errc::damaged) << text;
  }
}

TEST(GraphTest, TheGridIsConnectedAndSymmetric) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const Graph graph = make_road_grid(37, 21, seed);
    const std::vector<std::uint32_t> costs = oracle_costs(graph, 0);
    EXPECT_EQ(std::count(costs.begin(), costs.end(), kUnreached), 0);
    for (std::uint32_t node = 0; node < graph.nodes(); ++node) {
      for (std::uint32_t arc = graph.offsets[node]; arc < graph.offsets[node + 1]; ++arc) {
        const auto* const first = &graph.targets[graph.offsets[graph.targets[arc]]];
        const auto* const last = &graph.targets[0] + graph.offsets[graph.targets[arc] + 1];
        EXPECT_NE(std::find(first, last, node), last);
      }
    }
  }
  EXPECT_EQ(make_road_grid(1, 1, 1).nodes(), 1u);
}

}  // namespace
}  // namespace bfs

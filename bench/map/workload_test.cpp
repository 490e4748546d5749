// The inputs of the map's benchmarks: what is drawn is what it is called, and comes out again.
#include "workload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>

#include "draws.hpp"
#include "support/scratch.hpp"

namespace maps {
namespace {

constexpr std::uint64_t kPaperKeys = 16'000'000;

std::string data_folder() {
  const char* const folder = std::getenv("HOLDFAST_DATA");
  return folder != nullptr ? folder : "";
}

std::vector<Request> all_of(Source& source, std::uint64_t count, std::uint64_t batch) {
  workload::Team team(2);
  std::vector<Request> all;
  while (all.size() < count) {
    std::vector<Request> requests(std::min(batch, count - all.size()));
    source.next(team, requests);
    all.insert(all.end(), requests.begin(), requests.end());
  }
  return all;
}

TEST(MapDraws, ZetaIsTheSum) {
  for (const double theta : {0.0, 0.5, 0.99, 1.0, 1.7, 3.0}) {
    double sum = 0;
    for (int k = 1; k <= 200'000; ++k) {
      sum += std::pow(k, -theta);
      if (k == 1 || k == 999 || k == 1001 || k == 200'000) {
        EXPECT_NEAR(zeta(k, theta) / sum, 1, 1e-9) << theta << ' ' << k;
      }
    }
  }
  // The constant of YCSB.
  EXPECT_NEAR(zeta(ScrambledZipf::kRanks, .99), ScrambledZipf::kZeta, 1e-6);
}

// Pearson's statistic of draws against the probabilities, in standard deviations.
double deviation(const std::vector<std::uint64_t>& counts, const std::vector<double>& shares) {
  const double draws = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0ull));
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * shares[i], off = static_cast<double>(counts[i]) - expected;
    sum += off * off / expected;
  }
  const double free = static_cast<double>(counts.size()) - 1;
  return (sum - free) / std::sqrt(2 * free);
}

TEST(MapDraws, ZipfIsZipfs) {
  const std::uint64_t seed = holdfast::test::test_seed();
  constexpr std::uint64_t kItems = 200;
  for (const double theta : {0.0, 0.5, 0.99, 1.0, 1.05, 2.0}) {
    const Zipf zipf(kItems, theta);
    std::vector<double> shares(kItems);
    for (std::uint64_t k = 0; k < kItems; ++k) {
      shares[k] = std::pow(static_cast<double>(k) + 1, -theta) / zeta(kItems, theta);
    }
    std::vector<std::uint64_t> counts(kItems);
    for (std::uint64_t i = 0; i < 1'000'000; ++i) {
      Random random(seed, i);
      const std::uint64_t rank = zipf.draw(random);
      ASSERT_LT(rank, kItems);
      ++counts[rank];
    }
    EXPECT_LT(std::abs(deviation(counts, shares)), 6) << "theta " << theta;
  }
}

TEST(MapDraws, ZipfHasEdges) {
  Random random(1, 1);
  EXPECT_EQ(Zipf(1, 0.99).draw(random), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_LT(Zipf(2, 0.99).draw(random), 2u);
  EXPECT_EQ(ScrambledZipf(1).draw(random), 0u);
}

// Of the accesses to 16 M keys, the hottest fifth has 89.9 %.
TEST(MapDraws, TrueZipfOf16MillionIsAsSkewedAsItShould) {
  const std::uint64_t seed = holdfast::test::test_seed();
  const Zipf zipf(kPaperKeys, 0.99);
  EXPECT_NEAR(zeta(kPaperKeys / 5, .99) / zeta(kPaperKeys, .99), 0.899, 0.0006);
  constexpr int kDraws = 1'000'000;
  int hot = 0;
  for (int i = 0; i < kDraws; ++i) {
    Random random(seed, static_cast<std::uint64_t>(i));
    hot += zipf.draw(random) < kPaperKeys / 5;
  }
  EXPECT_NEAR(static_cast<double>(hot) / kDraws, 0.899, 0.002);
}

TEST(MapDraws, YcsbsHashIsFnv) {
  // The magnitude, as signed words, of FNV-1a's 0xa8c7f832281a39c5 for eight zero bytes, and of
  // those of three other numbers.
  EXPECT_EQ(ycsb_hash(0), 0x573807cdd7e5c63bull);
  EXPECT_EQ(ycsb_hash(1), 0x7632ced6e2d5105cull);
  EXPECT_EQ(ycsb_hash(2), 0x194279bbc20731f9ull);
  EXPECT_EQ(ycsb_hash(12345678901), 0x4eeaabc3253b9607ull);
}

// Of the accesses to 16 M keys, the hottest fifth has 72.3 % once they are scrambled: by the masses
// of the most frequent ranks, item by item, and by the draws, which know nothing of that sum.
TEST(MapDraws, ScrambledZipfOf16MillionIsLessSkewed) {
  const std::uint64_t seed = holdfast::test::test_seed();
  constexpr std::uint64_t kSummed = 48'000'000;
  const ScrambledZipf zipf(kPaperKeys);
  std::vector<float> mass(kPaperKeys);
  double summed = 0;
  for (std::uint64_t rank = 0; rank < kSummed; ++rank) {
    const double share = std::pow(static_cast<double>(rank) + 1, -.99) / ScrambledZipf::kZeta;
    mass[zipf.item(rank)] += static_cast<float>(share);
    summed += share;
  }
  std::vector<float> order = mass;
  std::nth_element(order.begin(), order.begin() + kPaperKeys / 5, order.end(), std::greater<>());
  const float least = order[kPaperKeys / 5];
  double hot_mass = 0;
  for (const float share : mass) hot_mass += share > least ? share : 0;
  // Whatever is behind is nearly the same for all.
  EXPECT_NEAR(hot_mass + (1 - summed) / 5, 0.723, 0.004);
  constexpr int kDraws = 1'000'000;
  int hot = 0;
  for (int i = 0; i < kDraws; ++i) {
    Random random(seed, static_cast<std::uint64_t>(i));
    hot += mass[zipf.draw(random)] > least;
  }
  EXPECT_NEAR(static_cast<double>(hot) / kDraws, 0.723, 0.005);
}

struct Expected {
  Mix mix;
  std::map<Op, double> shares;
};

TEST(MapWorkloads, MixesAreYcsbs) {
  constexpr std::uint64_t kKeys = 1000, kOperations = 100'000;
  const std::vector<Expected> all{{Mix::load, {{Op::insert, 1}}},
                                  {Mix::a, {{Op::find, .5}, {Op::update, .5}}},
                                  {Mix::b, {{Op::find, .95}, {Op::update, .05}}},
                                  {Mix::c, {{Op::find, 1}}},
                                  {Mix::d, {{Op::find, .95}, {Op::insert, .05}}},
                                  {Mix::f, {{Op::find, .5}, {Op::read_modify_write, .5}}},
                                  {Mix::search_present, {{Op::find, 1}}},
                                  {Mix::search_absent, {{Op::find, 1}}},
                                  {Mix::insert, {{Op::insert, 1}}},
                                  {Mix::update, {{Op::update, 1}}},
                                  {Mix::erase, {{Op::erase, 1}}}};
  const std::uint64_t seed = holdfast::test::test_seed();
  for (const auto& [mix, shares] : all) {
    const auto source = make_ycsb({mix, Distribution::zipf, .99, kKeys, seed});
    std::map<Op, std::uint64_t> counts;
    for (const Request& request : all_of(*source, kOperations, 4096)) {
      ++counts[request.op];
      const bool absent = mix == Mix::search_absent || request.op == Op::insert;
      if (mix != Mix::d && mix != Mix::load) {
        ASSERT_EQ(request.key >= kKeys, absent);
      }
      if (!absent || request.op == Op::insert) {
        ASSERT_LT(request.key, source->most_keys(kOperations));
      }
    }
    EXPECT_EQ(source->keeps_keys(), !shares.contains(Op::insert) && !shares.contains(Op::erase));
    ASSERT_EQ(counts.size(), shares.size()) << static_cast<int>(mix);
    for (const auto& [op, share] : shares) {
      EXPECT_NEAR(static_cast<double>(counts[op]) / kOperations, share, 0.01);
    }
  }
}

TEST(MapWorkloads, InsertsAreNewAndErasesTakeEachKeyOnce) {
  for (const Mix mix : {Mix::load, Mix::insert, Mix::d, Mix::erase}) {
    constexpr std::uint64_t kKeys = 5000;
    const auto source = make_ycsb({mix, Distribution::zipf, .99, kKeys, 7});
    std::uint64_t next = mix == Mix::load || mix == Mix::erase ? 0 : kKeys;
    for (const Request& request : all_of(*source, kKeys, 700)) {
      if (request.op != Op::find) {
        EXPECT_EQ(request.key, next++);
      }
    }
  }
}

TEST(MapWorkloads, LatestReadsWhatEarlierBatchesInserted) {
  constexpr std::uint64_t kKeys = 1000, kBatch = 500;
  const auto source = make_ycsb({Mix::d, Distribution::zipf, .99, kKeys, 7});
  workload::Team team(2);
  std::uint64_t there = kKeys, young = 0, reads = 0;
  for (int batch = 0; batch < 200; ++batch) {
    std::vector<Request> requests(kBatch);
    source->next(team, requests);
    std::uint64_t inserted = 0;
    for (const Request& request : requests) {
      if (request.op == Op::insert) {
        EXPECT_EQ(request.key, there + inserted++);
      } else {
        ASSERT_LT(request.key, there);
        young += request.key >= there - there / 5;
        ++reads;
      }
    }
    there += inserted;
  }
  EXPECT_GT(there, kKeys + 4000);
  // As many as the hottest fifth of so few keys has.
  EXPECT_NEAR(static_cast<double>(young) / static_cast<double>(reads),
              zeta(800, .99) / zeta(4000, .99), 0.04);
}

std::vector<std::unique_ptr<Source>> sources(std::uint64_t seed) {
  std::vector<std::unique_ptr<Source>> all;
  for (const auto distribution :
       {Distribution::uniform, Distribution::zipf, Distribution::scrambled}) {
    all.push_back(make_ycsb({Mix::a, distribution, .99, 10'000, seed}));
  }
  all.push_back(make_dlrm(fit_dlrm_in(""), 100'000'000, seed));
  all.push_back(make_pagerank(fit_pagerank_in(""), 100'000, seed));
  return all;
}

TEST(MapWorkloads, ASeedGivesTheSameRequestsWhateverTheBatches) {
  const auto once = sources(5), again = sources(5), other = sources(6);
  for (std::size_t i = 0; i < once.size(); ++i) {
    const auto first = all_of(*once[i], 50'000, 50'000);
    EXPECT_TRUE(first == all_of(*again[i], 50'000, 777)) << i;
    EXPECT_FALSE(first == all_of(*other[i], 50'000, 50'000)) << i;
  }
}

TEST(MapWorkloads, WhatThereIsNotIsRefused) {
  EXPECT_THROW(make_ycsb({Mix::a, Distribution::zipf, .99, 0, 1}), std::invalid_argument);
  EXPECT_THROW(make_ycsb({Mix::a, Distribution::zipf, -1, 10, 1}), std::invalid_argument);
  EXPECT_THROW(make_ycsb({Mix::d, Distribution::scrambled, .99, 10, 1}), std::invalid_argument);
  EXPECT_THROW(make_ycsb({Mix::a, Distribution::scrambled, .5, 10, 1}), std::invalid_argument);
  EXPECT_THROW(make_pagerank(fit_pagerank_in(""), 0, 1), std::invalid_argument);
  EXPECT_THROW(make_dlrm(fit_dlrm_in(""), 5, 1), std::invalid_argument);
  EXPECT_THROW(mix_of("e"), std::invalid_argument);
  EXPECT_THROW(distribution_of("zipfian"), std::invalid_argument);
  EXPECT_EQ(mix_of("f"), Mix::f);
  EXPECT_EQ(distribution_of("scrambled"), Distribution::scrambled);
}

TEST(MapFits, ThetaComesOutAgain) {
  const std::uint64_t seed = holdfast::test::test_seed();
  for (const double theta : {0.0, 0.4, 0.8, 0.99, 1.2}) {
    constexpr std::uint64_t kKeys = 2000, kRows = 200'000;
    const Zipf zipf(kKeys, theta);
    std::vector<double> counts(kKeys);
    for (std::uint64_t i = 0; i < kRows; ++i) {
      Random random(seed, i);
      ++counts[zipf.draw(random)];
    }
    double pairs = 0;
    for (const double count : counts) pairs += count * (count - 1);
    EXPECT_NEAR(theta_of(pairs / (static_cast<double>(kRows) * (kRows - 1)), kKeys), theta, 0.05);
  }
  EXPECT_EQ(theta_of(0, 100), 0);
}

TEST(MapFits, KeysThatWereNotSeenAreEstimated) {
  EXPECT_EQ(estimated_keys({5, 9, 3}), 3u);  // none was seen once
  // Of 1,000 keys, each drawn with the same chance, 1,000 draws show about 632.
  const std::uint64_t seed = holdfast::test::test_seed();
  std::map<std::uint64_t, std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) ++seen[Random(seed, i).whole(1000)];
  std::vector<std::uint64_t> counts;
  for (const auto& [key, count] : seen) counts.push_back(count);
  EXPECT_NEAR(static_cast<double>(estimated_keys(counts)), 1000, 200);
}

TEST(MapFits, ColumnsAreFittedAndScaled) {
  const DlrmFit fit = fit_dlrm_in(data_folder());
  std::printf("from %s, %llu rows\n", fit.from.c_str(), static_cast<unsigned long long>(fit.rows));
  ASSERT_EQ(fit.columns.size(), 26u);
  const auto open = std::count_if(fit.columns.begin(), fit.columns.end(),
                                  [](const FittedColumn& column) { return column.open; });
  if (fit.from != "generated") {  // as docs/map-rivals.md has it
    std::uint64_t keys[2] = {};
    double least = 8, most = 0;
    for (const FittedColumn& column : fit.columns) {
      keys[column.open ? 1 : 0] += column.keys;
      if (!column.open) continue;
      least = std::min(least, column.theta);
      most = std::max(most, column.theta);
    }
    EXPECT_EQ(fit.rows, 1999u);
    EXPECT_EQ(open, 21);
    EXPECT_EQ(keys[0], 34u);
    EXPECT_EQ(keys[1], 57'782u);
    EXPECT_NEAR(least, 0.63, 0.005);
    EXPECT_NEAR(most, 2.83, 0.005);
  }
  EXPECT_GT(open, 5);
  EXPECT_LT(open, 26);
  const auto scaled = fit.scaled(kPaperKeys);
  std::uint64_t total = 0;
  for (std::size_t c = 0; c < scaled.size(); ++c) {
    total += scaled[c].keys;
    EXPECT_EQ(scaled[c].theta, fit.columns[c].theta);
    EXPECT_LT(scaled[c].theta, 8);
    if (!fit.columns[c].open) {
      EXPECT_EQ(scaled[c].keys, fit.columns[c].keys);
    }
  }
  EXPECT_EQ(total, kPaperKeys);
  // A sample takes one key of each column.
  const auto source = make_dlrm(fit, kPaperKeys, 3);
  std::uint64_t i = 0;
  for (const Request& request : all_of(*source, 26 * 100, 1000)) {
    const std::uint64_t column = i++ % 26;
    std::uint64_t base = 0;
    for (std::uint64_t c = 0; c < column; ++c) base += scaled[c].keys;
    ASSERT_GE(request.key, base);
    ASSERT_LT(request.key, base + scaled[column].keys);
    ASSERT_EQ(request.op, Op::read_modify_write);
  }
}

TEST(MapFits, AGraphIsFittedAndReadInItsOrder) {
  const PageRankFit fit = fit_pagerank_in(data_folder());
  std::printf("from %s, %llu vertices, %llu edges\n", fit.from.c_str(),
              static_cast<unsigned long long>(fit.vertices),
              static_cast<unsigned long long>(fit.edges));
  if (fit.from != "generated") {
    EXPECT_NEAR(fit.theta, 0.737, 0.0005);
  }
  EXPECT_EQ(std::accumulate(fit.in_degrees.begin(), fit.in_degrees.end(), std::uint64_t{0}),
            fit.edges);
  constexpr std::uint64_t kKeys = 1'000'000, kOperations = 500'000;
  const auto source = make_pagerank(fit, kKeys, 3);
  std::uint64_t vertex = 0, reads = 0;
  for (const Request& request : all_of(*source, kOperations, 4096)) {
    ASSERT_LT(request.key, kKeys);
    if (request.op == Op::find) {
      ++reads;
    } else {
      ASSERT_EQ(request.op, Op::update);
      ASSERT_EQ(request.key, vertex++);
    }
  }
  EXPECT_NEAR(static_cast<double>(reads) / static_cast<double>(vertex),
              static_cast<double>(fit.edges) / static_cast<double>(fit.vertices),
              0.1 * static_cast<double>(fit.edges) / static_cast<double>(fit.vertices));
}

TEST(MapFits, WhatIsNoInputIsRefused) {
  EXPECT_THROW(fit_dlrm("a,b\n1,2\n3,4\n", "few columns"), holdfast::Error);
  const std::string header(25, ','), row(25, ',');
  EXPECT_THROW(fit_dlrm(header + "\n" + row + "\n", "a row"), holdfast::Error);
  EXPECT_THROW(fit_dlrm(header + "\n" + row + "\n" + row + ",\n", "a cell"), holdfast::Error);
  EXPECT_NO_THROW(fit_dlrm(header + "\n" + row + "\n" + row + "\n", "two rows"));
  EXPECT_THROW(fit_pagerank("# nothing\n", "no edges"), holdfast::Error);
  EXPECT_THROW(fit_pagerank("1 x\n", "no number"), holdfast::Error);
}

}  // namespace
}  // namespace maps

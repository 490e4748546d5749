// Distributions fitted to real accesses, which can then be drawn from over any number of keys.
//
// The fit: a table's accesses are taken to follow Zipf's distribution over the keys that it has,
// and theta is the one under which two accesses meet in one key as often as they do in the data.
// That share is known without bias from few accesses, which the share of the hottest keys is not.
// Over more keys theta stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace maps {

struct FittedColumn {
  std::uint64_t keys = 0;  // estimated, of the whole data set
  double theta = 0;
  bool open = false;  // more rows bring more keys: it grows with the number of keys asked for
};

// Rows of the categorical columns of a click log.
struct DlrmFit {
  std::string from;  // "criteo/train.tiny.csv.xz", or "generated"
  std::uint64_t rows = 0;
  std::vector<FittedColumn> columns;
  // The same for `keys` in all: closed columns keep theirs, open ones share the others in the ratio
  // of their estimates. Throws std::invalid_argument if there are too few.
  std::vector<FittedColumn> scaled(std::uint64_t keys) const;
};

// A directed graph whose vertices read the state of those that point to them.
struct PageRankFit {
  std::string from;  // "graph/soc-Epinions1.txt.xz", or "generated"
  std::uint64_t vertices = 0, edges = 0;
  double theta = 0;                       // of how often a vertex is read
  std::vector<std::uint32_t> in_degrees;  // of all vertices
};

// theta under which draws from Zipf's distribution over so many keys meet with this probability.
double theta_of(double meeting, std::uint64_t keys);
// How many keys there are, of which some were seen so many times each (Chao: "Nonparametric
// estimation of the number of classes in a population", 1984).
std::uint64_t estimated_keys(const std::vector<std::uint64_t>& counts);

// Of a header and rows in the form of Criteo's CSV, and of an edge list. Throw
// holdfast::Error(damaged).
DlrmFit fit_dlrm(const std::string& csv, const std::string& from);
PageRankFit fit_pagerank(const std::string& edge_list, const std::string& from);
// From `folder` ($HOLDFAST_DATA) where the file is there, else from one that is generated in its
// form.
DlrmFit fit_dlrm_in(const std::string& folder);
PageRankFit fit_pagerank_in(const std::string& folder);

}  // namespace maps

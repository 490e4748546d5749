#include "fits.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include "draws.hpp"
#include "workload/inputs.hpp"

namespace maps {
namespace {

constexpr std::size_t kColumns = 26;
constexpr double kOpenShare = 0.1;  // of a column's keys that were seen once: it is open

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::size_t at = 0;;) {
    const std::size_t comma = line.find(',', at);
    cells.push_back(line.substr(at, comma - at));
    if (comma == std::string_view::npos) return cells;
    at = comma + 1;
  }
}

FittedColumn fit_column(const std::unordered_map<std::string_view, std::uint64_t>& seen,
                        std::uint64_t rows) {
  std::vector<std::uint64_t> counts;
  double pairs = 0;
  for (const auto& [key, count] : seen) {
    counts.push_back(count);
    pairs += static_cast<double>(count) * static_cast<double>(count - 1);
  }
  const double all = static_cast<double>(rows) * static_cast<double>(rows - 1);
  FittedColumn column;
  column.keys = estimated_keys(counts);
  column.theta = theta_of(pairs / all, column.keys);
  const auto once = static_cast<double>(std::count(counts.begin(), counts.end(), 1u));
  column.open = once > kOpenShare * static_cast<double>(counts.size());
  return column;
}

// In the form of Criteo's rows: columns of two keys to very many.
std::string generated_rows() {
  std::ostringstream csv;
  csv << "Id,Label";
  for (int i = 1; i <= 13; ++i) csv << ",I" << i;
  for (std::size_t c = 1; c <= kColumns; ++c) csv << ",C" << c;
  csv << '\n';
  std::vector<Zipf> columns;
  columns.reserve(kColumns);
  for (std::size_t c = 0; c < kColumns; ++c) {
    columns.emplace_back(std::uint64_t{3} << (c * 22 / kColumns), 1.05);
  }
  for (std::uint64_t row = 0; row < 2000; ++row) {
    Random random(26, row);
    csv << row << ",0,,,,,,,,,,,,,";
    for (const Zipf& column : columns) csv << ',' << column.draw(random);
    csv << '\n';
  }
  return csv.str();
}

std::string generated_edges() {
  constexpr std::uint64_t kVertices = 10'000, kEdges = 60'000;
  std::ostringstream list;
  list << "# generated " << kVertices << ' ' << kEdges << '\n';
  const Zipf from(kVertices, 0.75), to(kVertices, 0.75);
  for (std::uint64_t edge = 0; edge < kEdges; ++edge) {
    Random random(75, edge);
    const std::uint64_t source = from.draw(random);
    list << source << ' ' << (to.draw(random) * 7919 + 1) % kVertices << '\n';
  }
  return list.str();
}

}  // namespace

double theta_of(double meeting, std::uint64_t keys) {
  const auto meets = [keys](double theta) {
    const double sum = zeta(keys, theta);
    return zeta(keys, 2 * theta) / (sum * sum);
  };
  double low = 0, high = 8;
  if (meets(low) >= meeting) return low;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (meets(middle) < meeting ? low : high) = middle;
  }
  return low;
}

std::uint64_t estimated_keys(const std::vector<std::uint64_t>& counts) {
  const auto times = [&](std::uint64_t n) {
    return static_cast<double>(std::count(counts.begin(), counts.end(), n));
  };
  // The form that needs none that was seen twice.
  const double unseen = times(1) * (times(1) - 1) / (2 * (times(2) + 1));
  return counts.size() + static_cast<std::uint64_t>(std::llround(std::max(unseen, 0.0)));
}

std::vector<FittedColumn> DlrmFit::scaled(std::uint64_t total) const {
  std::uint64_t closed = 0, open = 0;
  for (const FittedColumn& column : columns) (column.open ? open : closed) += column.keys;
  if (total < closed + columns.size() || open == 0) {
    throw std::invalid_argument("DLRM: " + std::to_string(total) +
                                " keys are too few for the columns that do not grow; give " +
                                std::to_string(closed + columns.size()) + " or more");
  }
  const double scale = static_cast<double>(total - closed) / static_cast<double>(open);
  std::vector<FittedColumn> result = columns;
  FittedColumn* largest = nullptr;
  std::uint64_t given = 0;
  for (FittedColumn& column : result) {
    if (column.open) {
      const auto share = static_cast<std::uint64_t>(static_cast<double>(column.keys) * scale);
      column.keys = std::max<std::uint64_t>(share, 1);
      if (largest == nullptr || column.keys > largest->keys) largest = &column;
    }
    given += column.keys;
  }
  largest->keys += total - given;  // what rounding has left, or taken
  return result;
}

DlrmFit fit_dlrm(const std::string& csv, const std::string& from) {
  std::vector<std::string_view> lines;
  for (std::size_t at = 0; at < csv.size();) {
    const std::size_t end = std::min(csv.find('\n', at), csv.size());
    if (end > at) lines.push_back(std::string_view(csv).substr(at, end - at));
    at = end + 1;
  }
  if (lines.size() < 3) workload::damaged_input(from, "it has no two rows behind its header");
  const std::size_t cells = split(lines[0]).size();
  if (cells < kColumns) workload::damaged_input(from, "its header has less than 26 columns");
  std::vector<std::unordered_map<std::string_view, std::uint64_t>> seen(kColumns);
  for (std::size_t row = 1; row < lines.size(); ++row) {
    const auto values = split(lines[row]);
    if (values.size() != cells) {
      workload::damaged_input(from, "line " + std::to_string(row + 1) +
                                        " has another number of columns than the header");
    }
    // The categorical ones come last. An empty cell is a category.
    for (std::size_t c = 0; c < kColumns; ++c) ++seen[c][values[cells - kColumns + c]];
  }
  DlrmFit fit;
  fit.from = from;
  fit.rows = lines.size() - 1;
  for (const auto& column : seen) fit.columns.push_back(fit_column(column, fit.rows));
  return fit;
}

PageRankFit fit_pagerank(const std::string& edge_list, const std::string& from) {
  constexpr std::uint64_t kMostVertices = 1 << 28;
  workload::NumberReader reader(edge_list, from);
  std::unordered_map<std::uint64_t, std::uint32_t> out, in;
  PageRankFit fit;
  fit.from = from;
  for (reader.skip_lines('#'); !reader.at_end(); reader.skip_lines('#')) {
    const std::uint64_t source = reader.whole(0, kMostVertices);
    const std::uint64_t target = reader.whole(0, kMostVertices);
    ++out[source];
    ++in[target];
    in.try_emplace(source, 0);
    ++fit.edges;
  }
  if (fit.edges == 0) workload::damaged_input(from, "it has no edges");
  double meeting = 0;
  for (const auto& [vertex, degree] : out) {
    const double share = static_cast<double>(degree) / static_cast<double>(fit.edges);
    meeting += share * share;
  }
  fit.vertices = in.size();
  fit.theta = theta_of(meeting, fit.vertices);
  for (const auto& [vertex, degree] : in) fit.in_degrees.push_back(degree);
  std::sort(fit.in_degrees.begin(), fit.in_degrees.end());  // whatever the order of the map
  return fit;
}

DlrmFit fit_dlrm_in(const std::string& folder) {
  const std::string name = "criteo/train.tiny.csv.xz";
  if (const auto text = workload::read_input(folder, name)) return fit_dlrm(*text, name);
  return fit_dlrm(generated_rows(), "generated");
}

PageRankFit fit_pagerank_in(const std::string& folder) {
  const std::string name = "graph/soc-Epinions1.txt.xz";
  if (const auto text = workload::read_input(folder, name)) return fit_pagerank(*text, name);
  return fit_pagerank(generated_edges(), "generated");
}

}  // namespace maps

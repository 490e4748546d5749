#include "gpdb/input.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace gpdb {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// Packs letters and digits, base 36; -1 for anything else.
std::int64_t letters(std::string_view text) {
  std::int64_t value = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                      : c >= 'a' && c <= 'z' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 36 + digit;
  }
  return value;
}

constexpr std::array<const char*, 20> kCarriers = {"9E", "AA", "AS", "B6", "DL", "EV", "F9",
                                                   "FL", "HA", "MQ", "NK", "OO", "UA", "US",
                                                   "VX", "WN", "YV", "G4", "QX", "YX"};
constexpr std::array<const char*, 12> kAirports = {"JFK", "LGA", "EWR", "ORD", "ATL", "LAX",
                                                   "BOS", "MCO", "SFO", "DEN", "MIA", "IAH"};

Row generated_row(std::uint64_t i, std::uint64_t rows, std::uint64_t seed) {
  const std::uint64_t a = mix(seed * 0x2545f4914f6cdd1dull + i);
  const std::uint64_t b = mix(a);
  const std::uint64_t c = mix(b);
  const auto day = static_cast<std::uint32_t>(i * 336 / rows);  // 12 months of 28 days, in order
  Row row{};
  row.day = 20130000 + (day / 28 + 1) * 100 + day % 28 + 1;
  row.carrier = static_cast<std::uint16_t>(letters(kCarriers[a % 20]));
  row.flight = static_cast<std::uint16_t>(1 + (a >> 8) % 8500);
  row.origin = static_cast<std::uint32_t>(letters(kAirports[(a >> 24) % 3]));
  row.destination = static_cast<std::uint32_t>(letters(kAirports[3 + (a >> 32) % 9]));
  row.tail = static_cast<std::uint32_t>((b >> 40) % 4044 + 1);
  const auto minute = static_cast<std::uint16_t>(300 + b % 1080);
  row.departure = static_cast<std::uint16_t>(minute / 60 * 100 + minute % 60);
  row.distance = static_cast<std::int32_t>(80 + (b >> 16) % 4900);
  row.air_time = 20 + row.distance / 8 + static_cast<std::int32_t>((b >> 32) % 20);
  const auto landing = static_cast<std::uint16_t>((minute + row.air_time + 30) % 1440);
  row.arrival = static_cast<std::uint16_t>(landing / 60 * 100 + landing % 60);
  // Most flights are about on time; some are hours late.
  const auto spread = static_cast<std::int32_t>(c % 32 == 0 ? 600 : 40);
  row.departure_delay = static_cast<std::int32_t>((c >> 8) % spread) - 10;
  row.arrival_delay = row.departure_delay + static_cast<std::int32_t>((c >> 24) % 40) - 25;
  if ((c >> 40) % 40 == 0) {  // cancelled
    row.departure_delay = row.arrival_delay = row.air_time = kMissing;
  }
  row.fare = 4000 + static_cast<std::uint32_t>(row.distance) * 10;
  return row;
}

void note_carriers(Input& input) {
  std::vector<std::uint64_t> counts(36 * 36);
  for (const Row& row : input.rows) ++counts[row.carrier];
  for (std::size_t carrier = 0; carrier < counts.size(); ++carrier) {
    if (counts[carrier] == 0) continue;
    input.carriers.push_back(static_cast<std::uint16_t>(carrier));
    input.most_of_one_carrier = std::max(input.most_of_one_carrier, counts[carrier]);
  }
}

// The columns that are taken.
enum Column {
  kYear,
  kMonth,
  kDay,
  kCarrier,
  kFlight,
  kTail,
  kOrigin,
  kDestination,
  kDeparture,
  kArrival,
  kDepartureDelay,
  kArrivalDelay,
  kAirTime,
  kDistance,
  kColumns
};
constexpr std::array<const char*, kColumns> kColumnNames = {
    "year",      "month",     "day",      "carrier",        "flight",
    "tailnum",   "origin",    "dest",     "sched_dep_time", "sched_arr_time",
    "dep_delay", "arr_delay", "air_time", "distance"};

class CsvReader {
 public:
  CsvReader(std::string_view text, std::string path) : text_(text), path_(std::move(path)) {
    if (!next_line()) fail("the file is empty: a header is missing");
    split();
    columns_ = fields_.size();
    for (std::size_t c = 0; c < kColumns; ++c) {
      const auto found = std::find(fields_.begin(), fields_.end(), kColumnNames[c]);
      if (found == fields_.end()) fail(concat("no column '", kColumnNames[c], "' in the header"));
      place_[c] = static_cast<std::size_t>(found - fields_.begin());
    }
  }

  bool next(Row& row) {
    if (!next_line()) return false;
    split();
    if (fields_.size() != columns_) {
      fail(concat(fields_.size(), " fields, and the header has ", columns_));
    }
    row = {};
    row.day = static_cast<std::uint32_t>(number(kYear, 1900, 9999) * 10000 +
                                         number(kMonth, 1, 12) * 100 + number(kDay, 1, 31));
    row.carrier = static_cast<std::uint16_t>(name(kCarrier, 2));
    row.flight = static_cast<std::uint16_t>(number(kFlight, 0, 65535));
    row.tail = static_cast<std::uint32_t>(field(kTail) == "NA" ? 0 : name(kTail, 6));
    row.origin = static_cast<std::uint32_t>(name(kOrigin, 4));
    row.destination = static_cast<std::uint32_t>(name(kDestination, 4));
    row.departure = static_cast<std::uint16_t>(number(kDeparture, 0, 2400));
    row.arrival = static_cast<std::uint16_t>(number(kArrival, 0, 2400));
    row.departure_delay = minutes(kDepartureDelay);
    row.arrival_delay = minutes(kArrivalDelay);
    row.air_time = minutes(kAirTime);
    row.distance = static_cast<std::int32_t>(number(kDistance, 0, 20000));
    row.fare = 4000 + static_cast<std::uint32_t>(row.distance) * 10;
    return true;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    workload::damaged_input(path_, concat("line ", line_, ": ", what));
  }

  bool next_line() {
    if (text_.empty()) return false;
    const std::size_t end = std::min(text_.find('\n'), text_.size());
    current_ = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    if (current_.ends_with('\r')) current_.remove_suffix(1);
    ++line_;
    return true;
  }

  void split() {
    fields_.clear();
    std::string_view rest = current_;
    for (;;) {
      const std::size_t end = std::min(rest.find(','), rest.size());
      std::string_view text = rest.substr(0, end);
      if (text.find('"') != std::string_view::npos) fail("a quoted field: write it without quotes");
      fields_.push_back(text);
      if (end == rest.size()) return;
      rest.remove_prefix(end + 1);
    }
  }

  std::string_view field(Column column) const { return fields_[place_[column]]; }

  std::int64_t number(Column column, std::int64_t least, std::int64_t most) const {
    const std::string_view text = field(column);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
      fail(concat("column '", kColumnNames[column], "' is '", text, "': a whole number from ",
                  least, " to ", most, " is needed"));
    }
    return value;
  }

  std::int32_t minutes(Column column) const {
    if (field(column) == "NA" || field(column).empty()) return kMissing;
    return static_cast<std::int32_t>(number(column, -10000, 10000));
  }

  std::int64_t name(Column column, std::size_t longest) const {
    const std::string_view text = field(column);
    const std::int64_t value = letters(text);
    if (value < 0 || text.empty() || text.size() > longest) {
      fail(concat("column '", kColumnNames[column], "' is '", text, "': 1 to ", longest,
                  " letters or digits are needed"));
    }
    return value;
  }

  std::string_view text_;
  std::string path_;
  std::string_view current_;
  std::uint64_t line_ = 0;
  std::vector<std::string_view> fields_;
  std::size_t columns_ = 0;
  std::array<std::size_t, kColumns> place_{};
};

}  // namespace

Input generate_input(std::uint64_t rows, std::uint64_t seed) {
  Input input;
  input.rows.resize(rows);
#pragma omp parallel for if (rows > 1000000)
  for (std::uint64_t i = 0; i < rows; ++i) input.rows[i] = generated_row(i, rows, seed);
  note_carriers(input);
  input.description =
      concat("generated: ", rows, " flights of ", input.carriers.size(), " carriers, seed ", seed);
  return input;
}

Input parse_csv(std::string_view text, const std::string& name, std::uint64_t rows) {
  CsvReader reader(text, name);
  Input input;
  Row row;
  while ((rows == 0 || input.rows.size() < rows) && reader.next(row)) {
    if (input.rows.size() == kMaxRows) {
      throw Error(Errc::invalid_argument, concat("input '", name, "' has more than ", kMaxRows,
                                                 " rows: give option rows to take some of them"));
    }
    input.rows.push_back(row);
  }
  if (input.rows.empty()) workload::damaged_input(name, "has a header alone");
  if (input.rows.size() < rows) {
    throw Error(Errc::invalid_argument,
                concat("input '", name, "' has ", input.rows.size(), " rows, not ", rows,
                       ": give a smaller option rows, or none"));
  }
  note_carriers(input);
  input.description = concat("'", name, "': ", input.rows.size(), " flights of ",
                             input.carriers.size(), " carriers");
  return input;
}

}  // namespace gpdb

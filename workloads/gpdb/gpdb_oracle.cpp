#include "gpdb/gpdb_oracle.hpp"

#include <cstring>
#include <unordered_map>

#include "holdfast/error.hpp"

namespace gpdb::oracle {
namespace {

using holdfast::detail::concat;

Row expected_row(const Row& input, std::uint64_t number,
                 const std::unordered_map<std::uint32_t, Query>& last_of_carrier) {
  Row row = input;
  row.id = number;
  const auto found = last_of_carrier.find(row.carrier);
  if (found == last_of_carrier.end()) return row;
  const Query& query = found->second;
  row.revision = query.revision;
  row.fare = 4000 + query.rate * static_cast<std::uint32_t>(row.distance);
  row.compensation = 0;
  row.expected_delay = 0;
  if (row.arrival_delay != kMissing) {
    if (row.arrival_delay >= 180) row.compensation = static_cast<std::uint32_t>(row.distance * 25);
    if (row.departure_delay != kMissing) {
      row.expected_delay = (row.departure_delay * 3 + row.arrival_delay) / 4;
    }
  }
  return row;
}

std::string describe(const Row& row) {
  return concat("id ", row.id, ", day ", row.day, ", carrier ", row.carrier, ", flight ",
                row.flight, ", revision ", row.revision, ", expected delay ", row.expected_delay,
                ", fare ", row.fare, ", compensation ", row.compensation);
}

}  // namespace

std::string compare(const std::vector<Row>& table, const std::vector<Row>& input,
                    const std::vector<Query>& queries) {
  if (table.size() != input.size()) {
    return concat("the table has ", table.size(), " rows, and should have ", input.size());
  }
  // A query sets absolute values, so only the last of each carrier shows.
  std::unordered_map<std::uint32_t, Query> last_of_carrier;
  for (const Query& query : queries) last_of_carrier[query.carrier] = query;
  for (std::uint64_t i = 0; i < table.size(); ++i) {
    const Row expected = expected_row(input[i], i, last_of_carrier);
    if (std::memcmp(&expected, &table[i], sizeof(Row)) == 0) continue;
    return concat("row ", i, " is (", describe(table[i]), "), and should be (", describe(expected),
                  ")");
  }
  return {};
}

}  // namespace gpdb::oracle

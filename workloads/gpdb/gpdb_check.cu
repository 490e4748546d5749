// gpDB's table: batches of INSERT or UPDATE, each a transaction.
#include <memory>
#include <utility>

#include "checking/sized_offer.hpp"
#include "gpdb/table.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::check {
namespace {

using gpdb::Head;
using gpdb::Query;
using gpdb::Row;
using gpdb::Table;
using gpdb::TableParameters;

constexpr std::uint32_t kBatches = 2;
constexpr unsigned kThreads = 4;          // of a block
constexpr std::uint32_t kPartitions = 2;  // fewer than rows that change: some share one

// What the program does, and what the table holds after each of its batches.
struct Plan {
  std::uint32_t rows = 0;  // that the table has room for
  std::uint64_t most_updated = 0;
  LogLayout log = LogLayout::coalesced;  // of UPDATE
  bool cached = false;
  std::vector<Row> inserted;   // INSERT: row by row
  std::vector<Query> queries;  // UPDATE: batch by batch
  std::vector<std::uint16_t> carriers;
  std::vector<std::vector<Row>> after;  // [n]: once n batches are in

  TableParameters parameters() const { return {rows, most_updated, log, kPartitions}; }
};

Row row_of(std::uint32_t number) {
  Row row{};
  row.day = 20130101 + number;
  row.carrier = static_cast<std::uint16_t>(1 + number % 2);
  row.flight = static_cast<std::uint16_t>(100 + number);
  row.origin = 1000 + number;
  row.destination = 2000 + number;
  row.tail = 3000 + number;
  row.departure = static_cast<std::uint16_t>(600 + number);
  row.arrival = static_cast<std::uint16_t>(900 + number);
  row.departure_delay = static_cast<std::int32_t>(number);
  row.arrival_delay = static_cast<std::int32_t>(175 + 2 * number);
  row.air_time = static_cast<std::int32_t>(60 + number);
  row.distance = static_cast<std::int32_t>(500 + number);
  row.expected_delay = 7;
  row.fare = 9000 + number;
  row.compensation = 5;
  return row;
}

// The same rows again and again, in batches.
std::shared_ptr<const Plan> insert_plan(std::uint32_t rows_of_batch) {
  auto plan = std::make_shared<Plan>();
  plan->rows = kBatches * rows_of_batch;
  plan->after.emplace_back();
  for (std::uint32_t i = 0; i < plan->rows; ++i) {
    plan->inserted.push_back(row_of(i));
    if ((i + 1) % rows_of_batch != 0) continue;
    plan->after.push_back(plan->inserted);
    for (std::uint32_t k = 0; k <= i; ++k) plan->after.back()[k].id = k;
  }
  return plan;
}

// Every other row twice, in two batches.
std::shared_ptr<const Plan> update_plan(std::uint32_t rows, LogLayout log, bool cached) {
  auto plan = std::make_shared<Plan>();
  plan->log = log;
  plan->cached = cached;
  plan->rows = rows;
  plan->most_updated = (rows + 1) / 2;
  std::vector<Row> table;
  for (std::uint32_t i = 0; i < rows; ++i) {
    table.push_back(row_of(i));
    table.back().id = i;
    plan->carriers.push_back(table.back().carrier);
  }
  plan->after.push_back(table);
  for (std::uint32_t batch = 0; batch < kBatches; ++batch) {
    const Query query{1, batch + 1, 10 + batch};
    plan->queries.push_back(query);
    for (Row& row : table) {
      if (row.carrier != query.carrier) continue;
      const auto miles = static_cast<std::uint32_t>(row.distance);
      row.revision = query.revision;
      row.expected_delay = (3 * row.departure_delay + row.arrival_delay) / 4;
      row.fare = 4000 + query.rate * miles;
      row.compensation = row.arrival_delay >= 180 ? 25 * miles : 0;
    }
    plan->after.push_back(table);
  }
  return plan;
}

constexpr gpdb::Shape kShape{kThreads};

void set_up(Region& region, const Plan& plan) {
  const Table table = Table::create(region, plan.parameters(), kShape);
  const std::vector<Row>& rows = plan.after[0];
  const Head head{rows.size(), 0};
  Stream stream;
  if (!rows.empty()) {
    copy_async(stream, table.rows().data(), rows.data(), rows.size() * sizeof(Row));
  }
  copy_async(stream, table.head_part().data(), &head, sizeof(head));
  stream.synchronize();
}

template <class T>
DeviceBuffer<T> on_device(Stream& stream, const std::vector<T>& values) {
  DeviceBuffer<T> buffer(values.size());
  copy_async(stream, buffer.data(), values.data(), buffer.bytes());
  stream.synchronize();
  return buffer;
}

void run(Region& region, Session& session, const Plan& plan) {
  Stream stream;
  Table table = Table::open(region, kShape);
  if (plan.cached) table.keep_copy(stream);
  const auto inserted = on_device(stream, plan.inserted);
  const auto carriers = on_device(stream, plan.carriers);
  for (std::uint32_t batch = 0; batch < kBatches; ++batch) {
    session.start();
    if (plan.queries.empty()) {
      const std::uint64_t rows = plan.rows / kBatches;
      table.insert(stream, inserted.data() + batch * rows, rows);
    } else {
      table.update(stream, carriers.data(), plan.queries[batch]);
    }
    session.acknowledge();
  }
}

std::string verify_head(const Plan& plan, const Head& head, const History& history) {
  if (head.batches < history.acknowledged || head.batches > history.started) {
    return detail::concat("the head says that ", head.batches, " batches are in; ",
                          history.acknowledged, " were acknowledged and ", history.started,
                          " begun");
  }
  const std::uint64_t rows = plan.after[head.batches].size();
  if (head.rows == rows) return {};
  return detail::concat("the head says that there are ", head.rows, " rows after ", head.batches,
                        " batches; these make ", rows);
}

// An item is a row.
std::string verify_row(const Plan& plan, const Head& head, const Row& row, std::uint64_t number) {
  const std::vector<Row>& rows = plan.after[head.batches];
  if (number >= rows.size()) return {};
  const auto* const found = reinterpret_cast<const std::uint64_t*>(&row);
  const auto* const expected = reinterpret_cast<const std::uint64_t*>(&rows[number]);
  for (unsigned word = 0; word < sizeof(Row) / sizeof(std::uint64_t); ++word) {
    if (found[word] == expected[word]) continue;
    return detail::concat("after ", head.batches, " batches bytes ", word * 8, " to ", word * 8 + 7,
                          " of row ", number, " are ", found[word], ", and should be ",
                          expected[word]);
  }
  return {};
}

Program make(std::shared_ptr<const Plan> plan) {
  const auto head = std::make_shared<Head>();
  Program program;
  program.region_bytes = Table::bytes(plan->parameters()) + (1u << 18);
  program.set_up = [plan](Region& region) { set_up(region, *plan); };
  program.run = [plan](Region& region, Session& session) { run(region, session, *plan); };
  program.recover = [plan, head](Region& region) {
    Stream stream;
    Table table = Table::open(region, kShape);
    if (plan->cached) table.keep_copy(stream);
    table.recover(stream);
    *head = table.head(stream);
  };
  program.items = plan->rows;
  program.verify = [plan, head](Region& region, const History& history, std::uint64_t item) {
    const std::string wrong = verify_head(*plan, *head, history);
    if (!wrong.empty()) return wrong;
    return verify_row(*plan, *head, region.find<Row>("gpdb.rows")[item], item);
  };
  return program;
}

Program insert(const Sizes& sizes) { return make(insert_plan(sizes.threads)); }

std::function<Program(const Sizes&)> update(LogLayout log, bool cached = false) {
  return [=](const Sizes& sizes) { return make(update_plan(sizes.threads, log, cached)); };
}

}  // namespace
}  // namespace holdfast::check

namespace gpdb {

std::vector<holdfast::check::Offer> check_programs() {
  using holdfast::LogLayout;
  using holdfast::check::sized_offer;
  return {
      sized_offer("gpdb_insert", "gpDB: two INSERTs, each a transaction", {3, 0, 0},
                  holdfast::check::insert),
      sized_offer("gpdb_update", "gpDB: two UPDATEs of every other row, each a transaction",
                  {5, 0, 0}, holdfast::check::update(LogLayout::coalesced)),
      sized_offer("gpdb_update_cached", "the same, reading a copy of the rows in device memory",
                  {5, 0, 0}, holdfast::check::update(LogLayout::coalesced, true)),
      sized_offer("gpdb_update_conventional",
                  "the same with a log of two partitions, which threads share under locks",
                  {5, 0, 0}, holdfast::check::update(LogLayout::conventional)),
  };
}

}  // namespace gpdb

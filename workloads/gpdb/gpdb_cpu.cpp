#include "gpdb/gpdb_cpu.hpp"

#include <algorithm>
#include <atomic>

#include "holdfast/error.hpp"
#include "workload/backing.hpp"

namespace gpdb::cpu {
namespace {

using workload::Backing;

constexpr std::uint64_t kRowsAtOnce = 2048;

struct Span {
  std::uint64_t first;
  std::uint64_t end;
};

Span span(std::uint64_t number, std::uint64_t size) {
  return {number * kRowsAtOnce, std::min(size, (number + 1) * kRowsAtOnce)};
}

std::uint64_t spans(std::uint64_t size) { return (size + kRowsAtOnce - 1) / kRowsAtOnce; }

void change(Row& row, const Query& query) {
  const bool known = row.departure_delay != kMissing && row.arrival_delay != kMissing;
  row.revision = query.revision;
  row.expected_delay = known ? (3 * row.departure_delay + row.arrival_delay) / 4 : 0;
  row.fare = 4000 + static_cast<std::uint32_t>(row.distance) * query.rate;
  row.compensation = row.arrival_delay >= 180 ? 25 * static_cast<std::uint32_t>(row.distance) : 0;
}

// Logs rows [list, list + count), durably, before any of them is changed.
void log_rows(const Row* table, const std::uint32_t* list, std::uint64_t count, Undo* log,
              std::uint64_t batch) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const Row& row = table[list[i]];
    log[i].row = list[i];
    log[i].old[0] = row.revision;
    log[i].old[1] = static_cast<std::uint32_t>(row.expected_delay);
    log[i].old[2] = row.fare;
    log[i].old[3] = row.compensation;
    __atomic_store_n(&log[i].batch, batch, __ATOMIC_RELEASE);
  }
  Backing::flush(log, count * sizeof(Undo));
}

}  // namespace

void insert(Row* table, std::uint64_t first, const Row* rows, std::uint64_t count,
            unsigned threads) {
#pragma omp parallel for num_threads(threads)
  for (std::uint64_t part = 0; part < spans(count); ++part) {
    const Span mine = span(part, count);
    for (std::uint64_t i = mine.first; i < mine.end; ++i) {
      table[first + i] = rows[i];
      table[first + i].id = first + i;
    }
    Backing::flush(table + first + mine.first, (mine.end - mine.first) * sizeof(Row));
  }
}

std::uint64_t update(Row* table, std::uint64_t rows, const Query& query, Undo* log,
                     std::uint64_t entries, std::uint64_t batch, unsigned threads) {
  std::atomic<std::uint64_t> taken{0};
#pragma omp parallel for num_threads(threads)
  for (std::uint64_t part = 0; part < spans(rows); ++part) {
    const Span mine = span(part, rows);
    std::uint32_t list[kRowsAtOnce];
    std::uint64_t count = 0;
    for (std::uint64_t i = mine.first; i < mine.end; ++i) {
      if (table[i].carrier == query.carrier) list[count++] = static_cast<std::uint32_t>(i);
    }
    const std::uint64_t place = taken.fetch_add(count);
    if (count == 0 || place + count > entries) continue;  // seen below
    log_rows(table, list, count, log + place, batch);
    for (std::uint64_t i = 0; i < count; ++i) {
      change(table[list[i]], query);
      Backing::flush(&table[list[i]].revision, 4 * sizeof(std::uint32_t));
    }
  }
  if (taken > entries) {
    throw holdfast::Error(
        holdfast::Errc::log_full,
        holdfast::detail::concat("gpdb: UPDATE of ", taken.load(), " rows with a log for ", entries,
                                 ": the table is not of this input"));
  }
  return taken;
}

void undo(Row* table, std::uint64_t rows, const Undo* log, std::uint64_t entries,
          std::uint64_t batch, unsigned threads) {
  std::atomic<std::uint64_t> bad{0};
#pragma omp parallel for num_threads(threads)
  for (std::uint64_t i = 0; i < entries; ++i) {
    if (log[i].batch != batch) continue;
    if (log[i].row >= rows) {
      ++bad;
      continue;
    }
    Row& row = table[log[i].row];
    row.revision = log[i].old[0];
    row.expected_delay = static_cast<std::int32_t>(log[i].old[1]);
    row.fare = log[i].old[2];
    row.compensation = log[i].old[3];
    Backing::flush(&row.revision, 4 * sizeof(std::uint32_t));
  }
  if (bad != 0) {
    throw holdfast::Error(holdfast::Errc::damaged,
                          holdfast::detail::concat("gpdb: ", bad.load(),
                                                   " undo log entries point outside the table: "
                                                   "remove the region and begin anew"));
  }
}

}  // namespace gpdb::cpu

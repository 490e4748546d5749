// The persistent table and its kernels: INSERT and UPDATE of a batch, each a transaction.
// Source: GPM (ASPLOS '22) sections 4.1 and 5.2.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpdb/row.hpp"
#include "holdfast/durable.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "workload/delta_ref.hpp"

namespace gpdb {

// The table's metadata: rows from rows on are not part of it.
struct Head {
  static constexpr const char* kTypeName = "gpdb_head";
  std::uint64_t rows;
  std::uint64_t batches;  // transactions that are in
};

// What UPDATE reads of a row, and in its second part changes: a row's last 32 bytes.
struct alignas(16) Measured {
  std::int32_t departure_delay;
  std::int32_t arrival_delay;
  std::int32_t air_time;
  std::int32_t distance;
};
struct alignas(16) Changed {
  std::uint32_t revision;
  std::int32_t expected_delay;
  std::uint32_t fare;
  std::uint32_t compensation;
};
struct SecondHalf {
  Measured measured;
  Changed changed;
};
// Of a row that is stored whole.
inline constexpr std::uint64_t kAroundChanged = sizeof(Row) - sizeof(Changed);

// A table's rows in device memory, so that no thread of UPDATE waits for the link before it knows
// what to store, and stores whole rows, which are lines. Nothing of it is durable. Throws
// no_memory.
holdfast::DeviceBuffer<Row> copy_of(holdfast::Stream& stream, const Row* table, std::uint64_t rows);

// How kernels are laid out. Tests and the checker take small blocks.
struct Shape {
  unsigned threads = 256;  // of a block
};

// What a table is made for: the durable object "gpdb". docs/format.md.
struct TableParameters {
  static constexpr const char* kTypeName = "gpdb table";
  static constexpr std::uint32_t kVersion = 1;
  std::uint64_t rows = 0;          // that there is room for
  std::uint64_t most_updated = 0;  // rows that one UPDATE may change; 0: there is no UPDATE
  // Of the log of rows.
  holdfast::LogLayout layout = holdfast::LogLayout::coalesced;
  std::uint32_t partitions = 1024;  // of a conventional log; as in GPM, Figure 11

  // Throws invalid_argument: more rows updated than a conventional log's partitions hold.
  std::vector<holdfast::Part> parts() const;
};

// A table in a region, for kernels that persist what they store. What UPDATE overwrites is logged
// in one log, the head in another (a conventional one), and both end with the same word.
//
// Invariant, after any crash and recover(): every batch is in the table whole or not at all, and
// head() says how many are.
// Thread safety: one thread. The region outlives it.
class Table {
 public:
  // Zeroed rows, and a head of no rows. Throws as Durable::create() and open() do.
  static Table create(holdfast::Region& region, const TableParameters& parameters,
                      Shape shape = {});
  static Table open(holdfast::Region& region, Shape shape = {});
  // Bytes that it takes in a region.
  static std::uint64_t bytes(const TableParameters& parameters);

  Table(Table&&) noexcept;
  ~Table();

  const TableParameters& parameters() const;
  // What set-up fills in.
  std::span<Row> rows() const;
  std::span<Head> head_part() const;

  // From now on UPDATE reads a copy of the rows, and stores whole ones. REQUIRES: rows() are
  // filled, and nobody but this object changes them any more. Throws no_memory: the table is as
  // before.
  void keep_copy(holdfast::Stream& stream);

  // Undoes what a crash cut off: call it before anything else. Safe to be cut off itself. Throws
  // damaged (a log that points outside the table).
  void recover(holdfast::Stream& stream);

  // Appends `count` rows of device memory. Returns when they are durable. Throws no_space.
  void insert(holdfast::Stream& stream, const Row* rows, std::uint64_t count);
  // Changes the rows that the query selects, found through `carriers`, a copy of that column in
  // device memory. Returns how many; they are durable. Throws log_full (more than most_updated: the
  // table is as before).
  std::uint64_t update(holdfast::Stream& stream, const std::uint16_t* carriers, const Query& query);

  Head head(holdfast::Stream& stream) const;
  // Bytes that kernels stored to the region so far.
  std::uint64_t bytes_stored() const;
  // Of these, entries of a coalesced log, a warp's side by side.
  std::uint64_t bytes_logged_in_streams() const;
  // And what was stored around what changed, as it was.
  std::uint64_t bytes_unchanged() const;

 private:
  struct Impl;
  explicit Table(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The same kernels without log and persists, for the modes in which the CPU persists. They store
// what a cut-off run of the same batch stored, so that a batch can be done again.
void store_rows(holdfast::Stream& stream, Row* table, std::uint64_t first, const Row* rows,
                std::uint64_t count);
// Where the rows are to be copied to the medium from where they are: gives them their numbers
// there, from `first` on.
void number_rows(holdfast::Stream& stream, Row* rows, std::uint64_t first, std::uint64_t count);
// UPDATE owns what its kernel reports in, so that no step pays for it. Thread safety: one thread.
class PlainUpdate {
 public:
  PlainUpdate();
  ~PlainUpdate();
  // Reads the rows from `copy`, where it is not null, and changes it with them. Returns how many
  // rows were changed. Waits for the stream. Gathers the changes in `delta`, where
  // it has tiles: cell i of the table is its i-th 16 bytes. They are in the order of rows, but
  // within a block's rows and for blocks that overtake others.
  std::uint64_t run(holdfast::Stream& stream, Row* table, std::uint64_t rows, Row* copy,
                    const std::uint16_t* carriers, const Query& query,
                    const workload::DeltaRef& delta);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpdb

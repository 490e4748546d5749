// The persistent table and its kernels: INSERT and UPDATE of a batch, each a transaction.
// Source: GPM (ASPLOS '22) sections 4.1 and 5.2.
#pragma once

#include <cstdint>
#include <memory>

#include "gpdb/row.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "holdfast/undo_log.hpp"

namespace gpdb {

// The table's metadata: rows from rows on are not part of it.
struct Head {
  std::uint64_t rows;
  std::uint64_t batches;  // transactions that are in
};

// How kernels are laid out. Tests and the checker take small blocks.
struct Shape {
  unsigned threads = 256;  // of a block
};

// What a table needs beside itself.
struct LogNeeds {
  std::uint64_t rows = 0;          // of the table
  std::uint64_t most_updated = 0;  // rows that one UPDATE may change; 0: there is no UPDATE
  // Of the log of rows.
  holdfast::LogLayout layout = holdfast::LogLayout::coalesced;
  std::uint32_t partitions = 1024;  // of a conventional log; as in GPM, Figure 11
};

// Transactions on a table in a region, for kernels that persist what they store. What UPDATE
// overwrites is logged in one log, the head in another (a conventional one), and both end with the
// same word.
//
// Invariant, after any crash and recover(): every batch is in the table whole or not at all, and
// head() says how many are.
// Thread safety: one thread. The region and the table in it outlive it.
class Transactions {
 public:
  // Makes the objects "gpdb.tx", "gpdb.head_log" and, if there is UPDATE, "gpdb.row_log", in place
  // of what a creation that was cut off has left. Throws invalid_argument: more rows updated than
  // a conventional log's partitions hold.
  static void create(holdfast::Region& region, const LogNeeds& needs);
  // Bytes of these objects. Throws as create().
  static std::uint64_t object_bytes(const LogNeeds& needs);

  // Throws not_found, damaged. `table` has room for `rows` rows. The log is of the layout that it
  // was made with.
  Transactions(holdfast::Region& region, Row* table, std::uint64_t rows, Head* head,
               Shape shape = {});
  ~Transactions();

  // Undoes what a crash cut off: call it before anything else. Safe to be cut off itself. Throws
  // damaged (a log that points outside the table).
  void recover(holdfast::Stream& stream);

  // Appends `count` rows of device memory. Returns when they are durable. REQUIRES: there is room.
  void insert(holdfast::Stream& stream, const Row* rows, std::uint64_t count);
  // Changes the rows that the query selects, found through `carriers`, a copy of that column in
  // device memory. Returns how many; they are durable. Throws log_full (more than most_updated: the
  // table is as before).
  std::uint64_t update(holdfast::Stream& stream, const std::uint16_t* carriers, const Query& query);

  // REQUIRES: the table was made with UPDATE.
  holdfast::LogLayout layout() const;

  Head head(holdfast::Stream& stream) const;
  // Bytes that kernels stored to the region so far.
  std::uint64_t bytes_stored() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same kernels without log and persists, for the modes in which the CPU persists. They store
// what a cut-off run of the same batch stored, so that a batch can be done again.
void store_rows(holdfast::Stream& stream, Row* table, std::uint64_t first, const Row* rows,
                std::uint64_t count);
// Returns how many rows were changed. Waits for the stream.
std::uint64_t store_update(holdfast::Stream& stream, Row* table, std::uint64_t rows,
                           const std::uint16_t* carriers, const Query& query);

}  // namespace gpdb

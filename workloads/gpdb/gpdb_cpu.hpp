// Mode cpu: the same batches by OpenMP threads, on memory of the medium.
#pragma once

#include <cstdint>

#include "gpdb/row.hpp"

namespace gpdb::cpu {

// What an UPDATE overwrites. `batch` is stored last; an entry is in one cache line, which reaches
// the medium as it is at some moment, so that an entry that says its batch is whole.
struct alignas(32) Undo {
  std::uint64_t batch;  // 1 or more
  std::uint32_t row;
  std::uint32_t old[4];
};

// Both return when what they stored is durable; the caller then makes the number of batches so.
void insert(Row* table, std::uint64_t first, const Row* rows, std::uint64_t count,
            unsigned threads);
// Logs what it overwrites in `log` under the name `batch`. Returns how many rows were changed.
// REQUIRES: `log` has room for all rows of the carrier, `entries`.
std::uint64_t update(Row* table, std::uint64_t rows, const Query& query, Undo* log,
                     std::uint64_t entries, std::uint64_t batch, unsigned threads);
// Puts back what a cut-off update of that batch overwrote. Safe to be cut off, and to do again.
void undo(Row* table, std::uint64_t rows, const Undo* log, std::uint64_t entries,
          std::uint64_t batch, unsigned threads);

}  // namespace gpdb::cpu

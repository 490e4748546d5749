// Kind: log truncated too early. The transaction's state goes to committed, which empties its log,
// while the store that it protects may still be lost.
//
// PMTest (ASPLOS '19) checks that what a transaction wrote is persistent at its end for this
// reason.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

enum State : std::uint64_t { idle, active, committed };

struct Cell {
  alignas(64) std::uint64_t value;
  alignas(64) std::uint64_t old;
  alignas(64) std::uint64_t state;
};

template <bool kFixed>
__global__ void update(Cell* cell) {
  cell->old = cell->value;
  ofence();
  cell->state = active;
  persist();
  cell->value = 9;  // BUG: lost
  if (kFixed) persist();
  cell->state = committed;  // BUG: kept
  persist();
}

__global__ void undo(Cell* cell) {
  if (cell->state != active) return;
  cell->value = cell->old;
  persist();
  cell->state = idle;
  persist();
}

template <bool kFixed>
void run(Stream& stream, Cell* cell) {
  launch(stream, dim3(1), dim3(1), update<kFixed>, cell);
}

void recover(Stream& stream, Cell* cell) { launch(stream, dim3(1), dim3(1), undo, cell); }

std::string verify(const Cell& cell, const check::History& history) {
  const bool is_committed = cell.state == committed;
  if (!is_committed && history.acknowledged != 0) return "the update is gone";
  return cell.value == (is_committed ? 9 : 0) ? "" : "the value is not that of the last commit";
}

}  // namespace

check::Program log_truncated_too_early(bool fixed) {
  return make_program<Cell>("log_truncated_too_early",
                            {fixed ? run<true> : run<false>, recover, verify});
}

}  // namespace holdfast::test

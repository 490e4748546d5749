// Kind: allocation leaked across a crash. Blocks are taken from a bitmap durably, and then linked;
// a crash in between leaves blocks that are neither free nor to be found.
//
// PMDK's POBJ_ALLOC allocates and links as one, against this very bug.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

struct Heap {
  alignas(64) std::uint64_t used;  // a bit for every block
  alignas(64) std::uint64_t root;  // the number of the block in use, plus one; 0: none
  alignas(64) std::uint64_t blocks[4];
};

__global__ void allocate(Heap* heap) {
  const unsigned block = __ffsll(static_cast<long long>(~heap->used)) - 1;
  heap->used = heap->used | std::uint64_t{1} << block;  // BUG: kept
  ofence();
  heap->blocks[block] = 42;
  ofence();
  heap->root = block + 1;  // BUG: lost
  persist();
}

// Frees what the root does not lead to: the fixed twin's recovery.
__global__ void sweep(Heap* heap) {
  const std::uint64_t root = heap->root;
  const std::uint64_t reached = root == 0 ? 0 : std::uint64_t{1} << (root - 1);
  if (heap->used == reached) return;
  heap->used = reached;
  persist();
}

void run(Stream& stream, Heap* heap) { launch(stream, dim3(1), dim3(1), allocate, heap); }
void recover(Stream& stream, Heap* heap) { launch(stream, dim3(1), dim3(1), sweep, heap); }

std::string verify(const Heap& heap, const check::History& history) {
  const std::uint64_t root = heap.root;
  if (root == 0 && history.acknowledged != 0) return "the block is gone";
  if (root != 0 && heap.blocks[root - 1] != 42) return "the block's content is gone";
  const std::uint64_t reached = root == 0 ? 0 : std::uint64_t{1} << (root - 1);
  return heap.used == reached ? "" : "a block is taken and cannot be reached";
}

}  // namespace

check::Program leaked_allocation(bool fixed) {
  return make_program<Heap>("leaked_allocation", {run, fixed ? recover : nullptr, verify});
}

}  // namespace holdfast::test

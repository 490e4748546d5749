// Kind: stale pointer after a remap. A heap grows into a new table; the cursor for the next element
// is kept as a place in the heap and is moved after the table, so a crash in between leaves it
// pointing into the table that is no longer in use.
//
// RECIPE (SOSP '19) reports the like of CCEH: a crash while its directory doubles leaves what
// describes the old directory beside the new one.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

constexpr unsigned kElements = 3;
constexpr std::uint64_t kSmall = 4, kLarge = 8;  // where the tables are, and how many they hold

struct Heap {
  alignas(64) std::uint64_t table;   // where it begins, in words
  alignas(64) std::uint64_t cursor;  // fixed: elements in the table; else the next one's place
  alignas(64) std::uint64_t words[kLarge + kLarge];
};

template <bool kFixed>
__device__ std::uint64_t cursor_at(std::uint64_t table, std::uint64_t elements) {
  return kFixed ? elements : table + elements;
}

template <bool kFixed>
__global__ void fill(Heap* heap) {
  for (unsigned i = 0; i < kElements; ++i) heap->words[kSmall + i] = 1 + i;
  heap->cursor = cursor_at<kFixed>(kSmall, kElements);
  persist();
  heap->table = kSmall;
  persist();
}

template <bool kFixed>
__global__ void grow(Heap* heap) {
  heap->words[kLarge + threadIdx.x] = heap->words[kSmall + threadIdx.x];
  persist();
  __syncthreads();
  if (threadIdx.x != 0) return;
  heap->table = kLarge;  // BUG: kept
  if (!kFixed) {
    ofence();
    heap->cursor = cursor_at<kFixed>(kLarge, kElements);  // BUG: lost
  }
  persist();
}

template <bool kFixed>
void run(Stream& stream, Heap* heap) {
  launch(stream, dim3(1), dim3(1), fill<kFixed>, heap);
  launch(stream, dim3(1), dim3(kElements), grow<kFixed>, heap);
}

// Where the next element would go has to be the first free place of the table in use.
template <bool kFixed>
std::string verify(const Heap& heap, const check::History& history) {
  const std::uint64_t table = heap.table;
  if (table == 0) return history.acknowledged == 0 ? "" : "the table is gone";
  for (unsigned i = 0; i < kElements; ++i) {
    if (heap.words[table + i] != 1 + i) return "an element is gone";
  }
  const std::uint64_t cursor = heap.cursor;
  const std::uint64_t next = kFixed ? table + cursor : cursor;
  return next == table + kElements ? "" : "the cursor points outside the table";
}

}  // namespace

check::Program stale_offset_after_grow(bool fixed) {
  return fixed
             ? make_program<Heap>("stale_offset_after_grow", {run<true>, nullptr, verify<true>})
             : make_program<Heap>("stale_offset_after_grow", {run<false>, nullptr, verify<false>});
}

}  // namespace holdfast::test

// Kind: batch counted one by one. The items of a batch are durable before their count moves, but it
// moves in a loop, and a crash in the middle leaves part of a batch.
//
// g++ would store the count once, behind the loop, since a count and stamps are of different types;
// nvcc stores it every turn. A checker that records what g++ makes of it never sees the bug.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

constexpr std::uint32_t kBatch = 4;

struct Log {
  alignas(64) std::uint32_t count;
  alignas(64) std::uint64_t items[kBatch];
  alignas(64) float stamps[kBatch];
};

template <bool kFixed>
__global__ void append(std::uint32_t* count, std::uint64_t* items, float* stamps, unsigned n) {
  for (unsigned i = 0; i < n; ++i) items[i] = 1 + i;
  persist();
  for (unsigned i = 0; i < n; ++i) {
    stamps[i] = 1.0f;
    if (!kFixed) *count += 1;  // BUG: kept BUG: lost
  }
  if (kFixed) *count += n;
  persist();
}

template <bool kFixed>
void run(Stream& stream, Log* log) {
  launch(stream, dim3(1), dim3(1), append<kFixed>, &log->count, log->items, log->stamps, kBatch);
}

std::string verify(const Log& log, const check::History& history) {
  const std::uint32_t count = log.count;
  if (count == 0) return history.acknowledged == 0 ? "" : "the batch is gone";
  if (count != kBatch) return "part of a batch is there";
  for (std::uint32_t i = 0; i < count; ++i) {
    if (log.items[i] != 1 + i) return "an item is not there";
  }
  return "";
}

}  // namespace

check::Program count_in_every_turn(bool fixed) {
  return make_program<Log>("count_in_every_turn",
                           {fixed ? run<true> : run<false>, nullptr, verify});
}

}  // namespace holdfast::test

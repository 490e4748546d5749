// Kind: flag before data. A slot of a hash table counts as taken once its key is there, and the key
// is stored, and even persisted, before the value.
//
// A persistence ordering violation in Witcher's words (SOSP '21), which looks for them in hash
// tables among others; RECIPE (SOSP '19) has inserts end with the one store that makes them
// visible.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

constexpr std::uint32_t kSlots = 4;

struct Table {
  alignas(64) std::uint64_t keys[kSlots];
  alignas(64) std::uint64_t values[kSlots];
};

template <bool kFixed>
__global__ void insert(Table* table) {
  const std::uint32_t slot = threadIdx.x;
  if (kFixed) {
    table->values[slot] = 10 + slot;
    persist();
    table->keys[slot] = 1 + slot;
    persist();
  } else {
    table->keys[slot] = 1 + slot;  // BUG: kept
    persist();
    table->values[slot] = 10 + slot;  // BUG: lost
    persist();
  }
}

template <bool kFixed>
void run(Stream& stream, Table* table) {
  launch(stream, dim3(1), dim3(kSlots), insert<kFixed>, table);
}

std::string verify(const Table& table, const check::History& history) {
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (table.keys[slot] == 0) {
      if (history.acknowledged != 0) return "a pair is gone";
      continue;
    }
    if (table.values[slot] != 10 + slot) return "a key without its value";
  }
  return "";
}

}  // namespace

check::Program flag_before_data(bool fixed) {
  return make_program<Table>("flag_before_data", {fixed ? run<true> : run<false>, nullptr, verify});
}

}  // namespace holdfast::test

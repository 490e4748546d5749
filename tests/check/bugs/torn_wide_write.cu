// Kind: torn wide write. A store of 16 bytes is taken for atomic; a medium persists 8 bytes at a
// time, and a crash can keep one half.
//
// What Witcher (SOSP '21) calls a persistence atomicity violation, of a single store.
#include <cstring>

#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

struct alignas(16) Entry {
  std::uint64_t key;
  std::uint64_t check;
};

template <bool kFixed>
__global__ void store(Entry* entry, std::uint64_t key) {
  if (kFixed) {
    entry->check = ~key;
    ofence();
    entry->key = key;
  } else {
    const Entry made{key, ~key};
    memcpy(entry, &made, sizeof(made));  // BUG: lost BUG: kept
  }
  persist();
}

template <bool kFixed>
void run(Stream& stream, Entry* entry) {
  launch(stream, dim3(1), dim3(1), store<kFixed>, entry, std::uint64_t{7});
}

std::string verify(const Entry& entry, const check::History& history) {
  const std::uint64_t key = entry.key;
  if (key == 0) return history.acknowledged == 0 ? "" : "the entry is gone";
  return entry.check == ~key ? "" : "an entry whose check does not hold";
}

}  // namespace

check::Program torn_wide_write(bool fixed) {
  return make_program<Entry>("torn_wide_write", {fixed ? run<true> : run<false>, nullptr, verify});
}

}  // namespace holdfast::test

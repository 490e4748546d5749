// Kind: missing fence. A record and the flag that makes it valid become durable in either order,
// for nothing stands between their stores.
//
// The pattern behind PMTest's rule "A is ordered before B" (ASPLOS '19), and one of the two missing
// instructions, flush and fence, that Agamotto (OSDI '20) looks for without knowing the program.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

struct Record {
  alignas(64) std::uint64_t payload;
  alignas(64) std::uint64_t valid;
};

template <bool kFixed>
__global__ void publish(Record* record) {
  record->payload = 42;  // BUG: lost
  if (kFixed) ofence();
  record->valid = 1;  // BUG: kept
  persist();
}

template <bool kFixed>
void run(Stream& stream, Record* record) {
  launch(stream, dim3(1), dim3(1), publish<kFixed>, record);
}

std::string verify(const Record& record, const check::History& history) {
  if (record.valid == 0) return history.acknowledged == 0 ? "" : "the record is gone";
  return record.payload == 42 ? "" : "a valid record without its payload";
}

}  // namespace

check::Program missing_fence(bool fixed) {
  return make_program<Record>("missing_fence", {fixed ? run<true> : run<false>, nullptr, verify});
}

}  // namespace holdfast::test

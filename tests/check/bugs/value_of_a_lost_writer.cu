// Kind: a durable value whose writer can still be lost. A thread reads what another one has stored
// and not persisted, and makes something durable of it. The barrier between them orders what they
// see, and not what survives.
//
// RECIPE (SOSP '19) has readers persist what they rely on for this reason. Between threads of a
// block it is what SBRP (ASPLOS '23) section 4 has release and acquire for.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

struct Desk {
  alignas(64) std::uint64_t order;
  alignas(64) std::uint64_t receipt;
};

template <bool kFixed>
__global__ void trade(Desk* desk) {
  if (threadIdx.x == 0) {
    desk->order = 5;  // BUG: lost
    if (kFixed) persist();
  }
  __syncthreads();
  if (threadIdx.x == 1) {
    desk->receipt = desk->order * 10;  // BUG: kept
    persist();
  }
}

template <bool kFixed>
void run(Stream& stream, Desk* desk) {
  launch(stream, dim3(1), dim3(2), trade<kFixed>, desk);
}

std::string verify(const Desk& desk, const check::History& history) {
  if (history.acknowledged != 0 && desk.receipt == 0) return "the receipt is gone";
  return desk.receipt == 0 || desk.order == 5 ? "" : "a receipt without its order";
}

}  // namespace

check::Program value_of_a_lost_writer(bool fixed) {
  return make_program<Desk>("value_of_a_lost_writer",
                            {fixed ? run<true> : run<false>, nullptr, verify});
}

}  // namespace holdfast::test

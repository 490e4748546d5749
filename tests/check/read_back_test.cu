#include "check/read_back_test.hpp"

#include "check/record_program.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

using check::History;
using check::Program;
using check::Session;

struct Totals {
  static constexpr const char* kTypeName = "totals";
  alignas(64) std::uint32_t part[2];
  alignas(64) std::uint64_t total;
};
__global__ void add(Totals* totals) {
  totals->part[0] = 1;
  persist();
  totals->part[1] = 2;
  persist();
  totals->total = 3;
}
__host__ __device__ void recompute_words(Totals* totals) {
  totals->total = 0;
  for (unsigned i = 0; i < 2; ++i) totals->total += totals->part[i];
}
__host__ __device__ void recompute_halves(Totals* totals) {
  auto* const halves = reinterpret_cast<std::uint32_t*>(&totals->total);
  halves[1] = 0;
  halves[0] = 0;
  totals->total += totals->part[0] + totals->part[1];
}
__host__ __device__ void recompute(Totals* totals, Sized sized) {
  if (sized == Sized::words) {
    recompute_words(totals);
  } else {
    recompute_halves(totals);
  }
}
__global__ void recompute_there(Totals* totals, Sized sized) { recompute(totals, sized); }

Totals* totals_of(Region& region) { return region.find<Totals>("totals").data(); }

// Two records; a flag for each says that it is there.
struct Pair {
  std::uint64_t key, value;
};
struct Pairs {
  static constexpr const char* kTypeName = "pairs";
  alignas(64) Pair pair[2];
  alignas(64) std::uint64_t valid[2];
};
__global__ void store_pair(Pairs* pairs, bool torn) {
  pairs->pair[0].value = 42;
  pairs->pair[0].key = 7;
  if (!torn) persist();
  pairs->valid[0] = 1;
}
__host__ __device__ void move_to_front(Pairs* pairs) {
  unsigned to = 0;
  for (unsigned from = 0; from < 2; ++from) {
    if (pairs->valid[from] == 0) continue;
    pairs->pair[to] = pairs->pair[from];
    ++to;
  }
}
__global__ void move_there(Pairs* pairs) { move_to_front(pairs); }

Pairs* pairs_of(Region& region) { return region.find<Pairs>("pairs").data(); }

template <Exchange How>
__global__ void tell_by_vote(Record* record, bool late) {
  const bool first = threadIdx.x == 0;
  if (first) {
    record->payload = 42;
    if (!late) persist();
  }
  std::uint32_t heard = 0;
  if (How == Exchange::ballot) heard = __ballot_sync(3u, first) & 1;
  if (How == Exchange::shuffle) heard = __shfl_sync(3u, first ? 1u : 0u, 0, 2);
  if (How == Exchange::reduction) heard = __reduce_add_sync(3u, first ? 1u : 0u);
  if (!first && heard == 1) record->valid = 1;
  if (first && late) persist();
}

}  // namespace

Program recomputes_a_total(By by, Sized sized) {
  Program program;
  program.name = "recomputes_a_total";
  program.set_up = [](Region& region) { region.allocate<Totals>("totals", 1); };
  program.run = [](Region& region, Session& session) {
    session.start();
    Stream stream;
    launch(stream, 1, 1, add, totals_of(region));
    stream.synchronize();
    session.acknowledge();
  };
  program.recover = [=](Region& region) {
    if (by == By::host) return recompute(totals_of(region), sized);
    Stream stream;
    launch(stream, 1, 1, recompute_there, totals_of(region), sized);
    stream.synchronize();
  };
  program.verify = [](Region& region, const History&, std::uint64_t) {
    const Totals& totals = *totals_of(region);
    return totals.total == totals.part[0] + totals.part[1] ? "" : "the total is wrong";
  };
  return program;
}

Program moves_a_record_onto_itself(By by, bool torn) {
  Program program;
  program.name = "moves_a_record_onto_itself";
  program.set_up = [](Region& region) { region.allocate<Pairs>("pairs", 1); };
  program.run = [=](Region& region, Session&) {
    Stream stream;
    launch(stream, 1, 1, store_pair, pairs_of(region), torn);
    stream.synchronize();
  };
  program.recover = [=](Region& region) {
    if (by == By::host) return move_to_front(pairs_of(region));
    Stream stream;
    launch(stream, 1, 1, move_there, pairs_of(region));
    stream.synchronize();
  };
  program.verify = [](Region& region, const History&, std::uint64_t) {
    const Pairs& pairs = *pairs_of(region);
    const bool whole = pairs.pair[0].key == 7 && pairs.pair[0].value == 42;
    return pairs.valid[0] == 0 || whole ? "" : "half a record";
  };
  return program;
}

Program hears_by_vote(Exchange exchange, bool late) {
  return program("hears_by_vote", [=](Region& region, Session&) {
    const auto kernel = exchange == Exchange::ballot    ? tell_by_vote<Exchange::ballot>
                        : exchange == Exchange::shuffle ? tell_by_vote<Exchange::shuffle>
                                                        : tell_by_vote<Exchange::reduction>;
    Stream stream;
    launch(stream, 1, 2, kernel, record(region), late);
    stream.synchronize();
  });
}

}  // namespace holdfast::test

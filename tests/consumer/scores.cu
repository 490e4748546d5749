// [scores]
#include <numeric>
#include <vector>

#include "holdfast/kernel.hpp"
#include "holdfast/kv_store.hpp"

using holdfast::KvStore;
using holdfast::KvStoreRef;

__global__ void add_scores(KvStoreRef scores, std::uint64_t players, unsigned long long* sum) {
  const std::uint64_t player = blockIdx.x * blockDim.x + threadIdx.x;
  std::uint64_t score = 0;
  if (player < players && scores.find(player, &score)) atomicAdd(sum, score);
}

int main() {
  const KvStore::Options options{.capacity = 1 << 16, .max_batch = 1 << 10};
  auto region = holdfast::Region::create("scores.hf", {.size = KvStore::region_bytes(options)});
  auto store = KvStore::create(region, options);
  std::vector<std::uint64_t> players(1000), scores(1000, 3);
  std::iota(players.begin(), players.end(), 0);
  store.set(players.data(), scores.data(), players.size());  // a transaction: all of it or nothing

  holdfast::PinnedBuffer<unsigned long long> sum(1);
  holdfast::launch(store.stream(), 5, 256, add_scores, store.ref(), players.size(), sum.data());
  store.stream().synchronize();
  return sum[0] == 3000 ? 0 : 1;
}
// [end]

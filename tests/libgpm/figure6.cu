#include "libgpm/figure6.hpp"

#include "holdfast/kernel.hpp"

namespace figure6 {
namespace {

constexpr std::uint32_t kBlock = 128;

struct log_entry {
  std::uint32_t hash;
  std::uint32_t loc;
  std::uint64_t key;
  std::uint64_t value;
};

__device__ std::uint32_t get_hash(std::uint64_t key, std::uint32_t sets) {
  return static_cast<std::uint32_t>(key * 0x9e3779b97f4a7c15ull >> 40) % sets;
}

// The eight threads of a pair agree on a way; the thread of that number gets it, the others -1.
__device__ int get_location(const Set& set, std::uint64_t key, int way) {
  const unsigned shift = threadIdx.x % 32 / kWays * kWays;
  const unsigned mask = 0xffu << shift;
  const unsigned same = __ballot_sync(mask, set.key[way] == key) >> shift & 0xff;
  const unsigned empty = __ballot_sync(mask, set.key[way] == 0) >> shift & 0xff;
  const unsigned candidates = same ? same : empty;
  const int chosen = candidates ? __ffs(candidates) - 1 : static_cast<int>(key % kWays);
  return way == chosen ? chosen : -1;
}

__global__ void insert_into_kvs(Set* kvs, std::uint32_t sets, gpmlog* log, const Data* batch,
                                std::uint32_t count, std::uint32_t* failures) {
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread / kWays >= count) return;
  const Data data = batch[thread / kWays];
  const std::uint32_t hash = get_hash(data.key, sets);
  const int loc = get_location(kvs[hash], data.key, thread % kWays);
  if (loc != -1) {
    log_entry entry;
    entry.hash = hash;
    entry.loc = loc;
    entry.key = kvs[hash].key[loc];
    entry.value = kvs[hash].value[loc];
    if (gpmlog_insert(log, &entry, sizeof(log_entry)) != 0) {
      atomicAdd(failures, 1u);
      return;
    }
    kvs[hash].key[loc] = data.key;
    kvs[hash].value[loc] = data.value;
    gpm_persist();
  }
}

__global__ void recover_kvs(Set* kvs, gpmlog* log, std::uint32_t threads) {
  if (blockIdx.x * blockDim.x + threadIdx.x >= threads) return;
  log_entry entry;
  if (gpmlog_read(log, &entry, sizeof(log_entry)) != 0) return;
  const std::uint32_t hash = entry.hash;
  const std::uint32_t loc = entry.loc;
  kvs[hash].key[loc] = entry.key;
  kvs[hash].value[loc] = entry.value;
  gpm_persist();
  gpmlog_remove(log, sizeof(log_entry));
}

__global__ void store_flag(std::uint64_t* flag, std::uint64_t value) {
  *flag = value;
  gpm_persist();
}

__global__ void clear_log(gpmlog* log, std::uint32_t threads) {
  if (blockIdx.x * blockDim.x + threadIdx.x < threads && !gpmlog_is_empty(log)) gpmlog_clear(log);
}

__global__ void fill_one(gpmlog* log, std::uint32_t count) {
  const std::uint64_t number = blockIdx.x * blockDim.x + threadIdx.x;
  if (number < count) gpmlog_insert(log, &number, sizeof(number), 1);
}

__global__ void sum_one(gpmlog* log, std::uint64_t* sum) {
  std::uint64_t number;
  while (gpmlog_read(log, &number, sizeof(number), 1) == 0) {
    *sum += number;
    gpmlog_remove(log, sizeof(number), 1);
  }
}

dim3 grid_for(std::uint32_t threads) { return dim3(holdfast::blocks_for(threads, kBlock)); }

}  // namespace

void insert(holdfast::Stream& stream, Set* kvs, std::uint32_t sets, gpmlog* log, const Data* data,
            std::uint32_t count, std::uint32_t* failures) {
  holdfast::launch(stream, grid_for(count * kWays), dim3(kBlock), insert_into_kvs, kvs, sets, log,
                   data, count, failures);
}

void recover(holdfast::Stream& stream, Set* kvs, gpmlog* log, std::uint32_t count) {
  holdfast::launch(stream, grid_for(count * kWays), dim3(kBlock), recover_kvs, kvs, log,
                   count * kWays);
}

void set_flag(holdfast::Stream& stream, std::uint64_t* flag, std::uint64_t value) {
  holdfast::launch(stream, dim3(1), dim3(1), store_flag, flag, value);
}

void clear(holdfast::Stream& stream, gpmlog* log, std::uint32_t threads) {
  holdfast::launch(stream, grid_for(threads), dim3(kBlock), clear_log, log, threads);
}

void fill_partition(holdfast::Stream& stream, gpmlog* log, std::uint32_t count) {
  holdfast::launch(stream, grid_for(count), dim3(kBlock), fill_one, log, count);
}

void sum_partition(holdfast::Stream& stream, gpmlog* log, std::uint64_t* sum) {
  holdfast::launch(stream, dim3(1), dim3(1), sum_one, log, sum);
}

}  // namespace figure6

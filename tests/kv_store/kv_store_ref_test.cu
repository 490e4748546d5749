#include "kv_store/kv_store_ref_test.hpp"

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

// Blocks of more than one dimension: what a warp is goes by its threads' numbers.
constexpr unsigned kThreads = 64;

__device__ std::size_t thread_in_grid() {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  return blockIdx.x * kThreads + thread;
}

__global__ void look_alone(KvStoreRef ref, const std::uint64_t* keys, std::uint64_t* values,
                           std::uint8_t* found, std::size_t count) {
  const std::size_t i = thread_in_grid();
  if (i < count) found[i] = ref.find(keys[i], &values[i]);
}

__global__ void look_by_warp(KvStoreRef ref, const std::uint64_t* keys, std::uint64_t* values,
                             std::uint8_t* found, std::size_t count) {
  const std::size_t i = thread_in_grid();
  std::uint64_t value = 0;
  const bool there = ref.find_by_warp(i < count ? keys[i] : KvStoreRef::kReservedKey, &value);
  if (i >= count) return;
  if (there) values[i] = value;
  found[i] = there;
}

// One thread, again and again. `wrong`: lookups that found nothing, or a value that is older than
// the last before it.
__global__ void look_while_it_moves(detail::KvView view, std::uint64_t key, unsigned lookups,
                                    std::uint64_t* last, std::uint64_t* wrong) {
  std::uint64_t newest = *last;
  for (unsigned i = 0; i < lookups; ++i) {
    std::uint64_t value = 0;
    const bool found = detail::kv_find_by_fingerprint<detail::KvLoads::strong>(view, key, &value);
    if (!found || value < newest) ++*wrong;
    newest = value;
  }
  *last = newest;
}

}  // namespace

void launch_look_while_it_moves(Stream& stream, const detail::KvView& view, std::uint64_t key,
                                unsigned lookups, std::uint64_t* last, std::uint64_t* wrong) {
  launch(stream, dim3(1), dim3(1), look_while_it_moves, view, key, lookups, last, wrong);
}

void look_up(Stream& stream, const KvStoreRef& ref, Looking how, const std::uint64_t* keys,
             std::uint64_t* values, std::uint8_t* found, std::size_t count) {
  launch(stream, blocks_for(count, kThreads), dim3(16, 2, 2),
         how == Looking::alone ? look_alone : look_by_warp, ref, keys, values, found, count);
}

}  // namespace holdfast::test

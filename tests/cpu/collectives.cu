#include "cpu/collectives.hpp"

namespace holdfast::test {

__global__ void call_collective(Collective which, const CollectiveInput* in, std::uint64_t* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const CollectiveInput& my = in[i];
  const unsigned mask = my.mask;
  const auto word = static_cast<unsigned>(my.value);
  const auto number = static_cast<int>(word);
  const int argument = my.argument, width = my.width;
  int predicate = 0;
  std::uint64_t result = 0;
  switch (which) {
    case Collective::ballot:
      result = __ballot_sync(mask, number);
      break;
    case Collective::any:
      result = static_cast<unsigned>(__any_sync(mask, number));
      break;
    case Collective::all:
      result = static_cast<unsigned>(__all_sync(mask, number));
      break;
    case Collective::match_any:
      result = __match_any_sync(mask, word);
      break;
    case Collective::match_any64:
      result = __match_any_sync(mask, my.value);
      break;
    case Collective::match_all:
      result = __match_all_sync(mask, word, &predicate);
      result |= static_cast<std::uint64_t>(predicate) << 32;
      break;
    case Collective::match_all64:
      result = __match_all_sync(mask, my.value, &predicate);
      result |= static_cast<std::uint64_t>(predicate) << 32;
      break;
    case Collective::add:
      result = __reduce_add_sync(mask, word);
      break;
    case Collective::add_signed:
      result = static_cast<unsigned>(__reduce_add_sync(mask, number));
      break;
    case Collective::min:
      result = __reduce_min_sync(mask, word);
      break;
    case Collective::min_signed:
      result = static_cast<unsigned>(__reduce_min_sync(mask, number));
      break;
    case Collective::max:
      result = __reduce_max_sync(mask, word);
      break;
    case Collective::max_signed:
      result = static_cast<unsigned>(__reduce_max_sync(mask, number));
      break;
    case Collective::bit_and:
      result = __reduce_and_sync(mask, word);
      break;
    case Collective::bit_or:
      result = __reduce_or_sync(mask, word);
      break;
    case Collective::bit_xor:
      result = __reduce_xor_sync(mask, word);
      break;
    case Collective::shfl:
      result = __shfl_sync(mask, word, argument, width);
      break;
    case Collective::shfl_up:
      result = __shfl_up_sync(mask, word, static_cast<unsigned>(argument), width);
      break;
    case Collective::shfl_down:
      result = __shfl_down_sync(mask, word, static_cast<unsigned>(argument), width);
      break;
    case Collective::shfl_xor:
      result = __shfl_xor_sync(mask, word, argument, width);
      break;
    case Collective::shfl64:
      result = __shfl_sync(mask, my.value, argument, width);
      break;
    case Collective::shfl_double:
      result =
          static_cast<std::uint64_t>(__shfl_sync(mask, static_cast<double>(word), argument, width));
      break;
    case Collective::count_:
      break;
  }
  out[i] = result;
}

__global__ void call_barrier(Vote which, const int* predicates, int* out) {
  const unsigned i = threadIdx.x;
  for (unsigned round = 0; round < 3; ++round) {
    const unsigned at = round * blockDim.x + i;
    switch (which) {
      case Vote::count:
        out[at] = __syncthreads_count(predicates[at]);
        break;
      case Vote::all:
        out[at] = __syncthreads_and(predicates[at]);
        break;
      case Vote::any:
        out[at] = __syncthreads_or(predicates[at]);
        break;
    }
  }
}

__global__ void block_sum(const unsigned* in, unsigned* out) {
  __shared__ unsigned sums[32];
  unsigned sum = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(~0u, sum, delta);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += sums[warp];
  out[blockIdx.x] = sum;
}

__global__ void rotate_by_syncwarp(unsigned* out) {
  __shared__ unsigned slots[64];
  for (unsigned round = 0; round < 8; ++round) {
    slots[threadIdx.x] = threadIdx.x * 100 + round;
    __syncwarp();
    const unsigned first = threadIdx.x / 32 * 32;
    out[round * blockDim.x + threadIdx.x] = slots[first + (threadIdx.x + 1) % 32];
    __syncwarp();
  }
}

__global__ void early_exit_syncwarp(unsigned* out) {
  if (threadIdx.x % 2 == 0) return;
  __syncwarp();
  out[threadIdx.x] = 1;
  __syncwarp();
}

__global__ void active_masks(unsigned* out) { out[threadIdx.x] = __activemask(); }

}  // namespace holdfast::test

#include "cpu/qualifiers.hpp"

// After our headers, as a kernel file of a user's may have them.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <regex>
#include <semaphore>
#include <string>
#include <thread>

#include "cpu/system_header.hpp"

namespace holdfast::test {
namespace {

__device__ __noinline__ void* frame_of_own() { return __builtin_frame_address(0); }
static __noinline__ __device__ void* frame_of_another() { return __builtin_frame_address(0); }
__device__ __forceinline__ void* frame_of_caller() { return __builtin_frame_address(0); }

}  // namespace

__global__ void note_frames(void** frames) {
  frames[0] = __builtin_frame_address(0);
  frames[1] = frame_of_own();
  frames[2] = frame_of_another();
  frames[3] = frame_of_caller();
}

__global__ void use_standard_headers(int* results) {
  Counted<int> counted;
  counted.acquire();
  counted.acquire();
  results[0] = counted.release();
  const auto shared = std::make_shared<int>(5);
  const std::weak_ptr<int> weak = shared;
  results[1] = *shared + static_cast<int>(weak.use_count());
}

}  // namespace holdfast::test

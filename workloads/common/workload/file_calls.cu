#include "workload/file_calls.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "holdfast/kernel.hpp"
#if defined(HOLDFAST_BACKEND_CUDA)
#include <cuda/atomic>
#endif

namespace workload {
namespace {

constexpr std::uint64_t kCallBytes = 256 << 10;  // of one call
constexpr unsigned kBlocks = 64;
constexpr unsigned kThreads = 256;
constexpr unsigned kServers = 4;  // CPU threads

// What a block asks for. `state` is the only word that both sides write.
struct Call {
  unsigned state;  // kFree, kAsked
  unsigned bytes;
  std::uint64_t offset;
};
constexpr unsigned kFree = 0;
constexpr unsigned kAsked = 1;

struct alignas(16) Chunk {
  std::uint64_t halves[2];
};

using Serve = void (*)(void* context, unsigned block);

// Asks the CPU to write what the block has put into its part of the staging memory, and waits.
__device__ void call_cpu(Call* call, [[maybe_unused]] Serve serve, [[maybe_unused]] void* context) {
#if defined(HOLDFAST_BACKEND_CPU)
  // There is no other processor to wait for.
  serve(context, blockIdx.x);
  call->state = kFree;
#else
  // Loads and stores alone: the GPU has no atomic updates of host memory.
  cuda::atomic_ref<unsigned, cuda::thread_scope_system> state(call->state);
  __threadfence_system();
  state.store(kAsked, cuda::memory_order_release);
  while (state.load(cuda::memory_order_acquire) != kFree) __nanosleep(200);
#endif
}

__global__ void write_blocks(const unsigned char* from, std::uint64_t bytes, std::uint64_t offset,
                             unsigned char* staging, Call* calls, Serve serve, void* context) {
  unsigned char* const mine = staging + blockIdx.x * kCallBytes;
  Call* const call = calls + blockIdx.x;
  for (std::uint64_t first = blockIdx.x * kCallBytes; first < bytes;
       first += gridDim.x * kCallBytes) {
    const std::uint64_t count = bytes - first < kCallBytes ? bytes - first : kCallBytes;
    const std::uint64_t words = count / 16;
    const bool aligned = reinterpret_cast<std::uintptr_t>(from + first) % 16 == 0;
    for (std::uint64_t i = threadIdx.x; aligned && i < words; i += blockDim.x) {
      reinterpret_cast<Chunk*>(mine)[i] = reinterpret_cast<const Chunk*>(from + first)[i];
    }
    for (std::uint64_t i = (aligned ? words * 16 : 0) + threadIdx.x; i < count; i += blockDim.x) {
      mine[i] = from[first + i];
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
      call->bytes = static_cast<unsigned>(count);
      call->offset = offset + first;
      call_cpu(call, serve, context);
    }
    __syncthreads();
  }
}

}  // namespace

struct FileCalls::Service {
  const FileTarget* file = nullptr;
  holdfast::PinnedBuffer<unsigned char> staging{kBlocks * kCallBytes};
  holdfast::PinnedBuffer<Call> calls{kBlocks};
  std::atomic<bool> over{false};
  std::exception_ptr errors[kServers + 1];

  // Wait for work, so that no call pays for starting them. The CPU backend needs none.
  std::mutex mutex;
  std::condition_variable wake, idle;
  std::uint64_t round = 0;
  unsigned serving = 0;
  bool closing = false;
  std::vector<std::thread> servers;

  Service() {
    if (std::string_view(holdfast::backend::name()) != "cuda") return;
    for (unsigned i = 0; i < kServers; ++i) servers.emplace_back([this, i] { live(i); });
  }
  ~Service() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
    }
    wake.notify_all();
    for (std::thread& server : servers) server.join();
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void begin() {
    const std::lock_guard lock(mutex);
    over = false;
    serving = static_cast<unsigned>(servers.size());
    ++round;
    wake.notify_all();
  }
  void end() {
    over = true;
    std::unique_lock lock(mutex);
    idle.wait(lock, [&] { return serving == 0; });
  }
  void live(unsigned server) {
    for (std::uint64_t seen = 0;;) {
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return closing || round != seen; });
        if (closing) return;
        seen = round;
      }
      run(server);
      const std::lock_guard lock(mutex);
      if (--serving == 0) idle.notify_one();
    }
  }

  void serve(unsigned block, unsigned server) noexcept {
    try {
      const Call& call = calls[block];
      file->write(staging.data() + block * kCallBytes, call.bytes, call.offset);
    } catch (...) {
      errors[server] = std::current_exception();
    }
  }

  // Serves the blocks whose number is `server` modulo kServers, until the kernel has ended.
  void run(unsigned server) noexcept {
    while (!over) {
      for (unsigned block = server; block < kBlocks; block += kServers) {
        unsigned* const state = &calls[block].state;
        if (__atomic_load_n(state, __ATOMIC_ACQUIRE) != kAsked) continue;
        serve(block, server);
        __atomic_store_n(state, kFree, __ATOMIC_RELEASE);
      }
    }
  }

  static void serve_here(void* service, unsigned block) {
    static_cast<Service*>(service)->serve(block, kServers);
  }
};

FileCalls::FileCalls() : service_(std::make_unique<Service>()) {}
FileCalls::~FileCalls() = default;

void FileCalls::write(holdfast::Stream& stream, const FileTarget& file, const void* from,
                      std::uint64_t bytes, std::uint64_t offset) {
  Service& service = *service_;
  service.file = &file;
  std::fill(service.calls.data(), service.calls.data() + kBlocks, Call{});
  std::fill(std::begin(service.errors), std::end(service.errors), nullptr);
  service.begin();
  const unsigned blocks = std::min(holdfast::blocks_for(bytes, kCallBytes), kBlocks);
  std::exception_ptr failed;
  try {
    holdfast::launch(stream, blocks, kThreads, write_blocks,
                     static_cast<const unsigned char*>(from), bytes, offset, service.staging.data(),
                     service.calls.data(), &Service::serve_here, static_cast<void*>(&service));
    stream.synchronize();
  } catch (...) {
    failed = std::current_exception();
  }
  service.end();
  if (failed) std::rethrow_exception(failed);
  for (const std::exception_ptr& error : service.errors) {
    if (error) std::rethrow_exception(error);
  }
  file.sync();
}

}  // namespace workload

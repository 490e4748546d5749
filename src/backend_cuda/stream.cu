#include <algorithm>
#include <cstdio>
#include <optional>

#include "backend_cuda/check.hpp"
#include "core/address.hpp"
#include "core/event_access.hpp"
#include "core/host_asks.hpp"
#include "core/kernel_memory.hpp"
#include "core/marks.hpp"
#include "holdfast/launch.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

struct Stream::Impl {
  cudaStream_t stream = nullptr;
  bool borrowed = false;
  std::optional<Error> error;  // the first one, thrown again by every later synchronize()
};

Stream::Stream() : impl_(std::make_unique<Impl>()) {
  HOLDFAST_CUDA(cudaStreamCreateWithFlags(&impl_->stream, cudaStreamNonBlocking));
}

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Stream Stream::borrow(void* native) {
  auto impl = std::make_unique<Impl>();
  impl->stream = static_cast<cudaStream_t>(native);
  impl->borrowed = true;
  return Stream(std::move(impl));
}

Stream::Stream(Stream&&) noexcept = default;

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Stream::~Stream() {
  if (!impl_ || impl_->borrowed) return;
  const cudaError_t status = cudaStreamSynchronize(impl_->stream);
  if (status != cudaSuccess && !impl_->error) {
    std::fprintf(stderr, "holdfast: a stream was destroyed with an error nobody asked for: %s\n",
                 cudaGetErrorString(status));
  }
  cudaStreamDestroy(impl_->stream);
}

void* Stream::native() const { return impl().stream; }

void Stream::synchronize() {
  Impl& own = impl();
  if (own.error) throw *own.error;
  const cudaError_t status = cudaStreamSynchronize(own.stream);
  if (status == cudaSuccess) return;
  own.error = detail::cuda_error(status, "a kernel or copy of this stream", __FILE__, __LINE__);
  throw *own.error;
}

namespace {

// cudaLaunchHostFunc would never call back on a stream that failed; this form does, so that the
// function's captures are released and whoever waits for them learns of it.
void CUDART_CB run_function(cudaStream_t, cudaError_t status, void* data) {
  const std::unique_ptr<std::function<void()>> function(static_cast<std::function<void()>*>(data));
  if (status == cudaSuccess) (*function)();
}

}  // namespace

void Stream::enqueue(std::function<void()> function) {
  auto owned = std::make_unique<std::function<void()>>(std::move(function));
  HOLDFAST_CUDA(cudaStreamAddCallback(impl().stream, run_function, owned.get(), 0));
  owned.release();
}

void core::await_word(Stream& stream, const std::uint64_t* word, std::uint64_t value) {
  constexpr int kLooks = 256;  // as long as a small batch takes; the driver is asked seldom
  const auto is_there = [&] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value; };
  cudaError_t status = cudaErrorNotReady;
  while (status == cudaErrorNotReady) {
    for (int i = 0; i < kLooks; ++i) {
      if (is_there()) return;
      __builtin_ia32_pause();
    }
    status = cudaStreamQuery(stream.impl().stream);
    if (status == cudaErrorNotReady) cudaGetLastError();  // no error, but kept as one
  }
  stream.synchronize();
  if (!is_there()) throw Error(Errc::device, "a kernel ended without its last store");
}

struct Event::Impl {
  cudaEvent_t event = nullptr;
  ~Impl() {
    if (event) cudaEventDestroy(event);
  }
};

Event::Event() : impl_(std::make_unique<Impl>()) { HOLDFAST_CUDA(cudaEventCreate(&impl_->event)); }
Event::Event(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(Stream& stream) {
  HOLDFAST_CUDA(cudaEventRecord(impl().event, stream.impl().stream));
}
void Event::synchronize() { HOLDFAST_CUDA(cudaEventSynchronize(impl().event)); }
void Event::wait(Stream& stream) {
  HOLDFAST_CUDA(cudaStreamWaitEvent(stream.impl().stream, impl().event));
}
bool Event::failed() const { return core::EventAccess::failed(*this); }
bool core::EventAccess::failed(const Event& event) {
  (void)event.impl();
  return false;
}
Event core::EventAccess::untimed() {
  auto impl = std::make_unique<Event::Impl>();
  HOLDFAST_CUDA(cudaEventCreateWithFlags(&impl->event, cudaEventDisableTiming));
  return Event(std::move(impl));
}
bool core::EventAccess::ended(const Event& event) {
  return !is_moved_from(event) && cudaEventQuery(event.impl().event) != cudaErrorNotReady;
}
// A failure takes the context with it, and every stream.
void core::EventAccess::wait(Event& event, Stream& stream,
                             const std::shared_ptr<std::atomic<bool>>&) {
  event.wait(stream);
}
float Event::elapsed_ms(const Event& start, const Event& stop) {
  float milliseconds = 0;
  HOLDFAST_CUDA(cudaEventElapsedTime(&milliseconds, start.impl().event, stop.impl().event));
  return milliseconds;
}

void copy_async(Stream& stream, void* dst, const void* src, std::size_t bytes) {
  core::check_address(dst, bytes, "the target of a copy");
  core::check_address(src, bytes, "the source of a copy");
  // A region that has grown is registered in parts, and one call may not span two.
  while (bytes > 0) {
    const std::size_t part = std::min(backend::bytes_before_boundary(dst, bytes),
                                      backend::bytes_before_boundary(src, bytes));
    HOLDFAST_CUDA(cudaMemcpyAsync(dst, src, part, cudaMemcpyDefault, stream.impl().stream));
    dst = static_cast<char*>(dst) + part;
    src = static_cast<const char*>(src) + part;
    bytes -= part;
  }
}

void fill_async(Stream& stream, void* dst, int byte, std::size_t bytes) {
  if (bytes == 0) return;
  core::check_address(dst, bytes, "the target of a fill");
  HOLDFAST_CUDA(cudaMemsetAsync(dst, byte, bytes, stream.impl().stream));
}

namespace {

__global__ void clear_copied_bytes(std::uint8_t* map, const std::uint8_t* copy, std::size_t bytes) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < bytes && copy[i] != 0) map[i] = 0;
}

}  // namespace

void core::clear_copied(Stream& stream, std::uint8_t* map, const std::uint8_t* copy,
                        std::size_t bytes) {
  if (bytes == 0) return;
  constexpr unsigned kThreads = 256;
  const auto blocks = static_cast<unsigned>((bytes + kThreads - 1) / kThreads);
  clear_copied_bytes<<<blocks, kThreads, 0, stream.impl().stream>>>(map, copy, bytes);
  HOLDFAST_CUDA(cudaGetLastError());
}

// CUDA loads a kernel when it is first asked for, and may wait for all of the device then.
void core::load_clear_copied() {
  cudaFuncAttributes unused;
  HOLDFAST_CUDA(cudaFuncGetAttributes(&unused, clear_copied_bytes));
}

namespace detail {

void check_launch_shape(const LaunchShape& shape) {
  const auto empty = [](const dim3& extent) {
    return extent.x == 0 || extent.y == 0 || extent.z == 0;
  };
  const std::uint64_t threads = std::uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  if (empty(shape.grid) || empty(shape.block) || threads > 1024) {
    throw Error(Errc::invalid_argument,
                concat("launch: grid ", shape.grid.x, "x", shape.grid.y, "x", shape.grid.z,
                       ", block ", shape.block.x, "x", shape.block.y, "x", shape.block.z,
                       ": every extent must be at least 1 and a block at most 1024 threads"));
  }
}

void launch_cuda(Stream& stream, const LaunchShape& shape, const void* kernel, void** arguments) {
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (shape.shared_bytes > kWithoutAsking) {
    HOLDFAST_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shape.shared_bytes)));
  }
  HOLDFAST_CUDA(cudaLaunchKernel(kernel, shape.grid, shape.block, arguments, shape.shared_bytes,
                                 stream.impl().stream));
}

}  // namespace detail
// The GPU works on whatever the host does.
void core::host_asks() {}

}  // namespace holdfast

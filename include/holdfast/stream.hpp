// Streams, events and device memory: the same on both backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "holdfast/config.hpp"
#include "holdfast/error.hpp"

namespace holdfast {

namespace core {
struct EventAccess;
}

// An in-order queue of kernels, copies and host functions. Operations are asynchronous on both
// backends: the CPU backend runs them on a worker thread of the stream, one kernel at a time
// over the whole process.
//
// On the CPU backend the threads of streams are not in a forked child: what it does with a stream
// that its parent has used throws Errc::in_use, and its copy ends without waiting.
//
// Errors are sticky: after a kernel fault every later synchronize() on the stream throws again.
// Thread safety: one thread at a time per stream. Use of one that was moved from throws
// Errc::closed; so it is with an Event.
class Stream {
 public:
  Stream();
  ~Stream();  // waits for what is queued; errors not yet seen are printed to stderr
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  // A stream that another library made (a cudaStream_t; nullptr: CUDA's legacy default stream):
  // what is queued here and there is in one order. It is not waited for, nor ended, with this
  // object. REQUIRES: it lasts as long as this object. Throws unsupported on the CPU backend, where
  // there are no others.
  static Stream borrow(void* native);

  // Waits for all queued work. Throws the first Error that the work met.
  void synchronize();

  // Queues a host function. It runs once all earlier work of the stream is complete, and later
  // work waits for it. REQUIRES: `function` makes no call into the backend and does not throw.
  void enqueue(std::function<void()> function);

  // The cudaStream_t, or nullptr on the CPU backend.
  void* native() const;

  struct Impl;
  Impl& impl() const {
    if (!impl_) detail::throw_moved_from("stream");
    return *impl_;
  }

 private:
  explicit Stream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A point in a stream.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  void record(Stream& stream);
  // Throws what the recorded stream had met before the event.
  void synchronize();
  // Later work of `stream` waits for this event, and does not run if synchronize() would throw.
  void wait(Stream& stream);
  // Whether it is complete, and synchronize() throws. Never on a GPU, whose context is lost then.
  bool failed() const;
  // Milliseconds between two recorded and completed events.
  static float elapsed_ms(const Event& start, const Event& stop);

  struct Impl;

 private:
  friend struct core::EventAccess;
  explicit Event(std::unique_ptr<Impl> impl);
  Impl& impl() const {
    if (!impl_) detail::throw_moved_from("event");
    return *impl_;
  }
  std::unique_ptr<Impl> impl_;
};

// Stream-ordered copy between any two addresses that the backend knows (host, device, region).
void copy_async(Stream& stream, void* dst, const void* src, std::size_t bytes);
// Stream-ordered fill with a byte value.
void fill_async(Stream& stream, void* dst, int byte, std::size_t bytes);

namespace backend {

// "cpu" or "cuda".
const char* name() noexcept;
// What executes kernels, in words: the GPU's name, or the processor's.
std::string device_name();
// PCI address of the GPU, "0000:01:00.0"; empty on the CPU backend.
std::string device_pci_address();
// CUDA's number of the current device; 0 on the CPU backend.
int device_number();
// Makes it the current device of this thread; others begin with the first one.
void set_device(int number);
// Whether a kernel can be launched here; `why` says what is missing if not.
bool usable(std::string* why) noexcept;
// Bytes of device memory that are free.
std::size_t free_device_memory();

// Memory of the device, zeroed. Throws Errc::no_memory.
void* allocate_device(std::size_t bytes);
void free_device(void* address) noexcept;
// Host memory that kernels can use at the same address (pinned). Throws Errc::no_memory.
void* allocate_pinned(std::size_t bytes);
void free_pinned(void* address) noexcept;

// Makes existing host memory usable by kernels at the same address. REQUIRES: page aligned.
// `what` names the memory in errors. A no-op on the CPU backend.
void register_host(void* address, std::size_t bytes, const std::string& what);
void unregister_host(void* address, std::size_t bytes) noexcept;

// Waits for all work that this process has given the device, on whichever stream; of the CUDA
// backend, for one stream that may be another library's, if its cudaStream_t is given. Throws what
// that work met (CUDA backend; otherwise an error waits for who synchronizes its stream).
void synchronize(void* native_stream = nullptr);

}  // namespace backend

namespace detail {

// Bytes of an array. Throws Errc::no_memory if nothing can have so many.
inline std::size_t array_bytes(std::size_t count, std::size_t element_bytes) {
  if (count <= ~std::size_t{0} / 2 / element_bytes) return count * element_bytes;
  throw Error(Errc::no_memory, concat("no memory for ", count, " elements of ", element_bytes,
                                      " bytes: that is more than can be addressed"));
}

}  // namespace detail

// Owns `size()` elements of device memory, zeroed. Throws Errc::no_memory. Not copyable. REQUIRES,
// when it ends: no work that uses it is left (cudaFree() happens to wait; the CPU backend does
// not).
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t size)
      : data_(size ? static_cast<T*>(backend::allocate_device(detail::array_bytes(size, sizeof(T))))
                   : nullptr),
        size_(size) {}
  ~DeviceBuffer() { reset(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  void reset() {
    if (data_) backend::free_device(data_);
    data_ = nullptr;
    size_ = 0;
  }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// Owns pinned host memory that kernels can use at the same address. Throws, and REQUIRES, as a
// DeviceBuffer.
template <class T>
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t size)
      : data_(size ? static_cast<T*>(backend::allocate_pinned(detail::array_bytes(size, sizeof(T))))
                   : nullptr),
        size_(size) {}
  ~PinnedBuffer() {
    if (data_) backend::free_pinned(data_);
  }
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  void swap(PinnedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace holdfast

// Where a workload's persistent arrays are in each mode, and how they become durable.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "holdfast/testing/throttle.hpp"
#include "workload/mode.hpp"

namespace workload {

class FileCalls;
class FileTarget;
class Team;

// Elements [0, size()) of a persistent array. `data` is what kernels (and, in mode cpu, host
// threads) read and write: the medium itself where they store directly and in mode cpu, device
// memory in the modes where the CPU persists (cap_*, gpufs).
template <class T>
struct Array {
  T* data = nullptr;
  std::uint64_t count = 0;
  std::uint32_t id = 0;
};

struct BackingOptions {
  Mode mode = Mode::gpm;
  std::string path;            // of the region
  std::uint64_t capacity = 0;  // bytes of arrays and checkpoints
  unsigned cpu_threads = 0;    // that flush, write or compute; 0: as many as there are cores
  unsigned files = 0;          // of an array in mode cap_fs; 0: one for each of the threads
  bool direct_io = true;       // mode cap_fs: files past the page cache, where they can be
  holdfast::testing::MediumModel medium;  // what the region and the files beside it stand for
  bool last_commit = false;               // as in OpenOptions
  // What runs in it, in at most 50 characters, kept in the region: no other run goes on there.
  std::string run;
};

// The file domain's region at `path` holds everything in the modes gpm, ndp, cap_mm, cpu and the
// projections; cap_fs and gpufs keep each array in a file, or in cap_fs several, beside the
// region's arena, so that all modes write to the same medium.
//
// Invariant: what publish() returned for is there after a kill.
// Thread safety: one thread.
class Backing {
 public:
  // Opens what a former process left, or makes it anew. Throws as Region::create and open do, and
  // invalid_argument for what another run, or something else, has there, which stays as it is.
  explicit Backing(const BackingOptions& options);
  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;
  // Removes all that a Backing of this path left.
  static void destroy(const std::string& path);

  Mode mode() const { return options_.mode; }
  bool was_there() const { return was_there_; }
  const std::string& arena_set_aside() const { return region_->open_report().arena_set_aside; }
  unsigned cpu_threads() const { return options_.cpu_threads; }
  // Mode cap_fs: "direct", "buffered", or why it is buffered though direct_io was asked for. Empty
  // before there is an array or target, and in other modes.
  std::string file_io() const;
  holdfast::Stream& stream() { return stream_; }
  holdfast::Region& region() { return *region_; }

  // The array `name`, zeroed when new; after a crash with what was published (kernel modes: with
  // what was persisted). Throws no_space, invalid_argument (another shape than before).
  template <class T>
  Array<T> array(std::string_view name, std::uint64_t count) {
    const std::uint32_t id = make_array(name, count * sizeof(T));
    return {static_cast<T*>(address(id)), count, id};
  }

  // After a kernel: waits for the stream, and makes elements [first, first + count) of the array as
  // kernels left them durable, in the mode's way. In gpm and eadr the kernel has done it: only
  // waits.
  template <class T>
  void publish(const Array<T>& array, std::uint64_t first, std::uint64_t count) {
    publish_bytes(array.id, first * sizeof(T), count * sizeof(T));
  }
  template <class T>
  void publish(const Array<T>& array) {
    publish(array, 0, array.count);
  }

  // Whether set_ready() was called, now or by a former process: a kill in set-up may leave arrays
  // filled in part.
  bool ready() const;
  // Says that new arrays hold what they start with.
  void set_ready();

  // A durable number that the host keeps, 0 when new: steps that are done. Setting it comes behind
  // everything that was published or persisted before (the stream is waited for).
  std::uint64_t progress() const;
  void set_progress(std::uint64_t value);

  // The array as it is on the medium, which is what a crash would leave: for digests and oracles.
  // Calls body(bytes, count) for parts, in order. Waits for the stream.
  template <class T, class Body>
  void for_durable(const Array<T>& array, const Body& body) {
    std::vector<unsigned char> staging;
    const std::uint64_t bytes = array.count * sizeof(T);
    for (std::uint64_t first = 0; first < bytes; first += kDurablePart) {
      const std::uint64_t count = std::min(kDurablePart, bytes - first);
      body(durable_bytes(array.id, first, count, staging), count);
    }
  }
  // A copy of all of it.
  template <class T>
  std::vector<T> durable(const Array<T>& array) {
    std::vector<T> values(array.count);
    auto* to = reinterpret_cast<unsigned char*>(values.data());
    for_durable(array, [&](const unsigned char* bytes, std::uint64_t count) {
      std::memcpy(to, bytes, count);
      to += count;
    });
    return values;
  }

  // Copies of the array as kernels see it, for set-up. Wait for the stream.
  template <class T>
  std::vector<T> read(const Array<T>& array) {
    std::vector<T> values(array.count);
    holdfast::copy_async(stream_, values.data(), array.data, array.count * sizeof(T));
    stream_.synchronize();
    return values;
  }
  // Set-up of new arrays: stores `values` and makes them durable, in any mode.
  template <class T>
  void fill(const Array<T>& array, const std::vector<T>& values) {
    holdfast::copy_async(stream_, array.data, values.data(), array.count * sizeof(T));
    publish(array);
    if (stores_directly(mode()) || mode() == Mode::cpu) flush(array.data, array.count * sizeof(T));
  }

  // For Savers: `bytes` of the medium with no array for kernels; what is copied there from device
  // memory (mode cpu: host memory) is durable on return; and the way back. REQUIRES: what is copied
  // is there: the copy does not wait for the stream.
  std::uint32_t target(std::string_view name, std::uint64_t bytes);
  void copy_to_target(std::uint32_t id, std::uint64_t offset, const void* from,
                      std::uint64_t bytes);
  void copy_from_target(std::uint32_t id, std::uint64_t offset, void* to, std::uint64_t bytes);

  // Host memory that goes to a place of an array or target.
  struct Piece {
    std::uint64_t offset;  // there, in bytes
    const void* from;
    std::uint64_t bytes;
  };
  // Where the CPU persists: CPU threads copy the pieces there, all at once; durable on return. What
  // kernels see of an array is not changed. Does not wait for the stream.
  void store(std::uint32_t id, std::span<const Piece> pieces);

  // For Deltas, in modes whose arrays are in the region. Where an array or a target is on the
  // medium.
  unsigned char* on_medium(std::uint32_t id) const;
  // Loads an array for kernels anew, as a crash would have it loaded.
  void reload(std::uint32_t id);
  Team& team() { return *team_; }
  // Sets memory aside for stage(), for every thread of the team.
  void set_up_staging(std::uint64_t bytes);
  // Copies from device memory to pinned memory of that thread of the team, waits, and returns it.
  const unsigned char* stage(unsigned thread, const void* from, std::uint64_t bytes);

  // For host threads (mode cpu): makes [address, address + bytes) of the medium durable with the
  // processor's best flush instruction, from the calling thread. Any thread.
  static void flush(const void* address, std::uint64_t bytes);
  // The same by cpu_threads() threads.
  void flush_parallel(const void* address, std::uint64_t bytes);
  // Bytes that flush() and flush_parallel() were asked for, in all threads of this process.
  static std::uint64_t flushed_bytes();

  // For experiments with recovery: the process kills itself where the next save would begin, with
  // all of a step computed and nothing of it durable.
  void die_before_save() { dies_before_save_ = true; }
  // For Savers: behind the computation that is to be saved.
  void save_begins();

  // The medium that everything is written to: publish(), set_progress() and Savers tell it of what
  // they write, and return once it has taken that. For what kernels store, see step.hpp.
  holdfast::testing::Throttle& throttle() { return holdfast::testing::throttle(*region_); }

  // Bytes that this process wrote to the medium for publish(), set_progress() and Savers.
  std::uint64_t bytes_written() const { return bytes_written_; }
  void count_written(std::uint64_t bytes) { bytes_written_ += bytes; }
  // Seconds that publish(), Savers and waits for the medium took.
  double persist_seconds() const { return persist_seconds_; }
  // Runs body() and counts its time.
  template <class Body>
  void timed(Body&& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    persist_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  struct Held;
  struct Lane;
  static constexpr std::uint64_t kDurablePart = std::uint64_t{64} << 20;
  // In `staging` where they are in files.
  const unsigned char* durable_bytes(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes,
                                     std::vector<unsigned char>& staging);
  std::uint32_t make_array(std::string_view name, std::uint64_t bytes);
  std::unique_ptr<Held> make_held(std::string_view name, std::uint64_t bytes, bool& is_new);
  Held& checked(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes);
  void* address(std::uint32_t id) const;
  void claim();
  unsigned files_of_arrays();
  void publish_bytes(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes);
  Lane& lane(unsigned thread);
  void copy_in(Held& held, std::uint64_t offset, void* to, std::uint64_t bytes);
  void read_file(Held& held, std::uint64_t offset, unsigned char* out, std::uint64_t bytes);
  void copy_out(Held& held, std::uint64_t offset, const void* from, std::uint64_t bytes);
  void copy_by_threads(Held& held, std::uint64_t offset, const unsigned char* in,
                       std::uint64_t bytes);
  void store_part(Held& held, const Piece& part);
  void flush_by_threads(const void* address, std::uint64_t bytes);

  BackingOptions options_;
  bool was_there_ = false;
  std::unique_ptr<holdfast::Region> region_;
  holdfast::Stream stream_;
  std::vector<std::unique_ptr<Held>> arrays_;
  std::unique_ptr<Team> team_;
  std::mutex lanes_mutex_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<FileCalls> calls_;
  unsigned files_ = 1;  // of an array, in the modes that have files
  std::uint64_t* progress_ = nullptr;
  std::unique_ptr<FileTarget> progress_file_;
  std::uint64_t bytes_written_ = 0;
  double persist_seconds_ = 0;
  bool dies_before_save_ = false;
};

}  // namespace workload

#include "workload/backing.hpp"

#include <omp.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "workload/cpu_flush.hpp"
#include "workload/file_calls.hpp"
#include "workload/file_target.hpp"

namespace workload {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::kPageBytes;
using holdfast::detail::concat;
using holdfast::testing::Access;
using holdfast::testing::Throttle;

// Copies and flushes are shared out among threads in parts of these sizes.
constexpr std::uint64_t kLargestPart = 8u << 20;
constexpr std::uint64_t kFileStaging = kLargestPart + kPageBytes;
constexpr std::uint64_t kSmallestPart = 256u << 10;
constexpr std::uint64_t kMetadata = 1u << 20;
constexpr const char* kProgress = "progress";
constexpr const char* kReady = "ready";
constexpr const char* kFiles = "files";

std::uint64_t part_of(std::uint64_t bytes, unsigned threads) {
  return std::clamp((bytes / threads + kPageBytes) / kPageBytes * kPageBytes, kSmallestPart,
                    kLargestPart);
}

bool is_cap(Mode mode) {
  return mode == Mode::cap_fs || mode == Mode::cap_mm || mode == Mode::cap_eadr ||
         mode == Mode::cap_log || gathers(mode);
}

bool uses_files(Mode mode) { return mode == Mode::cap_fs || mode == Mode::gpufs; }

}  // namespace

using Staging = holdfast::PinnedBuffer<unsigned char>;

// What a CPU thread copies with.
struct Backing::Lane {
  holdfast::Stream stream;
  Staging staging;  // where copies cannot go to the medium at once
};

struct Backing::Held {
  std::string name;
  std::uint64_t bytes = 0;
  unsigned char* medium = nullptr;                // in the region, except in file modes
  std::unique_ptr<FileTarget> file;               // file modes
  holdfast::DeviceBuffer<unsigned char> working;  // modes in which the CPU persists
  unsigned char* for_kernels() const { return working.data() ? working.data() : medium; }
};

Backing::Backing(const BackingOptions& options) : options_(options) {
  if (options_.cpu_threads == 0) {
    options_.cpu_threads = std::max(1u, std::thread::hardware_concurrency());
  }
  team_ = std::make_unique<Team>(options_.cpu_threads);
  if (options_.mode == Mode::cpu) {
    // OpenMP keeps its threads from one region to the next: none is started in a step.
#pragma omp parallel num_threads(static_cast <int>(options_.cpu_threads))
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
  try {
    holdfast::OpenOptions there;
    there.medium = holdfast::testing::standing_for(options.medium);
    there.last_commit = options.last_commit;
    region_ = std::make_unique<holdfast::Region>(holdfast::Region::open(options.path, there));
    was_there_ = true;
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    remove_targets(options.path);
    holdfast::RegionOptions made;
    made.size =
        kMetadata + (uses_files(options.mode) ? 0 : options.capacity + options.capacity / 8);
    made.max_size = made.size;
    made.medium = holdfast::testing::standing_for(options.medium);
    region_ = std::make_unique<holdfast::Region>(holdfast::Region::create(options.path, made));
  }
  claim();
  progress_ = region_->find<std::uint64_t>(kProgress).data();
  if (options.mode == Mode::cap_fs) files_ = files_of_arrays();
  if (uses_files(options.mode)) {
    progress_file_ = std::make_unique<FileTarget>(target_prefix(options.path) + kProgress,
                                                  sizeof(std::uint64_t));
  }
  if (is_cap(options.mode)) {
    // Set up once: no publish pays for it.
    for (unsigned thread = 0; thread < options_.cpu_threads; ++thread) {
      lanes_.push_back(std::make_unique<Lane>());
      if (options.mode == Mode::cap_fs) lanes_.back()->staging = Staging(kFileStaging);
    }
  }
  if (options.mode == Mode::gpufs) calls_ = std::make_unique<FileCalls>();
}

// Mode and run are kept, as names of objects, in front of all else, so that no run goes on with
// another one's half of the data, or in a region of something else.
void Backing::claim() {
  std::vector<std::string> marks{concat("mode ", to_string(options_.mode))};
  if (!options_.run.empty()) marks.push_back(concat("run ", options_.run));
  const auto is_mark = [&](const std::string& name) {
    return std::find(marks.begin(), marks.end(), name) != marks.end();
  };
  bool ours = true;
  if (region_->contains(kProgress)) {
    for (const std::string& mark : marks) ours = ours && region_->contains(mark);
  } else {  // made by nobody, or killed before it was
    for (const holdfast::ObjectInfo& each : region_->objects()) ours = ours && is_mark(each.name);
  }
  if (!ours) {
    const bool was_closed = !region_->open_report().arena_found;
    if (was_closed) region_->close();  // as it was
    throw Error(Errc::invalid_argument,
                concat("region '", options_.path, "' is of a run in another mode than ",
                       to_string(options_.mode),
                       ", with another input or other options, or of none: remove it, or name "
                       "another"));
  }
  for (const std::string& mark : marks) {
    if (!region_->contains(mark)) region_->allocate<std::uint8_t>(mark, 1);
  }
  if (!region_->contains(kProgress)) region_->allocate<std::uint64_t>(kProgress, 1);
}

// As when the arrays were made: the number is kept before any of them is there.
unsigned Backing::files_of_arrays() {
  if (!region_->contains(kFiles)) region_->allocate<std::uint64_t>(kFiles, 1);
  std::uint64_t& kept = region_->find<std::uint64_t>(kFiles)[0];
  if (kept == 0) {
    const unsigned wanted = options_.files != 0 ? options_.files : options_.cpu_threads;
    __atomic_store_n(&kept, std::uint64_t{wanted}, __ATOMIC_RELEASE);
  }
  return static_cast<unsigned>(kept);
}

Backing::~Backing() {
  // The medium outlives the process as it is; a commit to disk is no part of a workload.
  region_->abandon();
  // A process that has OpenMP's threads cannot fork.
  if (options_.mode == Mode::cpu) omp_pause_resource_all(omp_pause_hard);
}

void Backing::destroy(const std::string& path) {
  remove_targets(path);
  try {
    holdfast::Region::destroy(path);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
  }
}

std::unique_ptr<Backing::Held> Backing::make_held(std::string_view name, std::uint64_t bytes,
                                                  bool& is_new) {
  auto held = std::make_unique<Held>();
  held->name = name;
  held->bytes = bytes;
  is_new = false;
  if (uses_files(options_.mode)) {
    held->file =
        std::make_unique<FileTarget>(concat(target_prefix(options_.path), held->name), bytes,
                                     files_, options_.mode == Mode::cap_fs && options_.direct_io);
    is_new = !held->file->was_there();
  } else if (region_->contains(name)) {
    const holdfast::ObjectInfo info = region_->object(name);
    if (info.bytes() != bytes) {
      throw Error(Errc::invalid_argument,
                  concat("array '", held->name, "' of region '", options_.path, "' has ",
                         info.bytes(), " bytes, not ", bytes,
                         ": it is of a run with other sizes; remove it, or name another region"));
    }
    held->medium = static_cast<unsigned char*>(region_->address(info));
  } else {
    held->medium = static_cast<unsigned char*>(
        region_->allocate_raw(name, "bytes", 1, bytes, holdfast::Tracking::marked));
    is_new = true;
  }
  return held;
}

std::uint32_t Backing::make_array(std::string_view name, std::uint64_t bytes) {
  bool is_new = false;
  std::unique_ptr<Held> held = make_held(name, bytes, is_new);
  if (!stores_directly(options_.mode) && options_.mode != Mode::cpu) {
    held->working = holdfast::DeviceBuffer<unsigned char>(bytes);
    if (!is_new) copy_in(*held, 0, held->working.data(), bytes);
  }
  arrays_.push_back(std::move(held));
  return static_cast<std::uint32_t>(arrays_.size() - 1);
}

std::string Backing::file_io() const {
  if (options_.mode != Mode::cap_fs || arrays_.empty()) return {};
  for (const auto& held : arrays_) {
    if (held->file->is_direct()) return "direct";
  }
  return options_.direct_io ? "buffered: the file system has no direct I/O" : "buffered";
}

std::uint32_t Backing::target(std::string_view name, std::uint64_t bytes) {
  bool is_new = false;
  arrays_.push_back(make_held(name, bytes, is_new));
  return static_cast<std::uint32_t>(arrays_.size() - 1);
}

void* Backing::address(std::uint32_t id) const { return arrays_.at(id)->for_kernels(); }

Backing::Lane& Backing::lane(unsigned thread) {
  const std::lock_guard lock(lanes_mutex_);
  if (lanes_.size() <= thread) lanes_.resize(thread + 1);
  if (!lanes_[thread]) lanes_[thread] = std::make_unique<Lane>();
  return *lanes_[thread];
}

unsigned char* Backing::on_medium(std::uint32_t id) const { return arrays_.at(id)->medium; }

void Backing::reload(std::uint32_t id) {
  Held& held = *arrays_.at(id);
  copy_in(held, 0, held.working.data(), held.bytes);
}

const unsigned char* Backing::durable_bytes(std::uint32_t id, std::uint64_t offset,
                                            std::uint64_t bytes,
                                            std::vector<unsigned char>& staging) {
  Held& held = checked(id, offset, bytes);
  stream_.synchronize();
  if (!held.file) return held.medium + offset;
  staging.resize(std::max<std::uint64_t>(staging.size(), bytes));
  held.file->read(staging.data(), bytes, offset);
  return staging.data();
}

void Backing::set_up_staging(std::uint64_t bytes) {
  for (unsigned thread = 0; thread < options_.cpu_threads; ++thread) {
    lane(thread).staging = Staging(bytes);
  }
}

const unsigned char* Backing::stage(unsigned thread, const void* from, std::uint64_t bytes) {
  Lane& own = lane(thread);
  holdfast::copy_async(own.stream, own.staging.data(), from, bytes);
  own.stream.synchronize();
  return own.staging.data();
}

// From the medium to device memory.
void Backing::copy_in(Held& held, std::uint64_t offset, void* to, std::uint64_t bytes) {
  const Throttle::Mark begun = throttle().mark();
  if (held.file) {
    read_file(held, offset, static_cast<unsigned char*>(to), bytes);
  } else {
    holdfast::copy_async(stream_, to, held.medium + offset, bytes);
    stream_.synchronize();
  }
  throttle().read(begun, bytes);
  throttle().wait();
}

void Backing::read_file(Held& held, std::uint64_t offset, unsigned char* out, std::uint64_t bytes) {
  team_->for_chunks(bytes, part_of(bytes, options_.cpu_threads),
                    [&](unsigned thread, std::uint64_t first, std::uint64_t count) {
                      Lane& own = lane(thread);
                      if (own.staging.size() == 0) own.staging = Staging(kFileStaging);
                      held.file->read(own.staging.data(), count, offset + first);
                      holdfast::copy_async(own.stream, out + first, own.staging.data(), count);
                      own.stream.synchronize();
                    });
}

Backing::Held& Backing::checked(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes) {
  Held& held = *arrays_.at(id);
  if (offset > held.bytes || bytes > held.bytes - offset) {
    throw Error(Errc::invalid_argument,
                concat("bytes [", offset, ", ", offset + bytes, ") of array '", held.name,
                       "', which has ", held.bytes));
  }
  return held;
}

void Backing::publish_bytes(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes) {
  Held& held = checked(id, offset, bytes);
  stream_.synchronize();
  if (bytes == 0 || kernel_persists(options_.mode)) return;
  timed([&] {
    switch (options_.mode) {
      case Mode::ndp:
        flush_by_threads(held.medium + offset, bytes);
        break;
      case Mode::cpu:
        break;  // host threads flush what they store
      default:
        copy_out(held, offset, held.working.data() + offset, bytes);
    }
  });
}

void Backing::copy_to_target(std::uint32_t id, std::uint64_t offset, const void* from,
                             std::uint64_t bytes) {
  Held& held = checked(id, offset, bytes);
  if (bytes != 0) copy_out(held, offset, from, bytes);
}

void Backing::copy_from_target(std::uint32_t id, std::uint64_t offset, void* to,
                               std::uint64_t bytes) {
  copy_in(checked(id, offset, bytes), offset, to, bytes);
}

// Copies run in long, aligned pieces in every mode.
void Backing::copy_out(Held& held, std::uint64_t offset, const void* from, std::uint64_t bytes) {
  const Throttle::Mark begun = throttle().mark();
  if (options_.mode == Mode::gpufs) {
    calls_->write(stream_, *held.file, from, bytes, offset);
  } else {
    copy_by_threads(held, offset, static_cast<const unsigned char*>(from), bytes);
  }
  bytes_written_ += bytes;
  throttle().write(begun, bytes, Access::aligned);
  throttle().wait();
}

// Every CPU thread copies a part and makes it durable while others copy.
void Backing::copy_by_threads(Held& held, std::uint64_t offset, const unsigned char* in,
                              std::uint64_t bytes) {
  const Mode mode = options_.mode;
  team_->for_chunks(bytes, part_of(bytes, options_.cpu_threads),
                    [&](unsigned thread, std::uint64_t first, std::uint64_t count) {
                      if (mode == Mode::cpu) {
                        std::memcpy(held.medium + offset + first, in + first, count);
                        flush_lines(held.medium + offset + first, count);
                        return;
                      }
                      Lane& own = lane(thread);
                      unsigned char* to = held.medium + offset + first;
                      if (held.file) {
                        // As far into a page as in the file, which direct I/O asks for.
                        if (own.staging.size() == 0) own.staging = Staging(kFileStaging);
                        to = own.staging.data() + (offset + first) % kPageBytes;
                      }
                      holdfast::copy_async(own.stream, to, in + first, count);
                      own.stream.synchronize();
                      if (held.file) {
                        held.file->write(to, count, offset + first);
                      } else if (mode != Mode::cap_eadr) {
                        flush_lines(to, count);
                      }
                    });
  if (held.file) held.file->sync();
}

void Backing::store(std::uint32_t id, std::span<const Piece> pieces) {
  Held& held = *arrays_.at(id);
  std::uint64_t all = 0;
  for (const Piece& piece : pieces) {
    checked(id, piece.offset, piece.bytes);
    all += piece.bytes;
  }
  if (all == 0) return;
  const Throttle::Mark begun = throttle().mark();
  team_->for_chunks(all, part_of(all, options_.cpu_threads),
                    [&](unsigned, std::uint64_t first, std::uint64_t count) {
                      for (const Piece& piece : pieces) {
                        if (first >= piece.bytes) {
                          first -= piece.bytes;
                          continue;
                        }
                        const std::uint64_t part = std::min(count, piece.bytes - first);
                        store_part(held,
                                   {piece.offset + first,
                                    static_cast<const unsigned char*>(piece.from) + first, part});
                        count -= part;
                        first = 0;
                        if (count == 0) break;
                      }
                    });
  if (held.file) held.file->sync();
  bytes_written_ += all;
  throttle().write(begun, all, Access::aligned);
  throttle().wait();
}

void Backing::store_part(Held& held, const Piece& part) {
  if (held.file) {
    held.file->write(part.from, part.bytes, part.offset);
  } else if (options_.mode == Mode::cap_eadr) {
    std::memcpy(held.medium + part.offset, part.from, part.bytes);
  } else {
    store_past_caches(held.medium + part.offset, part.from, part.bytes);
  }
}

void Backing::save_begins() {
  stream_.synchronize();
  if (dies_before_save_) ::raise(SIGKILL);
}

bool Backing::ready() const { return region_->contains(kReady); }

void Backing::set_ready() {
  stream_.synchronize();
  if (!ready()) region_->allocate<std::uint8_t>(kReady, 1);
}

std::uint64_t Backing::progress() const {
  if (!progress_file_) return *progress_;
  std::uint64_t value = 0;
  progress_file_->read(&value, sizeof(value), 0);
  return value;
}

void Backing::set_progress(std::uint64_t value) {
  stream_.synchronize();
  const Throttle::Mark begun = throttle().mark();
  if (progress_file_) {
    progress_file_->write(&value, sizeof(value), 0);
    progress_file_->sync();
  } else {
    __atomic_store_n(progress_, value, __ATOMIC_RELEASE);
    if (options_.mode != Mode::eadr && options_.mode != Mode::cap_eadr) {
      flush_lines(progress_, sizeof(value));
    }
  }
  bytes_written_ += sizeof(value);
  throttle().write(begun, sizeof(value), Access::random);
  throttle().wait();
}

void Backing::flush(const void* address, std::uint64_t bytes) {
  count_flushed(bytes);
  flush_lines(address, bytes);
}

std::uint64_t Backing::flushed_bytes() { return workload::flushed_bytes(); }

void Backing::flush_parallel(const void* address, std::uint64_t bytes) {
  count_flushed(bytes);
  flush_by_threads(address, bytes);
}

void Backing::flush_by_threads(const void* address, std::uint64_t bytes) {
  team_->for_chunks(bytes, part_of(bytes, options_.cpu_threads),
                    [&](unsigned, std::uint64_t first, std::uint64_t count) {
                      flush_lines(static_cast<const unsigned char*>(address) + first, count);
                    });
}

}  // namespace workload

// A region: a file-backed range of memory with named, typed objects inside it, which kernels
// read and write in place and which is there again after a crash.
//
// On the medium there are only offsets. docs/format.md describes every byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/config.hpp"
#include "holdfast/error.hpp"
#include "holdfast/page_marks.hpp"
#include "holdfast/stream.hpp"
#include "holdfast/type_name.hpp"

namespace holdfast {

namespace core {
struct RegionAccess;
}
namespace testing {
struct MediumModel;
}

// Where a region's bytes live. DESIGN: docs/architecture.md, "Domains".
enum class Domain : std::uint32_t {
  file,      // an arena in shared memory, paired with an image on any file system
  device,    // memory of the GPU; no durability, for study
  emulated,  // memory with set latency, bandwidth and crash behaviour; for tests
  dax,       // persistent memory mapped directly (device-DAX, fsdax)
};
const char* to_string(Domain domain) noexcept;

// What a crash may take away. Each rung includes the one below it.
enum class Rung {
  none,     // nothing survives
  process,  // survives kill -9, abort, a GPU fault, a lost CUDA context
  power,    // survives an OS crash, a power cut, a reboot
};
const char* to_string(Rung rung) noexcept;

struct Guarantee {
  Rung persist = Rung::none;  // once persist() returned in the kernel
  Rung commit = Rung::none;   // once commit() returned on the host
  std::string reason;         // why, in words
};

// How a store into an object is noticed by commit().
enum class Tracking : std::uint32_t {
  hashed,  // raw stores: commit() compares a hash of every page
  marked,  // whoever writes calls PageMarks::mark(); commit() looks at marked pages alone
  // Not at all, for what can be made again, such as a cache: commits, close() and backups leave the
  // object's bytes out, and never read them. It lives in the arena and survives what that survives
  // (kill -9, and a persist in a kernel has its rung); opened from the image, after a close or a
  // power cut, the object is there and reads as zeros. OpenReport::arena_found says which it was.
  // On a dax domain, which is used in place, it stays as the others do.
  none,
};
const char* to_string(Tracking tracking) noexcept;

struct RegionOptions {
  Domain domain = Domain::file;
  std::uint64_t size = 0;      // bytes, rounded up to whole pages; REQUIRED for create
  std::uint64_t max_size = 0;  // address space kept for grow(); 0: four times `size`
  std::string arena_folder;    // empty: $HOLDFAST_ARENA_DIR, or /dev/shm
  // For experiments (testing/medium_model.hpp): what the region's memory stands for; not stored.
  std::shared_ptr<const testing::MediumModel> medium{};
};

enum class OpenMode {
  read_write,
  // Changes nothing and shuts no one out: stores go to a private copy and are gone with it. Beside
  // a process that has the region open it is the last commit; after a crash it is what was
  // persisted, and a writer has to wait until this region is closed.
  read_only,
};

struct OpenOptions {
  std::string arena_folder;                              // as in RegionOptions
  std::uint64_t max_size = 0;                            // as in RegionOptions
  std::shared_ptr<const testing::MediumModel> medium{};  // as in RegionOptions
  // Begin with the last commit, although a crash has left an arena, or should have: what was
  // persisted since is given up. An arena that is found is set aside under another name.
  bool last_commit = false;
  OpenMode mode = OpenMode::read_write;
};

struct ObjectInfo {
  std::string name;
  std::string type;          // see TypeName
  std::uint64_t offset = 0;  // from the region's first byte
  std::uint64_t count = 0;   // elements
  std::uint32_t element_bytes = 0;
  Tracking tracking = Tracking::hashed;
  std::uint64_t bytes() const { return count * element_bytes; }
};

// What opening cost, part by part, in milliseconds.
struct OpenReport {
  bool arena_found = false;     // the arena of a crashed process was adopted
  std::string arena_set_aside;  // where last_commit put an arena; remove it when it is not needed
  double check_ms = 0;          // lock, header, tables
  double load_ms = 0;           // setting memory aside, reading and verifying the image's pages
  double pin_ms = 0;            // making the memory usable by kernels
};

struct CommitStats {
  std::uint64_t generation = 0;
  std::uint64_t pages_examined = 0;  // pages whose hash was computed
  std::uint64_t pages_written = 0;
  std::uint64_t pages_moved = 0;    // others, for room where the next commits write
  std::uint64_t bytes_written = 0;  // everything that went to the file
  double snapshot_ms = 0;           // how long the stream was held
  double write_ms = 0;              // from the snapshot to the last sync
};

// A commit on its way to the disk. Copyable; all copies speak of the same commit. Use of one that
// was moved from throws Errc::closed.
class Commit {
 public:
  // Waits until the commit is durable. Throws the Error that stopped it (no_space, io): the
  // image then still holds the previous commit, and the region is as usable as before.
  CommitStats wait();
  // Returns once the snapshot has been taken: what the host stores from here on belongs to a later
  // commit. Throws the Error that stopped the commit before that; what stops it behind the snapshot
  // is for wait() to say. On a dax domain, which is written in place, it waits for the whole
  // commit.
  void wait_snapshot();
  bool done() const;

  struct State;
  explicit Commit(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  State& state() const;
  std::shared_ptr<State> state_;
};

// Invariants:
// - At any instant, a kill leaves a region that opens again with the same objects: an object
//   either is there whole or not at all.
// - The image holds the last commit or the one before it, never a mix.
// - Objects start at page boundaries and do not share pages.
//
// Thread safety: one thread at a time per region; kernels of any number. A region is not
// copyable. Use after close() throws Errc::closed.
//
// A region belongs to the process that opened it. In a child that it forks all functions throw
// Errc::in_use (so do those of its Commits), but the end of the child's copy, abandon() and
// assignment to it, which change nothing and wait for nothing.
class Region {
 public:
  // Makes a new region. Throws already_exists, invalid_argument (size 0, too large),
  // no_shared_memory, no_space, permission, unsupported, io. `path` is the image of the file
  // domain, the device of the dax domain, and a name in messages for the other two.
  static Region create(const std::string& path, const RegionOptions& options);

  // Opens an existing region, for reading and writing unless options.mode says otherwise (file
  // domain). Throws not_found, in_use (another process
  // has it, or a dead one's GPU still writes), conflict (a crash left an arena that is not here, or
  // is not this image's), damaged, foreign, newer_version, unsupported (an older version, or locks
  // that do nothing), permission, no_shared_memory, io. A file that is refused is not written to.
  static Region open(const std::string& path, const OpenOptions& options = {});

  // Opens the region at `path`, whatever its size, or creates it where nothing is. Of processes
  // that do so at once one creates it; the others open it when that has closed it, and get in_use
  // until then. What is there and is no whole region is refused as open() does, and not written to;
  // so is a dax device that holds none, which create() would take. For opening, an arena folder or
  // medium that `opening` does not give is that of `options`. On the device and emulated domains,
  // which keep nothing, it is create(). Throws as both, and invalid_argument for a region of
  // another domain and for OpenMode::read_only.
  static Region open_or_create(const std::string& path, const RegionOptions& options,
                               const OpenOptions& opening = {});

  // Removes a region's files, arena included: but of a copy of a file that is there, not what a
  // crash left of that one. Throws as open() does for a file that is not ours.
  static void destroy(const std::string& path, const OpenOptions& options = {});

  Region(Region&&) noexcept;
  Region& operator=(Region&&) noexcept;
  // As close(), but errors go to stderr. While an exception unwinds, the region is left as a
  // crash would leave it: the next open() finds everything that was persisted.
  ~Region();

  // Waits for pending writers and commits, commits what changed, and (file domain) removes the
  // arena. REQUIRES: no other kernel still uses the region.
  void close();

  // Lets go of the region as a crash would: nothing is committed, the arena stays. Does not wait
  // for pending writers: until they have ended their memory stays, and opening the region throws
  // in_use.
  void abandon() noexcept;

  // Makes a zeroed object of `count` elements of a type that has a name (TypeName). Throws
  // already_exists, invalid_argument (name empty or over 55 bytes, count 0), no_space (no room in
  // the region: grow() it).
  template <class T>
  std::span<T> allocate(std::string_view name, std::uint64_t count,
                        Tracking tracking = Tracking::hashed) {
    return {static_cast<T*>(allocate_raw(name, type_name<T>(), sizeof(T), count, tracking)),
            static_cast<std::size_t>(count)};
  }

  // Throws not_found, or invalid_argument if the object has another type, or a name that does not
  // tell: "struct", from before types had to be named.
  template <class T>
  std::span<T> find(std::string_view name) {
    const ObjectInfo info = object(name);
    check_type(info, type_name<T>(), sizeof(T));
    return {static_cast<T*>(address(info)), static_cast<std::size_t>(info.count)};
  }

  bool contains(std::string_view name) const;
  ObjectInfo object(std::string_view name) const;  // throws not_found
  std::vector<ObjectInfo> objects() const;         // by offset
  // A store, map or transaction that is open ends with its table, its records or its words, as by
  // its own remove(). REQUIRES: nothing else that is open has the object as a part. Throws
  // not_found, in_use (a map whose refs may be in use).
  void remove(std::string_view name);
  // Enlarges the region; addresses stay valid. Throws invalid_argument past max_size.
  void grow(std::uint64_t new_size);

  // The untyped form of allocate(), for bindings. `type` as in TypeName, which "struct" is not; nor
  // one that is reserved there, which is not checked here.
  void* allocate_raw(std::string_view name, std::string_view type, std::uint32_t element_bytes,
                     std::uint64_t count, Tracking tracking);
  void* address(const ObjectInfo& info) const;
  // The GPU and the host use the same address.
  void* base() const;

  // Registers a writer that goes on behind the call that began it, on whichever stream: `end` is
  // recorded behind its last store (and page mark), and is not recorded again, nor moved from.
  // Commits and close() come after it, so that none takes half of it, or takes its marks before its
  // stores are made: no later commit would look at those pages. One that was called before, and is
  // on its way, may do that; so the next one looks at its pages again. It is an event rather than a
  // stream, so that what follows on the writer's stream holds no commit up, and shared, so that the
  // writer can use it, too.
  //
  // A writer whose stream has failed counts as ended. Commits go on: what it left is what a crash
  // would have left, with which its recovery deals, and to refuse would keep all else off the disk.
  // Such a commit compares every page, since what was stored may not have been marked.
  // Throws invalid_argument (null), and closed if it was moved from.
  void pending(std::shared_ptr<Event> end);
  // Waits on the host for all pending writers. What failed is for its own waits to say.
  void settle();

  // Makes all that precedes it in `stream`, and all that pending writers store, durable on disk,
  // atomically. The stream waits for those writers, and is then held only while changed pages are
  // copied aside; the disk is written behind it. What the host stores itself is not ordered by the
  // stream: it waits for Commit::wait_snapshot() first.
  // On a dax domain it is a host-side fence; on device and emulated it throws unsupported. Where it
  // cannot be queued it waits for the stream, and throws no_memory or std::bad_alloc; the next
  // commit looks at every page.
  // REQUIRES: other work on other streams that writes the region is ordered before or after it by
  // events.
  Commit commit(Stream& stream);
  // The same, now, and waits. REQUIRES: no kernel but those of pending writers is writing the
  // region.
  CommitStats commit();

  // For kernels that write objects with Tracking::marked; trivially copyable.
  PageMarks marks() const;
  // Says on the host that [address, address + bytes) changes. Of effect on marked objects alone.
  void mark(const void* address, std::size_t bytes);

  const std::string& path() const;
  std::string uuid() const;
  Domain domain() const;
  // Opened with OpenMode::read_only: allocate(), remove(), grow() and commit() throw unsupported.
  bool read_only() const;
  // For structures, before they change the region. Throws unsupported if it is open for reading.
  void check_writable(const char* what) const;
  std::uint64_t size() const;  // bytes
  std::uint64_t max_size() const;
  std::uint64_t used() const;        // bytes taken by objects and metadata
  std::uint64_t generation() const;  // commits so far
  Guarantee guarantee() const;
  const OpenReport& open_report() const;

  struct Impl;

 private:
  friend struct core::RegionAccess;
  explicit Region(std::unique_ptr<Impl> impl);
  void check_type(const ObjectInfo& info, std::string_view type, std::uint32_t bytes) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast

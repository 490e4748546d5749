// The arena: a region's bytes in a named file in shared memory, where a crash of the process
// leaves them for the next one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/files.hpp"
#include "core/format.hpp"
#include "core/medium.hpp"
#include "core/process.hpp"
#include "core/uuid.hpp"

namespace holdfast::core {

// The folder for arenas: `option`, else $HOLDFAST_ARENA_DIR, else /dev/shm.
std::string arena_folder(const std::string& option);
// "<folder>/holdfast-<uid>-<uuid>.arena"
std::string arena_path(const std::string& folder, const Uuid& uuid);
// "; to go on from the last commit without it, ...": the end of messages about an arena.
std::string fall_back();

// The arena, with that remedy: what messages about its content begin with.
std::string arena_in_words(const std::string& path);

// Which image an arena belongs to.
struct ImageIdentity {
  std::string path;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
};
ImageIdentity identify(int image_fd, const std::string& path);

// An arena that a process left, whole as far as its header goes.
struct FoundArena {
  std::string path;
  UniqueFd fd;  // locked
  ArenaHeader header{};
  ArenaUse use() const { return static_cast<ArenaUse>(header.state); }
};

// Opens and locks the arena at `path`, if there is one. A process that has ended, or is ending, may
// have a GPU that still writes: it is waited for, for five seconds at most. Throws damaged,
// newer_version or permission for a file that cannot be trusted, in_use for one that another
// process has or can still write to.
std::optional<FoundArena> find_arena(const std::string& path, const Uuid& uuid, bool writable);

// The header of an arena that is open already; nothing where it is damaged.
std::optional<ArenaHeader> sound_header(int fd, const std::string& path, const Uuid& uuid);

// The bytes of the region in it. Reads the directory; writes nothing. Throws damaged, also where
// the region has fewer than `least`: its image's.
std::uint64_t check_content(const FoundArena& found, const Uuid& uuid, std::uint64_t least);

// Invariants: the file has its name only once it is whole; its pages are allocated, so that no
// store to it can fail. The mapping holds on to the lock: while anything of a dead process can
// write through it, no one gets the lock.
class Arena : public Medium {
 public:
  // Makes an unnamed arena of zeroed region bytes. Throws no_shared_memory.
  static std::unique_ptr<Arena> create(const std::string& path, const Uuid& uuid, const Uuid& boot,
                                       std::uint64_t size, std::uint64_t max_size);
  // Gives it its name. It is `fresh`. Throws in_use if a copy of the same region has an arena
  // already.
  void publish(const ImageIdentity& image);

  // Takes over the arena that a crashed process left. Throws damaged (naming the file and the way
  // back to the last commit), as check_content(), with the file as it was. `max_size` says how much
  // space to keep for a region of a size.
  static std::unique_ptr<Arena> adopt(FoundArena found, const Uuid& uuid, std::uint64_t least,
                                      const std::function<std::uint64_t(std::uint64_t)>& max_size);

  ~Arena() override;

  std::byte* base() const override { return space_.base() + kPage; }
  std::uint64_t size() const override { return size_; }
  std::uint64_t max_size() const override { return max_size_; }
  void grow(std::uint64_t size) override;
  Guarantee guarantee() const override;

  // Makes the region's bytes usable by kernels.
  void pin() { space_.pin(kPage, kPage + size_); }

  const Uuid& id() const { return header()->arena_id; }
  void set_use(ArenaUse use);
  // Notes that the image is about to have this commit, and that it has it.
  void announce(const Uuid& commit);
  void agree(const Uuid& commit);

  // Takes the file's name away. The memory lives on until the arena is destroyed.
  void remove() noexcept;

  // As RegionDomain has it. The mapping holds on to the lock, too.
  void leave_to_maker() noexcept;

  const std::string& path() const { return path_; }
  bool is_published() const { return unpublished_ == nullptr; }

 private:
  Arena(std::string path, std::uint64_t size, std::uint64_t max_size);
  ArenaHeader* header() const { return reinterpret_cast<ArenaHeader*>(space_.base()); }
  void set_owner(const ProcessName& owner);

  std::string path_;
  std::uint64_t size_ = 0;
  std::uint64_t max_size_ = 0;
  std::unique_ptr<NewFile> unpublished_;
  UniqueFd fd_;  // holds the lock, and is what is mapped
  AddressSpace space_;
};

}  // namespace holdfast::core

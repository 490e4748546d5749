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

namespace holdfast::core {

// The folder for arenas: `option`, else $HOLDFAST_ARENA_DIR, else /dev/shm.
std::string arena_folder(const std::string& option);
// "<folder>/holdfast-<uid>-<uuid>.arena"
std::string arena_path(const std::string& folder, const Uuid& uuid);

Uuid this_boot();
std::string to_text(const Uuid& uuid);
Uuid new_uuid();

// Which image an arena belongs to.
struct ImageIdentity {
  std::string path;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
};
ImageIdentity identify(int image_fd, const std::string& path);

// What a file says about itself; for open() and for tools.
enum class ArenaState { absent, this_boot, earlier_boot };

// Invariants: the file has its name only once it is whole; its pages are allocated, so that no
// store to it can fail.
class Arena : public Medium {
 public:
  // Makes an unnamed arena of zeroed region bytes. Throws no_shared_memory.
  static std::unique_ptr<Arena> create(const std::string& path, const Uuid& uuid,
                                       std::uint64_t size, std::uint64_t max_size);
  // Gives it its name. Throws in_use if a copy of the same region has an arena already.
  void publish(const ImageIdentity& image, std::uint64_t generation);

  // Whether there is an arena at `path`, and of which boot. Throws damaged or permission for a
  // file that cannot be trusted, in_use for one that another process has.
  static ArenaState look(const std::string& path, const Uuid& uuid);

  // Checks the file and its directory, and opens it; writes nothing. Throws as adopt().
  struct Checked {
    UniqueFd fd;  // locked
    std::uint64_t region_bytes = 0;
    std::uint64_t file_bytes = 0;
  };
  static Checked check(const std::string& path, const Uuid& uuid, const ImageIdentity& image,
                       std::uint64_t image_generation);

  // Takes over the arena that a crashed process left. REQUIRES: look() said this_boot. Throws
  // damaged (naming the file and the way back to the last commit), in_use.
  // `max_size` says how much space to keep for a region of a size.
  static std::unique_ptr<Arena> adopt(const std::string& path, const Uuid& uuid,
                                      const ImageIdentity& image, std::uint64_t image_generation,
                                      const std::function<std::uint64_t(std::uint64_t)>& max_size);

  std::byte* base() const override { return space_.base() + kPage; }
  std::uint64_t size() const override { return size_; }
  std::uint64_t max_size() const override { return max_size_; }
  void grow(std::uint64_t size) override;
  Guarantee guarantee() const override;

  // Makes the region's bytes usable by kernels.
  void pin() { space_.pin(kPage, kPage + size_); }
  // Notes that the image now has this generation.
  void set_generation(std::uint64_t generation);
  // Takes the file's name away. The memory lives on until the arena is destroyed.
  void remove() noexcept;

  const std::string& path() const { return path_; }

 private:
  Arena(std::string path, std::uint64_t size, std::uint64_t max_size);
  ArenaHeader* header() const { return reinterpret_cast<ArenaHeader*>(space_.base()); }

  std::string path_;
  std::uint64_t size_ = 0;
  std::uint64_t max_size_ = 0;
  std::unique_ptr<NewFile> unpublished_;
  UniqueFd fd_;      // holds the lock
  UniqueFd map_fd_;  // holds none
  AddressSpace space_;
};

}  // namespace holdfast::core

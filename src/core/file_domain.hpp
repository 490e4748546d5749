// The file domain: an arena in shared memory, paired with an image on any file system.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/arena.hpp"
#include "core/commit.hpp"
#include "core/directory.hpp"
#include "core/image.hpp"
#include "holdfast/region.hpp"

namespace holdfast::core {

// What the file domain finds around it. Tests put others in their place.
struct Surroundings {
  MakeStore make_store = make_file_store;
  std::function<Uuid()> boot = this_boot;
};

class FileDomain {
 public:
  static std::unique_ptr<FileDomain> create(const std::string& path, std::uint64_t size,
                                            std::uint64_t max_size, const std::string& folder,
                                            const Surroundings& around = {});
  static std::unique_ptr<FileDomain> open(const std::string& path, const OpenOptions& options,
                                          OpenReport& report, const Surroundings& around = {});
  static void destroy(const std::string& path, const OpenOptions& options);

  // Lets go as a crash would.
  ~FileDomain();

  // Commits what changed and removes the arena. On an exception nothing has been let go.
  void close();
  // Through a stream of its own; if the device is lost, from what the host sees.
  CommitStats commit(Committer::Unchanged unchanged);
  // As things stand now.
  Guarantee guarantee() const;

  Arena& arena() { return *arena_; }
  Directory& directory() { return *directory_; }
  Image& image() { return *image_; }
  Committer& committer() { return *committer_; }
  // Guards directory, marks and the handing out of space.
  std::mutex& mutex() { return mutex_; }

 private:
  FileDomain() = default;
  void take_arena(const OpenOptions& options, OpenReport& report);
  void finish_close();
  void make_durable(bool adopted);
  void write_note(bool closed);

  ImageIdentity identity_;
  Uuid boot_{};
  std::mutex mutex_;
  std::unique_ptr<Image> image_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Committer> committer_;
  std::unique_ptr<Stream> stream_;
};

// Whose bytes a region begins with: those of the arena that a crash left, or the last commit's.
struct ArenaChoice {
  std::string path;                 // of the region's arena
  std::optional<FoundArena> found;  // what is there
  bool adopted = false;
  bool closed = false;     // its last user closed it, and was killed before the image said so
  bool set_aside = false;  // found, not adopted, and to be kept under another name
  std::string is_aside;    // the one that the image notes, which an earlier opening has set aside
};
// Changes nothing. Throws conflict if what was persisted since the last commit is elsewhere, unless
// options.last_commit gives it up; and as find_arena().
ArenaChoice choose_arena(const Image& image, const ImageIdentity& identity, const Uuid& boot,
                         const OpenOptions& options, bool writable);

// Throws conflict or in_use if the next open() would refuse what a crash left in this arena.
void check_fits(const FoundArena& found, const Image& image, const ImageIdentity& identity,
                const Uuid& boot);

// Reads all pages of an image into zeroed memory, and checks the region's metadata. Throws damaged.
void load_verified(const Image& image, std::byte* region, std::uint64_t bytes);

// Whether the file at `path` begins as an image does. Does not follow links, block or throw.
bool is_image(const std::string& path);

// Space for grow(): `wanted`, or four times the size. Throws invalid_argument.
std::uint64_t checked_max_size(std::uint64_t size, std::uint64_t wanted);

}  // namespace holdfast::core

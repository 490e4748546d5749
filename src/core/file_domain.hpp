// The file domain: an arena in shared memory, paired with an image on any file system.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/arena.hpp"
#include "core/commit.hpp"
#include "core/domain.hpp"
#include "core/image.hpp"
#include "holdfast/region.hpp"

namespace holdfast::core {

// Throws conflict where what was persisted since the image's last commit should be in an arena, and
// there is none at `arena`.
void check_no_arena_is_missing(const Image& image, const ImageIdentity& identity, const Uuid& boot,
                               const std::string& arena);

class FileDomain : public RegionDomain {
 public:
  static std::unique_ptr<FileDomain> create(const NewRegion& region);
  static std::unique_ptr<FileDomain> open(const FoundRegion& region);
  static void destroy(const std::string& path, const OpenOptions& options);

  ~FileDomain() override;

  Domain domain() const override { return Domain::file; }
  Medium& medium() override { return *arena_; }
  Directory& directory() override { return *directory_; }

  Commit commit(Stream& stream) override;
  // Through a stream of its own; if the device is lost, from what the host sees.
  CommitStats commit() override;
  std::uint64_t generation() const override { return committer_->generation(); }
  // As things stand now.
  Guarantee guarantee() const override;
  // Commits what changed and removes the arena.
  void close() override;

  void leave_to_maker() noexcept override;

  void writer_registered() noexcept override { committer_->writer_registered(); }
  void writer_begins() override { committer_->writer_begins(); }

  MarkMap* marks() override { return &committer_->marks(); }
  void compare_everything() override { committer_->compare_everything(); }

 private:
  explicit FileDomain(const Model& medium) : RegionDomain(medium) {}
  void take_arena(const OpenOptions& options, OpenReport& report);
  void finish_close();
  void make_durable(bool adopted);
  void write_note(bool closed);
  CommitStats commit_now(Committer::Unchanged unchanged);

  ImageIdentity identity_;
  Uuid boot_{};
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

}  // namespace holdfast::core

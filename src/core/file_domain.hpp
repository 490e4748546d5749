// The file domain: an arena in shared memory, paired with an image on any file system.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/arena.hpp"
#include "core/commit.hpp"
#include "core/directory.hpp"
#include "core/image.hpp"
#include "holdfast/region.hpp"

namespace holdfast::core {

class FileDomain {
 public:
  static std::unique_ptr<FileDomain> create(const std::string& path, std::uint64_t size,
                                            std::uint64_t max_size, const std::string& folder);
  static std::unique_ptr<FileDomain> open(const std::string& path, const OpenOptions& options,
                                          OpenReport& report);
  static void destroy(const std::string& path, const OpenOptions& options);

  // Lets go as a crash would.
  ~FileDomain();

  // Commits what changed and removes the arena. On an exception nothing has been let go.
  void close();
  // Through a stream of its own; if the device is lost, from what the host sees.
  CommitStats commit(Committer::Unchanged unchanged);

  Arena& arena() { return *arena_; }
  Directory& directory() { return *directory_; }
  Image& image() { return *image_; }
  Committer& committer() { return *committer_; }
  // Guards directory, marks and the handing out of space.
  std::mutex& mutex() { return mutex_; }

 private:
  FileDomain() = default;

  std::mutex mutex_;
  std::unique_ptr<Image> image_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Committer> committer_;
  std::unique_ptr<Stream> stream_;
};

// Space for grow(): `wanted`, or four times the size. Throws invalid_argument.
std::uint64_t checked_max_size(std::uint64_t size, std::uint64_t wanted);

}  // namespace holdfast::core

#include "holdfast/inspect.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <optional>

#include "core/arena.hpp"
#include "core/directory.hpp"
#include "core/file_domain.hpp"
#include "core/guard.hpp"
#include "core/image.hpp"
#include "core/read_only.hpp"

namespace holdfast {

using detail::concat;

namespace {

ArenaInfo inspect_arena(const core::Image& image, const std::string& path,
                        const std::string& folder) {
  ArenaInfo info;
  info.path = core::arena_path(core::arena_folder(folder), image.uuid());
  struct stat facts {};
  if (::lstat(info.path.c_str(), &facts) != 0) {
    try {
      core::check_no_arena_is_missing(image, core::identify(image.store().fd(), path),
                                      core::this_boot(), info.path);
    } catch (const Error& error) {
      info.problem = error.what();
    }
    return info;
  }
  info.exists = true;
  info.bytes = static_cast<std::uint64_t>(facts.st_size);
  try {
    const std::optional<core::FoundArena> found = core::find_arena(info.path, image.uuid(), false);
    if (!found) return info;
    info.this_boot = found->header.boot_id == core::this_boot();
    if (info.this_boot) {
      core::check_fits(*found, image, core::identify(image.store().fd(), path), core::this_boot());
      core::check_content(*found, image.uuid(), image.region_bytes());
    }
    info.valid = true;
  } catch (const Error& error) {
    info.problem = error.what();
  }
  return info;
}

}  // namespace

namespace {

void describe(const core::Image& image, Verify verify, ImageInfo& info) {
  std::vector<std::byte> metadata(core::kMetadataBytes);
  image.load_metadata(metadata.data());
  const core::Directory directory = core::Directory::load(metadata.data(), image.region_bytes(),
                                                          concat("the region '", image.path(), "'"),
                                                          [](const void*, std::size_t) {});
  if (verify == Verify::everything) {
    image.verify([&](std::uint64_t page) { return directory.describe_page(page); });
  }
  struct stat facts {};
  if (::fstat(image.store().fd(), &facts) != 0) {
    throw core::system_error(errno, "look at", image.path());
  }
  info.path = image.path();
  info.version = image.header().version;
  info.uuid = core::to_text(image.uuid());
  info.created_unix_ns = image.header().created_unix_ns;
  info.generation = image.generation();
  info.committed_unix_ns = image.commit_unix_ns();
  info.region_bytes = image.region_bytes();
  info.file_bytes = static_cast<std::uint64_t>(facts.st_size);
  info.allocated_bytes = static_cast<std::uint64_t>(facts.st_blocks) * 512;
  info.pages_stored = image.pages_stored();
  info.objects = directory.objects();
}

}  // namespace

ImageInfo inspect_image(const std::string& path, Verify verify,
                        const std::string& arena_folder) try {
  ImageInfo info;
  core::read_last_commit(
      path,
      [&](const core::Image& image) {
        describe(image, verify, info);
        info.arena = inspect_arena(image, path, arena_folder);
      },
      &info.in_use);
  return info;
} catch (const std::exception&) {
  core::fail("reading a region");
}

}  // namespace holdfast

#include "holdfast/backup.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/directory.hpp"
#include "core/guard.hpp"
#include "core/read_only.hpp"
#include "core/snapshot.hpp"

namespace holdfast {

namespace {

using core::kPage;

void no_flush(const void*, std::size_t) {}

// Pages that are copied aside at once, before they are written.
constexpr std::uint64_t kStagingPages = (std::uint64_t{64} << 20) / kPage;

}  // namespace

BackupReport backup(const std::string& from, const std::string& to,
                    const OpenOptions& options) try {
  struct stat info {};
  if (::lstat(to.c_str(), &info) == 0) throw core::system_error(EEXIST, "create", to);
  BackupReport report;
  OpenReport opened;
  const core::ReadOnly source = core::open_read_only(from, options, opened);
  const core::Uuid uuid = core::new_uuid();
  std::byte* const region = source.medium->base();
  core::Directory::set_uuid(region, uuid);
  const core::Directory directory =
      core::Directory::load(region, source.medium->size(), from, no_flush);

  core::NewFile file(core::folder_of(to), core::base_name(to));
  core::UniqueFd fd(::fcntl(file.fd(), F_DUPFD_CLOEXEC, 0));
  if (!fd) throw core::system_error(errno, "open", to);
  core::Image image = core::Image::format(core::make_file_store(std::move(fd), to), uuid);
  core::StagingBuffer staging(std::min(kStagingPages, core::pages_of(source.medium->size())));
  const std::vector<std::uint8_t> marks(core::pages_of(source.medium->size()), 1);
  core::Snapshot snapshot = core::take_snapshot({region, &directory, &marks, true}, image, staging);
  report.pages_written = image.write(std::move(snapshot.changes), core::new_uuid()).pages_written;
  report.uuid = core::to_text(uuid);
  file.publish();  // behind everything that can run out of memory
  try {
    image.sync_name();
  } catch (...) {
    ::unlink(to.c_str());
    throw;
  }
  report.arena_found = opened.arena_found;
  report.generation = source.generation;
  report.region_bytes = source.medium->size();
  return report;
} catch (const std::exception&) {
  core::fail("a backup");
}

}  // namespace holdfast

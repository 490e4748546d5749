#include "core/file_domain.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace holdfast::core {

using detail::concat;

namespace {

using Clock = std::chrono::steady_clock;

// Milliseconds since the previous call or construction.
class Stopwatch {
 public:
  double lap() {
    const Clock::time_point now = Clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - start_).count();
    start_ = now;
    return ms;
  }

 private:
  Clock::time_point start_ = Clock::now();
};

// Stores to shared memory outlive the process as they are made.
void no_flush(const void*, std::size_t) {}

UniqueFd open_image(const std::string& path) {
  UniqueFd fd = open_own_file(path, true, "a region");
  lock_file(fd.get(), true, path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw system_error(errno, "look at", path);
  if (info.st_nlink == 0) throw system_error(ENOENT, "open", path);  // destroyed meanwhile
  return fd;
}

}  // namespace

std::uint64_t checked_max_size(std::uint64_t size, std::uint64_t wanted) {
  if (wanted == 0) return std::min(size, kMaxRegionBytes / 4) * 4;
  const std::uint64_t rounded = pages_of(std::min(wanted, kMaxRegionBytes)) * kPage;
  if (wanted > kMaxRegionBytes || rounded < size) {
    throw Error(Errc::invalid_argument,
                concat("max_size ", wanted, " must lie between the region's size ", size, " and ",
                       kMaxRegionBytes, " bytes"));
  }
  return rounded;
}

FileDomain::~FileDomain() {
  if (committer_) committer_->drain();
}

std::unique_ptr<FileDomain> FileDomain::create(const std::string& path, std::uint64_t size,
                                               std::uint64_t max_size, const std::string& folder) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) throw system_error(EEXIST, "create", path);
  const Uuid uuid = new_uuid();
  NewFile file(folder_of(path), base_name(path));
  UniqueFd fd(::fcntl(file.fd(), F_DUPFD_CLOEXEC, 0));  // shares the lock
  if (!fd) throw system_error(errno, "open", path);

  std::unique_ptr<FileDomain> domain(new FileDomain);
  domain->arena_ = Arena::create(arena_path(folder, uuid), uuid, size, max_size);
  Directory::format(domain->arena_->base(), uuid, size, no_flush);
  domain->directory_ =
      std::make_unique<Directory>(Directory::load(domain->arena_->base(), size, path, no_flush));
  domain->image_ = std::make_unique<Image>(Image::format(std::move(fd), path, uuid));
  domain->arena_->pin();
  domain->committer_ = std::make_unique<Committer>(*domain->image_, *domain->arena_,
                                                   *domain->directory_, domain->mutex_);
  domain->committer_->now();  // generation 0: the empty region
  // The image first: a kill in between leaves a region that opens, and no memory without an owner.
  file.publish(true);
  try {
    domain->arena_->publish(identify(domain->image_->fd(), path), domain->image_->generation());
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
  return domain;
}

std::unique_ptr<FileDomain> FileDomain::open(const std::string& path, const OpenOptions& options,
                                             OpenReport& report) {
  Stopwatch watch;
  std::unique_ptr<FileDomain> domain(new FileDomain);
  domain->image_ = std::make_unique<Image>(Image::open(open_image(path), path));
  Image& image = *domain->image_;
  const std::string arena_file = arena_path(arena_folder(options.arena_folder), image.uuid());
  const ArenaState state = Arena::look(arena_file, image.uuid());
  const ImageIdentity identity = identify(image.fd(), path);
  report.arena_found = state == ArenaState::this_boot;
  report.check_ms = watch.lap();
  if (report.arena_found) {
    domain->arena_ =
        Arena::adopt(arena_file, image.uuid(), identity, image.generation(),
                     [&](std::uint64_t size) { return checked_max_size(size, options.max_size); });
  } else {
    const std::uint64_t size = image.region_bytes();
    domain->arena_ =
        Arena::create(arena_file, image.uuid(), size, checked_max_size(size, options.max_size));
  }
  Arena& arena = *domain->arena_;
  (report.arena_found ? report.check_ms : report.load_ms) += watch.lap();

  const std::string where = report.arena_found ? concat("the arena '", arena_file,
                                                        "' (to fall back to the last "
                                                        "commit, remove it)")
                                               : concat("the region '", path, "'");
  if (!report.arena_found) {
    image.load(arena.base(), [&](std::uint64_t page) {
      try {
        return Directory::load(arena.base(), arena.size(), where, no_flush).describe_page(page);
      } catch (const Error&) {
        return concat("page ", page);
      }
    });
    report.load_ms += watch.lap();
  }
  domain->directory_ =
      std::make_unique<Directory>(Directory::load(arena.base(), arena.size(), where, no_flush));
  Directory& directory = *domain->directory_;
  if (directory.uuid() != image.uuid() ||
      (!report.arena_found && directory.region_bytes() != image.region_bytes()) ||
      directory.region_bytes() < image.region_bytes()) {
    throw Error(Errc::damaged, concat(where, ": its header and its image do not agree"));
  }
  report.check_ms += watch.lap();
  arena.pin();
  report.pin_ms = watch.lap();

  domain->committer_ = std::make_unique<Committer>(image, arena, directory, domain->mutex_);
  if (report.arena_found) {
    domain->committer_->compare_everything();
    arena.set_generation(image.generation());
  } else {
    if (state == ArenaState::earlier_boot) ::unlink(arena_file.c_str());
    arena.publish(identity, image.generation());
  }
  report.check_ms += watch.lap();
  return domain;
}

void FileDomain::destroy(const std::string& path, const OpenOptions& options) {
  const UniqueFd fd = open_image(path);
  bool whole = true;
  ImageHeader header{};
  try {
    header = Image::read_header(fd.get(), path);
  } catch (const Error& error) {
    if (error.code() != Errc::damaged) throw;
    whole = false;  // ours, and to be removed all the same; its arena cannot be named
  }
  if (whole) {
    const std::string arena = arena_path(arena_folder(options.arena_folder), header.uuid);
    try {
      const UniqueFd arena_fd = open_own_file(arena, true, "an arena");
      lock_file(arena_fd.get(), true, arena);
      if (::unlink(arena.c_str()) != 0) throw system_error(errno, "remove", arena);
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
    }
  }
  if (::unlink(path.c_str()) != 0) throw system_error(errno, "remove", path);
  sync_folder_of(path);
}

CommitStats FileDomain::commit(Committer::Unchanged unchanged) {
  try {
    if (!stream_) stream_ = std::make_unique<Stream>();
    return Commit(committer_->start(*stream_, unchanged)).wait();
  } catch (const Error& error) {
    // The device or its context is lost, the arena is not.
    if (error.code() != Errc::device && error.code() != Errc::kernel_fault) throw;
  }
  stream_.reset();
  committer_->drain();
  return committer_->now(unchanged);
}

void FileDomain::close() {
  committer_->drain();
  commit(Committer::Unchanged::skip);
  arena_->remove();
}

}  // namespace holdfast::core

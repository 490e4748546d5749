#include "core/file_domain.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "core/read_only.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

using Clock = std::chrono::steady_clock;

// Milliseconds since the previous call or construction.
class Stopwatch {
 public:
  double lap() {
    const double result = ms();
    start_ = Clock::now();
    return result;
  }
  double ms() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  Clock::time_point start_ = Clock::now();
};

// Stores to shared memory outlive the process as they are made.
void no_flush(const void*, std::size_t) {}

UniqueFd open_image(const std::string& path) {
  UniqueFd fd = open_own_file(path, true, "a region");
  lock_file(fd.get(), true, path);
  check_lock_holds(fd.get(), true, path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw system_error(errno, "look at", path);
  if (info.st_nlink == 0) throw system_error(ENOENT, "open", path);  // destroyed meanwhile
  return fd;
}

void refuse_old_version(const Image& image) {
  if (image.header().version >= kFormatVersion) return;
  throw Error(Errc::unsupported,
              concat("'", image.path(), "' was written in format version ", image.header().version,
                     ", which this build reads and does not write; make a region of the current "
                     "version of it: holdfast backup '",
                     image.path(), "' NEW"));
}

// A note speaks of the file that it was written to: in a copy, of the original.
bool speaks_of(const ArenaNote& note, const ImageIdentity& identity) {
  return note.image_device == identity.device && note.image_inode == identity.inode;
}

// Unless that close failed behind its note, and the region was used on, and committed.
bool says_closed(const ArenaNote& note, const Image& image) {
  return note.closed == 1 && note.commit_id == image.commit_id();
}

// The arena that the image's last user had in this boot and did not close: what was persisted
// there since the last commit is nowhere else.
const ArenaNote* arena_in_use(const Image& image, const ImageIdentity& identity, const Uuid& boot) {
  if (!image.note()) return nullptr;
  const ArenaNote& note = *image.note();
  const bool in_use =
      speaks_of(note, identity) && note.boot_id == boot && !says_closed(note, image);
  return in_use ? &note : nullptr;
}

// Whether the file that the arena is of still has its name.
bool is_there(const ArenaHeader& header) {
  struct stat info {};
  return ::stat(header.image_path, &info) == 0 && info.st_dev == header.image_device &&
         info.st_ino == header.image_inode;
}

bool is_of(const ArenaHeader& header, const ImageIdentity& identity) {
  return header.image_device == identity.device && header.image_inode == identity.inode;
}

enum class Fate { adopt, discard, set_aside };

// What becomes of the arena that was found. Throws conflict, in_use.
Fate fate_of(const FoundArena& found, const ArenaNote* noted, const Image& image,
             const ImageIdentity& identity, const Uuid& boot, bool last_commit) {
  const ArenaHeader& header = found.header;
  if (header.boot_id != boot) return Fate::discard;
  if (header.version < kFormatVersion) {
    if (last_commit) return Fate::set_aside;
    throw Error(
        Errc::unsupported,
        concat("the arena '", found.path, "' was written in format version ", header.version,
               "; open the region with the build that wrote it once, and close it", fall_back()));
  }
  const bool of_this_file = is_of(header, identity);
  if (!of_this_file && is_there(header)) {
    throw Error(Errc::in_use,
                concat("the arena '", found.path, "' holds what a crashed process left of '",
                       header.image_path, "', and '", identity.path,
                       "' is a copy of it; open and close that one first, or open this one with "
                       "another arena folder"));
  }
  if (!of_this_file && last_commit) return Fate::set_aside;
  if (!of_this_file) {
    throw Error(
        Errc::conflict,
        concat("the arena '", found.path, "' holds what a crashed process left of '",
               header.image_path, "', which has been replaced or moved since: '", identity.path,
               "' is another file. Nothing was changed. Put that one back, or keep a copy "
               "of the arena (holdfast backup)",
               fall_back()));
  }
  // A note is lost where a sync fails and the system forgets the page. That no commit came since
  // then tells as much: ids are random.
  const bool ours =
      noted != nullptr ? noted->arena_id == header.arena_id : found.use() == ArenaUse::in_use;
  const bool agrees = image.commit_id() == header.base || image.commit_id() == header.next;
  if (found.use() == ArenaUse::fresh && !ours) return Fate::discard;
  if (found.use() == ArenaUse::closed && (!ours || image.commit_id() == header.base)) {
    return Fate::discard;
  }
  if (last_commit) return Fate::set_aside;
  if (ours && agrees) return Fate::adopt;
  const std::string why =
      noted != nullptr && ours
          ? "the image holds a commit that this arena does not continue: it was replaced"
          : "since it was left by a crash, the image was opened without it";
  throw Error(Errc::conflict,
              concat("the arena '", found.path, "' and the image '", identity.path,
                     "' do not belong together: ", why,
                     ". Nothing was changed. Put the image "
                     "back that it belongs to, or keep a copy of the arena (holdfast backup)",
                     fall_back()));
}

}  // namespace

void check_fits(const FoundArena& found, const Image& image, const ImageIdentity& identity,
                const Uuid& boot) {
  fate_of(found, arena_in_use(image, identity, boot), image, identity, boot, false);
}

bool is_image(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  char magic[8];
  return fd && ::pread(fd.get(), magic, sizeof magic, 0) == sizeof magic &&
         std::memcmp(magic, kImageMagic, sizeof magic) == 0;
}

FileDomain::~FileDomain() {
  if (committer_) committer_->drain();
}

std::unique_ptr<FileDomain> FileDomain::create(const NewRegion& region) {
  const auto& [path, size, max_size, options, around] = region;
  const std::string folder = arena_folder(options.arena_folder);
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) throw system_error(EEXIST, "create", path);
  const Uuid uuid = new_uuid();
  NewFile file(folder_of(path), base_name(path));
  check_lock_holds(file.fd(), true, path);
  UniqueFd fd(::fcntl(file.fd(), F_DUPFD_CLOEXEC, 0));  // shares the lock
  if (!fd) throw system_error(errno, "open", path);

  std::unique_ptr<FileDomain> domain(new FileDomain(options.medium));
  domain->boot_ = around.boot();
  domain->identity_ = identify(fd.get(), path);
  domain->arena_ = Arena::create(arena_path(folder, uuid), uuid, domain->boot_, size, max_size);
  Directory::format(domain->arena_->base(), uuid, size, no_flush);
  domain->directory_ =
      std::make_unique<Directory>(Directory::load(domain->arena_->base(), size, path, no_flush));
  domain->image_ =
      std::make_unique<Image>(Image::format(around.make_store(std::move(fd), path), uuid));
  domain->arena_->pin();
  domain->committer_ = std::make_unique<Committer>(*domain->image_, *domain->arena_,
                                                   *domain->directory_, domain->mutex());
  domain->committer_->now();  // generation 0: the empty region
  // The image first: a kill in between leaves a region that opens, and no memory without an owner.
  file.publish();
  try {
    domain->image_->sync_name();
    domain->arena_->publish(domain->identity_);
    domain->write_note(false);
  } catch (...) {
    ::unlink(path.c_str());
    if (domain->arena_->is_published()) domain->arena_->remove();
    throw;
  }
  domain->arena_->set_use(ArenaUse::in_use);
  domain->committer_->set_throttle(domain->throttle());
  return domain;
}

void FileDomain::write_note(bool closed) {
  ArenaNote note{};
  note.boot_id = boot_;
  note.arena_id = arena_->id();
  note.commit_id = image_->commit_id();
  note.image_device = identity_.device;
  note.image_inode = identity_.inode;
  note.closed = closed ? 1 : 0;
  const std::string absolute = absolute_path(arena_->path());
  std::memcpy(note.arena_path, absolute.data(),
              std::min(absolute.size(), sizeof note.arena_path - 1));
  image_->write_note(note);
}

namespace {

// With options.last_commit an arena that cannot be trusted is passed over, too.
std::optional<FoundArena> find_or_pass_over(const std::string& path, const Uuid& uuid,
                                            bool writable, bool last_commit, bool& spoiled) {
  try {
    return find_arena(path, uuid, writable);
  } catch (const Error& error) {
    spoiled = error.code() == Errc::damaged || error.code() == Errc::newer_version ||
              error.code() == Errc::unsupported;
    if (!last_commit || !spoiled) throw;
    return std::nullopt;
  }
}

// By its id, so that a later opening finds it, too, if a kill keeps this one from telling.
std::string name_aside(const std::string& arena, const Uuid& id) {
  return concat(arena, ".aside-", to_text(id));
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

[[noreturn]] void arena_is_missing(const ArenaNote& note, const std::string& image,
                                   const std::string& here) {
  const std::string there = note.arena_path;
  const bool same = absolute_path(folder_of(here)) + "/" + base_name(here) == there;
  const std::string aside = name_aside(there, note.arena_id);
  if (exists(aside)) {
    throw Error(
        Errc::conflict,
        concat("what was persisted to '", image, "' since its last commit is in the arena '", aside,
               "', which was set aside: holdfast backup makes a region of it", fall_back()));
  }
  throw Error(Errc::conflict,
              concat("what was persisted to '", image, "' since its last commit is in the arena '",
                     there, "', ",
                     same ? std::string("which is gone: it was removed (systemd does so at logout, "
                                        "unless RemoveIPC=no)")
                          : concat("and this process looks for it in '", folder_of(here),
                                   "'; set HOLDFAST_ARENA_DIR (or arena_folder) to '",
                                   folder_of(there), "'"),
                     fall_back()));
}

}  // namespace

void check_no_arena_is_missing(const Image& image, const ImageIdentity& identity, const Uuid& boot,
                               const std::string& arena) {
  const ArenaNote* const noted = arena_in_use(image, identity, boot);
  if (noted != nullptr) arena_is_missing(*noted, image.path(), arena);
}

ArenaChoice choose_arena(const Image& image, const ImageIdentity& identity, const Uuid& boot,
                         const OpenOptions& options, bool writable) {
  ArenaChoice choice;
  choice.path = arena_path(arena_folder(options.arena_folder), image.uuid());
  const ArenaNote* const noted = arena_in_use(image, identity, boot);
  choice.found =
      find_or_pass_over(choice.path, image.uuid(), writable, options.last_commit, choice.set_aside);
  if (choice.found) {
    const Fate fate = fate_of(*choice.found, noted, image, identity, boot, options.last_commit);
    choice.adopted = fate == Fate::adopt;
    choice.set_aside = fate == Fate::set_aside;
    // Its last user closed it, and was kept by a kill from saying so in the image, too.
    choice.closed = fate == Fate::discard && noted != nullptr &&
                    noted->arena_id == choice.found->header.arena_id;
  }
  if (noted != nullptr && !choice.adopted && !choice.closed) {
    if (!options.last_commit) arena_is_missing(*noted, image.path(), choice.path);
    const std::string aside = name_aside(noted->arena_path, noted->arena_id);
    if (!choice.set_aside && exists(aside)) choice.is_aside = aside;
  }
  return choice;
}

void load_verified(const Image& image, std::byte* region, std::uint64_t bytes) {
  const std::string where = concat("the region '", image.path(), "'");
  image.load(region, [&](std::uint64_t page) {
    try {
      return Directory::load(region, bytes, where, no_flush).describe_page(page);
    } catch (const Error&) {
      return concat("page ", page);
    }
  });
  const Directory directory = Directory::load(region, bytes, where, no_flush);
  if (directory.uuid() != image.uuid() || directory.region_bytes() != image.region_bytes()) {
    throw Error(Errc::damaged, concat(where, ": its header and its image do not agree"));
  }
}

// What the last user was killed in: the image has to say that there is no arena before it is
// removed.
void FileDomain::finish_close() {
  image_->rewrite_note();
  image_->make_durable();
  ArenaNote note = *image_->note();
  note.closed = 1;
  note.commit_id = image_->commit_id();
  image_->write_note(note);
  image_->sync();
}

void FileDomain::take_arena(const OpenOptions& options, OpenReport& report) {
  const Image& image = *image_;
  ArenaChoice choice = choose_arena(image, identity_, boot_, options, true);
  if (choice.adopted) {
    report.arena_found = true;
    arena_ =
        Arena::adopt(std::move(*choice.found), image.uuid(), image.region_bytes(),
                     [&](std::uint64_t size) { return checked_max_size(size, options.max_size); });
    return;
  }
  const Stopwatch watch;
  const std::uint64_t size = image.region_bytes();
  arena_ = Arena::create(choice.path, image.uuid(), boot_, size,
                         checked_max_size(size, options.max_size));
  load_verified(image, arena_->base(), size);
  report.load_ms = watch.ms();
  if (choice.set_aside) {
    const bool named = choice.found && !(choice.found->header.arena_id == Uuid{});
    report.arena_set_aside =
        name_aside(choice.path, named ? choice.found->header.arena_id : new_uuid());
    if (::rename(choice.path.c_str(), report.arena_set_aside.c_str()) != 0) {
      throw system_error(errno, "set aside", choice.path);
    }
    return;
  }
  report.arena_set_aside = choice.is_aside;
  if (!choice.found) return;
  if (choice.closed) finish_close();
  if (::unlink(choice.path.c_str()) != 0 && errno != ENOENT) {
    throw system_error(errno, "remove", choice.path);
  }
}

namespace {

// What was loaded is zero wherever no object lies; what was adopted may hold anything.
std::uint64_t zero_from(const Arena& arena, const Directory& directory, bool adopted) {
  if (adopted) return arena.size();
  std::uint64_t from = kMetadataBytes;
  for (const ObjectInfo& object : directory.objects()) {
    from = std::max(from, object.offset + pages_of(object.bytes()) * kPage);
  }
  return from;
}

}  // namespace

std::unique_ptr<FileDomain> FileDomain::open(const FoundRegion& region) {
  const auto& [path, options, around, report] = region;
  Stopwatch watch;
  std::unique_ptr<FileDomain> domain(new FileDomain(options.medium));
  UniqueFd fd = open_image(path);
  domain->boot_ = around.boot();
  domain->identity_ = identify(fd.get(), path);
  domain->image_ = std::make_unique<Image>(Image::open(around.make_store(std::move(fd), path)));
  Image& image = *domain->image_;
  refuse_old_version(image);
  domain->take_arena(options, report);
  Arena& arena = *domain->arena_;

  const std::string where =
      report.arena_found ? arena_in_words(arena.path()) : concat("the region '", path, "'");
  domain->directory_ =
      std::make_unique<Directory>(Directory::load(arena.base(), arena.size(), where, no_flush));
  Directory& directory = *domain->directory_;
  if (directory.uuid() != image.uuid() || directory.region_bytes() < image.region_bytes()) {
    throw Error(Errc::damaged, concat(where, ": its header and its image do not agree"));
  }
  report.check_ms += watch.lap() - report.load_ms;
  arena.pin();
  report.pin_ms = watch.lap();

  domain->committer_ = std::make_unique<Committer>(image, arena, directory, domain->mutex());
  domain->make_durable(report.arena_found);
  domain->committer_->set_throttle(domain->throttle());
  domain->set_zero_from(zero_from(arena, directory, report.arena_found));
  report.check_ms += watch.lap();
  return domain;
}

// What was read may be in the system's cache alone, if the last user was killed, or a sync of its
// failed. After a reboot, and after a close, it is on the disk.
void FileDomain::make_durable(bool adopted) {
  Image& image = *image_;
  const std::optional<ArenaNote>& note = image.note();
  const bool is_durable =
      note && speaks_of(*note, identity_) && (says_closed(*note, image) || note->boot_id != boot_);
  if (adopted) {
    committer_->compare_everything();
  } else {
    arena_->agree(image.commit_id());
    arena_->publish(identity_);
  }
  const bool named = note && note->closed == 0 && note->arena_id == arena_->id();
  if (is_durable) {
    write_note(false);
    image.is_durable();
  } else if (!note) {
    write_note(false);
    image.make_durable();
  } else {
    // The note that was found may never have reached the disk, and be forgotten with its page.
    image.rewrite_note();
    image.make_durable();
    if (!named) {
      write_note(false);
      image.sync();
    }
  }
  arena_->agree(image.commit_id());  // not before it is on the disk: until then it may be forgotten
  arena_->set_use(ArenaUse::in_use);
}

void FileDomain::destroy(const std::string& path, const OpenOptions& options) {
  UniqueFd fd = open_image(path);
  const ImageIdentity identity = identify(fd.get(), path);
  const FileStore store(std::move(fd), path);
  bool whole = true;
  ImageHeader header{};
  try {
    header = Image::read_header(store);
  } catch (const Error& error) {
    if (error.code() != Errc::damaged) throw;
    whole = false;  // ours, and to be removed all the same; its arena cannot be named
  }
  if (whole) {
    const std::string arena = arena_path(arena_folder(options.arena_folder), header.uuid);
    try {
      const UniqueFd arena_fd = open_own_file(arena, true, "an arena");
      lock_file(arena_fd.get(), true, arena);
      const auto found = sound_header(arena_fd.get(), arena, header.uuid);
      // Of a copy: what a crash left of the original.
      const bool stays = found && !is_of(*found, identity) && is_there(*found);
      if (!stays && ::unlink(arena.c_str()) != 0) throw system_error(errno, "remove", arena);
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
    }
  }
  if (::unlink(path.c_str()) != 0) throw system_error(errno, "remove", path);
  sync_folder_of(path);
}

Commit FileDomain::commit(Stream& stream) {
  pending().hold(stream, committer_->everything());
  return Commit(committer_->start(stream));
}

CommitStats FileDomain::commit() {
  settle();
  return commit_now(Committer::Unchanged::commit);
}

CommitStats FileDomain::commit_now(Committer::Unchanged unchanged) {
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
  commit_now(Committer::Unchanged::skip);
  committer_->check_image();
  // A kill in between: the arena says that it is not needed, the note still names it.
  arena_->set_use(ArenaUse::closed);
  try {
    write_note(true);
    image_->sync();  // or the note before it might be found, which names an arena that is gone
  } catch (...) {
    arena_->set_use(ArenaUse::in_use);  // the caller goes on using it
    throw;
  }
  arena_->remove();
  unlock_file(image_->store().fd());
}

// The maker has descriptors of its own, and with them the locks.
void FileDomain::leave_to_maker() noexcept {
  arena_->leave_to_maker();
  ::close(image_->store().fd());
}

Guarantee FileDomain::guarantee() const {
  Guarantee guarantee = arena_->guarantee();
  try {
    committer_->check_image();
  } catch (const Error& error) {
    guarantee.commit = Rung::none;
    guarantee.reason = error.what();
  }
  return guarantee;
}

namespace {

std::unique_ptr<RegionDomain> create_region(const NewRegion& region) {
  return FileDomain::create(region);
}

std::unique_ptr<RegionDomain> open_region(const FoundRegion& region) {
  if (region.options.mode == OpenMode::read_only) return open_for_reading(region);
  return FileDomain::open(region);
}

}  // namespace

const DomainKind kFileDomain{.domain = Domain::file,
                             .name = "file",
                             .create = create_region,
                             .has = is_image,
                             .open = open_region,
                             .destroy = FileDomain::destroy};

}  // namespace holdfast::core

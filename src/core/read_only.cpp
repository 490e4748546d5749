#include "core/read_only.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/directory.hpp"
#include "core/file_domain.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

using Clock = std::chrono::steady_clock;

// How long a reader goes on trying to read one commit before the next ones overwrite it.
constexpr std::chrono::seconds kPatience{20};

// Private memory: a page of the arena's own, which the bytes of an image do without, and the
// region.
class PrivateMedium : public Medium {
 public:
  explicit PrivateMedium(std::uint64_t size, const std::string& what)
      : size_(size), space_(kPage + size, what) {
    space_.map(-1, 0, kPage + size, AddressSpace::Sharing::none);
  }
  // Keeps the locks.
  PrivateMedium(std::uint64_t size, FoundArena arena, UniqueFd image)
      : size_(size),
        image_(std::move(image)),
        arena_(std::move(arena.fd)),
        space_(kPage + size, arena.path) {
    space_.map(arena_.get(), 0, kPage + size, AddressSpace::Sharing::none);
  }

  std::byte* base() const override { return space_.base() + kPage; }
  std::uint64_t size() const override { return size_; }
  std::uint64_t max_size() const override { return size_; }
  void grow(std::uint64_t) override {
    throw Error(Errc::unsupported, "a region that is open for reading cannot grow");
  }
  Guarantee guarantee() const override {
    return {Rung::none, Rung::none, "the region is open for reading: stores go to a private copy"};
  }
  void pin() { space_.pin(kPage, kPage + size_); }

 private:
  std::uint64_t size_;
  UniqueFd image_;
  UniqueFd arena_;
  AddressSpace space_;
};

bool try_lock_shared(int fd, const std::string& path) {
  try {
    lock_file(fd, false, path);
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::in_use) throw;
    return false;
  }
}

std::unique_ptr<PrivateMedium> load(const Image& image) {
  auto medium = std::make_unique<PrivateMedium>(image.region_bytes(),
                                                concat("the region '", image.path(), "'"));
  load_verified(image, medium->base(), medium->size());
  return medium;
}

// The generation in force, read anew; 0 if there is none that is whole just now.
std::uint64_t generation_now(const BlockStore& store) {
  std::uint64_t newest = 0;
  for (const std::uint64_t offset : kRecordOffset) {
    CommitRecord record;
    if (!store.read(offset, &record, sizeof record) || !counts(record)) continue;
    newest = std::max(newest, record.generation + 1);
  }
  return newest;
}

// Beside a writer.
void read_beside(const std::string& path, const std::function<void(const Image&)>& body,
                 const Surroundings& around) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  for (;;) {
    const auto store = [&] {
      return around.make_store(open_own_file(path, false, "a region"), path);
    };
    const std::uint64_t before = generation_now(*store());
    try {
      return body(Image::open(store()));
    } catch (const Error& error) {
      if (error.code() != Errc::damaged) throw;
      if (before != 0 && generation_now(*store()) == before) throw;
      if (Clock::now() >= deadline) {
        throw Error(Errc::in_use, concat("'", path,
                                         "' is committed to faster than a commit of it "
                                         "can be read; try again when fewer commits are made"));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool is_arena(int fd, const std::string& path) {
  char magic[8] = {};
  return read_exactly(fd, magic, sizeof magic, 0, path) && std::memcmp(magic, kArenaMagic, 7) == 0;
}

// An arena by its own name.
std::unique_ptr<PrivateMedium> open_arena(const std::string& path) {
  ArenaHeader header{};
  {
    const UniqueFd fd = open_own_file(path, false, "an arena");
    if (!read_exactly(fd.get(), &header, sizeof header, 0, path)) {
      throw Error(Errc::damaged, concat("the arena '", path, "' is cut off"));
    }
  }
  std::optional<FoundArena> found = find_arena(path, header.uuid, false);
  if (!found) throw system_error(ENOENT, "open", path);
  if (found->header.version < kFormatVersion) {
    throw Error(Errc::unsupported,
                concat("the arena '", path, "' was written in format version ",
                       found->header.version, "; this build reads ", kFormatVersion));
  }
  const std::uint64_t size = check_content(*found, header.uuid, 0);
  return std::make_unique<PrivateMedium>(size, std::move(*found), UniqueFd());
}

// With no writer there: as FileDomain::open() decides.
std::unique_ptr<PrivateMedium> open_quiet(UniqueFd fd, const std::string& path,
                                          const OpenOptions& options, OpenReport& report,
                                          std::uint64_t& generation, const Surroundings& around) {
  const ImageIdentity identity = identify(fd.get(), path);
  UniqueFd lock(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!lock) throw system_error(errno, "open", path);
  const Image image = Image::open(around.make_store(std::move(fd), path));
  generation = image.generation();
  ArenaChoice choice = choose_arena(image, identity, around.boot(), options, false);
  if (!choice.adopted) return load(image);
  report.arena_found = true;
  const std::uint64_t size = check_content(*choice.found, image.uuid(), image.region_bytes());
  return std::make_unique<PrivateMedium>(size, std::move(*choice.found), std::move(lock));
}

}  // namespace

void read_last_commit(const std::string& path, const std::function<void(const Image&)>& body,
                      bool* in_use, const Surroundings& around) {
  UniqueFd fd = open_own_file(path, false, "a region");
  const bool quiet = try_lock_shared(fd.get(), path);
  if (in_use != nullptr) *in_use = !quiet;
  if (!quiet) return read_beside(path, body, around);
  body(Image::open(around.make_store(std::move(fd), path)));
}

ReadOnly open_read_only(const std::string& path, const OpenOptions& options, OpenReport& report,
                        const Surroundings& around) {
  const Clock::time_point start = Clock::now();
  ReadOnly result;
  std::unique_ptr<PrivateMedium> medium;
  UniqueFd fd = open_own_file(path, false, "a region");
  if (is_arena(fd.get(), path)) {
    medium = open_arena(path);
    report.arena_found = true;
  } else if (try_lock_shared(fd.get(), path)) {
    medium = open_quiet(std::move(fd), path, options, report, result.generation, around);
  } else {
    read_beside(
        path,
        [&](const Image& image) {
          medium = load(image);
          result.generation = image.generation();
        },
        around);
  }
  const auto ms = [&](Clock::time_point since) {
    return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
  };
  report.load_ms = ms(start);
  const Clock::time_point loaded = Clock::now();
  medium->pin();
  report.pin_ms = ms(loaded);
  result.medium = std::move(medium);
  return result;
}

namespace {

class ReadOnlyDomain : public InPlaceDomain {
 public:
  ReadOnlyDomain(const std::string& path, ReadOnly found, const Model& model)
      : InPlaceDomain(Domain::file, path, std::move(found.medium), model),
        generation_(found.generation) {}
  std::uint64_t generation() const override { return generation_; }

 private:
  const std::uint64_t generation_;
};

}  // namespace

std::unique_ptr<RegionDomain> open_for_reading(const FoundRegion& region) {
  const auto& [path, options, around, report] = region;
  return std::make_unique<ReadOnlyDomain>(path, open_read_only(path, options, report, around),
                                          options.medium);
}

}  // namespace holdfast::core

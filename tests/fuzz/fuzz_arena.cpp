// Fuzz target: opening a region beside an arena that a crash left, and using what is adopted.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/arena.hpp"
#include "core/checksum.hpp"
#include "core/directory.hpp"
#include "core/region_access.hpp"
#include "core/snapshot.hpp"
#include "fuzz/fuzz.hpp"
#include "fuzz/scratch.hpp"

namespace holdfast::fuzz {

namespace {

using core::ArenaHeader;
using core::ArenaNote;
using core::kPage;

void no_flush(const void*, std::size_t) {}

// An input: what is done (2 bytes), pages of the file (1; 0: as many as there are), pieces until
// the end. A piece: place (1), offset there (2), length (1), bytes.
enum Do : std::uint16_t {
  kRepairHeader = 1,   // the checksum of the arena's header
  kRepairContent = 2,  // the checksums of the region's header and directory
  kRepairNote = 4,     // the checksum of the image's note
  kMatch = 8,          // the ids that make image and arena belong together
  kLastCommit = 16,    // open with that option
  kReadOnly = 32,      // open for reading
  kUse = 64,           // change the region
  kClose = 128,        // close it, instead of a crash
  kCutInPage = 256,    // the file ends within a page
  kNoNote = 512,       // the image has no note
};

constexpr core::Uuid kRegion{1, 2, 3};
constexpr core::Uuid kBoot{4, 5, 6};
constexpr core::Uuid kArena{7, 8, 9};
constexpr core::Uuid kCommit{10, 11, 12};
constexpr std::uint64_t kPages = 36;
constexpr std::uint64_t kRegionBytes = kPages * kPage;
constexpr std::uint8_t kNotePlace = 200;  // places from here on: the image's note

// A region that a crash left: its image, with the last commit, and its arena.
struct Left {
  Left() : arena((1 + kPages) * kPage) {
    std::byte* const region = &arena[kPage];
    core::Directory::format(region, kRegion, kRegionBytes, no_flush);
    auto directory = core::Directory::load(region, kRegionBytes, "here", no_flush);
    directory.insert({"data", "u64", core::kMetadataBytes, 1000, 8, Tracking::hashed});
    directory.insert({"marked", "u32", core::kMetadataBytes + 3 * kPage, 700, 4, Tracking::marked});
    std::memset(region + core::kMetadataBytes, 3, 3 * kPage);
    auto made = core::Image::format(std::make_unique<MemoryStore>(image), kRegion);
    core::StagingBuffer staging(kPages);
    const std::vector<std::uint8_t> marks(kPages, 1);
    auto snapshot = core::take_snapshot({region, &directory, &marks, true}, made, staging);
    made.write(std::move(snapshot.changes), kCommit);
    const core::UniqueFd fd(::open(scratch_image().c_str(), O_RDONLY | O_CLOEXEC));
    const auto identity = core::identify(fd.get(), scratch_image());

    auto* const header = reinterpret_cast<ArenaHeader*>(arena.data());
    std::memcpy(header->magic, core::kArenaMagic, 8);
    header->version = core::kFormatVersion;
    header->page_bytes = kPage;
    header->uuid = kRegion;
    header->boot_id = kBoot;
    header->image_device = identity.device;
    header->image_inode = identity.inode;
    header->arena_id = kArena;
    header->checksum = core::hash_bytes(header, offsetof(ArenaHeader, checksum));
    header->state = static_cast<std::uint64_t>(core::ArenaUse::in_use);
    header->base = kCommit;

    note.boot_id = kBoot;
    note.arena_id = kArena;
    note.commit_id = kCommit;
    note.image_device = identity.device;
    note.image_inode = identity.inode;
    std::memcpy(note.arena_path, "/gone", 5);
    without_note = image;
    made.write_note(note);
    note = *made.note();
    image.changes = without_note.changes = 0;
  }
  std::vector<std::byte> arena;
  MemoryFile image, without_note;
  ArenaNote note{};
};

void match(ArenaHeader& header, const ArenaHeader& sound) {
  std::memcpy(header.magic, sound.magic, 8);
  header.version = sound.version;
  header.page_bytes = sound.page_bytes;
  header.uuid = sound.uuid;
  header.boot_id = sound.boot_id;
  header.image_device = sound.image_device;
  header.image_inode = sound.image_inode;
  header.arena_id = sound.arena_id;
  header.state = sound.state;
  header.base = sound.base;
}

// What an input says, in files.
struct Case {
  Case(Input& input, const Left& left) : arena(left.arena) {
    what = input.take<std::uint16_t>();
    const std::uint8_t pages = input.take();
    image = (what & kNoNote) != 0 ? left.without_note : left.image;
    ArenaNote note = left.note;
    auto* const note_bytes = reinterpret_cast<std::byte*>(&note);
    while (!input.empty()) {
      const std::uint8_t place = input.take();
      const std::uint16_t offset = input.take<std::uint16_t>();
      const auto bytes = input.bytes(input.take());
      const bool to_note = place >= kNotePlace;
      const std::span<std::byte> to =
          to_note ? std::span(note_bytes, sizeof note) : std::span(arena);
      const std::size_t at = (to_note ? 0 : place % (kPages + 1) * kPage) + offset % kPage;
      if (at < to.size()) {
        std::memcpy(&to[at], bytes.data(), std::min(bytes.size(), to.size() - at));
      }
    }
    ArenaHeader header;
    std::memcpy(&header, arena.data(), sizeof header);
    if ((what & kMatch) != 0)
      match(header, *reinterpret_cast<const ArenaHeader*>(left.arena.data()));
    if ((what & kRepairHeader) != 0) {
      header.checksum = core::hash_bytes(&header, offsetof(ArenaHeader, checksum));
    }
    std::memcpy(arena.data(), &header, sizeof header);
    if ((what & kRepairContent) != 0) repair_metadata(&arena[kPage], kRegion);
    if ((what & kRepairNote) != 0) {
      note.checksum = core::hash_bytes(&note, offsetof(ArenaNote, checksum));
    }
    if ((what & kNoNote) == 0) image.put(core::kNoteOffset[0], note);
    bytes = pages == 0 ? arena.size() : pages * kPage - ((what & kCutInPage) != 0 ? 100 : 0);
    arena.resize(std::min<std::size_t>(arena.size(), bytes));
  }

  std::uint16_t what;
  std::vector<std::byte> arena;
  std::uint64_t bytes;  // of the arena's file: what is not in `arena` is a hole
  MemoryFile image;
};

std::string arena_here() { return core::arena_path(core::folder_of(scratch_image()), kRegion); }

void write_arena(const Case& what) {
  ::unlink(arena_here().c_str());
  const core::UniqueFd fd(
      ::open(arena_here().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd || core::write_exactly(fd.get(), what.arena.data(), what.arena.size(), 0) != 0 ||
      ::ftruncate(fd.get(), static_cast<off_t>(what.bytes)) != 0) {
    throw std::runtime_error("cannot write an arena");
  }
}

// Whether the file is as it was made.
bool untouched(const Case& what) {
  const core::UniqueFd fd(::open(arena_here().c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return false;
  std::vector<std::byte> now(what.arena.size());
  return static_cast<std::uint64_t>(info.st_size) == what.bytes &&
         core::read_exactly(fd.get(), now.data(), now.size(), 0, "arena") && now == what.arena;
}

core::Surroundings around(MemoryFile& file) {
  core::Surroundings result;
  result.make_store = [&file](core::UniqueFd, const std::string&) {
    return std::make_unique<MemoryStore>(file);
  };
  result.boot = [] { return kBoot; };
  return result;
}

Region open(MemoryFile& file, bool read_only, bool last_commit) {
  OpenOptions options;
  options.arena_folder = core::folder_of(scratch_image());
  options.last_commit = last_commit;
  if (read_only) options.mode = OpenMode::read_only;
  return core::RegionAccess::open(scratch_image(), options, around(file));
}

using Objects = std::vector<std::pair<std::string, std::vector<unsigned char>>>;

Objects read_all(const Region& region) {
  Objects result;
  for (const ObjectInfo& object : region.objects()) {
    const auto* const at = static_cast<const unsigned char*>(region.address(object));
    result.push_back({object.name, {at, at + object.bytes()}});
  }
  return result;
}

void use(Region& region) {
  succeeds([&] { region.allocate<unsigned>("more", 5000)[4999] = 1; });
  succeeds([&] {  // a directory may have had all the changes that it can have
    if (!region.objects().empty()) region.remove(region.objects().front().name);
  });
  succeeds([&] { region.grow(region.size() + 3 * kPage); });
  succeeds([&] { region.allocate<unsigned>("other", 1000)[0] = 2; });
}

void read_content() {
  std::optional<core::FoundArena> found;
  if (!succeeds([&] { found = core::find_arena(arena_here(), kRegion, false); }) || !found) return;
  succeeds([&] { core::check_content(*found, kRegion, 0); });
}

}  // namespace

void arena(std::span<const std::uint8_t> bytes) {
  static const Left left;
  Input input(bytes);
  Case what(input, left);
  const auto has = [&](Do flag) { return (what.what & flag) != 0; };
  write_arena(what);
  read_content();
  expect(untouched(what), "looking at an arena changes nothing");

  std::optional<Region> region;
  const bool opens =
      succeeds([&] { region.emplace(open(what.image, has(kReadOnly), has(kLastCommit))); });
  if (!opens || has(kReadOnly)) {
    if (opens) read_all(*region);
    expect(untouched(what), "a refusal, or a reader, changes nothing in the arena");
    expect(what.image.changes == 0, "nor in the image");
    region.reset();
    expect(untouched(what), "nor at the end");
    clear_scratch();
    return;
  }
  if (has(kUse)) use(*region);
  const Objects objects = read_all(*region);
  if (has(kClose)) {
    region->close();
    expect(!std::filesystem::exists(arena_here()), "a clean close removes the arena");
  } else {
    region->abandon();
  }
  region.emplace(open(what.image, false, false));
  expect(region->open_report().arena_found != has(kClose), "what a crash leaves is adopted");
  expect(read_all(*region) == objects, "the next one finds what there was");
  region.reset();
  clear_scratch();
}

}  // namespace holdfast::fuzz

#ifdef HOLDFAST_FUZZ_TARGET
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::arena({data, size});
  return 0;
}
#endif

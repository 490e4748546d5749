// Fuzz target: opening an image, reading it in every way there is, and committing to it.
#include <sys/mman.h>

#include <optional>

#include "core/directory.hpp"
#include "core/file_domain.hpp"
#include "core/image.hpp"
#include "core/read_only.hpp"
#include "core/region_access.hpp"
#include "core/snapshot.hpp"
#include "fuzz/image_bytes.hpp"
#include "fuzz/scratch.hpp"

namespace holdfast::fuzz {

namespace {

using core::Directory;
using core::Image;
using core::kPage;

void no_flush(const void*, std::size_t) {}

// Larger regions are read and not committed to: it would take long.
constexpr std::uint64_t kMostCommitted = std::uint64_t{4} << 20;
constexpr std::uint64_t kMostRead = std::uint64_t{256} << 20;

// Zeroed memory of a region.
class Memory {
 public:
  explicit Memory(std::uint64_t bytes) : bytes_(bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap");
    at_ = static_cast<std::byte*>(at);
  }
  Memory(const Memory& other) : Memory(other.bytes_) { std::memcpy(at_, other.at_, bytes_); }
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::munmap(at_, bytes_); }
  std::byte* get() const { return at_; }

 private:
  std::uint64_t bytes_;
  std::byte* at_;
};

std::unique_ptr<core::BlockStore> store_of(MemoryFile& file) {
  return std::make_unique<MemoryStore>(file);
}

core::Surroundings around(MemoryFile& file) {
  core::Surroundings result;
  result.make_store = [&file](core::UniqueFd, const std::string&) { return store_of(file); };
  result.boot = [] { return core::Uuid{1}; };
  return result;
}

// Opens the region for reading, with all that the library does then.
void read_region(MemoryFile& file) {
  OpenOptions options;
  options.mode = OpenMode::read_only;
  options.arena_folder = core::folder_of(scratch_image());
  Region region = core::RegionAccess::open(scratch_image(), options, around(file));
  unsigned sum = 0;
  for (const ObjectInfo& object : region.objects()) {
    const auto* const at = static_cast<const unsigned char*>(region.address(object));
    sum += at[0] + at[object.bytes() - 1];
  }
  expect(sum != 1 || region.used() <= region.size(), "objects lie within the region");
  expect(region.used() <= region.size(), "no more is used than there is");
}

// As inspect_image() and `holdfast verify` read it.
void verify(MemoryFile& file) {
  core::read_last_commit(
      scratch_image(),
      [](const Image& image) {
        std::vector<std::byte> metadata(core::kMetadataBytes);
        image.load_metadata(metadata.data());
        const Directory directory =
            Directory::load(metadata.data(), image.region_bytes(), "the image", no_flush);
        image.verify([&](std::uint64_t page) { return directory.describe_page(page); });
      },
      nullptr, around(file));
}

// A region's bytes and what they mean.
struct Content {
  explicit Content(const Image& image) : bytes(image.region_bytes()) {
    core::load_verified(image, bytes.get(), image.region_bytes());
    load(image.region_bytes());
  }
  Content(const Content& other) : bytes(other.bytes) { load(other.directory->region_bytes()); }
  Content& operator=(const Content&) = delete;
  void load(std::uint64_t there) {
    directory.emplace(Directory::load(bytes.get(), there, "the image", no_flush));
  }

  bool same(const Content& other) const {
    const auto& objects = directory->objects();
    const auto& others = other.directory->objects();
    if (objects.size() != others.size() || directory->uuid() != other.directory->uuid() ||
        directory->region_bytes() != other.directory->region_bytes()) {
      return false;
    }
    for (std::size_t i = 0; i < objects.size(); ++i) {
      if (objects[i].name != others[i].name || objects[i].type != others[i].type ||
          objects[i].offset != others[i].offset || objects[i].bytes() != others[i].bytes() ||
          std::memcmp(bytes.get() + objects[i].offset, other.bytes.get() + others[i].offset,
                      objects[i].bytes()) != 0) {
        return false;
      }
    }
    return true;
  }

  Memory bytes;
  std::optional<Directory> directory;
};

// Does to a region what a program could.
void change(Content& content, Input& plan) {
  Directory& directory = *content.directory;
  for (unsigned i = plan.take() % 8; i > 0; --i) {
    const std::uint8_t what = plan.take();
    const std::uint16_t value = plan.take<std::uint16_t>();
    const auto& objects = directory.objects();
    const ObjectInfo* const object = objects.empty() ? nullptr : &objects[value % objects.size()];
    switch (what % 4) {
      case 0: {  // new content, or zero, or the same
        if (object == nullptr) break;
        const std::uint64_t pages = core::pages_of(object->bytes());
        const std::uint64_t at = (value >> 4) % pages * kPage;
        std::memset(content.bytes.get() + object->offset + at, what >> 2,
                    std::min(kPage, object->bytes() - at));
        break;
      }
      case 1:
        if (object != nullptr) directory.remove(object->name);
        break;
      default: {
        ObjectInfo info{"new" + std::to_string(what), "t", 0,
                        1 + value % 40 * 1000u,       4,   Tracking::hashed};
        if (directory.find(info.name) != nullptr) break;
        succeeds([&] {
          info.offset = directory.first_fit(info.bytes(), info.name);
          directory.check_room(info.name);
          std::memset(content.bytes.get() + info.offset, what, info.bytes());
          directory.insert(info);
        });
      }
    }
  }
}

void commit(Image& image, Content& content, core::StagingBuffer& staging, std::uint8_t id) {
  const std::vector<std::uint8_t> marks(core::pages_of(content.directory->region_bytes()), 1);
  core::Snapshot snapshot =
      core::take_snapshot({content.bytes.get(), &*content.directory, &marks, true}, image, staging);
  image.write(std::move(snapshot.changes), core::Uuid{id});
}

void expect_opens_as(MemoryFile& file, const Content& wanted, const Content* or_this) {
  const Image image = Image::open(store_of(file));
  const Content found(image);
  expect(found.same(wanted) || (or_this != nullptr && found.same(*or_this)),
         "an image that was committed to holds the commit");
}

// Commits to an image, perhaps on a disk that fails once; then again.
void commit_twice(MemoryFile& file, Input& plan) {
  Image image = Image::open(store_of(file));
  if (image.header().version < core::kFormatVersion || image.region_bytes() > kMostCommitted)
    return;
  const Content before(image);
  Content content(before);
  const std::uint8_t failing = plan.take();
  core::StagingBuffer staging(1 + plan.take() % 32);
  if (failing != 0) file.failing = file.changes + failing;
  const bool settled = succeeds([&] { image.make_durable(); });
  change(content, plan);
  const bool committed = settled && succeeds([&] { commit(image, content, staging, 1); });
  // One that was forged to have had all its commits says so.
  const bool may_refuse = image.generation() + 2 > core::kMaxGeneration;
  expect(committed || failing != 0 || may_refuse, "a sound image can be committed to");
  expect_opens_as(file, content, committed ? nullptr : &before);
  file.failing = ~std::uint64_t{0};
  change(content, plan);
  if (may_refuse) {
    const Content last(Image::open(store_of(file)));
    if (!succeeds([&] { commit(image, content, staging, 2); })) {
      expect_opens_as(file, last, nullptr);
      return;
    }
  } else {
    commit(image, content, staging, 2);
  }
  expect_opens_as(file, content, nullptr);
}

}  // namespace

void image(std::span<const std::uint8_t> bytes) {
  Input input(bytes);
  ImageInput head;
  MemoryFile file = image_file(input, head);
  std::uint64_t region_bytes = 0;
  const bool opens = succeeds([&] { region_bytes = Image::open(store_of(file)).region_bytes(); });
  succeeds([&] { verify(file); });
  bool whole = false;
  if (region_bytes <= kMostRead) whole = succeeds([&] { read_region(file); });
  expect(opens || !whole, "what does not open is not read");
  expect(file.changes == 0, "reading changes nothing");
  if (!whole) return;
  Input plan(head.plan);
  commit_twice(file, plan);
}

}  // namespace holdfast::fuzz

#ifdef HOLDFAST_FUZZ_TARGET
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::image({data, size});
  return 0;
}
#endif

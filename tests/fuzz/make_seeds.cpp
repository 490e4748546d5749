// Writes the first inputs of the fuzz targets, made of real regions: make_seeds FOLDER.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "core/directory.hpp"
#include "core/files.hpp"
#include "core/image.hpp"
#include "core/snapshot.hpp"
#include "fuzz/image_bytes.hpp"
#include "holdfast/region.hpp"

namespace holdfast::fuzz {
namespace {

using core::kPage;
using Bytes = std::vector<std::uint8_t>;

void save(const std::filesystem::path& path, const Bytes& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// The parts of a file that are not zero.
MemoryFile read_sparse(const std::string& path) {
  MemoryFile result;
  const core::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const off_t end = ::lseek(fd.get(), 0, SEEK_END);
  for (off_t at = 0; (at = ::lseek(fd.get(), at, SEEK_DATA)) >= 0 && at < end; at += kPage) {
    MemoryFile::Page page;
    core::read_exactly(fd.get(), page.bytes.data(), kPage, static_cast<std::uint64_t>(at), path);
    result.pages[static_cast<std::uint64_t>(at) / kPage] = page;
  }
  result.bytes = static_cast<std::uint64_t>(end);
  return result;
}

// Objects, in some states that regions are found in.
void images(const std::filesystem::path& folder) {
  char scratch[] = "/tmp/holdfast-seeds-XXXXXX";
  if (::mkdtemp(scratch) == nullptr) throw std::runtime_error("mkdtemp");
  const std::string path = std::string(scratch) + "/region";
  const auto keep = [&](const char* name, std::uint8_t repairs, Bytes plan) {
    const MemoryFile file = read_sparse(path);
    ImageInput head;
    head.repairs = repairs;
    head.blocks = static_cast<std::uint16_t>(file.bytes / kPage - core::kFirstBlock);
    head.plan = std::move(plan);
    save(folder / name, image_input(head, file));
  };
  {
    RegionOptions options;
    options.size = 40 * kPage;
    Region region = Region::create(path, options);
    keep("empty", 0, {0, 8, 2, 2, 16, 0, 3, 40, 0});
    auto a = region.allocate<std::uint32_t>("a", 700);
    a[0] = 1;
    auto b = region.allocate<std::uint64_t>("b", 1300);
    b[1299] = 2;
    region.commit();
    keep("two-objects", 0, {0, 1, 4, 0, 0, 0, 1, 1, 0, 2, 30, 0, 4, 16, 0});
    keep("two-objects-repaired", 31, {0, 1, 4, 0, 0, 0, 1, 1, 0, 2, 30, 0, 4, 16, 0});
    keep("disk-fails", 31, {5, 1, 4, 0, 0, 0, 1, 1, 0, 2, 30, 0, 4, 16, 0});
    keep("disk-fails-late", 31, {9, 9, 3, 8, 0, 0, 3, 1, 0, 2, 30, 0});
    region.remove("a");
    region.commit();
    region.close();
  }
  keep("closed", 31, {0, 31, 3, 2, 0, 0, 1, 0, 0, 5, 9, 0});
  std::filesystem::remove(path);
  {
    RegionOptions options;
    options.size = 600 * kPage;
    Region region = Region::create(path, options);
    region.allocate<std::uint32_t>("far", 520 * kPage / 4)[500 * kPage / 4] = 1;
    region.close();
  }
  keep("three-segments", 31, {0, 2, 4, 0, 9, 0, 8, 200, 31, 1, 0, 0, 3, 77, 1});
  std::filesystem::remove_all(scratch);
}

void arenas(const std::filesystem::path& folder) {
  // What is done, pages of the file, pieces: see fuzz_arena.cpp.
  save(folder / "adopted", {8, 0, 0});
  save(folder / "adopted-used", {8 + 64, 0, 0});
  save(folder / "adopted-used-closed", {8 + 64 + 128, 0, 0});
  save(folder / "adopted-closed", {8 + 128, 0, 0});
  save(folder / "read-only", {8 + 32, 0, 0});
  save(folder / "no-note", {0, 2, 0});
  save(folder / "another-boot", {1, 0, 0, 0, 32, 0, 1, 77});
  save(folder / "another-boot-noted", {5, 0, 0, 0, 32, 0, 1, 77, 200, 16, 0, 1, 77});
  save(folder / "another-image", {1, 0, 0, 0, 56, 0, 1, 77});
  save(folder / "another-commit", {64, 0, 0, 0, 80, 14, 1, 77});
  save(folder / "next-commit", {64, 0, 0, 0, 80, 14, 1, 77, 0, 96, 14, 3, 10, 11, 12});
  save(folder / "set-aside", {16 + 64, 0, 0, 0, 80, 14, 1, 77});
  save(folder / "closed", {1, 0, 0, 0, 72, 14, 1, 2});
  save(folder / "fresh", {1, 0, 0, 0, 72, 14, 1, 0, 0, 64, 12, 1, 9});
  save(folder / "long", {8, 0, 45});
  save(folder / "short", {8, 0, 30});
  save(folder / "torn", {8, 1, 30});
  save(folder / "object-changed", {2 + 8 + 64, 0, 0, 16, 136, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0});
  save(folder / "region-shorter", {2 + 8, 0, 0, 16, 16, 0, 3, 0, 0, 2, 16, 24, 0, 1, 0});
}

void directories(const std::filesystem::path& folder) {
  save(folder / "empty", {0, 1, 1, 0, 0, 0});
  save(folder / "objects",
       {0, 1, 2, 3, 0, 1, 0, 2, 0, 3, 1, 1, 2, 0, 9, 0, 9, 0, 1, 5, 0, 2, 1, 9});
  save(folder / "edges", {0, 5, 2, 11, 2, 63, 7, 4, 1, 7, 7, 63, 8, 5, 1, 8, 9, 0, 0, 1, 4, 0, 2});
  save(folder / "last-generation", {0, 1, 22, 0, 0, 0, 1, 5, 0});
  save(folder / "anything", {0, 17, 1, 1, 0, 4, 32, 0, 80, 0, 0, 1, 5});
}

}  // namespace
}  // namespace holdfast::fuzz

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: make_seeds FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = arguments[1];
  holdfast::fuzz::images(folder / "image");
  holdfast::fuzz::arenas(folder / "arena");
  holdfast::fuzz::directories(folder / "directory");
  return 0;
}

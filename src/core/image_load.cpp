// Reading an image's pages: in the order of the file, on several threads, straight to where they
// belong, each verified while the next ones are being read.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "core/checksum.hpp"
#include "core/image.hpp"
#include "core/parallel.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

constexpr std::uint64_t kChunkBlocks = 512;

// A few blocks with pages, from all over the file.
std::vector<std::uint64_t> sample_blocks(const BlockMap& map) {
  constexpr std::uint64_t kSamples = 9;
  const std::uint64_t blocks = map.end() - kFirstBlock;
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    std::uint64_t block = kFirstBlock + blocks * i / kSamples;
    const std::uint64_t end = kFirstBlock + blocks * (i + 1) / kSamples;
    while (block < end && !BlockMap::is_page(map.owner(block))) ++block;
    if (block < end) samples.push_back(block);
  }
  return samples;
}

}  // namespace

// The pages in the chunk that begins at `first`. Pages whose content is not what it was are
// appended to `bad`. `region` may be null.
void Image::read_chunk(std::uint64_t first, std::byte* region, const BlockReader& reader,
                       std::vector<std::uint64_t>& bad) const {
  const std::uint64_t last = std::min(first + kChunkBlocks, map_->end());
  std::vector<BlockTarget> targets;
  targets.reserve(kChunkBlocks);
  for (std::uint64_t block = first; block < last; ++block) {
    const BlockMap::Owner owner = map_->owner(block);
    if (!BlockMap::is_page(owner)) continue;
    std::byte* const to = region == nullptr ? nullptr : region + BlockMap::page_of(owner) * kPage;
    targets.push_back({block, to});
  }
  if (targets.empty()) return;
  std::optional<PageBuffer> buffer;
  if (region == nullptr) {
    buffer.emplace(targets.size());
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i].to = buffer->get() + i * kPage;
  }
  const bool whole = reader.read(targets);
  for (const BlockTarget& target : targets) {
    const std::uint64_t page = BlockMap::page_of(map_->owner(target.block));
    if (!whole || hash_(target.to) != entry(page).hash) bad.push_back(page);
  }
}

void Image::read_all(std::byte* region, const Describe& describe) const {
  const std::vector<std::uint64_t> samples = sample_blocks(*map_);
  const BlockReader reader(*store_, samples);
  const std::uint64_t chunks = (map_->end() - kFirstBlock + kChunkBlocks - 1) / kChunkBlocks;
  std::mutex mutex;
  std::vector<std::uint64_t> bad;
  parallel_for(chunks, worker_count(), [&](std::size_t chunk) {
    std::vector<std::uint64_t> bad_here;
    read_chunk(kFirstBlock + chunk * kChunkBlocks, region, reader, bad_here);
    if (bad_here.empty()) return;
    const std::lock_guard lock(mutex);
    bad.insert(bad.end(), bad_here.begin(), bad_here.end());
  });
  if (bad.empty()) return;
  const std::uint64_t first = *std::min_element(bad.begin(), bad.end());
  throw Error(Errc::damaged,
              concat("the region '", path(), "' is damaged: ", describe(first),
                     bad.size() > 1 ? concat(" and ", bad.size() - 1, " more do") : " does",
                     " not match the hash; restore it from a copy"));
}

void Image::load(std::byte* region, const Describe& describe) const { read_all(region, describe); }

void Image::load_metadata(std::byte* metadata) const {
  for (std::uint64_t page = 0; page < kMetadataPages; ++page) {
    const TableEntry stored = entry(page);
    if (stored == TableEntry{}) continue;
    alignas(8) std::byte content[kPage];
    if (!store_->read(stored.block * kPage, content, kPage) || hash_(content) != stored.hash) {
      throw Error(Errc::damaged,
                  concat("the region '", path(), "' is damaged: page ", page,
                         page == 0 ? " (the region's header)" : " (the object directory)",
                         " does not match its hash; restore it from a copy"));
    }
    std::memcpy(metadata + page * kPage, content, kPage);
  }
}

void Image::verify(const Describe& describe) const { read_all(nullptr, describe); }

}  // namespace holdfast::core

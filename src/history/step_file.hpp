// The bytes of a history in a folder. docs/format.md describes each field.
//
// Everything is little-endian and naturally aligned. A step is one file: the front (header, parts,
// a hash for each chunk of the blob), in whole pages, then the blob, filled up with zeroes to a
// whole page. No field is trusted before decode_*() has checked all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "history/folder.hpp"
#include "history/step_store.hpp"

namespace holdfast::history {

inline constexpr std::uint32_t kHistoryVersion = 1;
inline constexpr std::uint32_t kChunkBytes = 4u << 20;
inline constexpr std::size_t kHistoryNameBytes = 128;
inline constexpr std::size_t kPartNameBytes = 112;
inline constexpr std::uint32_t kMaxParts = 65536;
inline constexpr std::uint64_t kMaxStepBytes = std::uint64_t{1} << 44;
// Bound the memory that a forged header can ask for; what writers make is below them.
inline constexpr std::uint32_t kMaxChunkBytes = 64u << 20;
inline constexpr std::uint64_t kMaxFrontBytes = std::uint64_t{64} << 20;

// The file `history.holdfast`: that this folder is one, and which.
struct HistoryHeader {
  char magic[8];  // kHistoryMagic
  std::uint32_t version;
  std::uint32_t reserved0;
  core::Uuid uuid;
  std::uint64_t created_unix_ns;
  char name[kHistoryNameBytes];  // what the program calls it
  std::uint8_t padding[3920];    // zero
  std::uint64_t checksum;        // of the bytes before it
};
static_assert(sizeof(HistoryHeader) == core::kPage);
inline constexpr char kHistoryMagic[9] = "HFHISTRY";

struct StepHeader {
  char magic[8];  // kStepMagic
  std::uint32_t version;
  std::uint32_t chunk_bytes;  // a power of two, from a page to kMaxChunkBytes
  core::Uuid history;
  std::uint64_t step;
  std::uint64_t sequence;  // grows with every step that the history completes
  std::uint64_t bytes;     // of the blob
  std::uint64_t saved_at_ns;
  std::uint64_t front_bytes;  // where the blob begins
  std::uint32_t parts;
  std::uint32_t reserved0;  // zero
  std::uint64_t stamp_run;  // of several ranks; both 0: of a process alone
  std::uint64_t stamp_save;
  std::uint8_t reserved[24];  // zero
  std::uint64_t checksum;     // of the front, with this field as zero
};
static_assert(sizeof(StepHeader) == 128);
inline constexpr char kStepMagic[9] = "HFHSTEP1";

struct PartEntry {
  char name[kPartNameBytes];
  std::uint64_t offset;
  std::uint64_t bytes;
};
static_assert(sizeof(PartEntry) == 128);

// ---- Names --------------------------------------------------------------------------------------

inline constexpr char kHistoryFile[] = "history.holdfast";
inline constexpr char kLockFile[] = "history.lock";

std::string step_file_name(Step step);
// Nothing unless step_file_name() makes this name.
std::optional<Step> step_of_file_name(const std::string& name);
// Random, so that no attempt meets what an earlier one has left.
std::string temporary_name(const std::string& name);
bool is_temporary_name(const std::string& name);

// ---- Memory -------------------------------------------------------------------------------------

// Memory that direct transfers can use, zeroed. Throws no_memory.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::uint64_t bytes);  // rounded up to whole pages
  std::byte* data() const { return memory_.get(); }
  std::uint64_t size() const { return bytes_; }
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

 private:
  std::uint64_t bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
};

constexpr std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// ---- Fronts -------------------------------------------------------------------------------------

// What a file of a step says of it.
struct Front {
  StepInfo info;
  core::Uuid history{};
  std::uint64_t sequence = 0;
  std::uint32_t chunk_bytes = kChunkBytes;
  std::vector<std::uint64_t> hashes;  // of the chunks

  std::uint64_t chunks() const { return (info.bytes + chunk_bytes - 1) / chunk_bytes; }
  std::uint64_t front_bytes() const;
  std::uint64_t file_bytes() const { return front_bytes() + round_up(info.bytes); }
  // In the blob.
  std::uint64_t begin_of(std::uint64_t chunk) const { return chunk * chunk_bytes; }
  std::uint64_t bytes_of(std::uint64_t chunk) const;
  // "chunk 3 (bytes 12582912 to 16777215, part 'x')"
  std::string describe(std::uint64_t chunk) const;
};

// Throws invalid_argument, naming the part, for what a file cannot hold or a blob has not.
void check_info(const StepInfo& info);

// REQUIRES: check_info() passed, and a hash for each chunk.
AlignedBytes encode(const Front& front);

// Reads and checks the front of a step file, and that the file has the bytes that it counts. Throws
// foreign (another kind of file), newer_version, damaged, io; messages begin with `path`.
Front read_front(FolderFile& file, const std::string& path);

std::uint64_t now_ns();  // CLOCK_REALTIME

HistoryHeader make_history_header(const std::string& name);
// Throws as read_front().
HistoryHeader read_history_header(FolderFile& file, const std::string& path);

// Whether a file under a temporary name may be one of ours: it is empty, or begins with our magic,
// or with zeroes where that was not written yet. Throws io.
bool may_be_remains(FolderFile& file, const std::string& path);

// ---- Whole transfers ----------------------------------------------------------------------------

// Go on after short transfers and interruptions. Return 0 or an errno; read_all() returns ENODATA
// if the file ends before.
int write_all(FolderFile& file, std::span<const std::byte> from, std::uint64_t offset);
int read_all(FolderFile& file, std::span<std::byte> to, std::uint64_t offset);

}  // namespace holdfast::history

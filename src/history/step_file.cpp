#include "history/step_file.hpp"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "core/checksum.hpp"
#include "core/large_pages.hpp"
#include "core/uuid.hpp"

namespace holdfast::history {

using detail::concat;

// ---- Names --------------------------------------------------------------------------------------

namespace {

constexpr char kStepPrefix[] = "step-";
constexpr char kStepSuffix[] = ".holdfast";
constexpr std::size_t kStepDigits = 20;  // of the largest number of 64 bits
constexpr char kTemporarySuffix[] = ".tmp";
constexpr std::size_t kRandomDigits = 16;

std::string hexadecimal(std::uint64_t value) {
  std::string text(kRandomDigits, '0');
  for (std::size_t i = kRandomDigits; i-- > 0; value >>= 4)
    text[i] = "0123456789abcdef"[value & 15];
  return text;
}

}  // namespace

std::string step_file_name(Step step) {
  const std::string digits = std::to_string(step);
  return concat(kStepPrefix, std::string(kStepDigits - digits.size(), '0'), digits, kStepSuffix);
}

std::optional<Step> step_of_file_name(const std::string& name) {
  constexpr std::size_t kPrefix = sizeof kStepPrefix - 1;
  if (name.size() != kPrefix + kStepDigits + sizeof kStepSuffix - 1) return std::nullopt;
  const std::string digits = name.substr(kPrefix, kStepDigits);
  if (digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  const Step step = std::strtoull(digits.c_str(), nullptr, 10);
  // A number that does not fit comes back as another one.
  if (step_file_name(step) != name) return std::nullopt;
  return step;
}

std::string temporary_name(const std::string& name) {
  std::uint64_t random = 0;
  core::random_bytes(&random, sizeof random);
  return concat(".", name, ".", hexadecimal(random), kTemporarySuffix);
}

bool is_temporary_name(const std::string& name) {
  constexpr std::size_t kTail = 1 + kRandomDigits + sizeof kTemporarySuffix - 1;
  if (name.size() <= 1 + kTail || name[0] != '.') return false;
  const std::string target = name.substr(1, name.size() - 1 - kTail);
  const std::string tail = name.substr(name.size() - kTail);
  const std::string digits = tail.substr(1, kRandomDigits);
  return (target == kHistoryFile || step_of_file_name(target)) && tail[0] == '.' &&
         tail.substr(1 + kRandomDigits) == kTemporarySuffix &&
         digits.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// ---- Memory -------------------------------------------------------------------------------------

AlignedBytes::AlignedBytes(std::uint64_t bytes)
    : bytes_(round_up(bytes)), memory_(core::allocate_pages(bytes_), std::free) {
  if (!memory_ && bytes_ > 0) {
    throw Error(Errc::no_memory,
                concat("no memory for ", core::human_bytes(bytes_), " of a history's file"));
  }
  if (bytes_ > 0) std::memset(memory_.get(), 0, bytes_);
}

// ---- Whole transfers ----------------------------------------------------------------------------

int write_all(FolderFile& file, std::span<const std::byte> from, std::uint64_t offset) {
  while (!from.empty()) {
    const std::int64_t put = file.write(from.data(), from.size(), offset);
    if (put == -EINTR) continue;
    if (put < 0) return static_cast<int>(-put);
    if (put == 0) return ENOSPC;
    offset += static_cast<std::uint64_t>(put);
    from = from.subspan(static_cast<std::size_t>(put));
  }
  return 0;
}

int read_all(FolderFile& file, std::span<std::byte> to, std::uint64_t offset) {
  while (!to.empty()) {
    const std::int64_t got = file.read(to.data(), to.size(), offset);
    if (got == -EINTR) continue;
    if (got < 0) return static_cast<int>(-got);
    if (got == 0) return ENODATA;
    offset += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return 0;
}

// ---- Fronts -------------------------------------------------------------------------------------

namespace {

// Sums below must not overflow: parts and bytes are bounded before.
std::uint64_t front_bytes_of(std::uint64_t parts, std::uint64_t chunks) {
  return round_up(sizeof(StepHeader) + parts * sizeof(PartEntry) + chunks * sizeof(std::uint64_t));
}

// What is wrong with a step, in words; empty if nothing is. For what a program gives, and for what
// a file says.
std::string wrong_info(const StepInfo& info) {
  if (info.bytes > kMaxStepBytes) {
    return concat("it has ", info.bytes, " bytes, and a step can have ", kMaxStepBytes);
  }
  if (info.parts.size() > kMaxParts) {
    return concat("it has ", info.parts.size(), " parts, and a step can have ", kMaxParts);
  }
  std::set<std::string_view> names;
  std::vector<const Part*> sorted;
  for (const Part& part : info.parts) {
    if (part.name.empty() || part.name.size() >= kPartNameBytes ||
        part.name.find('\0') != std::string::npos) {
      return concat("a part's name has 1 to ", kPartNameBytes - 1,
                    " bytes, none of them zero, unlike '", part.name, "'");
    }
    if (!names.insert(part.name).second) return concat("two parts are called '", part.name, "'");
    if (part.offset > info.bytes || part.bytes > info.bytes - part.offset) {
      return concat("part '", part.name, "' reaches beyond the ", info.bytes, " bytes of the step");
    }
    if (part.bytes > 0) sorted.push_back(&part);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Part* a, const Part* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->offset + sorted[i - 1]->bytes > sorted[i]->offset) {
      return concat("parts '", sorted[i - 1]->name, "' and '", sorted[i]->name, "' overlap");
    }
  }
  return {};
}

std::uint64_t checksum_of(std::span<std::byte> front) {
  std::uint64_t kept = 0;
  std::byte* const field = front.data() + offsetof(StepHeader, checksum);
  std::memcpy(&kept, field, sizeof kept);
  std::memset(field, 0, sizeof kept);
  const std::uint64_t sum = core::hash_bytes(front.data(), front.size());
  std::memcpy(field, &kept, sizeof kept);
  return sum;
}

[[noreturn]] void throw_damaged(const std::string& path, const std::string& why) {
  throw Error(Errc::damaged, concat("'", path, "' is damaged: ", why,
                                    "; take the step from another copy, or remove it"));
}

void read_or_throw(FolderFile& file, std::span<std::byte> to, std::uint64_t offset,
                   const std::string& path) {
  const int error = read_all(file, to, offset);
  if (error == ENODATA) throw_damaged(path, "it is cut off");
  if (error != 0) throw core::system_error(error, "read", path);
}

std::uint64_t size_or_throw(FolderFile& file, const std::string& path) {
  const std::int64_t size = file.size();
  if (size < 0) throw core::system_error(static_cast<int>(-size), "look at", path);
  return static_cast<std::uint64_t>(size);
}

void check_version(std::uint32_t version, const std::string& path) {
  if (version > kHistoryVersion) {
    throw Error(Errc::newer_version,
                concat("'", path, "' has format version ", version, ", and this build knows ",
                       kHistoryVersion, "; use the build that wrote it, or a later one"));
  }
  if (version == 0) throw_damaged(path, "it has format version 0");
}

// What the sizes in a header say must fit together before anything is read by them.
void check_header(const StepHeader& header, std::uint64_t file_bytes, const std::string& path) {
  if (std::memcmp(header.magic, kStepMagic, 8) != 0) {
    throw Error(Errc::foreign,
                concat("'", path, "' is no step of a history: it does not begin with ", kStepMagic,
                       "; move it elsewhere"));
  }
  check_version(header.version, path);
  if (!std::has_single_bit(header.chunk_bytes) || header.chunk_bytes < kAlignment ||
      header.chunk_bytes > kMaxChunkBytes || header.bytes > kMaxStepBytes ||
      header.parts > kMaxParts) {
    throw_damaged(path, "its header has impossible sizes");
  }
  const std::uint64_t chunks = (header.bytes + header.chunk_bytes - 1) / header.chunk_bytes;
  if (header.front_bytes != front_bytes_of(header.parts, chunks) ||
      header.front_bytes > kMaxFrontBytes) {
    throw_damaged(path, "its header has impossible sizes");
  }
  const std::uint64_t wanted = header.front_bytes + round_up(header.bytes);
  if (file_bytes != wanted) {
    throw_damaged(path, concat("it has ", file_bytes, " bytes, and its header counts ", wanted));
  }
}

// The whole front. REQUIRES: check_header() passed; `page` is the first.
AlignedBytes read_tables(FolderFile& file, const StepHeader& header, AlignedBytes page,
                         const std::string& path) {
  if (header.front_bytes <= kAlignment) return page;
  AlignedBytes all(header.front_bytes);
  std::memcpy(all.data(), page.data(), kAlignment);
  read_or_throw(file, all.span().subspan(kAlignment), kAlignment, path);
  return all;
}

// The first bytes say what a file is, so damage there would make it another's, or a newer build's,
// which nobody removes. If all else is as we have written it the checksum knows.
void refuse_damaged_beginning(FolderFile& file, StepHeader header, std::uint64_t file_bytes,
                              const std::string& path) {
  if (std::memcmp(header.magic, kStepMagic, 8) == 0 && header.version == kHistoryVersion) return;
  std::memcpy(header.magic, kStepMagic, 8);
  header.version = kHistoryVersion;
  bool holds = false;
  try {
    check_header(header, file_bytes, path);
    AlignedBytes page(kAlignment);
    read_or_throw(file, page.span(), 0, path);
    std::memcpy(page.data(), &header, sizeof header);
    const AlignedBytes front = read_tables(file, header, std::move(page), path);
    holds = checksum_of(front.span()) == header.checksum;
  } catch (const Error& error) {
    if (error.code() != Errc::damaged) throw;
  }
  if (holds) throw_damaged(path, "its first bytes are not as they were written");
}

// REQUIRES: check_header() passed, and the checksum holds.
Front decode(std::span<const std::byte> bytes, const StepHeader& header, const std::string& path) {
  Front front;
  front.info = {
      header.step, header.bytes, {}, header.saved_at_ns, {header.stamp_run, header.stamp_save}};
  front.history = header.history;
  front.sequence = header.sequence;
  front.chunk_bytes = header.chunk_bytes;
  const std::byte* at = bytes.data() + sizeof header;
  front.info.parts.reserve(header.parts);
  for (std::uint32_t i = 0; i < header.parts; ++i, at += sizeof(PartEntry)) {
    PartEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    const std::size_t length = ::strnlen(entry.name, kPartNameBytes);
    front.info.parts.push_back({std::string(entry.name, length), entry.offset, entry.bytes});
  }
  front.hashes.resize(front.chunks());
  if (!front.hashes.empty()) std::memcpy(front.hashes.data(), at, 8 * front.hashes.size());
  if (const std::string wrong = wrong_info(front.info); !wrong.empty()) throw_damaged(path, wrong);
  if (front.sequence == 0 || front.sequence > core::kMaxGeneration) {
    throw_damaged(path, concat("its sequence number is ", front.sequence));
  }
  return front;
}

}  // namespace

void check_info(const StepInfo& info) {
  const std::string wrong = wrong_info(info);
  if (wrong.empty()) return;
  throw Error(Errc::invalid_argument, concat("step ", info.step, " cannot be saved: ", wrong));
}

std::uint64_t Front::front_bytes() const { return front_bytes_of(info.parts.size(), chunks()); }

std::uint64_t Front::bytes_of(std::uint64_t chunk) const {
  return std::min<std::uint64_t>(chunk_bytes, info.bytes - begin_of(chunk));
}

std::string Front::describe(std::uint64_t chunk) const {
  const std::uint64_t begin = begin_of(chunk), end = begin + bytes_of(chunk);
  std::string names;
  int more = 0;
  for (const Part& part : info.parts) {
    if (part.bytes == 0 || part.offset >= end || part.offset + part.bytes <= begin) continue;
    if (names.empty()) {
      names = concat(", part '", part.name, "'");
    } else {
      ++more;
    }
  }
  if (more > 0) names += concat(" and ", more, " more");
  return concat("chunk ", chunk, " (bytes ", begin, " to ", end - 1, names, ")");
}

AlignedBytes encode(const Front& front) {
  AlignedBytes bytes(front.front_bytes());
  StepHeader header{};
  std::memcpy(header.magic, kStepMagic, 8);
  header.version = kHistoryVersion;
  header.chunk_bytes = front.chunk_bytes;
  header.history = front.history;
  header.step = front.info.step;
  header.sequence = front.sequence;
  header.bytes = front.info.bytes;
  header.saved_at_ns = front.info.saved_at_ns;
  header.stamp_run = front.info.stamp.run;
  header.stamp_save = front.info.stamp.save;
  header.front_bytes = front.front_bytes();
  header.parts = static_cast<std::uint32_t>(front.info.parts.size());
  std::byte* at = bytes.data() + sizeof header;
  for (const Part& part : front.info.parts) {
    PartEntry entry{};
    part.name.copy(entry.name, kPartNameBytes - 1);
    entry.offset = part.offset;
    entry.bytes = part.bytes;
    std::memcpy(at, &entry, sizeof entry);
    at += sizeof entry;
  }
  if (!front.hashes.empty()) std::memcpy(at, front.hashes.data(), 8 * front.hashes.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  header.checksum = checksum_of(bytes.span());
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Front read_front(FolderFile& file, const std::string& path) {
  const std::uint64_t size = size_or_throw(file, path);
  if (size < kAlignment) throw_damaged(path, concat("it has ", size, " bytes, less than a header"));
  AlignedBytes bytes(kAlignment);
  read_or_throw(file, bytes.span(), 0, path);
  StepHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  refuse_damaged_beginning(file, header, size, path);
  check_header(header, size, path);
  bytes = read_tables(file, header, std::move(bytes), path);
  if (checksum_of(bytes.span()) != header.checksum) {
    throw_damaged(path, "the checksum of its header and tables does not hold");
  }
  return decode(bytes.span(), header, path);
}

// ---- The history's own file ---------------------------------------------------------------------

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

HistoryHeader make_history_header(const std::string& name) {
  HistoryHeader header{};
  std::memcpy(header.magic, kHistoryMagic, 8);
  header.version = kHistoryVersion;
  header.uuid = core::new_uuid();
  header.created_unix_ns = now_ns();
  name.copy(header.name, kHistoryNameBytes - 1);
  header.checksum = core::hash_bytes(&header, offsetof(HistoryHeader, checksum));
  return header;
}

HistoryHeader read_history_header(FolderFile& file, const std::string& path) {
  const std::uint64_t size = size_or_throw(file, path);
  AlignedBytes bytes(sizeof(HistoryHeader));
  HistoryHeader header;
  if (size >= sizeof header) {
    read_or_throw(file, bytes.span(), 0, path);
    std::memcpy(&header, bytes.data(), sizeof header);
  }
  if (size < sizeof header || std::memcmp(header.magic, kHistoryMagic, 8) != 0) {
    throw Error(Errc::foreign, concat("'", path, "' is not of a history: it does not begin with ",
                                      kHistoryMagic, "; give another folder"));
  }
  check_version(header.version, path);
  if (size != sizeof header ||
      header.checksum != core::hash_bytes(&header, offsetof(HistoryHeader, checksum)) ||
      header.name[kHistoryNameBytes - 1] != '\0') {
    throw Error(Errc::damaged, concat("'", path,
                                      "' is damaged: its checksum or its size is wrong; "
                                      "restore this file from a copy of the folder"));
  }
  return header;
}

bool may_be_remains(FolderFile& file, const std::string& path) {
  if (size_or_throw(file, path) == 0) return true;
  AlignedBytes bytes(kAlignment);
  const int error = read_all(file, bytes.span(), 0);
  if (error != 0 && error != ENODATA) throw core::system_error(error, "read", path);
  // A crash may leave any bytes of the magic, and zeroes for the others.
  const auto is_of = [&](const char* magic) {
    for (std::size_t i = 0; i < 8; ++i) {
      const char byte = static_cast<char>(bytes.data()[i]);
      if (byte != 0 && byte != magic[i]) return false;
    }
    return true;
  };
  return is_of(kStepMagic) || is_of(kHistoryMagic);
}

}  // namespace holdfast::history

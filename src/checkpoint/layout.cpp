#define XXH_INLINE_ALL
#include "checkpoint/layout.hpp"

#include <xxhash.h>

#include <cstring>

namespace holdfast::checkpoint {
namespace {

using detail::concat;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint64_t checksum_of(const GroupHeader& header, const unsigned char* entries) {
  const std::uint64_t seed = XXH3_64bits(&header, offsetof(GroupHeader, checksum));
  return XXH3_64bits_withSeed(entries, header.buffers * sizeof(BufferEntry), seed);
}

template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return std::string(field, ::strnlen(field, N));
}

constexpr const char* kHowToRestore =
    " (struct was every struct's name before each had its own: add_raw() with that type restores "
    "it, and a group of another name can hold it under its own)";

std::string describe(const CheckpointBuffer& buffer) {
  return concat(buffer.count, " x ", buffer.type, " (", buffer.bytes(), " bytes)");
}

}  // namespace

Layout layout_of(std::uint64_t copy_bytes, std::uint64_t buffers) {
  Layout layout;
  layout.slots = round_up(sizeof(GroupHeader) + buffers * sizeof(BufferEntry), kPageBytes);
  layout.copies = layout.slots + kPageBytes;
  layout.copy_bytes = round_up(copy_bytes, kPageBytes);
  layout.object_bytes = layout.copies + 2 * layout.copy_bytes;
  return layout;
}

std::uint64_t copy_bytes_of(const std::vector<CheckpointBuffer>& buffers) {
  std::uint64_t bytes = 0;
  for (const CheckpointBuffer& buffer : buffers) bytes += aligned(buffer.bytes());
  return bytes;
}

std::vector<unsigned char> encode_header(const std::vector<CheckpointBuffer>& buffers) {
  std::vector<unsigned char> bytes(sizeof(GroupHeader) + buffers.size() * sizeof(BufferEntry));
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    BufferEntry entry{};
    std::memcpy(entry.name, buffers[i].name.data(), buffers[i].name.size());
    std::memcpy(entry.type, buffers[i].type.data(), buffers[i].type.size());
    entry.count = buffers[i].count;
    entry.offset = offset;
    entry.element_bytes = buffers[i].element_bytes;
    offset += aligned(buffers[i].bytes());
    std::memcpy(&bytes[sizeof(GroupHeader) + i * sizeof(entry)], &entry, sizeof(entry));
  }
  GroupHeader header{GroupHeader::kMagic, offset, static_cast<std::uint32_t>(buffers.size()), 0, 0};
  header.checksum = checksum_of(header, &bytes[sizeof(GroupHeader)]);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

std::vector<CheckpointBuffer> decode_header(const std::vector<unsigned char>& bytes,
                                            std::uint64_t object_bytes, const std::string& what) {
  const auto damaged = [&](const char* why) {
    throw Error(Errc::damaged, concat(what, " is damaged: ", why,
                                      "; reopen the region from its last commit, or remove the "
                                      "object"));
  };
  GroupHeader header;
  if (bytes.size() < sizeof(header)) damaged("its object is too small for a header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic == 0) return {};
  if (header.magic != GroupHeader::kMagic) damaged("the magic number does not match");
  if (header.buffers == 0 || header.buffers > kMostBuffers ||
      sizeof(header) + header.buffers * sizeof(BufferEntry) > bytes.size()) {
    damaged("it claims more buffers than it has room for");
  }
  if (header.checksum != checksum_of(header, &bytes[sizeof(header)])) {
    damaged("the header's checksum does not match");
  }
  std::vector<CheckpointBuffer> buffers;
  std::uint64_t offset = 0;
  for (std::uint32_t i = 0; i < header.buffers; ++i) {
    BufferEntry entry;
    std::memcpy(&entry, &bytes[sizeof(header) + i * sizeof(entry)], sizeof(entry));
    if (entry.element_bytes == 0 || entry.count > object_bytes / entry.element_bytes ||
        entry.offset != offset) {
      damaged("a buffer's bounds do not fit");
    }
    buffers.push_back({text_of(entry.name), text_of(entry.type), entry.count, entry.element_bytes});
    offset += aligned(buffers.back().bytes());
  }
  if (offset != header.copy_bytes ||
      layout_of(offset, header.buffers).object_bytes != object_bytes) {
    damaged("its size does not fit its buffers");
  }
  return buffers;
}

std::string difference(const std::vector<CheckpointBuffer>& stored,
                       const std::vector<CheckpointBuffer>& given) {
  for (std::size_t i = 0; i < stored.size() || i < given.size(); ++i) {
    if (i >= given.size())
      return concat("it holds buffer '", stored[i].name, "', which was not added");
    if (i >= stored.size()) return concat("it holds no buffer '", given[i].name, "'");
    const CheckpointBuffer& a = stored[i];
    const CheckpointBuffer& b = given[i];
    if (a.name != b.name) {
      const bool known = [&] {
        for (const CheckpointBuffer& other : stored) {
          if (other.name == b.name) return true;
        }
        return false;
      }();
      if (!known) return concat("it holds no buffer '", b.name, "'");
      return concat("it holds buffer '", a.name, "', which was not added");
    }
    if (a.type != b.type || a.count != b.count || a.element_bytes != b.element_bytes) {
      return concat("it holds buffer '", a.name, "' as ", describe(a), ", not as ", describe(b),
                    a.type == detail::kUnnamedType ? kHowToRestore : "");
    }
  }
  return {};
}

}  // namespace holdfast::checkpoint

// The header of a durable object on the medium. docs/format.md describes every byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/durable.hpp"

namespace holdfast::durable {

struct PartEntry {
  char name[Part::kNameBytes];
  char type[24];
  std::uint32_t kind;
  std::uint32_t element_bytes;
  std::uint64_t count;
  std::uint32_t tracking;
  std::uint32_t layout;  // of a log, as the two below it
  std::uint32_t slots;
  std::uint32_t bytes_per_slot;
  std::uint8_t reserved[16];
};
static_assert(sizeof(PartEntry) == 96);

// A page of its own, and all of it is checked. Magic, checksum and format stay where they are in
// every format, so that a later one is known as such.
struct Header {
  static constexpr const char* kTypeName = "durable";
  // More than a byte apart: no single one that is damaged makes one of the other.
  static constexpr std::uint64_t kMaking = 0x31454b414d444c48ull;  // "HLDMAKE1": or being removed
  static constexpr std::uint64_t kWhole = 0x31304a424f444c48ull;   // "HLDOBJ01"
  static constexpr std::uint32_t kFormat = 1;
  std::uint64_t magic;     // 0: no part is there yet
  std::uint64_t checksum;  // of all behind it
  std::uint32_t format;
  std::uint32_t version;  // of the structure
  char type[24];          // of the structure
  std::uint32_t parts;
  std::uint32_t parameter_bytes;
  std::uint64_t reserved;
  std::uint8_t parameters[512];
  PartEntry table[Part::kMost];
  std::uint8_t padding[1984];
};
static_assert(sizeof(Header) == kPageBytes);

// The object of a part.
std::string object_name(std::string_view object, std::string_view part);

// What is wrong with the size of a part that no region can hold, in words; empty if nothing is.
std::string wrong_size(const Part& part);

// Throws invalid_argument for what the header or the region cannot hold.
void check(std::string_view name, const detail::DurableObject::Identity& identity,
           const std::vector<Part>& parts);

// A header that is being made. REQUIRES: check() passed.
Header encode(const detail::DurableObject::Identity& identity, const void* parameters,
              const std::vector<Part>& parts);
std::uint64_t checksum_of(const Header& header);

// Whether the region has room for the parts once the objects in `gone` are removed. Throws no_space
// if not.
void check_room(const Region& region, const std::string& where, const std::vector<Part>& parts,
                const std::vector<std::string>& gone);

}  // namespace holdfast::durable

template <>
inline constexpr bool holdfast::detail::kIsOfLibrary<holdfast::durable::Header> = true;

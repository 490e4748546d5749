// An image as a fuzzer's input. An image is sparse and its blocks begin at 32 MiB, so the input
// says which bytes stand where; all others are zero.
#pragma once

#include <cstdint>
#include <vector>

#include "fuzz/fuzz.hpp"

namespace holdfast::fuzz {

// What is made right before the image is opened, so that what lies behind checksums is reached.
enum Repair : std::uint8_t {
  kRepairChecksums = 1,  // of the header, the records and the notes
  kRepairTables = 2,     // the hashes of pages, tables and root
  kRepairDirectory = 4,  // the checksums within the region's bytes
  kRepairIds = 8,        // one uuid everywhere
  kRepairCounts = 16,    // the records' number of pages
};

// An input:  repairs (1 byte), blocks of the file (2), bytes less than that (1), length of the plan
// (1), the plan, pieces until the end. A piece: place (1), offset there (2), length (2), bytes.
struct ImageInput {
  std::uint8_t repairs = 0;
  std::uint16_t blocks = 0;
  std::uint8_t cut = 0;
  std::vector<std::uint8_t> plan;  // what is done with an image that opens
};

// Decodes an input and repairs what it says.
MemoryFile image_file(Input& input, ImageInput& head);

// The input that stands for a file. REQUIRES: fewer than 240 blocks.
std::vector<std::uint8_t> image_input(const ImageInput& head, const MemoryFile& file);

void repair_image(MemoryFile& file, std::uint8_t repairs);

}  // namespace holdfast::fuzz

// What a commit is about to do to an image: shared by image_write.cpp and image_clean.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "core/image.hpp"

namespace holdfast::core {

// A page that moves to another block with its content as it is.
struct Image::Move {
  std::uint64_t from = 0;
  std::uint64_t page = 0;
  TableEntry* entry = nullptr;  // in the new table
};

// What a commit changes, counted before anything is moved.
struct Image::Tally {
  std::vector<std::uint8_t> dying;  // by extent: blocks in force that it replaces
  std::uint64_t staged = 0;         // pages that are still to be placed
  std::uint64_t ahead = 0;          // pages that are written already
  std::uint64_t tables = 0;         // table pages to be written
  std::uint64_t pages_stored = 0;   // by the region, after it
  std::uint64_t in_force = 0;       // blocks, after it
};

// A commit of which all but the record is durable.
struct Image::Prepared {
  InForce next;
  std::vector<Move> moves;
  std::vector<TableEntry> root;
  WriteResult result;
};

}  // namespace holdfast::core

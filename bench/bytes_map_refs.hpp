// A map of byte strings by its refs: a kernel makes a batch of operations, a group of threads for
// each.
#pragma once

#include <cstdint>

#include "holdfast/bytes_map.hpp"

namespace bench {

enum class RefCall { insert, insert_or_assign, erase, find };

// Byte strings in device memory, as holdfast::ByteStrings has them.
struct RefStrings {
  std::byte* bytes;
  const std::uint64_t* offsets;
};

// In device memory. find() writes what it has read where `values` has room for it: as many bytes
// as were found there, or nothing.
struct RefBatch {
  RefCall call;
  std::uint32_t count;
  RefStrings keys, values;
  holdfast::MapStatus* status;
  holdfast::BytesFound* found;  // of find(): of a value of another length `damaged`
};
void apply(holdfast::Stream& stream, const holdfast::BytesMapRef& ref, const RefBatch& batch);

}  // namespace bench

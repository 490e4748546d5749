// Kernels of region_kernel_test, as host functions that queue them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/page_marks.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {

// words[i] = value + i for all i < count, marked, persisted.
void store_words(Stream& stream, std::uint32_t* words, std::size_t count, std::uint32_t value,
                 PageMarks marks);

// Stores where nothing is.
void fault(Stream& stream);

}  // namespace holdfast::test

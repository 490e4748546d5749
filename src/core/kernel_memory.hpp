// What the host and kernels pass each other without a copy in between.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast {
class Stream;
}

namespace holdfast::core {

// Whether kernels can read these bytes where they are: of this device's memory, or pinned. False
// for memory of a kind that it does not know.
bool readable_by_kernels(const void* address, std::size_t bytes) noexcept;

// Whether they are of this device's memory.
bool in_device_memory(const void* address, std::size_t bytes) noexcept;

// Waits until a kernel of the stream has stored `value` to `word`, which is pinned: the last that
// it does, behind a system fence. That is some microseconds sooner than the stream is through.
// Throws what the stream's work met, as synchronize() does, and device if it ended without that.
void await_word(Stream& stream, const std::uint64_t* word, std::uint64_t value);

}  // namespace holdfast::core

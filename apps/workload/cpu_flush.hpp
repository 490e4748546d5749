// Flushing the processor's caches, for the modes in which the CPU persists.
#pragma once

#include <cstdint>
#include <functional>

namespace workload {

// Writes back every line of [address, address + bytes) with the best instruction that the
// processor has (clwb, clflushopt, clflush), and waits for them. Any thread.
void flush_lines(const void* address, std::uint64_t bytes) noexcept;

// "clwb", "clflushopt" or "clflush".
const char* flush_instruction() noexcept;

// Calls body(first, count) for parts of [0, size) of at most `chunk`, in `threads` threads, the
// calling one among them; one part: no thread is started. The first exception is thrown again once
// all have ended.
void for_chunks(
    std::uint64_t size, std::uint64_t chunk, unsigned threads,
    const std::function<void(unsigned thread, std::uint64_t first, std::uint64_t count)>& body);

}  // namespace workload

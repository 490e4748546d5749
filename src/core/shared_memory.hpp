// Memory for arenas, and how much of it there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace holdfast::core {

// Bytes that a file in `folder` can still take: the file system's free space and, if it lives in
// memory, what memory and the control group leave.
std::uint64_t shared_bytes_free(const std::string& folder);

// Bytes of memory that this process can still take, its control group's limit included.
std::uint64_t memory_free();

// Allocates, clears and maps the pages of a mapping, by several threads, before their first touch.
// Returns 0, or an errno: EINVAL before Linux 5.14.
int populate(std::byte* address, std::uint64_t bytes);

// Enlarges the file by `bytes` at its end. Throws no_shared_memory, saying what is needed, what is
// there, and the way out.
void enlarge_shared(int fd, const std::string& folder, std::uint64_t end, std::uint64_t bytes);

// Allocates the pages of the file's part [offset, offset + bytes), which is mapped at `address`,
// for good, so that no later store to it can fail. Throws as enlarge_shared().
void allocate_shared(int fd, const std::string& folder, std::uint64_t offset, std::uint64_t bytes,
                     std::byte* address);

}  // namespace holdfast::core

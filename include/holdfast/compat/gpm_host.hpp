// The host's part of compat/libgpm.cuh, in the library. Each function says on stderr why it fails,
// and then returns null, false or -1. Thread safety: as libgpm.h.
#pragma once

#include <cstddef>

struct gpmlog;
struct gpmcp;

namespace holdfast::gpm {

void* map_file(const char* path, std::size_t* bytes, bool create) noexcept;
bool unmap(const char* path, void* address) noexcept;
bool is_mapped(const void* address, std::size_t bytes) noexcept;
// Durable on the rung of the region's guarantee.
bool copy(void* to, const void* from, std::size_t bytes) noexcept;
bool set_bytes(void* to, unsigned char value, std::size_t bytes) noexcept;
void persist_by_host(void* address, std::size_t bytes) noexcept;
gpmlog* create_log(const char* path, std::size_t* bytes, int blocks, int threads,
                   bool managed) noexcept;
gpmlog* open_log(const char* path) noexcept;
bool close_log(gpmlog* log) noexcept;
int partitions(const gpmlog* log) noexcept;
gpmcp* create_checkpoint(const char* path, std::size_t bytes, long long elements,
                         long long groups) noexcept;
gpmcp* open_checkpoint(const char* path) noexcept;
bool close_checkpoint(gpmcp* checkpoint) noexcept;
bool register_element(gpmcp* checkpoint, void* address, std::size_t bytes,
                      long long group) noexcept;
bool save(gpmcp* checkpoint, long long group) noexcept;
bool restore(gpmcp* checkpoint, long long group) noexcept;

}  // namespace holdfast::gpm

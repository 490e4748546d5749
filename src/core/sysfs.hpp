// Reading the system's description of itself. All of it is untrusted text: what does not parse is
// as good as absent, and nothing here blocks or throws for strange content.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::sysfs {

// The file's first 64 KiB at most. Nothing if it is not a regular file or cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& path);

// read_text() without white space at both ends.
std::optional<std::string> read_line(const std::filesystem::path& path);

// A whole decimal number and nothing else.
std::optional<std::uint64_t> parse_u64(std::string_view text);
std::optional<std::uint64_t> read_u64(const std::filesystem::path& path);

// The path with symbolic links resolved. Nothing if it does not exist, its links form a loop, or
// they lead out of `root`.
std::optional<std::filesystem::path> resolve(const std::string& root, const std::string& path);

// The persistence domain of the memory behind a resolved device folder: that of the nearest folder
// above it that states one. "cpu_cache", "memory_controller", or "unknown".
std::string persistence_domain(const std::string& root, const std::filesystem::path& device);

}  // namespace holdfast::sysfs

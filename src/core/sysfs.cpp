#include "core/sysfs.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace holdfast::sysfs {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kTextLimit = 64 << 10;

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string read_up_to(int fd, std::size_t limit) {
  std::string text(limit, '\0');
  std::size_t got = 0;
  while (got < limit) {
    const ssize_t n = ::read(fd, text.data() + got, limit - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  text.resize(got);
  return text;
}

}  // namespace

std::optional<std::string> read_text(const fs::path& path) {
  // Without O_NONBLOCK, a fifo in a made tree would block for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat status {};
  std::optional<std::string> text;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) text = read_up_to(fd, kTextLimit);
  ::close(fd);
  return text;
}

std::optional<std::string> read_line(const fs::path& path) {
  const auto text = read_text(path);
  if (!text) return std::nullopt;
  return std::string(trim(*text));
}

std::optional<std::uint64_t> parse_u64(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_u64(const fs::path& path) {
  const auto line = read_line(path);
  return line ? parse_u64(*line) : std::nullopt;
}

std::optional<fs::path> resolve(const std::string& root, const std::string& path) {
  std::error_code error;
  const fs::path base = fs::canonical(root.empty() ? "/" : root, error);
  if (error) return std::nullopt;
  const fs::path found = fs::canonical(root + path, error);
  if (error) return std::nullopt;
  const auto end = std::mismatch(base.begin(), base.end(), found.begin(), found.end()).first;
  if (end != base.end()) return std::nullopt;
  return found;
}

std::string persistence_domain(const std::string& root, const fs::path& device) {
  const auto top = resolve(root, "/sys");
  if (!top) return "unknown";
  // A resolved path has no links, so the walk ends at the latest at "/".
  for (fs::path at = device; at != *top && at != at.parent_path(); at = at.parent_path()) {
    const auto domain = read_line(at / "persistence_domain");
    if (!domain) continue;
    if (*domain == "cpu_cache" || *domain == "memory_controller") return *domain;
    return "unknown";
  }
  return "unknown";
}

}  // namespace holdfast::sysfs

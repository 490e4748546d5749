#include "core/uuid.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "core/checksum.hpp"
#include "core/files.hpp"
#include "holdfast/error.hpp"

namespace holdfast::core {

Uuid new_uuid() {
  Uuid uuid{};
  random_bytes(uuid.data(), uuid.size());
  uuid[6] = (uuid[6] & 0x0f) | 0x40;  // version 4, variant 1: a random UUID
  uuid[8] = (uuid[8] & 0x3f) | 0x80;
  return uuid;
}

std::string to_text(const Uuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += "0123456789abcdef"[uuid[i] >> 4];
    text += "0123456789abcdef"[uuid[i] & 15];
  }
  return text;
}

Uuid this_boot() {
  const std::string path = "/proc/sys/kernel/random/boot_id";
  errno = 0;
  std::ifstream file(path);
  if (!file.is_open() && is_shortage(errno)) throw system_error(errno, "open", path);
  file.exceptions(std::ios::badbit);  // half an id would be that of another boot
  std::string text;
  Uuid result{};
  std::getline(file, text);
  std::erase(text, '-');
  for (std::size_t i = 0; i < result.size() && 2 * i + 1 < text.size(); ++i) {
    result[i] = static_cast<std::uint8_t>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  if (result == Uuid{} || text.size() != 2 * result.size()) {
    throw Error(Errc::unsupported,
                "cannot read /proc/sys/kernel/random/boot_id, which tells a crash from a reboot; "
                "mount /proc");
  }
  return result;
}

}  // namespace holdfast::core

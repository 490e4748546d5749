#include "workload/inputs.hpp"

#include <lzma.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "holdfast/error.hpp"
#include "workload/workload.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace workload {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;

constexpr std::size_t kStep = 1 << 20;

[[noreturn]] void too_large(const std::string& path, std::size_t most) {
  throw Error(Errc::invalid_argument, concat("input '", path, "' holds more than ", most >> 20,
                                             " MiB: take a smaller one"));
}

std::string unpack_xz(const std::string& packed, const std::string& path, std::size_t most) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, std::uint64_t{256} << 20, 0) != LZMA_OK) {
    throw Error(Errc::no_memory, "liblzma could not start");
  }
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> guard(&stream, lzma_end);
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  std::string text;
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK) {
    const std::size_t before = text.size();
    if (before > most) too_large(path, most);
    text.resize(before + kStep);
    stream.next_out = reinterpret_cast<std::uint8_t*>(text.data() + before);
    stream.avail_out = kStep;
    status = lzma_code(&stream, LZMA_FINISH);
    text.resize(before + kStep - stream.avail_out);
  }
  if (status != LZMA_STREAM_END) damaged_input(path, "is not whole xz data");
  return text;
}

std::string unpack_gz(const std::string& packed, const std::string& path, std::size_t most) {
  z_stream stream{};
  constexpr int kGzipOnly = 15 + 16;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) {
    throw Error(Errc::no_memory, "zlib could not start");
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  int status = Z_OK;
  while (status == Z_OK) {
    const std::size_t before = text.size();
    if (before > most) too_large(path, most);
    text.resize(before + kStep);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + before);
    stream.avail_out = kStep;
    status = inflate(&stream, Z_NO_FLUSH);
    text.resize(before + kStep - stream.avail_out);
  }
  if (status != Z_STREAM_END) damaged_input(path, "is not whole gzip data");
  return text;
}

// Empty where the file is not there.
std::optional<std::string> read(const std::string& path, std::size_t most) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::not_found) return std::nullopt;
  if (!error && type != std::filesystem::file_type::regular) {
    throw Error(Errc::invalid_argument,
                concat("input '", path, "' is a folder or a device: name a file"));
  }
  const auto refuse = [&](int number) {
    throw Error(number == EACCES ? Errc::permission : Errc::io,
                concat("input '", path, "' cannot be read: ",
                       number != 0 ? std::strerror(number) : "it ends too soon"));
  };
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? std::streamoff{file.tellg()} : -1;
  if (size < 0) refuse(errno);
  if (static_cast<std::size_t>(size) > most) too_large(path, most);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), size)) refuse(errno);
  if (path.ends_with(".xz")) return unpack_xz(bytes, path, most);
  if (path.ends_with(".gz")) return unpack_gz(bytes, path, most);
  return bytes;
}

}  // namespace

std::optional<std::string> read_input(const std::string& folder, const std::string& name) {
  if (folder.empty()) return std::nullopt;
  return read(folder + "/" + name, kMostInputBytes);
}

std::optional<NamedInput> read_named_input(const Settings& settings, const std::string& option,
                                           const std::string& takes, std::size_t most_bytes) {
  const auto given = settings.options.find(option);
  if (given == settings.options.end()) return std::nullopt;
  const std::string& path = given->second;
  auto text = read(path, most_bytes);
  if (!text) {
    throw Error(Errc::not_found,
                concat("option ", option, ": there is no file '", path, "'. It takes ", takes,
                       ". Name a file that is there, or leave the option out"));
  }
  return NamedInput{path, *std::move(text)};
}

void damaged_input(const std::string& name, const std::string& what) {
  throw Error(Errc::damaged,
              concat("input '", name, "': ", what, "; get the file again, or name another"));
}

std::uint64_t checksum(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace workload

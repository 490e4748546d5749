#include "workload/inputs.hpp"

#include <lzma.h>
#include <zlib.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "holdfast/error.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace workload {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;

constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kStep = 1 << 20;

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw Error(Errc::damaged, concat("input '", path, "': ", what, "; get the file again"));
}

[[noreturn]] void too_large(const std::string& path) {
  throw Error(Errc::invalid_argument, concat("input '", path, "' holds more than 1 GiB"));
}

std::string unpack_xz(const std::string& packed, const std::string& path) {
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
    if (before > kMostBytes) too_large(path);
    text.resize(before + kStep);
    stream.next_out = reinterpret_cast<std::uint8_t*>(text.data() + before);
    stream.avail_out = kStep;
    status = lzma_code(&stream, LZMA_FINISH);
    text.resize(before + kStep - stream.avail_out);
  }
  if (status != LZMA_STREAM_END) damaged(path, "is not whole xz data");
  return text;
}

std::string unpack_gz(const std::string& packed, const std::string& path) {
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
    if (before > kMostBytes) too_large(path);
    text.resize(before + kStep);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + before);
    stream.avail_out = kStep;
    status = inflate(&stream, Z_NO_FLUSH);
    text.resize(before + kStep - stream.avail_out);
  }
  if (status != Z_STREAM_END) damaged(path, "is not whole gzip data");
  return text;
}

}  // namespace

std::optional<std::string> read_input(const std::string& folder, const std::string& name) {
  if (folder.empty()) return std::nullopt;
  return read_input_file(folder + "/" + name);
}

std::optional<std::string> read_input_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const std::streamoff size = file.tellg();
  if (size < 0) throw Error(Errc::io, concat("input '", path, "' cannot be read"));
  if (static_cast<std::size_t>(size) > kMostBytes) too_large(path);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), size)) {
    throw Error(Errc::io, concat("input '", path, "' cannot be read"));
  }
  if (path.ends_with(".xz")) return unpack_xz(bytes, path);
  if (path.ends_with(".gz")) return unpack_gz(bytes, path);
  return bytes;
}

std::uint64_t checksum(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace workload

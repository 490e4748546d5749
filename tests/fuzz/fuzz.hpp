// What the fuzz targets share: the input read piece by piece, and an image's file in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>

#include "core/block_store.hpp"
#include "core/format.hpp"

namespace holdfast::fuzz {

// The targets. Each takes any bytes, and throws Broken (or crashes) if a promise is not kept.
void image(std::span<const std::uint8_t> input);
void arena(std::span<const std::uint8_t> input);
void directory(std::span<const std::uint8_t> input);

class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void expect(bool holds, const std::string& promise) {
  if (!holds) throw Broken(promise);
}

// Runs `body`; what it throws has to be an Error. True if it threw none.
template <class Body>
bool succeeds(Body&& body, std::string* message = nullptr) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    expect(error.what()[0] != 0, "an error says what is wrong");
    if (message != nullptr) *message = error.what();
    return false;
  }
}

// An input, from its start to its end; behind it all is zero.
class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }
  std::span<const std::uint8_t> bytes(std::size_t count) {
    const auto taken = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  template <class Number = std::uint8_t>
  Number take() {
    Number value = 0;
    const auto taken = bytes(sizeof value);
    std::memcpy(&value, taken.data(), taken.size());
    return value;
  }

 private:
  std::span<const std::uint8_t> left_;
};

// A sparse file in memory.
struct MemoryFile {
  struct alignas(64) Page {
    std::array<std::byte, core::kPage> bytes{};
  };
  std::map<std::uint64_t, Page> pages;
  std::uint64_t bytes = 0;
  std::uint64_t changes = 0;                  // that were tried so far
  std::uint64_t failing = ~std::uint64_t{0};  // this change fails

  void read(std::uint64_t offset, void* data, std::size_t count) const {
    auto* to = static_cast<std::byte*>(data);
    while (count > 0) {
      const std::size_t part = std::min<std::size_t>(count, core::kPage - offset % core::kPage);
      const auto found = pages.find(offset / core::kPage);
      if (found == pages.end()) {
        std::memset(to, 0, part);
      } else {
        std::memcpy(to, found->second.bytes.data() + offset % core::kPage, part);
      }
      to += part;
      offset += part;
      count -= part;
    }
  }
  void write(std::uint64_t offset, const void* data, std::size_t count) {
    const auto* from = static_cast<const std::byte*>(data);
    while (count > 0) {
      const std::size_t part = std::min<std::size_t>(count, core::kPage - offset % core::kPage);
      std::memcpy(pages[offset / core::kPage].bytes.data() + offset % core::kPage, from, part);
      from += part;
      offset += part;
      count -= part;
    }
    bytes = std::max(bytes, offset);
  }
  template <class Structure>
  Structure get(std::uint64_t offset) const {
    Structure result;
    read(offset, &result, sizeof result);
    return result;
  }
  template <class Structure>
  void put(std::uint64_t offset, const Structure& value) {
    write(offset, &value, sizeof value);
  }
};

// The file as the code under test sees it.
class MemoryStore : public core::BlockStore {
 public:
  explicit MemoryStore(MemoryFile& file) : file_(file) {}

  bool read_parts(std::uint64_t offset, std::span<iovec> parts) const override {
    for (const iovec& part : parts) {
      if (offset > file_.bytes || part.iov_len > file_.bytes - offset) return false;
      file_.read(offset, part.iov_base, part.iov_len);
      offset += part.iov_len;
    }
    return true;
  }
  void write_parts(std::uint64_t offset, std::span<iovec> parts) override {
    change();
    for (const iovec& part : parts) {
      file_.write(offset, part.iov_base, part.iov_len);
      offset += part.iov_len;
    }
  }
  void sync() override { change(); }
  void sync_name() override { change(); }
  void resize(std::uint64_t bytes) override {
    change();
    file_.bytes = bytes;
  }
  std::uint64_t size() const override { return file_.bytes; }
  void check_in_place(std::uint64_t bytes) const override {
    if (file_.bytes < bytes) throw Error(Errc::damaged, "the file was cut");
  }
  unsigned writers() const override { return 1; }
  const std::string& path() const override { return path_; }

 private:
  void change() {
    if (file_.changes++ == file_.failing) throw Error(Errc::io, "the disk failed");
  }
  MemoryFile& file_;
  std::string path_ = "the image";
};

// A region's header and directory with their checksums made right.
void repair_metadata(std::byte* metadata, const core::Uuid& uuid);

}  // namespace holdfast::fuzz

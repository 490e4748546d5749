// The image in a file, as the code under test reads it: where its pages and tables are.
#pragma once

#include <fcntl.h>

#include <string>

#include "core/image.hpp"

namespace holdfast::test {

inline core::Image image_in(const std::string& path) {
  core::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return core::Image::open(core::make_file_store(std::move(fd), path));
}

// Of the content of a page that is stored.
inline std::uint64_t page_offset(const core::Image& image, std::uint64_t page) {
  return image.entry(page).block * core::kPage;
}
inline std::uint64_t table_offset(const core::Image& image, std::uint64_t segment) {
  return image.root_entry(segment).block * core::kPage;
}

}  // namespace holdfast::test

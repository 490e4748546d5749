#include "fuzz/scratch.hpp"

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace holdfast::fuzz {

namespace {

const std::string& folder() {
  static const std::string* const made = [] {
    auto* const path = new std::string("/dev/shm/holdfast-fuzz-XXXXXX");
    if (::mkdtemp(path->data()) == nullptr) throw std::runtime_error("mkdtemp of " + *path);
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(folder(), ignored);
    });
    return path;
  }();
  return *made;
}

}  // namespace

const std::string& scratch_image() {
  static const std::string* const path = [] {
    const auto* const made = new std::string(folder() + "/image");
    std::ofstream(*made).close();
    std::filesystem::permissions(
        *made, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return made;
  }();
  return *path;
}

void clear_scratch() {
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path() != scratch_image()) std::filesystem::remove(entry.path());
  }
}

}  // namespace holdfast::fuzz

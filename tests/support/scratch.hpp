// Folders for tests: on disk for images, in shared memory for arenas; gone afterwards.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "holdfast/region.hpp"
#include "support/error_of.hpp"

namespace holdfast::test {

// The folders, for tests that no fixture serves.
class ScratchFolders {
 public:
  ScratchFolders()
      : folder_(make("/tmp/holdfast-XXXXXX")),
        arenas_(make("/dev/shm/holdfast-test-XXXXXX")),
        other_arenas_(make("/dev/shm/holdfast-test-XXXXXX")) {
    ::setenv("HOLDFAST_ARENA_DIR", arenas_.c_str(), 1);
  }
  ~ScratchFolders() {
    ::unsetenv("HOLDFAST_ARENA_DIR");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    std::filesystem::remove_all(arenas_, ignored);
    std::filesystem::remove_all(other_arenas_, ignored);
  }
  ScratchFolders(const ScratchFolders&) = delete;
  ScratchFolders& operator=(const ScratchFolders&) = delete;

  std::string path(const std::string& name = "region") const { return folder_ + "/" + name; }
  const std::string& folder() const { return folder_; }
  const std::string& arenas() const { return arenas_; }
  // For a copy of a region that is open.
  const std::string& other_arenas() const { return other_arenas_; }

 private:
  static std::string make(std::string pattern) {
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp of " + pattern);
    return pattern;
  }
  std::string folder_, arenas_, other_arenas_;
};

class Scratch : public ::testing::Test, protected ScratchFolders {
 protected:
  // As after a reboot: whatever a crash left is not there.
  static OpenOptions last_commit() {
    OpenOptions result;
    result.last_commit = true;
    return result;
  }
  static OpenOptions for_reading() {
    OpenOptions result;
    result.mode = OpenMode::read_only;
    return result;
  }
  static RegionOptions options(std::uint64_t size) {
    RegionOptions result;
    result.size = size;
    return result;
  }

  // The only file in a folder; fails the test if there is not exactly one.
  static std::string only_file(const std::string& folder) {
    std::string found;
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      found = entry.path().string();
      ++count;
    }
    EXPECT_EQ(count, 1) << "files in " << folder;
    return found;
  }
  static bool is_empty(const std::string& folder) {
    return std::filesystem::directory_iterator(folder) == std::filesystem::directory_iterator();
  }
};

inline std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  std::vector<char> bytes(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

inline void write_file(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  std::filesystem::permissions(
      path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// The seed of a randomised test: $HOLDFAST_TEST_SEED, or a new one, which is printed.
inline std::uint64_t test_seed() {
  const char* given = std::getenv("HOLDFAST_TEST_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device()();
  std::printf("HOLDFAST_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);  // a test that is killed for its time has said it
  return seed;
}

}  // namespace holdfast::test

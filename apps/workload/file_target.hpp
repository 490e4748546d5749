// A file on the medium, for the modes that persist through the file system.
#pragma once

#include <cstdint>
#include <string>

namespace workload {

// The file of one array, as large as the array. Thread safety: writes of different parts from any
// thread.
class FileTarget {
 public:
  // Opens it, or makes it, zeroed. Throws Error(io, no_space, invalid_argument: another size).
  FileTarget(const std::string& path, std::uint64_t bytes);
  ~FileTarget();
  FileTarget(const FileTarget&) = delete;
  FileTarget& operator=(const FileTarget&) = delete;

  bool was_there() const { return was_there_; }
  const std::string& path() const { return path_; }
  void write(const void* from, std::uint64_t bytes, std::uint64_t offset) const;
  void read(void* to, std::uint64_t bytes, std::uint64_t offset) const;
  void sync() const;

 private:
  [[noreturn]] void fail(const char* call) const;
  std::string path_;
  int file_ = -1;
  bool was_there_ = false;
};

// Where files of a workload whose region is at `region_path` lie: names start with this.
std::string target_prefix(const std::string& region_path);
// Removes all files whose names start with target_prefix().
void remove_targets(const std::string& region_path);

}  // namespace workload

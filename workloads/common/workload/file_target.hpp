// Files on the medium, for the modes that persist through the file system.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace workload {

// The file of one array, as large as the array; or several, over which it is striped: a file's
// writers wait for one another, since the kernel locks its inode. Thread safety: writes of
// different parts from any thread; sync() when there are none.
class FileTarget {
 public:
  // Of a stripe; small enough that a small array's parts come to different files.
  static constexpr std::uint64_t kStripe = 256u << 10;

  // Opens it, or makes it, zeroed: in `most_files` files, fewer where it has fewer stripes.
  // `direct`: whole pages from memory that is aligned as they are pass the page cache, where the
  // file system has that. REQUIRES: the same number as when it was made. Throws Error(io, no_space,
  // invalid_argument: another size).
  FileTarget(const std::string& path, std::uint64_t bytes, unsigned most_files = 1,
             bool direct = false);
  ~FileTarget();
  FileTarget(const FileTarget&) = delete;
  FileTarget& operator=(const FileTarget&) = delete;

  bool was_there() const { return was_there_; }
  // Whether the file system has direct I/O and it was asked for.
  bool is_direct() const;
  void write(const void* from, std::uint64_t bytes, std::uint64_t offset) const;
  void read(void* to, std::uint64_t bytes, std::uint64_t offset) const;
  // Makes durable what was written since the last sync.
  void sync() const;

 private:
  struct File {
    std::string path;
    int descriptor = -1;
    int direct = -1;              // a second one, past the page cache; -1: there is none
    std::uint64_t alignment = 0;  // of places and memory there
    bool was_there = false;
    mutable std::atomic<bool> written{false};
    ~File();
    void open(std::uint64_t bytes, bool wants_direct);
    void open_direct();
    void write_zeros(std::uint64_t bytes) const;
    void write(const char* at, std::uint64_t bytes, std::uint64_t place) const;
    void write_to(int to, const char* at, std::uint64_t bytes, std::uint64_t place) const;
    [[noreturn]] void fail(const char* call) const;
  };
  // Calls body(file, offset in it, bytes) for the stripes of a part, one after the other.
  template <class Body>
  void for_stripes(std::uint64_t bytes, std::uint64_t offset, const Body& body) const;

  std::vector<File> files_;
  bool was_there_ = true;
};

// Where files of a workload whose region is at `region_path` lie: names start with this.
std::string target_prefix(const std::string& region_path);
// Removes all files whose names start with target_prefix().
void remove_targets(const std::string& region_path);

}  // namespace workload

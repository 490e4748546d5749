// The operations on files that a history in a folder is made of. Tests put a layer of their own in
// its place, which fails, tears, and loses power.
//
// Errors of the system are numbers here, and not exceptions, so that the code above this decides
// what each of them means, and so that a test can give it any of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/files.hpp"

namespace holdfast::history {

// Transfers between files and memory are aligned to this, in memory, file and length, which is what
// direct I/O wants.
inline constexpr std::uint64_t kAlignment = 4096;

// An open file. Thread safety: read() and write() from any number of threads.
class FolderFile {
 public:
  virtual ~FolderFile() = default;
  // As pread() and pwrite(): the bytes moved, which may be fewer than asked for, or minus an errno.
  virtual std::int64_t read(void* to, std::size_t bytes, std::uint64_t offset) = 0;
  virtual std::int64_t write(const void* from, std::size_t bytes, std::uint64_t offset) = 0;
  // Makes an empty file this long, and takes the space for it where the file system can do that:
  // then a full one says so before anything is written. Returns 0 or an errno.
  virtual int reserve(std::uint64_t bytes) = 0;
  // The reads that come are made by one thread, one behind the other, of about so many bytes each.
  virtual void expect_reads_in_order(std::size_t) {}
  // The length, or minus an errno.
  virtual std::int64_t size() = 0;
  // What was written is durable; its name need not be. Returns 0 or an errno. After one that failed
  // nothing is known of what was written, whatever a later sync says.
  virtual int sync() = 0;
};

// A folder, by the folder itself and not by its path: it may be moved while it is open. Names are
// those of its entries. Thread safety: any number of threads.
class Folder {
 public:
  virtual ~Folder() = default;

  struct Opened {
    std::unique_ptr<FolderFile> file;  // null: `error` says why
    int error = 0;
  };
  // For reading, of a regular file that belongs to this user and that no one else may write;
  // otherwise EPERM.
  virtual Opened open(const std::string& name) = 0;
  // A new file, for writing and reading. EEXIST.
  virtual Opened create(const std::string& name) = 0;
  // 0, or an errno such as ENOENT.
  virtual int look_for(const std::string& name) = 0;
  // The three that change names. They are durable after sync(); a crash before it leaves each name
  // as it was or as it is. Return 0 or an errno.
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int unlink(const std::string& name) = 0;
  virtual int sync() = 0;
  // All entries but "." and "..". Returns 0 or an errno.
  virtual int list(std::vector<std::string>& names) = 0;
  // Takes an exclusive lock, by a file of this name, for as long as the object lives and in this
  // process alone. Throws in_use, unsupported (locks do nothing here), permission, io.
  virtual void lock(const std::string& name) = 0;
  // For messages.
  virtual const std::string& path() const = 0;
};

// Throws not_found, permission, invalid_argument (no folder), io.
std::unique_ptr<Folder> open_folder(const std::string& path);

// Tests: files go through the page cache, as where a file system refuses O_DIRECT.
inline bool use_page_cache = false;

}  // namespace holdfast::history

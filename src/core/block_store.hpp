// Where the bytes of an image stand: a file, or in tests something that records, fails and forgets.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/files.hpp"

namespace holdfast::core {

// Bytes by offset, as a file has them: what was written is read again at once, and outlives the
// process; it outlives the machine once a sync() that began after it has succeeded. After a sync()
// that failed, what it was to make durable may be lost whenever the machine is, however many later
// syncs succeed: it has to be written again.
//
// Thread safety: read() and write() from any number of threads, the rest while nothing else runs.
class BlockStore {
 public:
  virtual ~BlockStore() = default;

  // Each throws the Error for the system's answer (io, no_space), naming the store.

  // Fills all parts, and uses them up; false if the store ends before.
  virtual bool read_parts(std::uint64_t offset, std::span<iovec> parts) const = 0;
  // Writes pieces of memory one behind the other, and uses them up.
  virtual void write_parts(std::uint64_t offset, std::span<iovec> parts) = 0;
  virtual void sync() = 0;
  // As sync(), for the name by which the store is found again.
  virtual void sync_name() = 0;
  virtual void resize(std::uint64_t bytes) = 0;
  virtual std::uint64_t size() const = 0;
  // Throws not_found or damaged if others have removed it, put another one in its place, or cut it
  // below `bytes`.
  virtual void check_in_place(std::uint64_t bytes) const = 0;

  // How many threads may write at once with profit.
  virtual unsigned writers() const { return 4; }
  // Of the file, for reads around the cache; -1: there is none.
  virtual int fd() const { return -1; }
  virtual const std::string& path() const = 0;

  bool read(std::uint64_t offset, void* data, std::size_t bytes) const;
  void write(std::uint64_t offset, const void* data, std::size_t bytes);
};

class FileStore : public BlockStore {
 public:
  FileStore(UniqueFd fd, std::string path);

  bool read_parts(std::uint64_t offset, std::span<iovec> parts) const override;
  void write_parts(std::uint64_t offset, std::span<iovec> parts) override;
  void sync() override;
  void sync_name() override;
  void resize(std::uint64_t bytes) override;
  std::uint64_t size() const override;
  void check_in_place(std::uint64_t bytes) const override;
  int fd() const override { return fd_.get(); }
  const std::string& path() const override { return path_; }

 private:
  UniqueFd fd_;
  const std::string path_;
  const std::string absolute_;  // so that it is still meant after a chdir()
};

// Makes the store of an image's file.
using MakeStore = std::function<std::unique_ptr<BlockStore>(UniqueFd fd, const std::string& path)>;

inline std::unique_ptr<BlockStore> make_file_store(UniqueFd fd, const std::string& path) {
  return std::make_unique<FileStore>(std::move(fd), path);
}

}  // namespace holdfast::core

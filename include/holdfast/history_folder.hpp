// Looking at the folder of a history, or its objects, without opening the history: for tools, and
// beside a process that has it open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/error.hpp"

namespace holdfast {

class ObjectStore;

// An array in a checkpoint.
struct HistoryArray {
  std::string name;
  std::uint64_t bytes = 0;
};

struct HistoryStep {
  std::string path;  // of its file
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;  // of the arrays, and of what lies between them
  std::uint64_t saved_unix_ns = 0;
  std::vector<HistoryArray> arrays;
};

// A file that stands where a checkpoint would, and is not offered.
struct HistoryDamage {
  std::string path;
  std::uint64_t step = 0;  // by its name
  Errc code{};
  std::string reason;
};

// What a folder held at the moment of the constructor. Thread safety: any number of threads.
class HistoryFolder {
 public:
  // Reads what describes the checkpoints, and changes nothing. Throws not_found (no folder, or no
  // history in it), foreign, newer_version, damaged, permission, io.
  explicit HistoryFolder(const std::string& path);
  // The same of what an object store has under its prefix. Throws what the store throws, too.
  explicit HistoryFolder(std::shared_ptr<ObjectStore> objects);
  ~HistoryFolder();
  HistoryFolder(HistoryFolder&&) noexcept;
  HistoryFolder& operator=(HistoryFolder&&) noexcept;

  const std::string& path() const;
  std::string uuid() const;
  std::uint64_t file_bytes() const;             // of the complete checkpoints' files
  std::vector<HistoryStep> steps() const;       // ascending, those that can be restored
  std::optional<std::uint64_t> latest() const;  // the one that was saved last
  std::vector<HistoryDamage> damaged() const;

  // Reads all of a checkpoint. Throws damaged (names file and chunk), not_found (or removed since),
  // io.
  void verify(std::uint64_t step) const;

  // Removes checkpoints, damaged files of checkpoints among them, for good. Throws not_found before
  // anything is removed if one of them is not there; in_use (a process has the history open, which
  // can discard() them itself), and as the constructor.
  static void discard(const std::string& path, std::span<const std::uint64_t> steps);
  static void discard(const std::shared_ptr<ObjectStore>& objects,
                      std::span<const std::uint64_t> steps);

 private:
  struct Impl;
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast

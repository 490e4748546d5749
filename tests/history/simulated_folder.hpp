// A folder in memory that fails when it is told to, and of which a power cut leaves what it may.
//
// The model is the weakest that POSIX allows. Of what was written to a file since its last sync
// that succeeded, each write may be there, or not, or in part, and the length may be any that it
// had. Of each name, any state since the folder's last sync may be there, whatever became of the
// others: so a rename can leave both names, or neither. What a failed sync was to make durable may
// be lost or not, however many later syncs succeed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "history/folder.hpp"

namespace holdfast::test {

using Bytes = std::vector<std::byte>;

// Makes the choices of a power cut: a number below `options`. Two kinds: random ones, and all there
// are, one after the other.
using Choose = std::function<std::uint64_t(std::uint64_t options)>;

inline Choose choose_by(std::mt19937_64& random) {
  return [&random](std::uint64_t options) { return random() % options; };
}

class AllChoices {
 public:
  // Runs `body` with every sequence of choices that it can make, until it returns false.
  void for_each(const std::function<bool(const Choose&)>& body);

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> chosen_;  // and out of how many
};

class Inode {
 public:
  const Bytes& shown() const { return shown_; }
  Bytes& shown() { return shown_; }
  void write(std::uint64_t offset, const std::byte* from, std::size_t bytes);
  void resize(std::uint64_t bytes);
  void sync();
  void fail_sync();
  Bytes after_cut(const Choose& choose) const;
  static std::shared_ptr<Inode> of(Bytes bytes);

 private:
  struct Change {
    bool is_write = false;
    std::uint64_t offset = 0;  // or the length
    Bytes bytes;
    bool dirty = true;  // the next sync that succeeds makes it durable
  };
  static void apply(const Change& change, Bytes& to, std::size_t from, std::size_t until);
  Bytes shown_, sure_;
  std::vector<Change> pending_;
};

// What is in the folder, by processes and power cuts alike.
class FolderDisk {
 public:
  using File = std::shared_ptr<Inode>;  // null: the name is free

  File find(const std::string& name) const;
  void set(const std::string& name, File file);
  void sync();
  void fail_sync();
  std::vector<std::string> names() const;
  // As a power cut may leave it; all of it is durable then.
  FolderDisk after_cut(const Choose& choose) const;

 private:
  struct Name {
    File sure;
    std::vector<std::pair<File, bool>> versions;  // since then, and whether a sync would do it
  };
  std::map<std::string, Name> names_;
};

// A process that uses it.
struct FolderLife {
  enum class Kind {
    open,
    create,
    look_for,
    rename,
    unlink,
    sync,
    list,
    read,
    write,
    reserve,
    size,
    sync_file
  };
  enum class Fault { none, error, interrupted, short_transfer, torn };

  FolderDisk& disk;
  std::function<void()> on_done = [] {};  // behind each operation

  // Of operation number `fail_at`. `torn`: a write that moves a part and then fails with `error`.
  std::uint64_t fail_at = ~std::uint64_t{0};
  Fault fault = Fault::none;
  int error = 0;
  // The process is killed before this operation: nothing has an effect any more.
  std::uint64_t kill_at = ~std::uint64_t{0};

  // Mistakes, for tests of the tests.
  bool omit_file_sync = false;
  bool omit_folder_sync = false;

  std::uint64_t operations = 0;
  bool fault_struck = false;
  Kind struck{};
  bool dead() const { return operations > kill_at; }
  // What the operation that begins is to do instead of its work.
  Fault begin(Kind kind);
};

class SimulatedFolder : public history::Folder {
 public:
  explicit SimulatedFolder(std::shared_ptr<FolderLife> life) : life_(std::move(life)) {}
  Opened open(const std::string& name) override;
  Opened create(const std::string& name) override;
  int look_for(const std::string& name) override;
  int rename(const std::string& from, const std::string& to) override;
  int unlink(const std::string& name) override;
  int sync() override;
  int list(std::vector<std::string>& names) override;
  void lock(const std::string&) override {}
  const std::string& path() const override { return path_; }

 private:
  std::shared_ptr<FolderLife> life_;
  const std::string path_ = "/simulated";
};

}  // namespace holdfast::test

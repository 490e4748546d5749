// What all stores of step files have in common, be they files of a folder or objects of a store:
// which steps there are, which are being written, and reading. How a file comes to be there, and
// goes, is the derived class's.
//
// Locks: `state_` is held for moments, and never while a file is asked for anything; of the two
// that a derived class may want it is the inner one.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/process.hpp"
#include "history/folder.hpp"
#include "history/step_file.hpp"
#include "history/step_store.hpp"
#include "history/transfer.hpp"

namespace holdfast::history {

class StepFileStore : public StepStore {
 public:
  bool write(const StepInfo& info, std::span<const std::byte> blob, const Pace& pace) override;
  bool read(Step step, std::span<std::byte> into, const Pace& pace) override;
  bool write_chunks(const StepInfo& info, const Fill& fill, const Pace& pace,
                    const ChunkHashes& hashes) override;
  std::unique_ptr<StepReader> open_reader(Step step) const override;
  bool read_chunks(Step step, const Room& room, const Take& take, const Pace& pace,
                   unsigned threads) override;
  std::optional<StepInfo> find(Step step) const override;
  std::vector<StepInfo> steps() const override;
  std::optional<Step> latest() const override;
  bool verify(Step step, const Pace& pace) override;
  std::uint64_t bytes_used() const override;

  std::vector<DamagedFile> damaged() const override;
  std::string name() const override { return header_.name; }
  core::Uuid uuid() const override { return header_.uuid; }

 protected:
  // Throws invalid_argument: a name of the history that no header can hold.
  StepFileStore(bool read_only, const std::string& name, const TransferOptions& transfer);

  // A blob, as write() or write_chunks() was given it.
  struct Blob {
    std::span<const std::byte> bytes;
    const Fill* fill = nullptr;  // null: `bytes` has it
    ChunkHashes hashes;
  };

  // For reading. Null with an errno, such as ENOENT; or throws.
  virtual Folder::Opened open_file(const std::string& name) const = 0;
  // Writes the file of a step, with a sequence number, which it notes in `front`; durable when it
  // returns true. False: the pace gave up. Nobody else writes this step meanwhile.
  virtual bool write_file(Front& front, const Blob& blob, const Pace& pace) = 0;

  // Whether an error in reading a file says something about the file, which is then listed as
  // damaged, or else about the place, which scan_step() throws.
  virtual bool is_of_file(const Error&) const { return true; }

  std::string path_of(const std::string& name) const { return path() + "/" + name; }

  // Opening.
  // Throws foreign, newer_version, damaged, io.
  void load_header(const Folder::Opened& opened);
  void check_name(const std::string& wanted) const;
  [[noreturn]] void refuse_other_file(const std::string& name) const;
  // Notes what a step's file is: a step, or damaged.
  void scan_step(Step step, const std::string& name, const Folder::Opened& opened);
  void begin_sequence();  // once all are scanned

  // Using.
  void check_usable(const char* what, bool for_writing) const;
  // REQUIRES: one at a time.
  std::uint64_t take_sequence();
  void note_leftover(Step step, const Error& error);
  void refuse_to_remove(Step step) const;
  void forget(Step step);  // its file is gone
  void forget_all();

  const bool read_only_;
  const TransferOptions transfer_;
  const core::Maker maker_;
  HistoryHeader header_{};

 private:
  struct Entry {
    StepInfo info;
    std::uint64_t sequence = 0;
    std::uint64_t file_bytes = 0;
  };
  using Entries = std::map<Step, Entry>;
  struct OpenStep {
    std::string path;
    Folder::Opened opened;
    Front front;
  };
  class Claim;
  class Reader;

  void check_free(Step step) const;
  bool write_step(const StepInfo& info, const Blob& blob, const Pace& pace);
  Entry entry_of(Step step) const;
  Folder::Opened open_step(Step step) const;
  OpenStep open_checked(Step step) const;
  using ReadBlob = std::function<bool(BlobTransfer&, const Front&)>;
  bool transfer(Step step, unsigned threads, const ReadBlob& blob, const Pace& pace);

  std::uint64_t last_sequence_ = 0;

  mutable std::mutex state_;
  Entries entries_;
  std::map<Step, DamagedFile> damaged_;
  std::set<Step> being_written_;
};

}  // namespace holdfast::history

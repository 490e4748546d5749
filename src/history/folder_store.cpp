#include "history/folder_store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/process.hpp"
#include "core/uuid.hpp"
#include "history/transfer.hpp"

namespace holdfast::history {

using detail::concat;

namespace {

bool contains(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A file that is being written, under a temporary name; gone with the object unless it is kept.
class NewStepFile {
 public:
  // Throws not_found (the folder went away), permission, no_space, io.
  NewStepFile(Folder& folder, std::string target)
      : folder_(folder), target_(std::move(target)), name_(temporary_name(target_)) {
    Folder::Opened opened = folder_.create(name_);
    if (!opened.file) throw core::system_error(opened.error, "make a file in", folder_.path());
    file_ = std::move(opened.file);
  }
  ~NewStepFile() { remove(); }
  NewStepFile(const NewStepFile&) = delete;
  NewStepFile& operator=(const NewStepFile&) = delete;

  FolderFile& file() { return *file_; }
  std::string path() const { return folder_.path() + "/" + name_; }
  // publish() has thrown, and could not take the name back.
  bool has_target() const { return name_ == target_; }

  // Durable when it returns. REQUIRES: no one else changes names in the folder. Throws
  // already_exists, io, no_space; then nothing remains, as far as the folder can be changed at all.
  void publish() {
    throw_if(file_->sync(), "sync");
    // The folder's lock keeps our own kind out; a file that someone copied here is not replaced.
    const int error = folder_.look_for(target_);
    if (error != ENOENT) throw_if(error == 0 ? EEXIST : error, "name");
    throw_if(folder_.rename(name_, target_), "name");
    name_ = target_;
    if (const int failed = folder_.sync(); failed != 0) {
      // What it was to make durable may be lost or not, and no later sync tells. So the name goes
      // again; should the disk keep it all the same, it has the whole step.
      remove();
      folder_.sync();
      throw core::system_error(failed, concat("make the name of '", target_, "' durable in"),
                               folder_.path());
    }
    name_.clear();
  }

 private:
  void throw_if(int error, const char* action) const {
    if (error != 0) throw core::system_error(error, action, folder_.path() + "/" + target_);
  }
  void remove() {
    file_.reset();
    if (name_.empty()) return;
    const int error = folder_.unlink(name_);
    if (error == 0 || error == ENOENT) name_.clear();
  }

  Folder& folder_;
  const std::string target_;
  std::string name_;  // that it has now; empty: it is not to be removed
  std::unique_ptr<FolderFile> file_;
};

class FolderStoreImpl : public FolderStore {
 public:
  FolderStoreImpl(std::unique_ptr<Folder> folder, const FolderOptions& options,
                  const TransferOptions& transfer);

  bool write(const StepInfo& info, std::span<const std::byte> blob, const Pace& pace) override;
  bool read(Step step, std::span<std::byte> into, const Pace& pace) override;
  bool write_chunks(const StepInfo& info, const Fill& fill, const Pace& pace) override;
  std::unique_ptr<StepReader> open_reader(Step step) const override;
  bool read_chunks(Step step, const Room& room, const Take& take, const Pace& pace) override;
  std::optional<StepInfo> find(Step step) const override;
  std::vector<StepInfo> steps() const override;
  std::optional<Step> latest() const override;
  void remove(Step step) override;
  bool verify(Step step, const Pace& pace) override;
  std::uint64_t bytes_used() const override;

  std::vector<DamagedFile> damaged() const override;
  std::string name() const override { return header_.name; }
  core::Uuid uuid() const override { return header_.uuid; }
  const std::string& path() const override { return folder_->path(); }

 private:
  struct Entry {
    StepInfo info;
    std::uint64_t sequence = 0;
    std::uint64_t file_bytes = 0;
  };
  using Entries = std::map<Step, Entry>;
  class Claim;

  std::string path_of(const std::string& name) const { return path() + "/" + name; }
  // Opening.
  std::vector<std::string> list() const;
  void load_header();
  void make_history(const std::string& name);
  void check_name(const std::string& wanted) const;
  void refuse_other_files(const std::vector<std::string>& names) const;
  void remove_remains(const std::vector<std::string>& names);
  void scan(const std::vector<std::string>& names);
  void scan_step(Step step, const std::string& name);
  // Using.
  void check_usable(const char* what, bool for_writing) const;
  void check_free(Step step) const;
  std::uint64_t take_sequence();
  using WriteBlob = std::function<bool(BlobTransfer&, Front&)>;
  struct OpenStep {
    std::string path;
    Folder::Opened opened;
    Front front;
  };
  class Reader;
  OpenStep open_checked(Step step) const;
  using ReadBlob = std::function<bool(BlobTransfer&, const Front&)>;
  bool write_step(const StepInfo& info, unsigned threads, const WriteBlob& blob, const Pace& pace);
  bool write_file(Front& front, unsigned threads, const WriteBlob& blob, const Pace& pace);
  void note_leftover(Step step, const Error& error);
  Entry entry_of(Step step) const;
  Folder::Opened open_step(Step step) const;
  bool transfer(Step step, unsigned threads, const ReadBlob& blob, const Pace& pace);
  void refuse_to_remove(Step step) const;

  const std::unique_ptr<Folder> folder_;
  const bool read_only_;
  const TransferOptions transfer_;
  core::Maker maker_;
  HistoryHeader header_{};

  std::mutex naming_;  // over every change of a name, with its sync; taken before state_
  std::uint64_t last_sequence_ = 0;

  mutable std::mutex state_;
  Entries entries_;
  std::map<Step, DamagedFile> damaged_;
  std::set<Step> being_written_;
};

// ---- Opening ------------------------------------------------------------------------------------

FolderStoreImpl::FolderStoreImpl(std::unique_ptr<Folder> folder, const FolderOptions& options,
                                 const TransferOptions& transfer)
    : folder_(std::move(folder)), read_only_(options.read_only), transfer_(transfer) {
  if (options.name.size() >= kHistoryNameBytes || options.name.find('\0') != std::string::npos) {
    throw Error(Errc::invalid_argument,
                concat("a history's name has at most ", kHistoryNameBytes - 1,
                       " bytes, none of them zero, unlike '", options.name, "'"));
  }
  std::vector<std::string> names = list();
  // Whatever is refused is refused before anything changes, the lock's file included.
  if (contains(names, kHistoryFile)) {
    load_header();
    check_name(options.name);
  } else if (read_only_) {
    throw Error(Errc::not_found, concat("there is no history in '", path(),
                                        "'; check the path, or open it for writing to make one"));
  } else {
    refuse_other_files(names);
  }
  if (!read_only_) {
    folder_->lock(kLockFile);
    names = list();  // of another process that had the lock before
    if (contains(names, kHistoryFile)) {
      load_header();
      check_name(options.name);
    } else {
      make_history(options.name);
    }
    remove_remains(names);
  }
  // A process may have died between a rename and its sync.
  if (const int error = folder_->sync(); error != 0) {
    throw core::system_error(error, "sync the folder", path());
  }
  scan(names);
}

std::vector<std::string> FolderStoreImpl::list() const {
  std::vector<std::string> names;
  const int error = folder_->list(names);
  if (error != 0) throw core::system_error(error, "list the folder", path());
  return names;
}

void FolderStoreImpl::load_header() {
  Folder::Opened opened = folder_->open(kHistoryFile);
  if (!opened.file) throw core::system_error(opened.error, "open", path_of(kHistoryFile));
  header_ = read_history_header(*opened.file, path_of(kHistoryFile));
}

void FolderStoreImpl::check_name(const std::string& wanted) const {
  if (wanted.empty() || wanted == header_.name) return;
  throw Error(Errc::invalid_argument,
              concat("the history in '", path(), "' is called '", header_.name, "', and not '",
                     wanted, "'; give its own name, or another folder"));
}

void FolderStoreImpl::refuse_other_files(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (name == kLockFile || is_temporary_name(name)) continue;
    throw Error(Errc::foreign,
                concat("'", path(), "' is no history: it has files, such as '", name, "', and no ",
                       kHistoryFile, "; give an empty folder, or one that is not there yet"));
  }
}

void FolderStoreImpl::make_history(const std::string& name) {
  const HistoryHeader header = make_history_header(name);
  AlignedBytes bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  NewStepFile made(*folder_, kHistoryFile);
  if (const int error = write_all(made.file(), bytes.span(), 0); error != 0) {
    throw core::system_error(error, "write to", made.path());
  }
  made.publish();
  header_ = header;
}

// One that cannot be removed takes space and nothing else: the next opening tries again.
void FolderStoreImpl::remove_remains(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!is_temporary_name(name)) continue;
    Folder::Opened opened = folder_->open(name);
    try {
      if (!opened.file || !may_be_remains(*opened.file, path_of(name))) continue;
    } catch (const Error& error) {
      if (error.code() == Errc::no_memory) throw;
      continue;
    }
    folder_->unlink(name);
  }
}

void FolderStoreImpl::scan(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (const std::optional<Step> step = step_of_file_name(name)) scan_step(*step, name);
  }
  for (const auto& [step, entry] : entries_) {
    last_sequence_ = std::max(last_sequence_, entry.sequence);
  }
}

void FolderStoreImpl::scan_step(Step step, const std::string& name) {
  const std::string file = path_of(name);
  Folder::Opened opened = folder_->open(name);
  if (opened.error == ENOENT) return;  // a writer beside us removed it
  if (opened.error == EMFILE || opened.error == ENFILE || opened.error == ENOMEM) {
    throw core::system_error(opened.error, "open", file);  // that is no fault of the file
  }
  try {
    if (!opened.file) throw core::system_error(opened.error, "open", file);
    const Front front = read_front(*opened.file, file);
    if (front.history != header_.uuid) {
      throw Error(Errc::foreign,
                  concat("'", file, "' belongs to the history ", core::to_text(front.history),
                         ", and this one is ", core::to_text(header_.uuid), "; move it elsewhere"));
    }
    if (front.info.step != step) {
      throw Error(Errc::damaged, concat("'", file, "' holds step ", front.info.step,
                                        "; give it the name ", step_file_name(front.info.step)));
    }
    entries_[step] = {front.info, front.sequence, front.file_bytes()};
  } catch (const Error& error) {
    if (error.code() == Errc::no_memory) throw;
    damaged_[step] = {file, step, error.code(), error.what()};
  }
}

// ---- Writing ------------------------------------------------------------------------------------

void FolderStoreImpl::check_usable(const char* what, bool for_writing) const {
  if (!maker_.is_this_process()) {
    maker_.refuse(concat("the history in '", path(), "'"), "open it in the child");
  }
  if (for_writing && read_only_) {
    throw Error(Errc::unsupported, concat(what, ": the history in '", path(),
                                          "' is open for reading; open it for writing"));
  }
}

// REQUIRES: state_ is held.
void FolderStoreImpl::check_free(Step step) const {
  if (const auto found = damaged_.find(step); found != damaged_.end()) {
    throw Error(Errc::already_exists,
                concat("step ", step, " has a file that cannot be used: ", found->second.reason));
  }
  if (entries_.count(step) != 0 || being_written_.count(step) != 0) {
    throw Error(Errc::already_exists, concat("step ", step, " is in '", path(),
                                             "' already; remove it, or save another number"));
  }
}

// That this thread writes a step.
class FolderStoreImpl::Claim {
 public:
  Claim(FolderStoreImpl& store, Step step) : store_(store), step_(step) {
    const std::lock_guard lock(store_.state_);
    store_.check_free(step);
    store_.being_written_.insert(step);
  }
  ~Claim() {
    const std::lock_guard lock(store_.state_);
    store_.being_written_.erase(step_);
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  FolderStoreImpl& store_;
  const Step step_;
};

bool FolderStoreImpl::write(const StepInfo& info, std::span<const std::byte> blob,
                            const Pace& pace) {
  check_usable("write", true);
  check_info(info);
  if (blob.size() != info.bytes) {
    throw Error(Errc::invalid_argument, concat("step ", info.step, " is said to have ", info.bytes,
                                               " bytes, and ", blob.size(), " were given"));
  }
  return write_step(
      info, transfer_.threads,
      [&](BlobTransfer& transfer, Front& front) { return transfer.write(front, blob); }, pace);
}

bool FolderStoreImpl::write_chunks(const StepInfo& info, const Fill& fill, const Pace& pace) {
  check_usable("write", true);
  check_info(info);
  return write_step(
      info, 1, [&](BlobTransfer& transfer, Front& front) { return transfer.write(front, fill); },
      pace);
}

bool FolderStoreImpl::write_step(const StepInfo& info, unsigned threads, const WriteBlob& blob,
                                 const Pace& pace) {
  const Claim claim(*this, info.step);
  Front front;
  front.info = info;
  front.history = header_.uuid;
  front.chunk_bytes = transfer_.chunk_bytes;
  Entries entry;  // made before the commit, behind which nothing may fail
  Entry& made = entry[info.step] = {info, 0, front.file_bytes()};
  try {
    if (!write_file(front, threads, blob, pace)) return false;
  } catch (const Error& error) {
    if (error.code() != Errc::no_space) throw;
    throw Error(Errc::no_space,
                concat("step ", info.step, " takes ", front.file_bytes(), " bytes in '", path(),
                       "', which are not there: ", error.what()));
  }
  made.sequence = front.sequence;
  const std::lock_guard lock(state_);
  entries_.merge(entry);
  return true;
}

// The clock, since a step whose file could not be read now may have a number that is not known, and
// may be read the next time; more than the last, since clocks are set back. REQUIRES: naming_ is
// held.
std::uint64_t FolderStoreImpl::take_sequence() {
  if (last_sequence_ >= core::kMaxGeneration) {
    throw Error(Errc::damaged, concat("a step in '", path(),
                                      "' has the last sequence number, which no clock has come to: "
                                      "a forged file; remove that step"));
  }
  last_sequence_ = std::max(last_sequence_ + 1, now_ns());
  return last_sequence_;
}

bool FolderStoreImpl::write_file(Front& front, unsigned threads, const WriteBlob& blob,
                                 const Pace& pace) {
  NewStepFile made(*folder_, step_file_name(front.info.step));
  const auto throw_if = [&](int error, const char* action) {
    if (error != 0) throw core::system_error(error, action, made.path());
  };
  throw_if(made.file().reserve(front.file_bytes()), "take the space for");
  BlobTransfer transfer(made.file(), made.path(), threads, pace);
  if (!blob(transfer, front)) return false;
  // The sequence is that of the renames, so the front, which has it, is written by one at a time.
  const std::lock_guard lock(naming_);
  front.sequence = take_sequence();
  throw_if(write_all(made.file(), encode(front).span(), 0), "write the tables of");
  try {
    made.publish();
  } catch (const Error& error) {
    if (made.has_target()) note_leftover(front.info.step, error);
    throw;
  }
  return true;
}

// A file that was to be taken back, and stands there still: whole, perhaps not durable, and not
// offered. Who writes the step again removes it first.
void FolderStoreImpl::note_leftover(Step step, const Error& error) {
  const std::lock_guard lock(state_);
  damaged_[step] = {path_of(step_file_name(step)), step, Errc::damaged,
                    concat("the write of step ", step,
                           " failed and could not be undone: ", error.what(), "; remove it")};
}

void FolderStoreImpl::refuse_to_remove(Step step) const {
  const std::lock_guard lock(state_);
  const auto found = damaged_.find(step);
  if (found == damaged_.end()) {
    if (entries_.count(step) != 0) return;
    throw Error(Errc::not_found, concat("step ", step, " is not in '", path(), "'"));
  }
  // What others may still have use for is theirs to remove.
  const Errc code = found->second.code;
  if (code != Errc::damaged && code != Errc::io) throw Error(code, found->second.reason);
}

void FolderStoreImpl::remove(Step step) {
  check_usable("remove", true);
  const std::lock_guard naming(naming_);
  refuse_to_remove(step);
  const std::string name = step_file_name(step);
  const int error = folder_->unlink(name);
  if (error != 0 && error != ENOENT) throw core::system_error(error, "remove", path_of(name));
  {
    const std::lock_guard lock(state_);
    entries_.erase(step);
    damaged_.erase(step);
  }
  if (const int failed = folder_->sync(); failed != 0) {
    throw core::system_error(
        failed, concat("sync the folder (step ", step, " may be back after a power cut)"), path());
  }
}

// ---- Reading ------------------------------------------------------------------------------------

FolderStoreImpl::Entry FolderStoreImpl::entry_of(Step step) const {
  const std::lock_guard lock(state_);
  const auto found = entries_.find(step);
  if (found != entries_.end()) return found->second;
  if (const auto bad = damaged_.find(step); bad != damaged_.end()) {
    throw Error(bad->second.code, bad->second.reason);
  }
  throw Error(Errc::not_found, concat("step ", step, " is not in '", path(), "'"));
}

Folder::Opened FolderStoreImpl::open_step(Step step) const {
  const std::string name = step_file_name(step);
  Folder::Opened opened = folder_->open(name);
  if (opened.file) return opened;
  if (opened.error != ENOENT) throw core::system_error(opened.error, "open", path_of(name));
  throw Error(Errc::not_found, concat("'", path_of(name),
                                      "' was removed since the history was opened; open it again"));
}

FolderStoreImpl::OpenStep FolderStoreImpl::open_checked(Step step) const {
  const Entry entry = entry_of(step);
  OpenStep result{path_of(step_file_name(step)), open_step(step), {}};
  result.front = read_front(*result.opened.file, result.path);
  const Front& front = result.front;
  if (front.history != header_.uuid || front.sequence != entry.sequence ||
      front.info != entry.info) {
    throw Error(Errc::not_found,
                concat("step ", step, " was removed since the history was opened, and '",
                       result.path, "' is another one; open the history again"));
  }
  return result;
}

bool FolderStoreImpl::transfer(Step step, unsigned threads, const ReadBlob& blob,
                               const Pace& pace) {
  const OpenStep open = open_checked(step);
  BlobTransfer transfer(*open.opened.file, open.path, threads, pace);
  return blob(transfer, open.front);
}

// Has the file open, so that the step can be read though its name is gone.
class FolderStoreImpl::Reader : public StepReader {
 public:
  explicit Reader(OpenStep open)
      : open_(std::move(open)), transfer_(*open_.opened.file, open_.path, 1, no_pace_) {}
  void read(std::uint64_t offset, std::span<std::byte> into) override {
    const std::uint64_t bytes = open_.front.info.bytes;
    if (offset > bytes || into.size() > bytes - offset) {
      throw Error(Errc::invalid_argument, concat("'", open_.path, "' has ", bytes, " bytes, not ",
                                                 into.size(), " behind ", offset));
    }
    transfer_.read_range(open_.front, offset, into);
  }

 private:
  const Pace no_pace_{};
  OpenStep open_;
  BlobTransfer transfer_;
};

std::unique_ptr<StepReader> FolderStoreImpl::open_reader(Step step) const {
  check_usable("read", false);
  return std::make_unique<Reader>(open_checked(step));
}

bool FolderStoreImpl::read(Step step, std::span<std::byte> into, const Pace& pace) {
  check_usable("read", false);
  const std::uint64_t bytes = entry_of(step).info.bytes;
  if (into.size() != bytes) {
    throw Error(Errc::invalid_argument, concat("step ", step, " has ", bytes, " bytes, and ",
                                               into.size(), " are to be filled"));
  }
  return transfer(
      step, transfer_.threads,
      [&](BlobTransfer& transfer, const Front& front) { return transfer.read(front, into); }, pace);
}

bool FolderStoreImpl::read_chunks(Step step, const Room& room, const Take& take, const Pace& pace) {
  check_usable("read", false);
  return transfer(
      step, 1,
      [&](BlobTransfer& transfer, const Front& front) { return transfer.read(front, room, take); },
      pace);
}

bool FolderStoreImpl::verify(Step step, const Pace& pace) {
  check_usable("verify", false);
  return transfer(
      step, transfer_.threads,
      [](BlobTransfer& transfer, const Front& front) {
        return transfer.read(front, std::span<std::byte>());
      },
      pace);
}

std::optional<StepInfo> FolderStoreImpl::find(Step step) const {
  const std::lock_guard lock(state_);
  const auto found = entries_.find(step);
  if (found == entries_.end()) return std::nullopt;
  return found->second.info;
}

std::vector<StepInfo> FolderStoreImpl::steps() const {
  const std::lock_guard lock(state_);
  std::vector<StepInfo> all;
  all.reserve(entries_.size());
  for (const auto& [step, entry] : entries_) all.push_back(entry.info);
  return all;
}

std::optional<Step> FolderStoreImpl::latest() const {
  const std::lock_guard lock(state_);
  const auto last = std::max_element(
      entries_.begin(), entries_.end(),
      [](const auto& a, const auto& b) { return a.second.sequence < b.second.sequence; });
  if (last == entries_.end()) return std::nullopt;
  return last->first;
}

std::uint64_t FolderStoreImpl::bytes_used() const {
  const std::lock_guard lock(state_);
  std::uint64_t bytes = 0;
  for (const auto& [step, entry] : entries_) bytes += entry.file_bytes;
  return bytes;
}

std::vector<DamagedFile> FolderStoreImpl::damaged() const {
  const std::lock_guard lock(state_);
  std::vector<DamagedFile> all;
  all.reserve(damaged_.size());
  for (const auto& [step, file] : damaged_) all.push_back(file);
  return all;
}

}  // namespace

std::unique_ptr<FolderStore> open_folder_store(std::unique_ptr<Folder> folder,
                                               const FolderOptions& options,
                                               const TransferOptions& transfer) {
  return std::make_unique<FolderStoreImpl>(std::move(folder), options, transfer);
}

std::unique_ptr<FolderStore> open_folder_store(const std::string& path,
                                               const FolderOptions& options) {
  if (options.read_only) return open_folder_store(open_folder(path), options, {});
  const bool made = ::mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) throw core::system_error(errno, "make the folder", path);
  std::unique_ptr<Folder> folder = open_folder(path);
  // Without its own name nothing in it would be found again. Whoever made the folder may have died
  // before that was durable; once it has a history, it was.
  if (made || folder->look_for(kHistoryFile) == ENOENT) core::sync_folder_of(folder->path());
  return open_folder_store(std::move(folder), options, {});
}

}  // namespace holdfast::history

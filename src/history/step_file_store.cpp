#include "history/step_file_store.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/files.hpp"
#include "core/uuid.hpp"

namespace holdfast::history {

using detail::concat;

// ---- Opening ------------------------------------------------------------------------------------

StepFileStore::StepFileStore(bool read_only, const std::string& name,
                             const TransferOptions& transfer)
    : read_only_(read_only), transfer_(transfer) {
  if (name.size() >= kHistoryNameBytes || name.find('\0') != std::string::npos) {
    throw Error(Errc::invalid_argument,
                concat("a history's name has at most ", kHistoryNameBytes - 1,
                       " bytes, none of them zero, unlike '", name, "'"));
  }
}

void StepFileStore::load_header(const Folder::Opened& opened) {
  if (!opened.file) throw core::system_error(opened.error, "open", path_of(kHistoryFile));
  header_ = read_history_header(*opened.file, path_of(kHistoryFile));
}

void StepFileStore::check_name(const std::string& wanted) const {
  if (wanted.empty() || wanted == header_.name) return;
  throw Error(Errc::invalid_argument,
              concat("the history in '", path(), "' is called '", header_.name, "', and not '",
                     wanted, "'; give its own name, or another folder"));
}

void StepFileStore::refuse_other_file(const std::string& name) const {
  throw Error(Errc::foreign,
              concat("'", path(), "' is no history: it has files, such as '", name, "', and no ",
                     kHistoryFile, "; give an empty folder, or one that is not there yet"));
}

void StepFileStore::scan_step(Step step, const std::string& name, const Folder::Opened& opened) {
  const std::string file = path_of(name);
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
    const std::lock_guard lock(state_);
    entries_[step] = {front.info, front.sequence, front.file_bytes()};
  } catch (const Error& error) {
    if (error.code() == Errc::no_memory || !is_of_file(error)) throw;
    const std::lock_guard lock(state_);
    damaged_[step] = {file, step, error.code(), error.what()};
  }
}

void StepFileStore::begin_sequence() {
  for (const auto& [step, entry] : entries_) {
    last_sequence_ = std::max(last_sequence_, entry.sequence);
  }
}

// ---- Writing ------------------------------------------------------------------------------------

void StepFileStore::check_usable(const char* what, bool for_writing) const {
  if (!maker_.is_this_process()) {
    maker_.refuse(concat("the history in '", path(), "'"), "open it in the child");
  }
  if (for_writing && read_only_) {
    throw Error(Errc::unsupported, concat(what, ": the history in '", path(),
                                          "' is open for reading; open it for writing"));
  }
}

// REQUIRES: state_ is held.
void StepFileStore::check_free(Step step) const {
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
class StepFileStore::Claim {
 public:
  Claim(StepFileStore& store, Step step) : store_(store), step_(step) {
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
  StepFileStore& store_;
  const Step step_;
};

bool StepFileStore::write(const StepInfo& info, std::span<const std::byte> blob, const Pace& pace) {
  check_usable("write", true);
  check_info(info);
  if (blob.size() != info.bytes) {
    throw Error(Errc::invalid_argument, concat("step ", info.step, " is said to have ", info.bytes,
                                               " bytes, and ", blob.size(), " were given"));
  }
  return write_step(info, {blob, nullptr, {}}, pace);
}

bool StepFileStore::write_chunks(const StepInfo& info, const Fill& fill, const Pace& pace,
                                 const ChunkHashes& hashes) {
  check_usable("write", true);
  check_info(info);
  return write_step(info, {{}, &fill, hashes}, pace);
}

bool StepFileStore::write_step(const StepInfo& info, const Blob& blob, const Pace& pace) {
  const Claim claim(*this, info.step);
  Front front;
  front.info = info;
  front.history = header_.uuid;
  front.chunk_bytes = transfer_.chunk_bytes;
  Entries entry;  // made before the commit, behind which nothing may fail
  Entry& made = entry[info.step] = {info, 0, front.file_bytes()};
  try {
    if (!write_file(front, blob, pace)) return false;
  } catch (const Error& error) {
    if (error.code() != Errc::no_space) throw;
    throw Error(Errc::no_space,
                concat("step ", info.step, " takes ", front.file_bytes(), " bytes in '", path(),
                       "', which are not there: ", error.what()));
  }
  made.sequence = front.sequence;
  const std::lock_guard lock(state_);
  entries_.merge(entry);  // which one that was found while it was to be written has already
  return true;
}

// The clock, since a step whose file could not be read now may have a number that is not known, and
// may be read the next time; more than the last, since clocks are set back.
std::uint64_t StepFileStore::take_sequence() {
  if (last_sequence_ >= core::kMaxGeneration) {
    throw Error(Errc::damaged, concat("a step in '", path(),
                                      "' has the last sequence number, which no clock has come to: "
                                      "a forged file; remove that step"));
  }
  last_sequence_ = std::max(last_sequence_ + 1, now_ns());
  return last_sequence_;
}

// A file that was to be taken back, and stands there still: whole, perhaps not durable, and not
// offered. Who writes the step again removes it first.
void StepFileStore::note_leftover(Step step, const Error& error) {
  const std::lock_guard lock(state_);
  damaged_[step] = {path_of(step_file_name(step)), step, Errc::damaged,
                    concat("the write of step ", step,
                           " failed and could not be undone: ", error.what(), "; remove it")};
}

void StepFileStore::refuse_to_remove(Step step) const {
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

void StepFileStore::forget(Step step) {
  const std::lock_guard lock(state_);
  entries_.erase(step);
  damaged_.erase(step);
}

void StepFileStore::forget_all() {
  const std::lock_guard lock(state_);
  entries_.clear();
  damaged_.clear();
}

// ---- Reading ------------------------------------------------------------------------------------

StepFileStore::Entry StepFileStore::entry_of(Step step) const {
  const std::lock_guard lock(state_);
  const auto found = entries_.find(step);
  if (found != entries_.end()) return found->second;
  if (const auto bad = damaged_.find(step); bad != damaged_.end()) {
    throw Error(bad->second.code, bad->second.reason);
  }
  throw Error(Errc::not_found, concat("step ", step, " is not in '", path(), "'"));
}

Folder::Opened StepFileStore::open_step(Step step) const {
  const std::string name = step_file_name(step);
  Folder::Opened opened = open_file(name);
  if (opened.file) return opened;
  if (opened.error != ENOENT) throw core::system_error(opened.error, "open", path_of(name));
  throw Error(Errc::not_found, concat("'", path_of(name),
                                      "' was removed since the history was opened; open it again"));
}

StepFileStore::OpenStep StepFileStore::open_checked(Step step) const {
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

bool StepFileStore::transfer(Step step, unsigned threads, const ReadBlob& blob, const Pace& pace) {
  const OpenStep open = open_checked(step);
  if (threads == 1) open.opened.file->expect_reads_in_order(open.front.chunk_bytes);
  BlobTransfer transfer(*open.opened.file, open.path, threads, pace);
  return blob(transfer, open.front);
}

// Has the file open, so that the step can be read though its name is gone.
class StepFileStore::Reader : public StepReader {
 public:
  explicit Reader(OpenStep open)
      : open_(std::move(open)), transfer_(*open_.opened.file, open_.path, 1, no_pace_) {}
  ChunkHashes hashes() const override { return {open_.front.chunk_bytes, open_.front.hashes}; }
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

std::unique_ptr<StepReader> StepFileStore::open_reader(Step step) const {
  check_usable("read", false);
  return std::make_unique<Reader>(open_checked(step));
}

bool StepFileStore::read(Step step, std::span<std::byte> into, const Pace& pace) {
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

bool StepFileStore::read_chunks(Step step, const Room& room, const Take& take, const Pace& pace,
                                unsigned threads) {
  check_usable("read", false);
  return transfer(
      step, std::min(threads, transfer_.threads),
      [&](BlobTransfer& transfer, const Front& front) { return transfer.read(front, room, take); },
      pace);
}

bool StepFileStore::verify(Step step, const Pace& pace) {
  check_usable("verify", false);
  return transfer(
      step, transfer_.threads,
      [](BlobTransfer& transfer, const Front& front) {
        return transfer.read(front, std::span<std::byte>());
      },
      pace);
}

std::optional<StepInfo> StepFileStore::find(Step step) const {
  const std::lock_guard lock(state_);
  const auto found = entries_.find(step);
  if (found == entries_.end()) return std::nullopt;
  return found->second.info;
}

std::vector<StepInfo> StepFileStore::steps() const {
  const std::lock_guard lock(state_);
  std::vector<StepInfo> all;
  all.reserve(entries_.size());
  for (const auto& [step, entry] : entries_) all.push_back(entry.info);
  return all;
}

std::optional<Step> StepFileStore::latest() const {
  const std::lock_guard lock(state_);
  const auto last = std::max_element(
      entries_.begin(), entries_.end(),
      [](const auto& a, const auto& b) { return a.second.sequence < b.second.sequence; });
  if (last == entries_.end()) return std::nullopt;
  return last->first;
}

std::uint64_t StepFileStore::bytes_used() const {
  const std::lock_guard lock(state_);
  std::uint64_t bytes = 0;
  for (const auto& [step, entry] : entries_) bytes += entry.file_bytes;
  return bytes;
}

std::vector<DamagedFile> StepFileStore::damaged() const {
  const std::lock_guard lock(state_);
  std::vector<DamagedFile> all;
  all.reserve(damaged_.size());
  for (const auto& [step, file] : damaged_) all.push_back(file);
  return all;
}

}  // namespace holdfast::history

#include "history/folder_store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "history/step_file_store.hpp"

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

class FolderStoreImpl : public StepFileStore {
 public:
  FolderStoreImpl(std::unique_ptr<Folder> folder, const FolderOptions& options,
                  const TransferOptions& transfer);

  void remove(Step step) override;
  const std::string& path() const override { return folder_->path(); }

 private:
  Folder::Opened open_file(const std::string& name) const override { return folder_->open(name); }
  bool write_file(Front& front, const Blob& blob, const Pace& pace) override;

  std::vector<std::string> list() const;
  void make_history(const std::string& name);
  void refuse_other_files(const std::vector<std::string>& names) const;
  void remove_remains(const std::vector<std::string>& names);

  const std::unique_ptr<Folder> folder_;
  std::mutex naming_;  // over every change of a name, with its sync, and the sequence numbers
};

// ---- Opening ------------------------------------------------------------------------------------

FolderStoreImpl::FolderStoreImpl(std::unique_ptr<Folder> folder, const FolderOptions& options,
                                 const TransferOptions& transfer)
    : StepFileStore(options.read_only, options.name, transfer), folder_(std::move(folder)) {
  std::vector<std::string> names = list();
  // Whatever is refused is refused before anything changes, the lock's file included.
  if (contains(names, kHistoryFile)) {
    load_header(folder_->open(kHistoryFile));
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
      load_header(folder_->open(kHistoryFile));
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
  for (const std::string& name : names) {
    if (const std::optional<Step> step = step_of_file_name(name)) {
      scan_step(*step, name, folder_->open(name));
    }
  }
  begin_sequence();
}

std::vector<std::string> FolderStoreImpl::list() const {
  std::vector<std::string> names;
  const int error = folder_->list(names);
  if (error != 0) throw core::system_error(error, "list the folder", path());
  return names;
}

void FolderStoreImpl::refuse_other_files(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (name == kLockFile || is_temporary_name(name)) continue;
    refuse_other_file(name);
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

// ---- Writing ------------------------------------------------------------------------------------

bool FolderStoreImpl::write_file(Front& front, const Blob& blob, const Pace& pace) {
  NewStepFile made(*folder_, step_file_name(front.info.step));
  const auto throw_if = [&](int error, const char* action) {
    if (error != 0) throw core::system_error(error, action, made.path());
  };
  throw_if(made.file().reserve(front.file_bytes()), "take the space for");
  const unsigned threads = blob.fill != nullptr ? 1 : transfer_.threads;
  BlobTransfer transfer(made.file(), made.path(), threads, pace);
  if (!(blob.fill != nullptr ? transfer.write(front, *blob.fill)
                             : transfer.write(front, blob.bytes))) {
    return false;
  }
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

void FolderStoreImpl::remove(Step step) {
  check_usable("remove", true);
  const std::lock_guard naming(naming_);
  refuse_to_remove(step);
  const std::string name = step_file_name(step);
  const int error = folder_->unlink(name);
  if (error != 0 && error != ENOENT) throw core::system_error(error, "remove", path_of(name));
  forget(step);
  if (const int failed = folder_->sync(); failed != 0) {
    throw core::system_error(
        failed, concat("sync the folder (step ", step, " may be back after a power cut)"), path());
  }
}

}  // namespace

std::unique_ptr<StepStore> open_folder_store(std::unique_ptr<Folder> folder,
                                             const FolderOptions& options,
                                             const TransferOptions& transfer) {
  return std::make_unique<FolderStoreImpl>(std::move(folder), options, transfer);
}

std::unique_ptr<StepStore> open_folder_store(const std::string& path,
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

#include "simulated_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace holdfast::test {

using Kind = FolderLife::Kind;
using Fault = FolderLife::Fault;

// Depth first: the last choice that has another option takes it, and those behind it begin anew.
void AllChoices::for_each(const std::function<bool(const Choose&)>& body) {
  chosen_.clear();
  for (;;) {
    std::size_t next = 0;
    const bool goes_on = body([&](std::uint64_t options) {
      if (next == chosen_.size()) chosen_.emplace_back(0, options);
      return chosen_[next++].first;
    });
    while (!chosen_.empty() && chosen_.back().first + 1 == chosen_.back().second) {
      chosen_.pop_back();
    }
    if (!goes_on || chosen_.empty()) return;
    ++chosen_.back().first;
  }
}

// ---- Files --------------------------------------------------------------------------------------

void Inode::apply(const Change& change, Bytes& to, std::size_t from, std::size_t until) {
  if (to.size() < change.offset + until) to.resize(change.offset + until);
  std::copy(change.bytes.begin() + static_cast<std::ptrdiff_t>(from),
            change.bytes.begin() + static_cast<std::ptrdiff_t>(until),
            to.begin() + static_cast<std::ptrdiff_t>(change.offset + from));
}

void Inode::write(std::uint64_t offset, const std::byte* from, std::size_t bytes) {
  if (shown_.size() < offset + bytes) resize(offset + bytes);
  std::memcpy(shown_.data() + offset, from, bytes);
  pending_.push_back({true, offset, Bytes(from, from + bytes)});
}

void Inode::resize(std::uint64_t bytes) {
  shown_.resize(bytes);
  pending_.push_back({false, bytes, {}});
}

void Inode::sync() {
  std::erase_if(pending_, [&](const Change& change) {
    if (!change.dirty) return false;
    if (change.is_write) {
      apply(change, sure_, 0, change.bytes.size());
    } else {
      sure_.resize(change.offset);
    }
    return true;
  });
}

void Inode::fail_sync() {
  for (Change& change : pending_) change.dirty = false;
}

Bytes Inode::after_cut(const Choose& choose) const {
  Bytes bytes = sure_;
  std::uint64_t length = sure_.size();
  for (const Change& change : pending_) {
    if (!change.is_write) {
      if (choose(2) == 1) length = change.offset;
      continue;
    }
    const std::size_t all = change.bytes.size();
    const std::uint64_t how = choose(4);
    if (how == 1) apply(change, bytes, 0, all);
    if (how < 2) continue;
    // Torn at a sector, or within one.
    const std::size_t at = std::min<std::size_t>(all, choose(2) == 0 ? 512 : 5);
    if (how == 2) apply(change, bytes, 0, at);
    if (how == 3) apply(change, bytes, at, all);
  }
  bytes.resize(length);
  return bytes;
}

std::shared_ptr<Inode> Inode::of(Bytes bytes) {
  auto inode = std::make_shared<Inode>();
  inode->shown_ = bytes;
  inode->sure_ = std::move(bytes);
  return inode;
}

// ---- Names --------------------------------------------------------------------------------------

FolderDisk::File FolderDisk::find(const std::string& name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) return nullptr;
  return found->second.versions.empty() ? found->second.sure : found->second.versions.back().first;
}

void FolderDisk::set(const std::string& name, File file) {
  names_[name].versions.emplace_back(std::move(file), true);
}

void FolderDisk::sync() {
  for (auto& [name, state] : names_) {
    if (state.versions.empty() || !state.versions.back().second) continue;
    state.sure = state.versions.back().first;
    state.versions.clear();
  }
  std::erase_if(names_, [](const auto& item) {
    return item.second.versions.empty() && item.second.sure == nullptr;
  });
}

void FolderDisk::fail_sync() {
  for (auto& [name, state] : names_) {
    for (auto& version : state.versions) version.second = false;
  }
}

std::vector<std::string> FolderDisk::names() const {
  std::vector<std::string> names;
  for (const auto& [name, state] : names_) {
    if (find(name) != nullptr) names.push_back(name);
  }
  return names;
}

FolderDisk FolderDisk::after_cut(const Choose& choose) const {
  FolderDisk left;
  std::map<const Inode*, File> files;  // one that has two names stays one
  for (const auto& [name, state] : names_) {
    const std::uint64_t version = state.versions.empty() ? 0 : choose(state.versions.size() + 1);
    const File& file = version == 0 ? state.sure : state.versions[version - 1].first;
    if (file == nullptr) continue;
    File& copy = files[file.get()];
    if (copy == nullptr) copy = Inode::of(file->after_cut(choose));
    left.names_[name] = {copy, {}};
  }
  return left;
}

// ---- A process ----------------------------------------------------------------------------------

Fault FolderLife::begin(Kind kind) {
  const std::uint64_t number = operations++;
  if (dead() || number != fail_at) return Fault::none;
  fault_struck = true;
  struck = kind;
  const bool moves = kind == Kind::read || kind == Kind::write;
  // What has no part that could be moved has no other way to fail.
  if (!moves && fault != Fault::error) {
    fault_struck = false;
    return Fault::none;
  }
  return fault;
}

namespace {

class SimulatedFile : public history::FolderFile {
 public:
  SimulatedFile(std::shared_ptr<FolderLife> life, FolderDisk::File file)
      : life_(std::move(life)), file_(std::move(file)) {}

  std::int64_t read(void* to, std::size_t bytes, std::uint64_t offset) override {
    const Fault fault = life_->begin(Kind::read);
    if (life_->dead() || fault == Fault::error) return life_->dead() ? -EIO : -life_->error;
    if (fault == Fault::torn) return -EIO;
    if (fault == Fault::interrupted) return -EINTR;
    const Bytes& from = file_->shown();
    if (offset >= from.size()) return 0;
    bytes = std::min<std::size_t>(bytes, from.size() - offset);
    if (fault == Fault::short_transfer) bytes = (bytes + 1) / 2;
    std::memcpy(to, from.data() + offset, bytes);
    return static_cast<std::int64_t>(bytes);
  }
  std::int64_t write(const void* from, std::size_t bytes, std::uint64_t offset) override {
    const Fault fault = life_->begin(Kind::write);
    if (life_->dead()) return -EIO;
    if (fault == Fault::interrupted) return -EINTR;
    if (fault == Fault::error) return -life_->error;
    if (fault == Fault::short_transfer || fault == Fault::torn) bytes = (bytes + 1) / 2;
    file_->write(offset, static_cast<const std::byte*>(from), bytes);
    life_->on_done();
    return fault == Fault::torn ? -life_->error : static_cast<std::int64_t>(bytes);
  }
  int reserve(std::uint64_t bytes) override {
    if (const int error = begin(Kind::reserve)) return error;
    file_->resize(bytes);
    life_->on_done();
    return 0;
  }
  std::int64_t size() override {
    if (const int error = begin(Kind::size)) return -error;
    return static_cast<std::int64_t>(file_->shown().size());
  }
  int sync() override {
    if (const int error = begin(Kind::sync_file)) {
      if (!life_->dead()) file_->fail_sync();
      return error;
    }
    if (!life_->omit_file_sync) file_->sync();
    life_->on_done();
    return 0;
  }

 private:
  int begin(Kind kind) {
    const Fault fault = life_->begin(kind);
    return life_->dead() ? EIO : fault == Fault::error ? life_->error : 0;
  }
  std::shared_ptr<FolderLife> life_;
  FolderDisk::File file_;
};

int begin_in(FolderLife& life, Kind kind) {
  const Fault fault = life.begin(kind);
  return life.dead() ? EIO : fault == Fault::error ? life.error : 0;
}

}  // namespace

history::Folder::Opened SimulatedFolder::open(const std::string& name) {
  if (const int error = begin_in(*life_, Kind::open)) return {nullptr, error};
  FolderDisk::File file = life_->disk.find(name);
  if (file == nullptr) return {nullptr, ENOENT};
  return {std::make_unique<SimulatedFile>(life_, std::move(file)), 0};
}

history::Folder::Opened SimulatedFolder::create(const std::string& name) {
  if (const int error = begin_in(*life_, Kind::create)) return {nullptr, error};
  if (life_->disk.find(name) != nullptr) return {nullptr, EEXIST};
  auto file = std::make_shared<Inode>();
  life_->disk.set(name, file);
  life_->on_done();
  return {std::make_unique<SimulatedFile>(life_, std::move(file)), 0};
}

int SimulatedFolder::look_for(const std::string& name) {
  if (const int error = begin_in(*life_, Kind::look_for)) return error;
  return life_->disk.find(name) != nullptr ? 0 : ENOENT;
}

int SimulatedFolder::rename(const std::string& from, const std::string& to) {
  if (const int error = begin_in(*life_, Kind::rename)) return error;
  FolderDisk::File file = life_->disk.find(from);
  if (file == nullptr) return ENOENT;
  life_->disk.set(to, std::move(file));
  life_->disk.set(from, nullptr);
  life_->on_done();
  return 0;
}

int SimulatedFolder::unlink(const std::string& name) {
  if (const int error = begin_in(*life_, Kind::unlink)) return error;
  if (life_->disk.find(name) == nullptr) return ENOENT;
  life_->disk.set(name, nullptr);
  life_->on_done();
  return 0;
}

int SimulatedFolder::sync() {
  if (const int error = begin_in(*life_, Kind::sync)) {
    if (!life_->dead()) life_->disk.fail_sync();
    return error;
  }
  if (!life_->omit_folder_sync) life_->disk.sync();
  life_->on_done();
  return 0;
}

int SimulatedFolder::list(std::vector<std::string>& names) {
  if (const int error = begin_in(*life_, Kind::list)) return error;
  names = life_->disk.names();
  return 0;
}

}  // namespace holdfast::test

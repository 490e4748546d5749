// What a region is to its domain: one implementation of RegionDomain for each, chosen in
// domain.cpp. docs/architecture.md says how to add one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/block_store.hpp"
#include "core/directory.hpp"
#include "core/marks.hpp"
#include "core/medium.hpp"
#include "core/pending_writers.hpp"
#include "core/uuid.hpp"
#include "holdfast/region.hpp"
#include "holdfast/testing/throttle.hpp"

namespace holdfast::core {

// What the file domain finds around it. Tests put others in their place.
struct Surroundings {
  MakeStore make_store = make_file_store;
  std::function<Uuid()> boot = this_boot;
};

// What a region stands for in an experiment; null: what it is.
using Model = std::shared_ptr<const testing::MediumModel>;
testing::MediumModel model_of(const Model& model);

// Who uses an object that has one user at a time, and may have something under way.
class User {
 public:
  virtual void settle() noexcept = 0;  // waits for that

 protected:
  ~User() = default;
};

// Who of this process may use the objects that have one user at a time: who asked last. Thread
// safety: any.
class Users {
 public:
  // Waits for what the user of the object has under way, if it has one.
  void settle(std::uint64_t offset) const {
    const std::lock_guard lock(mutex_);
    const auto found = users_.find(offset);
    if (found != users_.end() && found->second.user) found->second.user->settle();
  }
  std::uint64_t take_over(std::uint64_t offset, User* user) {
    const std::lock_guard lock(mutex_);
    users_[offset] = {++last_, user, false};
    return last_;
  }
  void leave(std::uint64_t offset, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = users_.find(offset);
    if (found == users_.end() || found->second.number != number) return;
    found->second.user = nullptr;
    found->second.is_lent = false;
  }
  // Whether kernels that nobody is told of may use what the user has, so that no other may take
  // over. It ends with the user.
  void lend(std::uint64_t offset, std::uint64_t number, bool is_lent) {
    const std::lock_guard lock(mutex_);
    const auto found = users_.find(offset);
    if (found != users_.end() && found->second.number == number) found->second.is_lent = is_lent;
  }
  // Whoever is its user is none from here on, once what it has under way has ended.
  void end(std::uint64_t offset) {
    const std::lock_guard lock(mutex_);
    const auto found = users_.find(offset);
    if (found == users_.end()) return;
    if (found->second.user) found->second.user->settle();
    found->second = {++last_, nullptr, false};
  }
  bool is_lent(std::uint64_t offset) const {
    const std::lock_guard lock(mutex_);
    const auto found = users_.find(offset);
    return found != users_.end() && found->second.is_lent;
  }
  bool is_user(std::uint64_t offset, std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto found = users_.find(offset);
    return found != users_.end() && found->second.number == number;
  }
  // The region ends: nobody is a user any more.
  void clear() noexcept {
    const std::lock_guard lock(mutex_);
    users_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::uint64_t last_ = 0;
  struct Entry {
    std::uint64_t number;
    User* user;  // null: it has nothing under way, or has left
    bool is_lent = false;
  };
  std::map<std::uint64_t, Entry> users_;  // by offset of the object
};

// A region that is open, as its domain keeps it. Ends as a crash would end it, unless it is closed.
//
// Thread safety: as of Region.
class RegionDomain {
 public:
  virtual ~RegionDomain() = default;

  virtual Domain domain() const = 0;
  virtual Medium& medium() = 0;
  virtual Directory& directory() = 0;
  // Guards directory, marks and the handing out of space.
  std::mutex& mutex() { return mutex_; }
  PendingWriters& pending() { return pending_; }
  testing::Throttle& throttle() { return throttle_; }
  const std::shared_ptr<Users>& users() { return users_; }

  // Makes free space ready for an object: zero, and of the next commit. REQUIRES: mutex() is held.
  void hand_out(std::uint64_t from, std::uint64_t to);
  // Waits for pending writers.
  void settle();
  // A writer that began behind the last commit() has been added to pending().
  virtual void writer_registered() noexcept {}
  // As RegionAccess has it.
  virtual void writer_begins() {}

  // As the functions of Region.
  virtual Commit commit(Stream& stream) = 0;
  virtual CommitStats commit() = 0;
  virtual std::uint64_t generation() const = 0;
  virtual Guarantee guarantee() const = 0;
  // REQUIRES: settle(). On an exception nothing has been let go.
  virtual void close() = 0;

  // In a forked child: lets go of what keeps the region from others, and changes nothing of it.
  // What is left can only be leaked.
  virtual void leave_to_maker() noexcept {}

  // Null: no commit looks at marks.
  virtual MarkMap* marks() { return nullptr; }
  // The next commit does not rely on marks.
  virtual void compare_everything() {}

 protected:
  explicit RegionDomain(const Model& medium = {}) : throttle_(model_of(medium)) {}
  // From there on free space has never been handed out since it was zeroed.
  void set_zero_from(std::uint64_t offset) { zero_from_ = offset; }

 private:
  std::mutex mutex_;
  PendingWriters pending_;
  testing::Throttle throttle_;
  std::shared_ptr<Users> users_ = std::make_shared<Users>();
  std::uint64_t zero_from_ = kMetadataBytes;
};

// A region that is used where it is kept: a medium, and the directory in it. By itself it has no
// commits.
class InPlaceDomain : public RegionDomain {
 public:
  // Throws as Directory::load().
  InPlaceDomain(Domain domain, std::string path, std::unique_ptr<Medium> medium,
                const Model& model = {});

  Domain domain() const override { return domain_; }
  Medium& medium() override { return *medium_; }
  Directory& directory() override { return *directory_; }
  Commit commit(Stream& stream) override;  // throws unsupported
  CommitStats commit() override;           // throws unsupported
  std::uint64_t generation() const override { return 0; }
  Guarantee guarantee() const override { return medium_->guarantee(); }
  void close() override {}

 private:
  const Domain domain_;
  const std::string path_;
  std::unique_ptr<Medium> medium_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Stream> stream_;  // for commits on the host's behalf
};

// Writes the header of a new region and an empty directory. REQUIRES: the metadata is zero.
std::unique_ptr<Medium> formatted(std::unique_ptr<Medium> medium);

struct NewRegion {
  const std::string& path;
  std::uint64_t size;      // whole pages
  std::uint64_t max_size;  // as checked_max_size() has it
  const RegionOptions& options;
  const Surroundings& around;
};

struct FoundRegion {
  const std::string& path;
  const OpenOptions& options;
  const Surroundings& around;
  OpenReport& report;  // is filled in
};

// A domain before there is a region of it. Those that keep nothing have no open() and destroy().
struct DomainKind {
  Domain domain;
  const char* name;
  std::unique_ptr<RegionDomain> (*create)(const NewRegion& region);
  // Whether what is at `path` is of this domain. Does not open devices, follow links, block or
  // throw.
  bool (*has)(const std::string& path) = nullptr;
  std::unique_ptr<RegionDomain> (*open)(const FoundRegion& region) = nullptr;
  void (*destroy)(const std::string& path, const OpenOptions& options) = nullptr;
};

extern const DomainKind kFileDomain;
extern const DomainKind kDaxDomain;
extern const DomainKind kDeviceDomain;
extern const DomainKind kEmulatedDomain;

// Null for a number that is no domain's.
const DomainKind* kind_of(Domain domain) noexcept;
// Of what is at `path`. What is of no domain, or not there, is the file domain's to refuse.
const DomainKind& kind_at(const std::string& path);
// Throws invalid_argument if what is at `path` is of another domain.
void check_kind(const std::string& path, const DomainKind& wanted);
// Of a region to be made at `path` by interfaces that have no word for domains.
Domain domain_for(const std::string& path);

// Space for grow(): `wanted`, or four times the size. Throws invalid_argument.
std::uint64_t checked_max_size(std::uint64_t size, std::uint64_t wanted);

}  // namespace holdfast::core

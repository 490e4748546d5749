// Regions in surroundings that a test supplies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/directory.hpp"
#include "core/domain.hpp"
#include "holdfast/region.hpp"

namespace holdfast::core {

// That an object is used, until another takes it over or the region ends, which it may outlive.
class Use {
 public:
  Use() = default;
  Use(std::shared_ptr<Users> users, std::uint64_t offset, std::uint64_t number)
      : users_(std::move(users)), offset_(offset), number_(number) {}
  Use(Use&&) noexcept = default;
  Use& operator=(Use&& other) noexcept {
    std::swap(users_, other.users_);
    std::swap(offset_, other.offset_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~Use() {
    if (users_) users_->leave(offset_, number_);
  }
  void lend(bool is_lent) {
    if (users_) users_->lend(offset_, number_, is_lent);
  }
  bool lasts() const { return users_ && users_->is_user(offset_, number_); }

 private:
  std::shared_ptr<Users> users_;
  std::uint64_t offset_ = 0;
  std::uint64_t number_ = 0;
};

// What a structure says whose use has ended.
inline constexpr const char* kEnded =
    ": another of this process has opened it, or its region, since: use that; or it was removed";

struct RegionAccess {
  // As the functions of Region; of domains only the file domain has surroundings.
  static Region create(const std::string& path, const RegionOptions& options,
                       const Surroundings& around);
  static Region open(const std::string& path, const OpenOptions& options,
                     const Surroundings& around);
  static Region open_or_create(const std::string& path, const RegionOptions& options,
                               const OpenOptions& opening, const Surroundings& around);

  // As Directory::rename(): a kill leaves all of it done, or nothing. Throws not_found, unsupported
  // (a region that is open for reading).
  static void rename(const Region& region, const std::vector<Renaming>& names);

  // Before the first work of a writer that pending() is told of behind its last, and which commits
  // may meet that are on their way. By itself pending() has to suppose more of them.
  static void writer_begins(const Region& region);

  static testing::Throttle& throttle(const Region& region);

  // Of an object that has one user at a time: waits for what its user has under way. Throws
  // not_found.
  static void settle_user(const Region& region, std::string_view object);
  // From now on the caller is its user, and whoever was that before is not. `user`, if it is not
  // null, outlives the result. Throws not_found.
  static Use take_over(const Region& region, std::string_view object, User* user = nullptr);
  // Whether its user has lent it to kernels (Use::lend()). Throws not_found.
  static bool is_lent(const Region& region, std::string_view object);
};

}  // namespace holdfast::core

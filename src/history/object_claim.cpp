#include "history/object_claim.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "core/uuid.hpp"
#include "history/step_file.hpp"

namespace holdfast::history {

using detail::concat;

namespace {

constexpr char kFirstLine[] = "holdfast history lock 1";
constexpr std::size_t kMostBytes = 4096;
constexpr int kAttempts = 4;  // at taking what another has just given up

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "unknown";
}

ObjectStore::Source source_of(const std::string& text) {
  return [&text, at = std::size_t{0}](std::span<std::byte> part) mutable {
    std::memcpy(part.data(), text.data() + at, part.size());
    at += part.size();
  };
}

std::string seconds(std::chrono::nanoseconds time) {
  return concat(std::chrono::duration_cast<std::chrono::seconds>(time).count(), " s");
}

}  // namespace

// Lines of a word and what it says, so that people can read it.
std::string ObjectClaim::encode(const Owner& owner) {
  return concat(kFirstLine, "\nid ", owner.id, "\nhost ", owner.host, "\nboot ",
                core::to_text(owner.boot), "\nprocess ", owner.process.pid, ' ',
                owner.process.start, ' ', owner.process.pid_namespace, "\n");
}

std::optional<ObjectClaim::Owner> ObjectClaim::decode(const std::string& text) {
  std::istringstream in(text);
  std::string line, word, boot;
  Owner owner;
  if (!std::getline(in, line) || line != kFirstLine) return std::nullopt;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    words >> word;
    if (word == "id") words >> owner.id;
    if (word == "host") words >> owner.host;
    if (word == "boot") words >> boot;
    if (word == "process") {
      words >> owner.process.pid >> owner.process.start >> owner.process.pid_namespace;
    }
    if (words.fail()) return std::nullopt;
  }
  if (owner.id.empty()) return std::nullopt;
  const core::Uuid here = core::this_boot();
  if (boot == core::to_text(here)) owner.boot = here;  // of others it does not matter which
  return owner;
}

std::string ObjectClaim::path() const { return objects_.path() + "/" + kLockFile; }

// Throws not_found.
std::string ObjectClaim::text_of_lock() const {
  std::string text(kMostBytes, '\0');
  const std::size_t bytes =
      objects_.read(kLockFile, 0, std::as_writable_bytes(std::span(text.data(), text.size())));
  text.resize(std::min(bytes, text.size()));
  return text;
}

ObjectClaim::ObjectClaim(ObjectStore& objects, std::chrono::milliseconds lease)
    : objects_(objects), lease_(lease) {
  own_ = {core::to_text(core::new_uuid()), host_name(), core::this_boot(), core::this_process()};
  text_ = encode(own_);
  take();
  renewed_ = Clock::now();
  thread_ = std::thread([this] { keep_renewing(); });
}

ObjectClaim::~ObjectClaim() {
  if (!maker_.is_this_process()) {
    thread_.detach();  // it is its maker's, who has the object still
    return;
  }
  {
    const std::lock_guard lock(state_);
    ends_ = true;
  }
  ending_.notify_all();
  thread_.join();
  if (!lost_.empty() || !has_own()) return;
  try {
    objects_.remove(kLockFile);
  } catch (...) {  // it is not renewed, and so ends
  }
}

// Whether the lock is this object's. Throws nothing.
bool ObjectClaim::has_own() const {
  try {
    return is_own(decode(text_of_lock()));
  } catch (...) {
    return false;
  }
}

void ObjectClaim::take() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      if (make()) return;
    } catch (...) {  // perhaps the answer was lost, and nothing else
      if (!has_own()) throw;
      return;
    }
    const std::optional<std::chrono::nanoseconds> time = age();
    if (!time) continue;
    std::optional<Owner> owner;
    try {
      owner = decode(text_of_lock());
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
      continue;
    }
    if (is_own(owner)) return;  // a request that had failed for us, and not for the store
    if (!may_take_over(owner, *time)) refuse(owner, *time);
    objects_.remove(kLockFile);
  }
  throw Error(Errc::in_use, concat("'", path(),
                                   "' goes from hand to hand: several processes open "
                                   "this history for writing; give each a prefix of its own"));
}

// False: there is one.
bool ObjectClaim::make() {
  try {
    return objects_.put_new(kLockFile, std::as_bytes(std::span(text_)));
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
  }
  // Two at once both find nothing. Who comes last has it, and the other finds out when it renews.
  if (objects_.head(kLockFile)) return false;
  replace();
  return true;
}

void ObjectClaim::replace() { objects_.put(kLockFile, text_.size(), source_of(text_)); }

// By the clock of the store, which an object that is made now has the time of. Nothing: there is no
// lock any more.
std::optional<std::chrono::nanoseconds> ObjectClaim::age() const {
  const std::string probe = temporary_name(kHistoryFile);
  objects_.put(probe, 0, [](std::span<std::byte>) {});
  const std::optional<StoredObject> now = objects_.head(probe);
  objects_.remove(probe);
  const std::optional<StoredObject> lock = objects_.head(kLockFile);
  if (!lock) return std::nullopt;
  const std::uint64_t then = lock->modified_unix_ns;
  const bool older = now && now->modified_unix_ns > then;
  return std::chrono::nanoseconds(older ? now->modified_unix_ns - then : 0);
}

bool ObjectClaim::may_take_over(const std::optional<Owner>& owner,
                                std::chrono::nanoseconds age) const {
  const bool is_over = age > lease_;
  if (!owner || owner->boot != own_.boot || owner->process == own_.process) return is_over;
  const auto deadline = Clock::now() + std::chrono::seconds(2);
  switch (core::life_of(owner->process)) {
    case core::Life::running:
      return false;
    case core::Life::ending:  // killed, perhaps, a moment ago
      return core::wait_for_end(owner->process, deadline);
    case core::Life::ended:
      return true;
    case core::Life::unknown:
      break;
  }
  return is_over;
}

void ObjectClaim::refuse(const std::optional<Owner>& owner, std::chrono::nanoseconds age) const {
  const std::string who =
      owner ? concat("process ", owner->process.pid, " on ", owner->host) : "a process";
  throw Error(Errc::in_use, concat("'", objects_.path(), "' is open for writing: ", who,
                                   " has said so ", seconds(age), " ago in '", kLockFile,
                                   "'; wait for its end (of one that was "
                                   "killed on another machine: ",
                                   seconds(lease_), " after that), or give another prefix"));
}

// ---- Renewing -----------------------------------------------------------------------------------

// Throws in_use, and what the store throws.
void ObjectClaim::renew() {
  const std::lock_guard renewing(renewing_);
  const auto begun = Clock::now();
  std::optional<Owner> owner;
  bool there = true;
  try {
    owner = decode(text_of_lock());
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    there = false;  // someone has removed it
  }
  const bool own = there ? is_own(owner) : make();
  const auto lose = [&](const std::optional<Owner>& to) {
    const std::lock_guard lock(state_);
    lost_ = concat("'", objects_.path(), "' was taken over by ",
                   to ? concat("process ", to->process.pid, " on ", to->host) : "another process",
                   ", which found this one silent for ", seconds(lease_),
                   "; nothing more is written there: close this history");
    throw Error(Errc::in_use, lost_);
  };
  if (!own) lose(owner);
  if (there) replace();
  const std::lock_guard lock(state_);
  renewed_ = begun;
}

void ObjectClaim::check() {
  {
    const std::lock_guard lock(state_);
    if (!lost_.empty()) throw Error(Errc::in_use, lost_);
    if (Clock::now() - renewed_ < lease_) return;
  }
  renew();
}

void ObjectClaim::keep_renewing() {
  std::unique_lock lock(state_);
  const auto pause = lease_ / 4;
  for (;;) {
    if (ending_.wait_for(lock, pause, [&] { return ends_; })) return;
    if (!lost_.empty()) return;
    lock.unlock();
    try {
      renew();
    } catch (...) {  // the next write says so, if that matters
    }
    lock.lock();
  }
}

}  // namespace holdfast::history

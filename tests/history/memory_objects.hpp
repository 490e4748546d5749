// An object store in memory that fails when it is told to; any number of threads. What it holds
// outlives the stores that are opened over it, as a server outlives its clients.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/object_store.hpp"

namespace holdfast::test {

// What befalls a request.
enum class Mishap {
  none,
  refused,      // nothing happens, and an error is the answer
  answer_lost,  // it is done, and an error is the answer
  cut_short,  // an upload ends after its first part, a read after half: as above, or too few bytes
  flipped,    // a bit of what is moved changes
  vanished,   // what is written is gone, and the answer is that it is there
  exception,  // of no kind that is known
};

class MemoryObjects : public ObjectStore {
 public:
  struct Object {
    std::vector<std::byte> bytes;
    std::uint64_t modified_ns = 0;
  };

  std::atomic<Mishap> mishap{Mishap::none};
  std::atomic<Errc> code{Errc::io};
  std::atomic<std::uint64_t> first{0}, times{~std::uint64_t{0}};  // of the requests that it befalls
  std::atomic<std::uint64_t> requests{0}, struck{0};
  std::atomic<bool> has_put_new = true;
  std::atomic<std::uint64_t> part_bytes{5000};  // no multiple of anything
  std::atomic<int> uploads_open{0};
  std::atomic<std::uint64_t> room{~std::uint64_t{0}};  // of all objects, in bytes
  std::atomic<unsigned> removal_us{0};                 // that each takes

  void heal() { mishap = Mishap::none; }
  void fail(Mishap how, Errc with = Errc::io) {
    requests = struck = 0;
    first = 0;
    times = ~std::uint64_t{0};
    code = with;
    mishap = how;
  }

  // What a test does behind the back of whoever uses the store.
  std::map<std::string, Object> objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  std::vector<std::byte> bytes_of(const std::string& key) const { return objects().at(key).bytes; }
  bool has(const std::string& key) const { return objects().contains(key); }
  void set(const std::string& key, std::vector<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    objects_[key] = {std::move(bytes), now_ns()};
  }
  void set(const std::string& key, const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    set(key, std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  void make_older(const std::string& key, std::chrono::nanoseconds by) {
    const std::lock_guard lock(mutex_);
    objects_.at(key).modified_ns -= static_cast<std::uint64_t>(by.count());
  }
  void erase(const std::string& key) {
    const std::lock_guard lock(mutex_);
    objects_.erase(key);
  }
  // Listings show these as they are not: not at all, or though they are gone.
  std::set<std::string> unlisted, ghosts;

  // ---- ObjectStore ----

  void put(const std::string& key, std::uint64_t bytes, const Source& source) override {
    const Mishap met = begin(Mishap::refused);
    check_room(bytes);
    struct Open {
      explicit Open(std::atomic<int>& count) : open(count) { ++open; }
      ~Open() { --open; }
      Open(const Open&) = delete;
      Open& operator=(const Open&) = delete;
      std::atomic<int>& open;
    } open(uploads_open);
    std::vector<std::byte> whole(bytes);
    for (std::uint64_t at = 0; at < bytes;) {
      const std::uint64_t part = std::min<std::uint64_t>(part_bytes, bytes - at);
      source(std::span(whole).subspan(at, part));
      at += part;
      if (met == Mishap::cut_short) throw_error();
    }
    if (met == Mishap::flipped && bytes > 0) whole[bytes / 2] ^= std::byte{8};
    if (met != Mishap::vanished) set(key, std::move(whole));
    if (met == Mishap::answer_lost) throw_error();
  }
  bool put_new(const std::string& key, std::span<const std::byte> bytes) override {
    const Mishap met = begin(Mishap::refused);
    if (!has_put_new) throw Error(Errc::unsupported, "no put-if-absent");
    {
      const std::lock_guard lock(mutex_);
      if (objects_.contains(key)) return false;
      if (met != Mishap::vanished) objects_[key] = {{bytes.begin(), bytes.end()}, now_ns()};
    }
    if (met == Mishap::answer_lost) throw_error();
    return true;
  }
  std::size_t read(const std::string& key, std::uint64_t offset,
                   std::span<std::byte> into) override {
    const Mishap met = begin(Mishap::refused);
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) throw Error(Errc::not_found, "no such object");
    const std::vector<std::byte>& bytes = found->second.bytes;
    if (offset >= bytes.size()) return 0;
    std::size_t count = std::min<std::uint64_t>(into.size(), bytes.size() - offset);
    if (met == Mishap::cut_short) count = (count + 1) / 2;
    std::memcpy(into.data(), bytes.data() + offset, count);
    if (met == Mishap::flipped) into[count / 2] ^= std::byte{8};
    if (met == Mishap::answer_lost) throw_error();
    return count;
  }
  std::optional<StoredObject> head(const std::string& key) override {
    begin(Mishap::answer_lost);
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) return std::nullopt;
    return StoredObject{key, found->second.bytes.size(), found->second.modified_ns};
  }
  std::vector<StoredObject> list() override {
    begin(Mishap::answer_lost);
    const std::lock_guard lock(mutex_);
    std::vector<StoredObject> all;
    for (const auto& [key, object] : objects_) {
      if (!unlisted.contains(key)) all.push_back({key, object.bytes.size(), object.modified_ns});
    }
    for (const std::string& key : ghosts) all.push_back({key, 8192, now_ns()});
    return all;
  }
  void remove(const std::string& key) override {
    const Mishap met = begin(Mishap::refused);
    std::this_thread::sleep_for(std::chrono::microseconds(removal_us));
    erase(key);
    if (met == Mishap::answer_lost) throw_error();
  }
  const std::string& path() const override { return path_; }

 private:
  static std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  }
  void check_room(std::uint64_t bytes) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, object] : objects_) bytes += object.bytes.size();
    if (bytes > room) throw Error(Errc::no_space, "507 Insufficient Storage");
  }
  [[noreturn]] void throw_error() const { throw Error(code, "503 Slow Down"); }
  // Throws for `refused`, and for `also`.
  Mishap begin(Mishap also) {
    const std::uint64_t number = requests++;
    const Mishap met = mishap;
    if (met == Mishap::none || number < first || number - first >= times) return Mishap::none;
    ++struck;
    if (met == Mishap::exception) throw 42;
    if (met == Mishap::refused || met == also) throw_error();
    return met;
  }

  const std::string path_ = "mem://bucket/run";
  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
};

}  // namespace holdfast::test

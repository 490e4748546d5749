// What a region may hold after a power cut, and whether an image does.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/directory.hpp"
#include "core/image.hpp"
#include "holdfast/region.hpp"

namespace holdfast::test {

struct Object {
  Tracking tracking = Tracking::hashed;
  std::vector<std::byte> bytes;
  bool operator==(const Object&) const = default;
};

// All that a reader can see.
struct Content {
  std::uint64_t region_bytes = 0;
  std::map<std::string, Object> objects;
  bool operator==(const Content&) const = default;
};

// What an image holds of it: nothing of what commits leave out.
inline Content in_image(Content content) {
  for (auto& [name, object] : content.objects) {
    if (object.tracking == Tracking::none) object.bytes.assign(object.bytes.size(), std::byte{0});
  }
  return content;
}

// Whether memory that begins with a region's first byte holds the content.
inline bool holds(const std::byte* base, std::uint64_t region_bytes,
                  const std::vector<ObjectInfo>& found, const Content& content) {
  if (region_bytes != content.region_bytes || found.size() != content.objects.size()) return false;
  return std::all_of(found.begin(), found.end(), [&](const ObjectInfo& info) {
    const auto object = content.objects.find(info.name);
    return object != content.objects.end() && object->second.tracking == info.tracking &&
           object->second.bytes.size() == info.bytes() &&
           std::memcmp(base + info.offset, object->second.bytes.data(), info.bytes()) == 0;
  });
}

inline bool holds(Region& region, const Content& content) {
  return holds(static_cast<const std::byte*>(region.base()), region.size(), region.objects(),
               content);
}

// The commits that a power cut may leave: the last one acknowledged, then what was on its way.
class Ledger {
 public:
  // A commit begins. REQUIRES: acknowledge() or withdraw() follows, or its outcome is unknown.
  void attempt(const Content& region) {
    Content content = in_image(region);
    if (possible_.empty() || *possible_.back() != content) {
      possible_.push_back(std::make_shared<const Content>(std::move(content)));
    }
  }
  void acknowledge() {
    must_exist_ = true;
    possible_.erase(possible_.begin(), possible_.end() - 1);
  }
  // The commit said that it did not happen. `before` is size() before attempt().
  void withdraw(std::size_t before) { possible_.resize(before); }
  std::size_t size() const { return possible_.size(); }

  // What was found: nothing before it comes back.
  void found(std::size_t index) {
    must_exist_ = true;
    possible_.erase(possible_.begin(), possible_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  // The same for a state that nothing can follow.
  void settled(std::size_t index) {
    found(index);
    possible_.resize(1);
  }
  const Content& at(std::size_t index) const { return *possible_[index]; }
  bool must_exist() const { return must_exist_; }

 private:
  std::deque<std::shared_ptr<const Content>> possible_;
  bool must_exist_ = false;  // its creation, or a later open, has returned
};

struct Verdict {
  std::optional<std::size_t> commit;  // index in the ledger, of several the first
  bool refused = false;
  std::string why;
};

// Opens what a store holds as the code under test does, short of an arena.
inline Verdict judge(std::unique_ptr<core::BlockStore> store, const Ledger& ledger) {
  Verdict verdict;
  try {
    const core::Image image = core::Image::open(std::move(store));
    const std::uint64_t bytes = image.region_bytes();
    std::unique_ptr<std::byte[], void (*)(void*)> memory(
        static_cast<std::byte*>(std::calloc(bytes, 1)), std::free);
    image.load(memory.get(), [](std::uint64_t page) { return detail::concat("page ", page); });
    const core::Directory directory =
        core::Directory::load(memory.get(), bytes, "the image", [](const void*, std::size_t) {});
    for (std::size_t i = 0; i < ledger.size(); ++i) {
      if (!holds(memory.get(), bytes, directory.objects(), ledger.at(i))) continue;
      verdict.commit = i;
      return verdict;
    }
    verdict.why = detail::concat("generation ", image.generation(), " holds none of ",
                                 ledger.size(), " possible commits");
  } catch (const Error& error) {
    verdict.refused = true;
    verdict.why = error.what();
  }
  return verdict;
}

}  // namespace holdfast::test

// Keys for tests of the hash map: any number gives one of them. Of keys of 16 bytes and more some
// have one label, and others differ in their last bytes alone: what has to be told apart by looking
// at all of a key.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <string_view>
#include <type_traits>

#include "holdfast/hash_map.hpp"

template <std::size_t N>
struct std::hash<holdfast::Bytes<N>> {
  std::size_t operator()(const holdfast::Bytes<N>& key) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(key.bytes), N});
  }
};

namespace holdfast {

template <std::size_t N>
std::ostream& operator<<(std::ostream& out, const Bytes<N>& key) {
  for (const std::byte byte : key.bytes)
    out << (std::to_integer<int>(byte) < 16 ? "0" : "") << std::hex << std::to_integer<int>(byte);
  return out << std::dec;
}

namespace test {

template <class Key>
Key key_of_words(const std::uint64_t* words) {
  Key key;
  std::memcpy(&key, words, sizeof(key));
  return key;
}

template <class Key>
std::uint64_t label_of(const Key& key) {
  return detail::map_key_of<MapConfig<>>(key).label;
}

// Key number `number` of those that have label number `label`: its last word undoes what the digest
// has made of the word before.
template <class Key>
Key alike_key(std::uint64_t label, std::uint64_t number) {
  constexpr std::size_t kWords = sizeof(Key) / 8;
  std::uint64_t words[kWords] = {};
  for (std::uint64_t attempt = number << 20;; ++attempt) {
    std::uint64_t digest = 0;
    for (std::size_t i = 0; i + 1 < kWords; ++i) {
      words[i] = i + 2 == kWords ? attempt : label;
      digest = MapHash::digest(digest, words[i]);
    }
    words[kWords - 1] = label ^ digest;
    if (digest >> 63 == 0) return key_of_words<Key>(words);  // the label has that bit, too
  }
}

// Of integers: spread, and the largest but one of all keys among them.
template <class Key>
Key test_key(std::uint64_t number) {
  if constexpr (std::is_integral_v<Key>) {
    return number == 0 ? static_cast<Key>(~Key{1})
                       : static_cast<Key>(number * 0x9e3779b97f4a7c15ull >> 7);
  } else if (number % 2 == 0) {
    return alike_key<Key>(number / 16, number);
  } else {
    Key key{};
    const std::uint16_t last = static_cast<std::uint16_t>(number << 8 | number >> 8);
    std::memcpy(reinterpret_cast<std::byte*>(&key) + sizeof(key) - sizeof(last), &last,
                sizeof(last));
    return key;
  }
}

}  // namespace test
}  // namespace holdfast

// Which persistent words (here of 4 bytes, so that neighbours' tails stay apart) belong together:
// those that one thread of recovery, or one item of the verification, looks at. Words that many
// look at, or the host, belong to all.
#pragma once

#include <cstdint>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace holdfast::check {

class Groups {
 public:
  // Takes note of who touched which word. Pairs may come again.
  void add(const std::vector<std::pair<std::uint64_t, std::uint32_t>>& touched);

  // Forms the groups anew if anything was noted since. Returns whether they have changed.
  bool form();

  static constexpr std::uint32_t kShared = 0xffffffff;
  // The group of a word: a number that lasts until the next form(); kShared; or, for a word that
  // nobody has touched, one of its own.
  std::uint32_t of(std::uint32_t word) const;
  // The groups' numbers.
  const std::vector<std::uint32_t>& all() const { return all_; }

 private:
  // A word that more than half of all actors, or of the items, look at is a common one, such as a
  // transaction's state; but not where there are so few.
  static constexpr std::size_t kFew = 4;
  static constexpr std::size_t kMany = 256;  // a common one in any case

  static bool is_item(std::uint64_t actor) { return actor >> 63 != 0; }
  bool is_common(const std::vector<std::uint64_t>& actors) const;

  std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> actors_;  // of a word
  std::unordered_set<std::uint64_t> all_actors_;
  std::size_t items_ = 0;  // of these
  std::unordered_set<std::uint32_t> shared_;
  std::unordered_map<std::uint32_t, std::uint32_t> group_;
  std::vector<std::uint32_t> all_;
  bool changed_ = false;
};

}  // namespace holdfast::check

// Which persistent words (here of 4 bytes, so that neighbours' tails stay apart) belong together:
// those that one actor of recovery or verification learns of, itself or from others. Words that
// many learn of, or the host, belong to all.
//
// docs/model.md, "Groups", has the argument why exploring each group by itself is enough.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "check/flows.hpp"

namespace holdfast::check {

class Groups {
 public:
  // Takes note of who learnt what, and of what passes it on. The same may come again.
  void add(const std::vector<Flows::Learnt>& learnt, const std::vector<Flows::Told>& told);

  // From here on all is one group.
  void give_up() {
    changed_ = changed_ || !given_up_;
    given_up_ = true;
  }

  // Forms the groups anew if anything was noted since. Returns whether they have changed.
  bool form();

  static constexpr std::uint32_t kShared = 0xffffffff;
  // The group of a word: a number that lasts until the next form(); kShared; or, for a word that
  // nobody has touched, one of its own.
  std::uint32_t of(std::uint32_t word) const;
  // The groups' numbers.
  const std::vector<std::uint32_t>& all() const { return all_; }

 private:
  // An item that more than half of all actors, or of the verification's items, learn of is a common
  // one, such as a transaction's state; but not where there are so few.
  static constexpr std::size_t kFew = 4;
  static constexpr std::size_t kMany = 256;  // a common one in any case
  // Steps from item to item. Beyond, all is one group.
  static constexpr std::size_t kMostSteps = 20'000'000;

  struct Sources {
    std::unordered_set<Item> items;
    std::unordered_set<std::uint64_t> actors;
  };
  class Forming;

  static bool is_item(std::uint64_t actor) { return actor >> 63 != 0; }
  bool is_common(const std::vector<std::uint64_t>& actors) const;

  std::unordered_map<Item, std::vector<std::uint64_t>> readers_;        // kMany at most
  std::unordered_map<std::uint64_t, std::unordered_set<Item>> learnt_;  // by actor
  std::unordered_map<Item, Sources> sources_;  // what whoever reads the item learns, too
  std::size_t items_ = 0;                      // of the actors
  std::unordered_set<std::uint32_t> shared_;
  std::unordered_map<std::uint32_t, std::uint32_t> group_;
  std::vector<std::uint32_t> all_;
  bool changed_ = false;
  bool given_up_ = false;
};

}  // namespace holdfast::check

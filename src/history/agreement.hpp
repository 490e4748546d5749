// What several ranks have of one history: a checkpoint is complete when every rank has its part of
// it. Each rank tells the others which parts it has; all of them then find the same, without
// another word.
//
// Parts belong together if their stamps (step_store.hpp) are equal. Numbers alone would not do: a
// rank whose step 10 was cut off saves it anew, and another one still has that of an earlier run,
// or of before a discard.
//
// Thread safety: none; all of this is values. Tests: agreement_test.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "history/step_store.hpp"

namespace holdfast::history {

struct Version {
  Step step = 0;
  Stamp stamp{};
  friend auto operator<=>(const Version&, const Version&) = default;
};

// What one rank has.
struct Offer {
  std::vector<Version> versions;  // in the order of their saves; several of one number may be there
  std::vector<Version> stored;    // those that are on disk, or remote
  std::optional<Version> dropped;  // the last, which the program has discarded, too
};

struct Agreed {
  std::map<Step, Stamp> complete;     // what all ranks have; of one number the last save
  std::vector<Step> order;            // the same by the saves of rank 0
  std::map<Step, Stamp> stored;       // of these, what all have on disk or remote
  std::map<Step, std::string> lacks;  // of this rank's, what others lack: who, in words
  std::optional<Version> dropped;     // that all ranks have dropped
  std::uint64_t last_run = 0;         // the largest that any stamp has
};

// Steps at a constant distance take as much room as one.
std::vector<std::byte> encode(const Offer& offer);
// Throws invalid_argument.
Offer decode(std::span<const std::byte> bytes);

// `offers` by rank.
Agreed agree(std::span<const Offer> offers, int rank);

// How often each number was saved in this run. Numbers that follow each other and were saved as
// often take as much room as one.
class SaveCounts {
 public:
  std::uint64_t of(Step step) const;
  void add(Step step);
  std::size_t ranges() const { return ranges_.size(); }

 private:
  struct Range {
    Step last;
    std::uint64_t count;
  };
  std::map<Step, Range> ranges_;  // by the first
};

}  // namespace holdfast::history

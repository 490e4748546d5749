// Where one rank of several has its tiers, and what of a node's budgets is its own.
//
// Tests: placement_test.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "history/rank_talk.hpp"
#include "holdfast/history.hpp"

namespace holdfast::history {

// "rank-00003-of-00008": of a rank's folder below that of all.
std::string rank_folder(int rank, int size);
// "rank 3 of 8": what its history is called.
std::string rank_title(int rank, int size);

// What the place `index` gets of a budget by weights: whole units, whose sum over all is the
// budget's whole units. REQUIRES: weights are not 0.
std::uint64_t share_of(std::uint64_t budget, std::span<const std::uint64_t> weights,
                       std::size_t index, std::uint64_t unit);

struct Placement {
  HistoryOptions options;  // of this rank, with folders and budgets of its own
  std::string title;
  std::uint64_t run = 0;  // that rank 0 proposes
};
// Collective. Makes the folders of all ranks where they are missing. Throws invalid_argument:
// options that differ between ranks; a folder that has the checkpoints of another number of ranks,
// or of one process.
Placement place(const HistoryOptions& options, RankTalk& talk);

}  // namespace holdfast::history

// What a history has together with those of other ranks.
//
// Invariants
// - Nothing is offered of what an earlier run has left but what all ranks have, of one save.
// - Of what all ranks are known to have on disk or remote (`stored`), the last that the program
//   leaves stays there, though it be discarded (`keeper`), until all are known to have another, or
//   to have discarded all that they had; or its number is saved again. Ranks that discard in the
//   same order so have one in common, however far each has come when it dies. What a rank that died
//   within a collective call has not heard of it had told the others that it has.
// - A stamp is that of one save(): no other of this run, and none of an earlier one, has it.
//
// Thread safety: the history's mutex is over it; `talk` has its own.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "history/agreement.hpp"
#include "history/rank_talk.hpp"
#include "holdfast/history.hpp"

namespace holdfast::history {

struct Together {
  std::shared_ptr<RankTalk> talk;
  std::uint64_t run = 0;  // which run this is; agreed on with what was found
  SaveCounts counts;

  std::map<Step, Stamp> found;        // what was found, and all ranks have
  std::map<Step, std::string> lacks;  // what was found, and some lack: who
  std::map<Step, Stamp> stored;       // what all are known to have there, but for what was removed
  std::optional<Version> keeper;      // the last of these, once it is discarded
  // Files that wait for their removal: the keeper's; or, while the ranks agree, any.
  std::map<std::pair<Step, Tier>, Stamp> held;
  int agreeing = 0;

  bool is_complete(Step step, const Stamp& stamp) const {
    const auto at = found.find(step);
    return at != found.end() && at->second == stamp;
  }
  std::string who_lacks(Step step) const {
    const auto at = lacks.find(step);
    return at == lacks.end() ? std::string() : at->second;
  }
  // A save of this number begins: what was left of it goes, the keeper, too (docs/history.md says
  // what programs do about that).
  Stamp begin_save(Step step) {
    lacks.erase(step);
    stored.erase(step);
    held.erase(held.lower_bound({step, Tier::gpu}), held.upper_bound({step, Tier::remote}));
    return {run, counts.of(step) + 1};
  }
};

}  // namespace holdfast::history

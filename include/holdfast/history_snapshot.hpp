// What a history holds and does at one moment: a value, for a look at a running program.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace holdfast {

enum class Tier : std::uint8_t;

struct HistorySnapshot {
  struct OneTier {
    Tier tier{};
    std::uint64_t capacity = 0;  // bytes; 0: no limit
    std::uint64_t used = 0;      // bytes, those of checkpoints on their way included
    std::uint64_t checkpoints = 0;
    std::string path;  // of a folder or a region; empty: none
  };
  // A checkpoint in a tier.
  struct Copy {
    Tier tier{};
    const char* state = "";  // of the life cycle: the table in docs/history.md
  };
  struct Checkpoint {
    std::uint64_t step = 0;
    std::uint64_t bytes = 0;
    std::uint64_t saved_unix_ns = 0;
    bool discarded = false;    // goes once the transfers that use it have ended
    std::vector<Copy> copies;  // from the fastest tier; none where it is absent
  };
  // "program" is one end of a save and of a restore, a tier the other ends.
  struct Transfer {
    const char* kind = "";  // save, flush, fetch, restore, refill
    std::uint64_t step = 0;
    const char* from = "";
    const char* to = "";
    std::uint64_t bytes = 0;
    std::uint64_t moved = 0;  // bytes, as far as it is known: of what storage reads and writes
    double seconds = 0;       // since it began
  };
  // A call that is under way.
  struct Caller {
    const char* call = "";   // save, restore, flush, wait
    std::uint64_t step = 0;  // not of flush
    std::string waits_for;   // empty: it copies
    double seconds = 0;      // since it began
  };

  std::uint64_t unix_ns = 0;  // when this was
  std::uint64_t pid = 0;
  std::string phase;  // "open", "closing", "closed", or what broke the history
  std::vector<OneTier> tiers;
  std::vector<Checkpoint> checkpoints;  // ascending
  std::vector<std::uint64_t> hints;     // what is still ahead, in order
  bool prefetching = false;
  std::vector<Transfer> transfers;
  std::vector<Caller> callers;
  std::uint64_t traced = 0, trace_dropped = 0;  // events
};

// As the socket of a running history gives it: one JSON object.
std::string to_json(const HistorySnapshot& snapshot);

}  // namespace holdfast

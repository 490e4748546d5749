// Ranks of a shot as plain processes: one for each GPU, a barrier in shared memory between them.
//
// run_ranks() forks before anything of the backend is touched, which no forked child could use.
// When one rank fails or dies the others are told at their next barrier, and end: none waits for
// ever. Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>

namespace score {

class Ranks {
 public:
  virtual ~Ranks() = default;
  unsigned rank = 0, count = 1;
  // Returns once all ranks have called it. Throws holdfast::Error (io) if one of them has ended.
  virtual void barrier() = 0;
  // Whether any rank says so. All ranks call it.
  virtual bool any(bool mine) = 0;
  // One rank at a time: lines of output stay whole.
  virtual void in_turn(const std::function<void()>& body) = 0;
};

// Runs `body` in `count` processes, rank r on GPU r of `gpus` (modulo), or in this one if it is
// alone. Returns the first exit status that is not 0.
int run_ranks(unsigned count, unsigned gpus, const std::function<int(Ranks&)>& body);

}  // namespace score

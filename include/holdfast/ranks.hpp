// The processes of a run, its *ranks*, as far as Holdfast needs them: who they are, and one
// collective call by which they tell each other bytes. MPI: holdfast/mpi.hpp. Processes of one
// machine without it: local_ranks(). Anything else: a class of the program's own.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/error.hpp"

namespace holdfast {

// Thread safety: rank(), size() and node() from any number of threads; all_gather() from one at a
// time. What is given a group calls it on the thread that calls the function, and never on one of
// its own, since MPI may have been started for one thread alone.
class RankGroup {
 public:
  using Bytes = std::vector<std::byte>;
  virtual ~RankGroup() = default;

  virtual int rank() const = 0;  // 0 to size() - 1
  virtual int size() const = 0;
  // Equal for ranks that share a machine, its memory and its disks, and for no others. Here: the id
  // of the machine's boot.
  virtual std::string node() const;

  // What each rank has given, by rank. Collective: every rank calls it, in the same order; of any
  // size each. Throws rank_lost, naming the rank as far as that is known, if one has ended or has
  // not come within `timeout`; then the group is of no more use, and every later call throws at
  // once. It never waits much longer than that.
  virtual std::vector<Bytes> all_gather(std::span<const std::byte> mine,
                                        std::chrono::milliseconds timeout) = 0;
};

// Who shares a machine with whom.
struct RankMap {
  std::vector<int> node_of;  // by rank: the number of its node, from 0 in the order of first ranks
  int nodes = 0;
  int node_rank = 0, node_size = 1;  // this rank among those of its node
};
// Collective. Throws what all_gather() throws.
RankMap map_ranks(RankGroup& group, std::chrono::milliseconds timeout);

struct LocalRanksOptions {
  // Of a socket that rank 0 makes, in a folder that all ranks can write to; a run has one of its
  // own.
  std::string path;
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{60'000};  // for all ranks to come
  std::string node = {};                      // instead of the machine's; for tests
};

// A group of processes of one user on one machine, over Unix sockets. Collective. Throws
// invalid_argument, rank_lost (not all came), in_use (another run has the path), permission,
// not_found (no such folder), io. In a forked child every function throws in_use.
std::shared_ptr<RankGroup> local_ranks(const LocalRanksOptions& options);

// The same of the variables that torchrun and others set: RANK, WORLD_SIZE, and HOLDFAST_RANKS, the
// path. Throws invalid_argument, naming the variable that is missing or wrong.
std::shared_ptr<RankGroup> ranks_from_environment(
    std::chrono::milliseconds timeout = std::chrono::milliseconds(60'000));

}  // namespace holdfast

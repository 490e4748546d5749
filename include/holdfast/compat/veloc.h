// The interface of VELOC, with what Score (HPDC '23, section 4.3 and Listing 1) adds to it, on
// holdfast::History, so that code written for either compiles with a changed include.
//
// Every function returns VELOC_SUCCESS or VELOC_FAILURE, and on failure says on stderr what is
// wrong and what to do. Where Listing 1 and VELOC differ in their arguments, both forms are there.
//
// Checkpoints and restarts are ordered behind all work that the program has given the device, and
// wait for their copies: VELOC_Checkpoint() until the first cache has the data (section 2,
// condition 1), VELOC_Restart() until the program's memory has.
//
// The configuration file has lines `key = value` and comments behind #: `scratch`, the folder on a
// local disk (needed); `gpu_cache` and `host_cache`, bytes of the caches, with K, M, G or T behind
// ("4G", or "4GB", "4GiB"; default 0); `max_versions`, how many of the last versions of each name
// stay on disk (0: all). VELOC's other keys are accepted and change nothing.
//
// A program of one process that ends without VELOC_Finalize(), by exit() or behind main(), ends as
// with it; where there are ranks, as if it was killed.
//
// Where <mpi.h> was included before this header VELOC_Init() takes a communicator. Then a version
// counts once every rank has it (holdfast::History, "Ranks"), `scratch` has a folder for each rank,
// and VELOC_Init(), VELOC_Checkpoint() where max_versions is given, VELOC_Checkpoint_wait() and
// VELOC_Restart_test() are collective. A rank that is lost makes them fail on the others, within a
// minute. Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "holdfast/ranks.hpp"

inline constexpr int VELOC_SUCCESS = 0;
inline constexpr int VELOC_FAILURE = -1;
// For VELOC_Restart_test(): the newest of all versions. (VELOC_Restart() takes a version, of which
// 0 is one.)
inline constexpr int VELOC_RECOVER_ALL = 0;
inline constexpr std::size_t VELOC_MAX_NAME = 100;

// `id` tells the processes of a run apart; each has a folder of its own.
int VELOC_Init_single(unsigned int id, const char* config_file);
// Waits until everything is durable, whatever `drain` says.
int VELOC_Finalize(int drain);

// The ranks of a run; other groups than MPI's, too.
int VELOC_Init_ranks(const std::shared_ptr<holdfast::RankGroup>& ranks, const char* config_file);

#ifdef MPI_VERSION
#include <cstdio>

#include "holdfast/mpi.hpp"
inline int VELOC_Init(MPI_Comm communicator, const char* config_file) {
  try {
    return VELOC_Init_ranks(holdfast::mpi_ranks(communicator), config_file);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: VELOC_Init: %s\n", error.what());
    return VELOC_FAILURE;
  }
}
#endif

// Memory, of the device or of the host, that checkpoints save; in place of what had the number.
int VELOC_Mem_protect(int id, void* address, std::size_t count, std::size_t element_bytes);
int VELOC_Mem_protect(int id, void* address, std::size_t bytes);  // Listing 1
int VELOC_Mem_unprotect(int id);

// Names have less than VELOC_MAX_NAME characters; versions are 0 or more. A version of a name is
// saved once; one that is older than those that `max_versions` keeps goes at once. Two names in
// 2^31 share what they are known by: of those a version can be saved under one of them alone, and
// under the other is refused.
int VELOC_Checkpoint(const char* name, int version);
// Waits until the last checkpoint is durable.
int VELOC_Checkpoint_wait();

// The newest version of `name` that can be restored, below `before` (0: of all), or VELOC_FAILURE.
int VELOC_Restart_test(const char* name, int before);
int VELOC_Restart(const char* name, int version);
int VELOC_Restart(int version);  // Listing 1: of the name that was used last
// Bytes of a protected piece in a version of the name that was used last (Listing 1), or in the
// version that was restored or tested last. -1: not there.
long long VELOC_Recover_size(int version, int id);
long long VELOC_Recover_size(int id);

// The program will restore this version behind those that it has named before (section 4.3); of the
// name that was used last, or is used first.
int VELOC_Prefetch_enqueue(int version);
// Prefetching begins (section 4.3).
int VELOC_Prefetch_start();

// How far a migration is, in a region: the sums of the shots that are done. A killed run goes on
// from the last of them.
//
// Invariants: what is restored is the sums behind a whole number of shots, bit for bit as they were
// saved. A region that another program, or a run with other settings, made is refused, and nothing
// in it changes.
// Tested by resume_test, with kills.
#pragma once

#include <cstdint>
#include <string>

#include "adjoint/misfit.hpp"
#include "holdfast/checkpoint.hpp"
#include "holdfast/region.hpp"

namespace adjoint {

// What the sums depend on. Which store kept the snapshots is not of it.
struct RunSettings {
  static constexpr const char* kTypeName = "adjoint_settings";
  std::uint64_t nx = 0, nz = 0, steps = 0, shots = 0, compress = 0;
  std::uint64_t gpu = 0;  // whether a GPU computes them: another order of operations
  std::uint64_t every = 1;
  std::uint64_t model = 0;  // a checksum of it
  std::uint64_t run = 0;    // a number that other runs do not have; drawn by Progress
};

// Thread safety: one thread. The buffers outlive it.
class Progress {
 public:
  // Opens the region, or makes it. Throws as Region::open_or_create(), and conflict: it is of
  // something else; the message names the difference.
  Progress(const std::string& path, const RunSettings& settings, SumBuffers<float>& sums,
           holdfast::Stream& stream);

  // What tells this run, over all its processes, from others.
  std::uint64_t run() const { return settings_.run; }
  // Loads the sums; how many shots they are of.
  std::uint64_t restore(holdfast::Stream& stream);
  // Durable, on disk too, on return.
  void save(holdfast::Stream& stream, std::uint64_t shots_done);
  void close() { region_.close(); }

 private:
  static holdfast::Region open(const std::string& path, const RunSettings& settings,
                               std::uint64_t sum_bytes);

  RunSettings settings_;
  holdfast::Region region_;
  holdfast::Checkpoint checkpoint_;
};

}  // namespace adjoint

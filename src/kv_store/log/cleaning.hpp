// The kernels of cleaning: what is live in some segments is copied into a run of its own; once that
// is committed, the segments are free.
#pragma once

#include <cstdint>

#include "kv_store/log/batch.hpp"

namespace holdfast::kv::log {

// In device memory.
struct VictimList {
  const std::uint32_t* segments;
  std::uint32_t count;
  std::uint32_t drops;  // the one whose tombstones are not needed any more; kNone: none
};

// Copies what is live in them into `run`, and commits that. REQUIRES: the run is for as many
// records and tombstones as there are; otherwise nothing is written. `kept`: device memory for as
// many words as the run has records. Stream-ordered, as the others.
//
// What is live is gathered first, and appended then: in one go, blocks would store the few records
// that each of them finds as parts of lines, which takes the link as long as whole ones.
// Fingerprints take what they append from the log itself, segment by segment.
template <class Form>
void launch_keep(Stream& stream, const Medium& medium, const Form& index, const VictimList& victims,
                 const RunPlan& run, std::uint32_t* kept, const Work& work);

// Behind it: the index learns of the copies, and the segments are made free on the medium, which
// their first header says. `run` without records: nothing had to be copied.
template <class Form>
void launch_retire(Stream& stream, const Medium& medium, const Form& index,
                   const VictimList& victims, const RunPlan& run, Outcome* outcome);

// Makes slots empty that can be used again and that no search has to pass by. outcome->gone counts
// them.
template <class Form>
void launch_sweep(Stream& stream, const Form& index, Outcome* outcome);

}  // namespace holdfast::kv::log

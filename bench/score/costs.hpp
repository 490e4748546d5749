// What a history costs beside a shot's blocking time: calls beside plain copies, the host's time in
// each call, the time of an eviction's decision, and how much slower kernels are while a history's
// copies run. Each prints its JSON lines.
//
// Source: Score (HPDC '23), section 4.2 (the decision is O(N)).
#pragma once

#include "shot.hpp"

namespace score {

// Saves and restores of one snapshot beside plain copies of as many bytes: within device memory,
// over the link, from the disk, to another GPU where there is one; and of flushes into a partner's
// memory.
void print_copies(const Settings& settings);
// Flushes to the host's cache and restores from it by all ranks at once, beside plain copies by all
// of them at once; each rank prints what they reach together.
void print_together(const Settings& settings, Ranks& ranks);
// Calls on snapshots of 4 KiB, whose copies take next to nothing, and such a copy alone.
void print_host_costs(const Settings& settings);
// A decision at 32, 1,000 and 10,000 fragments.
void print_eviction_costs(const Settings& settings);
// A kernel bound by arithmetic and one bound by memory, alone and beside a history that saves and
// restores without a pause.
void print_slowdown(const Settings& settings);

}  // namespace score

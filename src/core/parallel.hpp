// Loops over several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace holdfast::core {

// How many threads a loop over memory uses at most.
unsigned worker_count() noexcept;

// Calls body(i) for every i in [0, count), on up to `threads` threads, the caller's among them.
// Rethrows the first exception, after all threads have stopped; the rest of the loop is skipped.
void parallel_for(std::size_t count, unsigned threads,
                  const std::function<void(std::size_t)>& body);

}  // namespace holdfast::core

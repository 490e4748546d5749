// Work of oracles, divided among threads that end with the call: a process that has some left
// cannot fork.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace workload {

// Calls body(first, end) for parts of [0, size), in as many threads as there are cores; in the
// caller's alone where a part would be smaller than `least`. `body` throws nothing.
template <class Body>
void in_parts(std::uint64_t size, std::uint64_t least, const Body& body) {
  const std::uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::uint64_t parts =
      std::clamp<std::uint64_t>(size / std::max<std::uint64_t>(least, 1), 1, cores);
  std::vector<std::jthread> others;
  for (std::uint64_t part = 1; part < parts; ++part) {
    others.emplace_back(
        [&body, part, parts, size] { body(size * part / parts, size * (part + 1) / parts); });
  }
  body(0, size / parts);
}

}  // namespace workload

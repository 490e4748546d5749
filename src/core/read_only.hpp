// A region as it can be seen without changing anything of it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/domain.hpp"
#include "core/image.hpp"
#include "core/medium.hpp"

namespace holdfast::core {

// The bytes of a file-backed region in memory of this process alone:
// - of the arena that a crash left, which stays locked against writers while the medium lives;
// - otherwise of the last commit, also beside a process that has the region open. That process goes
//   on meanwhile; what it overwrites is noticed by its hash, and read again from the next commit.
// `path` may also name an arena, whose image is lost.
// Throws as FileDomain::open(), and in_use if commits follow one another faster than one is read.
struct ReadOnly {
  std::unique_ptr<Medium> medium;
  std::uint64_t generation = 0;  // of the last commit; 0 for an arena without its image
};
// Reads the last commit of an image by `body(image)`, beside a process that has the region open,
// too. `body` is called again from the beginning with a later commit if what it read was written
// over. `in_use`, if given, is told whether a process has the region. Throws what `body` throws,
// and in_use as open_read_only().
void read_last_commit(const std::string& path, const std::function<void(const Image&)>& body,
                      bool* in_use = nullptr, const Surroundings& around = {});

ReadOnly open_read_only(const std::string& path, const OpenOptions& options, OpenReport& report,
                        const Surroundings& around = {});

// The same, as a region.
std::unique_ptr<RegionDomain> open_for_reading(const FoundRegion& region);

}  // namespace holdfast::core

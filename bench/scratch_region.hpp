// A region of the file domain for a benchmark, gone afterwards.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "holdfast/region.hpp"

namespace bench {

class ScratchRegion {
 public:
  // `most`: as RegionOptions::max_size.
  explicit ScratchRegion(std::uint64_t bytes, std::uint64_t most = 0)
      : folder_(make_folder()), region_(create(bytes, most)) {}
  ~ScratchRegion() {
    region_.abandon();
    try {
      holdfast::Region::destroy(path());
    } catch (const holdfast::Error&) {
      // Nothing is left to clean up with.
    }
    ::rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/region"; }
  holdfast::Region& get() { return region_; }
  // As after a crash: the region is let go of and opened again.
  void reopen() {
    region_.abandon();
    region_ = holdfast::Region::open(path());
  }

 private:
  static std::string make_folder() {
    std::string pattern = "/tmp/holdfast-bench-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed in /tmp");
    return pattern;
  }
  holdfast::Region create(std::uint64_t bytes, std::uint64_t most) {
    holdfast::RegionOptions options;
    options.size = bytes;
    options.max_size = most;
    return holdfast::Region::create(path(), options);
  }
  std::string folder_;
  holdfast::Region region_;
};

}  // namespace bench

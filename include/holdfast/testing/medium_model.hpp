// For experiments: what a medium takes for what is written to it and read from it, so that memory
// can stand for a slower medium.
//
// Region::create("state.hf", {.size = kSize, .medium = testing::standing_for("optane")})
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace holdfast::testing {

// How written bytes fall on the medium. Source: GPM (ASPLOS '22) section 6.1, where the three
// differ by a factor of 17 on Optane, which writes in blocks of 256 bytes.
enum class Access {
  aligned,    // one after the other, in whole blocks of 256 bytes
  unaligned,  // one after the other, but not in whole blocks
  random,     // small pieces anywhere
};
const char* to_string(Access access) noexcept;

// A bandwidth of 0 is unlimited, so a model that is not filled in costs nothing.
//
// Latencies are those beyond the memory's that stands for the medium.
struct MediumModel {
  double persist_latency_ns = 0;
  double write_bytes_per_second = 0;  // of aligned writes
  double unaligned_efficiency = 1;    // what other writes reach of that: above 0, at most 1
  double random_efficiency = 1;
  double read_latency_ns = 0;
  double read_bytes_per_second = 0;
  std::string label{};  // what name() returns, if it is not empty

  // A preset, "dram" (costs nothing), "optane" or "cxl", or one bandwidth for everything, such as
  // "limit=1.6GB/s" (1MB/s to 1000GB/s; KB, MB and GB count by 1000). Throws invalid_argument for
  // anything else. docs/workloads.md says where the presets' figures come from.
  static MediumModel parse(std::string_view text);

  // For results: what was measured under a model says so. As parse() takes it, "dram" for a model
  // that costs nothing, "custom" for others that have no label.
  std::string name() const;
  // Whether it costs anything.
  bool slows() const;
  // Throws invalid_argument for a figure that is out of range, naming it.
  void check() const;

  // Without latency.
  double write_seconds(std::uint64_t bytes, Access access) const;
  double read_seconds(std::uint64_t bytes) const;
};

// For RegionOptions::medium and OpenOptions::medium. On the emulated domain each persist of a
// kernel waits for a store of 8 bytes (CPU backend); on the others commits of the file domain and
// checkpoints wait for the region's throttle() (throttle.hpp). create() and open() throw as check()
// does.
std::shared_ptr<const MediumModel> standing_for(MediumModel model);
// The same, as MediumModel::parse() takes it.
std::shared_ptr<const MediumModel> standing_for(std::string_view text);

}  // namespace holdfast::testing

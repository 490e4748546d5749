// The operations of a workload, in their order: which operation, on the key of which number. Keys 0
// to keys() - 1 are loaded beforehand.
//
// Source: YCSB's core workloads (Cooper et al., SoCC '10), and GPHash (FAST '25), section 4.1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fits.hpp"
#include "workload/cpu_flush.hpp"

namespace maps {

enum class Op : std::uint8_t { find, insert, update, erase, read_modify_write };
inline constexpr unsigned kOps = 5;

constexpr bool returns_value(Op op) { return op == Op::find || op == Op::read_modify_write; }
constexpr bool takes_value(Op op) {
  return op == Op::insert || op == Op::update || op == Op::read_modify_write;
}

struct Request {
  std::uint64_t key;  // its number
  Op op;
  bool operator==(const Request&) const = default;
};

// Deterministic: the same source gives the same requests, whatever the batches. But for YCSB D,
// whose reads know the inserts of earlier batches alone.
// Thread safety: one thread.
class Source {
 public:
  virtual ~Source() = default;
  // The next requests, as many as there is room for.
  virtual void next(workload::Team& team, std::vector<Request>& requests) = 0;
  virtual std::uint64_t keys() const = 0;
  // Whether the keys that are there stay the same.
  virtual bool keeps_keys() const = 0;
  // Numbers of keys that its inserts may reach, loaded ones included.
  virtual std::uint64_t most_keys(std::uint64_t operations) const = 0;
};

enum class Mix {
  load,  // inserts of keys that are not there, none being loaded
  a,     // half reads, half updates
  b,     // 95 % reads, 5 % updates
  c,     // reads
  d,     // 95 % reads of what was inserted last, 5 % inserts
  f,     // half reads, half read-modify-writes
  // The micro-benchmarks.
  search_present,
  search_absent,
  insert,  // of keys that are not there
  update,
  erase,  // of each loaded key once, and then of keys that are gone
};
enum class Distribution {
  uniform,
  zipf,       // Zipf's itself
  scrambled,  // what YCSB calls "zipfian"; theta is .99
};

struct YcsbOptions {
  Mix mix = Mix::c;
  Distribution distribution = Distribution::zipf;
  double theta = 0.99;
  std::uint64_t keys = 0;  // loaded
  std::uint64_t seed = 1;
};
// Under `d` the distribution is of how long ago a key was inserted, and is Zipf's or uniform:
// YCSB's "latest" is not scrambled. Throws std::invalid_argument.
std::unique_ptr<Source> make_ycsb(const YcsbOptions& options);

// Training of a recommendation model: of each sample one row a column is read and written back, in
// columns as fitted.
std::unique_ptr<Source> make_dlrm(const DlrmFit& fit, std::uint64_t keys, std::uint64_t seed);

// PageRank, pulled: for one vertex after the other the states of those that point to it are read,
// and its own is updated; round after round, of a graph as fitted.
std::unique_ptr<Source> make_pagerank(const PageRankFit& fit, std::uint64_t keys,
                                      std::uint64_t seed);

// Throw std::invalid_argument, with those there are.
Mix mix_of(const std::string& name);
Distribution distribution_of(const std::string& name);

}  // namespace maps

// A map that carries out batches of operations whose keys and values are in device memory: the
// persistent map, and its rivals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/stream.hpp"
#include "workload.hpp"

namespace maps {

inline constexpr std::uint32_t kValueBytes = 128;

// What became of an operation: whether the key was there before it. An insert of a key that is
// there changes nothing, nor does an update of one that is not. failed: there was no room, and
// nothing was changed.
enum class Outcome : std::uint8_t { absent, present, failed };

// All in device memory, one behind the other. Of a batch's operations on one key, each sees the
// state before or behind any of the others, and a value that one of them stored, whole; which of
// several stays is open, but that an insert does not change what is there.
struct Batch {
  const Op* ops = nullptr;
  const std::byte* keys = nullptr;    // of the setting's size
  const std::byte* values = nullptr;  // kValueBytes each, for those that take one
  std::byte* found = nullptr;         // kValueBytes each, written where a value is returned
  Outcome* outcomes = nullptr;
  std::uint32_t count = 0;
  // What is among its operations.
  bool returns_values = false, takes_values = false, changes = false;
  std::uint32_t of_each[kOps] = {};  // how many, by Op
};

// In the words of the results file.
struct Promise {
  std::string contestant;  // "slabhash-gpm"
  std::string form;        // which of its ways: "as printed", "ordered by address"
  std::string rung;        // "process" or "none": what a batch survives once run() has returned
  std::string
      atomic;  // what a crash leaves whole or not at all: "batches", "operations", "nothing"
  std::string guarantee;  // in a sentence
  unsigned cpu_threads = 0;
};

// Seconds of a batch, by the host's clock. What a contestant does not do, or does not tell apart,
// is 0; `operations` has what is in none of the others.
struct Phases {
  double order = 0;   // sorting the batch
  double to_cpu = 0;  // copies between the GPU and the CPU
  double to_gpu = 0;
  double operations = 0;
  double commit = 0;  // what ends a transaction
  double total() const { return order + to_cpu + to_gpu + operations + commit; }
};

// Functions throw std::exception's heirs. Thread safety: one thread.
class Contestant {
 public:
  virtual ~Contestant() = default;  // leaves what the death of the process would
  virtual const Promise& promise() const = 0;
  // Carries a batch out; what the rung says survives once it returns. Throws
  // std::invalid_argument if the batch is larger than it was made for.
  virtual Phases run(const Batch& batch) = 0;
  // Keys that its memory has places for now.
  virtual std::uint64_t places() const = 0;
  // Lets go of everything as the death of the process would, and opens again what is left. Without
  // a rung nothing is.
  virtual void crash_and_reopen() = 0;
};

struct Setting {
  std::uint32_t key_bytes = 8;  // or another of the offer
  std::uint64_t keys = 0;       // that it has to have room for
  std::uint32_t batch = 0;      // operations, at most
  bool ordered = false;         // each batch in the order of addresses
  std::string path;             // of its region, where it has one; opened if it is there
  unsigned threads = 16;        // of the CPU, where it is the CPU that works
  // That the first levels of those that grow are made for, Clevel's and ours; 0: keys, and then
  // ours does not grow.
  std::uint64_t first_keys = 0;
  bool log = true;  // SlabHash-GPM: without, to see what the log takes
};

// All throw std::invalid_argument (key_bytes, keys, batch), no_memory, and what Region throws.

// SlabHash (Ashkiani et al., IPDPS '18) on the medium, with an undo log, as GPHash's section 4.1
// has it: chains of slabs of 128 bytes, a warp looks at a slab at once and carries out its lanes'
// operations in turn. Does not resize: chains grow.
std::unique_ptr<Contestant> make_slabhash_gpm(const Setting& setting);

// Clevel hashing (Chen et al., ATC '20) on the medium: levels of buckets of pointers with tags, of
// which each operation sees those of one context; lock-free, each thread alone. Grows by a level
// when a key finds no place.
std::unique_ptr<Contestant> make_clevel_gpm(const Setting& setting);

// A map in the CPU's hands, with the pairs on the medium and lines written back: requests and
// answers cross the link. It stands for GPHash's CPU-assisted Clevel, Dash and SEPH. Ordered: its
// better form, in which the device gathers the requests by shard, so that a thread has shards of
// its own.
std::unique_ptr<Contestant> make_cpu_map(const Setting& setting);

// A table in device memory that forgets everything: the upper bound.
std::unique_ptr<Contestant> make_volatile_map(const Setting& setting);

// holdfast::HashMap, by its batches: all operations of one kind in a batch are one of the map's.
// With its directory in device memory, and without. Ordered: where the map says that it pays.
std::unique_ptr<Contestant> make_holdfast_map(const Setting& setting);
std::unique_ptr<Contestant> make_holdfast_map_without_directory(const Setting& setting);

// holdfast::LogMap, the same way. Keys of 8 bytes.
std::unique_ptr<Contestant> make_holdfast_log_map(const Setting& setting);

// By name: "holdfast", "holdfast-no-directory", "holdfast-log", "slabhash-gpm", "clevel-gpm",
// "cpu-assisted", "volatile".
struct Offer {
  const char* name;
  std::function<std::unique_ptr<Contestant>(const Setting&)> make;
  std::vector<std::uint32_t> key_bytes = {8, 32};  // that it can have
};
const std::vector<Offer>& offers();

// Throws std::invalid_argument.
void check(const Setting& setting, const std::vector<std::uint32_t>& key_bytes = {8, 32});
void check(const Batch& batch, const Setting& setting);

}  // namespace maps

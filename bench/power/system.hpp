// A system that carries out batches of SETs and makes them durable: ours, and its rivals.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "disk.hpp"
#include "holdfast/kv_store.hpp"
#include "sets.hpp"

namespace power {

// What a system promises, in the words of the results file.
struct Promise {
  std::string system;     // "holdfast", "cap-pages", "cap-log", "rocksdb"
  std::string form;       // which of its ways; may be empty
  std::string rung;       // "process" or "power": what a batch survives once it is counted
  std::string atomic;     // what a crash leaves whole or not at all: "batches", "shares", "nothing"
  std::string guarantee;  // in a sentence
  std::string recovery;   // what opening it again has to do
  unsigned batches_per_commit = 1;
};

// One turn: so many batches, then what makes them durable.
struct Turn {
  double batch_seconds = 0;   // of all its batches
  double commit_seconds = 0;  // behind them, or, where the two overlap, beside them
  double total_seconds = 0;
  std::uint64_t disk_bytes = 0;  // that the system sent to the disk, by its own count
};

struct Recovered {
  double seconds = 0;       // from opening to being able to answer, nothing being cached
  std::uint64_t pairs = 0;  // that were compared with the oracle, which is all
  std::uint64_t lost = 0;   // keys that the table has evicted
};

// Functions throw std::exception's heirs.
// Thread safety: one thread.
class System {
 public:
  virtual ~System() = default;
  virtual const Promise& promise() const = 0;
  // Batches of `inputs`, as many as the promise says.
  virtual Turn run(const Inputs& inputs) = 0;
  // Turns that are not measured are over: what was tried in them is decided.
  virtual void warmed_up() {}
  // Lets go of everything as the crash would that its rung is about. No more turns.
  virtual void crash() = 0;
  // Opens again and compares all that is there.
  virtual Recovered recover(const Oracle& oracle) = 0;
  // How it writes: "direct", "buffered", or empty.
  virtual std::string io() const { return {}; }
  virtual unsigned cpu_threads() const { return 1; }
};

struct Setting {
  Shape shape;
  std::string folder;       // on the disk; each system has files of its own there
  std::uint64_t turns = 0;  // at most
  unsigned threads = 16;    // of the CPU, where a system lets one choose
};

// The key-value store in a region, in one of its layouts, of as many bytes on the medium. 0 batches
// a commit: never, which is the process rung.
std::unique_ptr<System> make_holdfast(const Setting& setting, holdfast::KvStore::Layout layout,
                                      unsigned batches_per_commit);

// CAP with fsync: the table in device memory; the pages that changed are gathered, copied once, and
// written in place. The best of several numbers of threads, tried in the first turns.
std::unique_ptr<System> make_cap_pages(const Setting& setting);

// CAP with fsync: the table in device memory; the batch's pairs, with a checksum, are copied once
// and written to a redo log in one stream, while kernels carry the batch out.
std::unique_ptr<System> make_cap_log(const Setting& setting);

// RocksDB, its log synced, in a library that is loaded at run time.
enum class RocksDbForm { one_batch, vector_memtable, shares };
// Empty if the library is there, else why not. An empty path: the system's.
std::string load_rocksdb(const std::string& path);
std::string rocksdb_version();  // REQUIRES: loaded
std::unique_ptr<System> make_rocksdb(const Setting& setting, RocksDbForm form);
// Memory that its tables will take for so many SETs is touched once, and stays with the process, as
// the others' is: of what is free, a quarter at most.
void set_rocksdb_memory_aside(std::uint64_t sets);

}  // namespace power

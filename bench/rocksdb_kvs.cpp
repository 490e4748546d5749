// RocksDB as the CPU's key-value store of GPM's figure 1a: batches of SETs of 8-byte keys and
// values, as gpKVS has them, with its log synced to the same medium, shared memory. Every setting
// that is said to make such batches fast is tried, with 1, 2, 4, ... writers. Source: GPM (ASPLOS
// '22), section 1.
//
//   rocksdb_kvs [--batches=N] [--sets=N] [--keys=N] [--min_threads=N]
//       [--max_threads=N, 0: the machine's]
//
// Built where CMake finds RocksDB (Debian: librocksdb-dev).
#include <malloc.h>
#include <rocksdb/db.h>
#include <rocksdb/version.h>
#include <rocksdb/write_batch.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <thread>

#include "bench.hpp"

namespace {

struct Shape {
  std::uint64_t batches, sets, keys;
  // What all batches take of the table in memory, WriteBatches included, with room to spare.
  std::uint64_t memory() const { return (batches + 1) * sets * 160; }
};

// One of the ways to write.
struct Way {
  const char* name;
  bool unordered;  // writers insert on their own, once their log entries are durable
};
constexpr Way kWays[] = {{"pipelined writes", false}, {"unordered writes", true}};

std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::uint64_t key_of(const Shape& shape, std::uint64_t number) {
  return scramble(number) % shape.keys;
}

void check(const rocksdb::Status& status) {
  if (!status.ok()) throw std::runtime_error("RocksDB: " + status.ToString());
}

rocksdb::Slice slice(const std::uint64_t& word) {
  return {reinterpret_cast<const char*>(&word), sizeof(word)};
}

// A database of its own in shared memory, gone afterwards.
class Database {
 public:
  Database(const Shape& shape, const Way& way) {
    std::string pattern = "/dev/shm/holdfast-rocksdb-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("no folder can be made in /dev/shm");
    }
    folder_ = pattern;
    rocksdb::DB* made = nullptr;
    const rocksdb::Status opened = rocksdb::DB::Open(options(shape, way), folder_, &made);
    database_.reset(made);
    if (!opened.ok()) std::filesystem::remove_all(folder_);
    check(opened);
  }
  ~Database() {
    database_.reset();
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  rocksdb::DB& operator*() { return *database_; }

 private:
  // Nothing but the log and the table in memory works while batches are timed.
  static rocksdb::Options options(const Shape& shape, const Way& way) {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;
    options.disable_auto_compactions = true;
    // No flush in the run; not more, since RocksDB has a tenth of it allocated in the log's file.
    options.write_buffer_size = std::max<std::size_t>(shape.memory(), std::size_t{64} << 20);
    options.max_total_wal_size = std::uint64_t{64} << 30;
    options.avoid_flush_during_shutdown = true;
    options.allow_concurrent_memtable_write = true;
    options.unordered_write = way.unordered;
    options.enable_pipelined_write = !way.unordered;
    return options;
  }
  std::string folder_;
  std::unique_ptr<rocksdb::DB> database_;
};

// Memory that RocksDB will take is touched before anything is timed, and stays with the process:
// the other sides of the comparison set theirs aside, too.
void set_memory_aside(const Shape& shape) {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, INT32_MAX);
  ::mallopt(M_ARENA_MAX, 1);
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t bytes = shape.memory();
  const auto memory = std::make_unique<char[]>(bytes);
  volatile char* const touched = memory.get();
  for (std::uint64_t at = 0; at < bytes; at += kPage) touched[at] = 1;
}

// A batch, shared out among writers: each makes a WriteBatch and has it written and synced. So a
// writer's share is durable as a whole; the batch is not, which is less than gpKVS promises.
void write_batch(rocksdb::DB& database, const Shape& shape, std::uint64_t batch, unsigned writers) {
  std::vector<std::thread> threads;
  threads.reserve(writers);
  std::vector<rocksdb::Status> ends(writers);
  for (unsigned writer = 0; writer < writers; ++writer) {
    threads.emplace_back([&, writer] {
      const std::uint64_t first = shape.sets * writer / writers;
      const std::uint64_t last = shape.sets * (writer + 1) / writers;
      rocksdb::WriteBatch share((last - first) * 20 + 64);
      for (std::uint64_t i = first; i < last; ++i) {
        const std::uint64_t number = batch * shape.sets + i;
        const std::uint64_t key = key_of(shape, number);
        share.Put(slice(key), slice(number));
      }
      rocksdb::WriteOptions durable;
      durable.sync = true;
      ends[writer] = database.Write(durable, &share);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const rocksdb::Status& end : ends) check(end);
}

// Some keys of the last batch hold a number that was set for them.
void verify(rocksdb::DB& database, const Shape& shape) {
  const std::uint64_t step = std::max<std::uint64_t>(1, shape.sets / 1000);
  for (std::uint64_t i = 0; i < shape.sets; i += step) {
    const std::uint64_t key = key_of(shape, shape.batches * shape.sets + i);
    std::string found;
    check(database.Get(rocksdb::ReadOptions(), slice(key), &found));
    std::uint64_t number = 0;
    found.copy(reinterpret_cast<char*>(&number), sizeof(number));
    if (found.size() != sizeof(number) || key_of(shape, number) != key) {
      throw std::runtime_error("RocksDB returned a value that was never set");
    }
  }
}

void measure(const Shape& shape, const Way& way, unsigned writers) {
  Database database(shape, way);
  std::vector<double> times;
  for (std::uint64_t batch = 0; batch <= shape.batches; ++batch) {
    const double took = bench::seconds([&] { write_batch(*database, shape, batch, writers); });
    if (batch > 0) times.push_back(took);  // the first pays for the log's file
  }
  verify(*database, shape);
  bench::Line("rocksdb_set")
      .text("settings", way.name)
      .text("version", rocksdb::GetRocksVersionAsString())
      .text("medium", "dram")
      .count("cpu_threads", writers)
      .count("batches", shape.batches)
      .count("sets_per_batch", shape.sets)
      .count("keys", shape.keys)
      .number("batch_seconds", bench::median(times))
      .number("million_sets_per_s", static_cast<double>(shape.sets) / bench::median(times) / 1e6)
      .print();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"batches", 5},
                                {"sets", 100'000},
                                {"keys", 200'000},
                                {"min_threads", 1},
                                {"max_threads", 0}});
  const Shape shape{options["batches"], options["sets"], options["keys"]};
  if (shape.batches == 0 || shape.sets == 0 || shape.keys == 0) {
    std::fprintf(stderr, "rocksdb_kvs: --batches, --sets and --keys are 1 or more\n");
    return 2;
  }
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const unsigned most =
      options["max_threads"] != 0 ? static_cast<unsigned>(options["max_threads"]) : cores;
  const unsigned least =
      std::clamp(static_cast<unsigned>(options["min_threads"]), 1u, std::max(1u, most));
  try {
    set_memory_aside(shape);
    for (const Way& way : kWays) {
      for (unsigned writers = least; writers <= most; writers *= 2) measure(shape, way, writers);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rocksdb_kvs: %s\n", error.what());
    return 1;
  }
  return 0;
}

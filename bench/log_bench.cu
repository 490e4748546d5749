// The coalesced undo log against conventional logging and the link: a sweep over threads and
// entry sizes. The conventional log comes as 1,024 locked partitions and as a partition of its
// own for every thread, which needs no lock.
//
//   log_bench [--max_threads=N] [--entries=N] [--repeat=N]
#include "bench.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/undo_log.hpp"
#include "link.hpp"
#include "scratch_region.hpp"

namespace {

template <unsigned Bytes>
struct Entry {
  alignas(8) std::uint32_t words[Bytes / 4];
};

template <class Log, unsigned Bytes>
__global__ void insert_entries(Log log, unsigned threads, unsigned entries, unsigned* failures) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= threads) return;
  for (unsigned n = 0; n < entries; ++n) {
    Entry<Bytes> entry;
#pragma unroll
    for (unsigned i = 0; i < Bytes / 4; ++i) entry.words[i] = thread * 31 + n + i;
    if (log.insert(entry) != holdfast::LogStatus::ok) atomicAdd(failures, 1u);
  }
}

struct Run {
  unsigned threads;
  unsigned entries;
  int repeat;
  double link;
};

template <unsigned Bytes, class Log>
double measure(holdfast::Transaction& transaction, Log log, const Run& run) {
  constexpr unsigned kBlock = 256;
  holdfast::Stream stream;
  holdfast::PinnedBuffer<unsigned> failures(1);
  std::vector<double> times;
  for (int i = 0; i <= run.repeat; ++i) {
    holdfast::Event start, stop;
    start.record(stream);
    holdfast::launch(stream, holdfast::blocks_for(run.threads, kBlock), kBlock,
                     insert_entries<Log, Bytes>, log, run.threads, run.entries, failures.data());
    stop.record(stream);
    transaction.clear_logs(stream);
    stream.synchronize();
    if (i > 0) times.push_back(holdfast::Event::elapsed_ms(start, stop) / 1e3);
  }
  if (failures[0] != 0) {
    std::fprintf(stderr, "log_bench: %u inserts failed\n", failures[0]);
    std::exit(1);
  }
  return bench::median(times);
}

template <unsigned Bytes>
double measure_layout(const char* layout, const holdfast::LogShape& shape, bool locked,
                      const Run& run) {
  bench::ScratchRegion scratch(holdfast::UndoLog::object_bytes(shape) + (4 << 20));
  auto transaction = holdfast::Transaction::create(scratch.get(), "tx");
  const auto log = transaction.create_log(scratch.get(), "log", shape);
  double took = 0;
  log.visit([&](auto ref) {
    if (!locked) ref.locks = nullptr;
    took = measure<Bytes>(transaction, ref, run);
  });
  const double inserts = static_cast<double>(run.threads) * run.entries;
  bench::Line("log_insert")
      .text("layout", layout)
      .count("entry_bytes", Bytes)
      .count("threads", run.threads)
      .count("entries_per_thread", run.entries)
      .number("million_inserts_per_s", inserts / took / 1e6)
      .number("payload_gb_per_s", inserts * Bytes / took / 1e9)
      .number("copy_engine_gb_per_s", run.link / 1e9)
      .number("payload_ratio_to_copy_engine", inserts * Bytes / took / run.link)
      .print();
  return took;
}

template <unsigned Bytes>
void sweep(unsigned max_threads, unsigned entries, int repeat, double link) {
  constexpr unsigned kPartitions = 1024;
  for (unsigned threads = 1u << 10; threads <= max_threads; threads <<= 2) {
    // A partition that many threads share has a bound.
    const unsigned shared = std::max(1u, threads / kPartitions);
    const unsigned fits = holdfast::LogShape::kMaxSlotBytes / (shared * Bytes);
    const Run run{threads, std::max(1u, std::min(entries, fits)), repeat, link};
    const double coalesced = measure_layout<Bytes>(
        "coalesced", holdfast::LogShape::coalesced(threads, Bytes * run.entries), false, run);
    const double one_each = measure_layout<Bytes>(
        "conventional_private", holdfast::LogShape::conventional(threads, Bytes * run.entries),
        false, run);
    const double locked = measure_layout<Bytes>(
        "conventional_1024",
        holdfast::LogShape::conventional(kPartitions, shared * Bytes * run.entries), true, run);
    bench::Line("log_speedup")
        .count("entry_bytes", Bytes)
        .count("threads", threads)
        .number("over_private_partitions", one_each / coalesced)
        .number("over_1024_locked_partitions", locked / coalesced)
        .print();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"max_threads", 1 << 20}, {"entries", 4}, {"repeat", 5}});
  const auto max_threads = static_cast<unsigned>(options["max_threads"]);
  const auto entries = static_cast<unsigned>(options["entries"]);
  const int repeat = static_cast<int>(options["repeat"]);
  const double link = bench::copy_engine_bandwidth();
  sweep<8>(max_threads, entries, repeat, link);
  sweep<16>(max_threads, entries, repeat, link);
  sweep<24>(max_threads, entries, repeat, link);
  sweep<32>(max_threads, entries, repeat, link);
  sweep<64>(max_threads, entries, repeat, link);
  return 0;
}

// What CPU threads make durable a second: the CPU's side of GPM's figure 3, whose other side is
// persist_bench. The same bytes go to the same medium in three ways:
//
// - "copied, then flushed": one copy by the copy engine, then each thread flushes an equal share
//   (CAP-mm of GPM, ASPLOS '22, section 3.2);
// - "copied and flushed in parts": a thread copies a part and flushes it while others copy theirs
//   (CAP-mm as the workloads have it);
// - "stored and flushed": no GPU: threads store 8 bytes at a time and flush their share.
//
// With --scattered=N instead: what threads store of N changes at places all over, in the order of
// their addresses, as they do for a CAP that gathers what changed: "cells written back", 16 bytes
// each, and "lines past the caches", the whole lines around them.
//
//   cap_bench [--mib=N] [--repeat=N] [--max_threads=N, 0: the machine's] [--only_link=1]
//             [--scattered=N]
#include <immintrin.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>

#include "bench.hpp"
#include "link.hpp"
#include "scratch_region.hpp"
#include "workload/cpu_flush.hpp"

namespace {

constexpr std::uint64_t kPart = 8 << 20;
constexpr std::uint64_t kPage = 4096;

struct Setting {
  unsigned char* medium;
  const unsigned char* source;  // device memory
  std::uint64_t bytes;
  int repeat;
  double link;  // bytes a second of the copy engine
};

// An equal share for each thread, in whole pages, so that no line has two threads.
std::uint64_t share_of(const Setting& setting, unsigned threads) {
  return (setting.bytes / threads + kPage - 1) / kPage * kPage;
}

template <class Body>
void measure(const char* how, const Setting& setting, unsigned threads, const Body& body) {
  const double took = bench::warmed(
      setting.repeat, [&](auto i) { return bench::seconds([&] { body(static_cast<int>(i)); }); });
  const double rate = static_cast<double>(setting.bytes) / took;
  bench::Line("cap_persist")
      .text("how", how)
      .count("cpu_threads", threads)
      .count("bytes", setting.bytes)
      .number("gb_per_s", rate / 1e9)
      .number("copy_engine_gb_per_s", setting.link / 1e9)
      .number("ratio_to_copy_engine", rate / setting.link)
      .text("flush", workload::flush_instruction())
      .print();
}

void copied_then_flushed(const Setting& setting, workload::Team& team) {
  holdfast::Stream stream;
  measure("copied, then flushed", setting, team.threads(), [&](int) {
    holdfast::copy_async(stream, setting.medium, setting.source, setting.bytes);
    stream.synchronize();
    team.for_chunks(setting.bytes, share_of(setting, team.threads()),
                    [&](unsigned, std::uint64_t first, std::uint64_t count) {
                      workload::flush_lines(setting.medium + first, count);
                    });
  });
}

void copied_in_parts(const Setting& setting, workload::Team& team) {
  std::vector<std::unique_ptr<holdfast::Stream>> streams;
  streams.reserve(team.threads());
  for (unsigned i = 0; i < team.threads(); ++i) {
    streams.push_back(std::make_unique<holdfast::Stream>());
  }
  const std::uint64_t part = std::min(kPart, share_of(setting, team.threads()));
  measure("copied and flushed in parts", setting, team.threads(), [&](int) {
    team.for_chunks(
        setting.bytes, part, [&](unsigned thread, std::uint64_t first, std::uint64_t count) {
          holdfast::Stream& own = *streams[thread];
          holdfast::copy_async(own, setting.medium + first, setting.source + first, count);
          own.synchronize();
          workload::flush_lines(setting.medium + first, count);
        });
  });
}

void stored_and_flushed(const Setting& setting, workload::Team& team) {
  measure("stored and flushed", setting, team.threads(), [&](int round) {
    team.for_chunks(setting.bytes, share_of(setting, team.threads()),
                    [&](unsigned, std::uint64_t first, std::uint64_t count) {
                      auto* const words = reinterpret_cast<std::uint64_t*>(setting.medium + first);
                      for (std::uint64_t i = 0; i < count / 8; ++i) {
                        words[i] = first + i + static_cast<std::uint64_t>(round);
                      }
                      workload::flush_lines(words, count);
                    });
  });
}

void print_scattered(const char* how, const Setting& setting, const workload::Team& team,
                     std::uint64_t changes, double took) {
  bench::Line("cap_scattered")
      .text("how", how)
      .count("cpu_threads", team.threads())
      .count("table_bytes", setting.bytes)
      .count("changes", changes)
      .number("milliseconds", took * 1e3)
      .number("million_per_s", static_cast<double>(changes) / took / 1e6)
      .text("flush", workload::flush_instruction())
      .print();
}

void scattered(const Setting& setting, workload::Team& team, std::uint64_t changes) {
  constexpr std::uint64_t kLine = 64;
  constexpr std::uint64_t kChunk = 4096;
  std::mt19937_64 random(changes);
  std::vector<std::uint64_t> lines(changes);
  struct alignas(16) Cell {
    std::uint64_t words[2];
  };
  const std::vector<Cell> contents(changes * (kLine / sizeof(Cell)), Cell{{7, 7}});
  const auto content = [&](std::uint64_t i) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(&contents[i]));
  };
  const auto place = [&](std::uint64_t i) {
    return reinterpret_cast<__m128i*>(setting.medium + lines[i] * kLine);
  };
  // Drawn anew each time: what was stored to a moment ago may be in the caches.
  const auto timed = [&](const auto& store) {
    return bench::warmed(setting.repeat, [&](auto) {
      for (std::uint64_t& line : lines) line = random() % (setting.bytes / kLine);
      std::sort(lines.begin(), lines.end());
      return bench::seconds([&] { team.for_chunks(changes, kChunk, store); });
    });
  };
  print_scattered(
      "cells written back", setting, team, changes,
      timed([&](unsigned, std::uint64_t first, std::uint64_t count) {
        workload::store_scattered(
            count, [&](std::uint64_t i) { return place(first + i); },
            [&](std::uint64_t i) { _mm_store_si128(place(first + i), content(first + i)); });
      }));
  print_scattered("lines past the caches", setting, team, changes,
                  timed([&](unsigned, std::uint64_t first, std::uint64_t count) {
                    for (std::uint64_t i = first; i < first + count; ++i) {
                      for (unsigned k = 0; k < kLine / 16; ++k) {
                        _mm_stream_si128(place(i) + k, content(i * (kLine / 16) + k));
                      }
                    }
                    _mm_sfence();
                  }));
}

// Powers of two, and the most.
std::vector<unsigned> thread_counts(unsigned most) {
  std::vector<unsigned> counts;
  for (unsigned threads = 1; threads < most; threads *= 2) counts.push_back(threads);
  counts.push_back(most);
  return counts;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(
      argc, argv,
      {{"mib", 256}, {"repeat", 5}, {"max_threads", 0}, {"only_link", 0}, {"scattered", 0}});
  if (options["mib"] == 0 || options["repeat"] == 0) {
    std::fprintf(stderr, "cap_bench: --mib and --repeat are 1 or more\n");
    return 2;
  }
  const double link = bench::copy_engine_bandwidth();
  if (options["only_link"] != 0) {
    bench::Line("copy_engine").number("gb_per_s", link / 1e9).print();
    return 0;
  }
  const std::uint64_t bytes = options["mib"] << 20;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const unsigned most =
      options["max_threads"] != 0 ? static_cast<unsigned>(options["max_threads"]) : cores;
  bench::ScratchRegion scratch(bytes + (4 << 20));
  const auto medium = scratch.get().allocate<unsigned char>("bytes", bytes);
  holdfast::DeviceBuffer<unsigned char> source(bytes);
  holdfast::Stream stream;
  // Written once: memory that never was costs nothing to read on the CPU backend.
  holdfast::copy_async(stream, source.data(), medium.data(), bytes);
  stream.synchronize();
  const Setting setting{medium.data(), source.data(), bytes, static_cast<int>(options["repeat"]),
                        link};
  for (const unsigned threads : thread_counts(most)) {
    workload::Team team(threads);
    if (options["scattered"] != 0) {
      scattered(setting, team, options["scattered"]);
      continue;
    }
    copied_then_flushed(setting, team);
    copied_in_parts(setting, team);
    stored_and_flushed(setting, team);
  }
  return 0;
}

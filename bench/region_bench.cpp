// What regions cost: commits, opening, finding an arena again. One JSON object per line.
//
//   region_bench [--size=BYTES] [--image-folder=DIR] [--arena-folder=DIR] [--repeat=N]
//                [--only=commit|open]
//
// Every result names its baseline: a full commit for the partial ones; for opening, a program
// that takes shared memory, reads the same bytes into it with as many threads, and pins it; the
// better of buffered and direct reads.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/inspect.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace {

using holdfast::CommitStats;
using holdfast::kPageBytes;
using holdfast::Region;
using holdfast::Tracking;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::uint64_t size = std::uint64_t{1} << 30;
  std::string image_folder = ".";
  std::string arena_folder;
  std::string only;
  int repeat = 5;
};

// How many commits of scattered pages make a steady state, and how many of them are measured.
constexpr int kScatteredCommits = 150;
constexpr int kLastCommits = 15;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

unsigned thread_count() { return std::clamp(std::thread::hardware_concurrency(), 1u, 16u); }

void in_parallel(std::uint64_t pieces, const std::function<void(std::uint64_t)>& body) {
  std::atomic<std::uint64_t> next{0};
  std::vector<std::thread> threads;
  threads.reserve(thread_count());
  for (unsigned i = 0; i < thread_count(); ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t piece = next++; piece < pieces; piece = next++) body(piece);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Different bytes in every page and every round.
void fill(std::span<std::uint64_t> words, std::uint64_t round) {
  constexpr std::uint64_t kPiece = 1 << 18;
  in_parallel((words.size() + kPiece - 1) / kPiece, [&](std::uint64_t piece) {
    const std::uint64_t end = std::min<std::uint64_t>(words.size(), (piece + 1) * kPiece);
    for (std::uint64_t i = piece * kPiece; i < end; ++i) {
      words[i] = (i + 1) * 0x9e3779b97f4a7c15u + round;
    }
  });
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : settings_(settings), path_(settings.image_folder + "/region_bench.region") {}
  ~Bench() { ::unlink(path_.c_str()); }

  void commits(Tracking tracking) {
    Region region = create(tracking);
    auto words = region.find<std::uint64_t>("words");
    const char* const kind = tracking == Tracking::marked ? "marked" : "hashed";
    // Twice: afterwards the file has room for the commit in force and the next one.
    for (const char* name : {"first", "second"}) {
      fill(words, name[0]);
      region.mark(words.data(), words.size_bytes());
      print(std::string("commit_full_") + name, kind, {region.commit()}, 0);
    }
    std::vector<CommitStats> runs;
    for (int i = 0; i < settings_.repeat; ++i) {
      fill(words, 1000 + i);
      region.mark(words.data(), words.size_bytes());
      runs.push_back(region.commit());
    }
    const double full = print("commit_full", kind, runs, 0);

    const auto measure = [&](const std::string& name, auto&& change) {
      runs.clear();
      for (int i = 0; i < settings_.repeat; ++i) {
        change();
        runs.push_back(region.commit());
      }
      print(name, kind, runs, full);
    };
    std::mt19937_64 random(1);
    measure("commit_1_percent_scattered", [&] { scatter(region, words, random); });
    measure("commit_1_percent_adjacent", [&] {
      const std::uint64_t pages = words.size_bytes() / kPageBytes;
      const std::uint64_t first = random() % (pages - pages / 100);
      for (std::uint64_t page = first; page < first + pages / 100; ++page) {
        ++words[page * (kPageBytes / 8)];
      }
      region.mark(&words[first * (kPageBytes / 8)], pages / 100 * kPageBytes);
    });
    measure("commit_unchanged", [] {});
    // So many that the room which full commits leave is used up, and a commit has to make its own.
    for (int i = 0; i < kScatteredCommits; ++i) {
      scatter(region, words, random);
      const CommitStats run = region.commit();
      if (i == kScatteredCommits - kLastCommits) runs.clear();
      runs.push_back(run);
    }
    print("commit_1_percent_scattered_steady", kind, runs, full);
    region.close();
    Region::destroy(path_);
  }

  void open_and_adopt() {
    {
      Region region = create(Tracking::marked);
      auto words = region.find<std::uint64_t>("words");
      fill(words, 1);
      region.mark(words.data(), words.size_bytes());
      region.close();
    }
    open_clean("open_clean", settings_.repeat);
    adopt();
    {
      Region region = Region::open(path_, {settings_.arena_folder, 0});
      auto words = region.find<std::uint64_t>("words");
      std::mt19937_64 random(1);
      for (int i = 0; i < kScatteredCommits; ++i) {
        scatter(region, words, random);
        region.commit();
      }
      region.close();
    }
    open_clean("open_scattered", std::min(settings_.repeat, 3));
    Region::destroy(path_);
  }

 private:
  // Clean opens, from the disk and from the page cache.
  void open_clean(const char* name, int repeat) {
    for (const bool cold : {true, false}) {
      std::vector<double> opened, check, load, pin, buffered, direct, pinned;
      for (int i = 0; i < repeat; ++i) {
        for (const bool bypass : {false, true}) {
          cache(cold);
          const auto [read_ms, pin_ms] = baseline(bypass);
          (bypass ? direct : buffered).push_back(read_ms);
          pinned.push_back(pin_ms);
        }
        cache(cold);
        const Clock::time_point start = Clock::now();
        Region region = Region::open(path_, {settings_.arena_folder, 0});
        opened.push_back(ms_since(start));
        check.push_back(region.open_report().check_ms);
        load.push_back(region.open_report().load_ms);
        pin.push_back(region.open_report().pin_ms);
        region.close();
      }
      const double read = std::min(median(buffered), median(direct));
      const double reference = read + median(pinned);
      std::printf(
          "{\"bench\":\"%s\",\"cache\":\"%s\",\"bytes\":%llu,\"threads\":%u,"
          "\"backend\":\"%s\",\"open_ms\":%.2f,\"check_ms\":%.2f,\"load_ms\":%.2f,\"pin_ms\":%.2f,"
          "\"read_buffered_ms\":%.2f,\"read_direct_ms\":%.2f,\"pin_alone_ms\":%.2f,"
          "\"ratio_to_read_and_pin\":%.3f,\"file_bytes\":%llu,\"runs\":%d}\n",
          name, cold ? "cold" : "warm", static_cast<unsigned long long>(settings_.size),
          thread_count(), holdfast::backend::name(), median(opened), median(check), median(load),
          median(pin), median(buffered), median(direct), median(pinned), median(opened) / reference,
          static_cast<unsigned long long>(file_bytes()), repeat);
      std::fflush(stdout);
    }
  }

  // Changes 1 % of the pages at random places.
  static void scatter(Region& region, std::span<std::uint64_t> words, std::mt19937_64& random) {
    const std::uint64_t pages = words.size_bytes() / kPageBytes;
    for (std::uint64_t k = 0; k < pages / 100; ++k) {
      std::uint64_t& word = words[random() % pages * (kPageBytes / 8)];
      ++word;
      region.mark(&word, 8);
    }
  }

  std::uint64_t file_bytes() const {
    struct stat info {};
    return ::stat(path_.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
  }

  Region create(Tracking tracking) {
    ::unlink(path_.c_str());
    holdfast::RegionOptions options;
    options.size = settings_.size;
    options.max_size = settings_.size;
    options.arena_folder = settings_.arena_folder;
    Region region = Region::create(path_, options);
    region.allocate<std::uint64_t>("words", (region.size() - region.used()) / 8, tracking);
    return region;
  }

  double print(const std::string& name, const char* tracking, const std::vector<CommitStats>& runs,
               double full) const {
    std::vector<double> total, snapshot;
    for (const CommitStats& run : runs) {
      total.push_back(run.snapshot_ms + run.write_ms);
      snapshot.push_back(run.snapshot_ms);
    }
    const CommitStats& last = runs.back();
    std::printf(
        "{\"bench\":\"%s\",\"tracking\":\"%s\",\"bytes\":%llu,\"backend\":\"%s\","
        "\"commit_ms\":%.3f,\"snapshot_ms\":%.3f,\"pages_examined\":%llu,\"pages_written\":%llu,"
        "\"pages_moved\":%llu,\"bytes_written\":%llu,\"file_bytes\":%llu,\"percent_of_full\":%.2f,"
        "\"runs\":%zu}\n",
        name.c_str(), tracking, static_cast<unsigned long long>(settings_.size),
        holdfast::backend::name(), median(total), median(snapshot),
        static_cast<unsigned long long>(last.pages_examined),
        static_cast<unsigned long long>(last.pages_written),
        static_cast<unsigned long long>(last.pages_moved),
        static_cast<unsigned long long>(last.bytes_written),
        static_cast<unsigned long long>(file_bytes()),
        full > 0 ? 100 * median(total) / full : 100.0, runs.size());
    std::fflush(stdout);
    return median(total);
  }

  // Puts the image into the page cache, or takes it out.
  void cache(bool cold) const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    ::fdatasync(fd);
    if (cold) {
      ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    } else {
      std::vector<char> buffer(1 << 20);
      for (off_t at = 0; (at = ::lseek(fd, at, SEEK_DATA)) >= 0;) {
        const ssize_t got = ::pread(fd, buffer.data(), buffer.size(), at);
        if (got <= 0) break;
        at += got;
      }
    }
    ::close(fd);
  }

  // Reads as many bytes as the image stores, where it stores them, into fresh shared memory, and
  // pins that: what any program would have to do.
  std::pair<double, double> baseline(bool bypass_cache) const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | (bypass_cache ? O_DIRECT : 0));
    if (fd < 0) return {1e30, 0};
    const std::string folder = settings_.arena_folder.empty() ? "/dev/shm" : settings_.arena_folder;
    const int memory = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    const auto bytes = static_cast<off_t>(settings_.size);
    if (memory < 0 || ::ftruncate(memory, bytes) != 0) return {1e30, 0};
    struct Extent {
      off_t from;
      std::uint64_t to;
      std::size_t bytes;
    };
    std::vector<Extent> extents;
    std::uint64_t to = 0;
    for (off_t at = 0; (at = ::lseek(fd, at, SEEK_DATA)) >= 0 && to < settings_.size;) {
      const off_t end = ::lseek(fd, at, SEEK_HOLE);
      for (; at < end && to < settings_.size; at += 2 << 20) {
        const std::size_t part = std::min<std::uint64_t>(
            {2u << 20, static_cast<std::uint64_t>(end - at), settings_.size - to});
        extents.push_back({at, to, part});
        to += part;
      }
      at = end;
    }
    Clock::time_point start = Clock::now();
    auto* const base = static_cast<char*>(
        ::mmap(nullptr, settings_.size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    ::madvise(base, settings_.size, MADV_HUGEPAGE);
    constexpr std::uint64_t kPiece = 64 << 20;
    in_parallel((settings_.size + kPiece - 1) / kPiece, [&](std::uint64_t i) {
      ::madvise(base + i * kPiece, std::min(kPiece, settings_.size - i * kPiece),
                MADV_POPULATE_WRITE);
    });
    in_parallel(extents.size(), [&](std::uint64_t i) {
      const Extent& extent = extents[i];
      std::size_t done = 0;
      while (done < extent.bytes) {
        const ssize_t got = ::pread(fd, base + extent.to + done, extent.bytes - done,
                                    extent.from + static_cast<off_t>(done));
        if (got <= 0) break;
        done += static_cast<std::size_t>(got);
      }
    });
    const double read_ms = ms_since(start);
    start = Clock::now();
    holdfast::backend::register_host(base, settings_.size, "the baseline's memory");
    const double pin_ms = ms_since(start);
    holdfast::backend::unregister_host(base, settings_.size);
    ::munmap(base, settings_.size);
    ::close(memory);
    ::close(fd);
    return {read_ms, pin_ms};
  }

  void adopt() {
    std::vector<double> opened, check, load, pin;
    Region::open(path_, {settings_.arena_folder, 0}).abandon();
    for (int i = 0; i < settings_.repeat; ++i) {
      const Clock::time_point start = Clock::now();
      Region region = Region::open(path_, {settings_.arena_folder, 0});
      opened.push_back(ms_since(start));
      check.push_back(region.open_report().check_ms);
      load.push_back(region.open_report().load_ms);
      pin.push_back(region.open_report().pin_ms);
      region.abandon();
    }
    std::printf(
        "{\"bench\":\"open_after_crash\",\"bytes\":%llu,\"backend\":\"%s\",\"open_ms\":%.2f,"
        "\"check_ms\":%.2f,\"load_ms\":%.2f,\"pin_ms\":%.2f,\"more_than_pinning_ms\":%.2f,"
        "\"runs\":%d}\n",
        static_cast<unsigned long long>(settings_.size), holdfast::backend::name(), median(opened),
        median(check), median(load), median(pin), median(opened) - median(pin), settings_.repeat);
    std::fflush(stdout);
  }

  Settings settings_;
  std::string path_;
};

bool parse(int count, char** arguments, Settings& settings) {
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos) return false;
    const std::string name = argument.substr(0, equals);
    const std::string value = argument.substr(equals + 1);
    if (name == "--size") {
      settings.size = std::strtoull(value.c_str(), nullptr, 0) / kPageBytes * kPageBytes;
    } else if (name == "--image-folder") {
      settings.image_folder = value;
    } else if (name == "--arena-folder") {
      settings.arena_folder = value;
    } else if (name == "--repeat") {
      settings.repeat = std::max(1, static_cast<int>(std::strtol(value.c_str(), nullptr, 0)));
    } else if (name == "--only") {
      settings.only = value;
    } else {
      return false;
    }
  }
  return settings.size >= 1 << 20;
}

}  // namespace

int main(int count, char** arguments) {
  Settings settings;
  if (!parse(count, arguments, settings)) {
    std::fprintf(stderr,
                 "usage: region_bench [--size=BYTES] [--image-folder=DIR] [--arena-folder=DIR] "
                 "[--repeat=N] [--only=commit|open]\n");
    return 2;
  }
  try {
    Bench bench(settings);
    if (settings.only != "open") {
      bench.commits(Tracking::marked);
      bench.commits(Tracking::hashed);
    }
    if (settings.only != "commit") bench.open_and_adopt();
  } catch (const holdfast::Error& error) {
    std::fprintf(stderr, "region_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

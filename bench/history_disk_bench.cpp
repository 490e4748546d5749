// What a history's steps cost on a disk, beside that disk's own sequential speed: the same bytes
// written and read in turns by threads that do nothing but O_DIRECT transfers of the same size,
// into a file whose space is taken before, with one sync at the end.
//
//   history_disk_bench FOLDER [--bytes=N] [--repeat=N] [--threads=N]
//
// One JSON object per line. The folder must not be there; it is removed.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "bench.hpp"
#include "history/folder_store.hpp"

namespace {

using holdfast::history::kChunkBytes;

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// A file that is written and read with nothing around it.
class Plain {
 public:
  Plain(std::string path, unsigned threads) : path_(std::move(path)), threads_(threads) {}
  ~Plain() { ::unlink(path_.c_str()); }

  void write(std::span<const std::byte> from) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
    check(fd >= 0, "open");
    check(::fallocate(fd, 0, 0, static_cast<off_t>(from.size())) == 0, "fallocate");
    in_pieces(from.size(), [&](std::size_t at, std::size_t bytes) {
      check(::pwrite(fd, from.data() + at, bytes, static_cast<off_t>(at)) ==
                static_cast<ssize_t>(bytes),
            "write");
    });
    check(::fdatasync(fd) == 0, "sync");
    ::close(fd);
  }
  void read(std::span<std::byte> into) {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    check(fd >= 0, "open");
    in_pieces(into.size(), [&](std::size_t at, std::size_t bytes) {
      check(::pread(fd, into.data() + at, bytes, static_cast<off_t>(at)) ==
                static_cast<ssize_t>(bytes),
            "read");
    });
    ::close(fd);
  }
  void remove() { ::unlink(path_.c_str()); }

 private:
  template <class Body>
  void in_pieces(std::size_t total, Body&& body) {
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    threads.reserve(threads_);
    for (unsigned i = 0; i < threads_; ++i) {
      threads.emplace_back([&] {
        for (std::size_t at; (at = next.fetch_add(kChunkBytes)) < total;) {
          body(at, std::min<std::size_t>(kChunkBytes, total - at));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const std::string path_;
  const unsigned threads_;
};

void run(const std::string& folder, const bench::Options& options) {
  const std::uint64_t bytes = options["bytes"];
  const auto threads = static_cast<unsigned>(options["threads"]);
  check(::mkdir(folder.c_str(), 0700) == 0, "mkdir");
  holdfast::history::open_folder_store(folder + "/history").reset();
  const auto store = holdfast::history::open_folder_store(
      holdfast::history::open_folder(folder + "/history"), {}, {kChunkBytes, threads});
  Plain plain(folder + "/plain", threads);
  holdfast::history::AlignedBytes blob(bytes), into(bytes);
  for (std::uint64_t i = 0; i + 8 <= bytes; i += 8) {
    const std::uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u;
    std::memcpy(blob.data() + i, &word, 8);
  }
  std::vector<double> writes, reads, plain_writes, plain_reads, removals, write_ratios, read_ratios;
  for (std::uint64_t i = 0; i <= options["repeat"]; ++i) {
    const auto store_turn = [&] {
      writes.push_back(bench::seconds([&] {
        store->write({i, bytes, {{"x", 0, bytes}}, 0}, blob.span().first(bytes), {});
      }));
      reads.push_back(bench::seconds([&] { store->read(i, into.span().first(bytes), {}); }));
      removals.push_back(bench::seconds([&] { store->remove(i); }));
    };
    const auto plain_turn = [&] {
      plain_writes.push_back(bench::seconds([&] { plain.write(blob.span()); }));
      plain_reads.push_back(bench::seconds([&] { plain.read(into.span()); }));
      plain.remove();
    };
    // Neither is always the first.
    i % 2 == 0 ? (store_turn(), plain_turn()) : (plain_turn(), store_turn());
    write_ratios.push_back(plain_writes.back() / writes.back());
    read_ratios.push_back(plain_reads.back() / reads.back());
    if (i == 0) {  // to warm up
      for (auto* list :
           {&writes, &reads, &plain_writes, &plain_reads, &removals, &write_ratios, &read_ratios}) {
        list->clear();
      }
    }
  }
  const auto rate = [&](const std::vector<double>& seconds) {
    return static_cast<double>(bytes) / 1e6 / bench::median(seconds);
  };
  const auto best = [&](const std::vector<double>& seconds) {
    return static_cast<double>(bytes) / 1e6 / *std::min_element(seconds.begin(), seconds.end());
  };
  bench::Line("history_disk")
      .count("bytes", bytes)
      .count("threads", threads)
      .count("repeat", options["repeat"])
      .number("write_MB_per_s", rate(writes))
      .number("plain_write_MB_per_s", rate(plain_writes))
      .number("write_ratio", bench::median(write_ratios))
      .number("best_write_MB_per_s", best(writes))
      .number("plain_best_write_MB_per_s", best(plain_writes))
      .number("read_MB_per_s", rate(reads))
      .number("plain_read_MB_per_s", rate(plain_reads))
      .number("read_ratio", bench::median(read_ratios))
      .number("best_read_MB_per_s", best(reads))
      .number("plain_best_read_MB_per_s", best(plain_reads))
      .number("remove_ms", 1e3 * bench::median(removals))
      .print();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') {
    std::fprintf(stderr,
                 "usage: history_disk_bench FOLDER [--bytes=N] [--repeat=N] [--threads=N]\n");
    return 2;
  }
  const std::string folder = argv[1];
  const bench::Options options(argc - 1, argv + 1,
                               {{"bytes", 128u << 20}, {"repeat", 15}, {"threads", 4}});
  int status = 0;
  const bool is_free = !std::filesystem::exists(folder);
  try {
    run(folder, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "history_disk_bench: %s\n", error.what());
    status = 1;
  }
  if (is_free) std::filesystem::remove_all(folder);
  return status;
}

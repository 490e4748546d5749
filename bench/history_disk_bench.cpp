// What a history's steps cost on a disk, beside that disk's own sequential speed: the same bytes
// written and read in turns by threads that do nothing but O_DIRECT transfers of the same size,
// into a file whose space is taken before, with one sync at the end.
//
//   history_disk_bench FOLDER [--bytes=N] [--repeat=N] [--threads=N]
//
// One JSON object per line. The folder must not be there; it is removed.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "bench.hpp"
#include "history/folder_store.hpp"
#include "plain_file.hpp"

namespace {

using bench::check;
using bench::PlainFile;
using holdfast::history::kChunkBytes;

void run(const std::string& folder, const bench::Options& options) {
  const std::uint64_t bytes = options["bytes"];
  const auto threads = static_cast<unsigned>(options["threads"]);
  check(::mkdir(folder.c_str(), 0700) == 0, "mkdir");
  holdfast::history::open_folder_store(folder + "/history").reset();
  const auto store = holdfast::history::open_folder_store(
      holdfast::history::open_folder(folder + "/history"), {}, {kChunkBytes, threads});
  PlainFile plain(folder + "/plain", threads);
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

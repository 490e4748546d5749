#include "libgpm/artifact.hpp"

#include <sys/wait.h>
#include <unistd.h>

// As the artifact's sources have them.
#include "bandwidth_analysis.cuh"
#include "change-ddio.h"
#include "libgpmcp.cuh"
#include "libgpmlog.cuh"

#include "holdfast/stream.hpp"

namespace artifact {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks = (kRows + kThreads - 1) / kThreads;
constexpr std::size_t kRowBytes = kRowWords * sizeof(std::uint32_t);
const char* const kTable = "table";
const char* const kLog = "table.log";
const char* const kMeta = "table.meta";

__host__ __device__ std::uint32_t word_of(int row, int word, unsigned update) {
  return static_cast<std::uint32_t>(row * 31 + word) ^ (update * 0x9e3779b9u);
}

struct Entry {
  std::uint32_t old[kRowWords];
  int row;
};

__global__ void update_rows(std::uint32_t* table, gpmlog* log, int rows, unsigned update) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= rows) return;
  PMEM_READ_OP(std::uint32_t* const place = table + row * kRowWords, kRowBytes)
  Entry entry;
  entry.row = row;
  for (int word = 0; word < kRowWords; ++word) entry.old[word] = place[word];
  gpmlog_insert(log, &entry, sizeof(Entry));
  std::uint32_t fresh[kRowWords];
  for (int word = 0; word < kRowWords; ++word) fresh[word] = word_of(row, word, update);
  PMEM_WRITE_OP(gpm_memcpy_nodrain(place, fresh, kRowBytes, cudaMemcpyDeviceToDevice), kRowBytes)
  gpm_drain();
}

__global__ void clear_log(gpmlog* log) {
  if (static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) < gpmlog_get_partitions(log)) {
    gpmlog_clear(log);
  }
}

__global__ void undo(std::uint32_t* table, gpmlog* log) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (thread >= gpmlog_get_partitions(log)) return;
  if (gpmlog_get_size(log, thread) != sizeof(Entry)) return;
  Entry entry;
  if (gpmlog_read(log, &entry, sizeof(Entry)) != sizeof(Entry)) return;
  gpm_memcpy(table + entry.row * kRowWords, entry.old, kRowBytes, cudaMemcpyDeviceToDevice);
  gpmlog_remove(log, sizeof(Entry));
}

__global__ void note_update(gpmlog* meta, int update) {
  gpmlog_clear(meta, 0);
  gpmlog_insert(meta, &update, sizeof(int), 0);
}

__global__ void read_update(gpmlog* meta, int* update) {
  *update = -1;
  if (gpmlog_is_empty(meta, 0) == 0) gpmlog_read(meta, update, sizeof(int), 0);
}

__global__ void move_words(std::uint32_t* words, std::uint32_t* out, gpmlog* log, int* answers) {
  gpm_memset(words, 0xab, 13);
  gpm_memset_nodrain(words + 8, 0, 7);
  gpm_memcpy_nodrain(reinterpret_cast<char*>(words) + 33, "holdfast", 8, cudaMemcpyDeviceToDevice);
  gpm_flush(words, 64);
  gpm_persist(words, 64);
  gpm_persist();
  for (int i = 0; i < 16; ++i) out[i] = words[i];
  std::uint64_t pair = 42;
  answers[0] = gpmlog_insert(log, &pair, sizeof(pair), 3);
  answers[1] = static_cast<int>(gpmlog_get_size(log, 3));
  pair = 0;
  answers[2] = gpmlog_read_remove(log, &pair, sizeof(pair), 3);
  answers[3] = static_cast<int>(pair);
  answers[4] = gpmlog_is_empty(log, 3);
  answers[5] = gpmlog_read(log, &pair, sizeof(pair), 3);
  answers[6] = gpm_is_pmem(words, 64);
}

__global__ void misuse(gpmlog* log, int* answers) {
  std::uint64_t pair = 1;
  answers[0] = gpmlog_insert(log, &pair, sizeof(pair), 1 << 20);
  answers[1] = gpmlog_insert(log, &pair, sizeof(pair));
  answers[3] = gpmlog_insert(log, &pair, (std::size_t{1} << 32) + 4, 1);
  answers[2] = 1;
  for (int i = 0; i < 1000 && answers[2] > 0; ++i) answers[2] = gpmlog_insert(log, &pair, 8, 0);
}

__global__ void fill_words(std::uint32_t* words, std::uint32_t count, std::uint32_t value) {
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) words[i] = value + i;
}

std::uint32_t* map_table(bool create) {
  std::size_t bytes = create ? kRows * kRowBytes : 0;
  return static_cast<std::uint32_t*>(gpm_map_file(kTable, bytes, create));
}

}  // namespace

std::vector<std::uint32_t> table_after(unsigned updates) {
  std::vector<std::uint32_t> words(kRows * kRowWords, 0);
  for (int row = 0; updates > 0 && row < kRows; ++row) {
    for (int word = 0; word < kRowWords; ++word) {
      words[row * kRowWords + word] = word_of(row, word, updates);
    }
  }
  return words;
}

void make_and_update(unsigned updates, int rows_of_last) {
  START_BW_MONITOR2("unused.csv")
  ddio_on();  // as they do, before anything was switched off
  std::uint32_t* const table = map_table(true);
  std::size_t bytes = kBlocks * kThreads * sizeof(Entry);
  gpmlog* const log = gpmlog_create_managed(kLog, bytes, kBlocks, kThreads);
  gpmlog* const meta = gpmlog_create(kMeta, sizeof(int) * 2, 1);
  holdfast::Stream stream;
  ddio_off();
  for (unsigned update = 1; update <= updates; ++update) {
    const int rows = update == updates ? rows_of_last : kRows;
    holdfast::launch(stream, 1, 1, note_update, meta, static_cast<int>(update));
    holdfast::launch(stream, kBlocks, kThreads, update_rows, table, log, rows, update);
    if (rows == kRows) holdfast::launch(stream, kBlocks, kThreads, clear_log, log);
  }
  stream.synchronize();
  OUTPUT_STATS
  STOP_BW_MONITOR
}

std::vector<std::uint32_t> recover() {
  std::uint32_t* const table = map_table(false);
  gpmlog* const log = gpmlog_open(kLog);
  gpmlog* const meta = gpmlog_open(kMeta);
  holdfast::Stream stream;
  const int threads = gpmlog_get_partitions(log);
  holdfast::PinnedBuffer<int> update(1);
  holdfast::launch(stream, (threads + kThreads - 1) / kThreads, kThreads, undo, table, log);
  holdfast::launch(stream, 1, 1, read_update, meta, update.data());
  stream.synchronize();
  holdfast::PinnedBuffer<std::uint32_t> words(kRows * kRowWords);
  holdfast::copy_async(stream, words.data(), table, kRows * kRowBytes);
  stream.synchronize();
  gpmlog_close(log);
  gpmlog_close(meta);
  gpm_unmap(kTable, table, kRows * kRowBytes);
  std::vector<std::uint32_t> found(words.data(), words.data() + kRows * kRowWords);
  found.push_back(static_cast<std::uint32_t>(update[0]));
  return found;
}

// What is wrong; empty: nothing.
std::string use_everything_else() {
  std::size_t bytes = 64;
  auto* words = static_cast<std::uint32_t*>(gpm_map_file("words", bytes, true));
  gpmlog* const log = gpmlog_create_conv("words.log", 1024, 4, PMEMLOG_UNMANAGED);
  holdfast::Stream stream;
  holdfast::PinnedBuffer<std::uint32_t> out(16);
  holdfast::PinnedBuffer<int> answers(7);
  holdfast::launch(stream, 1, 1, move_words, words, out.data(), log, answers.data());
  stream.synchronize();
  const int expected[] = {8, 8, 8, 42, 1, 0, 1};
  for (int i = 0; i < 7; ++i) {
    if (answers[i] != expected[i]) return "answer " + std::to_string(i);
  }
  const auto* chars = reinterpret_cast<const unsigned char*>(out.data());
  for (int i = 0; i < 13; ++i) {
    if (chars[i] != 0xab) return "gpm_memset in a kernel";
  }
  if (chars[13] != 0 || std::string(reinterpret_cast<const char*>(chars) + 33, 8) != "holdfast") {
    return "gpm_memcpy_nodrain";
  }
  const std::uint32_t given[4] = {1, 2, 3, 4};
  if (gpm_memcpy(words + 4, given, sizeof(given), cudaMemcpyHostToDevice) != cudaSuccess) {
    return "gpm_memcpy of the host";
  }
  if (gpm_memset(words, 7, 3) != cudaSuccess) return "gpm_memset of the host";
  pmem_mt_persist(words, 64);
  if (gpm_is_pmem(words, 64) != 1 || gpm_is_pmem(words, 65) != 0 || gpm_is_pmem(given, 4) != 0) {
    return "gpm_is_pmem";
  }
  gpmlog_close(log);
  if (gpm_unmap("words", words, bytes) != cudaSuccess) return "gpm_unmap";
  bytes = 64;  // again, as a program that is run twice does
  words = static_cast<std::uint32_t*>(gpm_map_file("words", bytes, true));
  if (!words) return "what is there is not opened";
  holdfast::copy_async(stream, out.data(), words, 64);
  stream.synchronize();
  if (out[4] != 1 || out[7] != 4 || chars[0] != 7 || chars[3] != 0xab) return "it was not kept";
  gpm_unmap(words, bytes);

  holdfast::DeviceBuffer<std::uint32_t> a(100), b(7);
  for (int life = 0; life < 2; ++life) {
    gpmcp* const checkpoint = gpmcp_create("cp", (100 + 7) * 4, 2, 1);
    if (!checkpoint) return "gpmcp_create";
    if (gpmcp_register(checkpoint, a.data(), a.bytes(), 0) != 0 ||
        gpmcp_register(checkpoint, b.data(), b.bytes(), 0) != 0) {
      return "gpmcp_register";
    }
    if (life == 1 && gpmcp_restore(checkpoint, 0) != 0) return "gpmcp_restore";
    if (life == 0) {
      holdfast::launch(stream, 1, 32, fill_words, a.data(), 100u, 1000u);
      holdfast::launch(stream, 1, 32, fill_words, b.data(), 7u, 50u);
      stream.synchronize();
      if (gpmcp_checkpoint(checkpoint, 0) != 0) return "gpmcp_checkpoint";
      holdfast::launch(stream, 1, 32, fill_words, a.data(), 100u, 0u);
      holdfast::launch(stream, 1, 32, fill_words, b.data(), 7u, 0u);
      stream.synchronize();
    }
    gpmcp_close(checkpoint);
  }
  holdfast::copy_async(stream, out.data(), b.data(), b.bytes());
  stream.synchronize();
  return out[0] == 50 && out[6] == 56 ? "" : "what was restored";
}

Answers failures() {
  Answers answers{};
  std::size_t bytes = 0;
  answers.map_missing = gpm_map_file("nowhere", bytes, false) == nullptr;
  bytes = 4096;
  answers.map_length = gpm_map_file("words", bytes, false) == nullptr;
  answers.map_other_size = gpm_map_file("words", bytes, true) == nullptr;
  answers.log_over_table = gpmlog_create("words", 64, 1) == nullptr;
  answers.open_table_as_log = gpmlog_open("words") == nullptr;
  gpmcp* const checkpoint = gpmcp_create("small", 64, 1, 1);
  holdfast::DeviceBuffer<std::uint32_t> data(100);
  answers.register_past_end = gpmcp_register(checkpoint, data.data(), 16, 1);
  answers.checkpoint_nothing = gpmcp_checkpoint(checkpoint, 0);
  gpmcp_close(checkpoint);
  gpmlog* const log = gpmlog_create("full.log", 64, 2);
  holdfast::Stream stream;
  holdfast::PinnedBuffer<int> of_log(4);
  holdfast::launch(stream, 1, 1, misuse, log, of_log.data());
  stream.synchronize();
  gpmlog_close(log);
  answers.log_bad_partition = of_log[0];
  answers.log_unnamed_partition = of_log[1];
  answers.log_full = of_log[2];
  answers.copy_outside = gpm_memcpy(data.data(), of_log.data(), 4, cudaMemcpyHostToDevice);
  answers.log_long = of_log[3];
  bytes = 4096;
  answers.map_too_large = [] {
    std::size_t most = ~std::size_t{0};
    return gpm_map_file("huge", most, true) == nullptr;
  }();
  answers.log_shape = gpmlog_create("full.log", 64, 0) == nullptr;
  gpmlog* const opened = gpmlog_open("full.log");
  answers.log_open = opened != nullptr && gpmlog_create("full.log", 64, 2) == nullptr;
  gpmlog_close(opened);
  answers.checkpoint_over_table = gpmcp_create("words", 64, 1, 1) == nullptr;
  gpmcp* const held = gpmcp_create("held", 64, 1, 1);
  bytes = 64;
  void* const held_map = gpm_map_file("held.map", bytes, true);
  answers.open_again =
      gpmcp_create("held", 64, 1, 1) != nullptr || gpm_map_file("held.map", bytes, true) != nullptr;
  gpmcp_close(held);
  gpm_unmap("held.map", held_map, bytes);
  answers.checkpoint_groups = gpmcp_create("groups", 64, 1, 501) == nullptr ? -1 : 0;
  std::size_t words = 0;
  void* const map = gpm_map_file("words", words, false);
  const void* volatile null = nullptr;  // which the compiler would see through
  answers.copy_null = gpm_memcpy(map, null, 16, cudaMemcpyHostToDevice);
  gpm_unmap("words", map, words);
  return answers;
}

std::string create_each() {
  std::string missing;
  std::size_t bytes = 4096;
  void* const map = gpm_map_file("made.map", bytes, true);
  if (map == nullptr || gpm_unmap("made.map", map, bytes) != cudaSuccess) missing += " map";
  gpmlog* const log = gpmlog_create("made.log", 1024, 4);
  log == nullptr ? void(missing += " log") : gpmlog_close(log);
  std::size_t taken = 1024;
  gpmlog* const managed = gpmlog_create_managed("made.managed", taken, 1, 4);
  managed == nullptr ? void(missing += " managed log") : gpmlog_close(managed);
  gpmcp* const checkpoint = gpmcp_create("made.checkpoint", 4096, 2, 2);
  checkpoint == nullptr ? void(missing += " checkpoint") : gpmcp_close(checkpoint);
  return missing;
}

bool child_calls_come_back() {
  std::size_t bytes = 4096;
  void* const map = gpm_map_file("forked", bytes, true);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint64_t word = 1;
    const bool come_back = gpm_is_pmem(map, 8) == 1 &&
                           gpm_memcpy(map, &word, 8, cudaMemcpyHostToDevice) != cudaSuccess &&
                           gpm_memset(map, 1, 8) != cudaSuccess;
    ::_exit(come_back ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  gpm_unmap("forked", map, bytes);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace artifact

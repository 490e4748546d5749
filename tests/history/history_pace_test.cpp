// Who goes before whom on a disk: a fetch that a restore waits for before a flush; and checkpoints
// that go past the caches by several threads, whole.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "history/engine.hpp"
#include "holdfast/history.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using std::chrono::milliseconds;

// What a folder's reads and writes of pages wait for.
struct Gates {
  std::mutex mutex;
  std::condition_variable changed;
  int reads = 1 << 30, writes = 1 << 30;  // that may still begin
  int readers = 0, writers = 0;           // that have come

  void pass(int& left, int& come) {
    std::unique_lock lock(mutex);
    ++come;
    changed.notify_all();
    changed.wait(lock, [&] { return left > 0; });
    --left;
  }
  void set(int& left, int to) {
    const std::lock_guard lock(mutex);
    left = to;
    changed.notify_all();
  }
  void await(const int& come, int count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return come >= count; });
  }
  int count(const int& of) {
    const std::lock_guard lock(mutex);
    return of;
  }
};

class GatedFile : public history::FolderFile {
 public:
  GatedFile(std::unique_ptr<FolderFile> inner, std::shared_ptr<Gates> gates)
      : inner_(std::move(inner)), gates_(std::move(gates)) {}
  std::int64_t read(void* to, std::size_t bytes, std::uint64_t offset) override {
    gates_->pass(gates_->reads, gates_->readers);
    return inner_->read(to, bytes, offset);
  }
  std::int64_t write(const void* from, std::size_t bytes, std::uint64_t offset) override {
    gates_->pass(gates_->writes, gates_->writers);
    return inner_->write(from, bytes, offset);
  }
  int reserve(std::uint64_t bytes) override { return inner_->reserve(bytes); }
  std::int64_t size() override { return inner_->size(); }
  int sync() override { return inner_->sync(); }

 private:
  std::unique_ptr<FolderFile> inner_;
  std::shared_ptr<Gates> gates_;
};

class GatedFolder : public history::Folder {
 public:
  GatedFolder(std::unique_ptr<Folder> inner, std::shared_ptr<Gates> gates)
      : inner_(std::move(inner)), gates_(std::move(gates)) {}
  Opened open(const std::string& name) override { return gated(inner_->open(name)); }
  Opened create(const std::string& name) override { return gated(inner_->create(name)); }
  int look_for(const std::string& name) override { return inner_->look_for(name); }
  int rename(const std::string& from, const std::string& to) override {
    return inner_->rename(from, to);
  }
  int unlink(const std::string& name) override { return inner_->unlink(name); }
  int sync() override { return inner_->sync(); }
  int list(std::vector<std::string>& names) override { return inner_->list(names); }
  void lock(const std::string& name) override { inner_->lock(name); }
  const std::string& path() const override { return inner_->path(); }

 private:
  Opened gated(Opened opened) {
    if (opened.file) opened.file = std::make_unique<GatedFile>(std::move(opened.file), gates_);
    return opened;
  }
  std::unique_ptr<Folder> inner_;
  std::shared_ptr<Gates> gates_;
};

class HistoryPaceTest : public test::Scratch {
 protected:
  static constexpr std::uint64_t kBytes = 64 << 10;
  static constexpr int kPages = kBytes / 4096;

  HistoryPaceTest() {
    ::alarm(120);  // what waits for ever fails
    std::filesystem::create_directory(disk());
  }
  ~HistoryPaceTest() override { ::alarm(0); }
  std::string disk() const { return path("disk"); }
  std::unique_ptr<history::Engine> open() {
    HistoryOptions options;
    options.host_bytes = 4 * kBytes;
    options.disk = disk();
    // Page by page, one behind the other.
    auto store = history::open_folder_store(
        std::make_unique<GatedFolder>(history::open_folder(disk()), gates_), {},
        {.chunk_bytes = 4096, .threads = 1});
    auto engine = std::make_unique<history::Engine>(options, std::move(store));
    engine->protect("a", {array_.data(), kBytes, BufferMemory::device});
    return engine;
  }
  // And in no cache.
  std::unique_ptr<history::Engine> open_with_0_on_disk() {
    {
      const auto engine = open();
      engine->save(0, stream_, false);
      engine->flush();
      engine->close();
    }
    return open();
  }

  const std::shared_ptr<Gates> gates_ = std::make_shared<Gates>();
  DeviceBuffer<std::byte> array_{kBytes};
  Stream stream_;
};

TEST_F(HistoryPaceTest, AFlushGivesWayToAFetchThatARestoreWaitsFor) {
  const auto engine = open_with_0_on_disk();
  const std::uint64_t zero = 0;
  gates_->set(gates_->writes, 2);
  const int begun = gates_->count(gates_->writers);
  engine->save(1, stream_, false);
  stream_.synchronize();
  gates_->await(gates_->writers, begun + 1);  // its flush is under way

  gates_->set(gates_->reads, 1);
  const int readers = gates_->count(gates_->readers);
  engine->hint(std::span(&zero, 1));
  engine->prefetch_start();
  gates_->await(gates_->readers, readers + 2);  // the fetch is
  std::thread waiting([&] {
    Stream own;
    engine->restore(0, own, false);
    own.synchronize();
  });
  // The disk would write now: the page that is under way, and one for each pause that is too long.
  const int writers = gates_->count(gates_->writers);
  const auto begin = std::chrono::steady_clock::now();
  gates_->set(gates_->writes, 1 << 30);
  std::this_thread::sleep_for(milliseconds(100));
  const int written = gates_->count(gates_->writers) - writers;
  const auto pauses = (std::chrono::steady_clock::now() - begin) / milliseconds(250);
  EXPECT_LE(written, 1 + pauses);
  // So the flush comes to its end, whatever the fetch waits for.
  while (!engine->is_in(1, Tier::disk)) std::this_thread::sleep_for(milliseconds(1));

  gates_->set(gates_->reads, 1 << 30);
  waiting.join();
  EXPECT_EQ(engine->stats().fetched_to[static_cast<int>(Tier::host)].checkpoints, 1u);
}

// Behind a restore from the disk the next one may come at once; and the flush comes to its end.
TEST_F(HistoryPaceTest, AFlushGivesWayForAWhileBehindARestore) {
  const auto engine = open_with_0_on_disk();
  gates_->set(gates_->writes, 2);
  const int begun = gates_->count(gates_->writers);
  engine->save(1, stream_, false);
  stream_.synchronize();
  gates_->await(gates_->writers, begun + 3);  // two pages are written, and one is under way
  for (int times = 0; times < 5; ++times) {
    gates_->set(gates_->writes, 0);
    const int writers = gates_->count(gates_->writers);
    const auto begin = std::chrono::steady_clock::now();
    engine->restore(0, stream_, true);
    gates_->set(gates_->writes, 1 << 30);
    for (;;) {
      const int written = gates_->count(gates_->writers) - writers;
      if (std::chrono::steady_clock::now() - begin >= milliseconds(20)) break;
      EXPECT_LE(written, 1);  // behind the page that was under way
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_EQ(engine->stats().restored_from[static_cast<int>(Tier::disk)].checkpoints, times + 1u);
  }
  while (!engine->is_in(1, Tier::disk)) std::this_thread::sleep_for(milliseconds(1));
}

// A save that waits for room waits for the flush, which goes on then, whatever is fetched.
TEST_F(HistoryPaceTest, AFlushThatASaveWaitsForGoesOn) {
  const auto engine = open_with_0_on_disk();
  const std::uint64_t zero = 0;
  gates_->set(gates_->reads, 1);
  const int readers = gates_->count(gates_->readers);
  engine->hint(std::span(&zero, 1));
  engine->prefetch_start();
  gates_->await(gates_->readers, readers + 1);
  for (history::Step step = 1; step < 8; ++step) engine->save(step, stream_, false);
  EXPECT_GT(engine->stats().waits, 0u);
  gates_->set(gates_->reads, 1 << 30);
  engine->restore(0, stream_, false);
  stream_.synchronize();
}

// Of many chunks and arrays, the last of each a part of one.
TEST_F(HistoryPaceTest, SeveralThreadsReadPastTheCaches) {
  const auto seed = test::test_seed();
  std::mt19937_64 random(seed);
  const std::vector<std::uint64_t> sizes{(std::uint64_t{11} << 20) + 4, 3, std::uint64_t{19} << 20,
                                         (std::uint64_t{4} << 20) - 1};
  std::vector<std::vector<std::uint8_t>> arrays, saved;
  for (const std::uint64_t bytes : sizes) {
    arrays.emplace_back(bytes);
    std::generate(arrays.back().begin(), arrays.back().end(), [&] { return random(); });
  }
  History history = History::open({.disk = path("plain")});
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    history.protect(std::to_string(i), arrays[i].data(), arrays[i].size());
  }
  saved = arrays;
  history.save(1, stream_);
  for (std::uint64_t times = 0; times < test::some_of(5); ++times) {
    for (auto& array : arrays) std::fill(array.begin(), array.end(), std::uint8_t{0xee});
    history.restore(1, stream_);
    stream_.synchronize();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      ASSERT_EQ(arrays[i], saved[i]) << i << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace holdfast

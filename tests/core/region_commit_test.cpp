// commit(stream): its place in the stream, what it costs, and how it fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/commit.hpp"
#include "holdfast/region.hpp"
#include "support/gate.hpp"
#include "support/io_recorder.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::Gate;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class RegionCommitTest : public test::Scratch {
 protected:
  test::TapPoint taps_;

  // What the image holds of "data", read through a copy, since the region is open.
  std::uint8_t committed_byte(std::size_t index) {
    std::filesystem::copy_file(path(), path("copy"),
                               std::filesystem::copy_options::overwrite_existing);
    OpenOptions elsewhere;
    elsewhere.arena_folder = other_arenas();
    Region copy = Region::open(path("copy"), elsewhere);
    const std::uint8_t result = copy.find<std::uint8_t>("data")[index];
    copy.close();
    return result;
  }
};

// Holds the first sync of a commit at a gate.
class SlowDisk : public test::IoTap {
 public:
  explicit SlowDisk(test::TapPoint& point) : point_(point) { point_.tap = this; }
  ~SlowDisk() override { point_.tap = nullptr; }
  int on_write(std::uint64_t, const void*, std::size_t) override { return 0; }
  int on_resize(std::uint64_t) override { return 0; }
  int on_sync() override {
    gate.wait();
    return 0;
  }
  Gate gate;

 private:
  test::TapPoint& point_;
};

TEST_F(RegionCommitTest, TakesItsPlaceInTheStream) {
  Region region = taps_.create(path(), options(kMiB));
  auto data = region.allocate<std::uint8_t>("data", 100);
  Stream stream;
  Gate gate;
  stream.enqueue([&] { gate.wait(); });
  stream.enqueue([&] { data[0] = 1; });
  Commit commit = region.commit(stream);
  stream.enqueue([&] { data[0] = 2; });
  EXPECT_FALSE(commit.done());
  gate.open();
  const CommitStats stats = commit.wait();
  stream.synchronize();
  EXPECT_TRUE(commit.done());
  EXPECT_EQ(stats.generation, 1u);
  EXPECT_EQ(data[0], 2);
  EXPECT_EQ(committed_byte(0), 1) << "what came before it, and not what came after";
}

TEST_F(RegionCommitTest, TheStreamGoesOnWhileTheDiskIsWritten) {
  Region region = taps_.create(path(), options(kMiB));
  auto data = region.allocate<std::uint8_t>("data", 100);
  Stream stream;
  SlowDisk disk(taps_);
  data[0] = 1;
  Commit first = region.commit(stream);
  disk.gate.wait_until_reached();
  stream.enqueue([&] { data[0] = 2; });
  stream.synchronize();  // the snapshot is taken: the stream is not held by the disk
  EXPECT_EQ(data[0], 2);
  EXPECT_FALSE(first.done());

  // A second commit waits for the first, and so does what follows it in the stream.
  std::atomic<bool> passed = false;
  Commit second = region.commit(stream);
  stream.enqueue([&] { passed = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(passed) << "back-pressure";
  EXPECT_FALSE(second.done());
  disk.gate.open();
  EXPECT_EQ(second.wait().generation, 2u);
  EXPECT_TRUE(first.done());
  EXPECT_EQ(first.wait().generation, 1u);
  EXPECT_EQ(region.generation(), 2u);
  EXPECT_EQ(committed_byte(0), 2);
}

TEST_F(RegionCommitTest, StreamsTakeTurns) {
  Region region = taps_.create(path(), options(kMiB));
  auto data = region.allocate<std::uint8_t>("data", 64 * kPageBytes, Tracking::marked);
  Stream streams[3];
  std::vector<Commit> commits;
  for (std::uint8_t i = 0; i < 60; ++i) {
    Stream& stream = streams[i % 3];
    commits.push_back(region.commit(stream));
    // Marked and written by the host while commits are under way.
    data[i * kPageBytes] = static_cast<std::uint8_t>(i + 1);
    region.mark(&data[i * kPageBytes], 1);
  }
  for (Commit& commit : commits) commit.wait();
  region.commit();
  const test::Every tried = test::every(1, 20);
  for (std::uint64_t i = tried.first; i < 60; i += tried.step) {
    ASSERT_EQ(committed_byte(i * kPageBytes), i + 1);
  }
}

TEST_F(RegionCommitTest, WritesInProportionToWhatChanged) {
  Region region = taps_.create(path(), options(64 * kMiB));
  const std::uint64_t bytes = 24 * kMiB;
  auto hashed = region.allocate<std::uint8_t>("hashed", bytes);
  auto marked = region.allocate<std::uint8_t>("data", bytes, Tracking::marked);
  std::memset(hashed.data(), 1, bytes);
  std::memset(marked.data(), 1, bytes);
  region.mark(marked.data(), bytes);
  CommitStats stats = region.commit();
  EXPECT_GE(stats.pages_written, 2 * bytes / kPageBytes);

  stats = region.commit();
  EXPECT_EQ(stats.pages_written, 0u);
  EXPECT_LT(stats.bytes_written, 1000u);
  EXPECT_GE(stats.pages_examined, bytes / kPageBytes) << "hashed objects are";
  EXPECT_LT(stats.pages_examined, bytes / kPageBytes + 100) << "marked ones are not";

  marked[5] = 2;
  region.mark(&marked[5], 1);
  marked[kMiB] = 2;  // not marked: not this commit's
  hashed[7 * kMiB] = 2;
  stats = region.commit();
  EXPECT_EQ(stats.pages_written, 2u);
  EXPECT_LT(stats.bytes_written, 8u * kPageBytes);

  region.mark(marked.data(), 100 * kPageBytes);  // marked, and one of them written
  EXPECT_EQ(region.commit().pages_written, 0u);
  region.mark(marked.data() + kMiB, 1);
  EXPECT_EQ(region.commit().pages_written, 1u);
  EXPECT_EQ(committed_byte(kMiB), 2);
}

// Of an object that begins and ends anywhere in a segment of pages, and takes some as a whole.
TEST_F(RegionCommitTest, AMarkIsSeenWhereverItStands) {
  Region region = taps_.create(path(), options(8 * kMiB));
  region.allocate<std::uint8_t>("before", 37 * kPageBytes, Tracking::marked);
  constexpr std::uint64_t kPages = 3 * 256 + 100;
  auto data = region.allocate<std::uint8_t>("data", kPages * kPageBytes, Tracking::marked);
  region.allocate<std::uint8_t>("behind", 300 * kPageBytes, Tracking::marked);
  region.commit();
  const std::uint64_t first = region.object("data").offset / kPageBytes;
  for (std::uint64_t page = 0; page < kPages; ++page) {
    const std::uint64_t in_segment = (first + page) % 256;
    if (page != 0 && page != kPages - 1 && in_segment % 255 != 0 && page % 50 != 0) continue;
    SCOPED_TRACE(page);
    data[page * kPageBytes] = 1;
    region.mark(&data[page * kPageBytes], 1);
    ASSERT_EQ(region.commit().pages_written, 1u);
  }
  EXPECT_EQ(region.commit().pages_written, 0u);
}

TEST_F(RegionCommitTest, MarksOfKernelsCount) {
  Region region = taps_.create(path(), options(kMiB));
  auto data = region.allocate<std::uint8_t>("data", 10 * kPageBytes, Tracking::marked);
  region.commit();
  Stream stream;
  const PageMarks marks = region.marks();
  ASSERT_EQ(marks.base, region.base());
  const std::uint64_t page = region.object("data").offset / kPageBytes + 3;
  // What PageMarks::mark() does in a kernel, and the store that goes with it.
  fill_async(stream, marks.map + page, 1, 1);
  stream.enqueue([&] { data[3 * kPageBytes] = data[4 * kPageBytes] = 7; });
  const CommitStats stats = region.commit(stream).wait();
  EXPECT_EQ(stats.pages_written, 1u);
  EXPECT_EQ(committed_byte(3 * kPageBytes), 7);
  EXPECT_EQ(committed_byte(4 * kPageBytes), 0) << "not marked";
  EXPECT_EQ(region.commit().pages_written, 0u) << "marks are used up";
}

TEST_F(RegionCommitTest, AfterACrashMarksAreNotReliedOn) {
  {
    Region region = taps_.create(path(), options(kMiB));
    region.allocate<std::uint8_t>("data", 10 * kPageBytes, Tracking::marked)[5] = 1;
    region.abandon();
  }
  Region region = Region::open(path());
  region.commit();
  EXPECT_EQ(committed_byte(5), 1);
}

TEST_F(RegionCommitTest, MoreThanTheStagingBufferHolds) {
  const std::uint64_t before = core::Committer::staging_pages;
  core::Committer::staging_pages = 600;
  Region region = taps_.create(path(), options(16 * kMiB));
  auto data = region.allocate<std::uint8_t>("data", 14 * kMiB);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * 31 >> 7);
  Stream stream;
  Commit commit = region.commit(stream);
  stream.enqueue([&] { std::memset(data.data(), 9, data.size()); });
  EXPECT_GE(commit.wait().pages_written, 14 * kMiB / kPageBytes);
  stream.synchronize();
  core::Committer::staging_pages = before;
  constexpr std::size_t kApart = kMiB + 333;
  const test::Every tried = test::every(1, 7);
  for (std::size_t i = tried.first * kApart; i < data.size(); i += tried.step * kApart) {
    ASSERT_EQ(committed_byte(i), static_cast<std::uint8_t>(i * 31 >> 7));
  }
}

TEST_F(RegionCommitTest, TheHostMayStoreOnceTheSnapshotIsTaken) {
  Region region = taps_.create(path(), options(64 * kMiB));
  auto data = region.allocate<std::uint8_t>("data", 48 * kMiB);
  Stream stream;
  for (std::uint8_t round = 1; round < 2 * test::some_of(5); round += 2) {
    std::memset(data.data(), round, data.size());
    SlowDisk disk(taps_);
    Commit commit = region.commit(stream);
    commit.wait_snapshot();
    EXPECT_FALSE(commit.done()) << "the disk is not waited for";
    std::memset(data.data(), round + 1, data.size());
    disk.gate.open();
    commit.wait();
    commit.wait_snapshot();  // as often as one likes
    std::filesystem::copy_file(path(), path("copy"),
                               std::filesystem::copy_options::overwrite_existing);
    OpenOptions elsewhere;
    elsewhere.arena_folder = other_arenas();
    Region copy = Region::open(path("copy"), elsewhere);
    const auto committed = copy.find<std::uint8_t>("data");
    EXPECT_EQ(std::count(committed.begin(), committed.end(), round),
              static_cast<std::ptrdiff_t>(committed.size()));
  }
}

TEST_F(RegionCommitTest, TheSnapshotWaitsForItsPlaceInTheStream) {
  Region region = taps_.create(path(), options(kMiB));
  auto data = region.allocate<std::uint8_t>("data", 100);
  Stream stream;
  Gate gate;
  stream.enqueue([&] {
    gate.wait();
    data[0] = 1;
  });
  Commit commit = region.commit(stream);
  std::atomic<bool> passed = false;
  std::thread host([&] {
    commit.wait_snapshot();
    passed = true;
    data[0] = 2;
  });
  gate.wait_until_reached();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(passed);
  gate.open();
  host.join();
  commit.wait();
  EXPECT_EQ(committed_byte(0), 1);
}

TEST_F(RegionCommitTest, WhatStopsACommitBehindItsSnapshotIsForItsEnd) {
  Region region = taps_.create(path(), options(kMiB));
  region.allocate<std::uint8_t>("data", 100)[0] = 1;
  Stream stream;
  {
    test::IoFailure failure(taps_, 1, EIO);
    Commit commit = region.commit(stream);
    commit.wait_snapshot();
    EXPECT_EQ(error_of([&] { commit.wait(); }), Errc::io);
    commit.wait_snapshot();
  }
  region.commit();
  EXPECT_EQ(committed_byte(0), 1);
}

TEST_F(RegionCommitTest, AsynchronousFailureReachesTheCommitAndNothingElse) {
  Region region = taps_.create(path(), options(kMiB));
  auto data = region.allocate<std::uint8_t>("data", 10 * kPageBytes, Tracking::marked);
  data[0] = 1;
  region.mark(&data[0], 1);
  Stream stream;
  {
    test::IoFailure failure(taps_, 1, EIO);
    Commit commit = region.commit(stream);
    Commit copy = commit;
    EXPECT_EQ(error_of([&] { commit.wait(); }, {path(), "previous commit"}), Errc::io);
    EXPECT_EQ(error_of([&] { copy.wait(); }), Errc::io);
  }
  stream.synchronize();
  EXPECT_EQ(region.generation(), 0u);
  const CommitStats stats = region.commit(stream).wait();
  EXPECT_EQ(stats.generation, 1u);
  EXPECT_EQ(committed_byte(0), 1) << "the marks that the failed commit took are not lost";
}

TEST_F(RegionCommitTest, AFailedStreamsCommitHoldsUpNoOtherStreams) {
  if (std::strcmp(backend::name(), "cuda") == 0) GTEST_SKIP() << "the context would be lost";
  for (const char* const how : {"before", "on their way", "another commit, of the host"}) {
    const std::string what = how;
    Region region = Region::create(path(), options(kMiB));
    auto data = region.allocate<std::uint8_t>("data", 40 * kPageBytes, Tracking::marked);
    region.commit();
    Stream failing, stream, another;
    Gate gate;
    failing.enqueue([&] {
      gate.wait();
      throw Error(Errc::kernel_fault, "made to fail");
    });
    data[0] = 2;  // a mark of it is lost with the commit that fails
    if (what != "on their way") gate.open();
    Commit failed = region.commit(failing);
    if (what != "on their way") {
      EXPECT_EQ(error_of([&] { failed.wait(); }, {"its stream failed before"}), Errc::device);
    }
    if (what == "another commit, of the host") region.commit();
    Commit commit = region.commit(stream);
    Commit next = region.commit(another);
    gate.open();
    commit.wait();
    EXPECT_EQ(committed_byte(0), 2) << how;
    next.wait();
    stream.synchronize();  // neither has failed
    another.synchronize();
    EXPECT_EQ(error_of([&] { failed.wait(); }), Errc::device);
    EXPECT_EQ(error_of([&] { failing.synchronize(); }), Errc::kernel_fault);
    for (int i = 0; i < 2; ++i) region.commit(stream).wait();
    EXPECT_LT(region.commit(stream).wait().pages_examined, 40u) << "marks are relied on again";
    region.close();
    Region::destroy(path());
  }
}

TEST_F(RegionCommitTest, WhatWasMovedFromIsRefusedAndChangesNothing) {
  Region region = Region::create(path(), options(kMiB));
  region.allocate<std::uint8_t>("data", 40 * kPageBytes, Tracking::marked);
  region.commit();
  Stream stream;
  Stream taken = std::move(stream);
  const std::vector<std::string> words = {"stream", "moved from", "moved to"};
  EXPECT_EQ(error_of([&] { region.commit(stream); }, words), Errc::closed);
  Commit commit = region.commit(taken);
  Commit other = std::move(commit);
  const auto expect_refused = [](auto&& use) {
    EXPECT_EQ(error_of(use, {"the commit was moved from"}), Errc::closed);
  };
  expect_refused([&] { commit.wait(); });
  expect_refused([&] { commit.wait_snapshot(); });
  expect_refused([&] { commit.done(); });
  expect_refused([&] { Commit(nullptr).wait(); });
  EXPECT_LT(other.wait().pages_examined, 40u) << "marks are relied on";
}

TEST_F(RegionCommitTest, CommitsOutliveTheRegion) {
  Region region = taps_.create(path(), options(kMiB));
  Stream stream;
  Commit commit = region.commit(stream);
  region.close();
  EXPECT_EQ(commit.wait().generation, 1u);
  Region again = Region::open(path());
  Commit other = again.commit(stream);
  again.abandon();
  EXPECT_EQ(other.wait().generation, other.wait().generation);
}

// Objects come and go between commit() and its place in the stream: the image holds a state in
// which every object has its own bytes.
TEST_F(RegionCommitTest, ObjectsMayChangeWhileACommitIsUnderWay) {
  Region region = taps_.create(path(), options(16 * kMiB));
  region.allocate<std::uint8_t>("data", 1)[0] = 1;
  Stream stream;
  std::vector<Commit> commits;
  const int changes = static_cast<int>(test::some_of(200, 21));
  for (int i = 0; i < changes; ++i) {
    commits.push_back(region.commit(stream));
    const std::string name = "object" + std::to_string(i % 7);
    if (region.contains(name)) region.remove(name);
    auto bytes = region.allocate<std::uint8_t>(name, kMiB / 2 + i % 5 * kPageBytes,
                                               i % 2 ? Tracking::marked : Tracking::hashed);
    std::memset(bytes.data(), i % 7 + 1, bytes.size());
    region.mark(bytes.data(), bytes.size());
  }
  for (Commit& commit : commits) commit.wait();
  region.commit();
  std::filesystem::copy_file(path(), path("copy"));
  OpenOptions elsewhere;
  elsewhere.arena_folder = other_arenas();
  Region copy = Region::open(path("copy"), elsewhere);
  for (int i = 0; i < 7; ++i) {
    for (const std::uint8_t byte : copy.find<std::uint8_t>("object" + std::to_string(i))) {
      ASSERT_EQ(byte, i + 1);
    }
  }
}

}  // namespace
}  // namespace holdfast

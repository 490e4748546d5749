// Writers that go on behind the call that began them, and what commits, closes and abandons make of
// them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "core/marks.hpp"
#include "core/region_kernels.hpp"
#include "holdfast/region.hpp"
#include "support/scratch.hpp"
#include "support/stream_gate.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::Gate;
using test::StreamGate;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kWords = 5000;
constexpr std::chrono::milliseconds kAWhile{50};

// Stores to a region behind a gate, on a stream of its own. Declared behind the region.
class HeldWriter {
 public:
  ~HeldWriter() { gate.open(); }
  void begin(Region& region, std::span<std::uint32_t> words, std::uint32_t first) {
    gate.hold(stream);
    test::store_words(stream, words.data(), words.size(), first, region.marks());
    end->record(stream);
    region.pending(end);
  }
  // Marks pages, waits at the gate, and stores to them: what a commit that comes in between takes
  // the marks of, no later one would write.
  void begin_with_marks(Region& region, std::span<std::uint32_t> words, std::uint32_t first) {
    const std::uint64_t page = region.object("words").offset / kPageBytes;
    fill_async(stream, region.marks().map + page, 1,
               (words.size_bytes() + kPageBytes - 1) / kPageBytes);
    gate.hold(stream);
    test::store_words(stream, words.data(), words.size(), first, PageMarks{});
    end->record(stream);
    region.pending(end);
    gate.wait_until_reached();
  }

  StreamGate gate;
  Stream stream;
  std::shared_ptr<Event> end = std::make_shared<Event>();
};

class PendingWritersTest : public test::Scratch {
 protected:
  Region make() {
    Region region = Region::create(path(), options(kMiB));
    words_ = region.allocate<std::uint32_t>("words", kWords, Tracking::marked);
    region.commit();
    return region;
  }
  // The first word, and whether the others fit, as a region holds them.
  static std::uint32_t first_of(Region& region) {
    const auto words = region.find<std::uint32_t>("words");
    for (std::size_t i = 1; i < kWords; ++i) {
      if (words[i] != words[0] + i) return ~0u;
    }
    return words[0];
  }
  // Of what the image holds, read through a copy: made now, and opened when it is asked for, as to
  // open a region waits on a GPU for what a gate holds.
  std::function<std::uint32_t()> committed_now() {
    std::filesystem::copy_file(path(), path("copy"),
                               std::filesystem::copy_options::overwrite_existing);
    return [this] {
      OpenOptions elsewhere = for_reading();
      elsewhere.arena_folder = other_arenas();
      Region copy = Region::open(path("copy"), elsewhere);
      return first_of(copy);
    };
  }
  std::uint32_t committed() { return committed_now()(); }
  // Runs `body` on a thread, and opens the gate once it has been seen to wait.
  template <class AnyGate>
  static void expect_waits(AnyGate& gate, const std::function<void()>& body) {
    std::atomic<bool> passed = false;
    std::thread host([&] {
      body();
      passed = true;
    });
    std::this_thread::sleep_for(kAWhile);
    EXPECT_FALSE(passed);
    gate.open();
    host.join();
  }

  std::span<std::uint32_t> words_;
};

TEST_F(PendingWritersTest, ACommitOnAnotherStreamComesBehindThem) {
  Region region = make();
  Stream stream;
  HeldWriter writer;
  writer.begin_with_marks(region, words_, 100);
  Commit commit = region.commit(stream);
  std::this_thread::sleep_for(kAWhile);
  EXPECT_FALSE(commit.done());
  writer.gate.open();
  commit.wait();
  EXPECT_EQ(committed(), 100u);
  region.commit(stream).wait();
  EXPECT_EQ(committed(), 100u);
  region.abandon();
  Region last = Region::open(path(), last_commit());
  EXPECT_EQ(first_of(last), 100u);
}

TEST_F(PendingWritersTest, ACommitWaitsOnTheHost) {
  Region region = make();
  HeldWriter writer;
  writer.begin_with_marks(region, words_, 100);
  expect_waits(writer.gate, [&] { region.commit(); });
  EXPECT_EQ(committed(), 100u);
}

TEST_F(PendingWritersTest, CloseWaits) {
  {
    Region region = make();
    HeldWriter writer;
    writer.begin_with_marks(region, words_, 100);
    expect_waits(writer.gate, [&] { region.close(); });
  }
  EXPECT_TRUE(is_empty(arenas()));
  Region region = Region::open(path());
  EXPECT_EQ(first_of(region), 100u);
}

TEST_F(PendingWritersTest, TheDestructorWaits) {
  HeldWriter writer;
  {
    std::optional<Region> region(make());
    writer.begin_with_marks(*region, words_, 100);
    expect_waits(writer.gate, [&] { region.reset(); });
  }
  EXPECT_EQ(committed(), 100u);
}

// The commit takes the marks, and the pages as they were.
TEST_F(PendingWritersTest, ACommitThatWasOnItsWayIsMadeUpFor) {
  for (const char* how : {"stream", "host", "close", "grow", "two on their way"}) {
    const std::string what = how;
    Region region = make();
    StreamGate gate;
    Stream stream, other;
    HeldWriter writer;  // before the gate holds: to make pinned memory waits for all of the device
    gate.hold(stream);
    Commit first = region.commit(stream);
    Commit second = what == "two on their way" ? region.commit(other) : first;
    writer.begin_with_marks(region, words_, 100);
    gate.open();
    first.wait();
    second.wait();
    const std::function<std::uint32_t()> early = committed_now();
    writer.gate.open();
    EXPECT_EQ(early(), ~0u) << how << ": zeros";
    if (what == "grow") region.grow(2 * kMiB);
    if (what == "close") {
      region.close();
    } else if (what == "host") {
      region.commit();
    } else {
      region.commit(stream).wait();
    }
    EXPECT_EQ(committed(), 100u) << how;
    writer.stream.synchronize();
    if (what != "close") {
      const std::uint64_t quiet = region.commit().pages_examined;
      EXPECT_LT(quiet, 40u) << "not every page";
      region.close();
    }
    Region::destroy(path());
  }
}

TEST_F(PendingWritersTest, WhereNothingOverlapsNoPageIsLookedAtTwice) {
  Region region = make();
  auto many = region.allocate<std::uint8_t>("many", 100 * kPageBytes, Tracking::marked);
  Stream stream;
  region.mark(many.data(), many.size());
  EXPECT_GT(region.commit(stream).wait().pages_examined, 100u);
  EXPECT_LT(region.commit(stream).wait().pages_examined, 40u) << "no writer";
  region.mark(many.data(), many.size());
  EXPECT_GT(region.commit().pages_examined, 100u);
  EXPECT_LT(region.commit(stream).wait().pages_examined, 40u);
  HeldWriter writer;
  writer.begin_with_marks(region, words_, 100);
  writer.gate.open();
  EXPECT_LT(region.commit(stream).wait().pages_examined, 40u) << "the one before had few";
  EXPECT_EQ(committed(), 100u);
}

TEST_F(PendingWritersTest, AMarkThatAFetchHasNotSeenStays) {
  constexpr std::size_t kMarks = 1001;
  DeviceBuffer<std::uint8_t> map(kMarks), copy(kMarks);
  std::vector<std::uint8_t> set(kMarks), seen(kMarks), left(kMarks);
  for (std::size_t i = 0; i < kMarks; ++i) {
    set[i] = i % 2;
    seen[i] = i % 4 == 1;
  }
  Stream stream;
  copy_async(stream, map.data(), set.data(), kMarks);
  copy_async(stream, copy.data(), seen.data(), kMarks);
  core::clear_copied(stream, map.data(), copy.data(), kMarks);
  copy_async(stream, left.data(), map.data(), kMarks);
  stream.synchronize();
  for (std::size_t i = 0; i < kMarks; ++i) EXPECT_EQ(left[i], i % 4 == 3) << i;
}

TEST_F(PendingWritersTest, SettleWaitsForAll) {
  Region region = make();
  auto other = region.allocate<std::uint32_t>("other", kWords);
  HeldWriter first, second;
  first.begin(region, words_, 100);
  second.begin(region, other, 200);
  first.gate.open();
  expect_waits(second.gate, [&] { region.settle(); });
  EXPECT_EQ(first_of(region), 100u);
  EXPECT_EQ(other[kWords - 1], 200 + kWords - 1);
}

TEST_F(PendingWritersTest, AMovedRegionTakesThemAlong) {
  Region region = make();
  HeldWriter writer;
  writer.begin_with_marks(region, words_, 100);
  Region other = std::move(region);
  EXPECT_EQ(error_of([&] { region.pending(writer.end); }), Errc::closed);
  EXPECT_EQ(error_of([&] { region.settle(); }), Errc::closed);
  expect_waits(writer.gate, [&] { other.commit(); });
  EXPECT_EQ(committed(), 100u);
}

TEST_F(PendingWritersTest, AssigningWaitsForThoseOfTheOldRegion) {
  Region region = make();
  Region other = Region::create(path("other"), options(kMiB));
  HeldWriter writer;
  writer.begin_with_marks(region, words_, 100);
  expect_waits(writer.gate, [&] { region = std::move(other); });
  EXPECT_EQ(region.path(), path("other"));
  EXPECT_EQ(committed(), 100u);
}

// The memory stays, and no one else gets the region: the writer would store into what they use.
TEST_F(PendingWritersTest, AbandonDoesNotWait) {
  Region region = make();
  HeldWriter writer;
  writer.begin(region, words_, 100);
  region.abandon();
  EXPECT_EQ(error_of([&] { region.base(); }), Errc::closed);
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {path()}), Errc::in_use);
  writer.gate.open();
  writer.stream.synchronize();  // throws if the memory is gone
  Region again = Region::open(path());
  EXPECT_TRUE(again.open_report().arena_found);
  EXPECT_EQ(first_of(again), 100u);
  EXPECT_EQ(again.generation(), 1u) << "nothing was committed";
}

TEST_F(PendingWritersTest, AbandonBehindTheirEndLeavesTheRegionAtOnce) {
  Region region = make();
  HeldWriter writer;
  writer.gate.open();
  writer.begin(region, words_, 100);
  writer.stream.synchronize();
  region.abandon();
  Region again = Region::open(path());
  EXPECT_EQ(first_of(again), 100u);
}

TEST_F(PendingWritersTest, CloseOfARegionThatIsReadWaitsToo) {
  make().close();
  Region region = Region::open(path(), for_reading());
  HeldWriter writer;
  writer.begin(region, region.find<std::uint32_t>("words"), 100);
  EXPECT_EQ(error_of([&] { region.commit(writer.stream); }), Errc::unsupported);
  expect_waits(writer.gate, [&] { region.close(); });
  writer.stream.synchronize();  // throws if the memory was gone
  EXPECT_NE(committed(), 100u);
}

TEST_F(PendingWritersTest, CloseWaitsWhereNothingIsKept) {
  for (const Domain domain : {Domain::device, Domain::emulated}) {
    RegionOptions wanted = options(kMiB);
    wanted.domain = domain;
    Region region = Region::create("a name", wanted);
    HeldWriter writer;
    writer.begin(region, region.allocate<std::uint32_t>("words", kWords), 100);
    expect_waits(writer.gate, [&] { region.close(); });
    writer.stream.synchronize();
  }
}

TEST_F(PendingWritersTest, CommitsInPlaceComeBehindThem) {
  ::setenv("HOLDFAST_DAX_PLAIN_FILE", "1", 1);
  RegionOptions wanted = options(kMiB);
  wanted.domain = Domain::dax;
  const std::string medium = arenas() + "/medium";
  Region region = Region::create(medium, wanted);
  words_ = region.allocate<std::uint32_t>("words", kWords);
  Stream stream;
  for (const bool in_stream : {true, false}) {
    HeldWriter writer;
    writer.begin(region, words_, 100);
    if (in_stream) {
      Commit commit = region.commit(stream);
      std::this_thread::sleep_for(kAWhile);
      EXPECT_FALSE(commit.done());
      writer.gate.open();
      commit.wait();
    } else {
      expect_waits(writer.gate, [&] { region.commit(); });
    }
    EXPECT_EQ(first_of(region), 100u);
    std::memset(words_.data(), 0, words_.size_bytes());
  }
  region.close();
  ::unsetenv("HOLDFAST_DAX_PLAIN_FILE");
}

// One that its stream has not come to flushes memory that close() lets go of.
TEST_F(PendingWritersTest, TheEndWaitsForCommitsInPlace) {
  ::setenv("HOLDFAST_DAX_PLAIN_FILE", "1", 1);
  RegionOptions wanted = options(kMiB);
  wanted.domain = Domain::dax;
  for (const bool closed : {true, false}) {
    std::optional<Region> region(Region::create(arenas() + "/medium", wanted));
    StreamGate gate;
    Stream stream;
    gate.hold(stream);
    Commit commit = region->commit(stream);
    expect_waits(gate, [&] {
      if (closed) {
        region->close();
      } else {
        region->abandon();
      }
    });
    EXPECT_EQ(commit.wait().generation, 1u);
    stream.synchronize();
    Region::destroy(arenas() + "/medium");
  }
  ::unsetenv("HOLDFAST_DAX_PLAIN_FILE");
}

// What it stored before it failed is taken in though it set no mark, as a crash's leavings are.
TEST_F(PendingWritersTest, AWriterThatFailedStopsNoCommit) {
  if (std::strcmp(backend::name(), "cuda") == 0) GTEST_SKIP() << "the context would be lost";
  for (const char* const how : {"stream", "stream, later", "host", "close"}) {
    const std::string what = how;
    Region region = make();
    auto other = region.allocate<std::uint32_t>("other", 1);
    region.commit();
    Stream stream, failing;
    Gate gate;
    failing.enqueue([&] {
      gate.wait();
      for (std::uint32_t i = 0; i < kWords; ++i) words_[i] = 100 + i;
      throw Error(Errc::kernel_fault, "made to fail");
    });
    failing.enqueue([&] { words_[7] = 0; });  // is never done
    const auto end = std::make_shared<Event>();
    end->record(failing);
    region.pending(end);
    other[0] = 5;
    if (what == "stream") {
      Commit commit = region.commit(stream);
      gate.open();
      EXPECT_EQ(commit.wait().generation, 3u);
    } else if (what == "stream, later") {  // dropped by then
      gate.open();
      EXPECT_EQ(error_of([&] { failing.synchronize(); }), Errc::kernel_fault);
      EXPECT_EQ(region.commit(stream).wait().generation, 3u);
    } else if (what == "host") {
      expect_waits(gate, [&] { region.commit(); });
    } else {
      expect_waits(gate, [&] { region.close(); });
    }
    stream.synchronize();  // the caller's stream has not failed
    EXPECT_EQ(committed(), 100u) << how;
    EXPECT_EQ(error_of([&] { failing.synchronize(); }), Errc::kernel_fault);
    if (what != "close") {
      EXPECT_LT(region.commit().pages_examined, 40u) << "marks are relied on again";
      region.close();
    }
    Region again = Region::open(path());
    EXPECT_EQ(again.find<std::uint32_t>("other")[0], 5u);
    again.close();
    Region::destroy(path());
  }
}

TEST_F(PendingWritersTest, ThoseThatHaveEndedAreLetGoOf) {
  Region region = make();
  HeldWriter held;
  held.begin(region, words_, 100);
  Stream stream;
  std::vector<std::weak_ptr<Event>> ends;
  for (int i = 0; i < 1000; ++i) {
    auto end = std::make_shared<Event>();
    end->record(stream);
    end->synchronize();
    region.pending(end);
    ends.emplace_back(end);
  }
  const auto left =
      std::count_if(ends.begin(), ends.end(), [](const auto& end) { return !end.expired(); });
  EXPECT_LE(left, 32);
  EXPECT_GT(held.end.use_count(), 1) << "one that has not ended stays";
  held.gate.open();
  region.commit();
  EXPECT_EQ(held.end.use_count(), 1);
  EXPECT_EQ(committed(), 100u);
}

TEST_F(PendingWritersTest, MisuseIsRefused) {
  Region region = make();
  EXPECT_EQ(error_of([&] { region.pending(nullptr); }, {"event"}), Errc::invalid_argument);
  region.pending(std::make_shared<Event>());  // recorded nowhere: it holds nothing up
  region.commit();
  const auto end = std::make_shared<Event>();
  Event taken = std::move(*end);
  EXPECT_EQ(error_of([&] { region.pending(end); }, {"event", "moved from"}), Errc::closed);
  region.commit();
  region.close();
  EXPECT_EQ(error_of([&] { region.pending(std::make_shared<Event>()); }), Errc::closed);
}

// Nothing says then when the writer has ended.
TEST_F(PendingWritersTest, AnEventThatIsMovedFromHoldsCommitsUpUntilItIsMovedBack) {
  Region region = make();
  Stream stream;
  HeldWriter writer;
  writer.begin(region, words_, 100);
  Event taken = std::move(*writer.end);
  const std::vector<std::string> words = {"pending()", "moved from", "move it back"};
  EXPECT_EQ(error_of([&] { region.commit(stream); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { region.commit(); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { region.settle(); }, words), Errc::closed);
  EXPECT_EQ(error_of([&] { region.close(); }, words), Errc::closed);
  *writer.end = std::move(taken);
  writer.gate.open();
  region.commit(stream).wait();
  EXPECT_EQ(committed(), 100u);
}

// As one that never ends: the memory stays.
TEST_F(PendingWritersTest, ARegionCanBeAbandonedThoughAnEventWasMovedFrom) {
  HeldWriter writer;
  Region region = make();
  writer.begin(region, words_, 100);
  const Event taken = std::move(*writer.end);
  region.abandon();
  EXPECT_EQ(error_of([&] { Region::open(path()); }), Errc::in_use);
}

}  // namespace
}  // namespace holdfast

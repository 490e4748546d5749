// What a listener hears of the host and of the copy engine.
#include "cpu/host_events.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "cpu/events.hpp"
#include "cpu/recorder.hpp"
#include "cpu/support.hpp"
#include "holdfast/cpu/host_observer.hpp"
#include "holdfast/sort.hpp"

namespace holdfast::test {
namespace {

using cpu::EventKind;
using cpu::HostObserver;
using Texts = std::vector<std::string>;

// A recorder of what happens in one array of words, in words.
class Watch : public Recorder {
 public:
  Watch() : Recorder(Of::everything) {}

  alignas(64) std::array<unsigned, 16> words{};

  // Like "host store 4:4=7": offset, bytes, the first of them as a number. Of other memory nothing.
  Texts texts() const {
    Texts out;
    for (const Recorded& record : events) {
      const cpu::Event& event = record.event;
      const bool marks =
          event.kind == EventKind::kernel_begin || event.kind == EventKind::synchronize;
      const auto offset =
          static_cast<const char*>(event.address) - reinterpret_cast<const char*>(words.data());
      if (!marks && (offset < 0 || offset >= static_cast<long>(sizeof words))) continue;
      std::string text = event.is_copy ? "copy " : event.host ? "host " : "";
      if (event.presumed) text += "presumed ";
      text += to_string(event.kind);
      if (!marks) {
        text += " " + std::to_string(offset) + ":" + std::to_string(event.size) + "=" +
                std::to_string(record.number());
      }
      out.push_back(text);
    }
    return out;
  }
};

TEST(HostEvents, CopiesAndFillsReadBeforeAndHaveWrittenAfter) {
  Watch watch;
  watch.words = {7, 8};
  Stream stream;
  copy_async(stream, &watch.words[1], &watch.words[0], 4);
  fill_async(stream, &watch.words[4], 1, 8);
  copy_async(stream, &watch.words[6], &watch.words[0], 0);
  stream.synchronize();
  EXPECT_EQ(watch.texts(), (Texts{"copy load 0:4=7", "copy store 4:4=7",
                                  "copy store 16:8=72340172838076673", "host synchronize"}));
  for (const Recorded& record : watch.events) {
    EXPECT_TRUE(record.event.host);
    EXPECT_NE(record.event.pc, nullptr);
    EXPECT_EQ(record.event.block + record.event.thread, 0u);
  }
}

TEST(HostEvents, ASortReadsAndWrites) {
  Watch watch;
  watch.words = {3, 1, 2, 0, 10, 11, 12};
  PairSorter sorter(4);
  Stream stream;
  unsigned* const w = watch.words.data();
  sorter.sort(stream, w, w + 8, w + 4, w + 12, 3, 8);
  stream.synchronize();
  EXPECT_EQ(watch.texts(), (Texts{"copy load 0:12=4294967299", "copy load 16:12=47244640266",
                                  "copy store 32:12=8589934593", "copy store 48:12=51539607563",
                                  "host synchronize"}));
}

TEST(HostEvents, WaitingForAnEventSynchronizesAndWaitingForNoneDoesNot) {
  Watch watch;
  Stream stream;
  Event event;
  event.synchronize();
  EXPECT_TRUE(watch.events.empty());
  launch(stream, 1, 1, add_one, &watch.words[0]);
  event.record(stream);
  event.synchronize();
  EXPECT_EQ(watch.texts(),
            (Texts{"kernel_begin", "load 0:4=0", "store 0:4=1", "host synchronize"}));
}

TEST(HostEvents, AStreamThatFailedIsNotSynchronized) {
  Recorder recorder(Recorder::Of::everything);
  Stream stream;
  launch(stream, 1, 1, add_one, reinterpret_cast<unsigned*>(16));
  EXPECT_THROW(stream.synchronize(), Error);
  for (const Recorded& record : recorder.events) {
    EXPECT_NE(record.event.kind, EventKind::synchronize);
  }
}

TEST(HostEvents, AStreamThatEndsHasBeenWaitedFor) {
  Watch watch;
  {
    Stream stream;
    launch(stream, 1, 1, add_one, &watch.words[0]);
  }
  EXPECT_EQ(watch.texts(),
            (Texts{"kernel_begin", "load 0:4=0", "store 0:4=1", "host synchronize"}));
}

TEST(HostEvents, AccessesOfTheHostAreSeenWhileAnObserverLives) {
  Watch watch;
  store_word(&watch.words[0], 1);
  {
    const HostObserver observer;
    store_word(&watch.words[0], 2);
    store_volatile(&watch.words[1], 3);
    EXPECT_EQ(load_word(&watch.words[1]), 3u);
    store_word(&watch.words[2], 4);
  }
  store_word(&watch.words[0], 5);
  EXPECT_EQ(watch.texts(),
            (Texts{"host store 0:4=2", "host store 4:4=3", "host load 4:4=3", "host store 8:4=4"}));
}

TEST(HostEvents, CopiesOfTheHostAreSeenWhole) {
  Watch watch;
  const HostObserver observer;
  Large from{{1, 2, 3, 4, 5}}, to{};
  copy_struct(reinterpret_cast<Large*>(watch.words.data()), &from);
  copy_struct(&to, reinterpret_cast<const Large*>(watch.words.data()));
  copy_bytes(&watch.words[12], &watch.words[0], 4);
  std::size_t stored = 0, loaded = 0;
  for (const Recorded& record : watch.events) {
    const auto offset = static_cast<const char*>(record.event.address) -
                        reinterpret_cast<const char*>(watch.words.data());
    if (offset < 0 || offset >= 40) continue;
    (record.event.kind == EventKind::store ? stored : loaded) += record.event.size;
  }
  EXPECT_EQ(stored, sizeof(Large));
  EXPECT_EQ(loaded, sizeof(Large) + 4);
  EXPECT_EQ(watch.texts().back(), "host store 48:4=1");
}

TEST(HostEvents, AtomicsOfTheHostAreSeen) {
  Watch watch;
  const HostObserver observer;
  watch.words[0] = 4;
  increment(reinterpret_cast<std::atomic<unsigned>*>(watch.words.data()));
  EXPECT_EQ(watch.texts(), (Texts{"host load 0:4=4", "host store 0:4=5", "host atomic 0:4=5"}));
  for (const Recorded& record : watch.events) {
    EXPECT_TRUE(record.event.is_atomic || record.event.address != watch.words.data());
  }
}

TEST(HostEvents, APendingStoreComesBeforeWhatFollowsIt) {
  Watch watch;
  const HostObserver observer;
  Stream stream;
  store_and_launch(stream, &watch.words[0], 1);
  stream.synchronize();
  store_word(&watch.words[0], 5);
  copy_async(stream, &watch.words[1], &watch.words[0], 4);
  store_word(&watch.words[8], 6);
  stream.synchronize();
  store_word(&watch.words[0], 7);
  cpu::note_read(&watch.words[0], 4);
  watch.words[3] = 9;
  cpu::note_write(&watch.words[3], 4);
  Texts texts = watch.texts();
  // The copy and the host's next store are in no order.
  const auto racing = std::find(texts.begin(), texts.end(), "host store 32:4=6");
  ASSERT_NE(racing, texts.end());
  texts.erase(racing);
  EXPECT_EQ(texts, (Texts{"host store 0:4=1", "kernel_begin", "load 0:4=1", "store 0:4=2",
                          "host synchronize", "host store 0:4=5", "copy load 0:4=5",
                          "copy store 4:4=5", "host synchronize", "host store 0:4=7",
                          "host load 0:4=7", "host store 12:4=9"}));
  EXPECT_NE(std::string(watch.events.back().event.file).find("host_events_test"),
            std::string::npos);
  EXPECT_GT(watch.events.back().event.line, 0u);
}

TEST(HostEvents, NotesWithoutAnObserverAreNot) {
  Watch watch;
  cpu::note_read(&watch.words[0], 4);
  cpu::note_write(&watch.words[0], 4);
  EXPECT_TRUE(watch.events.empty());
}

TEST(HostEvents, AnObserverSeesItsThreadAlone) {
  Watch watch;
  const HostObserver observer;
  std::thread([&] { store_word(&watch.words[0], 2); }).join();
  EXPECT_EQ(watch.texts(), Texts{});
}

TEST(HostEvents, AnObserverOfARangeSeesThatRange) {
  Watch watch;
  const HostObserver all;
  store_word(&watch.words[0], 1);
  {
    const HostObserver some(&watch.words[4], 16);
    store_word(&watch.words[3], 2);
    store_word(&watch.words[4], 3);
    cpu::note_write(&watch.words[8], 4);
  }
  store_word(&watch.words[3], 4);
  load_word(&watch.words[3]);
  EXPECT_EQ(watch.texts(),
            (Texts{"host store 0:4=1", "host store 16:4=3", "host presumed load 12:4=2",
                   "host store 12:4=4", "host load 12:4=4"}));
}

TEST(HostEvents, MemoryThatIsUnmappedAfterAStoreDoesNoHarm) {
  Watch watch;
  const HostObserver observer;
  void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  store_word(static_cast<unsigned*>(page), 1);
  munmap(page, 4096);
  store_word(&watch.words[0], 2);
  load_word(&watch.words[0]);
  EXPECT_EQ(watch.texts(),
            (Texts{"host presumed load 0:4=0", "host store 0:4=2", "host load 0:4=2"}));
}

TEST(HostEvents, OneCallAtATimeWithManyStreamsAndHostThreads) {
  struct Alone : cpu::Listener {
    void on_event(const cpu::Event& event) override {
      overlapped = overlapped || inside;
      inside = true;
      copies += event.is_copy;
      inside = false;
    }
    volatile bool inside = false;
    bool overlapped = false;
    unsigned copies = 0;
  };
  constexpr unsigned kRounds = 200;
  Alone alone;
  cpu::set_listener(&alone);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      const HostObserver observer;
      Stream stream;
      DeviceBuffer<unsigned> words(4);
      for (unsigned round = 0; round < kRounds; ++round) {
        launch(stream, 2, 8, add_one, words.data());
        copy_async(stream, words.data() + 1, words.data(), 4);
        cpu::note_write(words.data() + 2, 4);
      }
      stream.synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  cpu::set_listener(nullptr);
  EXPECT_FALSE(alone.overlapped);
  EXPECT_EQ(alone.copies, 4 * 2 * kRounds);
}

// Each event of a kernel that someone might have to explain says where it is from.
TEST(HostEvents, EveryEventOfAKernelHasAPlace) {
  Recorder recorder;
  std::array<unsigned, 8> words{};
  std::uint64_t flag = 0;
  std::atomic<unsigned> atomic = 0;
  unsigned out = 0;
  Stream stream;
  launch(stream, 1, 1, all_operations, words.data(), &flag);
  launch(stream, 1, 3, with_barriers, &out);
  launch(stream, 1, 1, std_fence);
  launch(stream, 1, 1, std_atomics, &atomic);
  stream.synchronize();
  for (const Recorded& record : recorder.events) {
    const cpu::Event& event = record.event;
    if (event.kind <= EventKind::thread_end) continue;
    EXPECT_TRUE(event.pc != nullptr || (event.file != nullptr && event.line > 0))
        << to_string(event.kind);
  }
}

}  // namespace
}  // namespace holdfast::test

// A process forks while it has a region open: the region stays the parent's, whatever the child
// does with its copy of it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "holdfast/checkpoint.hpp"
#include "holdfast/region.hpp"
#include "support/in_child.hpp"
#include "support/scratch.hpp"
#include "support/still_fork.hpp"
#include "support/stream_gate.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::in_child;
using test::StreamGate;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class ForkedChildTest : public test::Scratch {
 protected:
  void SetUp() override {
    if (std::strcmp(backend::name(), "cuda") == 0) GTEST_SKIP() << "a forked child cannot use CUDA";
  }
  static std::uint64_t value(Region& region) { return region.find<std::uint64_t>("data")[0]; }
  // What a region refuses in a child.
  static void expect_refused(const std::function<void()>& body) {
    EXPECT_EQ(error_of(body, {"belongs to process " + std::to_string(::getppid()), "fork"}),
              Errc::in_use);
  }
};

// What a forking test relies on: no lock is held by a thread that the child has not.
TEST_F(ForkedChildTest, ATestsForkWaitsForBusyThreads) {
  std::atomic<bool> still = false;
  std::thread busy([&] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (std::chrono::steady_clock::now() < until) {
    }
    still = true;
    while (still) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  EXPECT_EQ(in_child([&] { EXPECT_TRUE(still); }), 0);
  still = false;
  busy.join();
}

// What is persisted behind the child's end survives kill -9 as ever.
TEST_F(ForkedChildTest, TheParentsRegionOutlivesTheChildsCopy) {
  const std::function<void(Region&)> ends[] = {
      [](Region& region) { const Region gone = std::move(region); },
      [](Region& region) { region.abandon(); },
      [](Region& region) {
        expect_refused([&] { region.close(); });
        const Region gone = std::move(region);
      },
      [this](Region& region) {
        region = Region::create(path("own"), options(kMiB));
        region.allocate<std::uint64_t>("data", 1)[0] = 5;
        region.close();
        Region::destroy(path("own"));
      },
  };
  for (const bool committed : {false, true}) {
    for (const auto& end : ends) {
      const auto parent = [&] {
        Region region = Region::create(path(), options(kMiB));
        auto data = region.allocate<std::uint64_t>("data", 1);
        if (committed) region.commit();
        EXPECT_EQ(in_child([&] { end(region); }), 0);
        data[0] = 42;
        EXPECT_EQ(region.guarantee().persist, Rung::process) << region.guarantee().reason;
        if (committed) region.commit();
        data[0] = 43;
        if (!::testing::Test::HasFailure()) ::kill(::getpid(), SIGKILL);
      };
      const int status = in_child(parent);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      Region region = Region::open(path());
      EXPECT_TRUE(region.open_report().arena_found);
      EXPECT_EQ(value(region), 43u);
      region.close();
      Region::destroy(path());
    }
  }
}

TEST_F(ForkedChildTest, TheChildIsToldWhoseTheRegionIs) {
  Region region = Region::create(path(), options(kMiB));
  auto data = region.allocate<std::uint64_t>("data", 1);
  data[0] = 7;
  region.commit();
  EXPECT_EQ(in_child([&] {
              EXPECT_EQ(data[0], 7u);
              Stream stream;
              expect_refused([&] { region.commit(stream); });
              expect_refused([&] { region.commit(); });
              expect_refused([&] { region.allocate<int>("more", 1); });
              expect_refused([&] { region.find<std::uint64_t>("data"); });
              expect_refused([&] { region.remove("data"); });
              expect_refused([&] { region.grow(2 * kMiB); });
              expect_refused([&] { region.settle(); });
              expect_refused([&] { region.pending(std::make_shared<Event>()); });
              expect_refused([&] { region.mark(data.data(), 8); });
              expect_refused([&] { region.marks(); });
              expect_refused([&] { region.objects(); });
              expect_refused([&] { region.path(); });
              expect_refused([&] { region.close(); });
              EXPECT_EQ(error_of([&] { Region::open(path()); }, {path()}), Errc::in_use);
            }),
            0);
  EXPECT_EQ(region.commit().generation, 2u);
  region.close();
}

// Commits and saves that are under way end in the parent.
TEST_F(ForkedChildTest, NothingWaitsForThreadsOfTheParent) {
  Region region = Region::create(path(), options(8 * kMiB));
  region.allocate<std::uint64_t>("data", 1)[0] = 7;
  DeviceBuffer<float> weights(1000);
  Checkpoint checkpoint(region, "training");
  checkpoint.add("model", "weights", weights.data(), weights.size());
  Stream stream, idle;
  checkpoint.save_async(stream, "model", 1).wait();
  idle.enqueue([] {});
  idle.synchronize();
  StreamGate gate;
  gate.hold(stream);
  PendingSave save = checkpoint.save_async(stream, "model", 2);
  Commit commit = region.commit(stream);
  Event event;
  event.record(stream);
  gate.wait_until_reached();
  EXPECT_EQ(in_child([&] {
              expect_refused([&] { commit.wait(); });
              expect_refused([&] { commit.wait_snapshot(); });
              expect_refused([&] { commit.done(); });
              expect_refused([&] { save.wait(); });
              expect_refused([&] { stream.synchronize(); });
              expect_refused([&] { stream.enqueue([] {}); });
              expect_refused([&] { event.synchronize(); });
              expect_refused([&] { checkpoint.save(idle, "model", 3); });
              expect_refused([&] { checkpoint.restore(idle, "model"); });
              expect_refused([&] { checkpoint.forget("model"); });
              { const Checkpoint gone = std::move(checkpoint); }
              { const Stream gone = std::move(stream); }
              { const Region gone = std::move(region); }
              idle = Stream();
              idle.enqueue([] {});
              idle.synchronize();
            }),
            0);
  gate.open();
  commit.wait();
  save.wait();
  Stream loading;
  EXPECT_EQ(checkpoint.restore(loading, "model"), 2u);
  region.close();
}

// The child has let go of the parent's files, so that it, too, can open what the parent left.
TEST_F(ForkedChildTest, AChildCanTakeOver) {
  for (const bool closed : {true, false}) {
    int done[2];
    ASSERT_EQ(::pipe(done), 0);
    const int status = in_child([&] {
      Region region = Region::create(path(), options(kMiB));
      auto data = region.allocate<std::uint64_t>("data", 1);
      data[0] = 1;
      region.commit();
      data[0] = 2;
      int ends[2];
      ASSERT_EQ(::pipe(ends), 0);
      const pid_t child = test::fork_when_still();
      if (child == 0) {
        ::alarm(20);
        char byte;
        ::close(ends[1]);
        (void)!::read(ends[0], &byte, 1);  // until the parent has ended
        region.abandon();
        Region own = Region::open(path());
        own.find<std::uint64_t>("data")[0] += 10;
        own.close();
        (void)!::write(done[1], "x", 1);
        ::_exit(0);
      }
      if (closed) region.close();
      ::kill(::getpid(), SIGKILL);
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    ::close(done[1]);
    char byte;
    EXPECT_EQ(::read(done[0], &byte, 1), 1) << "the child has failed";
    ::close(done[0]);
    Region region = Region::open(path());
    EXPECT_EQ(value(region), 12u) << closed;
    region.close();
    Region::destroy(path());
  }
}

}  // namespace
}  // namespace holdfast

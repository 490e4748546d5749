// Streams, events, memory and launch limits of the CPU backend.
#include "cpu/stream.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "cpu/support.hpp"
#include "holdfast/cpu/host_observer.hpp"
#include "support/error_of.hpp"
#include "support/still_fork.hpp"

namespace holdfast::test {
namespace {

TEST(Stream, RunsInOrder) {
  std::vector<unsigned> log(3000);
  unsigned cursor = 0;
  Stream stream;
  for (unsigned i = 0; i < 3000; i += 3) {
    launch(stream, 1, 1, append, log.data(), &cursor, i);
    stream.enqueue([&log, &cursor, i] { log[cursor++] = i + 1; });
    launch(stream, 1, 1, append, log.data(), &cursor, i + 2);
  }
  stream.synchronize();
  for (unsigned i = 0; i < 3000; ++i) ASSERT_EQ(log[i], i);
}

TEST(Stream, CopiesAndFillsAreOrderedWithKernels) {
  DeviceBuffer<unsigned> data(1 << 20);
  PinnedBuffer<unsigned> host(1 << 20);
  Stream stream;
  fill_async(stream, data.data(), 1, data.bytes());
  launch(stream, 16, 128, add_to_all, data.data(), static_cast<unsigned>(data.size()), 5u);
  copy_async(stream, host.data(), data.data(), data.bytes());
  launch(stream, 16, 128, add_to_all, data.data(), static_cast<unsigned>(data.size()), 1u);
  stream.synchronize();
  for (std::size_t i = 0; i < data.size(); ++i) {
    ASSERT_EQ(host[i], 0x01010106u);
    ASSERT_EQ(data.data()[i], 0x01010107u);
  }
}

TEST(Stream, ManyLaunches) {
  std::vector<unsigned> data(64);
  Stream stream;
  for (int i = 0; i < 20'000; ++i) {
    launch(stream, 2, 32, add_to_all, data.data(), 64u, 1u);
    if (i % 1000 == 0) stream.synchronize();
  }
  stream.synchronize();
  for (const unsigned v : data) ASSERT_EQ(v, 20'000u);
}

TEST(Stream, ManyStreamsAtOnce) {
  std::vector<std::vector<unsigned>> data(8, std::vector<unsigned>(256));
  std::vector<std::thread> hosts;
  for (auto& mine : data) {
    hosts.emplace_back([&mine] {
      Stream stream;
      for (int i = 0; i < 200; ++i) {
        launch(stream, 4, 64, add_to_all, mine.data(), 256u, 1u);
      }
      stream.synchronize();
    });
  }
  for (std::thread& host : hosts) host.join();
  for (const auto& mine : data) {
    for (const unsigned v : mine) ASSERT_EQ(v, 200u);
  }
}

TEST(Stream, IsAsynchronousAndMoves) {
  std::atomic<bool> go{false}, done{false};
  Stream first;
  first.enqueue([&] {
    while (!go) std::this_thread::yield();
    done = true;
  });
  Stream second = std::move(first);
  EXPECT_FALSE(done);
  go = true;
  second.synchronize();
  EXPECT_TRUE(done);
  Stream unused;  // no worker was ever needed
  unused.synchronize();
}

TEST(Stream, AllAreWaitedFor) {
  backend::synchronize();
  std::atomic<int> done = 0;
  Stream streams[3], failing, unused;
  failing.enqueue([] { throw Error(Errc::device, "on purpose"); });
  for (Stream& stream : streams) {
    stream.enqueue([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++done;
    });
  }
  backend::synchronize();
  EXPECT_EQ(done, 3);
  EXPECT_THROW(failing.synchronize(), Error);
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    backend::synchronize();  // not for the streams of the parent, whose threads are not here
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Event, OrdersStreams) {
  for (int round = 0; round < 50; ++round) {
    unsigned value = 0, seen = 0;
    Stream producer, consumer;
    Event ready;
    producer.enqueue([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      value = 42;
    });
    ready.record(producer);
    ready.wait(consumer);
    consumer.enqueue([&] { seen = value; });
    consumer.synchronize();
    ASSERT_EQ(seen, 42u);
  }
}

TEST(Event, MeasuresAndSynchronizes) {
  Stream stream;
  Event start, stop, never;
  never.synchronize();
  never.wait(stream);
  start.record(stream);
  stream.enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  stop.record(stream);
  stop.synchronize();
  EXPECT_GE(Event::elapsed_ms(start, stop), 19.0f);
  EXPECT_LT(Event::elapsed_ms(start, stop), 5000.0f);
  EXPECT_THROW(Event::elapsed_ms(start, never), Error);
}

TEST(Event, CompletesBehindAnError) {
  Stream stream;
  Event event;
  stream.enqueue([] { throw Error(Errc::io, "made to fail"); });
  bool ran = false;
  stream.enqueue([&] { ran = true; });
  event.record(stream);
  EXPECT_THROW(event.synchronize(), Error);
  EXPECT_THROW(stream.synchronize(), Error);
  EXPECT_FALSE(ran);
}

TEST(Event, WhoWaitsForWorkThatFailedFailsToo) {
  Stream failing, waiting;
  Event before, behind;
  bool ran[2] = {};
  before.record(failing);
  failing.enqueue([] { throw Error(Errc::kernel_fault, "made to fail"); });
  behind.record(failing);
  before.wait(waiting);
  waiting.enqueue([&] { ran[0] = true; });
  behind.wait(waiting);
  waiting.enqueue([&] { ran[1] = true; });
  try {
    waiting.synchronize();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kernel_fault);
    EXPECT_NE(std::string(error.what()).find("made to fail"), std::string::npos);
  }
  EXPECT_THROW(failing.synchronize(), Error);
  EXPECT_TRUE(ran[0]);
  EXPECT_FALSE(ran[1]);
}

TEST(Stream, BytesAtNullAreRefusedAndNoBytesAreNot) {
  Stream stream;
  unsigned data[4] = {1, 2, 3, 4};
  const auto expect_refused = [](auto&& use, const char* what) {
    EXPECT_EQ(error_of(use, {what, " of 8 bytes is null"}), Errc::invalid_argument);
  };
  expect_refused([&] { copy_async(stream, nullptr, data, 8); }, "the target of a copy");
  expect_refused([&] { copy_async(stream, data, nullptr, 8); }, "the source of a copy");
  expect_refused([&] { fill_async(stream, nullptr, 0, 8); }, "the target of a fill");
  copy_async(stream, nullptr, nullptr, 0);
  fill_async(stream, nullptr, 0, 0);
  copy_async(stream, data, data + 2, 8);
  stream.synchronize();
  EXPECT_EQ(data[0], 3u);
}

TEST(Stream, OneThatWasMovedFromSaysSo) {
  Stream stream;
  unsigned data[4] = {};
  const Stream taken = std::move(stream);
  const auto expect_refused = [](auto&& use) {
    EXPECT_EQ(error_of(use, {"the stream was moved from", "moved to"}), Errc::closed);
  };
  expect_refused([&] { stream.synchronize(); });
  expect_refused([&] { stream.enqueue([] {}); });
  expect_refused([&] { stream.native(); });
  expect_refused([&] { launch(stream, 1, 1, add_to_all, data, 4u, 1u); });
  expect_refused([&] { copy_async(stream, data, data + 1, 4); });
  expect_refused([&] { fill_async(stream, data, 1, 4); });
  Event event;
  expect_refused([&] { event.record(stream); });
  expect_refused([&] { event.wait(stream); });
  Stream other;
  event.record(other);
  expect_refused([&] { event.wait(stream); });
  stream = Stream();
  stream.synchronize();
}

TEST(Event, OneThatWasMovedFromSaysSo) {
  Stream stream;
  Event event;
  event.record(stream);
  Event taken = std::move(event);
  const auto expect_refused = [](auto&& use) {
    EXPECT_EQ(error_of(use, {"the event was moved from", "moved to"}), Errc::closed);
  };
  expect_refused([&] { event.record(stream); });
  expect_refused([&] { event.synchronize(); });
  expect_refused([&] { event.wait(stream); });
  expect_refused([&] { event.failed(); });
  taken.synchronize();
  expect_refused([&] { Event::elapsed_ms(taken, event); });
  stream.synchronize();  // it has not failed
  event = std::move(taken);
  event.synchronize();
}

TEST(Memory, IsZeroedAndAligned) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{5} << 20}) {
    for (int again = 0; again < 2; ++again) {
      auto* memory = static_cast<unsigned char*>(backend::allocate_device(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
      for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(memory[i], 0);
      for (std::size_t i = 0; i < bytes; ++i) memory[i] = 0xff;
      backend::free_device(memory);
    }
  }
  backend::free_device(nullptr);
  DeviceBuffer<int> none(0);
  EXPECT_EQ(none.data(), nullptr);
}

TEST(Memory, TooMuchIsAnError) {
  for (const std::size_t bytes : {std::size_t{1} << 50, std::numeric_limits<std::size_t>::max(),
                                  backend::free_device_memory() * 2}) {
    try {
      backend::allocate_device(bytes);
      FAIL() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::no_memory);
    }
  }
}

TEST(Memory, AnArrayWhoseBytesOverflowIsAnError) {
  constexpr std::size_t kCount = (std::size_t{1} << 61) + 1;  // 8 bytes, if they wrap
  const auto code_of = [](auto&& make) {
    try {
      make();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(kCount)), std::string::npos);
      return error.code();
    }
    return Errc::invalid_argument;
  };
  EXPECT_EQ(code_of([] { DeviceBuffer<std::uint64_t>{kCount}; }), Errc::no_memory);
  EXPECT_EQ(code_of([] { PinnedBuffer<std::uint64_t>{kCount}; }), Errc::no_memory);
}

TEST(Backend, SaysWhatItIs) {
  EXPECT_STREQ(backend::name(), "cpu");
  EXPECT_FALSE(backend::device_name().empty());
  EXPECT_TRUE(backend::usable(nullptr));
  EXPECT_GT(backend::free_device_memory(), 0u);
  EXPECT_EQ(backend::device_pci_address(), "");
}

TEST(Launch, NamesTheLimit) {
  const auto refused = [](const LaunchShape& shape, const char* part) {
    Stream stream;
    try {
      launch(stream, shape, print_one);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused({dim3(0), dim3(1)}, "grid.x is 0"));
  EXPECT_TRUE(refused({dim3(0x80000000u), dim3(1)}, "grid.x"));
  EXPECT_TRUE(refused({dim3(1, 65536), dim3(1)}, "grid.y"));
  EXPECT_TRUE(refused({dim3(1, 1, 65536), dim3(1)}, "grid.z"));
  EXPECT_TRUE(refused({dim3(1), dim3(1025)}, "block.x"));
  EXPECT_TRUE(refused({dim3(1), dim3(1, 1025)}, "block.y"));
  EXPECT_TRUE(refused({dim3(1), dim3(1, 1, 65)}, "block.z"));
  EXPECT_TRUE(refused({dim3(1), dim3(32, 33)}, "threads in a block is 1056"));
  EXPECT_TRUE(refused({dim3(1), dim3(1), 227 * 1024 + 1}, "shared memory"));
}

TEST(Launch, PrintfWorks) {
  ::testing::internal::CaptureStdout();
  Stream stream;
  launch(stream, 2, 2, print_one);
  stream.synchronize();
  std::fflush(stdout);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "thread 0 of block 0\nthread 1 of block 0\n"
            "thread 0 of block 1\nthread 1 of block 1\n");
}

// A child that fork() leaves without the team's threads makes its own.
TEST(Launch, WorksInAForkedChild) {
  std::vector<unsigned> data(64);
  {
    const ScheduleScope scope(with_seed(3));
    Stream stream;
    launch(stream, 8, 32, add_to_all, data.data(), 64u, 1u);
    stream.synchronize();
  }
  const pid_t child = test::fork_when_still();
  if (child == 0) {
    cpu::set_schedule(with_seed(4));
    Stream stream;
    launch(stream, 8, 32, add_to_all, data.data(), 64u, 1u);
    stream.synchronize();
    _exit(data[0] == 2 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(HostObserver, DoesNoHarmWhereNobodyListens) {
  const cpu::HostObserver observer;
  std::vector<unsigned> log(1);
  unsigned cursor = 0;
  Stream stream;
  launch(stream, 1, 1, append, log.data(), &cursor, 5u);
  stream.synchronize();
  cpu::note_read(log.data(), 4);
  cpu::note_write(log.data(), 4);
  EXPECT_EQ(log[0], 5u);
}

}  // namespace
}  // namespace holdfast::test

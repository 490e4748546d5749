// No step starts a thread: what a step takes would hold that.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <ostream>
#include <vector>

#include "holdfast/stream.hpp"
#include "support/scratch.hpp"
#include "workload/workload.hpp"

namespace {
std::atomic<unsigned> started{0};
}

// Every thread of the process is started by it: std::thread, OpenMP, and the backend.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  ++started;
  return create(thread, attributes, body, argument);
}

namespace workload {
void PrintTo(const Info& info, std::ostream* out) { *out << info.name; }
}  // namespace workload

namespace {

using workload::Mode;

class EachWorkload : public holdfast::test::Scratch,
                     public ::testing::WithParamInterface<workload::Info> {};

INSTANTIATE_TEST_SUITE_P(Threads, EachWorkload, ::testing::ValuesIn(workload::workloads()),
                         [](const auto& info) { return info.param.name; });

// Of the CPU backend, whose streams have threads, which a GPU's have not: it keeps those of streams
// that are gone for later ones. More than any workload has.
void start_threads_of_streams() {
  constexpr std::size_t kStreams = 32;
  const holdfast::PinnedBuffer<std::uint64_t> word(1);
  std::vector<holdfast::Stream> streams(kStreams);
  for (holdfast::Stream& stream : streams) {
    holdfast::fill_async(stream, word.data(), 0, sizeof(word[0]));
    stream.synchronize();
  }
}

TEST_P(EachWorkload, StartsNoThreadInAStep) {
  start_threads_of_streams();
  for (const Mode mode : workload::all_modes()) {
    SCOPED_TRACE(to_string(mode));
    workload::Settings settings;
    settings.mode = mode;
    const auto work = GetParam().make(settings);
    workload::BackingOptions options;
    options.mode = mode;
    options.path = path(to_string(mode));
    options.capacity = work->medium_bytes();
    options.cpu_threads = 3;
    workload::Backing backing(options);
    EXPECT_GE(started, 2u);  // it counts
    work->prepare(backing);
    std::uint64_t step = work->resume();
    const unsigned before = started;
    for (; step < work->steps(); ++step) {
      work->step(step);
      EXPECT_EQ(started, before) << "in step " << step;
      if (started != before) break;
    }
  }
}

}  // namespace

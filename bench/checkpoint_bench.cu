// Checkpoints against the copy engine: bandwidth by size, the cost of small ones, how long an
// asynchronous one holds the stream, and what a small one costs that is long behind the last.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "bench.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/testing/checkpoint.hpp"
#include "scratch_region.hpp"

namespace {

using bench::median;
using bench::seconds;
using holdfast::Checkpoint;
using holdfast::DeviceBuffer;
using holdfast::Stream;

__global__ void touch(std::uint8_t* bytes) { bytes[0] += 1; }
__global__ void nothing() {}

struct Setup {
  explicit Setup(std::uint64_t bytes)
      : bytes(bytes),
        scratch(Checkpoint::region_bytes(bytes, 1) + (1u << 20)),
        data(bytes),
        pinned(bytes),
        checkpoint(scratch.get(), "bench") {
    checkpoint.add("g", "data", data.data(), bytes);
    holdfast::fill_async(stream, data.data(), 7, bytes);
    stream.synchronize();
  }
  template <class Body>
  double median_of(std::uint64_t repeat, Body&& body) {
    body();
    body();  // both copies are made and their memory is touched
    std::vector<double> times;
    for (std::uint64_t i = 0; i < repeat; ++i) {
      times.push_back(seconds([&] {
        body();
        stream.synchronize();
      }));
    }
    return median(times);
  }

  std::uint64_t bytes;
  bench::ScratchRegion scratch;
  DeviceBuffer<std::uint8_t> data;
  holdfast::PinnedBuffer<std::uint8_t> pinned;
  Stream stream;
  Checkpoint checkpoint;
};

void by_engine(Setup& setup, bool engine) {
  holdfast::testing::set_engine_threshold(setup.checkpoint, engine ? 1 : ~std::uint64_t{0});
}

void saves(std::uint64_t bytes, std::uint64_t repeat) {
  Setup setup(bytes);
  const double copy = setup.median_of(repeat, [&] {
    holdfast::copy_async(setup.stream, setup.pinned.data(), setup.data.data(), bytes);
  });
  for (const bool engine : {false, true}) {
    by_engine(setup, engine);
    const double save =
        setup.median_of(repeat, [&] { setup.checkpoint.save(setup.stream, "g", 1); });
    const double restore =
        setup.median_of(repeat, [&] { setup.checkpoint.restore(setup.stream, "g"); });
    bench::Line("checkpoint_save")
        .text("by", engine ? "copy engine" : "kernel")
        .count("bytes", bytes)
        .number("save_us", 1e6 * save)
        .number("restore_us", 1e6 * restore)
        .number("copy_us", 1e6 * copy)
        .number("gb_per_s", static_cast<double>(bytes) / save / 1e9)
        .number("ratio_to_copy", copy / save)
        .print();
  }
}

// How much later a kernel behind the save ends than it would without one.
void asides(std::uint64_t bytes, std::uint64_t repeat) {
  Setup setup(bytes);
  const auto kernel = [&] {
    holdfast::launch(setup.stream, dim3(1), dim3(1), touch, setup.data.data());
  };
  const double alone = setup.median_of(repeat, kernel);
  const double direct = setup.median_of(repeat, [&] {
    setup.checkpoint.save(setup.stream, "g", 1);
    kernel();
  });
  std::vector<double> held, blocking, durable;
  for (std::uint64_t i = 0; i < repeat + 2; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    const auto since = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    };
    holdfast::PendingSave pending = setup.checkpoint.save_async(setup.stream, "g", 1);
    const double returned = since();
    kernel();
    setup.stream.synchronize();
    const double next = since();
    pending.wait();
    if (i < 2) continue;
    blocking.push_back(returned);
    held.push_back(next - alone);
    durable.push_back(since());
  }
  bench::Line("checkpoint_aside")
      .count("bytes", bytes)
      .number("blocking_us", 1e6 * median(blocking))
      .number("held_us", 1e6 * median(held))
      .number("durable_us", 1e6 * median(durable))
      .number("direct_us", 1e6 * (direct - alone))
      .number("held_to_direct", median(held) / (direct - alone))
      .print();
}

// What is between two calls.
struct Between {
  const char* what;
  std::function<void(Setup&)> wait;
};

// A program does other things for milliseconds between two saves, and the next one finds the way to
// the device cold: by how much, beside what a launch and a copy alone take then.
void apart(std::uint64_t bytes, std::uint64_t repeat) {
  constexpr double kSeconds = 2e-3;
  const auto until = [](auto&& body) {
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() <
           kSeconds) {
      body();
    }
  };
  const std::vector<Between> all = {
      {"nothing", [](Setup&) {}},
      {"2 ms of the host", [&](Setup&) { until([] {}); }},
      {"2 ms of kernels, each waited for",
       [&](Setup& setup) {
         until([&] {
           holdfast::launch(setup.stream, dim3(1), dim3(1), touch, setup.data.data());
           setup.stream.synchronize();
         });
       }},
  };
  Setup setup(bytes);
  const auto measure = [&](const Between& between, const char* call, auto&& body) {
    std::vector<double> times;
    for (std::uint64_t i = 0; i < repeat + 2; ++i) {
      between.wait(setup);
      const double took = seconds([&] {
        body();
        setup.stream.synchronize();
      });
      if (i >= 2) times.push_back(took);
    }
    std::sort(times.begin(), times.end());
    bench::Line("checkpoint_apart")
        .text("between", between.what)
        .text("call", call)
        .count("bytes", bytes)
        .number("us", 1e6 * median(times))
        .number("p10_us", 1e6 * times[times.size() / 10])
        .number("p90_us", 1e6 * times[times.size() * 9 / 10])
        .print();
  };
  for (const Between& between : all) {
    measure(between, "a launch",
            [&] { holdfast::launch(setup.stream, dim3(1), dim3(1), nothing); });
    measure(between, "a copy", [&] {
      holdfast::copy_async(setup.stream, setup.pinned.data(), setup.data.data(), bytes);
    });
    for (const bool engine : {false, true}) {
      by_engine(setup, engine);
      measure(between, engine ? "a save by the copy engine" : "a save by a kernel",
              [&] { setup.checkpoint.save(setup.stream, "g", 1); });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv,
                               {{"max_mib", 1024}, {"repeat", 15}, {"apart_bytes", 138'496}});
  try {
    apart(options["apart_bytes"], 20 * options["repeat"]);
    const std::uint64_t most = options["max_mib"] << 20;
    for (std::uint64_t bytes = 4096; bytes <= most; bytes *= 4) saves(bytes, options["repeat"]);
    for (std::uint64_t bytes = 1u << 20; bytes <= most; bytes *= 4) {
      asides(bytes, options["repeat"]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}

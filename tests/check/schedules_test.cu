#include "check/scheduled_programs.hpp"

#include <algorithm>
#include <string>

#include "holdfast/kernel.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {
namespace {

using check::History;
using check::Program;
using check::Session;

struct Words {
  static constexpr const char* kTypeName = "words";
  alignas(64) std::uint64_t a;
  alignas(64) std::uint64_t b;
  alignas(64) std::uint64_t total;
  alignas(64) std::uint64_t valid;
  alignas(64) std::uint64_t flag;
  std::uint64_t records[8];
};

Words* words_of(Region& region) { return region.find<Words>("words").data(); }

using Kernel = void (*)(Words*, std::uint32_t*);

// One launch on one stream, which the host waits for.
Program one_kernel(const std::string& name, unsigned blocks, unsigned threads, Kernel kernel,
                   std::string (*verify)(const Words&, const History&)) {
  Program program;
  program.name = name;
  program.region_bytes = std::uint64_t{256} << 10;
  program.set_up = [](Region& region) { region.allocate<Words>("words", 1); };
  program.run = [=](Region& region, Session& session) {
    Stream stream;
    const DeviceBuffer<std::uint32_t> shared(4);
    fill_async(stream, shared.data(), 0, 4 * sizeof(std::uint32_t));
    session.start();
    launch(stream, dim3(blocks), dim3(threads), kernel, words_of(region), shared.data());
    stream.synchronize();
    session.acknowledge();
  };
  program.recover = [](Region&) {};
  program.verify = [=](Region& region, const History& history, std::uint64_t) {
    return verify(*words_of(region), history);
  };
  return program;
}

template <bool kFixed>
__global__ void tell(Words* words, std::uint32_t* shared) {
  if (blockIdx.x == 0) {
    words->a = 1;
    if (kFixed) persist();
    atomicExch(&shared[0], 1u);
    if (!kFixed) persist();
    return;
  }
  for (int step = 0; step < 4; ++step) {
    if (atomicAdd(&shared[0], 0u) == 0) return;
  }
  words->b = 1;
}

std::string verify_told(const Words& words, const History&) {
  return words.b == 1 && words.a == 0 ? "what was told is not there" : "";
}

template <bool kFixed>
__global__ void arrive(Words* words, std::uint32_t* shared) {
  words->records[threadIdx.x] = threadIdx.x + 1;
  persist();
  if (atomicAdd(&shared[0], 1u) + 1 != blockDim.x) return;
  words->total = 7;
  if (kFixed || threadIdx.x != 0) persist();
  words->valid = 1;
}

template <bool kFixed>
__global__ void win(Words* words, std::uint32_t* shared) {
  if (atomicCAS(&shared[0], 0u, 1u) != 0) return;
  words->total = 7;
  if (kFixed || threadIdx.x + 1 != blockDim.x) persist();
  words->valid = 1;
}

std::string verify_valid(const Words& words, const History&) {
  return words.valid == 1 && words.total != 7 ? "valid without its total" : "";
}

template <bool kFixed>
__global__ void answer(Words* words) {
  words->a = 1;
  if (kFixed) persist();
  *static_cast<volatile std::uint64_t*>(&words->flag) = 1;
  if (!kFixed) persist();
}

void wait_for_flag(const Words* words) {
  while (*static_cast<const volatile std::uint64_t*>(&words->flag) == 0) {
  }
}

__global__ void store(std::uint64_t* word) { *word = 1; }

__global__ void count(Words* words, std::uint32_t* shared, unsigned each) {
  std::uint32_t last = 0;
  for (unsigned i = 0; i < each; ++i) last = atomicAdd(&shared[0], 1u);
  words->records[threadIdx.x] = last + 1;
}

// Recovery's kernels.
__global__ void store_both(Words* words, std::uint32_t*) {
  words->a = 1;
  words->b = 1;
}

template <bool kFixed>
__global__ void copy_if_won(Words* words, std::uint32_t* shared) {
  if (atomicCAS(&shared[0], 0u, 1u) != 0) return;
  if (kFixed || threadIdx.x + 1 != blockDim.x) words->total = words->a;
}

template <bool kFixed>
__global__ void read_if_second(Words* words, std::uint32_t* shared) {
  if (atomicCAS(&shared[0], 0u, 1u) != 0 || threadIdx.x != 1) return;
  words->total = kFixed ? 0 : words->b;
}

template <bool kFixed>
__global__ void publish_if_won(Words* words, std::uint32_t* shared) {
  if (atomicCAS(&shared[0], 0u, 1u) != 0 || words->valid == 1) return;
  words->total = 7;
  if (kFixed || threadIdx.x + 1 != blockDim.x) persist();
  words->valid = 1;
}

// What publish_if_won() leaves out the first of the block mends.
template <bool kFixed>
__global__ void mend_if_won(Words* words, std::uint32_t* shared) {
  if (atomicCAS(&shared[0], 0u, 1u) != 0) return;
  if (words->valid == 1 && (kFixed || threadIdx.x == 0)) words->total = 7;
  if (words->valid == 1) return;
  words->total = 7;
  words->valid = 1;
}

// `threads`: of the kernel that recovers.
Program recovered_by(const std::string& name, unsigned threads, Kernel kernel,
                     std::string (*verify)(const Words&, const History&)) {
  Program program = one_kernel(name, 1, 1, store_both, verify);
  program.recover = [=](Region& region) {
    Stream stream;
    const DeviceBuffer<std::uint32_t> shared(4);
    fill_async(stream, shared.data(), 0, 4 * sizeof(std::uint32_t));
    launch(stream, dim3(1), dim3(threads), kernel, words_of(region), shared.data());
    stream.synchronize();
  };
  return program;
}

std::string verify_copy(const Words& words, const History&) {
  return words.total != words.a ? "the copy differs" : "";
}

std::string verify_order(const Words& words, const History&) {
  return words.total != 0 && words.a == 0 ? "b came without a" : "";
}

}  // namespace

Program told_before_persist(bool fixed) {
  return one_kernel("told_before_persist", 2, 1, fixed ? tell<true> : tell<false>, verify_told);
}

Program last_arriver(bool fixed) {
  return one_kernel("last_arriver", 1, 3, fixed ? arrive<true> : arrive<false>, verify_valid);
}

Program winner(bool fixed) {
  return one_kernel("winner", 1, 3, fixed ? win<true> : win<false>, verify_valid);
}

Program polling_host(bool fixed) {
  Program program =
      one_kernel("polling_host", 1, 1, nullptr, [](const Words& words, const History& history) {
        return std::string(history.acknowledged == 1 && words.a == 0 ? "what was promised is lost"
                                                                     : "");
      });
  program.run = [fixed](Region& region, Session& session) {
    Stream stream;
    Words* const words = words_of(region);
    session.start();
    launch(stream, dim3(1), dim3(1), fixed ? answer<true> : answer<false>, words);
    wait_for_flag(words);
    session.acknowledge();
    stream.synchronize();
  };
  return program;
}

namespace {

// Opaque, so that the loop loads anew each time.
[[gnu::noinline]] bool is_set(const std::uint64_t* word) {
  asm volatile("" ::: "memory");
  return *word != 0;
}

bool is_reached(const Event& event) {
  try {
    Event::elapsed_ms(event, event);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Program asking_host(Asks how) {
  Program program = one_kernel("asking_host", 1, 1, nullptr,
                               [](const Words&, const History&) { return std::string(); });
  program.run = [how](Region& region, Session& session) {
    Stream stream;
    Event event;
    Words* const words = words_of(region);
    session.start();
    launch(stream, dim3(1), dim3(1), answer<true>, words);
    event.record(stream);
    while (how == Asks::by_read && check::read(&words->flag) == 0) {
    }
    while (how == Asks::by_plain_loads && !is_set(&words->flag)) {
    }
    while (how == Asks::by_event && !is_reached(event)) {
    }
    session.acknowledge();
    stream.synchronize();
  };
  return program;
}

Program two_streams(bool fixed) {
  Program program =
      one_kernel("two_streams", 1, 1, nullptr, [](const Words& words, const History& history) {
        const bool whole = words.a == 1 && words.b == 1;
        return std::string(history.acknowledged == 1 && !whole ? "what was promised is lost" : "");
      });
  program.run = [fixed](Region& region, Session& session) {
    Stream one, other;
    Words* const words = words_of(region);
    session.start();
    launch(one, dim3(1), dim3(1), store, &words->a);
    launch(other, dim3(1), dim3(1), store, &words->b);
    one.synchronize();
    if (fixed) other.synchronize();
    session.acknowledge();
    other.synchronize();
  };
  return program;
}

Program counters(unsigned threads, unsigned each) {
  Program program = one_kernel("counters", 1, threads, nullptr,
                               [](const Words&, const History&) { return std::string(); });
  program.run = [=](Region& region, Session& session) {
    Stream stream;
    const DeviceBuffer<std::uint32_t> shared(4);
    fill_async(stream, shared.data(), 0, 4 * sizeof(std::uint32_t));
    session.start();
    launch(stream, dim3(1), dim3(threads), count, words_of(region), shared.data(), each);
    stream.synchronize();
    session.acknowledge();
  };
  program.verify = [=](Region& region, const History& history, std::uint64_t) {
    std::uint64_t most = 0;
    for (unsigned i = 0; i < threads; ++i) most = std::max(most, words_of(region)->records[i]);
    return std::string(history.acknowledged == 1 && most != std::uint64_t{threads} * each
                           ? "nobody was last"
                           : "");
  };
  return program;
}

Program recovered_by_the_winner(bool fixed) {
  return recovered_by("recovered_by_the_winner", 3, fixed ? copy_if_won<true> : copy_if_won<false>,
                      verify_copy);
}

Program read_by_the_second(bool fixed) {
  return recovered_by("read_by_the_second", 3, fixed ? read_if_second<true> : read_if_second<false>,
                      verify_order);
}

Program published_in_recovery(bool fixed) {
  return recovered_by("published_in_recovery", 2,
                      fixed ? publish_if_won<true> : publish_if_won<false>, verify_valid);
}

Program mended_by_the_winner(bool fixed) {
  return recovered_by("mended_by_the_winner", 2, fixed ? mend_if_won<true> : mend_if_won<false>,
                      verify_valid);
}

Program recovered_by_two_streams() {
  Program program = one_kernel("recovered_by_two_streams", 1, 1, store_both, verify_copy);
  program.recover = [=](Region& region) {
    Stream one, other;
    const DeviceBuffer<std::uint32_t> shared(4);
    fill_async(one, shared.data(), 0, 4 * sizeof(std::uint32_t));
    one.synchronize();
    for (Stream* stream : {&one, &other}) {
      launch(*stream, dim3(1), dim3(1), copy_if_won<true>, words_of(region), shared.data());
    }
    one.synchronize();
    other.synchronize();
  };
  return program;
}

Program counting_recovery(unsigned threads, unsigned each) {
  Program program = one_kernel("counting_recovery", 1, 1, store_both,
                               [](const Words&, const History&) { return std::string(); });
  program.recover = [=](Region& region) {
    Stream stream;
    const DeviceBuffer<std::uint32_t> shared(4);
    fill_async(stream, shared.data(), 0, 4 * sizeof(std::uint32_t));
    launch(stream, dim3(1), dim3(threads), count, words_of(region), shared.data(), each);
    stream.synchronize();
  };
  return program;
}

}  // namespace holdfast::test
